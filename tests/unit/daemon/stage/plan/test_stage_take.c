/* SPDX-License-Identifier: MIT
 *
 * Which nodes --parallel auto tries, in which order, and what it says of tries that fail. What
 * makes a plan is linked away (-Wl,--wrap): it fails with the codes of a test. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include "daemon/stage/plan/stage_answer.h"
#include "daemon/stage/plan/stage_search.h"
#include "engine/pipe/parallel.h"
#include "tests/unit/daemon/stage/plan/planning.h"

/* --- plans that fail -------------------------------------------------------------------------- */

int __wrap_head_split_on_nodes(struct head *h, struct err *err);
int __wrap_stage_shared_note(struct head *h, struct err *err);
int __wrap_replicas_share_out(struct head *h, struct err *err);
int __wrap_layouts_find(struct layouts **ret, struct head *h, struct err *err);
size_t __wrap_layouts_count(const struct layouts *layouts);
const struct parallel_found *__wrap_layouts_at(const struct layouts *layouts, size_t i);
int __wrap_layouts_take(struct layouts *layouts, size_t i, struct head *h, struct err *err);
void __wrap_layouts_free(struct layouts *layouts);

static const int *codes; /* of each try */
static size_t tries;

static int try_next(struct err *err)
{
    const int e = codes[tries++];
    return e ? err_set(err, e, "try %zu", tries) : 0;
}

int __wrap_head_split_on_nodes(struct head *h, struct err *err)
{
    const double fast = h->plan.ranks == 2 ? 1 : 2;
    json_decref(h->planning.speed);
    h->planning.speed = json_pack("{s:f s:f}", "prompt_seconds", fast, "token_seconds", 0.0);
    return try_next(err);
}

int __wrap_stage_shared_note(struct head *h, struct err *err)
{
    (void)h;
    (void)err;
    return 0;
}

int __wrap_replicas_share_out(struct head *h, struct err *err)
{
    (void)h;
    (void)err;
    return 0;
}

static const struct parallel_found found = {.replicas = 1, .slices = 1, .places = 2, .mask = 3};

int __wrap_layouts_find(struct layouts **ret, struct head *h, struct err *err)
{
    static int some;
    (void)h;
    (void)err;
    *ret = (struct layouts *)&some;
    return 0;
}

size_t __wrap_layouts_count(const struct layouts *layouts)
{
    (void)layouts;
    return 4;
}

const struct parallel_found *__wrap_layouts_at(const struct layouts *layouts, size_t i)
{
    (void)layouts;
    (void)i;
    return &found;
}

int __wrap_layouts_take(struct layouts *layouts, size_t i, struct head *h, struct err *err)
{
    (void)layouts;
    (void)i;
    (void)h;
    (void)err;
    return 0;
}

void __wrap_layouts_free(struct layouts *layouts)
{
    (void)layouts;
}

/* --- nodes ------------------------------------------------------------------------------------ */

static struct planning planning;

static json_t *nodes_of(size_t n)
{
    json_t *nodes = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(
            nodes, json_pack("{s:s s:f s:i}", "name", "n", "speed", 1 + 0.1 * (double)i, "mbps", 1000));
    return nodes;
}

/* A model whose stages up to eight nodes can share. */
static struct head *open_head(size_t nodes)
{
    struct head *h = &planning.head;
    assert_int_equal(planning_open(&planning), 0);
    h->config = (struct config){.family = "llama",
                                .layers = 4,
                                .dim = 64,
                                .ffn = 64,
                                .vocab = 64,
                                .heads = 8,
                                .kv_heads = 8,
                                .head = 8};
    h->planning.nodes = nodes_of(nodes);
    h->plan.ranks = nodes;
    h->spec.any_parallel = true;
    tries = 0;
    return h;
}

/* --- answers ---------------------------------------------------------------------------------- */

static bool is_listed(const struct answer_layout *list, size_t n, size_t slices, size_t places)
{
    bool found_it = false;
    for (size_t i = 0; i < n; i++)
        found_it = found_it || (list[i].slices == slices && list[i].places == places);
    return found_it;
}

/* Also where there are more sets of nodes than are tried. */
static void every_shape_is_tried(void **state)
{
    (void)state;
    for (size_t nodes = 1; nodes <= JOB_MAX_RANKS; nodes++) {
        struct answer_layout list[ANSWER_MOST_LAYOUTS];
        struct head *h = open_head(nodes);
        const size_t n = answer_list(list, h, h->planning.nodes);
        for (size_t slices = 1; slices <= SLICE_MOST; slices *= 2)
            for (size_t places = 1; places <= JOB_MAX_RANKS; places++)
                assert_int_equal(is_listed(list, n, slices, places), slices * places <= nodes);
        for (size_t i = 0; i < n; i++) {
            assert_int_equal(__builtin_popcount(list[i].mask), list[i].slices * list[i].places);
            for (size_t k = 0; k < i; k++)
                assert_true(list[k].mask != list[i].mask || list[k].slices != list[i].slices);
        }
        planning_close(&planning);
    }
}

static int try_three(size_t *n, struct answer_layout list[3], const int given[3], struct err *err)
{
    struct head *h = open_head(3);
    codes = given;
    for (size_t i = 0; i < 3; i++)
        list[i] = (struct answer_layout){(2u << i) - 1, 1, i + 1, 0, 0, INFINITY};
    *n = 3;
    const int e = answer_try(list, n, h, h->planning.nodes, err);
    planning_close(&planning);
    return e;
}

static void what_cannot_be_is_left_out(void **state)
{
    (void)state;
    struct answer_layout list[3];
    struct err err = {""};
    size_t n;
    assert_int_equal(try_three(&n, list, (const int[]){-ENOSPC, 0, 0}, &err), 0);
    assert_int_equal(n, 2);
    assert_int_equal(list[0].places, 2);
    assert_int_equal(list[1].places, 3);
    assert_int_equal(try_three(&n, list, (const int[]){-EINVAL, -EDEADLK, -EOVERFLOW}, &err), -EINVAL);
    assert_string_equal(err.text, "try 1");
    assert_int_equal(n, 0);
}

static void another_error_ends_the_tries(void **state)
{
    (void)state;
    struct answer_layout list[3];
    struct err err = {""};
    size_t n;
    assert_int_equal(try_three(&n, list, (const int[]){0, -EIO, 0}, &err), -EIO);
    assert_string_equal(err.text, "try 2");
    assert_int_equal(tries, 2);
}

/* --- what a search has found ------------------------------------------------------------------ */

static int split(const int *given, struct err *err)
{
    struct head *h = open_head(2);
    h->plan.training = true;
    codes = given;
    const int e = head_split(h, err);
    planning_close(&planning);
    return e;
}

static void an_error_is_that_of_its_text(void **state)
{
    (void)state;
    struct err err = {""};
    assert_int_equal(split((const int[]){-ENOSPC, -EINVAL, 0}, &err), 0);
    assert_int_equal(tries, 3);
    assert_int_equal(split((const int[]){-ENOSPC, -EINVAL, -EINVAL, -EINVAL}, &err), -ENOSPC);
    assert_string_equal(err.text, "try 1");
    assert_int_equal(split((const int[]){-EINVAL, -ENOSPC, -EIO, 0}, &err), -EIO);
    assert_string_equal(err.text, "try 3");
    assert_int_equal(tries, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_shape_is_tried),
        cmocka_unit_test(what_cannot_be_is_left_out),
        cmocka_unit_test(another_error_ends_the_tries),
        cmocka_unit_test(an_error_is_that_of_its_text),
    };
    return cmocka_run_group_tests_name("stage_take", tests, NULL, NULL);
}
