/* SPDX-License-Identifier: MIT */
#include "daemon/stage/hold/held_memory.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/model/family.h"

/* What the file begins with. A stage process may be killed between any two writes: a part's step is
 * its last, and the first that goes. */
struct held_head {
    uint64_t magic, size;
    struct {
        _Atomic uint64_t step;
        uint64_t at, bytes;
        uint8_t has[HELD_UNITS_MAX / 8];
    } part[HELD_PARTS];
};
enum { HEAD_BYTES = 4096 };
_Static_assert(sizeof(struct held_head) <= HEAD_BYTES, "the head of a file of copies is a page");
static const uint64_t MAGIC = 0x3144494844474e52; /* "RNGDHID1" */

/* --- units ------------------------------------------------------------------------------------ */

void held_shape_done(struct held_shape *shape)
{
    for (size_t a = 0; shape->pieces && a < shape->adapters; a++)
        param_pieces_done(&shape->pieces[a]);
    free(shape->pieces);
    free(shape->bytes);
    *shape = (struct held_shape){0};
}

static void count_bytes(struct held_shape *shape, size_t adapter)
{
    const struct param_pieces *pieces = &shape->pieces[adapter];
    for (size_t i = 0; i < pieces->n; i++)
        shape->bytes[adapter * shape->units + pieces->piece[i].unit] += pieces->piece[i].n * sizeof(float);
}

int held_shape_make(struct held_shape *ret, const struct job_plan *plan, const struct config *config,
                    struct err *err)
{
    int r = 0;
    *ret = (struct held_shape){.adapters = plan->nmore + 1, .units = config->layers + 2};
    ret->pieces = calloc(ret->adapters, sizeof *ret->pieces);
    ret->bytes = calloc(ret->adapters * ret->units, sizeof *ret->bytes);
    if (!ret->pieces || !ret->bytes)
        r = err_set(err, -ENOMEM, "out of memory");
    for (size_t a = 0; a < ret->adapters && !r; a++) {
        r = param_pieces_make(&ret->pieces[a], job_plan_tune(plan, a), family_find(config->family), config,
                              true, err);
        if (!r)
            count_bytes(ret, a);
    }
    if (r)
        held_shape_done(ret);
    return r;
}

static size_t bytes_of(const struct held_shape *shape, const uint8_t *has)
{
    size_t sum = 0;
    for (size_t a = 0; a < shape->adapters; a++)
        for (size_t u = 0; u < shape->units; u++)
            sum += held_has(has, u) ? shape->bytes[a * shape->units + u] : 0;
    return sum;
}

size_t held_units_of(const struct held_shape *shape, const struct job_plan *plan, uint32_t rank,
                     uint8_t has[HELD_UNITS_MAX / 8])
{
    memset(has, 0, HELD_UNITS_MAX / 8);
    for (size_t u = 0; u < shape->units; u++)
        if (job_plan_is_at(plan, job_plan_stage_of_unit(plan, u), rank))
            has[u / 8] |= (uint8_t)(1U << u % 8);
    return bytes_of(shape, has);
}

/* Of one step, and of both kinds. */
static size_t copies_of(const struct held_shape *shape, const struct job_plan *plan, uint32_t rank)
{
    uint8_t has[HELD_UNITS_MAX / 8];
    const size_t own = held_units_of(shape, plan, rank, has);
    return plan->ranks > 1 ? own + held_units_of(shape, plan, plan_prev(plan->ranks, rank), has) : own;
}

int held_are_small(bool *ret, const struct job_plan *plan, const struct config *config, struct err *err)
{
    struct held_shape shape;
    const int r = held_shape_make(&shape, plan, config, err);
    if (r)
        return r;
    *ret = true;
    for (uint32_t rank = 0; rank < plan->ranks; rank++)
        *ret = *ret && held_spare_bytes(copies_of(&shape, plan, rank));
    held_shape_done(&shape);
    return 0;
}

int held_bytes(size_t *ret, const struct job_plan *plan, const struct config *config, uint32_t rank,
               struct err *err)
{
    struct held_shape shape;
    *ret = 0;
    if (!plan->copies)
        return 0;
    int r = held_shape_make(&shape, plan, config, err);
    if (r)
        return r;
    const size_t copies = copies_of(&shape, plan, rank);
    *ret = HEAD_BYTES + HELD_TURNS * copies + (plan->ranks > 1 ? copies : 0) + held_spare_bytes(copies);
    held_shape_done(&shape);
    return 0;
}

size_t held_offset(const struct held_shape *shape, const struct held_part *part, size_t adapter, size_t unit)
{
    size_t at = 0;
    for (size_t a = 0; a <= adapter; a++)
        for (size_t u = 0; u < (a < adapter ? shape->units : unit); u++)
            at += held_has(part->has, u) ? shape->bytes[a * shape->units + u] : 0;
    return at;
}

/* --- the file --------------------------------------------------------------------------------- */

static int map(struct held_memory *m, int fd, int rights)
{
    m->map = mmap(NULL, m->size, rights, MAP_SHARED, fd, 0);
    if (m->map != MAP_FAILED)
        return 0;
    m->map = NULL;
    return -errno;
}

int held_memory_make(struct held_memory *ret, int fd, const struct held_shape *shape,
                     const struct job_plan *plan, uint32_t rank, struct err *err)
{
    *ret = (struct held_memory){.size = HEAD_BYTES};
    for (size_t i = 0; i < HELD_PARTS; i++) {
        struct held_part *part = &ret->part[i];
        const bool is_own = i / HELD_TURNS == HELD_OWN;
        if (is_own || plan->ranks > 1)
            part->bytes = held_units_of(shape, plan, is_own ? rank : plan_prev(plan->ranks, rank), part->has);
        part->at = ret->size;
        ret->size += part->bytes;
    }
    int r = ftruncate(fd, (off_t)ret->size) ? -errno : map(ret, fd, PROT_READ | PROT_WRITE);
    if (r) {
        const struct err_amounts is = err_amounts(ret->size, 0);
        return err_set(err, r,
                       "no memory for copies of what is trained, which take %s: %s; --copies off does "
                       "without",
                       is.need, strerror(-r));
    }
    struct held_head *head = ret->map;
    head->size = ret->size;
    for (size_t i = 0; i < HELD_PARTS; i++) {
        head->part[i].at = ret->part[i].at;
        head->part[i].bytes = ret->part[i].bytes;
        memcpy(head->part[i].has, ret->part[i].has, sizeof head->part[i].has);
    }
    head->magic = MAGIC;
    return 0;
}

bool held_part_is_sound(const struct held_part *part, const struct held_shape *shape, size_t size)
{
    for (size_t u = shape->units; u < HELD_UNITS_MAX; u++)
        if (held_has(part->has, u))
            return false;
    return part->at >= HEAD_BYTES && part->at <= size && part->bytes <= size - part->at &&
           part->bytes == bytes_of(shape, part->has);
}

void held_memory_open(struct held_memory *ret, int fd, const struct held_shape *shape)
{
    struct stat st;
    *ret = (struct held_memory){0};
    if (fstat(fd, &st) || st.st_size < HEAD_BYTES)
        return;
    ret->size = (size_t)st.st_size;
    if (map(ret, fd, PROT_READ))
        return;
    const struct held_head *head = ret->map;
    for (size_t i = 0; i < HELD_PARTS && head->magic == MAGIC && head->size == ret->size; i++) {
        struct held_part *part = &ret->part[i];
        part->step = atomic_load_explicit(&head->part[i].step, memory_order_acquire);
        part->at = head->part[i].at;
        part->bytes = head->part[i].bytes;
        memcpy(part->has, head->part[i].has, sizeof part->has);
        if (!held_part_is_sound(part, shape, ret->size))
            part->step = 0;
    }
}

void held_memory_done(struct held_memory *m)
{
    if (m->map)
        munmap(m->map, m->size);
    *m = (struct held_memory){0};
}

uint8_t *held_memory_at(const struct held_memory *m, size_t part)
{
    return (uint8_t *)m->map + m->part[part].at;
}

void held_memory_empty(struct held_memory *m, size_t part)
{
    struct held_head *head = m->map;
    m->part[part].step = 0;
    atomic_store_explicit(&head->part[part].step, 0, memory_order_seq_cst);
}

void held_memory_whole(struct held_memory *m, size_t part, uint64_t step)
{
    struct held_head *head = m->map;
    m->part[part].step = step;
    atomic_store_explicit(&head->part[part].step, step, memory_order_seq_cst);
}
