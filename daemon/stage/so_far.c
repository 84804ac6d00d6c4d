/* SPDX-License-Identifier: MIT */
#include "daemon/stage/so_far.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int refuse(struct err *err, const char *what)
{
    return err_set(err, -EBADMSG,
                   "what the daemon kept of this job cannot be read (%s): install the same version of ringd "
                   "and ringd-stage",
                   what);
}

/* Appends the list to [n] ids, for which there is room. */
static int read_ids(uint32_t *ret, const json_t *list, size_t vocab, struct err *err)
{
    size_t i;
    json_t *id;
    json_array_foreach (list, i, id) {
        const json_int_t value = json_integer_value(id);
        if (!json_is_integer(id) || value < 0 || (size_t)value >= vocab)
            return refuse(err, "a token that the model does not have");
        ret[i] = (uint32_t)value;
    }
    return 0;
}

/* The token at a position below `kept`: of the latest turn that wrote it. */
static int fill_kept(const struct so_far *s, struct so_far_turn *to, struct err *err)
{
    for (size_t i = 0; i < s->n; i++) {
        const struct so_far_turn *t = &s->turns[i];
        for (size_t at = t->kept; at < to->kept && at < t->n_ids; at++)
            to->ids[at] = t->ids[at];
        for (size_t at = t->n_ids; at < to->kept && at < t->n_ids + t->n_answer; at++)
            to->ids[at] = t->answer[at - t->n_ids];
    }
    const struct so_far_turn *before = s->n ? &s->turns[s->n - 1] : NULL;
    return to->kept <= (before ? before->n_ids + before->n_answer : 0)
               ? 0
               : refuse(err, "a turn without the one before it");
}

static int read_turn(struct so_far *s, const json_t *json, size_t vocab, struct err *err)
{
    const json_t *ids = json_object_get(json, "ids"), *answer = json_object_get(json, "answer");
    const json_int_t kept = json_integer_value(json_object_get(json, "kept")),
                     seed = json_integer_value(json_object_get(json, "seed"));
    if (kept < 0 || kept > UINT32_MAX || seed < 0 || !json_array_size(ids) || !json_is_array(answer))
        return refuse(err, "a turn");
    struct so_far_turn *t = &s->turns[s->n];
    *t = (struct so_far_turn){.kept = (size_t)kept,
                              .n_ids = (size_t)kept + json_array_size(ids),
                              .n_answer = json_array_size(answer),
                              .seed = (uint64_t)seed};
    t->ids = calloc(t->n_ids, sizeof *t->ids);
    t->answer = calloc(t->n_answer + 1, sizeof *t->answer);
    int e = t->ids && t->answer ? 0 : err_set(err, -ENOMEM, "out of memory");
    if (!e)
        e = fill_kept(s, t, err);
    if (!e)
        e = read_ids(t->ids + kept, ids, vocab, err);
    if (!e)
        e = read_ids(t->answer, answer, vocab, err);
    s->n++; /* so_far_done frees what there is of it */
    return e;
}

int so_far_read(struct so_far *ret, const json_t *json, size_t vocab, struct err *err)
{
    const json_t *turns = json_object_get(json, "turns");
    const json_int_t first = json_integer_value(json_object_get(json, "first_prompt"));
    const size_t n = json_array_size(turns);
    struct so_far s = {0};
    int e = n && first < 1 ? refuse(err, "its first prompt") : 0;
    s.first_prompt = (size_t)first;
    s.is_told_again = json_is_true(json_object_get(json, "again"));
    s.turns = calloc(n + 1, sizeof *s.turns);
    if (!e && !s.turns)
        e = err_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < n && !e; i++)
        e = read_turn(&s, json_array_get(turns, i), vocab, err);
    if (e)
        so_far_done(&s);
    else
        *ret = s;
    return e;
}

void so_far_done(struct so_far *s)
{
    for (size_t i = 0; i < s->n; i++) {
        free(s->turns[i].ids);
        free(s->turns[i].answer);
    }
    free(s->turns);
    *s = (struct so_far){0};
}

int so_far_fits(const struct so_far *s, size_t positions, size_t max_tokens, struct err *err)
{
    for (size_t i = 0; i < s->n; i++)
        if (s->turns[i].n_answer > max_tokens || s->turns[i].n_ids + s->turns[i].n_answer > positions)
            return refuse(err, "more tokens than it asked for");
    return 0;
}

size_t so_far_needed(const struct so_far *s, size_t turn)
{
    size_t needed = SIZE_MAX;
    for (size_t i = turn + 1; i < s->n; i++)
        needed = s->turns[i].kept < needed ? s->turns[i].kept : needed;
    return needed;
}
