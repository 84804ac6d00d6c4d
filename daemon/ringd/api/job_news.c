/* SPDX-License-Identifier: MIT
 *
 * Owns the rows of all heads: those that other heads sent, and when each of ours changed. Called by
 * elsewhere.c. */
#include "daemon/ringd/api/job_news.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ringd/api/job_row.h"
#include "daemon/common/xalloc.h"
#include "net/ring.h"

enum { ASK_AGAIN_US = 3000000 };

struct news_head {
    uint8_t id[16];
    uint64_t boot, version; /* of what is here */
    uint64_t boot_told;     /* of its record when it was asked last */
    struct instant asked;   /* 0 = it has answered */
    json_t *rows;           /* owned; newest first */
};

struct own {
    uint64_t id, version;
    json_t *row; /* owned; of an earlier life, else NULL */
};

struct job_news {
    struct job_news_setup setup;
    uint64_t version;
    size_t n, n_heads;
    struct own own[JOB_NEWS_ROWS]; /* by number, the highest first */
    struct news_head heads[RING_MAX_NODES];
    json_t *remembered; /* owned */
};

/* --- ours ------------------------------------------------------------------------------------- */

/* The place of that job, made where there is none; NULL: it is older than all there is room for. */
static struct own *own_place(struct job_news *n, uint64_t id)
{
    size_t i = 0;
    while (i < n->n && n->own[i].id > id)
        i++;
    if (i < n->n && n->own[i].id == id)
        return &n->own[i];
    if (i == JOB_NEWS_ROWS)
        return NULL;
    if (n->n == JOB_NEWS_ROWS)
        json_decref(n->own[--n->n].row);
    memmove(&n->own[i + 1], &n->own[i], (n->n - i) * sizeof *n->own);
    n->n++;
    n->own[i] = (struct own){.id = id};
    return &n->own[i];
}

void job_news_touch(struct job_news *n, uint64_t job)
{
    struct own *o = own_place(n, job);
    if (!o)
        return;
    json_decref(o->row);
    o->row = NULL;
    o->version = ++n->version;
}

void job_news_remember(struct job_news *n, const json_t *short_form)
{
    json_t *row = job_row_read(short_form);
    struct own *o = row ? own_place(n, (uint64_t)json_integer_value(json_object_get(row, "id"))) : NULL;
    if (!o || o->version) {
        json_decref(row);
        return;
    }
    o->row = row;
    o->version = ++n->version;
}

uint64_t job_news_version(const struct job_news *n)
{
    return n->version;
}

const json_t *job_news_remembered(struct job_news *n)
{
    json_decref(n->remembered);
    n->remembered = json_array();
    for (size_t i = 0; i < n->n; i++)
        if (n->own[i].row)
            json_array_append(n->remembered, n->own[i].row);
    return n->remembered;
}

static json_t *own_row(const struct job_news *n, const struct own *o)
{
    if (o->row)
        return json_incref(o->row);
    json_t *form = n->setup.short_form(n->setup.owner, o->id), *row = job_row_read(form);
    json_decref(form);
    return row;
}

void job_news_take_ask(struct job_news *n, const uint8_t to[16], const json_t *body)
{
    json_int_t since = json_integer_value(json_object_get(body, "since"));
    if (json_integer_value(json_object_get(body, "boot")) != (json_int_t)n->setup.boot || since < 0)
        since = 0;
    json_t *rows = json_array();
    for (size_t i = 0; i < n->n; i++) {
        json_t *row = n->own[i].version > (uint64_t)since ? own_row(n, &n->own[i]) : NULL;
        if (row)
            json_array_append_new(rows, row);
    }
    n->setup.send(n->setup.owner, to,
                  json_pack("{s:s s:I s:I s:I s:o}", "kind", "jobs-told", "boot", (json_int_t)n->setup.boot,
                            "version", (json_int_t)n->version, "since", since, "jobs", rows));
}

/* --- theirs ----------------------------------------------------------------------------------- */

static struct news_head *head_find(const struct job_news *n, const uint8_t id[16])
{
    for (size_t i = 0; i < n->n_heads; i++)
        if (!memcmp(n->heads[i].id, id, 16))
            return (struct news_head *)&n->heads[i];
    return NULL;
}

/* As many as there can be members; the one that was asked longest ago makes room. */
static struct news_head *head_place(struct job_news *n, const uint8_t id[16])
{
    struct news_head *h = head_find(n, id);
    if (h)
        return h;
    if (n->n_heads < RING_MAX_NODES) {
        h = &n->heads[n->n_heads++];
    } else {
        h = &n->heads[0];
        for (size_t i = 1; i < n->n_heads; i++)
            h = n->heads[i].asked.us < h->asked.us ? &n->heads[i] : h;
        json_decref(h->rows);
    }
    *h = (struct news_head){.rows = json_array()};
    memcpy(h->id, id, 16);
    return h;
}

void job_news_heard(struct job_news *n, const uint8_t id[16], uint64_t boot, uint64_t version,
                    struct instant now)
{
    struct news_head *h = version ? head_place(n, id) : NULL;
    if (!h || (h->boot == boot && h->version >= version))
        return;
    if (h->asked.us && h->boot_told == boot && clock_since_us(now, h->asked) < ASK_AGAIN_US)
        return;
    h->asked = now;
    h->boot_told = boot;
    n->setup.send(n->setup.owner, id,
                  json_pack("{s:s s:I s:I}", "kind", "jobs-ask", "boot", (json_int_t)h->boot, "since",
                            (json_int_t)h->version));
}

static json_int_t id_of(const json_t *row)
{
    return json_integer_value(json_object_get(row, "id"));
}

static void put_row(struct news_head *h, json_t *row)
{
    size_t i = 0;
    while (i < json_array_size(h->rows) && id_of(json_array_get(h->rows, i)) > id_of(row))
        i++;
    const json_t *there = json_array_get(h->rows, i);
    if (there && id_of(there) == id_of(row))
        json_array_set(h->rows, i, row);
    else
        json_array_insert(h->rows, i, row);
    if (json_array_size(h->rows) > JOB_NEWS_ROWS)
        json_array_remove(h->rows, JOB_NEWS_ROWS);
}

void job_news_take_told(struct job_news *n, const uint8_t from[16], const json_t *body)
{
    struct news_head *h = head_find(n, from);
    json_int_t boot, version, since;
    json_t *jobs, *told;
    size_t i;
    if (!h || !h->asked.us ||
        json_unpack((json_t *)body, "{s:I s:I s:I s:o}", "boot", &boot, "version", &version, "since", &since,
                    "jobs", &jobs) ||
        boot <= 0 || version < 0 || (uint64_t)boot != h->boot_told || json_array_size(jobs) > JOB_NEWS_ROWS ||
        (since && ((uint64_t)since != h->version || h->boot != (uint64_t)boot)))
        return;
    if (!since) /* all there is: what is not in it is forgotten there, too */
        json_array_clear(h->rows);
    h->boot = (uint64_t)boot;
    h->version = (uint64_t)version;
    h->asked.us = 0;
    json_array_foreach (jobs, i, told) {
        json_t *row = job_row_read(told);
        if (row) {
            put_row(h, row);
            n->setup.changed(n->setup.owner, h->id, row);
        }
        json_decref(row);
    }
}

const json_t *job_news_of(const struct job_news *n, const uint8_t head[16])
{
    const struct news_head *h = head_find(n, head);
    return h ? h->rows : NULL;
}

/* --- opening, closing ------------------------------------------------------------------------- */

struct job_news *job_news_new(const struct job_news_setup *setup)
{
    struct job_news *n = xcalloc(1, sizeof *n);
    n->setup = *setup;
    return n;
}

void job_news_free(struct job_news *n)
{
    if (!n)
        return;
    for (size_t i = 0; i < n->n; i++)
        json_decref(n->own[i].row);
    for (size_t i = 0; i < n->n_heads; i++)
        json_decref(n->heads[i].rows);
    json_decref(n->remembered);
    free(n);
}
