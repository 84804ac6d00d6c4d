/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/job/plan/shortage.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/xalloc.h"
#include "engine/err.h"

/* Free memory goes up and down by so much though nothing has happened. */
enum { NOISE_BYTES = 128 << 20 };

struct holder {
    size_t node; /* of `nodes` */
    uint8_t head[16];
    uint64_t job;
};
struct shortage {
    struct job_nodes nodes;
    size_t at; /* of them */
    uint64_t bytes;
    uint64_t others; /* bytes that all holders were promised */
    size_t n;
    struct holder held[RING_MAX_NODES * MEMBER_STAGES];
};

struct shortage *shortage_new(const struct job_nodes *offered, const struct members_ring *ring,
                              const uint8_t head[16], uint64_t job)
{
    struct shortage *s = xcalloc(1, sizeof *s);
    s->nodes = *offered;
    for (size_t node = 0; node < ring->n; node++)
        for (size_t i = 0; i < ring->at[node]->nstages; i++) {
            const struct member_stage *stage = &ring->at[node]->stages[i];
            const bool is_own = stage->job == job && !memcmp(stage->head, head, sizeof stage->head);
            if (is_own || !stage->bytes)
                continue;
            s->others += stage->bytes;
            struct holder *h = &s->held[s->n++];
            *h = (struct holder){.node = node, .job = stage->job};
            memcpy(h->head, stage->head, sizeof h->head);
        }
    return s;
}

bool shortage_note(struct shortage *s, const uint8_t at[16], uint64_t bytes)
{
    const size_t node = job_nodes_find(&s->nodes, at);
    if (!s->n || node == s->nodes.n || bytes > s->others + NOISE_BYTES)
        return false;
    s->at = node;
    s->bytes = bytes;
    return true;
}

bool shortage_is_known(const struct shortage *s)
{
    return s && s->bytes;
}

void shortage_free(struct shortage *s)
{
    free(s);
}

static const struct member *member_of(const struct members_ring *now, const uint8_t id[16])
{
    for (size_t i = 0; i < now->n; i++)
        if (!memcmp(now->at[i]->id, id, 16))
            return now->at[i];
    return NULL;
}

static bool is_gone(const struct shortage *s, const struct holder *h, const struct members_ring *now)
{
    const struct member *m = member_of(now, s->nodes.id[h->node]);
    return !m || !member_stage_of(m, h->head, h->job);
}

/* The job may share what that stage maps, if it has begun since. */
static bool may_share(const struct shortage *s, size_t node, const struct member_stage *stage)
{
    bool is_known = !stage->weights;
    for (size_t i = 0; i < s->n && !is_known; i++)
        is_known = s->held[i].node == node && s->held[i].job == stage->job &&
                   !memcmp(s->held[i].head, stage->head, sizeof stage->head);
    return !is_known;
}

bool shortage_stays(const struct shortage *s, const struct members_ring *now)
{
    uint64_t more = 0;
    for (size_t i = 0; i < now->n; i++) {
        const size_t was = job_nodes_find(&s->nodes, now->at[i]->id);
        if (was == s->nodes.n)
            return false;
        if (now->at[i]->memory_available > s->nodes.available[was])
            more += now->at[i]->memory_available - s->nodes.available[was];
        for (size_t k = 0; k < now->at[i]->nstages; k++)
            if (may_share(s, was, &now->at[i]->stages[k]))
                return false;
    }
    for (size_t i = 0; i < s->n; i++)
        if (is_gone(s, &s->held[i], now))
            return false;
    return more < s->bytes || more < NOISE_BYTES;
}

/* The jobs on that node, or on all: each once. */
static size_t add_jobs(const struct shortage *s, bool only_there, char *text, size_t size)
{
    size_t jobs = 0;
    int len = 0;
    for (size_t i = 0; i < s->n; i++) {
        const struct holder *h = &s->held[i];
        bool is_said = only_there && h->node != s->at;
        for (size_t k = 0; k < i && !is_said; k++)
            is_said = s->held[k].job == h->job && !memcmp(s->held[k].head, h->head, sizeof h->head) &&
                      (!only_there || s->held[k].node == s->at);
        if (is_said || len < 0 || (size_t)len >= size)
            continue;
        len +=
            snprintf(text + len, size - (size_t)len, "%s%llu", jobs ? ", " : "", (unsigned long long)h->job);
        jobs++;
    }
    return jobs;
}

void shortage_describe(const struct shortage *s, char *text, size_t size)
{
    const struct err_amounts lacks = err_amounts(s->bytes, 0);
    char jobs[200] = "";
    size_t n = add_jobs(s, true, jobs, sizeof jobs);
    const bool there = n > 0;
    if (!there)
        n = add_jobs(s, false, jobs, sizeof jobs);
    snprintf(text, size,
             there ? "node %s lacks %s of memory, which job%s %s hold%s"
                   : "node %s lacks %s of memory, and job%s %s hold%s some of other nodes",
             s->nodes.name[s->at], lacks.need, n == 1 ? "" : "s", jobs, n == 1 ? "s" : "");
}
