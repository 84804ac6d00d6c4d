/* SPDX-License-Identifier: MIT */
#include "daemon/stage/serve/rows_batch.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/stage/stage_go.h"

/* As they lie in a message: little-endian, as all data messages (message.h). */
struct wire_head {
    uint32_t is_end, npieces, nrows, nchoices, first_hidden, nhidden, nblocks, nadjust, nmasks, nscores;
};
struct wire_piece {
    uint32_t at, n, adapter, nblocks, state, from, keep, guessed;
};
struct wire_choice {
    uint32_t row, top, wants_logprob, top_k;
    uint64_t index, seed;
    float temperature, top_p, min_p;
    uint32_t nadjust, is_masked, unused;
};

static size_t blocks_of(size_t positions)
{
    return (positions + STAGE_KV_BLOCK - 1) / STAGE_KV_BLOCK;
}

static size_t mask_bytes(size_t vocab)
{
    return sample_words(vocab) * sizeof(uint64_t);
}

size_t rows_batch_most(const struct job_plan *p)
{
    return sizeof(struct wire_head) + p->tokens * sizeof(struct rows_score) +
           p->seqs * (sizeof(struct wire_piece) + blocks_of(p->positions) * sizeof(uint32_t) +
                      sizeof(struct wire_choice) + GO_ADJUST_MAX * sizeof(struct sample_adjust) +
                      mask_bytes(p->vocab));
}

size_t rows_answer_size(const struct rows_batch *b, size_t dim)
{
    size_t size = b->nhidden * dim * sizeof(float);
    for (size_t i = 0; i < b->nchoices; i++)
        size += sizeof(struct rows_token) + b->choices[i].top * sizeof(struct likely);
    for (size_t i = 0; i < b->nscores; i++)
        size += sizeof(struct rows_token) + b->scores[i].top * sizeof(struct likely);
    return size;
}

/* --- encoding --------------------------------------------------------------------------------- */

static uint8_t *put(uint8_t *out, const void *from, size_t n)
{
    if (n)
        memcpy(out, from, n);
    return out + n;
}

static struct wire_head head_of(const struct rows_batch *b)
{
    struct wire_head head = {.is_end = b->is_end,
                             .npieces = (uint32_t)b->npieces,
                             .nrows = (uint32_t)b->nrows,
                             .nchoices = (uint32_t)b->nchoices,
                             .nscores = (uint32_t)b->nscores,
                             .first_hidden = b->first_hidden,
                             .nhidden = b->nhidden};
    for (size_t i = 0; i < b->npieces; i++)
        head.nblocks += (uint32_t)b->pieces[i].nblocks;
    for (size_t i = 0; i < b->nchoices; i++) {
        head.nadjust += (uint32_t)b->choices[i].how.nadjust;
        head.nmasks += b->choices[i].how.allowed != NULL;
    }
    return head;
}

static uint64_t size_of_head(const struct wire_head *h, size_t vocab)
{
    return sizeof *h + (uint64_t)h->npieces * sizeof(struct wire_piece) +
           (uint64_t)h->nchoices * sizeof(struct wire_choice) +
           (uint64_t)h->nscores * sizeof(struct rows_score) +
           (uint64_t)h->nadjust * sizeof(struct sample_adjust) + (uint64_t)h->nblocks * sizeof(uint32_t) +
           (uint64_t)h->nmasks * mask_bytes(vocab);
}

size_t rows_batch_size(const struct rows_batch *b, size_t vocab)
{
    const struct wire_head head = head_of(b);
    return (size_t)size_of_head(&head, vocab);
}

void rows_batch_encode(uint8_t *out, const struct rows_batch *b, size_t vocab)
{
    const struct wire_head head = head_of(b);
    uint8_t *at = put(out, &head, sizeof head);
    for (size_t i = 0; i < b->nchoices; i++) {
        const struct rows_choice *c = &b->choices[i];
        const struct wire_choice w = {.row = c->row,
                                      .top = c->top,
                                      .wants_logprob = c->wants_logprob,
                                      .top_k = c->how.top_k,
                                      .index = c->index,
                                      .seed = c->how.seed,
                                      .temperature = c->how.temperature,
                                      .top_p = c->how.top_p,
                                      .min_p = c->how.min_p,
                                      .nadjust = (uint32_t)c->how.nadjust,
                                      .is_masked = c->how.allowed != NULL};
        at = put(at, &w, sizeof w);
    }
    for (size_t i = 0; i < b->npieces; i++) {
        const struct stage_piece *s = &b->pieces[i];
        const struct wire_piece w = {.at = (uint32_t)s->at,
                                     .n = (uint32_t)s->n,
                                     .adapter = s->adapter,
                                     .nblocks = (uint32_t)s->nblocks,
                                     .state = s->state,
                                     .from = s->from,
                                     .keep = s->keep,
                                     .guessed = s->guessed};
        at = put(at, &w, sizeof w);
    }
    at = put(at, b->scores, b->nscores * sizeof *b->scores);
    for (size_t i = 0; i < b->nchoices; i++)
        at = put(at, b->choices[i].how.adjust, b->choices[i].how.nadjust * sizeof(struct sample_adjust));
    for (size_t i = 0; i < b->npieces; i++)
        at = put(at, b->pieces[i].blocks, b->pieces[i].nblocks * sizeof(uint32_t));
    for (size_t i = 0; i < b->nchoices; i++)
        if (b->choices[i].how.allowed)
            at = put(at, b->choices[i].how.allowed, mask_bytes(vocab));
}

/* --- decoding --------------------------------------------------------------------------------- */

static int refuse(struct err *err, uint32_t from, const char *what, size_t is)
{
    return err_set(
        err, -EBADMSG,
        "rank %u sent a microbatch that does not fit the plan: %s is %zu; same ringd on all nodes?", from,
        what, is);
}

static int check_head(const struct wire_head *h, size_t n, const struct job_plan *p, uint32_t from,
                      struct err *err)
{
    if (size_of_head(h, p->vocab) != n)
        return refuse(err, from, "its length", n);
    static const struct wire_head end = {.is_end = 1};
    if (h->is_end)
        return memcmp(h, &end, sizeof end) ? refuse(err, from, "what the last one holds beside its end", n)
                                           : 0;
    if (!h->npieces || h->npieces > p->seqs)
        return refuse(err, from, "the number of its pieces", h->npieces);
    if (!h->nrows || h->nrows > p->tokens)
        return refuse(err, from, "the number of its rows", h->nrows);
    if (h->nchoices > p->seqs || h->nchoices > h->nrows)
        return refuse(err, from, "the number of tokens to choose", h->nchoices);
    if (h->nscores > h->nrows)
        return refuse(err, from, "the number of tokens that are scored", h->nscores);
    if (h->nhidden > h->nrows || h->first_hidden > h->nrows - h->nhidden)
        return refuse(err, from, "the number of rows whose values are wanted", h->nhidden);
    return 0;
}

static int check_piece(const struct wire_piece *w, const struct job_plan *p, uint32_t from, struct err *err)
{
    const uint64_t end = (uint64_t)w->at + w->n;
    if (!w->n || end > p->positions)
        return refuse(err, from, "the last position of a piece", (size_t)end);
    if (w->nblocks != blocks_of((size_t)end))
        return refuse(err, from, "the number of blocks of a piece", w->nblocks);
    if (w->adapter != STAGE_NO_ADAPTER && (p->tune.kind != TUNE_LORA || w->adapter > p->nmore))
        return refuse(err, from, "the adapter of a piece", w->adapter);
    if (w->state >= job_plan_states(p))
        return refuse(err, from, "the state of a piece", w->state);
    if (w->from > p->kept_states || w->keep > p->kept_states)
        return refuse(err, from, "the kept state of a piece", w->from > w->keep ? w->from : w->keep);
    if (w->guessed > p->guesses)
        return refuse(err, from, "the number of guesses of a piece", w->guessed);
    return 0;
}

static bool is_share(float x)
{
    return x >= 0 && x <= 1;
}

static int check_choice(const struct wire_choice *w, size_t nrows, const struct job_plan *p, uint32_t from,
                        struct err *err)
{
    if (w->row >= nrows)
        return refuse(err, from, "the row of a token to choose", w->row);
    if (w->top > GO_TOP_MAX || w->top > p->vocab)
        return refuse(err, from, "the number of likeliest tokens", w->top);
    if (w->nadjust > GO_ADJUST_MAX)
        return refuse(err, from, "the number of adjusted tokens", w->nadjust);
    if (!isfinite(w->temperature) || w->temperature < 0 || !is_share(w->top_p) || !is_share(w->min_p))
        return refuse(err, from, "what a choice depends on: the row", w->row);
    return 0;
}

static int check_scores(const struct rows_score *s, size_t n, size_t nrows, const struct job_plan *p,
                        uint32_t from, struct err *err)
{
    for (size_t i = 0; i < n; i++) {
        if (s[i].row >= nrows || (i && s[i].row <= s[i - 1].row))
            return refuse(err, from, "the row of a token that is scored", s[i].row);
        if (s[i].token >= p->vocab)
            return refuse(err, from, "a token that is scored", s[i].token);
        if (s[i].top > GO_TOP_MAX || s[i].top > p->vocab)
            return refuse(err, from, "the number of likeliest tokens", s[i].top);
    }
    return 0;
}

static int check_adjusts(const struct sample_adjust *a, size_t n, const struct job_plan *p, uint32_t from,
                         struct err *err)
{
    for (size_t i = 0; i < n; i++)
        if (a[i].id >= p->vocab || !isfinite(a[i].repeat) || a[i].repeat <= 0 || !isfinite(a[i].add))
            return refuse(err, from, "an adjusted token", a[i].id);
    return 0;
}

/* At least one token, and none that the model lacks. */
static int check_masks(const uint64_t *masks, size_t n, const struct job_plan *p, uint32_t from,
                       struct err *err)
{
    const size_t words = sample_words(p->vocab), odd = p->vocab % 64;
    for (size_t i = 0; i < n; i++, masks += words) {
        uint64_t any = 0;
        for (size_t k = 0; k < words; k++)
            any |= masks[k];
        if (!any || (odd && masks[words - 1] >> odd))
            return refuse(err, from, "a set of allowed tokens that has none, or one that is no token: it", i);
    }
    return 0;
}

/* Where the arrays of a decoded one begin, in one allocation; those of the widest members first.
 */
struct rows_room {
    struct stage_piece *pieces;
    struct rows_choice *choices;
    uint64_t *masks;
    struct sample_adjust *adjust;
    struct rows_score *scores;
    uint32_t *blocks;
};

static void *make_room(struct rows_room *ret, const struct wire_head *h, size_t vocab)
{
    const size_t pieces = h->npieces * sizeof *ret->pieces, choices = h->nchoices * sizeof *ret->choices,
                 masks = h->nmasks * mask_bytes(vocab), adjust = h->nadjust * sizeof *ret->adjust,
                 scores = h->nscores * sizeof *ret->scores, blocks = h->nblocks * sizeof *ret->blocks;
    uint8_t *room = malloc(pieces + choices + masks + adjust + scores + blocks + 1), *at = room;
    if (!room)
        return NULL;
    ret->pieces = (struct stage_piece *)(void *)at;
    ret->choices = (struct rows_choice *)(void *)(at += pieces);
    ret->masks = (uint64_t *)(void *)(at += choices);
    ret->adjust = (struct sample_adjust *)(void *)(at += masks);
    ret->scores = (struct rows_score *)(void *)(at += adjust);
    ret->blocks = (uint32_t *)(void *)(at + scores);
    return room;
}

static int read_choices(struct rows_batch *b, const struct wire_head *h, const struct rows_room *room,
                        const uint8_t *in, const struct job_plan *p, uint32_t from, struct err *err)
{
    const size_t words = sample_words(p->vocab);
    size_t adjusts = 0, masks = 0;
    for (size_t i = 0; i < h->nchoices; i++) {
        struct wire_choice w;
        memcpy(&w, in + i * sizeof w, sizeof w);
        int r = check_choice(&w, h->nrows, p, from, err);
        if (!r && w.nadjust > h->nadjust - adjusts)
            r = refuse(err, from, "the number of adjusted tokens", w.nadjust);
        if (!r && w.is_masked && masks == h->nmasks)
            r = refuse(err, from, "the number of sets of allowed tokens", masks);
        if (r)
            return r;
        b->choices[i] =
            (struct rows_choice){.row = w.row,
                                 .top = w.top,
                                 .wants_logprob = w.wants_logprob,
                                 .index = w.index,
                                 .how = {.temperature = w.temperature,
                                         .top_p = w.top_p,
                                         .min_p = w.min_p,
                                         .top_k = w.top_k,
                                         .seed = w.seed,
                                         .adjust = room->adjust + adjusts,
                                         .nadjust = w.nadjust,
                                         .allowed = w.is_masked ? room->masks + masks * words : NULL}};
        adjusts += w.nadjust;
        masks += w.is_masked != 0;
    }
    if (masks != h->nmasks)
        return refuse(err, from, "the number of sets of allowed tokens", h->nmasks);
    return adjusts == h->nadjust ? 0 : refuse(err, from, "the number of adjusted tokens", h->nadjust);
}

static int read_pieces(struct rows_batch *b, const struct wire_head *h, const struct rows_room *room,
                       const uint8_t *in, const struct job_plan *p, uint32_t from, struct err *err)
{
    size_t blocks = 0, rows = 0;
    for (size_t i = 0; i < h->npieces; i++) {
        struct wire_piece w;
        memcpy(&w, in + i * sizeof w, sizeof w);
        int r = check_piece(&w, p, from, err);
        if (!r && w.nblocks > h->nblocks - blocks)
            r = refuse(err, from, "the number of blocks of a piece", w.nblocks);
        if (r)
            return r;
        b->pieces[i] = (struct stage_piece){.blocks = room->blocks + blocks,
                                            .nblocks = w.nblocks,
                                            .at = w.at,
                                            .n = w.n,
                                            .adapter = w.adapter,
                                            .state = w.state,
                                            .from = w.from,
                                            .keep = w.keep,
                                            .guessed = w.guessed};
        blocks += w.nblocks;
        rows += w.n;
    }
    for (size_t i = 0; i < blocks; i++)
        if (room->blocks[i] >= p->kv_blocks)
            return refuse(err, from, "a block", room->blocks[i]);
    return rows == h->nrows && blocks == h->nblocks ? 0 : refuse(err, from, "the number of its rows", rows);
}

int rows_batch_decode(struct rows_batch *ret, const uint8_t *in, size_t n, const struct job_plan *p,
                      uint32_t from, struct err *err)
{
    struct wire_head h;
    struct rows_room room;
    if (n < sizeof h)
        return refuse(err, from, "its length", n);
    memcpy(&h, in, sizeof h);
    int r = check_head(&h, n, p, from, err);
    if (r)
        return r;
    struct rows_batch b = {.is_end = h.is_end,
                           .npieces = h.npieces,
                           .nrows = h.nrows,
                           .nchoices = h.nchoices,
                           .nscores = h.nscores,
                           .first_hidden = h.first_hidden,
                           .nhidden = h.nhidden,
                           .room = make_room(&room, &h, p->vocab)};
    if (!b.room)
        return err_set(err, -ENOMEM, "out of memory for a microbatch");
    b.pieces = room.pieces;
    b.choices = room.choices;
    b.scores = room.scores;
    const uint8_t *choices = in + sizeof h, *pieces = choices + h.nchoices * sizeof(struct wire_choice),
                  *scores = pieces + h.npieces * sizeof(struct wire_piece),
                  *adjust = scores + h.nscores * sizeof *room.scores,
                  *blocks = adjust + h.nadjust * sizeof *room.adjust,
                  *masks = blocks + h.nblocks * sizeof *room.blocks;
    memcpy(room.scores, scores, h.nscores * sizeof *room.scores);
    memcpy(room.adjust, adjust, h.nadjust * sizeof *room.adjust);
    memcpy(room.masks, masks, h.nmasks * mask_bytes(p->vocab));
    memcpy(room.blocks, blocks, h.nblocks * sizeof *room.blocks);
    r = read_choices(&b, &h, &room, choices, p, from, err);
    if (!r)
        r = read_pieces(&b, &h, &room, pieces, p, from, err);
    if (!r)
        r = check_scores(room.scores, h.nscores, h.nrows, p, from, err);
    if (!r)
        r = check_adjusts(room.adjust, h.nadjust, p, from, err);
    if (!r)
        r = check_masks(room.masks, h.nmasks, p, from, err);
    if (r)
        rows_batch_done(&b);
    else
        *ret = b;
    return r;
}

void rows_batch_done(struct rows_batch *b)
{
    free(b->room);
    b->room = NULL;
}
