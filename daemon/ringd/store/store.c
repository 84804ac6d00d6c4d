/* SPDX-License-Identifier: MIT
 *
 * Owns the thread that writes ringd.db (store_sql.c), and the queues to it and back. The loop
 * thread posts requests into a queue under one mutex; the store thread takes all there are, runs
 * them in order inside one transaction (one fsync for many lines), and hands answers back through
 * the mailbox. What the disk refuses waits, within a bound, and is tried again. */
#include "daemon/ringd/store/store.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "daemon/ringd/ledger.h"
#include "daemon/ringd/log.h"
#include "daemon/ringd/mailbox.h"
#include "daemon/ringd/store/store_sql.h"
#include "daemon/common/xalloc.h"

enum {
    BATCH_MAX = 512,    /* requests per transaction, so that an answer does not wait for a long queue */
    RETRY_SECONDS = 10, /* between attempts while the disk refuses */
    WAITING_MAX = STORE_WAITING_MIB << 20,
    HISTORY_MAX = WAITING_MAX / 4 * 3,
    RECORDS_MAX = WAITING_MAX / 8 * 7, /* the rest is for what nodes promise one another */
};

struct queue {
    struct store_request *first, **last; /* owned */
};

struct store {
    struct mailbox *mailbox;       /* borrowed */
    struct store_sql *sql;         /* owned; the store thread's from store_open on */
    uint64_t next_job;             /* loop thread */
    _Atomic(const char *) trouble; /* a text of SQLite's that lives for ever, or NULL */

    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;     /* todo, finished or closing; under lock, monotonic clock */
    struct queue todo;          /* loop → store thread, under lock */
    struct queue finished;      /* store thread → loop, under lock */
    struct queue refused;       /* writes the disk would not take, in their order; under lock */
    struct ledger_queue writes; /* all that wait or are being written */
    struct timespec retry;      /* when they are tried again; store thread */
    bool closing;               /* under lock */
    atomic_size_t dropped;      /* rows that found no place in `refused` */
    bool has_logged;            /* the log has named the present trouble; loop thread */
};

/* --- queues --- */

static void queue_init(struct queue *q)
{
    q->first = NULL;
    q->last = &q->first;
}

static void queue_push(struct queue *q, struct store_request *r)
{
    r->next = NULL;
    *q->last = r;
    q->last = &r->next;
}

static struct store_request *queue_pop(struct queue *q)
{
    struct store_request *r = q->first;
    if (r && !(q->first = r->next))
        q->last = &q->first;
    return r;
}

static void queue_move(struct queue *from, struct queue *to, size_t most)
{
    for (struct store_request *r; most-- > 0 && (r = queue_pop(from));)
        queue_push(to, r);
}

static void request_free(struct store_request *r)
{
    free(r->word);
    free(r->json);
    free(r->life);
    free(r);
}

static void queue_done(struct queue *q)
{
    for (struct store_request *r; (r = queue_pop(q));)
        request_free(r);
}

/* --- what waits for the disk, under lock --- */

static size_t request_bytes(const struct store_request *r)
{
    return sizeof *r + (r->word ? strlen(r->word) : 0) + (r->json ? strlen(r->json) : 0) +
           (r->life ? strlen(r->life) : 0);
}

static bool is_history(const struct store_request *r)
{
    return r->kind == PUT_EVENT || r->kind == PUT_POINTS;
}

static void write_done(struct store *s, struct store_request *r)
{
    ledger_give(&s->writes, request_bytes(r));
    request_free(r);
}

/* at: a link of the queue. */
static void drop(struct store *s, struct queue *q, struct store_request **at)
{
    struct store_request *r = *at;
    *at = r->next;
    if (!r->next)
        q->last = at;
    write_done(s, r);
}

/* A newer record of the same job makes the older one worthless. */
static void drop_records(struct store *s, struct queue *q, uint64_t job)
{
    for (struct store_request **at = &q->first; *at;) {
        if ((*at)->kind == PUT_JOB && (*at)->job == job)
            drop(s, q, at);
        else
            at = &(*at)->next;
    }
}

/* The oldest history gives way: a job's record is one row, and says how the job ended. */
static bool drop_history(struct store *s, struct queue *q)
{
    struct store_request **at = &q->first;
    while (*at && !is_history(*at))
        at = &(*at)->next;
    if (!*at)
        return false;
    drop(s, q, at);
    atomic_fetch_add(&s->dropped, 1);
    return true;
}

/* Room for r, counted; false: it finds none. */
static bool make_room(struct store *s, const struct store_request *r)
{
    const size_t n = request_bytes(r), most = is_history(r)        ? HISTORY_MAX
                                              : r->kind == PUT_JOB ? RECORDS_MAX
                                                                   : WAITING_MAX;
    while (atomic_load(&s->writes.bytes) + n > most)
        if (!drop_history(s, &s->refused) && !drop_history(s, &s->todo))
            break;
    if (r->kind == PUT_JOB && atomic_load(&s->writes.bytes) + n > most) {
        drop_records(s, &s->refused, r->job);
        drop_records(s, &s->todo, r->job);
    }
    return atomic_load(&s->writes.bytes) + n <= most && ledger_take(&s->writes, n);
}

static void refused_push(struct store *s, struct store_request *r)
{
    if (r->kind == PUT_JOB)
        drop_records(s, &s->refused, r->job);
    queue_push(&s->refused, r);
}

/* Under lock. While the disk refuses, writes wait for the next attempt; a read is due, and lets
 * what it should see be tried. */
static bool is_due(struct store *s)
{
    struct store_request *r;
    while (s->refused.first && !s->closing && (r = s->todo.first) && request_is_put(r))
        refused_push(s, queue_pop(&s->todo));
    return s->todo.first || s->closing;
}

/* --- the store thread --- */

/* Loop thread, by mail. */
static void deliver(void *arg)
{
    struct store *s = arg;
    struct store_request *r;
    do {
        pthread_mutex_lock(&s->lock);
        r = queue_pop(&s->finished);
        pthread_mutex_unlock(&s->lock);
        if (r) {
            r->done(r->arg, r->json);
            request_free(r);
        }
    } while (r);
}

static void settle_batch(struct store *s, struct queue *batch, bool is_well)
{
    bool answers = false;
    pthread_mutex_lock(&s->lock);
    for (struct store_request *r = batch->first, *next; r; r = next) {
        next = r->next;
        if (!request_is_put(r)) {
            queue_push(&s->finished, r);
            answers = true;
        } else if (!is_well) {
            refused_push(s, r);
        } else {
            write_done(s, r);
        }
    }
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    queue_init(batch);
    if (answers)
        mailbox_post(s->mailbox, deliver, s);
}

static void wait_for_work(struct store *s)
{
    while (!is_due(s)) {
        if (!s->refused.first)
            pthread_cond_wait(&s->changed, &s->lock);
        else if (pthread_cond_timedwait(&s->changed, &s->lock, &s->retry) == ETIMEDOUT)
            return;
    }
}

/* Loop thread, by mail: the log names a trouble once, and its end. */
static void log_trouble(void *arg)
{
    struct store *s = arg;
    const char *trouble = store_trouble(s);
    size_t dropped = trouble ? 0 : atomic_exchange(&s->dropped, 0);
    if (trouble && !s->has_logged)
        log_error("job history cannot be written: %s", trouble);
    else if (!trouble && s->has_logged)
        log_info("job history is written again");
    if (dropped)
        log_warning("%zu rows of job history were dropped while they could not be written", dropped);
    s->has_logged = trouble != NULL;
}

static void set_trouble(struct store *s, const char *trouble)
{
    clock_gettime(CLOCK_MONOTONIC, &s->retry);
    s->retry.tv_sec += RETRY_SECONDS;
    if (!atomic_exchange(&s->trouble, trouble) != !trouble)
        mailbox_post(s->mailbox, log_trouble, s);
}

/* Folders leave the batch; the disk may hang meanwhile. */
static void tidy_folders(struct store *s, struct queue *batch)
{
    struct queue rest;
    queue_init(&rest);
    for (struct store_request *r; (r = queue_pop(batch));) {
        if (r->kind != TIDY_FOLDER) {
            queue_push(&rest, r);
            continue;
        }
        rmdir(r->word); /* one with something in it stays */
        write_done(s, r);
    }
    queue_init(batch);
    queue_move(&rest, batch, SIZE_MAX);
}

static void *store_thread(void *arg)
{
    struct store *s = arg;
    struct queue batch;
    queue_init(&batch);
    pthread_mutex_lock(&s->lock);
    for (;;) {
        wait_for_work(s);
        bool last_try = s->closing && !s->todo.first;
        if (last_try && !s->refused.first)
            break;
        queue_move(&s->refused, &batch, SIZE_MAX);
        queue_move(&s->todo, &batch, BATCH_MAX);
        pthread_mutex_unlock(&s->lock);
        tidy_folders(s, &batch);
        const char *trouble;
        bool wrote, is_well = store_sql_run(s->sql, batch.first, &trouble, &wrote);
        if (!is_well || wrote)
            set_trouble(s, trouble);
        if (is_well && atomic_load(&s->dropped)) /* a disk that hung goes on */
            mailbox_post(s->mailbox, log_trouble, s);
        settle_batch(s, &batch, is_well);
        pthread_mutex_lock(&s->lock);
        if (last_try)
            break;
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* --- opening --- */

static void init_sync(struct store *s)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&s->changed, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_init(&s->lock, NULL);
    queue_init(&s->todo);
    queue_init(&s->finished);
    queue_init(&s->refused);
}

int store_open(struct store **ret, const char *dir, struct mailbox *mailbox, struct ledger *ledger,
               char ret_note[256], struct err *err)
{
    struct store *s = xcalloc(1, sizeof *s);
    char *path = xasprintf("%s/ringd.db", dir);
    char note[256] = "";
    s->mailbox = mailbox;
    init_sync(s);
    int rc = store_sql_open(&s->sql, path, note, err);
    if (!rc) {
        s->next_job = 1 + store_sql_last_job(s->sql);
        int failed = pthread_create(&s->thread, NULL, store_thread, s);
        s->has_thread = !failed;
        rc = failed ? err_set(err, -failed, "the store's thread cannot be started: %s", strerror(failed)) : 0;
    }
    free(path);
    if (rc) {
        store_close(s);
        return rc;
    }
    ledger_register(ledger, &s->writes, "store_writes", WAITING_MAX);
    memcpy(ret_note, note, sizeof note);
    *ret = s;
    return 0;
}

void store_close(struct store *s)
{
    if (!s)
        return;
    if (s->has_thread) {
        pthread_mutex_lock(&s->lock);
        s->closing = true;
        pthread_cond_broadcast(&s->changed);
        pthread_mutex_unlock(&s->lock);
        pthread_join(s->thread, NULL);
        deliver(s);
        mailbox_forget(s->mailbox, s);
        if (s->refused.first)
            log_error("the last rows of job history are lost: %s", store_trouble(s));
    }
    queue_done(&s->todo);
    queue_done(&s->refused);
    store_sql_close(s->sql);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

/* --- for the loop thread --- */

const char *store_trouble(const struct store *s)
{
    return atomic_load(&s->trouble);
}

uint64_t store_next_job(struct store *s)
{
    return s->next_job++;
}

static struct store_request *request_new(enum request_kind kind, uint64_t job, const char *word,
                                         const char *json)
{
    struct store_request *r = xcalloc(1, sizeof *r);
    r->kind = kind;
    r->job = job;
    r->word = xstrdup(word);
    r->json = xstrdup(json);
    return r;
}

static void post(struct store *s, struct store_request *r)
{
    pthread_mutex_lock(&s->lock);
    queue_push(&s->todo, r);
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

/* What finds no room is lost, and counted. */
static void post_write(struct store *s, struct store_request *r)
{
    pthread_mutex_lock(&s->lock);
    const bool has_room = make_room(s, r);
    if (has_room) {
        queue_push(&s->todo, r);
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
    if (has_room)
        return;
    atomic_fetch_add(&s->writes.refused, 1);
    atomic_fetch_add(&s->dropped, 1);
    request_free(r);
}

static void post_read(struct store *s, struct store_request *r, void (*done)(void *arg, const char *json),
                      void *arg)
{
    r->done = done;
    r->arg = arg;
    post(s, r);
}

void store_put_job(struct store *s, uint64_t job, const char *state, const char *json, const char *life)
{
    struct store_request *r = request_new(PUT_JOB, job, state, json);
    r->life = xstrdup(life);
    post_write(s, r);
}

void store_put_event(struct store *s, uint64_t job, const char *kind, const char *json)
{
    post_write(s, request_new(PUT_EVENT, job, kind, json));
}

void store_tidy_folder(struct store *s, const char *folder)
{
    post_write(s, request_new(TIDY_FOLDER, 0, folder, NULL));
}

void store_get_jobs(struct store *s, size_t limit, void (*done)(void *arg, const char *json), void *arg)
{
    post_read(s, request_new(GET_JOBS, limit, NULL, NULL), done, arg);
}

void store_get_job(struct store *s, uint64_t job, void (*done)(void *arg, const char *json), void *arg)
{
    post_read(s, request_new(GET_JOB, job, NULL, NULL), done, arg);
}

void store_get_events(struct store *s, uint64_t job, const char *kind, int64_t from,
                      void (*done)(void *arg, const char *json), void *arg)
{
    struct store_request *r = request_new(GET_EVENTS, job, kind, NULL);
    r->from = from;
    post_read(s, r, done, arg);
}

void store_get_lines(struct store *s, uint64_t job, int64_t after, void (*done)(void *arg, const char *json),
                     void *arg)
{
    struct store_request *r = request_new(GET_LINES, job, NULL, NULL);
    r->from = after;
    post_read(s, r, done, arg);
}

void store_get_unfinished(struct store *s, uint64_t job, void (*done)(void *arg, const char *json), void *arg)
{
    post_read(s, request_new(GET_UNFINISHED, job, NULL, NULL), done, arg);
}

void store_move_job(struct store *s, uint64_t from, uint64_t to)
{
    struct store_request *r = request_new(MOVE_JOB, from, NULL, NULL);
    r->to = (int64_t)to;
    post_write(s, r);
}

void store_drop_job(struct store *s, uint64_t job)
{
    post_write(s, request_new(DROP_JOB, job, NULL, NULL));
}

void store_put_note(struct store *s, const char *key, const char *json)
{
    post_write(s, request_new(PUT_NOTE, 0, key, json));
}

void store_put_points(struct store *s, const char *rows)
{
    post_write(s, request_new(PUT_POINTS, 0, NULL, rows));
}

unsigned store_get_points(struct store *s, const char *series, int64_t from, int64_t to, int64_t now,
                          void (*done)(void *arg, const char *json), void *arg)
{
    struct store_request *r = request_new(GET_POINTS, 0, series, NULL);
    r->from = from;
    r->to = to;
    unsigned seconds = store_sql_level(from, now, &r->level);
    post_read(s, r, done, arg);
    return seconds;
}

void store_get_series(struct store *s, void (*done)(void *arg, const char *json), void *arg)
{
    post_read(s, request_new(GET_SERIES, 0, NULL, NULL), done, arg);
}

void store_set_limit(struct store *s, uint64_t bytes)
{
    store_sql_set_limit(s->sql, bytes);
}

void store_sync(struct store *s, void (*done)(void *arg, const char *json), void *arg)
{
    post_read(s, request_new(SYNC, 0, NULL, NULL), done, arg);
}

static void hand_over(void *arg, const char *json)
{
    *(char **)arg = xstrdup(json);
}

/* Waits for this one answer without the loop; other answers stay for their delivery. */
static char *read_now(struct store *s, enum request_kind kind)
{
    char *json = NULL;
    struct store_request *r = request_new(kind, 0, NULL, NULL);
    post_read(s, r, hand_over, &json);
    pthread_mutex_lock(&s->lock);
    struct store_request **at = &s->finished.first;
    while (*at != r) {
        if (*at) {
            at = &(*at)->next;
            continue;
        }
        pthread_cond_wait(&s->changed, &s->lock);
        at = &s->finished.first;
    }
    *at = r->next;
    if (!r->next)
        s->finished.last = at;
    pthread_mutex_unlock(&s->lock);
    r->done(r->arg, r->json);
    request_free(r);
    return json;
}

char *store_unfinished(struct store *s)
{
    return read_now(s, GET_UNFINISHED);
}

char *store_notes(struct store *s)
{
    return read_now(s, GET_NOTES);
}
