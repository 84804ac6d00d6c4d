/* SPDX-License-Identifier: MIT
 *
 * The order of a sum: which parts are added with which, on whatever node they are, whether they
 * come from the first on or from the last, and in how few buffers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "num/sum_tree.h"

/* Sums as the text of what was added: "((0+1)+2)", the lower part first. */
enum { TEXT = 600, BUFFERS = 16 };

struct world {
    struct sum_tree tree;
    char text[BUFFERS][TEXT];
    size_t leaf[BUFFERS]; /* the first of each */
    uint32_t used;
    size_t most;
};

static void begin(struct world *w, size_t leaves)
{
    memset(w, 0, sizeof *w);
    sum_tree_begin(&w->tree, leaves);
}

static void put(struct world *w, struct sum_node node, const char *text)
{
    struct sum_add adds[SUM_TREE_LEVELS];
    uint32_t buffer = 0;
    while (w->used >> buffer & 1)
        buffer++;
    assert_true(buffer < BUFFERS);
    w->used |= 1u << buffer;
    const size_t now = (size_t)__builtin_popcount(w->used);
    w->most = now > w->most ? now : w->most;
    snprintf(w->text[buffer], TEXT, "%s", text);
    w->leaf[buffer] = (size_t)node.index << node.level;
    const size_t n = sum_tree_put(&w->tree, node, buffer, adds);
    for (size_t i = 0; i < n; i++) {
        char sum[2 * TEXT + 4];
        const uint32_t to = adds[i].to, from = adds[i].from;
        const bool in_order = w->leaf[to] < w->leaf[from];
        snprintf(sum, sizeof sum, "(%s+%s)", w->text[in_order ? to : from], w->text[in_order ? from : to]);
        snprintf(w->text[to], TEXT, "%.*s", TEXT - 1, sum);
        w->leaf[to] = in_order ? w->leaf[to] : w->leaf[from];
        w->used &= ~(1u << from);
    }
}

static void put_parts(struct world *w, size_t leaves, size_t first, size_t end, bool is_turned)
{
    begin(w, leaves);
    for (size_t i = first; i < end; i++) {
        char text[12];
        const size_t leaf = is_turned ? first + end - 1 - i : i;
        snprintf(text, sizeof text, "%zu", leaf);
        put(w, (struct sum_node){0, (uint32_t)leaf}, text);
    }
}

static void a_sum_is_a_tree_of_its_parts(void **state)
{
    (void)state;
    static const struct {
        size_t leaves;
        const char *sum;
    } sums[] = {{1, "0"},
                {2, "(0+1)"},
                {3, "((0+1)+2)"},
                {4, "((0+1)+(2+3))"},
                {5, "(((0+1)+(2+3))+4)"},
                {7, "(((0+1)+(2+3))+((4+5)+6))"}};
    struct world w;
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++)
        for (int turned = 0; turned < 2; turned++) {
            put_parts(&w, sums[i].leaves, 0, sums[i].leaves, turned);
            assert_int_equal(w.tree.n, 1);
            assert_string_equal(w.text[w.tree.kept[0].buffer], sums[i].sum);
        }
}

/* Every way of sharing the parts out to two or three: what these have left gives the same sum. */
static void shares_give_the_same_sum(void **state)
{
    (void)state;
    static struct world whole, share, all;
    for (size_t leaves = 1; leaves <= 13; leaves++) {
        put_parts(&whole, leaves, 0, leaves, false);
        for (size_t a = 0; a <= leaves; a++)
            for (size_t b = a; b <= leaves; b++) {
                const size_t bounds[] = {0, a, b, leaves};
                begin(&all, leaves);
                for (size_t s = 0; s < 3; s++) {
                    struct sum_node roots[SUM_TREE_NODES];
                    put_parts(&share, leaves, bounds[s], bounds[s + 1], (a + b) % 2);
                    const size_t n = sum_tree_roots(roots, leaves, bounds[s], bounds[s + 1]);
                    assert_int_equal(share.tree.n, n);
                    for (size_t k = 0; k < n; k++)
                        for (size_t i = 0; i < n; i++)
                            if (!memcmp(&share.tree.kept[i].node, &roots[k], sizeof roots[k]))
                                put(&all, roots[k], share.text[share.tree.kept[i].buffer]);
                }
                assert_int_equal(all.tree.n, 1);
                assert_string_equal(all.text[all.tree.kept[0].buffer], whole.text[whole.tree.kept[0].buffer]);
            }
    }
}

static void buffers_are_counted(void **state)
{
    (void)state;
    static struct world w;
    assert_int_equal(sum_tree_buffers(1, 0, 1), 1);
    assert_int_equal(sum_tree_buffers(2, 0, 1), 1);
    assert_int_equal(sum_tree_buffers(2, 0, 2), 2);
    assert_int_equal(sum_tree_buffers(8, 0, 8), 4);
    assert_int_equal(sum_tree_buffers(8, 4, 8), 3);
    for (size_t leaves = 1; leaves <= SUM_TREE_LEAVES; leaves++)
        for (size_t first = 0; first < leaves; first++)
            for (size_t end = first + 1; end <= leaves; end++) {
                put_parts(&w, leaves, first, end, (first + end) % 2);
                assert_true(w.most <= sum_tree_buffers(leaves, first, end));
                assert_true(w.tree.n <= SUM_TREE_NODES);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sum_is_a_tree_of_its_parts),
        cmocka_unit_test(shares_give_the_same_sum),
        cmocka_unit_test(buffers_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
