/* SPDX-License-Identifier: MIT
 *
 * A taker: what it asks for, and what it gets. A block that is not here yet waits in its list; each
 * turn of the loop looks, so it leaves as soon as it has come. */
#include "daemon/fetch/carry/carry_impl.h"

#include <string.h>

/* --- what it asks ----------------------------------------------------------------------------- */

static void take_open(struct carry *c, struct carry_lane *l, const struct carry_frame *f)
{
    char content[DIGEST_HEX];
    digest_hex(content, f->bytes);
    if (l->is_open)
        carry_lane_lose(c, l, true, "a taker opens twice");
    else if (strcmp(content, c->setup->content) != 0)
        carry_lane_lose(c, l, true,
                        "%.100s is here with other bytes: its content is %.12s…, and %.12s… is wanted",
                        c->setup->model, c->setup->content, content);
    l->is_open = true;
}

/* False: the manifest has no such block. Until it is known nothing can be said. */
static bool exists(const struct carry *c, uint32_t first, uint32_t n)
{
    const struct manifest *m = carry_disk_manifest(c->disk);
    return !m || (first < m->blocks && n <= m->blocks - first);
}

static void lose_for_range(struct carry *c, struct carry_lane *l)
{
    carry_lane_lose(c, l, true, "a taker asks for a block that the model does not have");
}

static void take_want(struct carry *c, struct carry_lane *l, const struct carry_frame *f)
{
    if (f->b > CARRY_WANTS - l->n_wants) {
        carry_lane_lose(c, l, true, "a taker asks for more than %d blocks at once", CARRY_WANTS);
        return;
    }
    if (!exists(c, f->a, f->b)) {
        lose_for_range(c, l);
        return;
    }
    for (uint32_t i = 0; i < f->b; i++)
        l->wants[l->n_wants++] = f->a + i;
}

void carry_give_check(struct carry *c)
{
    for (size_t i = 0; i < c->n; i++)
        for (unsigned k = 0; k < c->lanes[i]->n_wants; k++)
            if (!exists(c, c->lanes[i]->wants[k], 1))
                lose_for_range(c, c->lanes[i]);
}

void carry_give_frame(struct carry *c, struct carry_lane *l, const struct carry_frame *f)
{
    if (f->kind == CARRY_OPEN)
        take_open(c, l, f);
    else if (!l->is_open)
        carry_lane_lose(c, l, true, "a taker does not begin by saying which content it wants");
    else if (f->kind == CARRY_ASK && !l->wants_list)
        l->wants_list = true;
    else if (f->kind == CARRY_WANT)
        take_want(c, l, f);
    else if (f->kind == CARRY_WHICH)
        l->wants_which = true;
    else
        carry_lane_lose(c, l, true, "a taker sends what only sources may send, or asks for the list twice");
}

/* --- what it gets ----------------------------------------------------------------------------- */

/* 1: a part of the manifest; 0: all of it was sent, or it is not wanted. */
static int send_list(struct carry *c, struct carry_lane *l)
{
    size_t size;
    const uint8_t *list = carry_disk_list(c->disk, &size);
    const size_t n = size - l->list_at < CARRY_BYTES ? size - l->list_at : CARRY_BYTES;
    if (!l->wants_list || !n)
        return 0;
    uint8_t *to = carry_line_space(&l->line);
    const size_t head = carry_frame_write(to, CARRY_LIST, (uint32_t)size, l->list_at);
    memcpy(to + head, list + l->list_at, n);
    l->list_at += (uint32_t)n;
    const int r = carry_line_put(&l->line, head + n, c->now);
    return r ? r : 1;
}

static uint32_t promised(const struct carry *c)
{
    return carry_disk_promised(c->disk) + c->readied;
}

/* 1: a part of what is here, and of what will be; 0: it knows all of it, or does not ask. */
static int send_have(struct carry *c, struct carry_lane *l)
{
    const uint32_t blocks = carry_disk_manifest(c->disk)->blocks, most = CARRY_BYTES * 8;
    if (l->have_of != promised(c) && l->have_sent == blocks)
        l->have_sent = 0;
    if (!l->wants_which || !carry_disk_is_checked(c->disk) || l->have_sent == blocks)
        return 0;
    if (!l->have_sent)
        l->have_of = promised(c);
    const uint32_t n = blocks - l->have_sent < most ? blocks - l->have_sent : most;
    uint8_t *to = carry_line_space(&l->line);
    const size_t head = carry_frame_write(to, CARRY_HAVE, l->have_sent, blocks);
    memset(to + head, 0, (n + 7) / 8);
    for (uint32_t i = 0; i < n; i++)
        if (carry_disk_promises(c->disk, l->have_sent + i))
            to[head + i / 8] |= (uint8_t)(1 << i % 8);
    l->have_sent += n;
    const int r = carry_line_put(&l->line, head + (n + 7) / 8, c->now);
    return r ? r : 1;
}

/* The first block that is here goes to the front, unless one is under way. */
static bool find_block(struct carry *c, struct carry_lane *l)
{
    for (unsigned i = 0; i < l->n_wants && !l->at && !l->is_hash_sent; i++)
        if (carry_disk_has(c->disk, l->wants[i])) {
            const uint32_t block = l->wants[i];
            memmove(l->wants + 1, l->wants, i * sizeof *l->wants);
            l->wants[0] = block;
            return true;
        }
    return l->at > 0 || l->is_hash_sent;
}

/* 1: the hash of the block that goes next, if it is known here. */
static int send_hash(struct carry *c, struct carry_lane *l)
{
    const struct manifest *m = carry_disk_manifest(c->disk);
    const uint32_t block = l->wants[0];
    if (l->at || l->is_hash_sent || !manifest_knows(m, block))
        return 0;
    uint8_t *to = carry_line_space(&l->line);
    const size_t head = carry_frame_write(to, CARRY_HASH, block, 0);
    memcpy(to + head, m->hashes[block], DIGEST);
    l->is_hash_sent = true;
    const int r = carry_line_put(&l->line, head + DIGEST, c->now);
    return r ? r : 1;
}

static int send_piece(struct carry *c, struct carry_lane *l)
{
    const uint32_t block = l->wants[0], size = manifest_size(carry_disk_manifest(c->disk), block);
    const uint32_t n = size - l->at < CARRY_BYTES ? size - l->at : CARRY_BYTES;
    struct err why;
    uint8_t *to = carry_line_space(&l->line);
    const size_t head = carry_frame_write(to, CARRY_PIECE, block, l->at);
    if (carry_disk_read(c->disk, block, l->at, to + head, n, &why)) {
        carry_lane_lose(c, l, false, "%s", why.text);
        return 0;
    }
    l->at += n;
    c->tokens -= c->setup->rate ? n : 0;
    if (l->at == size) {
        l->n_wants--;
        memmove(l->wants, l->wants + 1, l->n_wants * sizeof *l->wants);
        l->at = 0;
        l->is_hash_sent = false;
    }
    const int r = carry_line_put(&l->line, head + n, c->now);
    return r ? r : 1;
}

int carry_give_next(struct carry *c, struct carry_lane *l)
{
    if (!carry_disk_manifest(c->disk) || !l->is_open)
        return 0;
    int r = send_list(c, l);
    r = r ? r : send_have(c, l);
    if (r)
        return r;
    if ((c->setup->rate && c->tokens <= 0) || !find_block(c, l))
        return 0;
    r = send_hash(c, l);
    return r ? r : send_piece(c, l);
}
