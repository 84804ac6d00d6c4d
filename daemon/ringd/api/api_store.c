/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/api/api_store.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/model/model_name.h"
#include "daemon/common/xalloc.h"
#include "daemon/ringd/api/api_impl.h"
#include "daemon/ringd/api/api_reply.h"
#include "daemon/ringd/cluster/members.h"
#include "daemon/ringd/http/http.h"
#include "daemon/ringd/hub/supply.h"
#include "daemon/ringd/job/coord.h"
#include "daemon/ringd/job/loan.h"
#include "daemon/ringd/timer.h"

static void refuse(struct http_call *call, const char *model, int r, const char *why)
{
    const bool is_busy = r == -EAGAIN || r == -ECANCELED;
    http_fail(call,
              is_busy        ? 503
              : r == -ENOENT ? 404
              : r == -EINVAL ? 400
                             : 409,
              is_busy        ? "busy"
              : r == -ENOENT ? "no-such-model"
              : r == -EINVAL ? "bad-request"
                             : "refused",
              "%s%s%s", model, *model ? ": " : "", why);
}

/* --- the store -------------------------------------------------------------------------------- */

static void on_answer(void *owner, const json_t *answer, int r, const char *why)
{
    struct http_call *call = owner;
    if (r)
        refuse(call, "", r, why);
    else
        api_reply(call, 200, json_deep_copy(answer));
}

void api_get_store(struct api *api, struct http_call *call)
{
    supply_survey(api->setup.supply, on_answer, call);
}

static void answer_row(struct http_call *call, json_t *row, int r, const struct err *err)
{
    if (r)
        refuse(call, "", r, err->text);
    else
        api_reply(call, 200, row);
}

static void stop(struct api *api, struct http_call *call, const char *model)
{
    if (supply_stop(api->setup.supply, model))
        http_fail(call, 404, "no-such-model", "%s is not being pulled", model);
    else
        api_reply(call, 200, json_pack("{s:s s:s}", "model", model, "done", "stop"));
}

static bool is_of_shelf(const char *what)
{
    return !strcmp(what, "remove") || !strcmp(what, "pin") || !strcmp(what, "unpin");
}

static bool is_list_of_texts(const json_t *list)
{
    size_t i;
    json_t *one;
    bool is = json_is_array(list);
    json_array_foreach (list, i, one)
        is = is && json_is_string(one);
    return is;
}

static void push(struct api *api, struct http_call *call, const char *model, const json_t *nodes)
{
    struct err err;
    json_t *row = NULL;
    if (nodes && !is_list_of_texts(nodes))
        http_fail(call, 400, "bad-request",
                  "\"nodes\" must be a list of names; without it all nodes are meant");
    else {
        const int r = supply_push(api->setup.supply, model, nodes, &row, &err);
        answer_row(call, row, r, &err);
    }
}

static void obey(struct api *api, struct http_call *call, const char *what, const char *model,
                 const json_t *body)
{
    const char *folder = json_string_value(json_object_get(body, "folder"));
    struct model_name read;
    struct err err = {""};
    json_t *row = NULL;
    int r = model_name_read(&read, model, &err);
    if (r)
        answer_row(call, NULL, r, &err);
    else if (!strcmp(what, "pull") || !strcmp(what, "verify")) {
        r = *what == 'p' ? supply_pull(api->setup.supply, model, &row, &err)
                         : supply_verify(api->setup.supply, model, &row, &err);
        answer_row(call, row, r, &err);
    } else if (!strcmp(what, "add") && folder) {
        r = supply_add(api->setup.supply, model, folder, &row, &err);
        answer_row(call, row, r, &err);
    } else if (!strcmp(what, "stop"))
        stop(api, call, model);
    else if (!strcmp(what, "push") && model_name_is_exact(model))
        push(api, call, model, json_object_get(body, "nodes"));
    else if (is_of_shelf(what) && model_name_is_exact(model))
        supply_do(api->setup.supply, what, model, on_answer, call);
    else
        http_fail(call, 400, "bad-request",
                  "\"do\" is pull, stop or verify; add, with a \"folder\"; or push, pin, unpin or remove, of "
                  "ORG/NAME@COMMIT");
}

void api_post_store(struct api *api, struct http_call *call)
{
    size_t n;
    const char *text = http_body(call, &n);
    json_t *body = text ? json_loadb(text, n, 0, NULL) : NULL;
    const char *what = json_string_value(json_object_get(body, "do")),
               *model = json_string_value(json_object_get(body, "model"));
    if (what && model)
        obey(api, call, what, model, body);
    else
        http_fail(call, 400, "bad-request", "the body must be {\"do\": \"pull\", \"model\": \"ORG/NAME\"}");
    json_decref(body);
}

/* --- jobs ------------------------------------------------------------------------------------- */

/* What a spec may name: models, and behind them adapters, those of "adapters" last. */
static const struct {
    const char *key, *option;
    bool is_adapter;
} named[] = {{"model", "--model", false},
             {"draft_model", "--draft-model", false},
             {"adapter", "--adapter", true},
             {"init_adapter", "--init-adapter", true},
             {"adapters", "--adapter", true}};
enum {
    NAMED = sizeof named / sizeof *named,
    WAIT_MS = 5000 /* of one request: then it says what it waits for */
};

struct store_wait {
    LIST_ENTRY(store_wait) next; /* of api->waits, while the model is on its way */
    struct api *api;
    struct http_call *call;
    json_t *request;    /* owned */
    struct loan *loan;  /* held */
    struct timer *over; /* owned; NULL: it does not wait */
    size_t key, nth;    /* of `named`, and of several there: which is looked up */
    bool is_plan;
    char model[MODEL_NAME]; /* that it waits for, exact */
    void (*then)(struct api *api, struct http_call *call, json_t *request, struct loan *loan, bool is_plan);
};

static void wait_free(struct store_wait *w)
{
    if (w->over)
        LIST_REMOVE(w, next);
    timer_free(w->over);
    json_decref(w->request);
    loan_drop(w->loan);
    free(w);
}

/* A plan is made of files that are there; those of a draft model and of adapters on the head
 * alone. */
static bool is_there(const struct store_wait *w, char *why, size_t size)
{
    struct members_ring ring;
    if (w->is_plan && named[w->key].is_adapter)
        return supply_has_whole(w->api->setup.supply, w->model, why, size);
    if (!w->is_plan || !coord_ring(w->api->setup.coord, &ring, why, size))
        return true;
    ring.n = w->key ? 1 : ring.n;
    return supply_is_there(w->api->setup.supply, w->model, &ring, why, size);
}

/* The name of the nth that a key has; NULL: there are not so many. ret: where it stands. */
static const char *name_at(const struct store_wait *w, json_t **ret_object, const char **ret_key)
{
    json_t *spec = json_object_get(w->request, "spec"), *value;
    json_t *several = json_object_get(spec, named[w->key].key);
    const char *key;
    size_t nth = w->nth;
    *ret_object = spec;
    *ret_key = named[w->key].key;
    if (!json_is_object(several))
        return nth ? NULL : json_string_value(several);
    *ret_object = several;
    json_object_foreach (several, key, value) {
        *ret_key = key;
        if (!nth--)
            return json_is_string(value) ? json_string_value(value) : "";
    }
    return NULL;
}

/* What is served without a name has that of the model, and not its commit. */
static void set_model(const struct store_wait *w, const char *model)
{
    json_t *spec = json_object_get(w->request, "spec"), *object;
    const char *type = json_string_value(json_object_get(w->request, "type")), *slash = strrchr(model, '/'),
               *key;
    name_at(w, &object, &key);
    json_object_set_new(object, key, json_string(model));
    if (!w->key && type && !strcmp(type, "serve") && !json_is_string(json_object_get(spec, "name")))
        json_object_set_new(spec, "name", json_stringn(slash + 1, strcspn(slash + 1, "@")));
}

static bool look_up_next(struct store_wait *w);

/* Its model is there. */
static void go_on(struct store_wait *w)
{
    if (w->over) {
        LIST_REMOVE(w, next);
        timer_free(w->over);
        w->over = NULL;
    }
    set_model(w, w->model);
    w->nth++;
    if (look_up_next(w))
        return;
    w->then(w->api, w->call, w->request, w->loan, w->is_plan);
    wait_free(w);
}

static void on_over(void *owner)
{
    struct store_wait *w = owner;
    char why[700] = "";
    if (is_there(w, why, sizeof why)) {
        go_on(w);
        return;
    }
    api_reply(w->call, 202, json_pack("{s:s}", "waits_for", why));
    wait_free(w);
}

static void on_resolved(void *owner, const json_t *answer, int r, const char *why)
{
    struct store_wait *w = owner;
    char quiet[700] = "";
    if (r) {
        refuse(w->call, named[w->key].option, r == -ENOENT ? -EPERM : r, why);
        wait_free(w);
        return;
    }
    snprintf(w->model, sizeof w->model, "%s", json_string_value(json_object_get(answer, "model")));
    if (is_there(w, quiet, sizeof quiet)) {
        go_on(w);
        return;
    }
    w->over = timer_new(w->api->setup.base, on_over, w);
    timer_set_ms(w->over, WAIT_MS);
    LIST_INSERT_HEAD(&w->api->waits, w, next);
}

/* One at a time: what goes on may change the list. */
void api_store_look_again(struct api *api)
{
    char quiet[700] = "";
    struct store_wait *w;
    do {
        LIST_FOREACH (w, &api->waits, next)
            if (is_there(w, quiet, sizeof quiet))
                break;
        if (w)
            go_on(w);
    } while (w);
}

void api_store_stop(struct api *api)
{
    while (LIST_FIRST(&api->waits)) {
        struct store_wait *w = LIST_FIRST(&api->waits);
        http_fail(w->call, 503, "stopping", "ringd is stopping");
        wait_free(w);
    }
}

/* True: on_resolved is called, or was; what waits is its own. */
static bool look_up_next(struct store_wait *w)
{
    json_t *object;
    const char *key, *name;
    for (; w->key < NAMED; w->key++, w->nth = 0)
        for (; (name = name_at(w, &object, &key)); w->nth++)
            if (model_name_is(name)) {
                supply_resolve(w->api->setup.supply, name, on_resolved, w);
                return true;
            }
    return false;
}

bool api_store_resolve(struct api *api, struct http_call *call, json_t *request, struct loan *loan,
                       bool is_plan,
                       void (*then)(struct api *api, struct http_call *call, json_t *request,
                                    struct loan *loan, bool is_plan))
{
    struct store_wait *w = xcalloc(1, sizeof *w);
    *w = (struct store_wait){.api = api,
                             .call = call,
                             .request = json_incref(request),
                             .loan = loan_hold(loan),
                             .is_plan = is_plan,
                             .then = then};
    const bool is_waiting = look_up_next(w);
    if (!is_waiting)
        wait_free(w);
    return is_waiting;
}
