/* SPDX-License-Identifier: MIT
 *
 * What a stage needs beside its model grows with what makes it grow, and with nothing else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/stage/plan/stage_room.h"
#include "daemon/stage/train/saver.h"

static const struct config config = {.family = "llama",
                                     .layers = 4,
                                     .dim = 256,
                                     .ffn = 512,
                                     .heads = 4,
                                     .kv_heads = 4,
                                     .head = 64,
                                     .vocab = 1000,
                                     .tied = true,
                                     .dtype = DTYPE_BF16};

static size_t room(const struct job_plan *p, size_t rank, size_t threads)
{
    struct err err = {0};
    size_t n;
    if (stage_room(&n, p, &config, rank, threads, &err))
        fail_msg("%s", err.text);
    return n;
}

/* Two states, and no more than the cap. */
static void what_waits_for_the_disk_has_a_cap(void **state)
{
    (void)state;
    struct job_plan p = {.tune = {.kind = TUNE_FULL, .end_layer = 4}};
    struct config large = config;
    const size_t embedding = config.vocab * config.dim * sizeof(float);
    assert_true(saver_bytes(&p, &config) > 2 * 3 * embedding);
    large.vocab = 1 << 20;
    assert_int_equal(saver_bytes(&p, &large), 64 << 20);
}

static void test_room(void **state)
{
    (void)state;
    struct job_plan p = {.ranks = 3,
                         .stages = 3,
                         .place = {0, 1, 2},
                         .training = true,
                         .tokens = 512,
                         .dim = 256,
                         .tune = {.kind = TUNE_FULL, .end_layer = 4}};
    const size_t message = p.tokens * p.dim * sizeof(float), tied = config.vocab * config.dim * sizeof(float);
    const size_t first = room(&p, 0, 1), middle = room(&p, 1, 1);
    assert_int_equal(room(&p, 2, 1), first - saver_bytes(&p, &config));
    p.tokens *= 2;
    assert_int_equal(room(&p, 0, 1) - first, 3 * message);
    assert_int_equal(room(&p, 1, 1) - middle, 6 * message);
    assert_true(room(&p, 1, 8) > room(&p, 1, 1));
    p.tokens /= 2;
    p.tune.kind = TUNE_NONE;
    const size_t frozen = room(&p, 0, 1);
    p.tune.kind = TUNE_FULL;
    assert_true(room(&p, 0, 1) - frozen >= 2 * tied); /* and the pieces that are saved */
    p.ranks = p.stages = 1;
    assert_true(room(&p, 0, 1) < first - 2 * tied - 3 * message);
}

static struct stage_bytes chunks(const struct job_plan *p, size_t rank)
{
    struct err err = {0};
    struct stage_bytes bytes;
    if (stage_chunks(&bytes, p, &config, rank, &err))
        fail_msg("%s", err.text);
    return bytes;
}

/* Two nodes with two chunks each have what four nodes with one have, but for scratch: of that, what
 * the greedier chunk needs. */
static void test_chunks(void **state)
{
    (void)state;
    struct job_plan p = {.ranks = 4,
                         .stages = 4,
                         .place = {0, 1, 2, 3},
                         .first = {0, 1, 2, 3, 4},
                         .slots = {1, 1, 1, 1},
                         .training = true,
                         .tokens = 64,
                         .positions = 64,
                         .seqs = 1,
                         .dim = 256,
                         .tune = {.kind = TUNE_FULL, .end_layer = 4, .random_init = true}};
    const struct stage_bytes first = chunks(&p, 0), third = chunks(&p, 2);
    p.ranks = 2;
    p.place[2] = 0;
    p.place[3] = 1;
    const struct stage_bytes both = chunks(&p, 0);
    assert_int_equal(both.params, first.params + third.params);
    assert_int_equal(both.slots, first.slots + third.slots);
    assert_true(first.work > 0 && third.work > 0);
    assert_int_equal(both.work, first.work > third.work ? first.work : third.work);
    assert_int_equal(both.total, both.mapped + both.params + both.slots + both.work + both.kv);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_waits_for_the_disk_has_a_cap),
                                       cmocka_unit_test(test_room), cmocka_unit_test(test_chunks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
