/* SPDX-License-Identifier: MIT
 *
 * Classes of characters as bytes of UTF-8: ranges are cut where the number of bytes changes, and
 * then until every byte but the first ones takes all values that it can. */
#include <errno.h>

#include "text/form/form_compile.h"
#include "text/utf8.h"

enum { BYTES_MAX = 4, CONTINUES = 0x80, CONTINUES_LAST = 0xBF };

/* Characters whose bytes are in these ranges, each with each. */
struct utf8_run {
    size_t n; /* bytes */
    uint8_t from[BYTES_MAX], to[BYTES_MAX];
};

/* A class makes at most so many of one range: up to one more for each byte at either end. */
enum { RUNS_OF_RANGE = 4 * 2 * BYTES_MAX };

struct utf8_runs {
    struct utf8_run at[(2 * FORM_RANGES_MAX + 2) * 2 + RUNS_OF_RANGE];
    size_t n;
    bool is_full;
};

static void add_run(struct utf8_runs *runs, uint32_t from, uint32_t to)
{
    char a[4], b[4];
    struct utf8_run r = {.n = utf8_encode(from, a)};
    utf8_encode(to, b);
    for (size_t i = 0; i < r.n; i++) {
        r.from[i] = (uint8_t)a[i];
        r.to[i] = (uint8_t)b[i];
    }
    runs->is_full |= runs->n == sizeof runs->at / sizeof *runs->at;
    if (!runs->is_full)
        runs->at[runs->n++] = r;
}

/* from … to have as many bytes each. */
static void cut(struct utf8_runs *runs, uint32_t from, uint32_t to)
{
    for (unsigned bits = 6; bits <= 18; bits += 6) {
        const uint32_t low = (1U << bits) - 1;
        if ((from & ~low) == (to & ~low))
            break;
        if (from & low) {
            cut(runs, from, from | low);
            cut(runs, (from | low) + 1, to);
            return;
        }
        if ((to & low) != low) {
            cut(runs, from, (to & ~low) - 1);
            cut(runs, to & ~low, to);
            return;
        }
    }
    add_run(runs, from, to);
}

static void cut_range(struct utf8_runs *runs, const struct form_range *r)
{
    static const uint32_t last[] = {0x7F, 0x7FF, 0xFFFF, 0x10FFFF};
    uint32_t from = r->from;
    for (size_t i = 0; i < sizeof last / sizeof *last && from <= r->to; i++) {
        if (from > last[i])
            continue;
        const uint32_t to = r->to < last[i] ? r->to : last[i];
        cut(runs, from, to);
        from = to + 1;
    }
}

struct class_maker {
    struct form_maker *m;
    uint32_t tail[BYTES_MAX]; /* so many bytes that continue a character, then what follows */
};

static bool is_tail(const struct utf8_run *r, size_t at)
{
    for (; at < r->n; at++)
        if (r->from[at] != CONTINUES || r->to[at] != CONTINUES_LAST)
            return false;
    return true;
}

static uint32_t tail_of(struct class_maker *c, size_t n)
{
    if (n && !c->tail[n]) {
        const struct form_edge all = {CONTINUES, CONTINUES_LAST, tail_of(c, n - 1)};
        c->tail[n] = form_bytes_add(c->m, &all, 1);
    }
    return c->tail[n];
}

/* runs [n] that have the bytes before `at` in common. */
static uint32_t bytes_from(struct class_maker *c, const struct utf8_run *runs, size_t n, size_t at)
{
    struct form_edge edges[256];
    size_t made = 0;
    for (size_t i = 0, same; i < n; i += same) {
        for (same = 1; i + same < n && runs[i + same].from[at] == runs[i].from[at];)
            same++;
        const size_t left = runs[i].n - at - 1;
        const uint32_t next =
            same == 1 && is_tail(&runs[i], at + 1) ? tail_of(c, left) : bytes_from(c, runs + i, same, at + 1);
        edges[made++] = (struct form_edge){runs[i].from[at], runs[i].to[at], next};
    }
    return form_bytes_add(c->m, edges, made);
}

uint32_t form_class_compile(struct form_maker *m, const struct form_expr *class, uint32_t next)
{
    struct utf8_runs runs;
    struct class_maker c = {.m = m, .tail = {next}};
    runs.n = 0;
    runs.is_full = false;
    for (size_t i = 0; i < class->n; i++)
        cut_range(&runs, &class->ranges[i]);
    if (runs.is_full) {
        form_draft_fail(m->d, -E2BIG, "a class of characters is too large: use fewer ranges");
        return 0;
    }
    return bytes_from(&c, runs.at, runs.n, 0);
}
