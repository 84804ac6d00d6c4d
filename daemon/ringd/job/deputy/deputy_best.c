/* SPDX-License-Identifier: MIT
 *
 * What a deputy keeps beside a dossier: the best adapters so far of a job with --early-stop, which
 * no copy in memory has. Their head says after each save which files they are. Those that are
 * fetched lie in a folder of their own until all are there, and then take the place of those
 * before; what has begun to come is fetched to its end first. Called by deputy.c and
 * deputy_taken.c; loop thread. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/text_clean.h"
#include "daemon/common/xalloc.h"
#include "daemon/ringd/job/deputy/deputy_impl.h"
#include "daemon/ringd/job/deputy/file_set.h"
#include "daemon/ringd/job/deputy/parts.h"
#include "daemon/ringd/job/results.h"
#include "daemon/ringd/log.h"
#include "daemon/ringd/store/store.h"

enum { FETCH_AGAIN_US = 30000000 };

static char *folder_of(const struct deputy *d, uint64_t id, const struct best_files *b)
{
    char *folder = deputy_folder(d, id),
         *best = xasprintf("%s-best-%llu", folder, (unsigned long long)b->number);
    free(folder);
    return best;
}

/* --- sets ------------------------------------------------------------------------------------- */

json_t *best_encode(const struct best_files *b)
{
    return b->files ? json_pack("{s:I s:I s:O}", "step", (json_int_t)b->step, "number", (json_int_t)b->number,
                                "files", b->files)
                    : NULL;
}

bool best_read(struct best_files *ret, const json_t *note)
{
    const json_int_t step = json_integer_value(json_object_get(note, "step")),
                     number = json_integer_value(json_object_get(note, "number"));
    const json_t *files = json_object_get(note, "files");
    struct err err;
    if (!note || json_is_null(note))
        return true;
    if (step < 1 || number < 1 || !json_is_array(files) || file_set_check_best(files, &err))
        return false;
    *ret = (struct best_files){(uint64_t)step, (uint64_t)number, json_deep_copy(files)};
    return true;
}

struct best_files best_copy(const struct best_files *b)
{
    return (struct best_files){b->step, b->number, json_incref(b->files)};
}

void best_free(struct best_files *b)
{
    json_decref(b->files);
    *b = (struct best_files){0};
}

void best_drop(const struct deputy *d, uint64_t id, struct best_files *b)
{
    if (b->files)
        deputy_drop_folder(d, folder_of(d, id, b));
    best_free(b);
}

static void move(struct best_files *to, struct best_files *from)
{
    *to = *from;
    *from = (struct best_files){0};
}

/* What was to be fetched again has files here. */
static void drop_coming(struct dossier *x)
{
    if (x->best_retry.us)
        best_drop(x->deputy, x->id, &x->coming);
    best_free(&x->coming);
    x->best_retry = (struct instant){0};
}

int best_take(struct dossier *x, const json_t *news, struct err *err)
{
    struct best_files coming = {0};
    if (!best_read(&coming, json_object_get(news, "best")))
        return err_set(err, -EBADMSG,
                       "the list of the best files cannot be read: same version on all nodes?");
    if (!coming.files)
        return 0;
    if (x->coming.number == coming.number)
        best_free(&x->coming);
    else
        drop_coming(x);
    x->coming = coming;
    return 0;
}

/* What a thread still writes then is left to best_sweep. */
void best_stop(struct dossier *x)
{
    fetch_stop(x->best_fetch);
    x->best_fetch = NULL;
    best_drop(x->deputy, x->id, &x->fetched);
    drop_coming(x);
}

void best_done(struct dossier *x)
{
    fetch_stop(x->best_fetch);
    best_free(&x->best);
    best_free(&x->fetched);
    best_free(&x->coming);
}

/* --- fetching --------------------------------------------------------------------------------- */

/* A folder that the note on the disk may still name. */
struct passed {
    const struct deputy *deputy;
    char *folder; /* owned */
};

/* Where the disk refuses the note, both folders stay, and best_sweep goes by the note. */
static void on_noted(void *arg, const char *nothing)
{
    struct passed *p = arg;
    (void)nothing;
    if (p->deputy->is_stopped || store_trouble(p->deputy->setup.store))
        free(p->folder);
    else
        deputy_drop_folder(p->deputy, p->folder);
    free(p);
}

/* The folder before goes once the note on the disk names the new one. */
static void settle(struct dossier *x, struct best_files *whole)
{
    struct best_files before = {0};
    move(&before, &x->best);
    move(&x->best, whole);
    deputy_put_note(x->deputy, x);
    if (before.files) {
        struct passed *p = xmalloc(sizeof *p);
        *p = (struct passed){x->deputy, folder_of(x->deputy, x->id, &before)};
        store_sync(x->deputy->setup.store, on_noted, p);
    }
    best_free(&before);
}

static void on_fetched(void *owner, const char *why)
{
    struct dossier *x = owner;
    char clean[300];
    x->best_fetch = NULL;
    if (!why) {
        settle(x, &x->fetched);
        log_job(LOG_LEVEL_INFO, x->job, "this node keeps the best so far of this job of %s, as of step %llu",
                x->name, (unsigned long long)x->best.step);
    } else {
        text_clean(clean, sizeof clean, why, true);
        log_job(LOG_LEVEL_INFO, x->job, "the best so far of this job of %s was not fetched: %s", x->name,
                clean);
    }
    if (why && !x->coming.files) { /* none is newer: the same again */
        move(&x->coming, &x->fetched);
        x->best_retry.us = clock_now().us + FETCH_AGAIN_US;
    } else {
        best_drop(x->deputy, x->id, &x->fetched);
        best_fetch(x->deputy, x);
    }
    deputy_arm(x->deputy);
}

/* The same files may be the best as of a later save. */
static void take_step(struct dossier *x, struct best_files *known)
{
    if (!known->files || !x->coming.files || known->number != x->coming.number)
        return;
    known->step = x->coming.step;
    best_free(&x->coming);
    deputy_put_note(x->deputy, x);
}

void best_fetch(struct deputy *d, struct dossier *x)
{
    take_step(x, &x->best);
    take_step(x, &x->fetched);
    if (!x->coming.files || x->best_fetch || !deputy_reaches(d, x->head))
        return;
    if (!json_array_size(x->coming.files)) {
        settle(x, &x->coming);
        return;
    }
    move(&x->fetched, &x->coming);
    char *folder = folder_of(d, x->id, &x->fetched);
    x->best_fetch =
        fetch_start(d->setup.parts, x->head, x->fetched.number, x->fetched.files, folder, on_fetched, x);
    free(folder);
}

bool best_waits(const struct dossier *x)
{
    return x->coming.files && !x->best_fetch;
}

/* --- leftovers -------------------------------------------------------------------------------- */

static bool is_kept(const struct deputy *d, uint64_t id, uint64_t number)
{
    for (const struct dossier *x = d->dossiers; x; x = x->next)
        if (x->id == id && x->best.files && x->best.number == number)
            return true;
    for (const struct taken_job *t = d->taken; t; t = t->next)
        if (t->id == id && t->best.files && t->best.number == number)
            return true;
    return false;
}

void best_sweep(const struct deputy *d)
{
    char *all = xasprintf("%s/dossiers", d->setup.state_dir);
    DIR *dir = opendir(all);
    const struct dirent *e;
    while (dir && (e = readdir(dir))) {
        unsigned long long id, number;
        int n = 0;
        if (sscanf(e->d_name, "%llu-best-%llu%n", &id, &number, &n) == 2 && !e->d_name[n] &&
            !is_kept(d, id + STORE_FIRST_DOSSIER, number)) {
            char *folder = xasprintf("%s/%s", all, e->d_name);
            deputy_remove_folder(folder);
            free(folder);
        }
    }
    if (dir)
        closedir(dir);
    free(all);
}

/* --- taking over ------------------------------------------------------------------------------ */

/* What lies in `to` under that path goes; it is one of a folder "best" there (best_read). */
static int put_at(const char *from, const char *to, const char *path)
{
    char *whole = xasprintf("%s/%s", to, path);
    file_set_make_folders(to, path);
    unlink(whole);
    const int r = link(from, whole) ? -errno : 0;
    free(whole);
    return r;
}

uint64_t best_bring(const struct deputy *d, uint64_t id, const struct best_files *b, const char *adapter_out)
{
    size_t i;
    json_t *file;
    if (!json_array_size(b->files) || !adapter_out)
        return 0; /* there was none yet, or none is here: copies in which none was are of use */
    char *from = folder_of(d, id, b), *to = results_folder(d->setup.state_dir, adapter_out);
    int r = 0;
    results_make(d->setup.state_dir);
    json_array_foreach (b->files, i, file) {
        char *kept = xasprintf("%s/%zu", from, i);
        r = r ? r : put_at(kept, to, json_string_value(json_object_get(file, "path")));
        free(kept);
    }
    if (r)
        log_warning("the best so far of a job that this node has taken over cannot be put into %s: %s", to,
                    strerror(-r));
    free(from);
    free(to);
    return r ? 0 : b->step;
}
