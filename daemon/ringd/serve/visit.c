/* SPDX-License-Identifier: MIT
 *
 * Owns what is known of a request for its line in the journal. */
#include "daemon/ringd/serve/visit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/xalloc.h"
#include "daemon/ringd/http/http.h"
#include "daemon/ringd/log.h"
#include "daemon/ringd/serve/desk.h"
#include "daemon/ringd/serve/visit_lines.h"
#include "net/clock.h"

struct visit {
    struct desk *desk;  /* borrowed */
    const char *method; /* static, as the route */
    const char *route;
    char *who, *model; /* owned; model NULL: none was found */
    uint64_t job;
    struct instant since;
    size_t in, out;
};

static const char *who_asks(const struct http_call *call)
{
    const char *client = http_client(call);
    if (*client)
        return client;
    return http_is_inside(call) ? "(another node)" : http_is_local(call) ? "(socket)" : "(token)";
}

struct visit *visit_begin(struct desk *desk, const struct http_call *call)
{
    struct visit *v = xcalloc(1, sizeof *v);
    *v = (struct visit){.desk = desk,
                        .method = strcmp(http_method(call), "GET") ? "POST" : "GET",
                        .route = http_route(call),
                        .who = xstrdup(who_asks(call)),
                        .since = clock_now()};
    return v;
}

void visit_model(struct visit *v, uint64_t job, const char *name)
{
    free(v->model);
    v->model = xstrdup(name);
    v->job = job;
}

void visit_tokens(struct visit *v, size_t in, size_t out)
{
    v->in = in;
    v->out = out;
}

static void say(struct visit *v, const char *end)
{
    uint64_t left_out;
    char more[48] = "";
    if (!visit_lines_take(desk_visit_lines(v->desk), clock_now(), &left_out))
        return;
    if (left_out)
        snprintf(more, sizeof more, " (%llu lines left out)", (unsigned long long)left_out);
    log_about(LOG_LEVEL_INFO, &(struct log_about){.job = v->job}, "%s: %s %s of %s: %s%s", v->who, v->method,
              v->route, v->model ? v->model : "no model", end, more);
}

static void visit_free(struct visit *v)
{
    free(v->who);
    free(v->model);
    free(v);
}

void visit_end(struct visit *v, unsigned status)
{
    char end[160];
    const uint64_t ms = (uint64_t)clock_since_us(clock_now(), v->since) / 1000;
    snprintf(end, sizeof end, "%u, %zu tokens in, %zu out, %llu ms", status, v->in, v->out,
             (unsigned long long)ms);
    say(v, end);
    visit_free(v);
}

void visit_pass_on(struct visit *v, const char *node)
{
    char end[96];
    snprintf(end, sizeof end, "passed on to %s", node);
    say(v, end);
    visit_free(v);
}
