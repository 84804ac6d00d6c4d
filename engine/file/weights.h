/* SPDX-License-Identifier: MIT
 *
 * A model known by what its tensors hold: a hash over each one's type, shape and bytes (128 bits of
 * XXH3: it finds damage and mix-ups, and is no defence against forgery). A file is read once; what
 * was found is kept in a cache until somebody writes to the file. Nodes compare the hashes of a
 * unit (embedding, layer, or norm and head) and name the tensor that differs. One thread at a
 * time. */
#ifndef FILE_WEIGHTS_H
#define FILE_WEIGHTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"

struct weights; /* the tensors of a model directory */

/* Lists the tensors whose names are wanted (want NULL: all), and takes from the cache the hashes
 * of files that are as they were. The header of each file is checked, so a truncated file is an
 * error that names it. A file that is not here leaves its tensors unknown, and so do bytes that
 * are not. layers: of the model. cache: folder for the hashes, made when something is written to
 * it; NULL: nothing is kept. */
int weights_open(struct weights **ret, const char *dir, size_t layers, const char *cache,
                 bool (*want)(void *arg, const char *name), void *arg, struct err *err);
void weights_close(struct weights *w);

/* Unit of a tensor: 0 embedding, l + 1 layer l, layers + 1 norm and head, layers + 2 what stands
 * behind the last layer. */
size_t weights_unit(const char *name, size_t layers);

/* Bytes of listed tensors, and of those whose hash is known. */
struct weights_bytes {
    uint64_t all, known;
};
struct weights_bytes weights_bytes(const struct weights *w);
/* Files the index names that are not here, as a text "a, b and 3 more"; their number. */
size_t weights_missing(const struct weights *w, char *ret, size_t size);

struct weights_reading {
    int threads; /* ≥ 1 */
    bool again;  /* also what is known: a disk may have changed what it was given to keep */
    /* On the calling thread, about once a second: bytes read and to be read. */
    void (*told)(void *owner, uint64_t done, uint64_t total);
    void *owner; /* borrowed */
};
/* Reads what is listed and not known, and keeps the hashes. ret_read: bytes. Fails, naming the
 * file, where one becomes shorter, is written to meanwhile, or cannot be read. Hashes that cannot
 * be kept are no failure: the next job reads again. */
int weights_read(struct weights *w, const struct weights_reading *how, uint64_t *ret_read, struct err *err);

/* --- between nodes ---------------------------------------------------------------------------- */

/* The hashes as a text of at most WEIGHTS_TEXT_MAX bytes: that of each unit ("-": not all of it is
 * known), then for each tensor of the model 24 bits, to name the one that differs; without these
 * where they would be too long. A fresh string, NULL without memory. */
enum { WEIGHTS_TEXT_MAX = 448 << 10 };
char *weights_text(const struct weights *w);

/* What two such texts say. */
struct weights_difference {
    size_t units;  /* that differ */
    size_t unit;   /* the first of them */
    size_t tensor; /* the first that differs, by its place among the names sorted; SIZE_MAX: not known */
    size_t tensors;
    size_t compared, all; /* units that both know; of the model */
};
/* −EBADMSG: one of them is no such text, or they are of different models. */
int weights_text_compare(struct weights_difference *ret, const char *mine, const char *theirs);

/* −ESTALE with a sentence that names tensor and file where a unit differs from the text, which
 * `whose` ("the head") sent; units of which either knows nothing are passed over: ret_compared is
 * the number of the others. −EBADMSG: no such text. */
int weights_check(const struct weights *w, const char *text, const char *whose, size_t *ret_compared,
                  struct err *err);

/* −EINVAL with a sentence: the files hold an output head beside the embedding, and they are not
 * alike. 0 where one is not known. */
int weights_check_tied(const struct weights *w, struct err *err);
/* Is this one of the two that weights_check_tied compares? */
bool weights_is_tied(void *unused, const char *name);

/* Of a place in the order of names; file NULL where it is not here. */
size_t weights_count(const struct weights *w);
const char *weights_name(const struct weights *w, size_t tensor);
const char *weights_file(const struct weights *w, size_t tensor);

#endif
