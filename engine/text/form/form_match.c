/* SPDX-License-Identifier: MIT */
#include "text/form/form_match_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int make_room(struct form_match *m)
{
    m->place_lists = calloc(FORM_LISTS, sizeof *m->place_lists);
    m->frame_lists = calloc(FORM_LISTS, sizeof *m->frame_lists);
    m->seen = calloc(FORM_SEEN, sizeof *m->seen);
    m->seen_in = calloc(FORM_SEEN, sizeof *m->seen_in);
    m->masks = calloc(FORM_MASKS, sizeof *m->masks);
    m->places = calloc(STATE_FIRST, sizeof *m->places);
    m->frames = calloc(1, sizeof *m->frames);
    m->path = calloc(m->tokens->longest + 1, sizeof *m->path);
    m->is_plain = calloc(m->tokens->longest + 1, sizeof *m->is_plain);
    m->nplaces = m->places_cap = STATE_FIRST;
    m->nframes = m->frames_cap = 1;
    return m->place_lists && m->frame_lists && m->seen && m->seen_in && m->masks && m->places && m->frames &&
                   m->path && m->is_plain
               ? 0
               : -ENOMEM;
}

int form_match_new(struct form_match **ret, const struct form *form, const struct form_tokens *tokens,
                   struct err *err)
{
    struct form_match *m = calloc(1, sizeof *m);
    if (!m)
        return err_set(err, -ENOMEM, "no memory to follow the form of the answer");
    m->form = form;
    m->tokens = tokens;
    m->is_out = make_room(m);
    form_find_wide(m);
    m->start = m->is_out ? STATE_UNKNOWN : form_first(m);
    if (m->start < STATE_FIRST) {
        const int r = form_match_failed(m, err);
        form_match_free(m);
        return r;
    }
    m->places[m->start].holds = 1;
    *ret = m;
    return 0;
}

void form_match_free(struct form_match *m)
{
    if (!m)
        return;
    for (size_t s = STATE_FIRST; m->places && s < m->nplaces; s++) {
        free(m->places[s].ways);
        free(m->places[s].to);
    }
    for (size_t i = 0; i < m->nmasks; i++)
        free(m->masks[i].bits);
    free(m->places);
    free(m->place_lists);
    free(m->frames);
    free(m->frame_lists);
    free(m->todo);
    free(m->found);
    free(m->seen);
    free(m->seen_in);
    free(m->masks);
    free(m->path);
    free(m->is_plain);
    free(m);
}

form_state form_match_start(struct form_match *m)
{
    form_match_keep(m, m->start);
    return m->start;
}

void form_match_keep(struct form_match *m, form_state state)
{
    m->places[state].holds++;
}

void form_match_drop(struct form_match *m, form_state state)
{
    m->places[state].holds--;
}

bool form_match_may_end(const struct form_match *m, form_state state)
{
    return m->places[state].may_end;
}

int form_match_bytes(struct form_match *m, form_state state, const char *text, size_t n, form_state *ret,
                     struct err *err)
{
    form_tidy(m);
    for (size_t i = 0; i < n; i++) {
        state = form_step(m, state, (uint8_t)text[i]);
        if (state >= STATE_FIRST)
            continue;
        const int r = form_match_failed(m, err);
        return r ? r
                 : err_set(err, -EPROTO, "byte %zu of the text does not fit the form of the answer", i + 1);
    }
    form_match_keep(m, state);
    *ret = state;
    return 0;
}

static bool is_end(const struct form_tokens *t, uint32_t id)
{
    for (size_t i = 0; i < t->nends; i++)
        if (t->ends[i] == id)
            return true;
    return false;
}

int form_match_token(struct form_match *m, form_state state, uint32_t token, form_state *ret, struct err *err)
{
    const struct form_tokens *t = m->tokens;
    if (token >= t->vocab)
        return err_set(err, -EINVAL, "token %u does not exist: there are %zu", token, t->vocab);
    const size_t from = t->text_at[token], n = t->text_at[token + 1] - from;
    if (!is_end(t, token) && n)
        return form_match_bytes(m, state, t->text + from, n, ret, err);
    if (!is_end(t, token) || !m->places[state].may_end)
        return err_set(err, -EPROTO, "token %u does not fit the form of the answer", token);
    form_match_keep(m, state);
    *ret = state;
    return 0;
}
