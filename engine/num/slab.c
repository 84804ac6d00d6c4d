/* SPDX-License-Identifier: MIT */
#include "num/slab.h"

#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>

enum { LINE = 64 };

void *slab_take(struct slab *slab, size_t n, size_t m, size_t size)
{
    size_t bytes, end;
    if (__builtin_mul_overflow(n, m, &bytes) || __builtin_mul_overflow(bytes, size, &bytes) ||
        __builtin_add_overflow(bytes, LINE - 1, &bytes) ||
        __builtin_add_overflow(slab->used, bytes & ~(size_t)(LINE - 1), &end)) {
        slab->overflow = true;
        return NULL;
    }
    void *at = slab->base ? slab->base + slab->used : NULL;
    slab->used = end;
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
    if (slab->base)
        munmap(slab->base, slab->used ? slab->used : LINE);
    *slab = (struct slab){0};
}
