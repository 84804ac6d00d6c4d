/* SPDX-License-Identifier: MIT
 *
 * A node at each of its moments: idle, at work for another head, and head of a job in each of its
 * states. What is tried with each kind of message there changes nothing of it. */
#ifndef TESTS_BYZANTINE_TRY_H
#define TESTS_BYZANTINE_TRY_H

#include "tests/unit/daemon/ringd/byzantine_world.h"

static const struct byz_moment {
    enum byz_role role;
    enum job_state state;
} byz_moments[] = {{IDLE, JOB_QUEUED},      {WORKS, JOB_QUEUED},  {HEADS, JOB_PLANNING}, {HEADS, JOB_OPENING},
                   {HEADS, JOB_CONNECTING}, {HEADS, JOB_RUNNING}, {HEADS, JOB_STOPPING}};
enum { BYZ_MOMENTS = sizeof byz_moments / sizeof *byz_moments };

/* A value that the field may have. */
static inline json_t *byz_value(const struct field *f)
{
    switch (f->type) {
    case FIELD_WHOLE: return json_integer((json_int_t)f->min);
    case FIELD_FLAG: return json_true();
    case FIELD_LIST: return json_array();
    case FIELD_OBJECT: return json_object();
    default: return json_string("01020304");
    }
}

/* With all fields that its row names, for the job of the moment. */
static inline json_t *byz_body(const struct byz *w, enum message_kind kind, size_t rank)
{
    json_t *body = json_pack("{s:s}", "kind", message_row(kind)->name);
    for (const struct field *f = message_row(kind)->fields; f->name; f++)
        json_object_set_new(body, f->name, byz_value(f));
    if (json_object_get(body, "job"))
        json_object_set_new(body, "job", json_integer(w->role == WORKS ? JOB : 1));
    if (json_object_get(body, "rank"))
        json_object_set_new(body, "rank", json_integer((json_int_t)rank));
    return body;
}

/* That mate's rank in the job that the node heads; the node is rank 0. */
static inline size_t byz_rank(const struct byz *w, enum byz_mate who)
{
    const struct job *job = coord_first(w->node->coord);
    return job ? job_nodes_find(job_nodes(job), w->at[who].node_id) : who == PEER ? 0 : who == FAR ? 3 : 2;
}

typedef void byz_attempt(struct byz *w, enum message_kind kind);

/* Each kind, at that moment. A job that stops does so for a few seconds, so it is begun anew. */
static inline size_t byz_try_at(const struct byz_moment *m, const char *name, byz_attempt *try)
{
    enum { AT_ONCE = 8 };
    struct byz *w = NULL;
    json_t *before = NULL;
    size_t cases = 0;
    for (enum message_kind kind = 0; kind < MESSAGE_KINDS; kind++) {
        char what[120];
        if (!w || (m->state == JOB_STOPPING && kind % AT_ONCE == 0)) {
            byz_close(w);
            json_decref(before);
            w = byz_open(m->role, m->state);
            before = byz_state(w);
        }
        snprintf(what, sizeof what, "%s %s, at moment %d", message_row(kind)->name, name,
                 (int)(m - byz_moments));
        try(w, kind);
        byz_expect_same(json_incref(before), byz_state(w), what);
        cases += w->cases;
        w->cases = 0;
    }
    json_decref(before);
    byz_close(w);
    return cases;
}

#endif
