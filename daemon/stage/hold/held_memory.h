/* SPDX-License-Identifier: MIT
 *
 * A memory file in which a stage process leaves copies of what a job trains: the daemon owns it and
 * hands it to the next stage process of the job. It has four parts: two for the stage's own units,
 * written by turns, so that one is always whole, and two for those of the rank before it. A part is
 * whole if it names a step. Main thread of ringd-stage. */
#ifndef DAEMON_STAGE_HELD_MEMORY_H
#define DAEMON_STAGE_HELD_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/common/job_plan.h"
#include "engine/err.h"
#include "engine/file/config.h"
#include "engine/model/param_piece.h"

enum held_of { HELD_OWN, HELD_PREVIOUS, HELD_OF };
enum { HELD_TURNS = 2, HELD_PARTS = HELD_OF * HELD_TURNS };
/* A model with more units than this has no copies in memory. */
enum { HELD_UNITS_MAX = 4096 };

/* How many bytes each unit of a job takes: of every adapter, weights and both moments. */
struct held_shape {
    size_t adapters, units;
    struct param_pieces *pieces; /* owned, [adapters] */
    size_t *bytes;               /* owned, [adapters · units] */
};
/* −ENOMEM. */
int held_shape_make(struct held_shape *ret, const struct job_plan *plan, const struct config *config,
                    struct err *err);
void held_shape_done(struct held_shape *shape);

/* Which units a rank trains by the plan: has[u] is set. Returns what they take together, bytes. */
size_t held_units_of(const struct held_shape *shape, const struct job_plan *plan, uint32_t rank,
                     uint8_t has[HELD_UNITS_MAX / 8]);
/* A rank's copies of a step, its own and those of the rank before it, are copied once more on their
 * way to the disk if they are small: so many bytes, else 0. */
enum { HELD_SMALL = 64 << 20 };
static inline size_t held_spare_bytes(size_t copies)
{
    return copies <= HELD_SMALL ? copies : 0;
}
/* Are those of all ranks? */
int held_are_small(bool *ret, const struct job_plan *plan, const struct config *config, struct err *err);
/* What copies take on a rank: the file, and messages that come and go. 0 where none are made. */
int held_bytes(size_t *ret, const struct job_plan *plan, const struct config *config, uint32_t rank,
               struct err *err);

static inline bool held_has(const uint8_t *has, size_t unit)
{
    return has[unit / 8] >> unit % 8 & 1;
}

struct held_part {
    uint64_t step;      /* 0: nothing */
    uint64_t at, bytes; /* in the file */
    uint8_t has[HELD_UNITS_MAX / 8];
};

/* What another process wrote counts only as far as it fits this job, and lies in its file of `size`
 * bytes. */
bool held_part_is_sound(const struct held_part *part, const struct held_shape *shape, size_t size);

struct held_memory {
    void *map; /* owned mapping; NULL: none */
    size_t size;
    struct held_part part[HELD_PARTS]; /* what the file was found to have, or was given */
};

/* Gives the file the size and the parts that `rank` needs, and maps it; all parts are empty. The
 * descriptor stays the caller's. −ENOMEM, −ENOSPC: a sentence. */
int held_memory_make(struct held_memory *ret, int fd, const struct held_shape *shape,
                     const struct job_plan *plan, uint32_t rank, struct err *err);
/* Maps a file that a stage process before this one left. Parts which do not have the size that
 * `shape` gives their units count as empty; so does a file that is none. */
void held_memory_open(struct held_memory *ret, int fd, const struct held_shape *shape);
void held_memory_done(struct held_memory *m);

/* The bytes of a part. */
uint8_t *held_memory_at(const struct held_memory *m, size_t part);
/* Where values of a unit begin in a part, in bytes; the part has the unit. */
size_t held_offset(const struct held_shape *shape, const struct held_part *part, size_t adapter, size_t unit);
/* Before a part is written, and when it is whole. */
void held_memory_empty(struct held_memory *m, size_t part);
void held_memory_whole(struct held_memory *m, size_t part, uint64_t step);

#endif
