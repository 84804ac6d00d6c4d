/* SPDX-License-Identifier: MIT
 *
 * Writes results and states to the disk on a thread of its own, while the steps go on. The main
 * thread of rank 0 gathers the values and hands over copies; at most one save is being written and
 * one waits. A newer save takes the place of one that waits, unless that one must be kept. Values
 * that wait have a cap in bytes; whoever hands over more waits until the disk has taken some. */
#ifndef DAEMON_STAGE_SAVER_H
#define DAEMON_STAGE_SAVER_H

#include "daemon/common/job_plan.h"
#include "engine/model/adapter.h"

struct saver;

struct saver_setup {
    size_t most_bytes; /* of values that are handed over and not written yet: saver_bytes */
    /* On the saver's thread, as the next two: before a save is written; mark: of saver_begin. An
     * error is one of the save. */
    int (*begins)(void *owner, uint64_t step, uint64_t mark, struct err *err);
    /* A save is on the disk; or it failed, and `why` is a sentence. */
    void (*saved)(void *owner, uint64_t step);
    void (*failed)(void *owner, uint64_t step, const char *why);
    void *owner;
};

/* What rank 0 sets aside for values that wait for the disk: two states of all adapters, or a fixed
 * cap where these are larger. */
size_t saver_bytes(const struct job_plan *plan, const struct config *config);

/* Starts the thread. From here on SIGTERM ends the process after a complete save is written. */
int saver_new(struct saver **ret, const struct saver_setup *setup, struct err *err);
/* What is not written yet is given up. False: the thread hangs in the disk and is left behind, with
 * what it works on; the process has to end. */
bool saver_free(struct saver *s);

/* One save: begin, for each adapter part and its pieces, then end; or drop at any point after
 * begin. must_keep: no newer save takes its place; then a newer one waits here. −ETIMEDOUT: the
 * disk took nothing for too long. */
int saver_begin(struct saver *s, uint64_t step, uint64_t mark, bool must_keep, struct err *err);
/* The values that follow go to out->dir. `best`: a second folder for the same values, written
 * first; `spare`: what to try where there is no room in that. Both are copied, or NULL.
 * out->record is borrowed until this returns. */
int saver_part(struct saver *s, const struct adapter_out_request *out, const char *best, const char *spare,
               struct err *err);
/* values: piece->n, copied. */
int saver_piece(struct saver *s, const struct param_piece *piece, const float *values, struct err *err);
void saver_end(struct saver *s);
void saver_drop(struct saver *s);

/* Waits until all saves are written: 0, the error of the last one, or −ETIMEDOUT after `seconds`.
 */
int saver_wait(struct saver *s, unsigned seconds, struct err *err);

#endif
