/* SPDX-License-Identifier: MIT
 *
 * The database file itself: its layout, and what to do with one that is damaged or from another
 * version. */
#ifndef DAEMON_STORE_DB_H
#define DAEMON_STORE_DB_H

#include <stdint.h>

#include "engine/err.h"

struct sqlite3;

/* Checked, in WAL mode, with this version's tables. ret_note: "" or what had to be set aside. */
int store_db_open(struct sqlite3 **ret, const char *path, char ret_note[256], struct err *err);
/* The highest job number below that in records or history, 0 = none. */
uint64_t store_db_last_job(struct sqlite3 *db, uint64_t below);

/* Bytes of the file in use, and a tenth of the history (the oldest lines and points) given back for
 * what comes. */
uint64_t store_db_used(struct sqlite3 *db);
int store_db_shrink(struct sqlite3 *db); /* SQLite's code */

#endif
