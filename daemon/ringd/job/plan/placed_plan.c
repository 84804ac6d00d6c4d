/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/job/plan/placed_plan.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/model/mapped.h"
#include "daemon/common/xalloc.h"
#include "daemon/ringd/cluster/identity.h"
#include "daemon/ringd/job/survive/pace.h"

/* --- nodes ------------------------------------------------------------------------------------ */

/* What its stages map of models' files, but for those of the job itself, which end before it begins
 * again. */
static json_t *mapped_at(const struct member *m, const uint8_t head[16], uint64_t job)
{
    json_t *list = json_array();
    for (size_t i = 0; i < m->nstages; i++) {
        const struct member_stage *s = &m->stages[i];
        char weights[MAPPED_KEY_TEXT];
        if (!s->weights || (s->job == job && !memcmp(s->head, head, sizeof s->head)))
            continue;
        mapped_key_text(weights, s->weights);
        json_array_append_new(list, json_pack("{s:I s:s s:o}", "job", (json_int_t)s->job, "weights", weights,
                                              "units", member_stage_units(s)));
    }
    return list;
}

void job_nodes_of_ring(struct job_nodes *ret, const struct members_ring *ring, uint64_t job,
                       json_t **ret_ring)
{
    *ret = (struct job_nodes){.n = ring->n};
    *ret_ring = json_array();
    for (size_t r = 0; r < ring->n; r++) {
        const struct member *m = ring->at[r];
        memcpy(ret->id[r], m->id, 16);
        snprintf(ret->name[r], sizeof ret->name[r], "%s", m->name);
        ret->available[r] = m->memory_available;
        char id[33];
        id_hex(id, m->id);
        json_array_append_new(*ret_ring,
                              json_pack("{s:s s:s s:s s:f s:I s:I s:b s:o}", "id", id, "name", m->name,
                                        "kernels", m->kernels, "speed", (double)m->threads, "memory",
                                        (json_int_t)m->memory_available, "mbps", (json_int_t)ring->class_mbps,
                                        "by_hand", (int)ring->by_hand, "mapped",
                                        mapped_at(m, ring->at[0]->id, job)));
    }
}

size_t job_nodes_find(const struct job_nodes *nodes, const uint8_t id[16])
{
    size_t r = 0;
    while (r < nodes->n && memcmp(nodes->id[r], id, 16))
        r++;
    return r;
}

json_t *job_nodes_encode(const struct job_nodes *nodes)
{
    json_t *list = json_array();
    for (size_t r = 0; r < nodes->n; r++)
        json_array_append_new(list, json_pack("[o, s]", id_json(nodes->id[r]), nodes->name[r]));
    return list;
}

bool job_nodes_read(struct job_nodes *ret, const json_t *list)
{
    size_t i;
    json_t *node;
    *ret = (struct job_nodes){.n = 0};
    if (json_array_size(list) > RING_MAX_NODES)
        return false;
    json_array_foreach (list, i, node) {
        const char *id = json_string_value(json_array_get(node, 0)),
                   *name = json_string_value(json_array_get(node, 1));
        if (!id || !name || id_parse(ret->id[i], id))
            return false;
        snprintf(ret->name[i], sizeof ret->name[i], "%s", name);
        ret->n = i + 1;
    }
    return true;
}

void job_nodes_drop(struct job_nodes *nodes, size_t i)
{
    const size_t behind = --nodes->n - i;
    memmove(nodes->id[i], nodes->id[i + 1], behind * sizeof nodes->id[0]);
    memmove(nodes->name[i], nodes->name[i + 1], behind * sizeof nodes->name[0]);
    memmove(nodes->available + i, nodes->available + i + 1, behind * sizeof nodes->available[0]);
}

static void add_node(struct job_nodes *to, const struct job_nodes *from, size_t i)
{
    memcpy(to->id[to->n], from->id[i], sizeof to->id[0]);
    memcpy(to->name[to->n], from->name[i], sizeof to->name[0]);
    to->available[to->n++] = from->available[i];
}

void job_nodes_add(struct job_nodes *to, const struct job_nodes *from, size_t i)
{
    if (job_nodes_find(to, from->id[i]) < to->n)
        return;
    if (to->n == RING_MAX_NODES)
        job_nodes_drop(to, 0);
    add_node(to, from, i);
}

/* Those that have a bit in `chosen` (0: all), the head among them. Mirrored, the ring is followed
 * the other way round: rank 1 is who was the last. */
static bool choose(struct job_nodes *ret, const struct job_nodes *offered, uint32_t chosen, bool is_mirrored)
{
    *ret = (struct job_nodes){0};
    for (size_t i = 0; i < offered->n; i++) {
        const size_t from = is_mirrored && i ? offered->n - i : i;
        if (!chosen || chosen >> from & 1)
            add_node(ret, offered, from);
    }
    return offered->n && (!chosen || chosen & 1);
}

/* --- reading ---------------------------------------------------------------------------------- */

struct planner_answer {
    const json_t *plan, *forecast, *speed, *pace, *in_common, *travel;
    uint64_t steps;
    uint32_t chosen;
    bool is_mirrored;
};

#define ROW(name, type, member, ...)                                                                         \
    {                                                                                                        \
        name, type, 0, FIELD_AT(struct planner_answer, member), __VA_ARGS__                                  \
    }
static const struct field answer_fields[] = {
    ROW("plan", FIELD_OBJECT, plan, .missing = ""),
    ROW("steps", FIELD_WHOLE, steps, .max = FIELD_ANY, .missing = ""),
    ROW("mirrored", FIELD_FLAG, is_mirrored, .text = NULL),
    ROW("chosen", FIELD_WHOLE, chosen, .max = UINT32_MAX),
    ROW("forecast", FIELD_OBJECT, forecast, .text = NULL),
    ROW("speed", FIELD_OBJECT, speed, .text = NULL),
    ROW("pace", FIELD_OBJECT, pace, .text = NULL),
    ROW("shared", FIELD_LIST, in_common, .text = NULL),
    ROW("travel", FIELD_OBJECT, travel, .text = NULL),
    {.name = NULL},
};

static int read_plan(struct placed_plan *p, const struct planner_answer *a, enum job_type type,
                     const struct job_nodes *offered, struct err *err)
{
    const bool has_head = choose(&p->nodes, offered, a->chosen, a->is_mirrored);
    int r = job_plan_decode(&p->shared, a->plan, err);
    if (!r && p->shared.type != type)
        r = err_set(err, -EBADMSG, "the job is to %s, and the plan is one to %s", job_type_name(type),
                    job_type_name(p->shared.type));
    else if (!r && (!has_head || p->nodes.n != p->shared.ranks))
        r = err_set(err, -EBADMSG, "the plan is for %zu nodes, and was given %zu%s", p->shared.ranks,
                    p->nodes.n, has_head ? "" : " without the head");
    if (!r && a->pace)
        r = pace_new(&p->pace, a->pace, &p->shared, err);
    return r;
}

int placed_plan_read(struct placed_plan **ret, const json_t *told, enum job_type type,
                     const struct job_nodes *offered, struct err *err)
{
    struct planner_answer a;
    const int e = fields_read(&a, answer_fields, 0, told, err);
    if (e)
        return e == -ENOMEM ? e : -EBADMSG;
    struct placed_plan *p = xcalloc(1, sizeof *p);
    *p = (struct placed_plan){.steps = a.steps,
                              .forecast = json_incref((json_t *)a.forecast),
                              .speed = json_incref((json_t *)a.speed),
                              .in_common = json_incref((json_t *)a.in_common),
                              .travel = json_incref((json_t *)a.travel)};
    const int r = read_plan(p, &a, type, offered, err);
    if (r)
        placed_plan_free(p);
    else
        *ret = p;
    return r;
}

void placed_plan_free(struct placed_plan *p)
{
    if (!p)
        return;
    job_plan_done(&p->shared);
    json_decref(p->forecast);
    json_decref(p->speed);
    json_decref(p->in_common);
    json_decref(p->travel);
    pace_free(p->pace);
    free(p);
}

/* --- writing ---------------------------------------------------------------------------------- */

json_t *placed_plan_nodes(const struct placed_plan *p)
{
    json_t *list = json_array();
    for (size_t r = 0; r < p->nodes.n; r++) {
        char hex[33];
        id_hex(hex, p->nodes.id[r]);
        json_array_append_new(list, json_string(hex));
    }
    return list;
}

/* Of each rank: the bounds of its stages one after the other, and all their slots together. */
static void show_stages(json_t *to, const struct job_plan *p)
{
    json_t *split = json_array(), *slots = json_array();
    for (size_t r = 0; r < p->ranks; r++) {
        size_t sum = 0;
        json_t *bounds = json_array();
        for (size_t s = 0; s < p->stages; s++) {
            if (!job_plan_is_at(p, s, r))
                continue;
            json_array_append_new(bounds, json_integer((json_int_t)p->first[s]));
            json_array_append_new(bounds, json_integer((json_int_t)p->first[s + 1]));
            sum += p->slots[s];
        }
        json_array_append_new(split, bounds);
        json_array_append_new(slots, json_integer((json_int_t)sum));
    }
    json_object_set_new(to, "split", split);
    json_object_set_new(to, "slots", slots);
}

json_t *placed_plan_show(const struct placed_plan *p)
{
    if (!p)
        return json_null();
    json_t *shown = job_plan_show(&p->shared), *names = json_array(), *available = json_array();
    for (size_t r = 0; r < p->nodes.n; r++) {
        json_array_append_new(names, json_string(p->nodes.name[r]));
        json_array_append_new(available, json_integer((json_int_t)p->nodes.available[r]));
    }
    show_stages(shown, &p->shared);
    json_object_set_new(shown, "nodes", names);
    json_object_set_new(shown, "available", available);
    if (p->forecast)
        json_object_set(shown, "forecast", p->forecast);
    if (p->speed)
        json_object_set(shown, "speed", p->speed);
    if (p->in_common)
        json_object_set(shown, "shared", p->in_common);
    if (p->travel)
        json_object_set(shown, "travel", p->travel);
    return shown;
}
