/* SPDX-License-Identifier: MIT
 *
 * The message that starts a round: both ways, cut short everywhere, and with counts that lie. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/stage/stage_go.h"

enum {
    MICROBATCHES = 3,
    SEQS = 4,
    STEPS = 3,
    ADJUSTS = 2,
    REFS = 3,
    LINES = 7, /* bytes */
    ROOM = 4 * (18 + 3 + 7 * STEPS + 3 * ADJUSTS + MICROBATCHES * (SEQS + 1 + 2 * (SEQS / 2)))
};

static const uint32_t starts[3][SEQS + 1] = {{0, 5, 9}, {0, 1, 2, 3, 100}, {0}};
static struct seqs mbs[MICROBATCHES] = {{2, (uint32_t *)(uintptr_t)starts[0]},
                                        {4, (uint32_t *)(uintptr_t)starts[1]},
                                        {0, (uint32_t *)(uintptr_t)starts[2]}};

static struct go_step steps[STEPS] = {
    {2, UINT64_C(0x123456789a), 1.0 / 3, 0.1}, {0, 7, 0.25, 1e300}, {1, UINT64_MAX, 0, 0}};
static double refs[REFS] = {-1.0 / 3, 0, 1e-300};

static const struct sample_adjust adjusts[ADJUSTS] = {{31999, 1.25f, -0.5f}, {0, 1, 100}};

static struct go example(void)
{
    return (struct go){.program = PROGRAM_TRAIN,
                       .round = 0xfffffff0,
                       .logprobs = true,
                       .step = UINT64_C(0x123456789a),
                       .adapter = 9,
                       .at = UINT64_MAX,
                       .choice = {.temperature = 0.7f,
                                  .top_p = 0.95f,
                                  .min_p = 0.05f,
                                  .top_k = 40,
                                  .seed = UINT64_C(1) << 63,
                                  .adjust = adjusts,
                                  .nadjust = ADJUSTS},
                       .nsteps = STEPS,
                       .steps = steps,
                       .microbatches = MICROBATCHES,
                       .mb = mbs,
                       .nrefs = REFS,
                       .refs = refs};
}

static void all_of_it_comes_back(void **state)
{
    (void)state;
    for (int flags = 0; flags < 32; flags++) {
        struct go go = example(), back;
        uint8_t bytes[ROOM];
        go.state = flags & 1;
        go.logprobs = flags & 2;
        go.want_token = flags & 4;
        go.trace = flags & 8;
        go.hold = flags & 16;
        go.top = flags & 2 ? 20 : 0;
        size_t n = go_encode(bytes, &go);
        assert_int_equal(go_max_size(MICROBATCHES, SEQS, STEPS, 1, ADJUSTS, LINES), ROOM);
        assert_int_equal(n, 4 * (18 + 7 * STEPS + 3 * ADJUSTS + 2 * REFS + 3 + 6));
        assert_int_equal(go_decode(&back, bytes, n, 100), 0);
        assert_true(back.program == go.program && back.round == go.round && back.state == go.state &&
                    back.logprobs == go.logprobs && back.want_token == go.want_token &&
                    back.trace == go.trace && back.hold == go.hold && back.step == go.step &&
                    back.adapter == go.adapter && back.at == go.at && back.top == go.top);
        assert_true(back.choice.temperature == go.choice.temperature &&
                    back.choice.top_p == go.choice.top_p && back.choice.min_p == go.choice.min_p &&
                    back.choice.top_k == go.choice.top_k && back.choice.seed == go.choice.seed);
        assert_int_equal(back.choice.nadjust, ADJUSTS);
        assert_memory_equal(back.choice.adjust, adjusts, sizeof adjusts);
        assert_int_equal(back.nsteps, STEPS);
        for (size_t i = 0; i < STEPS; i++)
            assert_true(back.steps[i].adapter == steps[i].adapter && back.steps[i].step == steps[i].step &&
                        back.steps[i].dscale == steps[i].dscale && back.steps[i].beta == steps[i].beta);
        assert_int_equal(back.nrefs, REFS);
        assert_memory_equal(back.refs, refs, sizeof refs);
        assert_int_equal(back.microbatches, MICROBATCHES);
        for (size_t m = 0; m < MICROBATCHES; m++) {
            assert_int_equal(back.mb[m].n, mbs[m].n);
            assert_memory_equal(back.mb[m].start, mbs[m].start, (mbs[m].n + 1) * sizeof *starts[0]);
        }
        go_done(&back);
        go_done(&back);
    }
}

/* With any number of bytes; what fills up the last word is zero. */
static void lines_come_back(void **state)
{
    (void)state;
    for (size_t n = 1; n <= LINES; n++) {
        struct go go = example(), back;
        uint8_t bytes[ROOM];
        go.lines = "{\"a\":1}";
        go.nlines = n;
        const size_t size = go_encode(bytes, &go), filled = (n + 3) / 4 * 4;
        assert_int_equal(size, 4 * (18 + 1 + 7 * STEPS + 3 * ADJUSTS + 2 * REFS + 3 + 6) + filled);
        assert_int_equal(go_decode(&back, bytes, size, 100), 0);
        assert_int_equal(back.nlines, n);
        assert_memory_equal(back.lines, go.lines, n);
        assert_memory_equal(back.choice.adjust, adjusts, sizeof adjusts);
        go_done(&back);
        bytes[4 * 19 + filled - 1] |= n < filled ? 1 : 0;
        assert_int_equal(go_decode(&back, bytes, size, 100), n < filled ? -EBADMSG : 0);
        if (n == filled)
            go_done(&back);
        memset(bytes + 4 * 18, 0, 4); /* the flag says that there are some */
        assert_int_equal(go_decode(&back, bytes, size, 100), -EBADMSG);
        memset(bytes + 4 * 18, 255, 4);
        assert_int_equal(go_decode(&back, bytes, size, 100), -EBADMSG);
    }
}

static void a_stop_is_short(void **state)
{
    (void)state;
    struct go go = {.program = GO_STOP, .round = 4}, back;
    uint8_t bytes[ROOM];
    size_t n = go_encode(bytes, &go);
    assert_int_equal(go_decode(&back, bytes, n, 0), 0);
    assert_int_equal(back.program, GO_STOP);
    assert_int_equal(back.microbatches, 0);
    go_done(&back);
}

static int decode_copy(const uint8_t *bytes, size_t n, size_t max_tokens)
{
    struct go back;
    uint8_t *exact = malloc(n ? n : 1); /* so that a sanitizer sees a read behind the end */
    memcpy(exact, bytes, n);
    int r = go_decode(&back, exact, n, max_tokens);
    free(exact);
    if (!r)
        go_done(&back);
    return r;
}

static void nothing_may_be_missing(void **state)
{
    (void)state;
    struct go go = example();
    uint8_t bytes[ROOM + 4] = {0};
    size_t n = go_encode(bytes, &go);
    for (size_t cut = 0; cut < n; cut++)
        assert_int_equal(decode_copy(bytes, cut, 100), -EBADMSG);
    assert_int_equal(decode_copy(bytes, n + 4, 100), -EBADMSG);
    assert_int_equal(decode_copy(bytes, n + 1, 100), -EBADMSG);
    assert_int_equal(decode_copy(bytes, n, 99), -EBADMSG); /* one token more than a microbatch may have */
}

static void counts_are_not_believed(void **state)
{
    (void)state;
    static const uint32_t lies[] = {1, 5, 6, 0x7fffffff, 0x80000000, 0xfffffffe, 0xffffffff};
    struct go go = example();
    uint8_t bytes[ROOM];
    size_t n = go_encode(bytes, &go);
    for (size_t at = 4 * 14; at < n;
         at = at == 4 * 17 ? 4 * (18 + 3 * ADJUSTS + 7 * STEPS + 2 * REFS) : at + 4)
        for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
            uint8_t lie[ROOM];
            memcpy(lie, bytes, n);
            memcpy(lie + at, &lies[i], 4);
            int r = decode_copy(lie, n, 100);
            assert_true(r == -EBADMSG || (lies[i] < 100 && !r));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_of_it_comes_back),    cmocka_unit_test(lines_come_back),
        cmocka_unit_test(a_stop_is_short),         cmocka_unit_test(nothing_may_be_missing),
        cmocka_unit_test(counts_are_not_believed),
    };
    return cmocka_run_group_tests_name("stage_go", tests, NULL, NULL);
}
