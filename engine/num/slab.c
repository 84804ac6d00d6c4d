/* SPDX-License-Identifier: MIT */
#include "num/slab.h"

#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>

#include "num/poison.h"

enum { LINE = 64 };

void *slab_take(struct slab *slab, size_t n, size_t m, size_t size)
{
    size_t piece, bytes, end;
    if (__builtin_mul_overflow(n, m, &piece) || __builtin_mul_overflow(piece, size, &piece) ||
        __builtin_add_overflow(piece, LINE - 1 + POISON_GAP, &bytes) ||
        __builtin_add_overflow(slab->used, bytes & ~(size_t)(LINE - 1), &end)) {
        slab->overflow = true;
        return NULL;
    }
    char *at = slab->base ? slab->base + slab->used : NULL;
    const size_t taken = end - slab->used;
    slab->used = end;
    if (!at)
        return NULL;
    ASAN_UNPOISON_MEMORY_REGION(at, slab->overlaps ? taken : piece);
    if (!slab->overlaps)
        ASAN_POISON_MEMORY_REGION(at + piece, taken - piece);
    return at;
}

void slab_join(struct slab *slab, const struct slab *other)
{
    slab->used = other->used > slab->used ? other->used : slab->used;
    slab->overflow = slab->overflow || other->overflow;
}

int slab_alloc(struct slab *slab, const char *what, struct err *err)
{
    if (slab->overflow)
        return err_set(err, -EOVERFLOW, "%s: the size does not fit this machine's address space", what);
    size_t bytes = slab->used ? slab->used : LINE;
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return err_set(err, -ENOMEM, "%s needs %zu MiB, which the system refuses", what, bytes >> 20);
    *slab = (struct slab){.base = at};
    return 0;
}

void slab_free(struct slab *slab)
{
    const size_t bytes = slab->used ? slab->used : LINE;
    if (slab->base) {
        ASAN_UNPOISON_MEMORY_REGION(slab->base, bytes);
        munmap(slab->base, bytes);
    }
    *slab = (struct slab){0};
}
