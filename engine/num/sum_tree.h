/* SPDX-License-Identifier: MIT
 *
 * In which order the parts of a sum are added, on whatever node they are: a binary tree over
 * `leaves` parts, (0 + 1) + (2 + 3) and so on. A node at the right edge that has one child alone is
 * that child. So any run of parts can be added elsewhere, down to the nodes that lie in it as a
 * whole, and all of these give the same bits when they are added on. Numbers only, no memory of
 * others. PURE. */
#ifndef NUM_SUM_TREE_H
#define NUM_SUM_TREE_H

#include <stddef.h>
#include <stdint.h>

enum {
    SUM_TREE_LEAVES = 64,
    SUM_TREE_LEVELS = 6,                 /* additions that one part makes possible, at most */
    SUM_TREE_NODES = 2 * SUM_TREE_LEVELS /* of a run of parts, at most; more are never kept at once */
};

/* Parts index·2^level and the 2^level − 1 after it, as far as there are so many. */
struct sum_node {
    uint32_t level, index;
};
struct sum_kept {
    struct sum_node node;
    uint32_t buffer; /* the caller's number of where its sum lies */
};
struct sum_tree {
    size_t leaves, n;
    struct sum_kept kept[SUM_TREE_NODES]; /* [n] nodes that wait for their neighbours */
};
/* What lies in `from` is added to `to`; then `from` is free. */
struct sum_add {
    uint32_t to, from;
};

/* leaves: 1 to SUM_TREE_LEAVES. */
void sum_tree_begin(struct sum_tree *t, size_t leaves);
/* A node's sum lies in `buffer`: the additions that this makes possible, to be made in their order;
 * returns how many. Each node, or one above it, is put once, and no more at once than lie in a run
 * of parts: in the order of the parts, or in the opposite one. */
size_t sum_tree_put(struct sum_tree *t, struct sum_node node, uint32_t buffer,
                    struct sum_add adds[SUM_TREE_LEVELS]);

/* The nodes that are left of the parts [first, end), in their order; returns how many. */
size_t sum_tree_roots(struct sum_node ret[SUM_TREE_NODES], size_t leaves, size_t first, size_t end);
/* Most sums of those parts that are kept at once, the one that a part is being added up in among
 * them. */
size_t sum_tree_buffers(size_t leaves, size_t first, size_t end);

#endif
