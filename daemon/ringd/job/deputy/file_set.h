/* SPDX-License-Identifier: MIT
 *
 * Files of a job that another node fetches: the inputs that it needs to go on with the job, or the
 * result that it waits for. They are open, so that what is fetched is whole whatever becomes of the
 * paths. Shared with threads that read them. Any thread. */
#ifndef DAEMON_FILE_SET_H
#define DAEMON_FILE_SET_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/err.h"

struct file_set;
struct loan;

enum {
    FILE_SET_MOST = 32,        /* files */
    FILE_SET_PART = 192 << 10, /* bytes that travel at a time */
};
/* Bytes of all files of a set. */
#define FILE_SET_BYTES (UINT64_C(1) << 30)

/* Opens what the spec of a job names: its data sets, its adapters; with `resumes` also the state
 * in --adapter-out. What is in the loan (NULL: there is none) is taken from there. The model is
 * none of it: each node has that. A disk may hang: not on the loop. Refuses more than the limits
 * above, and what cannot be opened. */
int file_set_of_inputs(struct file_set **ret, const json_t *spec, struct loan *loan, struct err *err);
/* Opens all files of the folder of a result, and those of the folders in it; a folder that is not
 * there has none. */
int file_set_of_folder(struct file_set **ret, const char *folder, struct err *err);
/* The same of its folders "best" alone, which --early-stop makes. */
int file_set_of_best(struct file_set **ret, const char *folder, struct err *err);
/* The two files that an adapter is read from; a list that ends with NULL. */
extern const char *const file_set_adapter_files[];
int file_set_of_adapter(struct file_set **ret, const char *folder, struct err *err);
/* Are these the same files, under the same paths? */
bool file_set_is_same(const struct file_set *a, const struct file_set *b);
struct file_set *file_set_hold(struct file_set *s); /* NULL stays NULL */
void file_set_drop(struct file_set *s);

/* [{"path", "bytes", "changed": ns since 1970}, …]: a new object. Paths of a folder are those in
 * it. */
json_t *file_set_list(const struct file_set *s);
/* Such a list of another node: at most FILE_SET_MOST files of FILE_SET_BYTES together, with
 * absolute paths or, with in_folder, such as results_list has. −EBADMSG with a sentence. */
int file_set_check(const json_t *list, int in_folder, struct err *err);
/* The same, of those two files and no others. */
int file_set_check_adapter(const json_t *list, struct err *err);
/* The same, of such files as file_set_of_best opens. */
int file_set_check_best(const json_t *list, struct err *err);
/* Makes a folder for such a list, and in it those on the way to a file of it. What is wrong shows
 * when the file is made. */
void file_set_make_folders(const char *folder, const char *path);
/* Reads from file i: up to FILE_SET_PART bytes at `at`. The number of bytes; −errno with a
 * sentence. */
int file_set_read(const struct file_set *s, size_t i, uint64_t at, uint8_t part[FILE_SET_PART],
                  struct err *err);

#endif
