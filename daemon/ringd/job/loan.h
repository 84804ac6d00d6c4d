/* SPDX-License-Identifier: MIT
 *
 * Files that a client opened for its job, because it may read what the daemon's user may not: paths
 * and descriptors, passed on to the stages of that job on this node and to no other. The daemon
 * itself reads nothing of them. A loan never changes, and is held by as many as need it; when the
 * last one lets go, a thread closes the descriptors, for a file system may make that wait.
 *
 * All loans are in one book: the queue "loans" of the ledger has LOAN_BYTES for them and each
 * descriptor counts; what is new and does not fit is refused. Any thread, but for the book's
 * opening and closing. */
#ifndef DAEMON_LOAN_H
#define DAEMON_LOAN_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "daemon/common/ipc.h"
#include "engine/err.h"

struct ledger;
struct loan;
struct loan_book;

enum {
    LOAN_FILES_MAX = IPC_FDS_MAX, /* what the kernel passes in one message */
    LOAN_FOLDERS_MAX = 16,
    LOAN_TEXT_MAX = 1 << 20, /* bytes of the JSON that names them */
    LOAN_FD_BYTES = 4096,    /* what a descriptor counts: an open file keeps its inode and path */
    LOAN_BYTES = 16 << 20,   /* of all loans */
};

/* state_dir: nothing of what is the daemon's own there is taken; copied. ledger may be NULL. */
struct loan_book *loan_book_new(struct ledger *ledger, const char *state_dir);
void loan_book_free(struct loan_book *book); /* loans that are left go by themselves */

/* about: {"files": [path, …], "folders": [path, …]}, borrowed: absolute paths, one for each of the
 * n descriptors, which are taken in any case; a folder holds those of the files that lie right in
 * it. Each must be of a regular file and open for reading alone, outside of the daemon's own
 * folder. −EPERM, −EINVAL with a sentence; −ENOBUFS: there is no room. */
int loan_new(struct loan **ret, struct loan_book *book, const json_t *about, const int *fds, size_t n,
             struct err *err);
/* The same of files that this node keeps of another one's job, and which lie in the daemon's own
 * folder. */
int loan_new_kept(struct loan **ret, struct loan_book *book, const json_t *about, const int *fds, size_t n,
                  struct err *err);
/* The files of both (NULL: none) that lie at one of these paths, or in a folder of that path; of
 * what is in both, what `more` has. They stay the loans' too. ret: NULL: there are none. −E2BIG,
 * −ENOBUFS with a sentence. */
int loan_join(struct loan **ret, const struct loan *had, const struct loan *more, const json_t *paths,
              struct err *err);
struct loan *loan_hold(struct loan *loan); /* NULL stays NULL */
void loan_drop(struct loan *loan);

/* What another life of the daemon needs to know of it: {"files", "folders", "real"}, borrowed. real
 * has for each file the path that the kernel gave its descriptor, without links. */
const json_t *loan_about(const struct loan *loan);
/* Is that such an object? It may come from a damaged disk. */
bool loan_about_is_whole(const json_t *about);
/* 0: the loan has just those files, at the same places; else −EINVAL with a sentence. */
int loan_match(const struct loan *loan, const json_t *about, struct err *err);

/* A file or a folder of this path. loan NULL: there is none. */
bool loan_has(const struct loan *loan, const char *path);
/* What a stage is told of it: {"do": "lend", "files", "folders"}, a new object; and the
 * descriptors, borrowed. */
json_t *loan_message(const struct loan *loan);
const int *loan_fds(const struct loan *loan, size_t *ret_n);

#endif
