/* SPDX-License-Identifier: MIT
 *
 * Owns ringd.db and the thread that writes it. The loop thread posts requests into a queue under one mutex;
 * the store thread takes all there are, runs them in order inside one transaction (one fsync for many lines),
 * and hands answers back through the mailbox. What SQLite refuses is kept if it is a job's record and dropped
 * if it is a line of history. */
#include "daemon/store.h"

#include <errno.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/mailbox.h"
#include "daemon/store_db.h"
#include "daemon/xalloc.h"

enum {
    EVENTS_KEPT = 200000,   /* history of all jobs together, about 40 MB */
    EVENTS_PER_TRIM = 1000, /* lines written between two trims */
    BATCH_MAX = 512,        /* requests per transaction, so that an answer does not wait for a long queue */
    SHRINKS_MAX = 40,       /* a tenth each: what is left then cannot be given back */
    RETRY_SECONDS = 10,     /* between attempts while the disk refuses */
};

enum request_kind {
    PUT_JOB,
    PUT_EVENT,
    GET_JOBS,
    GET_JOB,
    GET_EVENTS,
    GET_UNFINISHED,
    PUT_POINTS,
    GET_POINTS,
    GET_SERIES
};

struct request {
    struct request *next;
    enum request_kind kind;
    uint64_t job; /* or the limit, for GET_JOBS */
    char *word;   /* owned: state of PUT_JOB, kind of the events; may be NULL */
    char *json;   /* owned: the record; of a read: the answer, NULL = no such record */
    void (*done)(void *arg, const char *json);
    void *arg; /* borrowed */
    int level; /* GET_POINTS, as the next */
    int64_t from, to;
};

struct queue {
    struct request *first, **last; /* owned */
};

enum statement {
    SQL_PUT_JOB,
    SQL_PUT_EVENT,
    SQL_TRIM,
    SQL_JOBS,
    SQL_JOB,
    SQL_EVENTS,
    SQL_EVENTS_OF_KIND,
    SQL_UNFINISHED,
    SQL_PUT_POINTS,
    SQL_TRIM_POINTS,
    SQL_POINTS,
    SQL_SERIES,
    SQL_COUNT
};

static const char *const statement_text[SQL_COUNT] = {
    [SQL_PUT_JOB] = "INSERT OR REPLACE INTO jobs(id,state,json,updated) VALUES(?1,?2,?3,unixepoch())",
    [SQL_PUT_EVENT] = "INSERT INTO events(job,kind,json) VALUES(?1,?2,?3)",
    [SQL_TRIM] = "DELETE FROM events WHERE id <= (SELECT max(id) FROM events) - ?1",
    [SQL_JOBS] = "SELECT json FROM jobs ORDER BY id DESC LIMIT ?1",
    [SQL_JOB] = "SELECT json FROM jobs WHERE id=?1",
    [SQL_EVENTS] = "SELECT json FROM events WHERE job=?1 ORDER BY id",
    [SQL_EVENTS_OF_KIND] = "SELECT json FROM events WHERE job=?1 AND kind=?2 ORDER BY id",
    [SQL_PUT_POINTS] = "INSERT INTO points(name,level,t,n,sum,least,most) "
                       "SELECT value->>0, ?2, (value->>1)/?3*?3, 1, value->>2, value->>2, value->>2 "
                       "FROM json_each(?1) WHERE true ON CONFLICT(name,level,t) DO UPDATE SET n=n+1, "
                       "sum=sum+excluded.sum, least=min(least,excluded.least), most=max(most,excluded.most)",
    [SQL_TRIM_POINTS] = "DELETE FROM points WHERE level=?1 AND t<unixepoch()-?2",
    [SQL_POINTS] = ("SELECT json_array(t,sum/n,least,most) FROM points WHERE name=?1 AND level=?2 AND t>=?3 "
                    "AND t<?4 ORDER BY t"), /* one text of two literals */
    [SQL_SERIES] = "SELECT json_quote(name) FROM points WHERE level=2 GROUP BY name ORDER BY name",
    [SQL_UNFINISHED] = "SELECT json FROM jobs WHERE state IN ('queued','planned','running') ORDER BY id",
};

/* How fine, and how long it is kept. */
static const struct level {
    int seconds, kept;
} levels[] = {{10, 86400}, {300, 14 * 86400}, {3600, 730 * 86400}};
enum { LEVELS = sizeof levels / sizeof *levels };

struct store {
    struct mailbox *mailbox;             /* borrowed */
    sqlite3 *db;                         /* owned; the store thread's from store_open on */
    sqlite3_stmt *statements[SQL_COUNT]; /* owned, store thread */
    size_t events_since_trim;            /* store thread */
    _Atomic uint64_t limit;              /* bytes the file may take, 0 = any number */
    uint64_t next_job;                   /* loop thread */
    _Atomic(const char *) trouble;       /* a text of SQLite's that lives for ever, or NULL */

    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* todo, finished or closing; under lock, monotonic clock */
    struct queue todo;      /* loop → store thread, under lock */
    struct queue finished;  /* store thread → loop, under lock */
    struct queue refused;   /* records the disk would not take, store thread */
    bool closing;           /* under lock */
};

/* --- queues --- */

static void queue_init(struct queue *q)
{
    q->first = NULL;
    q->last = &q->first;
}

static void queue_push(struct queue *q, struct request *r)
{
    r->next = NULL;
    *q->last = r;
    q->last = &r->next;
}

static struct request *queue_pop(struct queue *q)
{
    struct request *r = q->first;
    if (r && !(q->first = r->next))
        q->last = &q->first;
    return r;
}

static void queue_move(struct queue *from, struct queue *to, size_t most)
{
    for (struct request *r; most-- > 0 && (r = queue_pop(from));)
        queue_push(to, r);
}

static void request_free(struct request *r)
{
    free(r->word);
    free(r->json);
    free(r);
}

static void queue_done(struct queue *q)
{
    for (struct request *r; (r = queue_pop(q));)
        request_free(r);
}

/* --- SQLite --- */

static int run_sql(struct store *s, const char *sql)
{
    return sqlite3_exec(s->db, sql, NULL, NULL, NULL);
}

/* The rows' one column as a JSON array, or for `single` the first row as it is (NULL if there is none). */
static int collect(sqlite3_stmt *stmt, bool single, char **ret)
{
    size_t n = 0, room = 256;
    char *text = xmalloc(room);
    int rc;
    text[n++] = '[';
    while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
        const char *row = (const char *)sqlite3_column_text(stmt, 0);
        size_t len = (size_t)sqlite3_column_bytes(stmt, 0);
        if (single) {
            free(text);
            *ret = xstrndup(row ? row : "", len);
            return SQLITE_OK;
        }
        if (n + len + 3 > room)
            text = xrealloc(text, room = (n + len + 3) * 2);
        if (n > 1)
            text[n++] = ',';
        memcpy(text + n, row ? row : "", len);
        n += len;
    }
    if (rc != SQLITE_DONE || single) {
        free(text);
        return rc == SQLITE_DONE ? SQLITE_OK : rc;
    }
    text[n++] = ']';
    text[n] = '\0';
    *ret = text;
    return SQLITE_OK;
}

static int step_once(sqlite3_stmt *stmt)
{
    int rc = sqlite3_step(stmt);
    sqlite3_reset(stmt);
    sqlite3_clear_bindings(stmt);
    return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

static int trim(struct store *s)
{
    sqlite3_stmt *stmt = s->statements[SQL_TRIM];
    sqlite3_bind_int64(stmt, 1, EVENTS_KEPT);
    int rc = step_once(stmt);
    for (int i = 0; i < LEVELS && rc == SQLITE_OK; i++) {
        stmt = s->statements[SQL_TRIM_POINTS];
        sqlite3_bind_int(stmt, 1, i);
        sqlite3_bind_int64(stmt, 2, levels[i].kept);
        rc = step_once(stmt);
    }
    uint64_t limit = atomic_load(&s->limit);
    bool over = limit && store_db_used(s->db) > limit;
    for (int i = 0; over && rc == SQLITE_OK && i < SHRINKS_MAX && store_db_used(s->db) > limit - limit / 10;
         i++)
        rc = store_db_shrink(s->db);
    s->events_since_trim = 0;
    return rc;
}

static int put_points(struct store *s, const struct request *r)
{
    int rc = SQLITE_OK;
    for (int i = 0; i < LEVELS && rc == SQLITE_OK; i++) {
        sqlite3_stmt *stmt = s->statements[SQL_PUT_POINTS];
        sqlite3_bind_text(stmt, 1, r->json, -1, SQLITE_STATIC);
        sqlite3_bind_int(stmt, 2, i);
        sqlite3_bind_int(stmt, 3, levels[i].seconds);
        rc = step_once(stmt);
    }
    s->events_since_trim += EVENTS_PER_TRIM / 60; /* an hour of them is worth a look */
    return rc;
}

static int put_line(struct store *s, const struct request *r)
{
    sqlite3_stmt *stmt = s->statements[r->kind == PUT_JOB ? SQL_PUT_JOB : SQL_PUT_EVENT];
    sqlite3_bind_int64(stmt, 1, (int64_t)r->job);
    sqlite3_bind_text(stmt, 2, r->word, -1, SQLITE_STATIC);
    sqlite3_bind_text(stmt, 3, r->json, -1, SQLITE_STATIC);
    s->events_since_trim += r->kind == PUT_EVENT;
    return step_once(stmt);
}

static int put(struct store *s, const struct request *r)
{
    int rc = r->kind == PUT_POINTS ? put_points(s, r) : put_line(s, r);
    return rc == SQLITE_OK && s->events_since_trim >= EVENTS_PER_TRIM ? trim(s) : rc;
}

static int get(struct store *s, struct request *r)
{
    static const enum statement statement_of[] = {
        [GET_JOBS] = SQL_JOBS,     [GET_JOB] = SQL_JOB,
        [GET_EVENTS] = SQL_EVENTS, [GET_UNFINISHED] = SQL_UNFINISHED,
        [GET_POINTS] = SQL_POINTS, [GET_SERIES] = SQL_SERIES};
    enum statement which = statement_of[r->kind];
    if (r->kind == GET_EVENTS && r->word)
        which = SQL_EVENTS_OF_KIND;
    sqlite3_stmt *stmt = s->statements[which];
    if (r->kind == GET_JOBS)
        sqlite3_bind_int64(stmt, 1, r->job ? (int64_t)r->job : -1);
    else if (r->kind == GET_JOB || r->kind == GET_EVENTS)
        sqlite3_bind_int64(stmt, 1, (int64_t)r->job);
    if (r->kind == GET_POINTS) {
        sqlite3_bind_text(stmt, 1, r->word, -1, SQLITE_STATIC);
        sqlite3_bind_int(stmt, 2, r->level);
        sqlite3_bind_int64(stmt, 3, r->from);
        sqlite3_bind_int64(stmt, 4, r->to);
    }
    if (which == SQL_EVENTS_OF_KIND)
        sqlite3_bind_text(stmt, 2, r->word, -1, SQLITE_STATIC);
    int rc = collect(stmt, r->kind == GET_JOB, &r->json);
    sqlite3_reset(stmt);
    sqlite3_clear_bindings(stmt);
    if (rc != SQLITE_OK && r->kind != GET_JOB)
        r->json = xstrdup("[]");
    return rc;
}

static void set_trouble(struct store *s, int rc)
{
    atomic_store(&s->trouble, rc == SQLITE_OK ? NULL : sqlite3_errstr(rc));
}

/* --- the store thread --- */

static bool is_put(const struct request *r)
{
    return r->kind == PUT_JOB || r->kind == PUT_EVENT || r->kind == PUT_POINTS;
}

/* All writes of the batch or none; each read sees the writes before it. */
static int run_batch(struct store *s, struct queue *batch)
{
    bool writing = false;
    int rc = SQLITE_OK;
    for (struct request *r = batch->first; r; r = r->next) {
        if (!is_put(r)) {
            int read_rc = get(s, r);
            rc = rc ? rc : read_rc;
        } else if (rc == SQLITE_OK) {
            if (!writing)
                rc = run_sql(s, "BEGIN IMMEDIATE");
            writing = writing || rc == SQLITE_OK;
            rc = rc ? rc : put(s, r);
        }
    }
    if (writing && rc == SQLITE_OK)
        rc = run_sql(s, "COMMIT");
    if (rc != SQLITE_OK && !sqlite3_get_autocommit(s->db))
        run_sql(s, "ROLLBACK");
    /* Reading well says nothing about writing. */
    if (rc != SQLITE_OK || writing)
        set_trouble(s, rc);
    return rc;
}

/* A newer record of the same job makes the older one worthless. */
static bool has_newer(const struct request *r)
{
    for (const struct request *later = r->next; later; later = later->next) {
        if (later->kind == PUT_JOB && later->job == r->job)
            return true;
    }
    return false;
}

/* Loop thread, by mail. */
static void deliver(void *arg)
{
    struct store *s = arg;
    struct request *r;
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

static void settle_batch(struct store *s, struct queue *batch, int rc)
{
    bool answers = false;
    pthread_mutex_lock(&s->lock);
    for (struct request *r = batch->first, *next; r; r = next) {
        next = r->next;
        if (!is_put(r)) {
            queue_push(&s->finished, r);
            answers = true;
        } else if (rc != SQLITE_OK && r->kind == PUT_JOB && !has_newer(r)) {
            queue_push(&s->refused, r);
        } else {
            request_free(r);
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
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += RETRY_SECONDS;
    while (!s->todo.first && !s->closing) {
        if (!s->refused.first)
            pthread_cond_wait(&s->changed, &s->lock);
        else if (pthread_cond_timedwait(&s->changed, &s->lock, &until) == ETIMEDOUT)
            return;
    }
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
        int rc = run_batch(s, &batch);
        settle_batch(s, &batch, rc);
        pthread_mutex_lock(&s->lock);
        if (last_try)
            break;
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* --- opening --- */

static int prepare_all(struct store *s)
{
    int rc = SQLITE_OK;
    for (size_t i = 0; i < SQL_COUNT && rc == SQLITE_OK; i++)
        rc = sqlite3_prepare_v3(s->db, statement_text[i], -1, SQLITE_PREPARE_PERSISTENT, &s->statements[i],
                                NULL);
    return rc;
}

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

int store_open(struct store **ret, const char *dir, struct mailbox *mailbox, char ret_note[256],
               struct err *err)
{
    struct store *s = xcalloc(1, sizeof *s);
    char *path = xasprintf("%s/ringd.db", dir);
    char note[256] = "";
    s->mailbox = mailbox;
    init_sync(s);
    int rc = store_db_open(&s->db, path, note, err);
    if (!rc && prepare_all(s) != SQLITE_OK)
        rc = err_set(err, -EIO, "%s: %s", path, sqlite3_errmsg(s->db));
    if (!rc) {
        s->next_job = 1 + store_db_last_job(s->db);
        int failed = pthread_create(&s->thread, NULL, store_thread, s);
        s->has_thread = !failed;
        rc = failed ? err_set(err, -failed, "the store's thread cannot be started: %s", strerror(failed)) : 0;
    }
    free(path);
    if (rc) {
        store_close(s);
        return rc;
    }
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
    }
    queue_done(&s->todo);
    queue_done(&s->refused);
    for (size_t i = 0; i < SQL_COUNT; i++)
        sqlite3_finalize(s->statements[i]);
    sqlite3_close(s->db);
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

static struct request *request_new(enum request_kind kind, uint64_t job, const char *word, const char *json)
{
    struct request *r = xcalloc(1, sizeof *r);
    r->kind = kind;
    r->job = job;
    r->word = xstrdup(word);
    r->json = xstrdup(json);
    return r;
}

static void post(struct store *s, struct request *r)
{
    pthread_mutex_lock(&s->lock);
    queue_push(&s->todo, r);
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

static void post_read(struct store *s, struct request *r, void (*done)(void *arg, const char *json),
                      void *arg)
{
    r->done = done;
    r->arg = arg;
    post(s, r);
}

void store_put_job(struct store *s, uint64_t job, const char *state, const char *json)
{
    post(s, request_new(PUT_JOB, job, state, json));
}

void store_put_event(struct store *s, uint64_t job, const char *kind, const char *json)
{
    post(s, request_new(PUT_EVENT, job, kind, json));
}

void store_get_jobs(struct store *s, size_t limit, void (*done)(void *arg, const char *json), void *arg)
{
    post_read(s, request_new(GET_JOBS, limit, NULL, NULL), done, arg);
}

void store_get_job(struct store *s, uint64_t job, void (*done)(void *arg, const char *json), void *arg)
{
    post_read(s, request_new(GET_JOB, job, NULL, NULL), done, arg);
}

void store_get_events(struct store *s, uint64_t job, const char *kind,
                      void (*done)(void *arg, const char *json), void *arg)
{
    post_read(s, request_new(GET_EVENTS, job, kind, NULL), done, arg);
}

void store_put_points(struct store *s, const char *rows)
{
    post(s, request_new(PUT_POINTS, 0, NULL, rows));
}

unsigned store_get_points(struct store *s, const char *series, int64_t from, int64_t to, int64_t now,
                          void (*done)(void *arg, const char *json), void *arg)
{
    struct request *r = request_new(GET_POINTS, 0, series, NULL);
    r->from = from;
    r->to = to;
    while (r->level + 1 < LEVELS && from < now - levels[r->level].kept)
        r->level++;
    unsigned seconds = (unsigned)levels[r->level].seconds;
    post_read(s, r, done, arg);
    return seconds;
}

void store_get_series(struct store *s, void (*done)(void *arg, const char *json), void *arg)
{
    post_read(s, request_new(GET_SERIES, 0, NULL, NULL), done, arg);
}

void store_set_limit(struct store *s, uint64_t bytes)
{
    atomic_store(&s->limit, bytes);
}

static void hand_over(void *arg, const char *json)
{
    *(char **)arg = xstrdup(json);
}

char *store_unfinished(struct store *s)
{
    char *json = NULL;
    struct request *r = request_new(GET_UNFINISHED, 0, NULL, NULL);
    post_read(s, r, hand_over, &json);
    /* Waits for this one answer without the loop; other answers stay for their delivery. */
    pthread_mutex_lock(&s->lock);
    struct request **at = &s->finished.first;
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
