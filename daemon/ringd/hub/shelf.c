/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/hub/shelf.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "daemon/common/json_list.h"
#include "daemon/common/model/models_dir.h"
#include "daemon/common/xalloc.h"
#include "daemon/ringd/aside.h"

enum { SPARE_BYTES = 64 << 20 /* of the disk, which others write to as well */ };

struct shelf_work {
    struct aside_work w; /* first */
    enum shelf_do what;
    char *dir, *model; /* owned */
    uint64_t bytes, quota;
    json_t *kept, *asked; /* owned */
    bool blocks, added;
    void (*done)(void *owner, const struct shelf_answer *answer);
    void *owner;
    struct shelf_answer answer;
};

/* --- on the thread ---------------------------------------------------------------------------- */

static void fail(struct shelf_work *s, int r, const char *text)
{
    s->answer.r = r;
    snprintf(s->answer.why, sizeof s->answer.why, "%s", text);
}

static void mark(struct shelf_work *s, int dir)
{
    json_t *record = models_record_read(dir, s->model);
    if (!record) {
        if (s->what != SHELF_USED)
            fail(s, -ENOENT, "it is not on this node");
        return;
    }
    if (s->what == SHELF_USED)
        json_object_set_new(record, "used", json_integer((json_int_t)time(NULL)));
    else
        json_object_set_new(record, "pinned", json_boolean(s->what == SHELF_PIN));
    const int r = models_record_write(dir, s->model, record);
    if (r)
        fail(s, r, strerror(-r));
    json_decref(record);
}

/* A hub's model under this name that is here keeps it: who asks for it by name means that one. */
static bool is_of_hub(int dir, const struct model_name *name)
{
    char model[MODEL_NAME];
    model_name_write(model, name);
    json_t *record = models_record_read(dir, model);
    const bool is = record && !json_is_true(json_object_get(record, "added"));
    json_decref(record);
    return is;
}

static void name_it(struct shelf_work *s, int dir)
{
    struct model_name name, main = {.revision = "main"}, former;
    json_t *record = models_record_read(dir, s->model);
    if (!record || model_name_read(&name, s->model, NULL)) {
        fail(s, -ENOENT, "it is not on this node");
        json_decref(record);
        return;
    }
    memcpy(main.org, name.org, sizeof main.org);
    memcpy(main.name, name.name, sizeof main.name);
    former = main;
    const bool has_former = models_ref_read(dir, &main, former.revision),
               is_other = has_former && strcmp(former.revision, name.revision) != 0;
    int r = 0;
    if (s->added && is_other && is_of_hub(dir, &former)) {
        s->answer.r = -EEXIST;
        snprintf(s->answer.why, sizeof s->answer.why,
                 "%s/%s is a model of the hub there: give this one another name (--name)", name.org,
                 name.name);
    } else if (s->added || !has_former) {
        json_object_set_new(record, "added", json_boolean(s->added));
        r = models_record_write(dir, s->model, record);
        r = r ? r : models_ref_write(dir, &main, name.revision);
    }
    if (r)
        fail(s, r, strerror(-r));
    json_decref(record);
}

static uint64_t number_of(const json_t *record, const char *key)
{
    const json_int_t n = json_integer_value(json_object_get(record, key));
    return n > 0 ? (uint64_t)n : 0;
}

/* What may go and was used longest ago; NULL: there is nothing. */
static json_t *oldest(const struct shelf_work *s, const json_t *list)
{
    size_t i;
    json_t *m, *found = NULL;
    json_array_foreach (list, i, m) {
        const char *model = json_string_value(json_object_get(m, "model"));
        if (json_is_true(json_object_get(m, "pinned")) || !number_of(m, "on_disk") ||
            !strcmp(model, s->model) || json_list_has(s->kept, model))
            continue;
        if (!found || number_of(m, "used") < number_of(found, "used"))
            found = m;
    }
    return found;
}

static uint64_t free_bytes(const char *dir)
{
    struct statvfs fs;
    const uint64_t bytes = statvfs(dir, &fs) ? UINT64_MAX : (uint64_t)fs.f_bavail * fs.f_frsize;
    return bytes == UINT64_MAX ? bytes : bytes > SPARE_BYTES ? bytes - SPARE_BYTES : 0;
}

static void refuse_room(struct shelf_work *s, uint64_t taken, uint64_t have)
{
    const bool is_quota = s->quota && taken + s->bytes > s->quota;
    const struct err_amounts a =
        err_amounts(s->bytes, is_quota ? s->quota - (taken < s->quota ? taken : s->quota) : have);
    snprintf(s->answer.why, sizeof s->answer.why,
             "%s more are needed, and %s are %s: remove or unpin a model (`ringctl models list`)%s", a.need,
             a.have, is_quota ? "left of --models-quota" : "free on the disk of the models",
             is_quota ? ", or raise it" : "");
    s->answer.r = -ENOSPC;
}

static void make_room(struct shelf_work *s, int dir)
{
    json_t *list = models_list(dir), *m, *gone = json_array();
    uint64_t taken = 0;
    size_t i;
    json_array_foreach (list, i, m)
        taken += number_of(m, "on_disk");
    for (;;) {
        const uint64_t have = free_bytes(s->dir);
        if (have >= s->bytes && (!s->quota || taken + s->bytes <= s->quota))
            break;
        m = oldest(s, list);
        if (!m) {
            refuse_room(s, taken, have);
            break;
        }
        models_remove(dir, json_string_value(json_object_get(m, "model")));
        json_array_append(gone, json_object_get(m, "model"));
        taken -= number_of(m, "on_disk");
        json_object_set_new(m, "on_disk", json_integer(0));
    }
    json_decref(list);
    s->answer.list = gone;
}

static json_t *look_for(const struct shelf_work *s, int dir)
{
    json_t *all = json_object(), *name;
    size_t i;
    json_array_foreach (s->asked, i, name) {
        const char *model = json_string_value(name);
        json_t *have = model_name_is_exact(model) ? models_have(dir, model, s->blocks) : NULL;
        if (have)
            json_object_set_new(all, model, have);
    }
    return all;
}

static void run(struct aside_work *w)
{
    struct shelf_work *s = (struct shelf_work *)w;
    struct err err;
    const int dir = models_dir_open(s->dir, &err);
    int r = 0;
    if (dir < 0) {
        fail(s, dir, err.text);
        return;
    }
    switch (s->what) {
    case SHELF_LIST: s->answer.list = models_list(dir); break;
    case SHELF_HAVE: s->answer.list = look_for(s, dir); break;
    case SHELF_REMOVE:
        if ((r = models_remove(dir, s->model)))
            fail(s, r, r == -ENOENT ? "it is not on this node" : strerror(-r));
        break;
    case SHELF_PIN:
    case SHELF_UNPIN:
    case SHELF_USED: mark(s, dir); break;
    case SHELF_NAME: name_it(s, dir); break;
    case SHELF_ROOM: make_room(s, dir); break;
    }
    close(dir);
}

/* --- on the loop ------------------------------------------------------------------------------ */

static void work_free(struct aside_work *w)
{
    struct shelf_work *s = (struct shelf_work *)w;
    json_decref(s->kept);
    json_decref(s->asked);
    json_decref(s->answer.list);
    free(s->dir);
    free(s->model);
    free(s);
}

static void done(struct aside_work *w)
{
    struct shelf_work *s = (struct shelf_work *)w;
    if (s->done)
        s->done(s->owner, &s->answer);
    work_free(w);
}

int shelf_ask(struct aside *aside, const struct shelf_order *order,
              void (*then)(void *owner, const struct shelf_answer *answer), void *owner)
{
    struct shelf_work *s = xcalloc(1, sizeof *s);
    *s = (struct shelf_work){.w = {.run = run, .done = done, .drop = work_free},
                             .what = order->what,
                             .dir = xstrdup(order->dir),
                             .model = xstrdup(order->model ? order->model : ""),
                             .bytes = order->bytes,
                             .quota = order->quota,
                             .kept = order->kept ? json_deep_copy(order->kept) : json_array(),
                             .asked = order->asked ? json_deep_copy(order->asked) : json_array(),
                             .blocks = order->blocks,
                             .added = order->added,
                             .done = then,
                             .owner = owner};
    const int r = aside_run(aside, &s->w);
    if (r)
        work_free(&s->w);
    return r;
}
