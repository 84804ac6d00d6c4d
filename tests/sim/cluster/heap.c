/* SPDX-License-Identifier: MIT
 *
 * Memory of a world, in place of the C library's: lists of blocks that are free, one for each size,
 * and nothing goes back to the kernel before the process ends. A world has one thread; what is
 * taken while none runs comes from the C library. Sanitizers bring a heap of their own. */
#include "tests/sim/cluster/sim.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Pages have blocks of one class: multiples of GRAIN up to SMALL, then of whole pages. */
enum { GRAIN = 16, SMALL = 2048, PAGE = 1 << 14, PAGES = 1 << 15, CLASSES = SMALL / GRAIN + 1, WHOLE = 64 };

struct block { /* that is free */
    struct block *next;
};

static struct heap {
    char *begin; /* owned; NULL: nothing was taken yet */
    size_t used; /* pages */
    struct block *small[CLASSES], *whole[WHOLE];
    char *fresh[CLASSES], *end[CLASSES]; /* what is left of the last page of a class */
    uint16_t class_of[PAGES];            /* of the page that a block begins in; CLASSES + pages */
    size_t taken;                        /* bytes of blocks that are not free */
} heap;

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void __libc_free(void *p);

static bool is_ours(const void *p)
{
    return heap.begin && (const char *)p >= heap.begin && (const char *)p < heap.begin + (size_t)PAGES * PAGE;
}

size_t sim_heap_taken(void)
{
    return heap.taken;
}

static size_t bytes_of(size_t class)
{
    return class < CLASSES ? class * GRAIN : (class - CLASSES) * PAGE;
}

static void *pages(size_t n, uint16_t class)
{
    if (!heap.begin) {
        void *p = mmap(NULL, (size_t)PAGES * PAGE, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        heap.begin = p == MAP_FAILED ? NULL : p;
    }
    if (!heap.begin || heap.used + n > PAGES)
        return NULL;
    heap.class_of[heap.used] = class;
    heap.used += n;
    return heap.begin + (heap.used - n) * PAGE;
}

static void *take(struct block **list)
{
    struct block *b = *list;
    *list = b->next;
    return b;
}

static void *small(size_t class)
{
    if (heap.small[class])
        return take(&heap.small[class]);
    const size_t size = class * GRAIN;
    if ((size_t)(heap.end[class] - heap.fresh[class]) < size) {
        char *page = pages(1, (uint16_t) class);
        if (!page)
            return NULL;
        heap.fresh[class] = page;
        heap.end[class] = page + PAGE;
    }
    heap.fresh[class] += size;
    return heap.fresh[class] - size;
}

void *malloc(size_t n)
{
    const size_t whole = (n + PAGE - 1) / PAGE;
    if (!sim || whole >= WHOLE)
        return __libc_malloc(n);
    const size_t class = n > SMALL ? CLASSES + whole : n ? (n + GRAIN - 1) / GRAIN : 1;
    void *p = n <= SMALL          ? small(class)
              : heap.whole[whole] ? take(&heap.whole[whole])
                                  : pages(whole, (uint16_t) class);
    if (!p)
        return __libc_malloc(n);
    heap.taken += bytes_of(class);
    return p;
}

void *calloc(size_t n, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(n, size, &bytes)) {
        errno = ENOMEM;
        return NULL;
    }
    if (!sim)
        return __libc_calloc(n, size);
    void *p = malloc(bytes);
    return p ? memset(p, 0, bytes) : NULL;
}

static uint16_t *class_of(const void *p)
{
    return &heap.class_of[(size_t)((const char *)p - heap.begin) / PAGE];
}

void free(void *p)
{
    if (!is_ours(p)) {
        __libc_free(p);
        return;
    }
    const size_t class = *class_of(p);
    heap.taken -= bytes_of(class);
    struct block *b = p, **list = class < CLASSES ? &heap.small[class] : &heap.whole[class - CLASSES];
    b->next = *list;
    *list = b;
}

void *realloc(void *p, size_t n)
{
    if (p && !is_ours(p))
        return __libc_realloc(p, n);
    const size_t had = p ? bytes_of(*class_of(p)) : 0;
    if (n && n <= had)
        return p;
    void *larger = malloc(n);
    if (larger && p)
        memcpy(larger, p, had < n ? had : n);
    if (larger)
        free(p);
    return larger;
}
