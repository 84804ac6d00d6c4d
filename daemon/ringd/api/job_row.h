/* SPDX-License-Identifier: MIT
 *
 * A job in one row, as its head sends it to the other nodes. Loop thread. */
#ifndef DAEMON_JOB_ROW_H
#define DAEMON_JOB_ROW_H

#include <jansson.h>
#include <stdbool.h>

enum { JOB_ROW_TEXT = 300 }; /* bytes of a text in a row, at most */

/* From what another node sent, or from a job's short form: the keys that a row has, with texts cut
 * to JOB_ROW_TEXT and fit for a terminal. NULL: it is no row. A new reference. */
json_t *job_row_read(const json_t *heard);
bool job_row_ended(const json_t *row);

#endif
