/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/api/api_openai.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/xalloc.h"
#include "daemon/ringd/api/api_impl.h"
#include "daemon/ringd/api/elsewhere.h"
#include "daemon/ringd/api/job_row.h"
#include "daemon/ringd/http/http.h"
#include "daemon/ringd/job/coord.h"
#include "daemon/ringd/job/job.h"
#include "daemon/ringd/openai/model_list.h"
#include "daemon/ringd/serve/served.h"
#include "daemon/ringd/serve/visit.h"

enum { MODELS_MAX = 256 };
static const char jobs_path[] = "/v1/jobs/";

/* --- which job -------------------------------------------------------------------------------- */

/* A model, by the job that serves it: of this node, or a row of another. */
struct found_model {
    const struct job *job; /* borrowed; NULL: the head is another node */
    uint64_t id;
    char node[64];       /* the name of that node */
    const char *adapter; /* of `job`, borrowed: for the call; NULL: the model alone */
    char name[128];      /* what it is served as */
};

static bool is_serving(const struct job *job)
{
    return job->type == JOB_SERVE && !job->ended;
}

/* The rows of other heads that serve. A new list. */
static json_t *rows_elsewhere(struct api *api)
{
    json_t *all = json_array(), *rows = json_array(), *row;
    size_t i;
    elsewhere_add_rows(api->setup.elsewhere, all);
    json_array_foreach (all, i, row)
        if (json_is_string(json_object_get(row, "serves")) && json_is_true(json_object_get(row, "up")) &&
            !job_row_ended(row))
            json_array_append(rows, row);
    json_decref(all);
    return rows;
}

/* Does that job serve it? NULL: any. */
static bool fits(const char *wanted, const struct job *job, const char **ret_adapter)
{
    const json_t *adapters = job->asked.adapters;
    const bool is_adapter = wanted && !job_adapter_is_former(wanted) && json_object_get(adapters, wanted);
    *ret_adapter = is_adapter ? wanted : NULL;
    return !wanted || is_adapter || !strcmp(wanted, job_served_name(&job->asked));
}

static bool row_fits(const char *wanted, const json_t *row)
{
    const char *name = json_string_value(json_object_get(row, "serves"));
    size_t i;
    json_t *adapter;
    if (!wanted || !strcmp(wanted, name))
        return true;
    json_array_foreach (json_object_get(row, "serves_with"), i, adapter)
        if (!strcmp(wanted, json_string_value(adapter)))
            return true;
    return false;
}

static void set_found(struct found_model *ret, const struct job *job, const char *adapter)
{
    *ret = (struct found_model){.job = job, .id = job->id, .adapter = adapter};
    snprintf(ret->name, sizeof ret->name, "%s", adapter ? adapter : job_served_name(&job->asked));
}

/* How many there are of that name, NULL: of any; the first is `ret`. This node's come first. */
static size_t find_model(struct api *api, const char *name, struct found_model *ret)
{
    size_t n = 0, i;
    json_t *rows = rows_elsewhere(api), *row;
    const char *adapter;
    for (const struct job *job = coord_first(api->setup.coord); job; job = job->next)
        if (is_serving(job) && fits(name, job, &adapter) && !n++)
            set_found(ret, job, adapter);
    json_array_foreach (rows, i, row) {
        if (!row_fits(name, row) || n++)
            continue;
        *ret = (struct found_model){.id = (uint64_t)json_integer_value(json_object_get(row, "id"))};
        snprintf(ret->node, sizeof ret->node, "%s", json_string_value(json_object_get(row, "node")));
        snprintf(ret->name, sizeof ret->name, "%s",
                 name ? name : json_string_value(json_object_get(row, "serves")));
    }
    json_decref(rows);
    return n;
}

/* --- models ----------------------------------------------------------------------------------- */

/* What is listed: as many as there is room for. */
struct model_rows {
    struct served_model at[MODELS_MAX];
    size_t n;
};

static void add_model(struct model_rows *to, const struct served_model *model)
{
    if (to->n < MODELS_MAX)
        to->at[to->n++] = *model;
}

static void add_job(struct api *api, const struct job *job, struct model_rows *to)
{
    const struct desk_model *model = desk_model(api->setup.desk, job->id);
    struct served_model m = {.name = job_served_name(&job->asked),
                             .created = (time_t)job->created,
                             .max_context = model ? model->max_context : 0};
    const char *name;
    json_t *folder;
    add_model(to, &m);
    m.parent = m.name;
    json_object_foreach ((json_t *)(uintptr_t)job->asked.adapters, name, folder) {
        m.name = name;
        if (!job_adapter_is_former(name))
            add_model(to, &m);
    }
}

static void add_row(const json_t *row, struct model_rows *to)
{
    struct served_model m = {.name = json_string_value(json_object_get(row, "serves")),
                             .created = (time_t)json_integer_value(json_object_get(row, "created"))};
    size_t i;
    json_t *name;
    add_model(to, &m);
    m.parent = m.name;
    json_array_foreach (json_object_get(row, "serves_with"), i, name) {
        m.name = json_string_value(name);
        add_model(to, &m);
    }
}

/* Borrows from the rows, and from this node's jobs. */
static void list_models(struct api *api, const json_t *rows, struct model_rows *ret)
{
    size_t i;
    json_t *row;
    ret->n = 0;
    for (const struct job *job = coord_first(api->setup.coord); job; job = job->next)
        if (is_serving(job))
            add_job(api, job, ret);
    json_array_foreach (rows, i, row)
        add_row(row, ret);
}

void api_get_served(struct api *api, struct http_call *call)
{
    struct model_rows models;
    struct visit *visit = visit_begin(api->setup.desk, call);
    json_t *rows = rows_elsewhere(api);
    list_models(api, rows, &models);
    served_reply(call, http_is_anthropic(call) ? model_list_anthropic(models.at, models.n)
                                               : model_list_openai(models.at, models.n));
    visit_end(visit, 200);
    json_decref(rows);
}

void api_get_served_one(struct api *api, struct http_call *call)
{
    struct model_rows models;
    struct refusal refusal;
    struct visit *visit = visit_begin(api->setup.desk, call);
    const char *name = http_path(call) + sizeof "/v1/models/" - 1;
    json_t *rows = rows_elsewhere(api);
    size_t i = 0;
    list_models(api, rows, &models);
    while (i < models.n && strcmp(models.at[i].name, name))
        i++;
    refusal_set(&refusal, REFUSAL_NO_MODEL, "model",
                "no model \"%s\" is served here: GET /v1/models lists them", name);
    unsigned status = 200;
    if (i == models.n)
        status = served_refuse(call, http_is_anthropic(call), &refusal);
    else
        served_reply(call,
                     http_is_anthropic(call) ? model_anthropic(&models.at[i]) : model_openai(&models.at[i]));
    visit_end(visit, status);
    json_decref(rows);
}

/* --- requests --------------------------------------------------------------------------------- */

static void complete_chat(const struct served *s, struct http_call *call, json_t *body)
{
    served_complete(s, call, API_CHAT, body);
}

static void complete_text(const struct served *s, struct http_call *call, json_t *body)
{
    served_complete(s, call, API_COMPLETIONS, body);
}

static void complete_messages(const struct served *s, struct http_call *call, json_t *body)
{
    served_complete(s, call, API_MESSAGES, body);
}

static const struct served_route {
    const char *path; /* behind /v1/ or /v1/jobs/ID/ */
    bool is_anthropic;
    void (*answer)(const struct served *s, struct http_call *call, json_t *body);
} routes[] = {{"chat/completions", false, complete_chat}, {"completions", false, complete_text},
              {"embeddings", false, served_embed},        {"score", false, served_score},
              {"tokenize", false, served_tokenize},       {"detokenize", false, served_detokenize},
              {"messages", true, complete_messages},      {"messages/count_tokens", true, served_count}};

/* Which route it is; ret_id: of the job that the path names, 0: none. */
static const struct served_route *route_of(const char *path, uint64_t *ret_id)
{
    const bool is_job = !strncmp(path, jobs_path, sizeof jobs_path - 1);
    const char *word = path + (is_job ? sizeof jobs_path - 1 : sizeof "/v1/" - 1);
    *ret_id = is_job ? strtoull(word, NULL, 10) : 0;
    if (is_job)
        word += strcspn(word, "/") + 1;
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++)
        if (!strcmp(word, routes[i].path))
            return &routes[i];
    return &routes[0]; /* the table of routes has no others */
}

/* Is it there to answer? */
static int check_job(struct api *api, const struct found_model *found, struct served *ret,
                     struct refusal *refusal)
{
    const struct job *job = found->job;
    char why[400];
    *ret = (struct served){.desk = api->setup.desk,
                           .model = desk_model(api->setup.desk, job->id),
                           .name = found->adapter ? found->adapter : job_served_name(&job->asked),
                           .adapter = found->adapter,
                           .created = (time_t)job->created};
    job_waits_for(job, why, sizeof why);
    if (!ret->model) /* perhaps the daemon was started again while it rested */
        coord_wake(api->setup.coord, job->id);
    if (!ret->model || (job->state == JOB_QUEUED && !job->asked.unload_after))
        return refusal_set(refusal, REFUSAL_BUSY, "model", "%s is not ready yet: %s", ret->name,
                           *why ? why : job_state_name(job->state));
    return 0;
}

static int refuse_name(struct refusal *refusal, const char *name)
{
    return name
               ? refusal_set(refusal, REFUSAL_NO_MODEL, "model",
                             "no model \"%s\" is served here: GET /v1/models lists them, and `ringctl serve` "
                             "serves one",
                             name)
               : refusal_set(refusal, REFUSAL_NO_MODEL, "model",
                             "\"model\" is missing: GET /v1/models lists what is served");
}

static int choose_job(struct api *api, const json_t *body, uint64_t id, struct found_model *ret,
                      struct refusal *refusal)
{
    const char *name = json_string_value(json_object_get(body, "model"));
    const struct job *job = id ? coord_find(api->setup.coord, id) : NULL;
    const char *adapter;
    if (id && !(job && is_serving(job)))
        return refusal_set(refusal, REFUSAL_NO_MODEL, NULL, "job %llu of this node serves no model",
                           (unsigned long long)id);
    if (id && !fits(name, job, &adapter))
        return refuse_name(refusal, name);
    if (id) {
        set_found(ret, job, adapter);
        return 0;
    }
    const size_t n = find_model(api, name, ret);
    return n == 1 || (n && name) ? 0 : refuse_name(refusal, name);
}

/* A request on its way to its model. */
struct arrival {
    struct http_call *call;
    const struct served_route *route;
    uint64_t id;         /* of the job that its path names, or 0 */
    json_t *body;        /* owned; NULL: it is no JSON, */
    json_error_t wrong;  /* and why */
    struct visit *visit; /* owned, until it is passed on or answered */
};

static void pass_on(struct api *api, const struct arrival *a, const struct found_model *to)
{
    char *path = xasprintf("%s%llu/%s", jobs_path, (unsigned long long)to->id, a->route->path);
    visit_pass_on(a->visit, to->node);
    elsewhere_pass_on(api->setup.elsewhere, a->call, to->node, "serves this model", path);
    free(path);
}

/* May it ask, and whom? −EINVAL and the refusal. Each request counts, also one that is nonsense. */
static int admit(struct api *api, const struct arrival *a, struct found_model *ret, struct refusal *refusal)
{
    const unsigned wait = http_take_turn(a->call);
    const int r =
        a->body ? choose_job(api, a->body, a->id, ret, refusal)
                : refusal_set(refusal, REFUSAL_INVALID, NULL, "the body is no JSON (line %d, column %d): %s",
                              a->wrong.line, a->wrong.column, a->wrong.text);
    if (!r)
        visit_model(a->visit, ret->job ? ret->id : 0, ret->name);
    return wait ? refusal_set(refusal, REFUSAL_RATE, NULL,
                              "this key has had its requests of a minute: ask again in %u s", wait)
                : r;
}

void api_post_served(struct api *api, struct http_call *call)
{
    size_t n;
    const char *text = http_body(call, &n);
    struct arrival a = {.call = call, .visit = visit_begin(api->setup.desk, call)};
    a.route = route_of(http_path(call), &a.id);
    a.body = json_loadb(text ? text : "", text ? n : 0, JSON_ALLOW_NUL, &a.wrong);
    struct refusal refusal;
    struct served served = {0};
    struct found_model found;
    int r = admit(api, &a, &found, &refusal);
    if (!r && found.job)
        r = check_job(api, &found, &served, &refusal);
    served.visit = a.visit;
    if (r)
        visit_end(a.visit, served_refuse(call, a.route->is_anthropic, &refusal));
    else if (!found.job)
        pass_on(api, &a, &found);
    else
        a.route->answer(&served, call, a.body);
    json_decref(a.body);
}
