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

/* The hub has all of it. */
static bool has_said_all(const struct carry *c, const struct carry_lane *l)
{
    return l->is_hub || (l->has && l->has_at >= carry_disk_manifest(c->disk)->blocks);
}

static void add_flight(struct carry_lane *l, uint32_t block)
{
    l->flight[l->n_flight++] = (struct carry_flight){.block = block, .digest = digest_new()};
}

/* --- the hub ---------------------------------------------------------------------------------- */

/* ret: room for so many as there are lanes. False: one of them has not said yet what it has. */
static bool find_others(const struct carry *c, const uint8_t **ret, struct carry_others *others)
{
    *others = (struct carry_others){.has = ret, .too_shared = carry_take_patience(c) == UINT64_MAX};
    for (size_t i = 0; i < c->n; i++) {
        const struct carry_lane *l = c->lanes[i];
        if (!l->is_source || l->is_hub || l->is_lost)
            continue;
        if (!has_said_all(c, l))
            return false;
        ret[others->n++] = l->has;
    }
    return true;
}

uint64_t carry_take_patience(const struct carry *c)
{
    const uint64_t gone = clock_since_us(c->now, c->moved), most = c->setup->patience_us;
    bool has_others = false, has_hub = false;
    for (size_t i = 0; i < c->n; i++) {
        const struct carry_lane *l = c->lanes[i];
        has_others |= l->is_source && !l->is_hub && !l->is_lost;
        has_hub |= l->is_hub && !l->is_lost;
    }
    return has_hub && has_others && gone < most ? most - gone : UINT64_MAX;
}

static void choose_run(struct carry *c, struct carry_lane *l)
{
    const uint8_t *has[CARRY_LANES];
    struct carry_others others;
    uint32_t first;
    if (l->n_flight || !find_others(c, has, &others))
        return;
    const uint32_t n = carry_disk_next_run(c->disk, &others, &first);
    if (!n)
        return;
    add_flight(l, first);
    l->run_end = first + n;
}

static void choose(struct carry *c, struct carry_lane *l)
{
    uint32_t block;
    while (l->n_flight < CARRY_FLIGHT && carry_disk_next(c->disk, l->has, &block))
        add_flight(l, block);
}

static bool lacks_of_hub(const struct carry *c)
{
    const uint8_t *has[CARRY_LANES];
    struct carry_others others;
    return !find_others(c, has, &others) || carry_disk_lacks_run(c->disk, &others);
}

int carry_take_next(struct carry *c, struct carry_lane *l)
{
    if (!l->is_open)
        return open_it(c, l);
    if (!carry_disk_manifest(c->disk))
        return ask_list(c, l);
    if (!l->is_which_asked && !l->is_hub) {
        l->is_which_asked = true;
        const int r = carry_line_say(&l->line, CARRY_WHICH, 0, 0, c->now);
        return r ? r : 1;
    }
    if (c->room != ROOM_GIVEN || !carry_disk_is_checked(c->disk) || !has_said_all(c, l))
        return 0;
    if (l->is_hub)
        choose_run(c, l);
    else
        choose(c, l);
    for (unsigned i = 0; i < l->n_flight; i++)
        if (!l->flight[i].is_asked) {
            l->flight[i].is_asked = true;
            const uint32_t first = l->flight[i].block, n = l->is_hub ? l->run_end - first : 1;
            const int r = carry_line_say(&l->line, CARRY_WANT, first, n, c->now);
            return r ? r : 1;
        }
    return 0;
}

bool carry_take_may_get(const struct carry *c, const struct carry_lane *l)
{
    return l->n_flight || !carry_disk_is_checked(c->disk) || !has_said_all(c, l) ||
           (l->is_hub ? lacks_of_hub(c) : carry_disk_lacks(c->disk, l->has));
}

void carry_take_let_go(struct carry *c, struct carry_lane *l)
{
    for (uint32_t b = l->is_hub && l->n_flight ? l->flight[0].block + 1 : l->run_end; b < l->run_end; b++)
        carry_disk_put_back(c->disk, b);
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

/* Where nobody knows which list is right, the one of another node does not count. */
static void read_list(struct carry *c, struct carry_lane *l)
{
    const char *list = c->setup->list;
    char content[DIGEST_HEX], all[DIGEST_HEX];
    struct manifest *m;
    struct err why;
    manifest_content(content, c->list, c->list_n);
    manifest_list(all, c->list, c->list_n);
    if (strcmp(content, c->setup->content) != 0 || (*list && !l->is_hub && strcmp(all, list) != 0))
        carry_lane_lose(c, l, true, "the other node has another list of the model's blocks");
    else if (manifest_decode(&m, c->list, c->list_n, &why))
        carry_lane_lose(c, l, true, "%s", why.text);
    else {
        if (!*list || l->is_hub)
            manifest_forget(m);
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
    c->moved = c->now;
}

/* --- blocks ----------------------------------------------------------------------------------- */

/* Where the list knows no hash, what the source says of it finds a damaged disk there. */
static bool is_right(const struct manifest *m, const struct carry_flight *w, const uint8_t hash[DIGEST])
{
    if (manifest_knows(m, w->block))
        return !memcmp(hash, m->hashes[w->block], DIGEST);
    return !w->is_said || !memcmp(hash, w->said, DIGEST);
}

/* The next block of a run that is left follows. */
static void end_flight(struct carry_lane *l, struct carry_flight *w)
{
    if (l->is_hub && w->block + 1 < l->run_end) {
        *w = (struct carry_flight){.block = w->block + 1, .digest = w->digest, .is_asked = true};
        return;
    }
    digest_free(w->digest);
    memmove(w, w + 1, (size_t)(l->flight + l->n_flight - w - 1) * sizeof *w);
    l->n_flight--;
}

static void end_block(struct carry *c, struct carry_lane *l, struct carry_flight *w)
{
    const struct manifest *m = carry_disk_manifest(c->disk);
    const uint32_t block = w->block;
    uint8_t hash[DIGEST];
    digest_take(w->digest, hash);
    if (!is_right(m, w, hash)) {
        carry_lane_lose(c, l, true, "a block of %s that %s sent has another hash than the list has",
                        m->files[manifest_file_of(m, block)].name, l->is_hub ? "the hub" : "the other node");
        return;
    }
    end_flight(l, w);
    c->moved = c->now;
    carry_fail(c, carry_disk_keep(c->disk, block, hash, c->err));
    carry_say_progress(c, block);
}

static void take_hash(struct carry *c, struct carry_lane *l, const struct carry_frame *f)
{
    struct carry_flight *w = l->flight, *end = l->flight + l->n_flight;
    while (w < end && !(w->is_asked && w->block == f->a && !w->at))
        w++;
    if (w == end) {
        carry_lane_lose(c, l, true, "the other node sends the hash of a block that was not asked for");
        return;
    }
    w->is_said = true;
    memcpy(w->said, f->bytes, DIGEST);
}

static void take_piece(struct carry *c, struct carry_lane *l, const struct carry_frame *f)
{
    const struct manifest *m = carry_disk_manifest(c->disk);
    struct carry_flight *w = l->flight, *end = l->flight + l->n_flight;
    while (w < end && !(w->is_asked && w->block == f->a && w->at == f->b))
        w++;
    const bool begins_head = w < end && !w->at && manifest_is_head(m, w->block), is_cut = f->n < HEAD_LENGTH;
    if (begins_head && !is_cut)
        carry_disk_size_head(c->disk, w->block, f->bytes);
    if (w == end || (begins_head && is_cut) || f->n > manifest_size(m, w->block) - w->at) {
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
    else if (f->kind == CARRY_HAVE && !l->is_hub)
        take_have(c, l, f);
    else if (f->kind == CARRY_HASH)
        take_hash(c, l, f);
    else
        carry_lane_lose(c, l, true, "a source sends what only takers may send");
}
