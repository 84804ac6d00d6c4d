/* SPDX-License-Identifier: MIT
 *
 * Owns nothing: opens the file and hands it over. Called by store.c at start, on the loop
 * thread. */
#include "daemon/ringd/store/store_db.h"

#include <errno.h>
#include <inttypes.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/common/xalloc.h"

enum {
    SCHEMA_VERSION = 4, /* 2: points; 3: lives; 4: notes */
    BUSY_MS = 5000,     /* somebody else has the file open, such as a backup */
    CACHE_KIB = 128,    /* lines are written once and seldom read */
};

static int64_t ask_number(sqlite3 *db, const char *sql, int64_t otherwise)
{
    sqlite3_stmt *stmt = NULL;
    int64_t v = otherwise;
    if (sqlite3_prepare_v2(db, sql, -1, &stmt, NULL) == SQLITE_OK && sqlite3_step(stmt) == SQLITE_ROW)
        v = sqlite3_column_int64(stmt, 0);
    sqlite3_finalize(stmt);
    return v;
}

static int set_up_schema(sqlite3 *db)
{
    char sql[1400];
    snprintf(
        sql, sizeof sql,
        "BEGIN;"
        "CREATE TABLE IF NOT EXISTS jobs(id INTEGER PRIMARY KEY, state TEXT NOT NULL, json TEXT NOT NULL, "
        "updated INTEGER NOT NULL);"
        "CREATE INDEX IF NOT EXISTS jobs_by_state ON jobs(state);"
        "CREATE TABLE IF NOT EXISTS lives(job INTEGER PRIMARY KEY, json TEXT NOT NULL);"
        "CREATE TABLE IF NOT EXISTS notes(key TEXT PRIMARY KEY, json TEXT NOT NULL) WITHOUT ROWID;"
        "CREATE TABLE IF NOT EXISTS events(id INTEGER PRIMARY KEY AUTOINCREMENT, job INTEGER NOT NULL, "
        "kind TEXT NOT NULL, json TEXT NOT NULL);"
        "CREATE INDEX IF NOT EXISTS events_by_job ON events(job, id);"
        "CREATE TABLE IF NOT EXISTS points(name TEXT NOT NULL, level INTEGER NOT NULL, t INTEGER NOT NULL, "
        "n INTEGER NOT NULL, sum REAL NOT NULL, least REAL NOT NULL, most REAL NOT NULL, "
        "PRIMARY KEY(name, level, t)) WITHOUT ROWID;"
        "PRAGMA user_version=%d;"
        "COMMIT;",
        SCHEMA_VERSION);
    return sqlite3_exec(db, sql, NULL, NULL, NULL);
}

static bool passes_quick_check(sqlite3 *db)
{
    sqlite3_stmt *stmt = NULL;
    bool ok = sqlite3_prepare_v2(db, "PRAGMA quick_check(1)", -1, &stmt, NULL) == SQLITE_OK &&
              sqlite3_step(stmt) == SQLITE_ROW && !strcmp((const char *)sqlite3_column_text(stmt, 0), "ok");
    sqlite3_finalize(stmt);
    return ok;
}

static bool is_damage(int rc)
{
    int primary = rc & 0xff;
    return primary == SQLITE_NOTADB || primary == SQLITE_CORRUPT;
}

static int open_db(sqlite3 **ret, const char *path, bool *ret_damaged, struct err *err)
{
    sqlite3 *db = NULL;
    int rc =
        sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL);
    int64_t version = 0;
    *ret_damaged = false;
    if (rc == SQLITE_OK) {
        sqlite3_busy_timeout(db, BUSY_MS);
        /* Nobody else opens the file. Else SQLite would map its index of the log: a page of it
         * that waits for a disk that hangs holds up every fork of this process, and so the loop. */
        char pragmas[128];
        snprintf(pragmas, sizeof pragmas,
                 "PRAGMA locking_mode=EXCLUSIVE; PRAGMA cache_size=-%d; PRAGMA journal_mode=WAL; "
                 "PRAGMA synchronous=FULL;",
                 CACHE_KIB);
        rc = sqlite3_exec(db, pragmas, NULL, NULL, NULL);
    }
    if (rc == SQLITE_OK && !passes_quick_check(db))
        rc = is_damage(sqlite3_errcode(db)) || sqlite3_errcode(db) == SQLITE_ROW ||
                     sqlite3_errcode(db) == SQLITE_OK
                 ? SQLITE_CORRUPT
                 : sqlite3_errcode(db);
    if (rc == SQLITE_OK) {
        version = ask_number(db, "PRAGMA user_version", 0);
        if (version <= SCHEMA_VERSION)
            rc = set_up_schema(db);
    }
    if (rc == SQLITE_OK && version <= SCHEMA_VERSION) {
        *ret = db;
        return 0;
    }
    *ret_damaged = is_damage(rc);
    if (version > SCHEMA_VERSION)
        err_set(err, -EPROTO,
                "%s was written by a newer ringd (layout %" PRId64
                ", this one knows %d): use that ringd, or move "
                "the file away to begin a new history",
                path, version, SCHEMA_VERSION);
    else
        err_set(err, -EIO, "%s: %s: is there space, and may ringd write there?", path, sqlite3_errstr(rc));
    sqlite3_close(db);
    return version > SCHEMA_VERSION ? -EPROTO : -EIO;
}

static int set_aside(const char *path, char ret_note[256], struct err *err)
{
    char *aside = xasprintf("%s.damaged-%lld", path, (long long)time(NULL));
    static const char *const companions[] = {"", "-wal", "-shm"};
    int rc = 0;
    for (size_t i = 0; i < 3 && !rc; i++) {
        char *from = xasprintf("%s%s", path, companions[i]), *to = xasprintf("%s%s", aside, companions[i]);
        if (rename(from, to) && errno != ENOENT)
            rc = err_set(err, -errno, "%s is damaged and cannot be moved aside: %s", from, strerror(errno));
        free(from);
        free(to);
    }
    snprintf(ret_note, 256, "the job history was damaged: it is kept as %s, and a new one begun", aside);
    free(aside);
    return rc;
}

int store_db_open(sqlite3 **ret, const char *path, char ret_note[256], struct err *err)
{
    bool damaged;
    ret_note[0] = '\0';
    int rc = open_db(ret, path, &damaged, err);
    if (!rc || !damaged)
        return rc;
    rc = set_aside(path, ret_note, err);
    return rc ? rc : open_db(ret, path, &damaged, err);
}

uint64_t store_db_last_job(sqlite3 *db, uint64_t below)
{
    /* A number is used up by its history too, should the record itself never have reached the
     * disk. */
    char sql[200];
    snprintf(
        sql, sizeof sql,
        "SELECT max(coalesce((SELECT max(id) FROM jobs WHERE id<%lld),0), coalesce((SELECT max(job) FROM "
        "events WHERE job<%lld),0))",
        (long long)below, (long long)below);
    return (uint64_t)ask_number(db, sql, 0);
}

uint64_t store_db_used(sqlite3 *db)
{
    int64_t pages = ask_number(db, "PRAGMA page_count", 0) - ask_number(db, "PRAGMA freelist_count", 0);
    return (uint64_t)(pages * ask_number(db, "PRAGMA page_size", 0));
}

int store_db_shrink(sqlite3 *db)
{
    return sqlite3_exec(
        db,
        "DELETE FROM events WHERE id < (SELECT min(id) + (max(id) - min(id) + 9) / 10 FROM events);"
        "DELETE FROM points WHERE level = 0 AND t < (SELECT min(t) + (max(t) - min(t) + 9) / 10 FROM points "
        "WHERE level = 0);"
        "DELETE FROM points WHERE level = 1 AND t < (SELECT min(t) + (max(t) - min(t) + 9) / 10 FROM points "
        "WHERE level = 1);"
        "DELETE FROM jobs WHERE state IN ('done','failed','cancelled') AND id < (SELECT max(id) FROM jobs "
        "WHERE "
        "state<>'kept') - 10000",
        NULL, NULL, NULL);
}
