/* SPDX-License-Identifier: MIT
 *
 * What has to come to the ranks of a plan, from whom, and which cable takes longest. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/ringd/hub/travel.h"

#define BLOCK (UINT64_C(4) << 20)

/* A file of ten blocks, the last of half the size, and one of a single byte. */
struct place {
    struct travel_world w;
    struct travel t;
    json_t *kept; /* owned: what the world borrows */
};

static json_t *read_list(struct place *p, const char *text)
{
    json_t *list = json_loads(text, 0, NULL);
    assert_non_null(list);
    json_array_append_new(p->kept, list);
    return list;
}

/* n nodes in a row, the ranks first, with cables of 1000 Mb/s. */
static void row(struct place *p, size_t n, size_t ranks)
{
    *p = (struct place){.kept = json_array()};
    p->w.n = n;
    p->w.ranks = ranks;
    p->w.sizes = read_list(p, "{\"f\": 39845888, \"g\": 1}");
    for (size_t i = 0; i < n; i++) {
        p->w.node[i].is_known = true;
        for (size_t k = 0; k < n; k++)
            if (i + 1 == k || k + 1 == i) {
                p->w.joined[i][k] = true;
                p->w.mbps[i][k] = 1000;
            }
    }
}

static void wants(struct place *p, size_t i, const char *share)
{
    p->w.node[i].share = read_list(p, share);
}

static void has(struct place *p, size_t i, const char *blocks)
{
    p->w.node[i].has_outline = true;
    p->w.node[i].is_whole = !blocks;
    p->w.node[i].blocks = blocks ? read_list(p, blocks) : NULL;
}

static void foresee(struct place *p)
{
    assert_int_equal(travel_foresee(&p->t, &p->w), 0);
    json_decref(p->kept);
}

static double seconds_of(uint64_t bytes, double mbps)
{
    return (double)bytes * 8 / (mbps * 1e6 * 0.9);
}

/* a has it; b and c get their shares, and those of c cross both cables. */
static void in_a_row_each_byte_crosses_each_cable_once(void **state)
{
    struct place p;
    (void)state;
    row(&p, 3, 3);
    has(&p, 0, NULL);
    has(&p, 1, "[]");
    has(&p, 2, "[]");
    wants(&p, 0, "[[\"f\",0,3]]");
    wants(&p, 1, "[[\"f\",3,6]]");
    wants(&p, 2, "[[\"f\",6,10],[\"g\",0,1]]");
    p.w.mbps[0][1] = 2000;
    foresee(&p);
    assert_true(p.t.is_timed);
    assert_int_equal(p.t.rank[0].lacks, 0);
    assert_int_equal(p.t.rank[0].share, 3 * BLOCK);
    assert_int_equal(p.t.rank[1].lacks, 3 * BLOCK);
    assert_int_equal(p.t.rank[2].lacks, 3 * BLOCK + BLOCK / 2 + 1);
    assert_int_equal(p.t.rank[2].from[0], p.t.rank[2].lacks);
    assert_int_equal(p.t.lacks, 6 * BLOCK + BLOCK / 2 + 1);
    assert_int_equal(p.t.hub, 0);
    /* 6.5 blocks at 2000 take less than 3.5 at 1000. */
    assert_true(fabs(p.t.seconds - seconds_of(3 * BLOCK + BLOCK / 2 + 1, 1000)) < 1e-9);
    assert_true(p.t.mbps == 1000);
}

static void of_what_is_here_in_part_only_the_rest_comes(void **state)
{
    struct place p;
    (void)state;
    row(&p, 2, 2);
    has(&p, 0, NULL);
    has(&p, 1, "[[\"f\",4,5],[\"f\",9,10],[\"g\",0,1]]");
    wants(&p, 1, "[[\"f\",3,7],[\"g\",0,1]]");
    foresee(&p);
    assert_int_equal(p.t.rank[1].share, 4 * BLOCK + 1);
    assert_int_equal(p.t.rank[1].lacks, 3 * BLOCK);
    assert_true(fabs(p.t.seconds - seconds_of(3 * BLOCK, 1000)) < 1e-9);
}

/* Both ends of the row have it, and one beyond them too, which is not asked. */
static void two_whole_ones_give_a_part_each(void **state)
{
    struct place p;
    (void)state;
    row(&p, 4, 2);
    has(&p, 0, NULL);
    has(&p, 2, NULL);
    has(&p, 3, NULL);
    wants(&p, 1, "[[\"f\",0,4]]");
    has(&p, 1, "[]");
    foresee(&p);
    assert_int_equal(p.t.rank[1].from[0], 2 * BLOCK);
    assert_int_equal(p.t.rank[1].from[2], 2 * BLOCK);
    assert_int_equal(p.t.rank[1].from[3], 0);
    assert_true(fabs(p.t.seconds - seconds_of(2 * BLOCK, 1000)) < 1e-9);
}

static void without_a_whole_one_each_gives_what_it_has_and_the_hub_the_rest(void **state)
{
    struct place p;
    (void)state;
    row(&p, 3, 3);
    has(&p, 0, "[[\"f\",0,4]]");
    has(&p, 1, "[[\"f\",2,5]]");
    has(&p, 2, "[]");
    wants(&p, 2, "[[\"f\",1,7]]");
    foresee(&p);
    /* 1 of a; 2 and 3 of both; 4 of b; 5 and 6 of nobody. */
    assert_int_equal(p.t.rank[2].from[0], 2 * BLOCK);
    assert_int_equal(p.t.rank[2].from[1], 2 * BLOCK);
    assert_int_equal(p.t.rank[2].hub, 2 * BLOCK);
    assert_int_equal(p.t.hub, 2 * BLOCK);
    assert_int_equal(p.t.rank[2].lacks, 6 * BLOCK);
    assert_true(fabs(p.t.seconds - seconds_of(4 * BLOCK, 1000)) < 1e-9);
}

/* As an embedding that the head has too. */
static void what_two_want_of_the_hub_leaves_it_once(void **state)
{
    struct place p;
    (void)state;
    row(&p, 3, 3);
    has(&p, 0, "[]");
    has(&p, 1, "[]");
    has(&p, 2, "[]");
    wants(&p, 0, "[[\"f\",0,2]]");
    wants(&p, 2, "[[\"f\",1,4]]");
    foresee(&p);
    assert_int_equal(p.t.rank[0].hub, 2 * BLOCK);
    assert_int_equal(p.t.rank[2].hub, 2 * BLOCK);
    assert_int_equal(p.t.rank[2].from[0], BLOCK);
    assert_int_equal(p.t.hub, 4 * BLOCK);
    assert_int_equal(p.t.lacks, 5 * BLOCK);
    assert_true(fabs(p.t.seconds - seconds_of(BLOCK, 1000)) < 1e-9);
}

static void what_is_not_known_is_not_foreseen(void **state)
{
    struct place p;
    (void)state;
    row(&p, 2, 2);
    has(&p, 0, NULL);
    p.w.node[1].is_known = false;
    wants(&p, 1, "[[\"f\",0,4]]");
    foresee(&p);
    assert_false(p.t.rank[1].is_known);
    assert_int_equal(p.t.rank[1].share, 4 * BLOCK);
    assert_int_equal(p.t.lacks, 0);
    row(&p, 2, 2);
    has(&p, 0, NULL);
    has(&p, 1, "[]");
    wants(&p, 1, "[[\"f\",0,4]]");
    p.w.mbps[0][1] = 0;
    foresee(&p);
    assert_int_equal(p.t.lacks, 4 * BLOCK);
    assert_false(p.t.is_timed);
    row(&p, 2, 2);
    has(&p, 0, NULL);
    has(&p, 1, "[]");
    wants(&p, 1, "[[\"f\",0,4]]");
    p.w.joined[0][1] = p.w.joined[1][0] = false;
    foresee(&p);
    assert_int_equal(p.t.rank[1].from[0], 4 * BLOCK);
    assert_false(p.t.is_timed);
}

/* Lists come from other nodes. */
static void nonsense_is_no_block(void **state)
{
    struct place p;
    (void)state;
    row(&p, 2, 2);
    has(&p, 0, "[[\"f\",-3,1000000000000],[\"h\",0,1],[\"f\"],7,[\"g\",5,9],[\"f\",9,3]]");
    has(&p, 1, "[]");
    wants(&p, 1, "[[\"f\",8,1000000000000],[\"g\",0,2]]");
    foresee(&p);
    assert_int_equal(p.t.rank[1].share, BLOCK + BLOCK / 2 + 1);
    assert_int_equal(p.t.rank[1].hub, BLOCK + BLOCK / 2 + 1);
    row(&p, 1, 1);
    p.w.sizes = read_list(&p, "{\"f\": 9000000000000000000}");
    assert_int_equal(travel_foresee(&p.t, &p.w), -EINVAL);
    json_decref(p.kept);
}

/* b has two blocks of the first part and none of the second; of c nothing is known. */
static void parts_lack_what_each_rank_has_not(void **state)
{
    struct place p;
    uint64_t lacks[6];
    (void)state;
    row(&p, 3, 3);
    has(&p, 0, NULL);
    has(&p, 1, "[[\"f\",1,3]]");
    p.w.node[2].is_known = false;
    assert_int_equal(
        travel_lacks(lacks, &p.w, read_list(&p, "[[[\"f\",0,4]],[[\"f\",8,99],[\"g\",0,1],[\"h\",0,1]]]")),
        0);
    assert_int_equal(lacks[0] + lacks[1], 0);
    assert_int_equal(lacks[2], 2 * BLOCK);
    assert_int_equal(lacks[3], BLOCK + BLOCK / 2 + 1);
    assert_int_equal(lacks[4], 4 * BLOCK);
    assert_int_equal(lacks[5], BLOCK + BLOCK / 2 + 1);
    json_decref(p.kept);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_a_row_each_byte_crosses_each_cable_once),
        cmocka_unit_test(of_what_is_here_in_part_only_the_rest_comes),
        cmocka_unit_test(two_whole_ones_give_a_part_each),
        cmocka_unit_test(without_a_whole_one_each_gives_what_it_has_and_the_hub_the_rest),
        cmocka_unit_test(what_two_want_of_the_hub_leaves_it_once),
        cmocka_unit_test(what_is_not_known_is_not_foreseen),
        cmocka_unit_test(nonsense_is_no_block),
        cmocka_unit_test(parts_lack_what_each_rank_has_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
