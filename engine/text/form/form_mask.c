/* SPDX-License-Identifier: MIT
 *
 * Which tokens of a vocabulary may come next. One walk over the tree of their bytes; where a byte
 * does not fit, everything below is left out.
 *
 * In a text such as a JSON string nearly every token fits, and nearly all bytes are alike: each of
 * them, and each whole character beyond ASCII, leads to one state, mostly back to the state that it
 * came from. In a text of limited length it is one state further, where they are alike again. Kinds
 * of such bytes are found once for a state, with how often it goes on like that (`loops`). Then a
 * token all of whose bytes are of such kinds, and that is not longer, fits, and so does all of a
 * subtree: neither is walked. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "text/form/form_match_impl.h"

/* --- bytes that are alike --------------------------------------------------------------------- */

/* Does every way to write the rest of a character lead from `at` to `end`? */
static bool chars_lead_to(struct form_match *m, form_state at, int utf8, form_state end)
{
    const struct form_bytes *ways = &m->wide[utf8];
    for (size_t i = 0; i < ways->n; i++) {
        const int next = form_utf8_step(utf8, ways->at[i]);
        const form_state to = form_step(m, at, ways->at[i]);
        if (to < STATE_FIRST || (next ? !chars_lead_to(m, to, next, end) : to != end))
            return false;
    }
    return true;
}

void form_find_wide(struct form_match *m)
{
    for (int utf8 = 0; utf8 < FORM_UTF8_STATES; utf8++)
        for (unsigned b = 0x80, before = 0; b <= 0xFF; b++) {
            const int next = form_utf8_step(utf8, (uint8_t)b);
            const unsigned what = m->form->class_of[b] * 16U + (unsigned)(next + 1);
            struct form_bytes *ways = &m->wide[utf8];
            if (next >= 0 && what != before)
                ways->at[ways->n++] = (uint8_t)b;
            before = next < 0 ? 0 : what;
        }
}

/* Kinds of bytes that all lead to one state, *ret. */
static uint64_t even_of(struct form_match *m, form_state s, form_state *ret)
{
    uint64_t even = 0, others = 0;
    if (!m->places[s].has_even) {
        const form_state next = form_step(m, s, 'e'); /* a form of texts lets this letter through */
        for (unsigned b = 0; next >= STATE_FIRST && b < 0x80; b++) {
            const uint64_t bit = UINT64_C(1) << form_kind_of((uint8_t)b);
            *(form_step(m, s, (uint8_t)b) == next ? &even : &others) |= bit;
        }
        even &= ~others;
        if (even && chars_lead_to(m, s, 0, next))
            even |= UINT64_C(1) << KIND_WIDE;
        m->places[s].even = even;
        m->places[s].next = next;
        m->places[s].has_even = true;
    }
    *ret = m->places[s].next;
    return m->places[s].even;
}

/* The bits of lengths that are no hindrance where up to n bytes are alike. */
static uint64_t lengths_below(size_t n)
{
    uint64_t bits = 0;
    for (unsigned i = 0; i + 1 < FORM_LENGTHS && form_lengths[i + 1] <= n; i++)
        bits |= UINT64_C(1) << (KIND_LENGTHS + i);
    return bits;
}

/* A token of these kinds, which are of bytes and of lengths, fits at s. */
static uint64_t loops_of(struct form_match *m, form_state s)
{
    form_state at = s, next;
    if (m->places[s].has_loops)
        return m->places[s].loops;
    const uint64_t even = even_of(m, s, &next);
    uint64_t loops = even;
    size_t n = 1;
    while (even && next != at && n < FORM_LENGTH_MOST) {
        at = next;
        if (even & ~even_of(m, at, &next))
            break;
        n++;
    }
    if (even && next == at) /* and so without end */
        loops |= lengths_below(SIZE_MAX) | UINT64_C(1) << (KIND_LENGTHS + FORM_LENGTHS - 1);
    else if (even)
        loops |= lengths_below(n);
    m->places[s].loops = loops;
    m->places[s].has_loops = true;
    return loops;
}

/* --- the walk --------------------------------------------------------------------------------- */

static void set(uint64_t *bits, uint32_t id)
{
    bits[id / 64] |= UINT64_C(1) << id % 64;
}

static void set_all(uint64_t *bits, const struct form_tokens *t, uint32_t from, uint32_t to)
{
    for (uint32_t k = from; k < to; k++)
        set(bits, t->order[k]);
}

/* Tokens all of whose kinds are among these. */
static void set_plain(uint64_t *bits, const struct form_tokens *t, uint64_t loops)
{
    for (size_t i = 0; i < t->vocab; i += 64) {
        const size_t n = t->vocab - i < 64 ? t->vocab - i : 64;
        uint64_t word = 0;
        for (size_t k = 0; k < n; k++)
            word |= (uint64_t) !(t->kinds[i + k] & ~loops) << k;
        bits[i / 64] = word;
    }
}

static void walk(struct form_match *m, form_state start, uint64_t *bits)
{
    const struct form_tokens *t = m->tokens;
    const uint64_t first_loops = loops_of(m, start);
    if (first_loops)
        set_plain(bits, t, first_loops);
    m->path[0] = start;
    m->is_plain[0] = true;
    for (uint32_t i = 0; i < t->nnodes;) {
        const struct form_node *n = &t->nodes[i];
        const form_state s = m->path[n->depth - 1];
        const bool is_plain = m->is_plain[n->depth - 1];
        const bool is_set = is_plain && !(n->kinds & ~first_loops); /* by set_plain */
        if (is_set || (n->is_char_start && !(n->kinds & ~loops_of(m, s)))) {
            if (!is_set)
                set_all(bits, t, n->first_token, t->nodes[n->after].first_token);
            i = n->after;
            continue;
        }
        const form_state to = form_step(m, s, n->byte);
        if (to < STATE_FIRST) {
            i = n->after;
            continue;
        }
        m->path[n->depth] = to;
        m->is_plain[n->depth] = is_plain && n->byte < 0x80 && first_loops >> form_kind_of(n->byte) & 1;
        set_all(bits, t, n->first_token, n->first_token + n->own_tokens);
        i++;
    }
}

/* --- masks ------------------------------------------------------------------------------------ */

/* A place for one more: a new one, or that which was not asked for the longest. */
static struct form_mask_of *mask_slot(struct form_match *m)
{
    struct form_mask_of *oldest = &m->masks[0];
    if (m->nmasks < FORM_MASKS) {
        uint64_t *bits = malloc((m->tokens->vocab / 64 + 1) * sizeof *bits);
        if (!bits)
            return NULL;
        m->masks[m->nmasks].bits = bits;
        return &m->masks[m->nmasks++];
    }
    for (size_t i = 1; i < m->nmasks; i++)
        if (m->masks[i].used < oldest->used)
            oldest = &m->masks[i];
    if (oldest->state)
        m->places[oldest->state].mask = NO_MASK;
    oldest->state = STATE_UNKNOWN;
    return oldest;
}

static bool is_empty(const uint64_t *bits, size_t words)
{
    for (size_t i = 0; i < words; i++)
        if (bits[i])
            return false;
    return true;
}

static int make(struct form_match *m, form_state state, struct form_mask_of *mask, struct err *err)
{
    const struct form_tokens *t = m->tokens;
    memset(mask->bits, 0, (t->vocab / 64 + 1) * sizeof *mask->bits);
    walk(m, state, mask->bits);
    for (size_t i = 0; i < t->nends && m->places[state].may_end; i++)
        set(mask->bits, t->ends[i]);
    const bool is_whole = !m->is_out && !m->is_costly;
    if (is_whole && !is_empty(mask->bits, (t->vocab + 63) / 64))
        return 0;
    const int r = form_match_failed(m, err);
    if (r)
        return r;
    return err_set(err, -ENOENT,
                   m->places[state].may_end
                       ? "the answer is complete, and this model has no token that ends it"
                       : "no token of this model fits the form of the answer here: its vocabulary lacks "
                         "tokens for single bytes");
}

int form_match_mask(struct form_match *m, form_state state, const uint64_t **ret, struct err *err)
{
    form_tidy(m);
    uint32_t known = m->places[state].mask;
    if (known == NO_MASK) {
        struct form_mask_of *mask = mask_slot(m);
        if (!mask)
            return err_set(err, -ENOMEM, "no memory for a mask of %zu tokens", m->tokens->vocab);
        const int r = make(m, state, mask, err);
        if (r)
            return r;
        known = (uint32_t)(mask - m->masks);
        mask->state = state;
        m->places[state].mask = known;
    }
    m->masks[known].used = ++m->clock;
    *ret = m->masks[known].bits;
    return 0;
}
