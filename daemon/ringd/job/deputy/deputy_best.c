/* SPDX-License-Identifier: MIT
 *
 * What a deputy keeps beside a dossier: the best adapters so far of a job with --early-stop, which
 * no copy in memory has. Their head says after each save which files they are. Those that are
 * fetched take the place of those before one by one: a job that goes on in between makes the newer
 * ones again. Called by deputy.c and deputy_taken.c; loop thread. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/common/text_clean.h"
#include "daemon/common/xalloc.h"
#include "daemon/ringd/job/deputy/deputy_impl.h"
#include "daemon/ringd/job/deputy/file_set.h"
#include "daemon/ringd/job/deputy/parts.h"
#include "daemon/ringd/job/results.h"
#include "daemon/ringd/log.h"

enum { FETCH_AGAIN_US = 30000000 };

char *best_folder(const struct deputy *d, uint64_t id)
{
    char *folder = deputy_folder(d, id), *best = xasprintf("%s-best", folder);
    free(folder);
    return best;
}

/* --- in notes and news ------------------------------------------------------------------------ */

json_t *best_encode(const struct best_files *b)
{
    return b->files ? json_pack("{s:I s:O}", "step", (json_int_t)b->step, "files", b->files) : NULL;
}

bool best_read(struct best_files *ret, const json_t *note)
{
    const json_t *step = json_object_get(note, "step"), *files = json_object_get(note, "files");
    struct err err;
    if (!note || json_is_null(note))
        return true;
    if (json_integer_value(step) < 1 || !json_is_array(files) || file_set_check(files, true, &err))
        return false;
    *ret = (struct best_files){(uint64_t)json_integer_value(step), json_deep_copy(files)};
    return true;
}

static void drop(struct best_files *b)
{
    json_decref(b->files);
    *b = (struct best_files){0};
}

int best_take(struct dossier *x, const json_t *news, struct err *err)
{
    const json_t *best = json_object_get(news, "best");
    struct best_files coming = {0};
    if (!best_read(&coming, best))
        return err_set(err, -EBADMSG,
                       "the list of the best files cannot be read: same version on all nodes?");
    if (!coming.files)
        return 0;
    fetch_stop(x->best_fetch);
    x->best_fetch = NULL;
    drop(&x->coming);
    x->coming = coming;
    x->coming_number = (uint64_t)json_integer_value(json_object_get(best, "number"));
    x->best_retry = (struct instant){0};
    return 0;
}

void best_done(struct dossier *x)
{
    fetch_stop(x->best_fetch);
    drop(&x->best);
    drop(&x->coming);
}

/* --- fetching --------------------------------------------------------------------------------- */

static void settle(struct dossier *x)
{
    drop(&x->best);
    x->best = x->coming;
    x->coming = (struct best_files){0};
    deputy_put_note(x->deputy, x);
}

static void on_fetched(void *owner, const char *why)
{
    struct dossier *x = owner;
    char clean[300];
    x->best_fetch = NULL;
    if (!why) {
        settle(x);
        log_job(LOG_LEVEL_INFO, x->job, "this node keeps the best so far of this job of %s, as of step %llu",
                x->name, (unsigned long long)x->best.step);
    } else {
        x->best_retry.us = clock_now().us + FETCH_AGAIN_US;
        text_clean(clean, sizeof clean, why, true);
        log_job(LOG_LEVEL_INFO, x->job, "the best so far of this job of %s was not fetched: %s", x->name,
                clean);
    }
    deputy_arm(x->deputy);
}

void best_fetch(struct deputy *d, struct dossier *x)
{
    if (!x->coming.files || x->best_fetch || !deputy_reaches(d, x->head))
        return;
    if (!json_array_size(x->coming.files) || json_equal(x->best.files, x->coming.files)) {
        settle(x);
        return;
    }
    char *folder = best_folder(d, x->id);
    x->best_fetch =
        fetch_start(d->setup.parts, x->head, x->coming_number, x->coming.files, folder, on_fetched, x);
    free(folder);
}

bool best_waits(const struct dossier *x)
{
    return x->coming.files && !x->best_fetch;
}

/* --- taking over ------------------------------------------------------------------------------ */

/* And what lies in `to` under that path goes; the path leads out of no folder (file_set_check). */
static int put_at(const char *from, const char *to, const char *path)
{
    char *whole = xasprintf("%s/%s", to, path);
    for (char *slash = whole + strlen(to); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(whole, 0777); /* what is wrong shows with the link */
        *slash = '/';
    }
    unlink(whole);
    const int r = link(from, whole) ? -errno : 0;
    free(whole);
    return r;
}

uint64_t best_bring(const struct deputy *d, uint64_t id, const struct best_files *b, const char *adapter_out)
{
    size_t i;
    json_t *file;
    if (!b->step || !adapter_out)
        return 0;
    char *from = best_folder(d, id), *to = results_folder(d->setup.state_dir, adapter_out);
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
