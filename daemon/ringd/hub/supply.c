/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/hub/supply.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/conf.h"
#include "daemon/common/json_list.h"
#include "daemon/common/model/model_name.h"
#include "daemon/common/xalloc.h"
#include "daemon/ringd/event_log.h"
#include "daemon/ringd/hub/bring.h"
#include "daemon/ringd/hub/carriers.h"
#include "daemon/ringd/hub/census.h"
#include "daemon/ringd/hub/errands.h"
#include "daemon/ringd/hub/holders.h"
#include "daemon/ringd/hub/hub_fetch.h"
#include "daemon/ringd/hub/name_lookups.h"
#include "daemon/ringd/hub/pulls.h"
#include "daemon/ringd/hub/push_takes.h"
#include "daemon/ringd/hub/pushes.h"
#include "daemon/ringd/hub/shelf.h"
#include "daemon/ringd/hub/supply_impl.h"
#include "daemon/ringd/hub/travel_query.h"
#include "daemon/ringd/hub/wholes.h"
#include "daemon/ringd/job/results.h"
#include "daemon/ringd/peer/peers.h"
#include "engine/file/gguf_path.h"

/* An answer of the shelf on its way to who asked. */
struct supply_call {
    LIST_ENTRY(supply_call) next;
    struct supply *s;
    char what[16], model[MODEL_NAME];
    supply_answer *done; /* NULL: nobody waits for it */
    void *owner;
};

static const char *dir_of(const struct supply *s)
{
    return opts_str(s->setup.opts, "models-dir");
}

static bool is_whole(void *owner, const char *model)
{
    const struct supply *s = owner;
    return json_is_true(json_object_get(json_object_get(s->here, model), "whole"));
}

static const char *content_of(void *owner, const char *model)
{
    const struct supply *s = owner;
    return json_string_value(json_object_get(json_object_get(s->here, model), "content"));
}

static const char *list_of(void *owner, const char *model)
{
    const struct supply *s = owner;
    return json_string_value(json_object_get(json_object_get(s->here, model), "list"));
}

static void look(struct supply *s);

/* What has come is looked at on the disk before others hear of it. */
static void on_looked(void *owner, const json_t *list, int r, const char *why)
{
    struct supply *s = owner;
    size_t i;
    json_t *m;
    (void)why;
    s->looks = false;
    if (r == -ECANCELED)
        return;
    json_array_foreach (json_object_get(list, "models"), i, m)
        errands_tell(s->errands, json_string_value(json_object_get(m, "model")));
    if (s->looks_again)
        look(s);
    else
        push_takes_looked(s->push_takes);
    s->setup.changed(s->setup.owner);
}

/* One at a time: a look that began sooner would know less of the disk, and perhaps end later. */
static void look(struct supply *s)
{
    s->looks_again = s->looks;
    if (s->looks)
        return;
    s->looks = true;
    supply_list(s, on_looked, s);
}

static void publish(const struct supply *s, const char *type, const json_t *row)
{
    char *text = json_dumps(row, JSON_COMPACT | JSON_REAL_PRECISION(6));
    if (text)
        event_log_publish(s->setup.events, 0, type, text);
    free(text);
}

static void on_push_changed(void *owner, const json_t *row)
{
    publish(owner, "push", row);
}

static void on_pull_changed(void *owner, const struct pull *p)
{
    struct supply *s = owner;
    json_t *row = pull_row(p);
    publish(s, "pull", row);
    json_decref(row);
    if (s->push_takes)
        push_takes_changed(s->push_takes, p);
    if (pull_state(p) == PULL_DONE)
        look(s);
    else
        errands_tell(s->errands, pull_model(p));
    if (s->bring)
        bring_changed(s->bring, p); /* last: a pull that is over may give way to another of its name */
}

/* --- pulls ------------------------------------------------------------------------------------ */

/* Of what is here already there is nothing to pull. */
static json_t *ready_row(const char *model)
{
    return json_pack("{s:s s:s s:s s:i s:i}", "model", model, "asked", model, "state", "ready", "done", 0,
                     "total", 0);
}

int supply_pull(struct supply *s, const char *name, json_t **ret, struct err *err)
{
    struct pull *p;
    if (is_whole(s, name)) {
        *ret = ready_row(name);
        return 0;
    }
    const int r = pulls_begin(s->pulls, "pull", name, &p, err);
    if (!r)
        *ret = pull_row(p);
    return r;
}

int supply_push(struct supply *s, const char *model, const json_t *nodes, json_t **ret, struct err *err)
{
    const json_t *here = json_object_get(s->here, model);
    const struct push_model pushed = {.model = model,
                                      .content = json_string_value(json_object_get(here, "content")),
                                      .list = json_string_value(json_object_get(here, "list")),
                                      .added = json_is_true(json_object_get(here, "added"))};
    if (!here)
        return err_set(err, -ENOENT, "%s is not on this node", model);
    if (!json_is_true(json_object_get(here, "whole")) || !pushed.content || !*pushed.content)
        return err_set(err, -EBUSY, "%s is not whole on this node: `ringctl pull` brings the rest", model);
    return pushes_begin(s->pushes, &pushed, nodes, ret, err);
}

int supply_verify(struct supply *s, const char *name, json_t **ret, struct err *err)
{
    struct pull *p;
    if (!content_of(s, name))
        return err_set(err, -ENOENT, "%s is not on this node", name);
    const int r = pulls_begin(s->pulls, "verify", name, &p, err);
    if (!r)
        *ret = pull_row(p);
    return r;
}

int supply_add(struct supply *s, const char *name, const char *folder, json_t **ret, struct err *err)
{
    struct pull *p;
    if (strchr(name, '@'))
        return err_set(err, -EINVAL, "the revision of %s follows from the files: give ORG/NAME alone", name);
    if (*folder != '/' || gguf_is_path(folder))
        return err_set(err, -EINVAL,
                       *folder != '/'
                           ? "%s is no whole path of a folder"
                           : "%s is a GGUF file, and only folders get names: `ringctl convert` makes "
                             "one of it",
                       folder);
    char *kept = results_folder(opts_str(s->setup.opts, "state-dir"), folder);
    const int r = pulls_add(s->pulls, name, folder, kept, &p, err);
    free(kept);
    if (!r)
        *ret = pull_row(p);
    return r;
}

int supply_stop(struct supply *s, const char *name)
{
    struct model_name read;
    char whole[MODEL_NAME];
    if (model_name_read(&read, name, NULL))
        return -ENOENT;
    model_name_write(whole, &read);
    struct pull *p = pulls_find(s->pulls, whole);
    if (!p || (pull_state(p) != PULL_RUNS && pull_state(p) != PULL_WAITS))
        return -ENOENT;
    pull_stop(p);
    return 0;
}

void supply_resolve(struct supply *s, const char *name, supply_answer *done, void *owner)
{
    name_lookups_ask(s->names, name, done, owner);
}

/* --- the shelf -------------------------------------------------------------------------------- */

static struct supply_call *call_new(struct supply *s, const char *what, const char *model,
                                    supply_answer *done, void *owner)
{
    struct supply_call *c = xcalloc(1, sizeof *c);
    *c = (struct supply_call){.s = s, .done = done, .owner = owner};
    snprintf(c->what, sizeof c->what, "%s", what);
    snprintf(c->model, sizeof c->model, "%s", model ? model : "");
    LIST_INSERT_HEAD(&s->calls, c, next);
    return c;
}

static void answer(struct supply_call *c, const json_t *text, int r, const char *why)
{
    LIST_REMOVE(c, next);
    if (c->done)
        c->done(c->owner, text, r, why);
    free(c);
}

static void note_here(struct supply *s, const json_t *list)
{
    size_t i;
    json_t *m;
    json_object_clear(s->here);
    json_array_foreach (list, i, m) {
        const char *content = json_string_value(json_object_get(m, "content"));
        if (json_is_true(json_object_get(m, "named")))
            json_object_set_new(s->here, json_string_value(json_object_get(m, "model")),
                                json_pack("{s:s s:O s:O* s:O*}", "content", content ? content : "", "whole",
                                          json_object_get(m, "whole"), "list", json_object_get(m, "list"),
                                          "added", json_object_get(m, "added")));
    }
}

static json_t *in_use(void *owner)
{
    const struct supply *s = owner;
    json_t *uses = s->setup.uses(s->setup.owner), *names = json_array(), *use;
    size_t i;
    json_array_foreach (uses, i, use)
        json_array_append(names, json_object_get(use, "model"));
    json_decref(uses);
    return names;
}

static void on_list(void *owner, const struct shelf_answer *a)
{
    struct supply_call *c = owner;
    struct supply *s = c->s;
    if (a->r) {
        answer(c, NULL, a->r, a->why);
        return;
    }
    note_here(s, a->list);
    json_t *all = json_pack("{s:o s:s s:I}", "models", pulls_show(s->pulls, a->list), "folder", dir_of(s),
                            "quota", (json_int_t)s->quota);
    answer(c, all, 0, NULL);
    json_decref(all);
}

static void on_done(void *owner, const struct shelf_answer *a)
{
    struct supply_call *c = owner;
    if (!a->r && !strcmp(c->what, "remove")) {
        json_object_del(c->s->here, c->model);
        pulls_forget(c->s->pulls, c->model);
        errands_tell(c->s->errands, c->model);
    }
    json_t *row = json_pack("{s:s s:s}", "model", c->model, "done", c->what);
    answer(c, row, a->r, a->why);
    json_decref(row);
}

static void ask_shelf(struct supply *s, enum shelf_do what, struct supply_call *c)
{
    const struct shelf_order order = {.what = what, .dir = dir_of(s), .model = c->model};
    if (shelf_ask(s->setup.aside, &order, what == SHELF_LIST ? on_list : on_done, c))
        answer(c, NULL, -EAGAIN, "this node's disks do not answer: ask again in a moment");
}

void supply_list(struct supply *s, supply_answer *done, void *owner)
{
    ask_shelf(s, SHELF_LIST, call_new(s, "list", NULL, done, owner));
}

/* Who wants the list with all that others say of it. */
struct supply_look {
    struct supply *s;
    supply_answer *done;
    void *owner;
};

static void add_jobs(const struct supply *s, json_t *models)
{
    json_t *uses = s->setup.uses(s->setup.owner), *m, *use;
    size_t i, k;
    json_array_foreach (models, i, m) {
        json_t *jobs = json_array();
        json_array_foreach (uses, k, use)
            if (json_equal(json_object_get(use, "model"), json_object_get(m, "model")))
                json_array_append(jobs, json_object_get(use, "job"));
        json_object_set_new(m, "jobs", jobs);
    }
    json_decref(uses);
}

static void on_listed(void *owner, const json_t *list, int r, const char *why)
{
    struct supply_look *look = owner;
    if (r) {
        look->done(look->owner, NULL, r, why);
    } else {
        json_t *store = json_deep_copy(list);
        add_jobs(look->s, json_object_get(store, "models"));
        holders_ask(look->s->holders, store, look->done, look->owner);
        json_decref(store);
    }
    free(look);
}

void supply_survey(struct supply *s, supply_answer *done, void *owner)
{
    struct supply_look *look = xcalloc(1, sizeof *look);
    *look = (struct supply_look){s, done, owner};
    supply_list(s, on_listed, look);
}

void supply_do(struct supply *s, const char *what, const char *model, supply_answer *done, void *owner)
{
    struct supply_call *c = call_new(s, what, model, done, owner);
    json_t *used = in_use(s);
    const bool is_used = json_list_has(used, model);
    json_decref(used);
    if (!strcmp(what, "remove") && is_used) {
        answer(c, NULL, -EBUSY, "a job uses it: cancel that first");
        return;
    }
    if (!strcmp(what, "remove")) {
        supply_stop(s, model);
        carriers_leave(s->carriers, model);
    }
    ask_shelf(s, !strcmp(what, "remove") ? SHELF_REMOVE : !strcmp(what, "pin") ? SHELF_PIN : SHELF_UNPIN, c);
}

void supply_used(struct supply *s, const char *model)
{
    if (content_of(s, model))
        ask_shelf(s, SHELF_USED, call_new(s, "used", model, NULL, NULL));
}

/* --- other nodes ------------------------------------------------------------------------------ */

bool supply_is_there(struct supply *s, const char *model, const struct members_ring *ring, char *why,
                     size_t size)
{
    return !model || !model_name_is_exact(model) || errands_are_done(s->errands, model, ring, why, size);
}

bool supply_has_whole(struct supply *s, const char *model, char *why, size_t size)
{
    return !model || !model_name_is_exact(model) ||
           wholes_are_here(&(struct wholes_setup){.members = s->setup.members,
                                                  .pulls = s->pulls,
                                                  .errands = s->errands,
                                                  .content = content_of,
                                                  .is_whole = is_whole,
                                                  .owner = s},
                           model, why, size);
}

json_t *supply_holders(const struct supply *s, const char *model, bool *ret_parts)
{
    return errands_holders(s->errands, model, ret_parts);
}

const char *supply_content(const struct supply *s, const char *model)
{
    const char *content = content_of((struct supply *)(uintptr_t)s, model);
    return content && *content ? content : NULL;
}

void supply_bring(struct supply *s, const char *model, const json_t *blocks, const json_t *holders,
                  bool parts)
{
    const char *content = supply_content(s, model);
    json_t *known = holders ? NULL : errands_holders(s->errands, model, &parts);
    if (content)
        bring_want(s->bring, model, content, blocks, holders ? holders : known, parts);
    else
        s->setup.brought(s->setup.owner, model, "its outline is not on this node any more");
    json_decref(known);
}

void supply_travel(struct supply *s, struct spawn *stage, const json_t *event)
{
    travel_query_ask(s->travel, stage, event);
}

void supply_forget_travel(struct supply *s, const struct spawn *stage)
{
    travel_query_forget(s->travel, stage);
}

/* --- start and end ---------------------------------------------------------------------------- */

static int send_message(void *owner, const uint8_t to[16], json_t *message)
{
    const struct supply *s = owner;
    return s->setup.send(s->setup.owner, to, message);
}

static json_t *ways(void *owner)
{
    const struct supply *s = owner;
    return peers_ways(s->setup.peers);
}

static void on_errand_changed(void *owner)
{
    const struct supply *s = owner;
    s->setup.changed(s->setup.owner);
}

static void open_rooms(struct supply *s)
{
    const struct supply_setup *setup = &s->setup;
    s->fetchers = fetchers_new(&(struct fetchers_setup){
        .base = setup->base, .program = opts_str(setup->opts, "fetch-binary"), .dir = dir_of(s)});
    s->carriers = carriers_new(&(struct carriers_setup){.base = setup->base,
                                                        .members = setup->members,
                                                        .peers = setup->peers,
                                                        .relay = setup->relay,
                                                        .fetchers = s->fetchers,
                                                        .send = send_message,
                                                        .content = content_of,
                                                        .owner = s});
    s->pulls = pulls_new(&(struct pulls_setup){.aside = setup->aside,
                                               .fetchers = s->fetchers,
                                               .carriers = s->carriers,
                                               .dir = dir_of(s),
                                               .quota = s->quota,
                                               .in_use = in_use,
                                               .changed = on_pull_changed,
                                               .owner = s});
    s->bring = bring_new(&(struct bring_setup){.base = setup->base,
                                               .members = setup->members,
                                               .pulls = s->pulls,
                                               .coming = setup->coming,
                                               .brought = setup->brought,
                                               .owner = setup->owner});
    s->errands = errands_new(&(struct errands_setup){.base = setup->base,
                                                     .members = setup->members,
                                                     .pulls = s->pulls,
                                                     .send = send_message,
                                                     .content = content_of,
                                                     .list = list_of,
                                                     .is_whole = is_whole,
                                                     .changed = on_errand_changed,
                                                     .owner = s});
    s->census = census_new(&(struct census_setup){.base = setup->base,
                                                  .aside = setup->aside,
                                                  .members = setup->members,
                                                  .dir = dir_of(s),
                                                  .send = send_message,
                                                  .ways = ways,
                                                  .owner = s});
    s->names = name_lookups_new(s->fetchers);
    s->pushes = pushes_new(&(struct pushes_setup){.base = setup->base,
                                                  .members = setup->members,
                                                  .send = send_message,
                                                  .changed = on_push_changed,
                                                  .owner = s});
    s->push_takes = push_takes_new(&(struct push_takes_setup){.base = setup->base,
                                                              .aside = setup->aside,
                                                              .members = setup->members,
                                                              .pulls = s->pulls,
                                                              .dir = dir_of(s),
                                                              .send = send_message,
                                                              .content = content_of,
                                                              .is_whole = is_whole,
                                                              .owner = s});
    s->holders = holders_new(s->census, setup->members);
    s->travel = travel_queries_new(s->census, setup->members);
}

struct supply *supply_new(const struct supply_setup *setup)
{
    struct supply *s = xcalloc(1, sizeof *s);
    s->setup = *setup;
    s->quota = conf_size(setup->opts, "models-quota", NULL);
    s->here = json_object();
    LIST_INIT(&s->calls);
    open_rooms(s);
    look(s); /* what an earlier life has left */
    return s;
}

void supply_free(struct supply *s)
{
    if (!s)
        return;
    name_lookups_free(s->names);
    bring_free(s->bring);
    push_takes_free(s->push_takes);
    s->bring = NULL;
    s->push_takes = NULL;
    pushes_free(s->pushes);
    pulls_free(s->pulls);
    carriers_free(s->carriers);
    fetchers_free(s->fetchers);
    errands_free(s->errands);
    travel_queries_free(s->travel);
    holders_free(s->holders);
    census_free(s->census);
    while (LIST_FIRST(&s->calls))
        answer(LIST_FIRST(&s->calls), NULL, -ECANCELED, "ringd is stopping");
    json_decref(s->here);
    free(s);
}
