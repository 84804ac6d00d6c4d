/* SPDX-License-Identifier: MIT
 *
 * A source: what is asked of it, and what comes. Sources share the work by themselves: each is
 * asked for the next block that nobody was asked for, whenever it has brought one. */
#include "daemon/fetch/carry/carry_impl.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/common/xalloc.h"

/* --- what is asked ---------------------------------------------------------------------------- */

static int open_it(struct carry *c, struct carry_lane *l)
{
    uint8_t *to = carry_line_space(&l->line);
    const size_t head = carry_frame_write(to, CARRY_OPEN, 0, 0);
    for (size_t i = 0; i < DIGEST; i++) {
        const char digits[3] = {c->setup->content[2 * i], c->setup->content[2 * i + 1], '\0'};
        to[head + i] = (uint8_t)strtoul(digits, NULL, 16);
    }
    l->is_open = true;
    const int r = carry_line_put(&l->line, head + DIGEST, c->now);
    return r ? r : 1;
}

/* One source at a time is asked for the manifest: it may be long. */
static int ask_list(struct carry *c, struct carry_lane *l)
{
    for (size_t i = 0; i < c->n; i++)
        if (c->lanes[i]->is_list_asked && !c->lanes[i]->is_lost)
            return 0;
    l->is_list_asked = true;
    const int r = carry_line_say(&l->line, CARRY_ASK, 0, 0, c->now);
    return r ? r : 1;
}

static bool has_said_all(const struct carry *c, const struct carry_lane *l)
{
    return l->has && l->has_at >= carry_disk_manifest(c->disk)->blocks;
}

static void choose(struct carry *c, struct carry_lane *l)
{
    uint32_t block;
    while (l->n_flight < CARRY_FLIGHT && carry_disk_next(c->disk, l->has, &block))
        l->flight[l->n_flight++] = (struct carry_flight){.block = block, .digest = digest_new()};
}

int carry_take_next(struct carry *c, struct carry_lane *l)
{
    if (!l->is_open)
        return open_it(c, l);
    if (!carry_disk_manifest(c->disk))
        return ask_list(c, l);
    if (!l->is_which_asked) {
        l->is_which_asked = true;
        const int r = carry_line_say(&l->line, CARRY_WHICH, 0, 0, c->now);
        return r ? r : 1;
    }
    if (c->room != ROOM_GIVEN || !carry_disk_is_checked(c->disk) || !has_said_all(c, l))
        return 0;
    choose(c, l);
    for (unsigned i = 0; i < l->n_flight; i++)
        if (!l->flight[i].is_asked) {
            l->flight[i].is_asked = true;
            const int r = carry_line_say(&l->line, CARRY_WANT, l->flight[i].block, 1, c->now);
            return r ? r : 1;
        }
    return 0;
}

bool carry_take_may_get(const struct carry *c, const struct carry_lane *l)
{
    return l->n_flight || !carry_disk_is_checked(c->disk) || !has_said_all(c, l) ||
           carry_disk_lacks(c->disk, l->has);
}

void carry_take_let_go(struct carry *c, struct carry_lane *l)
{
    for (unsigned i = 0; i < l->n_flight; i++) {
        carry_disk_put_back(c->disk, l->flight[i].block);
        digest_free(l->flight[i].digest);
    }
    l->n_flight = 0;
    if (!l->is_list_asked)
        return;
    free(c->list);
    c->list = NULL;
    c->list_n = c->list_size = 0;
}

/* --- the manifest ----------------------------------------------------------------------------- */

static void read_list(struct carry *c, struct carry_lane *l)
{
    char content[DIGEST_HEX];
    struct manifest *m;
    struct err why;
    manifest_content(content, c->list, c->list_n);
    if (strcmp(content, c->setup->content) != 0)
        carry_lane_lose(c, l, true, "the other node has another list of the model's blocks");
    else if (manifest_decode(&m, c->list, c->list_n, &why))
        carry_lane_lose(c, l, true, "%s", why.text);
    else {
        carry_disk_plan(c->disk, m, c->list, c->list_n);
        c->list = NULL;
        l->is_list_asked = false;
        carry_give_check(c);
    }
}

/* Memory follows what has come, not what was announced. */
static void take_list(struct carry *c, struct carry_lane *l, const struct carry_frame *f)
{
    if (!l->is_list_asked || f->b != c->list_n || (c->list_n && f->a != c->list_size)) {
        carry_lane_lose(c, l, true, "the other node sends a list of blocks that was not asked for");
        return;
    }
    c->list_size = f->a;
    c->list = xrealloc(c->list, c->list_n + f->n);
    memcpy(c->list + c->list_n, f->bytes, f->n);
    c->list_n += (uint32_t)f->n;
    if (c->list_n == c->list_size)
        read_list(c, l);
}

/* Again whenever it has more. */
static void take_have(struct carry *c, struct carry_lane *l, const struct carry_frame *f)
{
    const struct manifest *m = carry_disk_manifest(c->disk);
    if (!l->is_which_asked || f->b != m->blocks || (f->a && f->a != l->has_at)) {
        carry_lane_lose(c, l, true, "the other node says that it has blocks of another model");
        return;
    }
    if (!l->has)
        l->has = xcalloc((size_t)m->blocks / 8 + 1, 1);
    memcpy(l->has + f->a / 8, f->bytes, f->n);
    const uint32_t end = f->a + (uint32_t)f->n * 8;
    l->has_at = end < m->blocks ? end : m->blocks;
}

/* --- blocks ----------------------------------------------------------------------------------- */

static void end_block(struct carry *c, struct carry_lane *l, struct carry_flight *w)
{
    const struct manifest *m = carry_disk_manifest(c->disk);
    const uint32_t block = w->block;
    uint8_t hash[DIGEST];
    digest_take(w->digest, hash);
    if (memcmp(hash, m->hashes[block], DIGEST) != 0) {
        carry_lane_lose(c, l, true,
                        "a block of %s that the other node sent has another hash than the list has",
                        m->files[manifest_file_of(m, block)].name);
        return;
    }
    digest_free(w->digest);
    memmove(w, w + 1, (size_t)(l->flight + l->n_flight - w - 1) * sizeof *w);
    l->n_flight--;
    carry_fail(c, carry_disk_keep(c->disk, block, c->err));
    carry_say_progress(c, block);
}

static void take_piece(struct carry *c, struct carry_lane *l, const struct carry_frame *f)
{
    const struct manifest *m = carry_disk_manifest(c->disk);
    struct carry_flight *w = l->flight, *end = l->flight + l->n_flight;
    while (w < end && !(w->is_asked && w->block == f->a && w->at == f->b))
        w++;
    if (w == end || f->n > manifest_size(m, w->block) - w->at) {
        carry_lane_lose(c, l, true, "the other node sends bytes that were not asked for");
        return;
    }
    const int r = carry_disk_write(c->disk, w->block, w->at, f->bytes, f->n, c->err);
    if (r) {
        carry_fail(c, r);
        return;
    }
    digest_add(w->digest, f->bytes, f->n);
    w->at += (uint32_t)f->n;
    if (w->at == manifest_size(m, w->block))
        end_block(c, l, w);
}

void carry_take_frame(struct carry *c, struct carry_lane *l, const struct carry_frame *f)
{
    if (f->kind == CARRY_LIST)
        take_list(c, l, f);
    else if (f->kind == CARRY_PIECE)
        take_piece(c, l, f);
    else if (f->kind == CARRY_HAVE)
        take_have(c, l, f);
    else
        carry_lane_lose(c, l, true, "a source sends what only takers may send");
}
