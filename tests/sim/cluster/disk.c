/* SPDX-License-Identifier: MIT
 *
 * store.h in memory: what is put is on the disk a while later, in its order; a crash loses the
 * rest. A slow disk takes longer. */
#include "tests/sim/cluster/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/xalloc.h"
#include "daemon/ringd/job/job_state.h"
#include "daemon/ringd/store/store.h"

enum { DISK_JOBS = 2 * SIM_JOBS, WAITERS = 16 };

struct entry {
    char *record, *life; /* owned; NULL: none */
    char state[16];      /* as the record says */
    uint64_t said, saved;
};
struct write { /* one that waits */
    struct write *next;
    uint64_t job;
    char state[16], kind[16]; /* one of both is "" */
    char *json, *life;        /* owned */
};
struct store {
    struct sim_event commit;
    struct waiter {
        void (*done)(void *arg, const char *json);
        void *arg;
    } waiters[WAITERS]; /* for the commit */
    size_t nwaiters;
    struct sim_node *node;
    uint64_t next_job, forgotten; /* jobs up to this number are no longer there */
    struct write *first, *last;   /* owned */
    struct entry on_disk[DISK_JOBS];
};

static struct entry *entry_of(struct store *s, uint64_t job)
{
    return &s->on_disk[job - s->forgotten];
}

static uint64_t number_in(const char *json, const char *key)
{
    const char *at = strstr(json, key);
    return at ? strtoull(at + strlen(key), NULL, 10) : 0;
}

static void write_free(struct write *w)
{
    free(w->json);
    free(w->life);
    free(w);
}

static void answer(struct store *s)
{
    struct waiter all[WAITERS];
    const size_t n = s->nwaiters;
    memcpy(all, s->waiters, sizeof all);
    s->nwaiters = 0;
    for (size_t i = 0; i < n; i++)
        all[i].done(all[i].arg, NULL);
}

static void on_commit(struct sim_event *e)
{
    struct store *s = (struct store *)e;
    for (struct write *w; (w = s->first);) {
        struct entry *to = entry_of(s, w->job);
        s->first = w->next;
        if (*w->state) {
            free(to->record);
            free(to->life);
            to->record = w->json;
            to->life = w->life;
            w->json = w->life = NULL;
            memcpy(to->state, w->state, sizeof to->state);
        } else if (!strcmp(w->kind, "step")) {
            to->said = number_in(w->json, "\"step\":");
        } else if (!strcmp(w->kind, "saved")) {
            to->saved = number_in(w->json, "\"step\":");
        }
        write_free(w);
    }
    s->last = NULL;
    answer(s);
}

static void commit_soon(struct store *s)
{
    if (!s->commit.place)
        sim_at(&s->commit, s->node->slow_disk_us + sim_span(500, 50 * SIM_MS));
}

static void put(struct store *s, uint64_t job, const char *state, const char *kind, const char *json,
                const char *life)
{
    if (job <= s->forgotten || job - s->forgotten >= DISK_JOBS) {
        sim_wrong("the store gets a job %llu", (unsigned long long)job);
        return;
    }
    struct write *w = xcalloc(1, sizeof *w);
    w->job = job;
    snprintf(w->state, sizeof w->state, "%s", state);
    snprintf(w->kind, sizeof w->kind, "%s", kind);
    w->json = xstrdup(json);
    w->life = xstrdup(life);
    *(s->last ? &s->last->next : &s->first) = w;
    s->last = w;
    commit_soon(s);
}

/* --- a disk's life ---------------------------------------------------------------------------- */

struct store *sim_disk_new(struct sim_node *n)
{
    struct store *s = xcalloc(1, sizeof *s);
    s->node = n;
    s->commit = (struct sim_event){.node = n, .run = on_commit};
    return s;
}

void sim_disk_crash(struct store *s)
{
    sim_cancel(&s->commit);
    if (s->first && sim_chance(50)) /* the thread was just through with it */
        on_commit(&s->commit);
    for (struct write *w = s->first, *next; w; w = next) {
        next = w->next;
        write_free(w);
    }
    s->first = s->last = NULL;
}

void sim_disk_start(struct store *s)
{
    s->next_job = s->forgotten + 1;
    for (uint64_t i = 0; i < DISK_JOBS; i++)
        if (s->on_disk[i].record)
            s->next_job = s->forgotten + i + 1;
    for (size_t i = 0; i < sim->jobs; i++) {
        struct sim_job *job = &sim->job[i];
        if (job->head == s->node && job->id) {
            const struct entry *e = entry_of(s, job->id);
            /* This disk keeps no tokens: a generation begins anew, and says all of them again. */
            job->told = job->generates ? 0 : e->said;
            if (!job->generates)
                job->said = job->told;
            job->saved = e->saved;
            if (!e->record)
                job->id = 0; /* nobody has heard that it was taken */
        }
    }
}

void sim_disk_forget(struct store *s)
{
    for (size_t i = 0; i < DISK_JOBS; i++) {
        free(s->on_disk[i].record);
        free(s->on_disk[i].life);
        s->on_disk[i] = (struct entry){0};
    }
    s->forgotten = s->next_job - 1;
}

void sim_disk_free(struct store *s)
{
    if (!s)
        return;
    sim_disk_crash(s);
    sim_disk_forget(s);
    free(s);
}

const char *sim_disk_record(const struct store *s, uint64_t job)
{
    const char *record = s->on_disk[job - s->forgotten].record;
    return record ? record : "";
}

const char *sim_disk_state(const struct store *s, uint64_t job)
{
    return s->on_disk[job - s->forgotten].state;
}

/* --- store.h ---------------------------------------------------------------------------------- */

uint64_t store_next_job(struct store *s)
{
    return s->next_job++;
}

/* An end that is decided: nodes hear of it before this is on the disk. */
static bool is_over(const char *life)
{
    return !life || strstr(life, "\"outcome\":\"DONE\"") || strstr(life, "\"outcome\":\"FAILED\"") ||
           strstr(life, "\"outcome\":\"CANCELLED\"");
}

void store_put_job(struct store *s, uint64_t job, const char *state, const char *json, const char *life)
{
    if (is_over(life))
        sim_copies_over(s->node, job);
    put(s, job, state, "", json, life);
}

void store_put_event(struct store *s, uint64_t job, const char *kind, const char *json)
{
    if (strcmp(kind, "step") && strcmp(kind, "saved"))
        return;
    sim_check_said(s->node, job, kind, json);
    put(s, job, "", kind, json, NULL);
}

void store_tidy_folder(struct store *s, const char *folder)
{
    (void)s, (void)folder;
}

void store_sync(struct store *s, void (*done)(void *arg, const char *json), void *arg)
{
    if (s->nwaiters == WAITERS) {
        sim_wrong("more than %d wait for the store at a time", WAITERS);
        return;
    }
    s->waiters[s->nwaiters++] = (struct waiter){done, arg};
    commit_soon(s);
}

/* What the daemon's end leaves owed is said before the store has gone. */
void sim_disk_close(struct store *s)
{
    answer(s);
}

static json_t *unfinished(const struct entry *e)
{
    json_t *record = json_loads(e->record, 0, NULL);
    json_t *entry = json_pack("{s:o s:o s:[] s:n s:n s:n s:I}", "record", record, "life",
                              e->life ? json_loads(e->life, 0, NULL) : json_null(), "said", "last", "saved",
                              "logged", "tokens", (json_int_t)(8 * e->said));
    if (e->said)
        json_array_append_new(json_object_get(entry, "said"),
                              json_pack("[s, s, I]", "step", "", (json_int_t)e->said));
    if (e->said)
        json_object_set_new(entry, "last",
                            json_pack("{s:I s:I s:f}", "step", (json_int_t)e->said, "steps",
                                      json_integer_value(json_object_get(record, "steps")), "loss", 1.0));
    if (e->saved)
        json_object_set_new(entry, "saved", json_pack("{s:I}", "step", (json_int_t)e->saved));
    return entry;
}

char *store_unfinished(struct store *s)
{
    json_t *list = json_array();
    for (size_t i = 0; i < DISK_JOBS; i++) {
        const struct entry *e = &s->on_disk[i];
        if (e->record && strcmp(e->state, "done") && strcmp(e->state, "failed") &&
            strcmp(e->state, "cancelled"))
            json_array_append_new(list, unfinished(e));
    }
    char *text = json_dumps(list, JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_decref(list);
    return text;
}

/* --- what is kept for other heads: no job changes hands here yet ------------------------------ */

char *store_notes(struct store *s)
{
    (void)s;
    return xstrdup("[]");
}

void store_put_note(struct store *s, const char *key, const char *json)
{
    (void)s, (void)key, (void)json;
}

const char *store_trouble(const struct store *s)
{
    (void)s;
    return NULL;
}

static void not_asked(const char *what, uint64_t job)
{
    sim_wrong("%s was called for job %llu", what, (unsigned long long)job);
}

void store_get_job(struct store *s, uint64_t job, void (*done)(void *arg, const char *json), void *arg)
{
    (void)s, (void)done, (void)arg;
    not_asked("store_get_job", job);
}

void store_get_unfinished(struct store *s, uint64_t job, void (*done)(void *arg, const char *json), void *arg)
{
    (void)s, (void)done, (void)arg;
    not_asked("store_get_unfinished", job);
}

void store_get_lines(struct store *s, uint64_t job, int64_t after, void (*done)(void *arg, const char *json),
                     void *arg)
{
    (void)s, (void)after, (void)done, (void)arg;
    not_asked("store_get_lines", job);
}

void store_move_job(struct store *s, uint64_t from, uint64_t to)
{
    (void)s, (void)to;
    not_asked("store_move_job", from);
}

void store_drop_job(struct store *s, uint64_t job)
{
    (void)s;
    not_asked("store_drop_job", job);
}
