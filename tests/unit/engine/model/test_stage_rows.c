/* SPDX-License-Identifier: MIT
 *
 * Serving: rows of many sequences in one call. Sequences that are served together, in drawn pieces,
 * blocks and company, get the bits they get alone and token by token from stage_decode: of every
 * family and stored type, with adapters by row, any number of threads, and stages cut in two. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/engine/model/rows_world.h"

/* Each sequence alone, token by token, where no other adapter is: by stage_decode, where keys and
 * values are F32. */
static void decode_alone(struct world *w)
{
    const size_t vocab = w->c.vocab;
    w->want = calloc(SEQS * LENGTH * vocab, sizeof *w->want);
    for (size_t i = 0; i < SEQS; i++) {
        const uint32_t adapter = adapter_of(w, i);
        struct world one = *w;
        struct line l;
        struct err err;
        one.adapters = adapter != STAGE_NO_ADAPTER;
        if (one.adapters) {
            one.tune[0] = w->tune[adapter];
            one.first = adapter;
        }
        line_open(&l, &one, 1, 1, false);
        for (size_t t = 0; t < LENGTH; t++) {
            must(stage_decode(l.stage[0], &w->ids[i][t], NULL, NULL, 1, t, &err), &err);
            memcpy(w->want + (i * LENGTH + t) * vocab, stage_logits(l.stage[0]), vocab * sizeof(float));
        }
        line_close(&l);
    }
}

static void rows_alone(struct world *w)
{
    struct line l;
    const size_t vocab = w->c.vocab;
    uint32_t blocks[TABLE];
    const uint32_t row = 0;
    for (uint32_t b = 0; b < TABLE; b++)
        blocks[b] = b;
    line_open(&l, w, 1, 1, true);
    w->want = calloc(SEQS * LENGTH * vocab, sizeof *w->want);
    for (size_t i = 0; i < SEQS; i++)
        for (size_t t = 0; t < LENGTH; t++) {
            const struct stage_piece piece = {
                .blocks = blocks, .nblocks = TABLE, .at = t, .n = 1, .adapter = adapter_of(w, i)};
            memcpy(w->want + (i * LENGTH + t) * vocab, line_rows(&l, &piece, 1, &w->ids[i][t], &row, 1),
                   vocab * sizeof(float));
        }
    line_close(&l);
}

/* --- drawn schedules -------------------------------------------------------------------------- */

struct served {
    uint32_t blocks[SEQS][TABLE];
    size_t done[SEQS];  /* positions that stay, */
    size_t right[SEQS]; /* and those behind them that were guessed, and are of the text */
    bool is_kept;       /* what the last two sequences have in common, as the first kept state */
};

/* A piece of a call: whose it is, and how many of its last rows are not of the text. */
struct drawn {
    size_t seq, wrong;
};

static bool has_state(const struct world *w)
{
    return config_has_state(&w->c, 0, w->c.layers) || (w->rings && w->c.window);
}

/* Blocks in a drawn order; the last sequence reads the first blocks of the one before. */
static void draw_blocks(struct served *s, struct rng *rng)
{
    uint32_t free_blocks[BLOCKS];
    rng_permutation(rng, free_blocks, BLOCKS);
    for (size_t i = 0, at = 0; i < SEQS; i++)
        for (size_t b = 0; b < TABLE; b++)
            s->blocks[i][b] = free_blocks[at++];
    memcpy(s->blocks[SEQS - 1], s->blocks[SEQS - 2], SHARED / STAGE_KV_BLOCK * sizeof **s->blocks);
    s->done[SEQS - 1] = SHARED;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* The last sequence begins with the state that the one before it keeps where they part. */
static void draw_kept(struct stage_piece *p, size_t seq)
{
    if (seq == SEQS - 2 && p->at < SHARED) {
        p->n = least(p->n, SHARED - p->at);
        p->keep = p->at + p->n == SHARED;
    }
    p->from = seq == SEQS - 1 && p->at == SHARED;
}

/* Behind what is known of a text some wrong guesses; and perhaps more may be taken back, of the
 * piece and of right guesses before it. */
static void draw_guesses(struct stage_piece *p, struct drawn *d, size_t stays, size_t room, struct rng *rng)
{
    d->wrong = least(least(rng_below(rng, GUESSES + 1), room), LENGTH - p->at - p->n);
    p->n += d->wrong;
    p->guessed = (uint32_t)(d->wrong + rng_below(rng, least(GUESSES, p->at + p->n - stays) - d->wrong + 1));
}

/* Some sequences' next pieces, one token or many; perhaps two pieces of one sequence. */
static size_t draw_pieces(const struct world *w, struct served *s, struct rng *rng,
                          struct stage_piece *pieces, struct drawn *drawn)
{
    size_t n = 0, rows = 0;
    bool is_taken[SEQS] = {false};
    for (size_t k = 0; k < 2 * SEQS; k++) {
        const size_t i = rng_below(rng, SEQS),
                     at = least(s->done[i] + rng_below(rng, s->right[i] + 1), LENGTH - 1),
                     many = least(least(rng_below(rng, 3) ? 1 : 1 + rng_below(rng, 40), LENGTH - at),
                                  ROWS - rows);
        if (!many || s->done[i] == LENGTH || is_taken[i] ||
            (i == SEQS - 1 && (has_state(w) ? !s->is_kept : s->done[i - 1] < SHARED)))
            continue;
        struct stage_piece *p = &pieces[n];
        *p = (struct stage_piece){.blocks = s->blocks[i],
                                  .nblocks = TABLE,
                                  .at = at,
                                  .n = many,
                                  .adapter = adapter_of(w, i),
                                  .state = (uint32_t)i};
        drawn[n] = (struct drawn){.seq = i};
        if (has_state(w))
            draw_kept(p, i);
        if (rng_below(rng, 2) && !p->keep)
            draw_guesses(p, &drawn[n], s->done[i], ROWS - rows - p->n, rng);
        is_taken[i] = has_state(w) || p->guessed;
        s->done[i] = at + p->n - p->guessed;
        s->right[i] = p->guessed - drawn[n].wrong;
        rows += p->n;
        n++;
    }
    return n;
}

static bool is_done(const struct served *s)
{
    for (size_t i = 0; i < SEQS; i++)
        if (s->done[i] < LENGTH)
            return false;
    return true;
}

/* Rows behind a wrong guess are nobody's. */
static void check_call(const struct world *w, struct line *l, const struct stage_piece *pieces,
                       const struct drawn *drawn, size_t n)
{
    const size_t vocab = w->c.vocab;
    uint32_t ids[ROWS], rows[ROWS];
    size_t all = 0;
    for (size_t p = 0; p < n; p++)
        for (size_t t = 0; t < pieces[p].n; t++, all++) {
            const bool is_wrong = t >= pieces[p].n - drawn[p].wrong;
            ids[all] = (uint32_t)((w->ids[drawn[p].seq][pieces[p].at + t] + is_wrong) % vocab);
            rows[all] = (uint32_t)all;
        }
    const float *logits = line_rows(l, pieces, n, ids, rows, all);
    for (size_t p = 0, row = 0; p < n; row += pieces[p++].n)
        for (size_t t = 0; t < pieces[p].n - drawn[p].wrong; t++)
            if (memcmp(logits + (row + t) * vocab,
                       w->want + (drawn[p].seq * LENGTH + pieces[p].at + t) * vocab,
                       vocab * sizeof *logits) != 0)
                fail_msg("%s, sequence %zu, position %zu of a piece of %zu from %zu on, among %zu pieces, "
                         "is not what it is alone",
                         w->c.family, drawn[p].seq, pieces[p].at + t, pieces[p].n, pieces[p].at, n);
}

static void check_world(struct world *w)
{
    for (int threads = 1; threads <= 3; threads++) {
        const size_t stages = threads == 2 ? 2 : 1;
        struct rng rng = rng_for((uint64_t)threads, "schedule");
        struct served s = {0};
        struct line l;
        w->rings = threads > 1;
        line_open(&l, w, stages, threads, true);
        draw_blocks(&s, &rng);
        while (!is_done(&s)) {
            struct stage_piece pieces[2 * SEQS];
            struct drawn drawn[2 * SEQS];
            const size_t n = draw_pieces(w, &s, &rng, pieces, drawn);
            if (n)
                check_call(w, &l, pieces, drawn, n);
            for (size_t i = 0; i < n; i++)
                s.is_kept = s.is_kept || pieces[i].keep;
        }
        line_close(&l);
    }
}

static void families_are_served_as_they_decode(void **state)
{
    (void)state;
    static const char *const types[] = {"float32", "bfloat16", "float16"};
    for (size_t i = 0; i < MODELS; i++) {
        struct world w;
        world_make(&w, models[i], types[i % 3]);
        decode_alone(&w);
        check_world(&w);
        world_free(&w);
    }
}

static void adapters_by_row(void **state)
{
    (void)state;
    for (size_t i = 0; i < MODELS; i++) {
        struct world w;
        world_make(&w, models[i], "float32");
        world_adapters(&w);
        decode_alone(&w);
        const size_t apart = LENGTH * w.c.vocab;
        assert_true(memcmp(w.want + (SEQS - 1) * apart, w.want + (SEQS - 2) * apart,
                           SHARED * w.c.vocab * sizeof(float)) == 0); /* the same text */
        check_world(&w);
        world_free(&w);
    }
}

static void adapters_on_other_linears(void **state)
{
    (void)state;
    for (size_t i = 0; i < MODELS; i++) {
        struct world w;
        world_make(&w, models[i], "float32");
        spread_adapters(&w);
        decode_alone(&w);
        check_world(&w);
        world_free(&w);
    }
}

static void quantized_weights(void **state)
{
    (void)state;
    for (size_t bits = 4; bits <= 8; bits += 4)
        for (int compute = NUM_F32; compute <= NUM_INT8; compute++) {
            struct world w;
            world_make(&w, wide, "bfloat16");
            w.bits = bits;
            w.compute = (enum num_compute)compute;
            world_adapters(&w);
            decode_alone(&w);
            check_world(&w);
            world_free(&w);
        }
}

static void wide_rows(void **state)
{
    (void)state;
    static const char *const texts[] = {wide, wide_fp8, many_heads};
    for (size_t i = 0; i < 3; i++) {
        struct world w;
        world_make(&w, texts[i], "bfloat16");
        assert_int_equal(w.c.fp8, i == 1);
        decode_alone(&w);
        check_world(&w);
        world_free(&w);
    }
}

/* Rounded keys and values have bits of their own; these are invariant too, and near the exact. */
static void check_rounded(const char *model, enum kv_type type, bool adapters, double most)
{
    struct world w;
    world_make(&w, model, "float32");
    if (adapters)
        world_adapters(&w);
    rows_alone(&w);
    float *exact = w.want;
    w.kv_type = type;
    rows_alone(&w);
    const double off = near_logprobs(w.want, exact, SEQS * LENGTH, w.c.vocab);
    if (!(off > 0 && off < most))
        fail_msg("%s with keys and values in %s is off by %g", w.c.family, kv_type_name(type), off);
    free(exact);
    check_world(&w);
    world_free(&w);
}

static void rounded_keys_and_values(void **state)
{
    (void)state;
    for (size_t i = 0; i < ROUNDED; i++)
        check_rounded(models[i], KV_INT8, i % 2, 0.015);
    for (size_t i = 0; i < ROUNDED; i += 2)
        check_rounded(models[i], KV_BF16, false, 0.003);
    check_rounded(latent, KV_INT8, false, 0.015);
    check_rounded(models[SPARSE], KV_INT8, false, 0.2); /* other keys may be chosen */
    check_rounded(wide, KV_INT8, true, 0.05);           /* several groups in a head */
}

/* --- the head, and what is refused ------------------------------------------------------------ */

static void open_small(struct world *w, struct line *l, uint32_t blocks[TABLE])
{
    world_make(w, models[0], "float32");
    line_open(l, w, 1, 1, true);
    for (uint32_t b = 0; b < TABLE; b++)
        blocks[b] = TABLE - b;
}

static void hidden_and_logprobs(void **state)
{
    (void)state;
    struct world w;
    struct line l;
    struct err err;
    uint32_t blocks[TABLE];
    open_small(&w, &l, blocks);
    const struct stage_piece piece = {
        .blocks = blocks, .nblocks = TABLE, .n = 7, .adapter = STAGE_NO_ADAPTER};
    const uint32_t rows[] = {6, 2};
    const float *logits = line_rows(&l, &piece, 1, w.ids[0], rows, 2);
    float hidden[2 * 20], again[2 * 41], first[41];
    must(stage_rows_hidden(l.stage[0], rows, 2, hidden, &err), &err);
    gemm_xwt(l.num, again, hidden, l.stage[0]->head_w, 2, false);
    assert_same_bits(again, logits, 2 * w.c.vocab, "logits of the hidden states");
    memcpy(first, logits, sizeof first);
    struct likely a[3], b[3];
    const float got = stage_rows_logprob(l.stage[0], 1, 5, a, 3);
    assert_true(got == xent_row(l.num, logits + w.c.vocab, w.c.vocab, 5, b, 3));
    assert_memory_equal(a, b, sizeof a);
    logits = line_rows(&l, &piece, 1, w.ids[0], rows, 1);
    assert_same_bits(logits, first, w.c.vocab, "logits of one row");
    line_close(&l);
    world_free(&w);
}

static void refuses_bad_rows(void **state)
{
    (void)state;
    struct world w;
    struct line l;
    struct err err;
    uint32_t blocks[TABLE], ids[ROWS + 1] = {0};
    open_small(&w, &l, blocks);
    struct stage *s = l.stage[0];
    struct stage_piece p = {.blocks = blocks, .nblocks = 2, .at = 30, .n = 3, .adapter = STAGE_NO_ADAPTER};
    must_refuse(stage_rows(s, &p, 1, ids, NULL, NULL, &err), -ERANGE, &err,
                "piece 0 ends at position 33, but its table has blocks for 32 positions");
    p = (struct stage_piece){.blocks = blocks, .nblocks = TABLE, .n = 3, .adapter = STAGE_NO_ADAPTER};
    blocks[0] = BLOCKS;
    must_refuse(stage_rows(s, &p, 1, ids, NULL, NULL, &err), -ERANGE, &err, "piece 0 lies in block 48");
    blocks[0] = 7;
    ids[2] = 41;
    must_refuse(stage_rows(s, &p, 1, ids, NULL, NULL, &err), -ERANGE, &err, "token 41 is outside");
    ids[2] = 0;
    p.adapter = 1;
    must_refuse(stage_rows(s, &p, 1, ids, NULL, NULL, &err), -ERANGE, &err, "adapter 1, but there are 1");
    p.adapter = 0;
    p.at = SIZE_MAX;
    must_refuse(stage_rows(s, &p, 1, ids, NULL, NULL, &err), -E2BIG, &err, "longest has 140");
    p.at = LENGTH - 2;
    must_refuse(stage_rows(s, &p, 1, ids, NULL, NULL, &err), -E2BIG, &err, "longest has 140");
    p.at = 0, p.n = 0;
    must_refuse(stage_rows(s, &p, 1, ids, NULL, NULL, &err), -EINVAL, &err, "no rows");
    must_refuse(stage_rows(s, &p, 0, ids, NULL, NULL, &err), -EINVAL, &err, "there are no rows");
    p.n = ROWS + 1;
    must_refuse(stage_rows(s, &p, 1, ids, NULL, NULL, &err), -E2BIG, &err, "more rows than the plan's 48");
    p.n = 3;
    must(stage_rows(s, &p, 1, ids, NULL, NULL, &err), &err);
    const float *logits;
    const uint32_t wrong = 3;
    must_refuse(stage_rows_logits(s, &wrong, 1, &logits, &err), -ERANGE, &err, "row 3 is asked for");
    must_refuse(stage_rows_logits(s, &wrong, ROWS + 1, &logits, &err), -E2BIG, &err, "the plan allows 48");
    must_refuse(stage_decode(s, ids, NULL, NULL, 1, 0, &err), -E2BIG, &err, "not within");
    line_close(&l);
    line_open(&l, &w, 1, 1, false);
    must_refuse(stage_rows(l.stage[0], &p, 1, ids, NULL, NULL, &err), -EINVAL, &err, "no paged KV pool");
    line_close(&l);
    world_free(&w);
}

/* In chunks of a prompt and token by token: logits behind each call, [calls, vocab]. */
static void decode_in_chunks(const struct world *w, struct stage *s, float *logits)
{
    struct err err;
    for (size_t at = 0, n, call = 0; at < LENGTH; at += n, call++) {
        n = call % 3 == 2 ? 1 : ROWS;
        n = n < LENGTH - at ? n : LENGTH - at;
        must(stage_decode(s, w->ids[0] + at, NULL, NULL, n, at, &err), &err);
        memcpy(logits + call * w->c.vocab, stage_logits(s), w->c.vocab * sizeof *logits);
    }
}

static void open_decoding(struct stage **ret, struct num *num, const struct world *w, size_t tokens,
                          struct stage_bytes *ret_bytes)
{
    struct err err;
    const struct stage_spec spec = {.model_dir = w->dir.path,
                                    .config = w->c,
                                    .tune = {.end_layer = w->c.layers},
                                    .end_layer = w->c.layers,
                                    .embed = true,
                                    .head = true,
                                    .kv = true,
                                    .slots = 1,
                                    .tokens = tokens,
                                    .seqs = 1,
                                    .positions = LENGTH};
    must(stage_measure(ret_bytes, &spec, &err), &err);
    must(stage_open(ret, num, &spec, &err), &err);
}

/* With room for the whole text in one call, a cache keeps the whole text. */
static void a_cache_keeps_a_window(void **state)
{
    (void)state;
    for (size_t i = 0; i < MODELS; i++) {
        struct world w;
        struct num *num;
        struct stage *ring, *whole;
        struct stage_bytes bytes, all;
        struct err err;
        static float got[LENGTH * 41], want[LENGTH * 41];
        world_make(&w, models[i], "float32");
        if (w.c.window) {
            must(num_new(&num, 2, &err), &err);
            open_decoding(&ring, num, &w, ROWS, &bytes);
            open_decoding(&whole, num, &w, LENGTH, &all);
            assert_true(bytes.kv < all.kv);
            decode_in_chunks(&w, whole, want);
            decode_in_chunks(&w, ring, got);
            decode_in_chunks(&w, ring, got); /* what is left of another text is not seen */
            assert_same_bits(got, want, 4 * w.c.vocab, w.c.family);
            must(stage_decode(whole, w.ids[0] + LENGTH - 9, NULL, NULL, 9, LENGTH - 9, &err), &err);
            must(stage_decode(ring, w.ids[0] + LENGTH - 9, NULL, NULL, 9, LENGTH - 9, &err), &err);
            assert_same_bits(stage_logits(ring), stage_logits(whole), w.c.vocab, "gone back a little");
            must_refuse(stage_decode(ring, w.ids[0] + 10, NULL, NULL, 1, 10, &err), -EINVAL, &err,
                        "position 10 was asked for behind position 140, but layers with a window keep only");
            stage_close(ring);
            stage_close(whole);
            num_free(num);
        }
        world_free(&w);
    }
}

/* A state is of all positions before: it goes on from there, or begins again. */
static void states_go_on(void **state)
{
    (void)state;
    struct world w;
    struct line l;
    struct err err;
    uint32_t blocks[TABLE], ids[ROWS] = {0};
    world_make(&w, models[STATES], "float32");
    for (uint32_t b = 0; b < TABLE; b++)
        blocks[b] = b;
    line_open(&l, &w, 1, 1, true);
    struct stage *s = l.stage[0];
    const struct stage_piece whole = {
        .blocks = blocks, .nblocks = TABLE, .n = 7, .adapter = STAGE_NO_ADAPTER, .state = 1, .guessed = 2};
    struct stage_piece p[2] = {whole, whole};
    must_refuse(stage_rows(s, p, 2, ids, NULL, NULL, &err), -EINVAL, &err,
                "pieces 0 and 1 have the same state 1");
    must(stage_rows(s, p, 1, ids, NULL, NULL, &err), &err);
    p[0].n = p[0].guessed = 1;
    p[0].at = 4;
    must_refuse(stage_rows(s, p, 1, ids, NULL, NULL, &err), -EINVAL, &err,
                "piece 0 begins at position 4, but its state has reached 5");
    p[0].at = 8;
    must_refuse(stage_rows(s, p, 1, ids, NULL, NULL, &err), -EINVAL, &err, "has reached 7");
    p[0].at = 6;
    p[0].guessed = 3;
    must_refuse(stage_rows(s, p, 1, ids, NULL, NULL, &err), -EINVAL, &err,
                "piece 0 guesses 3 positions, but its state has reached 5");
    p[0].guessed = GUESSES + 1;
    must_refuse(stage_rows(s, p, 1, ids, NULL, NULL, &err), -ERANGE, &err,
                "piece 0 has 7 guesses, but the plan allows 6");
    p[0].guessed = 0;
    p[0].state = SEQS;
    must_refuse(stage_rows(s, p, 1, ids, NULL, NULL, &err), -ERANGE, &err,
                "piece 0 wants state 5, but there are 5");
    p[0].state = 1;
    p[0].keep = KEPT + 1;
    must_refuse(stage_rows(s, p, 1, ids, NULL, NULL, &err), -ERANGE, &err,
                "piece 0 wants kept state 3, but there are 2");
    p[0].keep = 0;
    p[0].from = 2;
    must_refuse(stage_rows(s, p, 1, ids, NULL, NULL, &err), -EINVAL, &err, "has reached 0");
    p[0].from = 0;
    must(stage_rows(s, p, 1, ids, NULL, NULL, &err), &err);
    must(stage_rows(s, &whole, 1, ids, NULL, NULL, &err), &err);
    line_close(&l);
    line_open(&l, &w, 1, 1, false);
    must(stage_decode(l.stage[0], ids, NULL, NULL, 5, 0, &err), &err);
    must_refuse(stage_decode(l.stage[0], ids, NULL, NULL, 1, 3, &err), -EINVAL, &err,
                "position 3 was asked for behind position 5, but layers with a state only go on");
    must(stage_decode(l.stage[0], ids, NULL, NULL, 1, 5, &err), &err);
    must(stage_decode(l.stage[0], ids, NULL, NULL, 1, 0, &err), &err);
    line_close(&l);
    world_free(&w);
}

static void refuses_bad_pools(void **state)
{
    (void)state;
    struct world w;
    struct err err;
    struct stage_bytes few, many;
    world_make(&w, models[0], "float32");
    struct stage_spec spec = {.model_dir = w.dir.path,
                              .config = w.c,
                              .end_layer = 2,
                              .embed = true,
                              .head = true,
                              .kv = true,
                              .slots = 1,
                              .tokens = 8,
                              .seqs = 1,
                              .positions = 64,
                              .kv_blocks = 10,
                              .logit_rows = 8};
    must(stage_measure(&few, &spec, &err), &err);
    spec.kv_blocks = 20;
    must(stage_measure(&many, &spec, &err), &err);
    assert_true(many.kv - few.kv >= 10 * 2 * 2 * STAGE_KV_BLOCK * w.c.kv_heads * w.c.head * sizeof(float));
    assert_int_equal(many.work, few.work);
    assert_int_equal(many.slots, few.slots);
    const size_t rows = 20 * STAGE_KV_BLOCK * 2 * 2 * w.c.kv_heads, slack = 1024;
    spec.kv_type = KV_BF16;
    must(stage_measure(&few, &spec, &err), &err);
    assert_in_range(few.kv, rows * w.c.head * 2, rows * w.c.head * 2 + slack);
    spec.kv_type = KV_INT8;
    must(stage_measure(&few, &spec, &err), &err);
    assert_in_range(few.kv, rows * (w.c.head + 2), rows * (w.c.head + 2) + slack);
    spec.kv_type = KV_F32;
    spec.kv = false;
    must_refuse(stage_measure(&few, &spec, &err), -EINVAL, &err, "serves, and does nothing else");
    spec.kv = true;
    spec.kv_blocks = SIZE_MAX;
    must_refuse(stage_measure(&few, &spec, &err), -EOVERFLOW, &err, "can be numbered");
    world_free(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(families_are_served_as_they_decode),
        cmocka_unit_test(adapters_by_row),
        cmocka_unit_test(adapters_on_other_linears),
        cmocka_unit_test(quantized_weights),
        cmocka_unit_test(wide_rows),
        cmocka_unit_test(rounded_keys_and_values),
        cmocka_unit_test(hidden_and_logprobs),
        cmocka_unit_test(refuses_bad_rows),
        cmocka_unit_test(a_cache_keeps_a_window),
        cmocka_unit_test(states_go_on),
        cmocka_unit_test(refuses_bad_pools),
    };
    return cmocka_run_group_tests_name("stage_rows", tests, NULL, NULL);
}
