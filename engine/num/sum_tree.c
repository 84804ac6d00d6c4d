/* SPDX-License-Identifier: MIT */
#include "num/sum_tree.h"

#include <assert.h>
#include <stdbool.h>

void sum_tree_begin(struct sum_tree *t, size_t leaves)
{
    assert(leaves >= 1 && leaves <= SUM_TREE_LEAVES);
    *t = (struct sum_tree){.leaves = leaves};
}

static size_t first_leaf(struct sum_node node)
{
    return (size_t)node.index << node.level;
}

static bool is_root(const struct sum_tree *t, struct sum_node node)
{
    return node.index == 0 && (size_t)1 << node.level >= t->leaves;
}

/* Takes the node out; false: it is not there. */
static bool take(struct sum_tree *t, struct sum_node node, uint32_t *ret_buffer)
{
    size_t i = 0;
    while (i < t->n && (t->kept[i].node.level != node.level || t->kept[i].node.index != node.index))
        i++;
    if (i == t->n)
        return false;
    *ret_buffer = t->kept[i].buffer;
    for (t->n--; i < t->n; i++)
        t->kept[i] = t->kept[i + 1];
    return true;
}

size_t sum_tree_put(struct sum_tree *t, struct sum_node node, uint32_t buffer,
                    struct sum_add adds[SUM_TREE_LEVELS])
{
    size_t n = 0;
    uint32_t other;
    while (!is_root(t, node)) {
        const struct sum_node beside = {node.level, node.index ^ 1};
        const bool is_alone = first_leaf(beside) >= t->leaves;
        if (!is_alone && !take(t, beside, &other))
            break;
        if (!is_alone)
            adds[n++] = (struct sum_add){buffer, other};
        node = (struct sum_node){node.level + 1, node.index / 2};
    }
    assert(t->n < SUM_TREE_NODES);
    t->kept[t->n++] = (struct sum_kept){node, buffer};
    return n;
}

/* A run of parts, put one after the other. */
static size_t put_run(struct sum_tree *t, size_t leaves, size_t first, size_t end, bool is_turned)
{
    struct sum_add adds[SUM_TREE_LEVELS];
    size_t most = 0;
    sum_tree_begin(t, leaves);
    for (size_t i = first; i < end; i++) {
        const size_t leaf = is_turned ? end - 1 - (i - first) : i;
        most = t->n + 1 > most ? t->n + 1 : most;
        sum_tree_put(t, (struct sum_node){0, (uint32_t)leaf}, 0, adds);
    }
    return most;
}

size_t sum_tree_roots(struct sum_node ret[SUM_TREE_NODES], size_t leaves, size_t first, size_t end)
{
    struct sum_tree t;
    put_run(&t, leaves, first, end, false);
    for (size_t i = 0; i < t.n; i++)
        ret[i] = t.kept[i].node;
    return t.n;
}

size_t sum_tree_buffers(size_t leaves, size_t first, size_t end)
{
    struct sum_tree t;
    const size_t up = put_run(&t, leaves, first, end, false), down = put_run(&t, leaves, first, end, true);
    const size_t most = up > down ? up : down;
    return t.n > most ? t.n : most; /* its roots stay until others have them */
}
