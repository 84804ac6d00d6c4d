/* SPDX-License-Identifier: MIT
 *
 * Owns the open database and its prepared statements. Called by store.c: at start and at the end,
 * and from its thread in between. */
#include "daemon/ringd/store/store_sql.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ringd/store/store.h"
#include "daemon/ringd/store/store_db.h"
#include "daemon/common/xalloc.h"

enum {
    EVENTS_KEPT = 200000,   /* history of all jobs together, about 40 MB */
    EVENTS_PER_TRIM = 1000, /* lines written between two trims */
    SHRINKS_MAX = 40,       /* a tenth each: what is left then cannot be given back */
};

enum statement {
    SQL_PUT_JOB,
    SQL_PUT_LIFE,
    SQL_END_LIFE,
    SQL_END_TEXT,
    SQL_PUT_EVENT,
    SQL_TRIM,
    SQL_JOBS,
    SQL_JOB,
    SQL_EVENTS,
    SQL_EVENTS_OF_KIND,
    SQL_UNFINISHED,
    SQL_LINES,
    SQL_PUT_NOTE,
    SQL_END_NOTE,
    SQL_NOTES,
    SQL_LEAVE_SAVES,
    SQL_MOVE_JOB,
    SQL_MOVE_LIFE,
    SQL_MOVE_EVENTS,
    SQL_DROP_JOB,
    SQL_DROP_EVENTS,
    SQL_PUT_POINTS,
    SQL_TRIM_POINTS,
    SQL_POINTS,
    SQL_SERIES,
    SQL_COUNT
};

static const char *const statement_text[SQL_COUNT] = {
    [SQL_PUT_JOB] = "INSERT OR REPLACE INTO jobs(id,state,json,updated) VALUES(?1,?2,?3,unixepoch())",
    [SQL_PUT_LIFE] = "INSERT OR REPLACE INTO lives(job,json) VALUES(?1,?2)",
    [SQL_END_LIFE] = "DELETE FROM lives WHERE job=?1",
    [SQL_END_TEXT] = "DELETE FROM events WHERE job=?1 AND kind IN ('prompt','tokens')",
    [SQL_PUT_EVENT] = "INSERT INTO events(job,kind,json) VALUES(?1,?2,?3)",
    [SQL_TRIM] = "DELETE FROM events WHERE id <= (SELECT max(id) FROM events) - ?1",
    [SQL_JOBS] = ("SELECT "
                  "json_remove(json,'$.spec','$.plan','$.memory','$.start','$.relayed','$.result','$.waits_"
                  "for','$.wanted_files') "
                  "FROM jobs WHERE state<>'kept' ORDER BY id DESC LIMIT ?1"),
    [SQL_JOB] = "SELECT json FROM jobs WHERE id=?1",
    [SQL_EVENTS] = "SELECT json FROM events WHERE job=?1 ORDER BY id",
    [SQL_EVENTS_OF_KIND] = ("SELECT json FROM events WHERE job=?1 AND kind=?2 AND (?3<=0 OR "
                            "json_extract(json,'$.step')>=?3) ORDER BY id"),
    [SQL_PUT_POINTS] = "INSERT INTO points(name,level,t,n,sum,least,most) "
                       "SELECT value->>0, ?2, (value->>1)/?3*?3, 1, value->>2, value->>2, value->>2 "
                       "FROM json_each(?1) WHERE true ON CONFLICT(name,level,t) DO UPDATE SET n=n+1, "
                       "sum=sum+excluded.sum, least=min(least,excluded.least), most=max(most,excluded.most)",
    [SQL_TRIM_POINTS] = "DELETE FROM points WHERE level=?1 AND t<unixepoch()-?2",
    [SQL_POINTS] = ("SELECT json_array(t,sum/n,least,most) FROM points WHERE name=?1 AND level=?2 AND t>=?3 "
                    "AND t<?4 ORDER BY t"), /* one text of two literals */
    [SQL_SERIES] = "SELECT json_quote(name) FROM points WHERE level=2 GROUP BY name ORDER BY name",
    [SQL_UNFINISHED] =
        ("SELECT json_object('record', json(j.json), 'life', json(coalesce(l.json,'null')), 'said', "
         "json((SELECT json_group_array(json_array(kind,adapter,step)) FROM (SELECT kind, "
         "coalesce(json_extract(json,'$.adapter'),'') AS adapter, max(json_extract(json,'$.step')) AS step "
         "FROM events WHERE job=j.id AND kind IN ('step','valid','sample','skipped') GROUP BY 1,2))), "
         "'last', "
         "json(coalesce((SELECT json FROM events WHERE job=j.id AND kind='step' ORDER BY id DESC LIMIT 1),"
         "'null')), 'saved', json(coalesce((SELECT json FROM events WHERE job=j.id AND kind='saved' ORDER BY "
         "id DESC LIMIT 1),'null')), 'logged', json(coalesce((SELECT json FROM events WHERE job=j.id AND "
         "kind='logged' ORDER BY id DESC LIMIT 1),'null')), 'tokens', coalesce((SELECT "
         "sum(json_extract(json,'$.tokens')) FROM "
         "events WHERE job=j.id AND kind='step'),0), 'texts', json((SELECT json_group_array(json(json)) FROM "
         "(SELECT json FROM "
         "events WHERE job=j.id AND kind IN ('prompt','tokens') ORDER BY id)))) FROM jobs j LEFT JOIN lives "
         "l ON l.job=j.id WHERE "
         "CASE WHEN ?1 THEN j.id=?1 ELSE j.state NOT IN ('done','failed','cancelled','kept') END ORDER BY "
         "j.id"),
    [SQL_LINES] =
        "SELECT json_array(id,kind,json(json)) FROM events WHERE job=?1 AND id>?2 ORDER BY id LIMIT ?3",
    [SQL_PUT_NOTE] = "INSERT OR REPLACE INTO notes(key,json) VALUES(?1,?2)",
    [SQL_END_NOTE] = "DELETE FROM notes WHERE key=?1",
    [SQL_NOTES] = "SELECT json_array(key,json(json)) FROM notes ORDER BY key",
    [SQL_LEAVE_SAVES] = "DELETE FROM events WHERE job=?1 AND kind IN ('saved','logged')",
    [SQL_MOVE_JOB] = "UPDATE jobs SET id=?2, json=json_set(json,'$.id',?2) WHERE id=?1",
    [SQL_MOVE_LIFE] = "UPDATE lives SET job=?2 WHERE job=?1",
    [SQL_MOVE_EVENTS] = "UPDATE events SET job=?2, json=json_set(json,'$.job',?2) WHERE job=?1",
    [SQL_DROP_JOB] = "DELETE FROM jobs WHERE id=?1",
    [SQL_DROP_EVENTS] = "DELETE FROM events WHERE job=?1",
};

/* How fine, and how long it is kept. */
static const struct level {
    int seconds, kept;
} levels[] = {{10, 86400}, {300, 14 * 86400}, {3600, 730 * 86400}};
enum { LEVELS = sizeof levels / sizeof *levels };

struct store_sql {
    sqlite3 *db;                         /* owned */
    sqlite3_stmt *statements[SQL_COUNT]; /* owned */
    char *full;                          /* owned: what to say when the disk has no room */
    size_t events_since_trim;
    _Atomic uint64_t limit; /* bytes the file may take, 0 = any number; set by another thread */
};

static int run_sql(struct store_sql *s, const char *sql)
{
    return sqlite3_exec(s->db, sql, NULL, NULL, NULL);
}

/* The rows' one column as a JSON array, or for `single` the first row as it is (NULL if there is
 * none). */
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

static int trim(struct store_sql *s)
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

static int put_points(struct store_sql *s, const struct store_request *r)
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

static int put_line(struct store_sql *s, const struct store_request *r)
{
    sqlite3_stmt *stmt = s->statements[r->kind == PUT_JOB ? SQL_PUT_JOB : SQL_PUT_EVENT];
    sqlite3_bind_int64(stmt, 1, (int64_t)r->job);
    sqlite3_bind_text(stmt, 2, r->word, -1, SQLITE_STATIC);
    sqlite3_bind_text(stmt, 3, r->json, -1, SQLITE_STATIC);
    s->events_since_trim += r->kind == PUT_EVENT;
    return step_once(stmt);
}

static int put_life(struct store_sql *s, const struct store_request *r)
{
    sqlite3_stmt *stmt = s->statements[r->life ? SQL_PUT_LIFE : SQL_END_LIFE];
    sqlite3_bind_int64(stmt, 1, (int64_t)r->job);
    if (r->life)
        sqlite3_bind_text(stmt, 2, r->life, -1, SQLITE_STATIC);
    const int rc = step_once(stmt);
    if (rc != SQLITE_OK || r->life)
        return rc;
    stmt = s->statements[SQL_END_TEXT];
    sqlite3_bind_int64(stmt, 1, (int64_t)r->job);
    return step_once(stmt);
}

static int put_note(struct store_sql *s, const struct store_request *r)
{
    sqlite3_stmt *stmt = s->statements[r->json ? SQL_PUT_NOTE : SQL_END_NOTE];
    sqlite3_bind_text(stmt, 1, r->word, -1, SQLITE_STATIC);
    if (r->json)
        sqlite3_bind_text(stmt, 2, r->json, -1, SQLITE_STATIC);
    return step_once(stmt);
}

/* Record, life and lines. */
static int change_job(struct store_sql *s, const struct store_request *r)
{
    static const enum statement moves[] = {SQL_LEAVE_SAVES, SQL_MOVE_JOB, SQL_MOVE_LIFE, SQL_MOVE_EVENTS},
                                drops[] = {SQL_DROP_JOB, SQL_END_LIFE, SQL_DROP_EVENTS};
    const bool is_move = r->kind == MOVE_JOB;
    const size_t n = is_move ? sizeof moves / sizeof *moves : sizeof drops / sizeof *drops;
    int rc = SQLITE_OK;
    for (size_t i = 0; i < n && rc == SQLITE_OK; i++) {
        sqlite3_stmt *stmt = s->statements[(is_move ? moves : drops)[i]];
        sqlite3_bind_int64(stmt, 1, (int64_t)r->job);
        if (is_move && moves[i] != SQL_LEAVE_SAVES)
            sqlite3_bind_int64(stmt, 2, r->to);
        rc = step_once(stmt);
    }
    return rc;
}

static int put(struct store_sql *s, const struct store_request *r)
{
    int rc = r->kind == PUT_POINTS                        ? put_points(s, r)
             : r->kind == PUT_NOTE                        ? put_note(s, r)
             : r->kind == MOVE_JOB || r->kind == DROP_JOB ? change_job(s, r)
                                                          : put_line(s, r);
    if (rc == SQLITE_OK && r->kind == PUT_JOB)
        rc = put_life(s, r);
    return rc == SQLITE_OK && s->events_since_trim >= EVENTS_PER_TRIM ? trim(s) : rc;
}

static int get(struct store_sql *s, struct store_request *r)
{
    static const enum statement statement_of[] = {
        [GET_JOBS] = SQL_JOBS,     [GET_JOB] = SQL_JOB,
        [GET_EVENTS] = SQL_EVENTS, [GET_UNFINISHED] = SQL_UNFINISHED,
        [GET_POINTS] = SQL_POINTS, [GET_SERIES] = SQL_SERIES,
        [GET_LINES] = SQL_LINES,   [GET_NOTES] = SQL_NOTES};
    enum statement which = statement_of[r->kind];
    if (r->kind == GET_EVENTS && r->word)
        which = SQL_EVENTS_OF_KIND;
    sqlite3_stmt *stmt = s->statements[which];
    if (r->kind == GET_JOBS)
        sqlite3_bind_int64(stmt, 1, r->job ? (int64_t)r->job : -1);
    else if (r->kind == GET_JOB || r->kind == GET_EVENTS || r->kind == GET_UNFINISHED || r->kind == GET_LINES)
        sqlite3_bind_int64(stmt, 1, (int64_t)r->job);
    if (r->kind == GET_LINES) {
        sqlite3_bind_int64(stmt, 2, r->from);
        sqlite3_bind_int(stmt, 3, STORE_LINES);
    }
    if (r->kind == GET_POINTS) {
        sqlite3_bind_text(stmt, 1, r->word, -1, SQLITE_STATIC);
        sqlite3_bind_int(stmt, 2, r->level);
        sqlite3_bind_int64(stmt, 3, r->from);
        sqlite3_bind_int64(stmt, 4, r->to);
    }
    if (which == SQL_EVENTS_OF_KIND) {
        sqlite3_bind_text(stmt, 2, r->word, -1, SQLITE_STATIC);
        sqlite3_bind_int64(stmt, 3, r->from);
    }
    int rc = collect(stmt, r->kind == GET_JOB, &r->json);
    sqlite3_reset(stmt);
    sqlite3_clear_bindings(stmt);
    if (rc != SQLITE_OK && r->kind != GET_JOB)
        r->json = xstrdup("[]");
    return rc;
}

/* --- a batch --- */

bool request_is_put(const struct store_request *r)
{
    return r->kind == PUT_JOB || r->kind == PUT_EVENT || r->kind == PUT_POINTS || r->kind == PUT_NOTE ||
           r->kind == MOVE_JOB || r->kind == DROP_JOB;
}

/* The row itself is at fault: the disk would refuse it for ever, and those behind it with it. */
static bool is_of_the_row(int rc)
{
    int primary = rc & 0xff;
    return primary == SQLITE_ERROR || primary == SQLITE_TOOBIG || primary == SQLITE_CONSTRAINT ||
           primary == SQLITE_MISMATCH;
}

static const char *trouble_of(const struct store_sql *s, int rc)
{
    if (rc == SQLITE_OK)
        return NULL;
    bool is_full = (rc & 0xff) == SQLITE_FULL || rc == SQLITE_IOERR_SHMSIZE;
    return is_full ? s->full : sqlite3_errstr(rc);
}

bool store_sql_run(struct store_sql *s, struct store_request *first, const char **ret_trouble,
                   bool *ret_wrote)
{
    bool writing = false;
    int rc = SQLITE_OK, skipped = SQLITE_OK;
    for (struct store_request *r = first; r; r = r->next) {
        if (r->kind == SYNC)
            continue;
        if (!request_is_put(r)) {
            int read_rc = get(s, r);
            rc = rc ? rc : read_rc;
        } else if (rc == SQLITE_OK) {
            if (!writing)
                rc = run_sql(s, "BEGIN IMMEDIATE");
            writing = writing || rc == SQLITE_OK;
            rc = rc ? rc : put(s, r);
            if (writing && is_of_the_row(rc)) {
                skipped = rc;
                rc = SQLITE_OK;
            }
        }
    }
    if (writing && rc == SQLITE_OK)
        rc = run_sql(s, "COMMIT");
    if (rc != SQLITE_OK && !sqlite3_get_autocommit(s->db))
        run_sql(s, "ROLLBACK");
    *ret_trouble = trouble_of(s, rc ? rc : skipped);
    *ret_wrote = writing;
    return rc == SQLITE_OK;
}

/* --- opening --- */

static int prepare_all(struct store_sql *s)
{
    int rc = SQLITE_OK;
    for (size_t i = 0; i < SQL_COUNT && rc == SQLITE_OK; i++)
        rc = sqlite3_prepare_v3(s->db, statement_text[i], -1, SQLITE_PREPARE_PERSISTENT, &s->statements[i],
                                NULL);
    return rc;
}

int store_sql_open(struct store_sql **ret, const char *path, char ret_note[256], struct err *err)
{
    struct store_sql *s = xcalloc(1, sizeof *s);
    s->full = xasprintf("the disk of %s is full: make room, at most %d MiB of history wait in memory", path,
                        STORE_WAITING_MIB);
    int r = store_db_open(&s->db, path, ret_note, err);
    if (!r && prepare_all(s) != SQLITE_OK)
        r = err_set(err, -EIO, "%s: %s", path, sqlite3_errmsg(s->db));
    if (r)
        store_sql_close(s);
    else
        *ret = s;
    return r;
}

void store_sql_close(struct store_sql *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < SQL_COUNT; i++)
        sqlite3_finalize(s->statements[i]);
    sqlite3_close(s->db);
    free(s->full);
    free(s);
}

uint64_t store_sql_last_job(struct store_sql *s)
{
    return store_db_last_job(s->db, STORE_FIRST_DOSSIER);
}

void store_sql_set_limit(struct store_sql *s, uint64_t bytes)
{
    atomic_store(&s->limit, bytes);
}

unsigned store_sql_level(int64_t from, int64_t now, int *ret_level)
{
    int level = 0;
    while (level + 1 < LEVELS && from < now - levels[level].kept)
        level++;
    *ret_level = level;
    return (unsigned)levels[level].seconds;
}
