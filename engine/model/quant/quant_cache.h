/* SPDX-License-Identifier: MIT
 *
 * The folder of quantized weights is bounded: what has not been used for longest goes first.
 * requant.c says when a file is used and before one is made, on the computing thread of a stage
 * that opens. */
#ifndef MODEL_QUANT_CACHE_H
#define MODEL_QUANT_CACHE_H

#include <stddef.h>
#include <time.h>

enum {
    QUANT_CACHE_SPARED_S = 3600
}; /* what was used so recently stays: a job and its neighbours are at it */

/* Marks a file as used now. Where that is not allowed nothing is said: it is then older than it
 * is. */
void quant_cache_touch(const char *path);

/* Makes room in `dir` for a file of `need` bytes: deletes the quantized weights unused for longest,
 * until those left and the new one are no more than what then stays free on the disk, where
 * `available` bytes are free now. Halves of files that a process left when it died go too. Whoever
 * has a file open keeps it. Other names are not looked at. Returns the bytes deleted. PURE but for
 * the folder. */
size_t quant_cache_trim(const char *dir, size_t need, size_t available, time_t now_s);

/* Bytes a process of this user may still write where `dir` is; 0 if that cannot be known, and then
 * nothing should be deleted for it. */
size_t quant_cache_available(const char *dir);

#endif
