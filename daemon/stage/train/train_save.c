/* SPDX-License-Identifier: MIT */
#include "daemon/stage/train/train_save.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>

enum {
    SAY_S = 5,   /* a wait for the disk that is longer is said */
    END_S = 300, /* what a disk gets at the end of a job, */
    LEAVE_S = 5, /* and at the end of one that failed */
    TIME = 16,
};
#define BEST "best"

/* --- words of the saver, on its thread -------------------------------------------------------- */

static int on_begins(void *owner, uint64_t step, uint64_t log_bytes, struct err *err)
{
    struct train_save *t = owner;
    return train_commit(&t->commit, step, log_bytes, err);
}

static void on_saved(void *owner, uint64_t step)
{
    struct train_save *t = owner;
    t->is_delayed = false;
    stage_event(t->head->events, "saved", json_pack("{s:I}", "step", (json_int_t)step));
}

/* Once, and not again until a save went well. */
static void on_failed(void *owner, uint64_t step, const char *why)
{
    struct train_save *t = owner;
    if (!t->is_delayed)
        stage_event(t->head->events, "save-delayed",
                    json_pack("{s:I s:s}", "step", (json_int_t)step, "error", why));
    t->is_delayed = true;
}

/* --- a round ---------------------------------------------------------------------------------- */

static int take_piece(void *owner, const struct param_piece *piece, float *values, struct err *err)
{
    struct train_save *t = owner;
    return saver_piece(t->saver, piece, values, err);
}

static int gather(struct train_save *t, size_t adapter, uint64_t step, struct err *err)
{
    struct head_round round = {.piece = take_piece, .owner = t};
    struct go go = {
        .program = PROGRAM_SAVE, .state = true, .keep = t->keeps, .step = step, .adapter = (uint32_t)adapter};
    t->keeps = false;
    return runner_round(t->runner, &go, &round, err);
}

static json_t *record_of(const struct train_save *t, size_t adapter, json_t *so_far)
{
    json_t *record = head_order_record(t->head, adapter);
    const json_int_t rows = (json_int_t)t->head->spec.micro_batch;
    if (record && (json_object_set(record, HEAD_SO_FAR, so_far) ||
                   json_object_set_new(record, HEAD_MICRO_BATCH, json_integer(rows)) ||
                   json_object_set_new(record, HEAD_KERNELS, json_string(t->head->planning.kernels)))) {
        json_decref(record);
        return NULL;
    }
    return record;
}

/* Under the daemon's state, each adapter of several in a folder of its own. */
static const char *rescue_of(char path[4096], const struct train_save *t, size_t adapter, const char *below)
{
    const char *rescue = t->head->asked.rescue_dir, *name = t->head->adapters[adapter].name;
    if (!rescue)
        return NULL;
    snprintf(path, 4096, "%s%s%s%s%s", rescue, *name ? "/" : "", name, *below ? "/" : "", below);
    return path;
}

static int save_one(struct train_save *t, size_t adapter, const char *dir, const struct train_save_of *of,
                    struct err *err)
{
    struct head *h = t->head;
    char best[4096], spare[4096];
    struct adapter_out_request req = {.dir = dir,
                                      .model_dir = h->spec.model,
                                      .tune = job_plan_tune(&h->plan, adapter),
                                      .family = h->family,
                                      .config = &h->config,
                                      .step = of->step,
                                      .record = record_of(t, adapter, of->so_far)};
    snprintf(best, sizeof best, "%s/" BEST, dir);
    int e = !req.record   ? err_set(err, -ENOMEM, "out of memory")
            : of->is_best ? saver_part(t->saver, &req, best, rescue_of(spare, t, adapter, BEST), err)
                          : saver_part(t->saver, &req, NULL, NULL, err);
    json_decref(req.record);
    return e ? e : gather(t, adapter, of->step, err);
}

/* Where the adapters go: as asked for, or under the daemon's state. */
enum place { PLACE_ASKED, PLACE_RESCUE };

/* With all adapters, so that none begins again while others go on. */
static int save_to(struct train_save *t, uint64_t step, const struct train_save_of *of, enum place place,
                   struct err *err)
{
    char path[4096];
    bool must_keep = place == PLACE_RESCUE;
    for (size_t a = 0; a < t->head->nadapters; a++)
        must_keep = must_keep || (of[a].is_wanted && of[a].is_best);
    int e = saver_begin(t->saver, step, stage_log_bytes(t->commit.log), must_keep, err);
    if (e)
        return e;
    for (size_t a = 0; a < t->head->nadapters && !e; a++) {
        const char *dir =
            place == PLACE_ASKED ? t->head->adapters[a].spec.adapter_out : rescue_of(path, t, a, "");
        if (of[a].is_wanted)
            e = save_one(t, a, dir, &of[a], err);
    }
    if (e)
        saver_drop(t->saver);
    else
        saver_end(t->saver);
    return e;
}

static void remember(struct train_save *t, uint64_t step, const struct train_save_of *of)
{
    t->step = step;
    for (size_t a = 0; a < t->head->nadapters; a++) {
        json_incref(of[a].so_far);
        json_decref(t->last[a].so_far);
        t->last[a] = of[a];
    }
}

int train_save_all(struct train_save *t, uint64_t step, const struct train_save_of *of, bool keeps,
                   struct err *err)
{
    t->keeps = keeps;
    t->begun = clock_now();
    remember(t, step, of);
    return save_to(t, step, of, PLACE_ASKED, err);
}

/* --- the end ---------------------------------------------------------------------------------- */

/* why: it waits, for a sentence. */
static int await_disk(struct train_save *t, const char *why, struct err *err)
{
    char until[TIME] = "";
    int e = saver_wait(t->saver, SAY_S, err);
    if (e != -ETIMEDOUT)
        return e;
    const time_t end = time(NULL) + END_S;
    struct tm parts;
    if (localtime_r(&end, &parts))
        strftime(until, sizeof until, "%H:%M:%S", &parts);
    stage_say(t->head->events, "%s; the job waits until %s for the disk of %s", why, until,
              t->head->asked.adapter_out);
    return saver_wait(t->saver, END_S, err);
}

bool train_save_is_kept(struct train_save *t)
{
    struct err err; /* which was said, since a later save may go well */
    return !await_disk(t, "the job is to stop", &err);
}

/* A result that cannot be written where it was asked for is kept under the daemon's state, and the
 * sentence says where: an hour of training is not lost to a full disk. */
int train_save_finish(struct train_save *t, struct err *err)
{
    const char *rescue = t->head->asked.rescue_dir;
    int e = await_disk(t, "all steps are done", err);
    if (!e || e == -ETIMEDOUT || !rescue)
        return e;
    const struct err first = *err;
    struct err second;
    if (*t->head->adapters[0].name)
        mkdir(rescue, 0777);
    if (save_to(t, t->step, t->last, PLACE_RESCUE, &second) || await_disk(t, "no step follows", &second)) {
        *err = first;
        return e;
    }
    return err_set(err, e, "%.300s; the result of step %llu is kept in %s", first.text,
                   (unsigned long long)t->step, rescue);
}

void train_save_leave(struct train_save *t)
{
    struct err err;
    if (saver_wait(t->saver, LEAVE_S, &err) == -ETIMEDOUT)
        stage_say(t->head->events, "%s, and is given up, since the job ends", err.text);
}

int train_save_init(struct train_save *t, struct head *h, struct runner *r, struct stage_log *log,
                    struct err *err)
{
    const struct saver_setup setup = {.most_bytes = saver_bytes(&h->plan, &h->config),
                                      .begins = on_begins,
                                      .saved = on_saved,
                                      .failed = on_failed,
                                      .owner = t};
    *t = (struct train_save){.head = h, .runner = r, .commit = {.head = h, .log = log}, .begun = clock_now()};
    return saver_new(&t->saver, &setup, err);
}

void train_save_done(struct train_save *t)
{
    t->head->is_stuck = !saver_free(t->saver);
    for (size_t a = 0; a < JOB_MAX_ADAPTERS; a++)
        json_decref(t->last[a].so_far);
    t->saver = NULL;
}
