/* SPDX-License-Identifier: MIT
 *
 * Makes the states of a form's automaton. A state is a set of ways; it is closed, which means that
 * every way stands before a byte. Calls and returns are followed at once, and a call at the end of
 * a rule leaves no frame: a rule that ends with itself takes no stack. */
#include "text/form/form_match_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "num/rng.h"
#include "text/textbuf.h"

static uint64_t hash_two(uint32_t a, uint32_t b)
{
    return rng_mix(((uint64_t)a << 32 | b) + UINT64_C(0x9e3779b97f4a7c15));
}

/* --- frames ----------------------------------------------------------------------------------- */

static uint32_t frame_slot(struct form_match *m)
{
    void *frames = m->frames;
    if (m->frame_free) {
        const uint32_t frame = m->frame_free;
        m->frame_free = m->frames[frame].same;
        return frame;
    }
    if (m->nframes == UINT32_MAX ||
        array_reserve(&frames, &m->frames_cap, m->nframes + 1, sizeof *m->frames)) {
        m->is_out = true;
        return NO_FRAME;
    }
    m->frames = frames;
    return (uint32_t)m->nframes++;
}

/* NO_FRAME: too deep, or no memory. */
static uint32_t frame_on(struct form_match *m, uint32_t below, uint32_t op)
{
    const uint32_t depth = m->frames[below].depth + 1;
    uint32_t *list = &m->frame_lists[hash_two(below, op) % FORM_LISTS];
    for (uint32_t f = *list; f; f = m->frames[f].same)
        if (m->frames[f].below == below && m->frames[f].op == op)
            return f;
    if (depth > FORM_DEPTH_MAX) {
        m->is_beyond = true;
        return NO_FRAME;
    }
    const uint32_t frame = frame_slot(m);
    if (frame) {
        m->frames[frame] = (struct form_frame_of){below, op, depth, *list, true};
        *list = frame;
    }
    return frame;
}

/* --- closures --------------------------------------------------------------------------------- */

struct closure {
    struct form_match *m;
    size_t ntodo, steps;
    bool may_end, is_beyond;
};

static bool push(struct form_way **list, size_t *n, size_t *cap, struct form_way way)
{
    void *grown = *list;
    if (array_reserve(&grown, cap, *n + 1, sizeof way))
        return false;
    *list = grown;
    (*list)[(*n)++] = way;
    return true;
}

/* Each way is looked at once. */
static void visit(struct closure *c, uint32_t op, uint32_t frame)
{
    struct form_match *m = c->m;
    const uint64_t key = (uint64_t)op << 32 | frame;
    if (op && !m->form->alive[op])
        return;
    size_t at = hash_two(op, frame) % FORM_SEEN;
    while (m->seen_in[at] == m->closure && m->seen[at] != key)
        at = (at + 1) % FORM_SEEN;
    if (m->seen_in[at] == m->closure)
        return;
    if (c->steps == FORM_STEPS_MAX) {
        c->is_beyond = true;
        return;
    }
    m->seen_in[at] = m->closure;
    m->seen[at] = key;
    c->steps++;
    m->is_out |= !push(&m->todo, &c->ntodo, &m->todo_cap, (struct form_way){op, frame});
}

static void follow(struct closure *c, struct form_way way)
{
    struct form_match *m = c->m;
    const struct form_op *op = &m->form->ops[way.op];
    switch (op->kind) {
    case FORM_END:
        if (way.frame)
            visit(c, m->frames[way.frame].op, m->frames[way.frame].below);
        else
            c->may_end = true;
        return;
    case FORM_SPLIT:
        visit(c, op->next, way.frame);
        visit(c, op->other, way.frame);
        return;
    case FORM_CALL: {
        const uint32_t frame = op->next ? frame_on(m, way.frame, op->next) : way.frame;
        if (frame || !op->next)
            visit(c, op->other, frame);
        return;
    }
    default: m->is_out |= !push(&m->found, &m->nfound, &m->found_cap, way);
    }
}

static struct closure closure_begin(struct form_match *m)
{
    m->nfound = 0;
    if (!++m->closure) { /* once in four thousand million: old marks would count again */
        memset(m->seen_in, 0, FORM_SEEN * sizeof *m->seen_in);
        m->closure = 1;
    }
    return (struct closure){.m = m};
}

static int by_place(const void *a, const void *b)
{
    const struct form_way *x = a, *y = b;
    return x->op != y->op ? (x->op < y->op ? -1 : 1) : x->frame < y->frame ? -1 : x->frame > y->frame;
}

/* --- states ----------------------------------------------------------------------------------- */

static uint64_t hash_of(const struct form_match *m, bool may_end)
{
    uint64_t h = may_end;
    for (size_t i = 0; i < m->nfound; i++)
        h = rng_mix(h + hash_two(m->found[i].op, m->found[i].frame));
    return h;
}

static form_state find(const struct form_match *m, uint64_t hash, bool may_end)
{
    for (form_state s = m->place_lists[hash % FORM_LISTS]; s; s = m->places[s].same) {
        const struct form_place *p = &m->places[s];
        if (p->hash == hash && p->may_end == may_end && p->nways == m->nfound &&
            (!m->nfound || !memcmp(p->ways, m->found, m->nfound * sizeof *m->found)))
            return s;
    }
    return STATE_UNKNOWN;
}

static form_state place_slot(struct form_match *m)
{
    void *places = m->places;
    if (m->place_free) {
        const form_state s = m->place_free;
        m->place_free = m->places[s].same;
        return s;
    }
    if (array_reserve(&places, &m->places_cap, m->nplaces + 1, sizeof *m->places))
        return STATE_UNKNOWN;
    m->places = places;
    return (form_state)m->nplaces++;
}

static size_t bytes_of(const struct form_match *m, size_t nways)
{
    return sizeof(struct form_place) + (nways + 1) * sizeof(struct form_way) +
           m->form->nclasses * sizeof(uint32_t);
}

/* The state of what was found. */
static form_state intern(struct form_match *m, bool may_end)
{
    if (m->nfound)
        qsort(m->found, m->nfound, sizeof *m->found, by_place);
    const uint64_t hash = hash_of(m, may_end);
    const form_state known = find(m, hash, may_end);
    if (known)
        return known;
    struct form_way *ways = malloc((m->nfound + 1) * sizeof *ways);
    uint32_t *to = calloc(m->form->nclasses, sizeof *to);
    const form_state s = ways && to ? place_slot(m) : STATE_UNKNOWN;
    if (!s) {
        free(ways);
        free(to);
        m->is_out = true;
        return STATE_BEYOND;
    }
    if (m->nfound)
        memcpy(ways, m->found, m->nfound * sizeof *ways);
    uint32_t *list = &m->place_lists[hash % FORM_LISTS];
    m->places[s] = (struct form_place){.ways = ways,
                                       .to = to,
                                       .nways = (uint32_t)m->nfound,
                                       .mask = NO_MASK,
                                       .same = *list,
                                       .hash = hash,
                                       .may_end = may_end};
    *list = s;
    m->bytes += bytes_of(m, m->nfound);
    m->work += bytes_of(m, m->nfound) / FORM_WORK_BYTES;
    return s;
}

/* Follows what is to do, to its end. */
static form_state closure_end(struct closure *c)
{
    struct form_match *m = c->m;
    while (c->ntodo && !m->is_out)
        follow(c, m->todo[--c->ntodo]);
    m->work += c->steps + 1;
    c->is_beyond |= m->nfound > FORM_WAYS_MAX;
    m->is_beyond |= c->is_beyond;
    if (c->is_beyond || m->is_out)
        return STATE_BEYOND;
    return m->nfound || c->may_end ? intern(m, c->may_end) : STATE_DEAD;
}

form_state form_first(struct form_match *m)
{
    struct closure c = closure_begin(m);
    visit(&c, m->form->start, NO_FRAME);
    return closure_end(&c);
}

/* Edges are in order and apart. */
static uint32_t edge_of(const struct form *f, const struct form_op *op, uint8_t byte)
{
    size_t low = 0, high = op->other;
    while (low < high) {
        const size_t at = (low + high) / 2;
        const struct form_edge *e = &f->edges[op->next + at];
        if (byte < e->from)
            high = at;
        else if (byte > e->to)
            low = at + 1;
        else
            return (uint32_t)(op->next + at) + 1;
    }
    return 0;
}

form_state form_step(struct form_match *m, form_state from, uint8_t byte)
{
    const struct form *f = m->form;
    const uint8_t class = f->class_of[byte];
    const uint32_t known = m->places[from].to[class];
    if (known) {
        m->is_beyond |= known == STATE_BEYOND;
        return known;
    }
    if (m->work > FORM_WORK_MAX) {
        m->is_costly = true;
        return STATE_BEYOND;
    }
    const struct form_place *p = &m->places[from];
    struct closure c = closure_begin(m);
    for (uint32_t i = 0; i < p->nways; i++) {
        const uint32_t edge = edge_of(f, &f->ops[p->ways[i].op], byte);
        if (edge)
            visit(&c, f->edges[edge - 1].next, p->ways[i].frame);
    }
    m->work += p->nways / 8;
    const bool was_beyond = m->is_beyond;
    m->is_beyond = false;
    form_state to = closure_end(&c);
    if (to == STATE_DEAD && m->is_beyond)
        to = STATE_BEYOND;
    /* A way that was too deep is missing from this state, whoever comes here. */
    if (!m->is_out)
        m->places[from].to[class] = to;
    m->is_beyond |= was_beyond;
    return to;
}

/* --- what nobody holds ------------------------------------------------------------------------ */

static void forget(struct form_match *m, form_state s)
{
    struct form_place *p = &m->places[s];
    m->bytes -= bytes_of(m, p->nways);
    if (p->mask != NO_MASK)
        m->masks[p->mask].state = STATE_UNKNOWN;
    free(p->ways);
    free(p->to);
    *p = (struct form_place){.same = m->place_free};
    m->place_free = s;
}

static void keep_frames(struct form_match *m, const struct form_place *p)
{
    for (uint32_t i = 0; i < p->nways; i++)
        for (uint32_t f = p->ways[i].frame; f && !m->frames[f].is_used; f = m->frames[f].below)
            m->frames[f].is_used = true;
}

static void tidy_frames(struct form_match *m)
{
    memset(m->frame_lists, 0, FORM_LISTS * sizeof *m->frame_lists);
    m->frame_free = NO_FRAME;
    for (uint32_t f = 1; f < m->nframes; f++) {
        struct form_frame_of *frame = &m->frames[f];
        uint32_t *list =
            frame->is_used ? &m->frame_lists[hash_two(frame->below, frame->op) % FORM_LISTS] : &m->frame_free;
        frame->same = *list;
        *list = f;
    }
}

void form_tidy(struct form_match *m)
{
    m->work = 0;
    m->is_beyond = m->is_costly = m->is_out = false;
    if (m->bytes + m->nframes * sizeof *m->frames < FORM_BYTES_MAX)
        return;
    for (uint32_t f = 1; f < m->nframes; f++)
        m->frames[f].is_used = false;
    memset(m->place_lists, 0, FORM_LISTS * sizeof *m->place_lists);
    for (form_state s = STATE_FIRST; s < m->nplaces; s++) {
        struct form_place *p = &m->places[s];
        if (!p->ways)
            continue;
        if (!p->holds) {
            forget(m, s);
            continue;
        }
        keep_frames(m, p);
        memset(p->to, 0, m->form->nclasses * sizeof *p->to);
        p->same = m->place_lists[p->hash % FORM_LISTS];
        m->place_lists[p->hash % FORM_LISTS] = s;
    }
    tidy_frames(m);
}

int form_match_failed(const struct form_match *m, struct err *err)
{
    if (m->is_out)
        return err_set(err, -ENOMEM, "no memory to follow the form of the answer");
    if (m->is_costly)
        return err_set(err, -E2BIG,
                       "the form of the answer takes too long to follow: make it simpler, with fewer ways to "
                       "read the same text");
    if (m->is_beyond)
        return err_set(
            err, -E2BIG,
            "the form of the answer cannot be followed further: it is nested deeper than %d rules, "
            "or can be read in more than %d ways; make it simpler",
            FORM_DEPTH_MAX, FORM_WAYS_MAX);
    return 0;
}
