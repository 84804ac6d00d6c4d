/* SPDX-License-Identifier: MIT
 *
 * safetensors files (github.com/huggingface/safetensors, format section), read by mapping and
 * written whole. Files are untrusted: every offset, shape, dtype, duplicate and overlap is checked
 * at open, and the mapping is only handed out as views that lie inside it. */
#ifndef FILE_ST_H
#define FILE_ST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"
#include "num/mat.h"

enum { ST_MAX_DIMS = 8 };

struct st_tensor {
    const char *name;       /* borrowed from the set */
    const char *dtype_name; /* as written in the file, e.g. "BF16", "F8_E4M3" */
    enum dtype dtype;       /* DTYPE_COUNT where we do not compute with that type */
    enum block_type block; /* of GGUF: what a matrix is stored in, or BLOCK_NONE; dtype is DTYPE_COUNT then */
    size_t turn;           /* of GGUF: its rows are in another order, as of struct mat; else 0 */
    struct mat_heads row_heads, col_heads; /* the same; of one dimension and of convolutions its elements */
    struct mat_rest rest; /* of GGUF: it is the first part of two; its data, dtype and block are not set */
    size_t ndim, shape[ST_MAX_DIMS];
    size_t elements, bytes;
    const void *data; /* at least 1-byte aligned only; inside the mapping, but for vectors of GGUF that are
                         stored as other numbers */
    size_t file;      /* index of the shard it lies in */
    bool is_away;     /* its bytes have not come to this node, or not all of them (have_map.h) */
};

struct maps;
struct st; /* an opened file, or a sharded directory */

/* Opens one file. */
int st_open_file(struct st **ret, const char *path, struct err *err);
/* Row `row` of a tensor as f32, in Hugging Face's order: all of one of one dimension, else the
 * elements of its last; `cols` of them. Its type is one that is computed with. */
void st_row(const struct st_tensor *t, size_t row, size_t cols, float *ret);

/* Opens DIR/model.safetensors, or the shards named by DIR/model.safetensors.index.json; a tensor
 * the index names but its shard lacks, or a shard that cannot be opened, is an error naming
 * both. DIR may be a GGUF file: its tensors have their names in Hugging Face's files then, and
 * its parts are the shards. With `want` given, only shards that hold a tensor for which
 * want(arg, name) is true are opened (a stage maps its own layers only); names in other shards
 * are then unknown. */
int st_open_dir(struct st **ret, const char *dir, bool (*want)(void *arg, const char *name), void *arg,
                struct err *err);
/* The same without the data: names, types and shapes of all, also of those that are away. */
int st_open_heads(struct st **ret, const char *dir, struct err *err);
/* Does it say which tensors there are: is it a GGUF file, or has it one of the two? */
bool st_dir_lists(const char *dir);
/* The same, with mappings of `maps` (borrowed until it is closed), which keeps them. */
int st_map_file(struct st **ret, const char *path, struct maps *maps, struct err *err);
int st_map_dir(struct st **ret, const char *dir, bool (*want)(void *arg, const char *name), void *arg,
               struct maps *maps, struct err *err);
/* For timing alone: tensors that are away are zeros there, and small ones pseudo-random numbers, so
 * that a router still spreads its tokens. */
int st_map_stand_in(struct st **ret, const char *dir, bool (*want)(void *arg, const char *name), void *arg,
                    struct maps *maps, struct err *err);
void st_close(struct st *st);

size_t st_count(const struct st *st);
const struct st_tensor *st_at(const struct st *st, size_t i);           /* sorted by name */
const struct st_tensor *st_find(const struct st *st, const char *name); /* NULL if absent */
/* Where its bytes lie: the file, borrowed from the set, and the first of them in it. */
const char *st_place(const struct st *st, const struct st_tensor *t, uint64_t *ret_at);
/* All names the index lists, opened or not (equal to the tensors for a single file), sorted: for
 * naming what is extra. */
size_t st_names(const struct st *st, const char *const **ret);

/* Advice for the pages of a tensor: will be read soon / no longer needed. */
void st_willneed(const struct st *st, const struct st_tensor *t);
/* The same of `bytes` of it from `data` on. */
void st_willneed_part(const struct st *st, const struct st_tensor *t, const void *data, size_t bytes);
void st_dontneed(const struct st *st, const struct st_tensor *t); /* of pages that are its own alone */

/* Text that is another one once somebody writes to the file, or puts another in its place. */
enum { ST_IDENTITY = 128 };
void st_file_identity(const struct st *st, size_t file, char ret[ST_IDENTITY]);

/* Checksums of a file's tensors: itself a tensor, of words [others, 2], the low word first, in the
 * order of names. */
#define ST_CHECKSUMS "checksums"
/* Reads all of the tensors and compares them with the checksums. −ENODATA where the file has none;
 * −EBADMSG where a tensor differs, which the sentence names. The sentence does not name the
 * file. */
int st_check(const struct st *st, struct err *err);

/* --- writing ---------------------------------------------------------------------------------- */
struct st_out_tensor {
    const char *name;
    enum dtype dtype;
    size_t ndim, shape[ST_MAX_DIMS];
    bool words; /* U32, given by st_writer_words; dtype does not count */
};
struct st_writer;
/* Lays the file out (wide types first, then by name; data part 64-byte aligned and without gaps, so
 * that every tensor is aligned to its element; header padded with spaces, metadata
 * {"format":"pt"}), checks that the disk has room, creates PATH.tmp and reserves its space at once,
 * so that a full disk is found before the work. Data then comes tensor by tensor, in any order.
 * finish = fsync + rename + fsync of the directory; abort removes the temporary. A tensor
 * ST_CHECKSUMS of words is written by finish; all elements must have four bytes then.
 */
int st_writer_open(struct st_writer **ret, const char *path, const struct st_out_tensor *tensors, size_t n,
                   struct err *err);
int st_writer_put(struct st_writer *w, const char *name, const float *data, size_t elements, struct err *err);
/* The same in pieces, each after the one before. */
int st_writer_append(struct st_writer *w, const char *name, const float *data, size_t elements,
                     struct err *err);
int st_writer_words(struct st_writer *w, const char *name, const uint32_t *data, size_t n, struct err *err);
int st_writer_finish(struct st_writer *w, struct err *err); /* frees w either way */
void st_writer_abort(struct st_writer *w);

#endif
