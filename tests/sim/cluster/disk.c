/* SPDX-License-Identifier: MIT
 *
 * store.h in memory: what is put is on the disk a while later, in its order, and what is asked is
 * answered then; a crash loses the rest. A slow disk takes longer. */
#include "tests/sim/cluster/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/xalloc.h"
#include "daemon/ringd/job/job_state.h"
#include "daemon/ringd/store/store.h"

struct line {
    char kind[16];
    char *json; /* owned */
};
struct entry {
    struct entry *next;
    uint64_t job;
    char *record, *life; /* owned; NULL: none */
    char state[16];      /* as the record says */
    struct line *lines;  /* owned: those of steps and of saves */
    size_t nlines;
};
struct note {
    struct note *next;
    char *key, *json; /* owned */
};
enum work { PUT_JOB, PUT_LINE, PUT_NOTE, MOVE_JOB, DROP_JOB, SYNC, GET_JOB, GET_UNFINISHED, GET_LINES };
struct task { /* one that waits for the disk */
    struct task *next;
    enum work work;
    uint64_t job, to;  /* to: its new number, or the line behind which others are wanted */
    char word[80];     /* a state, the kind of a line, a key */
    char *json, *life; /* owned; NULL: none */
    void (*done)(void *arg, const char *json); /* of a question */
    void *arg;
};
struct store {
    struct sim_event commit;
    struct sim_node *node;
    uint64_t next_job, forgotten; /* jobs up to this number are no longer there */
    struct task *first, *last;    /* owned */
    struct entry *entries;        /* owned, likewise on the disk */
    struct note *notes;
};

/* --- what is on the disk ---------------------------------------------------------------------- */

static struct entry *find(const struct store *s, uint64_t job)
{
    struct entry *e = s->entries;
    while (e && e->job != job)
        e = e->next;
    return e;
}

static struct entry *place(struct store *s, uint64_t job)
{
    struct entry *e = find(s, job);
    if (e)
        return e;
    e = xcalloc(1, sizeof *e);
    e->job = job;
    e->next = s->entries;
    s->entries = e;
    return e;
}

static void drop(struct store *s, uint64_t job)
{
    struct entry **at = &s->entries;
    while (*at && (*at)->job != job)
        at = &(*at)->next;
    struct entry *e = *at;
    if (!e)
        return;
    *at = e->next;
    for (size_t i = 0; i < e->nlines; i++)
        free(e->lines[i].json);
    free(e->lines);
    free(e->record);
    free(e->life);
    free(e);
}

static void put_note(struct store *s, const char *key, char **json)
{
    struct note **at = &s->notes;
    while (*at && strcmp((*at)->key, key))
        at = &(*at)->next;
    struct note *n = *at;
    if (!n && *json) {
        *at = n = xcalloc(1, sizeof *n);
        n->key = xstrdup(key);
    }
    if (!n)
        return;
    free(n->json);
    n->json = *json;
    *json = NULL;
    if (n->json)
        return;
    *at = n->next;
    free(n->key);
    free(n);
}

/* Of the last line of that kind. */
static uint64_t last_step(const struct entry *e, const char *kind)
{
    for (size_t i = e->nlines; i-- > 0;) {
        const char *at = strcmp(e->lines[i].kind, kind) ? NULL : strstr(e->lines[i].json, "\"step\":");
        if (at)
            return strtoull(at + 7, NULL, 10);
    }
    return 0;
}

static void leave_saves(struct entry *e)
{
    size_t n = 0;
    for (size_t i = 0; i < e->nlines; i++)
        if (strcmp(e->lines[i].kind, "saved"))
            e->lines[n++] = e->lines[i];
        else
            free(e->lines[i].json);
    e->nlines = n;
}

static void move(struct store *s, uint64_t from, uint64_t to)
{
    struct entry *e = find(s, from);
    json_t *record = e ? json_loads(e->record, 0, NULL) : NULL;
    if (!record)
        return;
    drop(s, to);
    e->job = to;
    leave_saves(e);
    json_object_set_new(record, "id", json_integer((json_int_t)to));
    free(e->record);
    e->record = json_dumps(record, JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_decref(record);
}

static void apply(struct store *s, struct task *t)
{
    struct entry *e;
    switch (t->work) {
    case PUT_JOB:
        e = place(s, t->job);
        free(e->record);
        free(e->life);
        e->record = t->json;
        e->life = t->life;
        t->json = t->life = NULL;
        snprintf(e->state, sizeof e->state, "%.15s", t->word);
        break;
    case PUT_LINE:
        e = place(s, t->job);
        e->lines = xreallocarray(e->lines, e->nlines + 1, sizeof *e->lines);
        e->lines[e->nlines] = (struct line){.json = t->json};
        snprintf(e->lines[e->nlines++].kind, sizeof e->lines->kind, "%.15s", t->word);
        t->json = NULL;
        break;
    case PUT_NOTE: put_note(s, t->word, &t->json); break;
    case MOVE_JOB: move(s, t->job, t->to); break;
    case DROP_JOB: drop(s, t->job); break;
    case SYNC:
    case GET_JOB:
    case GET_UNFINISHED:
    case GET_LINES: break;
    }
}

/* --- what is asked ---------------------------------------------------------------------------- */

static json_t *unfinished(const struct entry *e)
{
    const uint64_t said = last_step(e, "step"), saved = last_step(e, "saved");
    json_t *record = json_loads(e->record, 0, NULL);
    json_t *entry = json_pack("{s:o s:o s:[] s:n s:n s:n s:I}", "record", record, "life",
                              e->life ? json_loads(e->life, 0, NULL) : json_null(), "said", "last", "saved",
                              "logged", "tokens", (json_int_t)(8 * said));
    if (said)
        json_array_append_new(json_object_get(entry, "said"),
                              json_pack("[s, s, I]", "step", "", (json_int_t)said));
    if (said)
        json_object_set_new(entry, "last",
                            json_pack("{s:I s:I s:f}", "step", (json_int_t)said, "steps",
                                      json_integer_value(json_object_get(record, "steps")), "loss", 1.0));
    if (saved)
        json_object_set_new(entry, "saved", json_pack("{s:I}", "step", (json_int_t)saved));
    return entry;
}

static json_t *lines_behind(const struct entry *e, uint64_t after)
{
    json_t *list = json_array();
    for (size_t i = after; e && i < e->nlines && i < after + STORE_LINES; i++)
        json_array_append_new(list, json_pack("[I, s, o]", (json_int_t)i + 1, e->lines[i].kind,
                                              json_loads(e->lines[i].json, 0, NULL)));
    return list;
}

/* NULL: nothing. The caller frees. */
static char *answer_to(const struct store *s, const struct task *t)
{
    const struct entry *e = find(s, t->job);
    json_t *list = NULL;
    if (t->work == GET_JOB)
        return e && e->record ? xstrdup(e->record) : NULL;
    if (t->work == GET_LINES)
        list = lines_behind(e, t->to);
    else if (t->work == GET_UNFINISHED)
        list = e && e->record ? json_pack("[o]", unfinished(e)) : json_array();
    char *text = list ? json_dumps(list, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(list);
    return text;
}

/* --- in the order in which it came ------------------------------------------------------------ */

static void task_free(struct task *t)
{
    free(t->json);
    free(t->life);
    free(t);
}

static struct task *take_all(struct store *s)
{
    struct task *all = s->first;
    s->first = s->last = NULL;
    return all;
}

static void on_commit(struct sim_event *e)
{
    struct store *s = (struct store *)e;
    struct task *all = take_all(s);
    for (struct task *t = all; t; t = t->next)
        apply(s, t);
    for (struct task *t = all, *next; t; t = next) {
        next = t->next;
        if (t->done) {
            char *text = answer_to(s, t);
            if (t->work == GET_UNFINISHED)
                sim_head_begins(s->node, t->job, sim_disk_said(s, t->job));
            t->done(t->arg, text);
            free(text);
        }
        task_free(t);
    }
}

static struct task *post(struct store *s, enum work work, uint64_t job)
{
    struct task *t = xcalloc(1, sizeof *t);
    t->work = work;
    t->job = job;
    *(s->last ? &s->last->next : &s->first) = t;
    s->last = t;
    if (!s->commit.place)
        sim_at(&s->commit, s->node->slow_disk_us + sim_span(500, 50 * SIM_MS));
    if (job && job < STORE_FIRST_DOSSIER && job <= s->forgotten)
        sim_wrong("the store is asked of job %llu, which is long over", (unsigned long long)job);
    return t;
}

static void ask(struct store *s, enum work work, uint64_t job, void (*done)(void *arg, const char *json),
                void *arg)
{
    struct task *t = post(s, work, job);
    t->done = done;
    t->arg = arg;
}

/* --- a disk's life ---------------------------------------------------------------------------- */

struct store *sim_disk_new(struct sim_node *n)
{
    struct store *s = xcalloc(1, sizeof *s);
    s->node = n;
    s->commit = (struct sim_event){.node = n, .run = on_commit};
    return s;
}

static void lose_note(const struct store *s, const struct task *t)
{
    json_t *taken = t->json && !strncmp(t->word, "taken/", 6) ? json_loads(t->json, 0, NULL) : NULL;
    if (taken)
        sim_head_loses(s->node, taken);
    json_decref(taken);
}

void sim_disk_crash(struct store *s)
{
    sim_cancel(&s->commit);
    const bool is_through = s->first && sim_chance(50); /* the thread was just through with it */
    for (struct task *t = take_all(s), *next; t; t = next) {
        next = t->next;
        if (is_through)
            apply(s, t);
        else if (t->work == PUT_NOTE)
            lose_note(s, t);
        task_free(t);
    }
}

void sim_disk_start(struct store *s)
{
    s->next_job = s->forgotten + 1;
    for (const struct entry *e = s->entries; e; e = e->next)
        if (e->record && e->job < STORE_FIRST_DOSSIER && e->job >= s->next_job)
            s->next_job = e->job + 1;
    for (size_t i = 0; i < sim->jobs; i++) {
        struct sim_job *job = &sim->job[i];
        const struct sim_head head = sim_head_of(job);
        const struct entry *e = find(s, head.id);
        if (head.node != s->node || !head.id)
            continue;
        /* This disk keeps no tokens: a generation starts again at its first token. */
        job->told = job->generates || !e ? 0 : last_step(e, "step");
        if (!job->generates)
            job->said = job->told;
        job->saved = e ? last_step(e, "saved") : 0;
        if ((!e || !e->record) && !job->turn)
            job->id = 0; /* nobody has heard that it was taken */
    }
}

static bool is_note_of(const struct note *n, const char *word)
{
    return !strncmp(n->key, word, strlen(word)) && n->key[strlen(word)] == '/';
}

const char *sim_disk_left(const struct store *s)
{
    for (const struct note *n = s->notes; n; n = n->next)
        if (is_note_of(n, "dossier") || is_note_of(n, "taken"))
            return n->key;
    return NULL;
}

void sim_disk_forget(struct store *s)
{
    while (s->entries)
        drop(s, s->entries->job);
    s->forgotten = s->next_job - 1;
}

void sim_disk_free(struct store *s)
{
    char *none = NULL;
    if (!s)
        return;
    sim_disk_crash(s);
    sim_disk_forget(s);
    while (s->notes)
        put_note(s, s->notes->key, &none);
    free(s);
}

const char *sim_disk_record(const struct store *s, uint64_t job)
{
    const struct entry *e = find(s, job);
    return e && e->record ? e->record : "";
}

uint64_t sim_disk_said(const struct store *s, uint64_t job)
{
    const struct entry *e = find(s, job);
    return e ? last_step(e, "step") : 0;
}

const char *sim_disk_state(const struct store *s, uint64_t job)
{
    const struct entry *e = find(s, job);
    return e ? e->state : "";
}

/* What the daemon's end leaves owed is said before the store has gone. */
void sim_disk_close(struct store *s)
{
    for (struct task *t = s->first; t; t = t->next) {
        void (*done)(void *, const char *) = t->done;
        t->done = NULL;
        if (done)
            done(t->arg, NULL);
    }
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
    if (is_over(life) && job < STORE_FIRST_DOSSIER)
        sim_copies_over(s->node, job);
    struct task *t = post(s, PUT_JOB, job);
    snprintf(t->word, sizeof t->word, "%s", state);
    t->json = xstrdup(json);
    t->life = xstrdup(life);
}

void store_put_event(struct store *s, uint64_t job, const char *kind, const char *json)
{
    if (strcmp(kind, "step") && strcmp(kind, "saved"))
        return;
    if (job < STORE_FIRST_DOSSIER)
        sim_check_said(s->node, job, kind, json);
    struct task *t = post(s, PUT_LINE, job);
    snprintf(t->word, sizeof t->word, "%s", kind);
    t->json = xstrdup(json);
}

void store_tidy_folder(struct store *s, const char *folder)
{
    (void)s, (void)folder;
}

void store_sync(struct store *s, void (*done)(void *arg, const char *json), void *arg)
{
    ask(s, SYNC, 0, done, arg);
}

char *store_unfinished(struct store *s)
{
    json_t *list = json_array();
    uint64_t before = 0;
    for (const struct entry *next = s->entries; next;) { /* the oldest first */
        next = NULL;
        for (const struct entry *e = s->entries; e; e = e->next)
            if (e->job > before && (!next || e->job < next->job))
                next = e;
        before = next ? next->job : before;
        if (next && next->record && next->job < STORE_FIRST_DOSSIER && strcmp(next->state, "done") &&
            strcmp(next->state, "failed") && strcmp(next->state, "cancelled"))
            json_array_append_new(list, unfinished(next));
    }
    char *text = json_dumps(list, JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_decref(list);
    return text;
}

char *store_notes(struct store *s)
{
    json_t *list = json_array();
    for (const struct note *n = s->notes; n; n = n->next)
        json_array_append_new(list, json_pack("[s, o]", n->key, json_loads(n->json, 0, NULL)));
    char *text = json_dumps(list, JSON_COMPACT);
    json_decref(list);
    return text;
}

void store_put_note(struct store *s, const char *key, const char *json)
{
    json_t *taken = json && !strncmp(key, "taken/", 6) ? json_loads(json, 0, NULL) : NULL;
    if (taken)
        sim_head_takes(s->node, taken);
    json_decref(taken);
    struct task *t = post(s, PUT_NOTE, 0);
    snprintf(t->word, sizeof t->word, "%s", key);
    t->json = xstrdup(json);
}

const char *store_trouble(const struct store *s)
{
    (void)s;
    return NULL;
}

void store_get_job(struct store *s, uint64_t job, void (*done)(void *arg, const char *json), void *arg)
{
    ask(s, GET_JOB, job, done, arg);
}

void store_get_unfinished(struct store *s, uint64_t job, void (*done)(void *arg, const char *json), void *arg)
{
    ask(s, GET_UNFINISHED, job, done, arg);
}

void store_get_lines(struct store *s, uint64_t job, int64_t after, void (*done)(void *arg, const char *json),
                     void *arg)
{
    ask(s, GET_LINES, job, done, arg);
    s->last->to = (uint64_t)after;
}

void store_move_job(struct store *s, uint64_t from, uint64_t to)
{
    post(s, MOVE_JOB, from)->to = to;
}

void store_drop_job(struct store *s, uint64_t job)
{
    post(s, DROP_JOB, job);
}
