/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/job/deputy/ballots.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/xalloc.h"
#include "daemon/ringd/cluster/identity.h"
#include "daemon/ringd/job/deputy/note.h"

static const char word[] = "ballot";

struct ballots {
    struct store *store;
    size_t n;
    struct ballot at[BALLOTS_MAX];
};

/* --- on the disk ------------------------------------------------------------------------------ */

static void put(struct ballots *b, const struct ballot *x)
{
    json_t *note = origin_encode(&x->of);
    json_object_set_new(note, "head", id_json(x->head));
    json_object_set_new(note, "before", id_json(x->before));
    json_object_set_new(note, "deputy", id_json(x->deputy));
    json_object_set_new(note, "attempt", json_integer(x->attempt));
    json_object_set_new(note, "promised", json_boolean(x->is_promised));
    json_object_set_new(note, "at", json_integer(x->at));
    note_put(b->store, word, &x->of, note);
}

static void drop(struct ballots *b, size_t i)
{
    note_put(b->store, word, &b->at[i].of, NULL);
    b->at[i] = b->at[--b->n];
}

static bool read_id(uint8_t ret[16], const json_t *note, const char *key)
{
    const char *hex = json_string_value(json_object_get(note, key));
    return hex && !id_parse(ret, hex);
}

static bool read_note(struct ballot *ret, const json_t *note)
{
    const json_int_t attempt = json_integer_value(json_object_get(note, "attempt"));
    *ret = (struct ballot){.attempt = (uint32_t)attempt,
                           .is_promised = json_is_true(json_object_get(note, "promised")),
                           .at = json_integer_value(json_object_get(note, "at"))};
    return origin_read(&ret->of, note) && read_id(ret->head, note, "head") &&
           read_id(ret->before, note, "before") && read_id(ret->deputy, note, "deputy") && attempt >= 0 &&
           attempt <= UINT32_MAX;
}

struct ballots *ballots_new(struct store *store, const json_t *notes, int64_t now)
{
    struct ballots *b = xcalloc(1, sizeof *b);
    size_t i;
    json_t *row;
    b->store = store;
    json_array_foreach (notes, i, row) {
        const json_t *note = note_of_row(row, word);
        if (!note)
            continue;
        if (b->n == BALLOTS_MAX || !read_note(&b->at[b->n], note) ||
            b->at[b->n].at < now - BALLOTS_DAYS * INT64_C(86400))
            note_drop_row(store, row);
        else
            b->n++;
    }
    return b;
}

void ballots_free(struct ballots *b)
{
    free(b);
}

/* --- what is known ---------------------------------------------------------------------------- */

static size_t place_of(const struct ballots *b, const struct origin *of)
{
    size_t i = 0;
    while (i < b->n && !origin_is(&b->at[i].of, of))
        i++;
    return i;
}

const struct ballot *ballots_find(const struct ballots *b, const struct origin *of)
{
    const size_t i = place_of(b, of);
    return i < b->n ? &b->at[i] : NULL;
}

/* What has ended goes first. */
static bool goes_before(const struct ballot *x, const struct ballot *y)
{
    const bool has_ended = x->attempt == BALLOT_ENDED;
    return has_ended != (y->attempt == BALLOT_ENDED) ? has_ended : x->at < y->at;
}

/* A new one takes the place of the one that has not changed for longest. */
static struct ballot *place_for(struct ballots *b, const struct origin *of)
{
    size_t i = place_of(b, of), oldest = 0;
    if (i < b->n)
        return &b->at[i];
    for (i = 1; i < b->n; i++)
        oldest = goes_before(&b->at[i], &b->at[oldest]) ? i : oldest;
    if (b->n == BALLOTS_MAX)
        drop(b, oldest);
    b->at[b->n] = (struct ballot){.of = *of};
    memcpy(b->at[b->n].head, of->head, sizeof of->head);
    memcpy(b->at[b->n].before, of->head, sizeof of->head);
    return &b->at[b->n++];
}

static bool is_headed_by(const struct ballot *x, const uint8_t id[16])
{
    return !memcmp(x->head, id, sizeof x->head);
}

static void describe(const struct ballot *x, char *why, size_t size)
{
    char hex[33];
    id_hex(hex, x->head);
    if (x->attempt == BALLOT_ENDED)
        snprintf(why, size, "knows that the job has ended");
    else
        snprintf(why, size, "has promised the job to another node (%.8s)", hex);
}

/* --- attempts --------------------------------------------------------------------------------- */

/* It took the job from the head that this node knows, and from no earlier attempt. */
static bool is_next(const struct ballot *x, const uint8_t by[16], const struct takeover *t)
{
    return !x->is_promised && x->attempt <= t->attempt && !memcmp(x->head, t->from, sizeof x->head) &&
           !memcmp(x->deputy, by, sizeof x->deputy);
}

bool ballots_may_open(const struct ballots *b, const struct origin *of, const uint8_t by[16],
                      const struct takeover *taken, char *why, size_t size)
{
    const struct ballot *x = ballots_find(b, of);
    if (!x && !taken && memcmp(of->head, by, sizeof of->head) != 0) {
        snprintf(why, size, "knows nothing of a job that the asking node has taken over");
        return false;
    }
    if (!x || is_headed_by(x, by) || (taken && is_next(x, by, taken)))
        return true;
    if (taken && x->attempt > taken->attempt && x->attempt != BALLOT_ENDED)
        snprintf(why, size,
                 "has taken part in a later attempt than the one that the job was taken over from");
    else
        describe(x, why, size);
    return false;
}

void ballots_open(struct ballots *b, const struct origin *of, const uint8_t head[16],
                  const uint8_t deputy[16], uint32_t attempt, int64_t now)
{
    struct ballot *x = place_for(b, of);
    if (!is_headed_by(x, head))
        memcpy(x->before, x->head, sizeof x->before);
    memcpy(x->head, head, sizeof x->head);
    memcpy(x->deputy, deputy, sizeof x->deputy);
    x->attempt = attempt;
    x->is_promised = false;
    x->at = now;
    put(b, x);
}

void ballots_move(struct ballots *b, const struct origin *of, const uint8_t from[16], const uint8_t to[16],
                  int64_t now)
{
    const struct ballot *known = ballots_find(b, of);
    if (known ? !is_headed_by(known, from) || known->is_promised || known->attempt == BALLOT_ENDED
              : memcmp(of->head, from, sizeof of->head) != 0)
        return;
    ballots_open(b, of, to, to, known ? known->attempt : 0, now);
}

void ballots_ended(struct ballots *b, const struct origin *of, int64_t now)
{
    const size_t i = place_of(b, of);
    if (i < b->n && b->at[i].attempt != BALLOT_ENDED)
        ballots_open(b, of, b->at[i].head, b->at[i].deputy, BALLOT_ENDED, now);
}

/* --- promises --------------------------------------------------------------------------------- */

bool ballots_vote(struct ballots *b, const struct origin *of, const uint8_t by[16],
                  const struct takeover *wanted, int64_t now, char *why, size_t size)
{
    const size_t i = place_of(b, of);
    struct ballot *x = i < b->n ? &b->at[i] : NULL;
    const bool is_free = x && (is_headed_by(x, wanted->from) || is_headed_by(x, by));
    if (!x || memcmp(x->deputy, by, sizeof x->deputy) != 0)
        snprintf(why, size, "knows of no attempt of the job with the asking node as rank 1");
    else if (x->attempt == BALLOT_ENDED || !is_free)
        describe(x, why, size);
    else if (x->attempt > wanted->attempt)
        snprintf(why, size, "has taken part in a later attempt of the job");
    else
        *why = '\0';
    if (*why)
        return false;
    memcpy(x->before, wanted->from, sizeof x->before);
    memcpy(x->head, by, sizeof x->head);
    x->is_promised = true;
    x->at = now;
    put(b, x);
    return true;
}

void ballots_release(struct ballots *b, const struct origin *of, const uint8_t by[16], int64_t now)
{
    const size_t i = place_of(b, of);
    if (i == b->n || !b->at[i].is_promised || !is_headed_by(&b->at[i], by))
        return;
    memcpy(b->at[i].head, b->at[i].before, sizeof b->at[i].head);
    b->at[i].is_promised = false;
    b->at[i].at = now;
    put(b, &b->at[i]);
}
