/* SPDX-License-Identifier: MIT
 *
 * Both are answered at once with the number of the change: what came of it is an event of the
 * job. */
#include "daemon/ringd/api/api_adapters.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "daemon/common/job_spec.h"
#include "daemon/common/model/model_name.h"
#include "daemon/ringd/api/api_impl.h"
#include "daemon/ringd/api/api_jobs.h"
#include "daemon/ringd/api/api_reply.h"
#include "daemon/ringd/api/api_store.h"
#include "daemon/ringd/api/intake.h"
#include "daemon/ringd/http/http.h"
#include "daemon/ringd/job/coord.h"
#include "daemon/ringd/job/loan.h"

static void change(struct api *api, struct http_call *call, uint64_t id, const char *name, const char *path,
                   struct loan *loan)
{
    struct err err = {""};
    uint64_t number;
    switch (coord_change_adapter(api->setup.coord, id, name, path, loan, &number, &err)) {
    case 0:
        api_reply(call, 202, json_pack("{s:I s:I}", "id", (json_int_t)id, "change", (json_int_t)number));
        break;
    case -ENOENT: api_fail_unknown_job(api, call, id); break;
    case -EBUSY:
    case -EALREADY: http_fail(call, 409, "refused", "%s", err.text); break;
    case -ENOBUFS: http_fail(call, 503, "busy", "%s", err.text); break;
    default: http_fail(call, 400, "bad-request", "%s", err.text);
    }
}

/* It may lie elsewhere now than the client has said: intake.h. */
static void on_looked(void *owner, struct http_call *call, uint64_t job, const json_t *adapters,
                      struct loan *loan)
{
    void *first = json_object_iter((json_t *)(uintptr_t)adapters);
    change(owner, call, job, json_object_iter_key(first), json_string_value(json_object_iter_value(first)),
           loan);
}

static bool is_request(const json_t *request)
{
    const char *name = json_string_value(json_object_get(request, "name")),
               *path = json_string_value(json_object_get(request, "path"));
    const json_t *loan = json_object_get(request, "loan");
    return name && job_adapter_is_name(name) && path && (*path == '/' || model_name_is(path)) &&
           (!loan || json_is_string(loan)) && json_object_size(request) == 2 + !!loan;
}

/* Of a request whose adapter is a folder, or has an exact name. */
static void take_in(struct api *api, struct http_call *call, json_t *request, struct loan *loan, bool is_plan)
{
    (void)is_plan;
    const struct intake_request req = {.type = JOB_SERVE,
                                       .spec = json_object_get(request, "spec"),
                                       .loan = loan,
                                       .adapters = on_looked,
                                       .owner = api,
                                       .job = (uint64_t)json_integer_value(json_object_get(request, "job"))};
    intake_take(api->setup.intake, &req, call);
}

void api_post_adapter(struct api *api, struct http_call *call)
{
    uint64_t id;
    size_t size;
    const char *body = http_body(call, &size);
    json_error_t je;
    struct loan *loan = NULL;
    if (!api_read_job(call, &id))
        return;
    json_t *request = body ? json_loadb(body, size, 0, &je) : NULL, *named = NULL;
    if (is_request(request))
        named =
            json_pack("{s:I s:{s:{s:O}}}", "job", (json_int_t)id, "spec", "adapters",
                      json_string_value(json_object_get(request, "name")), json_object_get(request, "path"));
    if (!named)
        http_fail(
            call, 400, "bad-request",
            "the body must be {\"name\": \"…\", \"path\": \"/…\"}: what clients call the adapter, with 1 to "
            "%d letters, digits and ._:- only, and its folder or ORG/NAME; it may have \"loan\"",
            JOB_ADAPTER_NAME);
    else if (api_read_loan(api, call, request, &loan) &&
             !api_store_resolve(api, call, named, loan, true, take_in))
        take_in(api, call, named, loan, true);
    loan_drop(loan);
    json_decref(named);
    json_decref(request);
}

void api_delete_adapter(struct api *api, struct http_call *call)
{
    static const char between[] = "/adapters/";
    const char *name = strstr(http_path(call), between) + sizeof between - 1;
    uint64_t id;
    if (api_read_job(call, &id))
        change(api, call, id, name, NULL, NULL);
}
