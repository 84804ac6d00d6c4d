/* SPDX-License-Identifier: MIT
 *
 * The split of layers into stages, against a search through all splits. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "pipe/split.h"

enum { MAX_STAGES = 7, MAX_LAYERS = 10 };

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static size_t below(uint64_t *state, size_t n)
{
    return (size_t)(next_random(state) % n);
}

/* The best that exists: the least largest share, and among those the least sum of squared
 * counts. With a limit: the fewest bytes to come within it. */
struct best {
    bool found;
    double worst, limit;
    size_t uneven, lacks;
};

static double share(const struct split_request *req, size_t s, size_t from, size_t to, bool *ret_fits)
{
    double cost = 0.0;
    size_t bytes = 0;
    for (size_t u = 0; u < req->layers + 2; u++) {
        bool mine = u == 0                 ? s == 0
                    : u == req->layers + 1 ? s + 1 == req->stages
                                           : u - 1 >= from && u - 1 < to;
        if (!mine)
            continue;
        cost += req->unit_cost ? req->unit_cost[u] : u > 0 && u <= req->layers ? 1.0 : 0.0;
        bytes += req->unit_bytes ? req->unit_bytes[s][u] : 0;
    }
    *ret_fits = !req->memory || bytes <= req->memory[s];
    return req->speed ? cost / req->speed[s] : cost;
}

static bool judge(const struct split_request *req, const size_t *first, double *ret_worst, size_t *ret_uneven)
{
    double worst = 0.0;
    size_t uneven = 0;
    for (size_t s = 0; s < req->stages; s++) {
        bool fits;
        worst = fmax(worst, share(req, s, first[s], first[s + 1], &fits));
        if (!fits)
            return false;
        uneven += (first[s + 1] - first[s]) * (first[s + 1] - first[s]);
    }
    *ret_worst = worst;
    *ret_uneven = uneven;
    return true;
}

static void try_all(const struct split_request *req, size_t *first, size_t s, struct best *best)
{
    if (s == req->stages) {
        double worst;
        size_t uneven;
        first[s] = req->layers;
        if (!judge(req, first, &worst, &uneven))
            return;
        if (best->limit > 0) {
            const size_t lacks = worst <= best->limit ? split_lacks(first, req) : SIZE_MAX;
            best->lacks = lacks < best->lacks ? lacks : best->lacks;
            return;
        }
        if (!best->found || worst < best->worst || (worst == best->worst && uneven < best->uneven))
            *best = (struct best){.found = true, .worst = worst, .uneven = uneven};
        return;
    }
    for (size_t i = first[s - 1]; i <= req->layers; i++) {
        first[s] = i;
        try_all(req, first, s + 1, best);
    }
}

/* Within the slack nothing else needs less, and without need the split is that without it. */
static void compare_lacks(const struct split_request *req, const struct best *fastest, const size_t *fast,
                          uint64_t seed)
{
    size_t first[MAX_STAGES + 1] = {0}, got[MAX_STAGES + 1];
    struct best least = {.limit = fastest->worst * (1 + req->slack) + 1e-12, .lacks = SIZE_MAX};
    struct err err;
    double worst = 0;
    size_t uneven;
    try_all(req, first, 1, &least);
    if (split_layers(got, req, &err) || !judge(req, got, &worst, &uneven))
        fail_msg("seed %llu: no split where bytes have to come", (unsigned long long)seed);
    if (worst > least.limit || split_lacks(got, req) != least.lacks)
        fail_msg("seed %llu: %zu bytes at %g, and %zu would do within %g", (unsigned long long)seed,
                 split_lacks(got, req), worst, least.lacks, least.limit);
    if (split_lacks(fast, req) == least.lacks && memcmp(got, fast, (req->stages + 1) * sizeof *got) != 0)
        fail_msg("seed %llu: another split without need", (unsigned long long)seed);
}

static void compare(const struct split_request *req, const size_t *const *lacks, uint64_t seed)
{
    size_t first[MAX_STAGES + 1] = {0}, got[MAX_STAGES + 1] = {99, 99};
    struct best best = {0};
    struct err err = {0};
    try_all(req, first, 1, &best);
    int rc = split_layers(got, req, &err);
    if (!best.found) {
        if (rc != -ENOSPC || !strstr(err.text, "cannot hold its share") || got[0] != 99)
            fail_msg("seed %llu: nothing fits, but rc %d: %s", (unsigned long long)seed, rc, err.text);
        return;
    }
    double worst = 0.0;
    size_t uneven = 0;
    if (rc < 0 || split_check(got, req->stages, req->layers, &err) < 0)
        fail_msg("seed %llu: rc %d: %s", (unsigned long long)seed, rc, err.text);
    if (!judge(req, got, &worst, &uneven) || worst != best.worst || uneven != best.uneven)
        fail_msg("seed %llu: largest share %g and unevenness %zu, best %g and %zu", (unsigned long long)seed,
                 worst, uneven, best.worst, best.uneven);
    struct split_request with = *req;
    with.unit_lacks = lacks;
    with.slack = (double)(seed % 5) / 8;
    compare_lacks(&with, &best, got, seed);
}

static void test_against_search(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 3000; seed++) {
        uint64_t rng = seed * 0x9e3779b97f4a7c15u;
        double cost[MAX_LAYERS + 2], speed[MAX_STAGES];
        size_t bytes[MAX_STAGES][MAX_LAYERS + 2], lacks[MAX_STAGES][MAX_LAYERS + 2], memory[MAX_STAGES];
        const size_t *of_stage[MAX_STAGES], *lacks_of[MAX_STAGES];
        struct split_request req = {.stages = 1 + below(&rng, MAX_STAGES),
                                    .layers = below(&rng, MAX_LAYERS + 1)};
        size_t spread = 1 + below(&rng, 6); /* 1: all alike, so that ties are common */
        for (size_t u = 0; u < req.layers + 2; u++) {
            cost[u] = (double)below(&rng, spread + 1);
            bytes[0][u] = 1 + below(&rng, spread);
        }
        const bool some_are_there = below(&rng, 2);
        for (size_t s = 0; s < req.stages; s++) {
            of_stage[s] = bytes[some_are_there ? s : 0];
            lacks_of[s] = lacks[s];
            for (size_t u = 0; u < req.layers + 2; u++)
                lacks[s][u] = below(&rng, 3);
            for (size_t u = 0; u < req.layers + 2 && s && some_are_there; u++)
                bytes[s][u] = below(&rng, 2) ? 0 : bytes[0][u];
            speed[s] =
                (double)(1u << below(&rng, 3)); /* powers of two: shares are compared for equality here */
            memory[s] = below(&rng, 2 * spread + 2 * spread * req.layers / req.stages + 2);
        }
        req.unit_cost = below(&rng, 3) ? cost : NULL;
        req.unit_bytes = of_stage;
        req.speed = below(&rng, 2) ? speed : NULL;
        req.memory = below(&rng, 2) ? memory : NULL;
        compare(&req, lacks_of, seed);
    }
}

static void assert_split(const struct split_request *req, const size_t *wanted)
{
    size_t first[MAX_STAGES + 1];
    struct err err = {0};
    if (split_layers(first, req, &err) < 0)
        fail_msg("%s", err.text);
    for (size_t s = 0; s <= req->stages; s++)
        assert_int_equal(first[s], wanted[s]);
}

static void test_even(void **state)
{
    (void)state;
    assert_split(&(struct split_request){.stages = 4, .layers = 8}, (size_t[]){0, 2, 4, 6, 8});
    assert_split(&(struct split_request){.stages = 4, .layers = 6}, (size_t[]){0, 2, 4, 5, 6});
    assert_split(&(struct split_request){.stages = 4, .layers = 2}, (size_t[]){0, 1, 2, 2, 2});
    assert_split(&(struct split_request){.stages = 3, .layers = 0}, (size_t[]){0, 0, 0, 0});
    assert_split(&(struct split_request){.stages = 1, .layers = 5}, (size_t[]){0, 5});
    /* Costs that binary fractions cannot hold are still equal. */
    const double tenths[] = {0, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0};
    assert_split(&(struct split_request){.stages = 4, .layers = 9, .unit_cost = tenths},
                 (size_t[]){0, 3, 5, 7, 9});
}

static void test_heavy_head_and_unlike_nodes(void **state)
{
    (void)state;
    /* A percent is no rounding: the earlier stage takes more only of what is equal. */
    const double nearly[] = {0, 1.01, 1, 1, 0};
    assert_split(&(struct split_request){.stages = 2, .layers = 3, .unit_cost = nearly}, (size_t[]){0, 1, 3});
    const double heavy[] = {0, 1, 1, 1, 1, 1, 1, 3};
    assert_split(&(struct split_request){.stages = 3, .layers = 6, .unit_cost = heavy},
                 (size_t[]){0, 3, 6, 6});
    const double speed[] = {1, 3};
    assert_split(&(struct split_request){.stages = 2, .layers = 8, .speed = speed}, (size_t[]){0, 2, 8});
    const size_t bytes[] = {10, 10, 10, 10, 10, 10},
                 memory[] = {20, 60}, *const unit_bytes[] = {bytes, bytes};
    assert_split(
        &(struct split_request){.stages = 2, .layers = 4, .unit_bytes = unit_bytes, .memory = memory},
        (size_t[]){0, 1, 4});
}

/* The same layers take less where they lie already: a small node then holds as many as a large
 * one. */
static void test_what_a_node_has_already(void **state)
{
    (void)state;
    const size_t all[] = {10, 10, 10, 10, 10, 10}, there[] = {1, 1, 1, 10, 10, 10}, memory[] = {20, 60};
    struct split_request req = {.stages = 2, .layers = 4, .memory = memory};
    req.unit_bytes = (const size_t *const[]){there, all};
    assert_split(&req, (size_t[]){0, 2, 4});
    req.unit_bytes = (const size_t *const[]){all, there}; /* of no use to the first node */
    assert_split(&req, (size_t[]){0, 1, 4});
}

/* Of two nodes one has the first two layers and the other the last three: so it takes three, which
 * is no slower. Where one has nothing, it gets as few as the slack allows. */
static void test_what_need_not_travel(void **state)
{
    (void)state;
    const size_t none[] = {0, 0, 0, 0, 0, 0, 0}, all[] = {9, 9, 9, 9, 9, 9, 9},
                 first_two[] = {0, 0, 0, 9, 9, 9, 9}, last_three[] = {9, 9, 9, 0, 0, 0, 9};
    const size_t *lacks[] = {first_two, last_three};
    struct split_request req = {.stages = 2, .layers = 5, .unit_lacks = lacks, .slack = 0.02};
    assert_split(&req, (size_t[]){0, 2, 5}); /* without: 3 and 2 */
    assert_int_equal(split_lacks((size_t[]){0, 3, 5}, &req), 18);
    assert_int_equal(split_lacks((size_t[]){0, 2, 5}, &req), 9); /* the head, wherever layers are */
    req.slack = 0.4;
    lacks[0] = all;
    lacks[1] = none;
    assert_split(&req, (size_t[]){0, 1, 5});
    req.slack = 0.02;
    assert_split(&req, (size_t[]){0, 2, 5});
}

static void test_memory_sentence(void **state)
{
    (void)state;
    const size_t bytes[] = {1024, 4096, 4096, 4096, 4096, 1024}, memory[] = {9216, 8192};
    const size_t *unit_bytes[] = {bytes, bytes};
    struct split_request req = {.stages = 2, .layers = 4, .unit_bytes = unit_bytes, .memory = memory};
    size_t first[3] = {7, 7, 7};
    struct err err = {0};
    assert_int_equal(split_layers(first, &req, &err), -ENOSPC);
    assert_string_equal(
        err.text, "stage 1 cannot hold its share, 2 of 4 layers and the head: it needs 9.0 KiB and has 8.0 "
                  "KiB (all stages together: 18.0 KiB of 17.0 KiB); free memory there or add a node");
    assert_int_equal(first[0], 7);
    const size_t huge[] = {SIZE_MAX, SIZE_MAX, 1, 1, 1, 1};
    unit_bytes[0] = unit_bytes[1] = huge;
    assert_int_equal(split_layers(first, &req, &err), -ENOSPC);
}

static void test_bad_requests(void **state)
{
    (void)state;
    size_t first[3];
    struct err err = {0};
    assert_int_equal(split_layers(first, &(struct split_request){.stages = 0, .layers = 4}, &err), -EINVAL);
    assert_int_equal(split_layers(first, &(struct split_request){.stages = 2, .layers = SIZE_MAX}, &err),
                     -EINVAL);
    const double speed[] = {1, 0}, cost[] = {0, 1, NAN, 0}, large[] = {1e308, 1e308, 1e308, 1e308};
    assert_int_equal(
        split_layers(first, &(struct split_request){.stages = 2, .layers = 2, .speed = speed}, &err),
        -EINVAL);
    assert_string_equal(err.text, "the speed of stage 1 is 0; it must be finite and above 0");
    assert_int_equal(
        split_layers(first, &(struct split_request){.stages = 2, .layers = 2, .unit_cost = cost}, &err),
        -EINVAL);
    assert_int_equal(
        split_layers(first, &(struct split_request){.stages = 2, .layers = 2, .unit_cost = large}, &err),
        -EINVAL);
}

static void assert_no_tiling(const size_t *first, const char *words)
{
    struct err err = {0};
    assert_int_equal(split_check(first, 2, 4, &err), -EINVAL);
    if (!strstr(err.text, words))
        fail_msg("\"%s\" does not say \"%s\"", err.text, words);
}

static void test_check(void **state)
{
    (void)state;
    struct err err = {0};
    assert_int_equal(split_check((size_t[]){0, 2, 4}, 2, 4, &err), 0);
    assert_int_equal(split_check((size_t[]){0, 4, 4}, 2, 4, &err), 0);
    assert_int_equal(split_check((size_t[]){0, 0}, 1, 0, &err), 0);
    assert_no_tiling((size_t[]){1, 2, 4}, "layers 0 to 0 are on no stage");
    assert_no_tiling((size_t[]){0, 2, 3}, "layers 3 to 3 are on no stage");
    assert_no_tiling((size_t[]){0, 5, 4}, "stage 0 ends at layer 5, but the model has 4");
    assert_no_tiling((size_t[]){0, 3, 2}, "two stages");
    assert_int_equal(split_check((size_t[]){0}, 0, 0, &err), -EINVAL);
}

/* Cut wherever one of them is, also where a stage has no layer. */
static void test_refine(void **state)
{
    (void)state;
    const size_t a[] = {0, 8}, b[] = {0, 3, 8}, c[] = {0, 3, 3, 8, 8}, stages[] = {1, 2, 4};
    const size_t *const first[] = {a, b, c};
    uint32_t at[3][7], *const place[] = {at[0], at[1], at[2]};
    size_t fine[10];
    assert_int_equal(split_refine(fine, place, first, stages, 3), 4);
    assert_memory_equal(fine, c, sizeof c);
    for (uint32_t s = 0; s < 4; s++) {
        assert_int_equal(at[0][s], 0);
        assert_int_equal(at[1][s], s > 0);
        assert_int_equal(at[2][s], s);
    }
    assert_int_equal(split_refine(fine, place, first, stages, 2), 2);
    assert_memory_equal(fine, b, sizeof b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_search),
        cmocka_unit_test(test_even),
        cmocka_unit_test(test_heavy_head_and_unlike_nodes),
        cmocka_unit_test(test_what_a_node_has_already),
        cmocka_unit_test(test_what_need_not_travel),
        cmocka_unit_test(test_memory_sentence),
        cmocka_unit_test(test_bad_requests),
        cmocka_unit_test(test_check),
        cmocka_unit_test(test_refine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
