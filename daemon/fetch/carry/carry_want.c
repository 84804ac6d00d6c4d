/* SPDX-License-Identifier: MIT
 *
 * Which blocks of a model should come, and in which order. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/xalloc.h"
#include "daemon/fetch/carry/carry_disk_impl.h"

enum {
    LENGTH_BYTES = 8,
    HEAD_MOST = 100 * 1000 * 1000, /* as the reader of such files has it */
    NEWS_MOST = 16                 /* blocks that have come before other nodes hear of them */
};

static bool is_weights(const struct hub_file *f)
{
    const char *ending = strrchr(f->name, '.');
    return ending && !strcmp(ending, ".safetensors");
}

/* Small files first: a model that lacks one of them is of no use before its weights have come. */
void carry_want_plan(struct carry_disk *d)
{
    size_t n = 0;
    d->order = xcalloc(d->manifest->n, sizeof *d->order);
    for (int turn = 0; turn < 2; turn++)
        for (size_t i = 0; i < d->manifest->n; i++)
            if (is_weights(&d->manifest->files[i]) == (turn == 1))
                d->order[n++] = i;
}

/* --- what is wanted --------------------------------------------------------------------------- */

static void want_block(struct carry_disk *d, uint32_t block, bool is_outline, bool is_shared)
{
    struct carry_block *b = &d->blocks[block];
    const uint32_t size = manifest_size(d->manifest, block);
    b->is_shared = is_shared && (b->is_shared || !b->is_wanted);
    if (is_outline && !b->is_outline) {
        b->is_outline = true;
        d->outline_left += b->state != BLOCK_HERE;
        d->promised++;
    }
    if (b->is_wanted)
        return;
    b->is_wanted = true;
    d->total += size;
    d->done += b->state == BLOCK_HERE ? size : 0;
    d->files[manifest_file_of(d->manifest, block)].unwanted -= b->state != BLOCK_HERE;
    d->next_file = 0;
    d->next_block = 0;
}

/* The first block of a file says how long its head is. */
static int want_head(struct carry_disk *d, size_t file, struct err *err)
{
    const struct manifest *m = d->manifest;
    const uint32_t first = m->first[file], blocks = m->first[file + 1] - first;
    uint8_t raw[LENGTH_BYTES];
    uint64_t n = 0;
    if (manifest_size(m, first) < sizeof raw)
        return 0;
    const int r = carry_disk_read(d, first, 0, raw, sizeof raw, err);
    if (r)
        return r;
    for (size_t i = 0; i < sizeof raw; i++)
        n |= (uint64_t)raw[i] << 8 * i;
    if (n > HEAD_MOST) /* no such file: who opens it says so */
        return 0;
    for (uint32_t b = 1; b < blocks && (uint64_t)b * BLOCK_BYTES < LENGTH_BYTES + n; b++)
        want_block(d, first + b, true, false);
    return 0;
}

int carry_want_here(struct carry_disk *d, uint32_t block, struct err *err)
{
    struct carry_block *b = &d->blocks[block];
    const size_t file = manifest_file_of(d->manifest, block);
    if (b->state == BLOCK_HERE)
        return 0;
    d->files[file].unwanted -= !b->is_wanted;
    d->done += b->is_wanted ? manifest_size(d->manifest, block) : 0;
    d->outline_left -= b->is_outline;
    b->state = BLOCK_HERE;
    return b->is_outline && block == d->manifest->first[file] && is_weights(&d->manifest->files[file])
               ? want_head(d, file, err)
               : 0;
}

static int want_outline(struct carry_disk *d, struct err *err)
{
    const struct manifest *m = d->manifest;
    int r = 0;
    for (size_t i = 0; i < m->n && !r; i++) {
        const uint32_t all = m->first[i + 1] - m->first[i];
        const bool is_part = is_weights(&m->files[i]);
        for (uint32_t b = 0; b < (is_part && all ? 1 : all); b++)
            want_block(d, m->first[i] + b, true, false);
        if (is_part && all && d->blocks[m->first[i]].state == BLOCK_HERE)
            r = want_head(d, i, err);
    }
    return r;
}

static int want_blocks(struct carry_disk *d, const json_t *blocks, struct err *err)
{
    const struct manifest *m = d->manifest;
    size_t i;
    json_t *row;
    json_array_foreach (blocks, i, row) {
        const char *name = json_string_value(json_array_get(row, 0));
        const json_int_t first = json_integer_value(json_array_get(row, 1)),
                         end = json_integer_value(json_array_get(row, 2));
        size_t f = 0;
        while (name && f < m->n && strcmp(m->files[f].name, name) != 0)
            f++;
        if (!name || f == m->n || first < 0 || end <= first || end > m->first[f + 1] - m->first[f])
            return err_set(err, -EBADMSG, "%s has no blocks %lld to %lld of a file %s", d->model,
                           (long long)first, (long long)end - 1, name ? name : "without a name");
        for (json_int_t b = first; b < end; b++)
            want_block(d, m->first[f] + (uint32_t)b, false, json_is_true(json_array_get(row, 3)));
    }
    return 0;
}

int carry_want_begin(struct carry_disk *d, struct err *err)
{
    int r = d->wants ? want_outline(d, err) : 0;
    if (!r)
        r = want_blocks(d, d->asked, err);
    json_decref(d->asked);
    d->asked = NULL;
    return r;
}

int carry_disk_want(struct carry_disk *d, const json_t *blocks, struct err *err)
{
    size_t i;
    json_t *row;
    d->wants = true;
    if (!d->asked)
        d->asked = json_array();
    json_array_foreach (blocks, i, row)
        json_array_append(d->asked, row);
    return carry_disk_is_checked(d) ? carry_want_begin(d, err) : 0;
}

/* --- in which order --------------------------------------------------------------------------- */

static bool is_due(const struct carry_disk *d, uint32_t block)
{
    return d->blocks[block].is_wanted && d->blocks[block].state == BLOCK_MISSING;
}

static bool has_bit(const uint8_t *has, uint32_t block)
{
    return has[block / 8] & 1 << block % 8;
}

/* From the marks on, which move over what is not due for anybody. */
static bool find_due(const struct carry_disk *d, const uint8_t *has, size_t file, uint32_t block,
                     uint32_t *ret)
{
    const struct manifest *m = d->manifest;
    for (; file < m->n; file++, block = 0) {
        const size_t i = d->order[file];
        for (uint32_t b = m->first[i] + block; b < m->first[i + 1]; b++)
            if (is_due(d, b) && has_bit(has, b)) {
                *ret = b;
                return true;
            }
    }
    return false;
}

static void move_marks(struct carry_disk *d)
{
    const struct manifest *m = d->manifest;
    for (; d->next_file < m->n; d->next_file++, d->next_block = 0) {
        const size_t i = d->order[d->next_file];
        for (; m->first[i] + d->next_block < m->first[i + 1]; d->next_block++)
            if (is_due(d, m->first[i] + d->next_block))
                return;
    }
}

bool carry_disk_next(struct carry_disk *d, const uint8_t *has, uint32_t *ret)
{
    move_marks(d);
    if (!find_due(d, has, d->next_file, d->next_block, ret))
        return false;
    d->blocks[*ret].state = BLOCK_ASKED;
    return true;
}

bool carry_disk_lacks(const struct carry_disk *d, const uint8_t *has)
{
    uint32_t block;
    return find_due(d, has, d->next_file, d->next_block, &block);
}

/* --- from the hub ----------------------------------------------------------------------------- */

static bool is_for_hub(const struct carry_disk *d, const struct carry_others *o, uint32_t block)
{
    if (!is_due(d, block) || (d->blocks[block].is_shared && !o->too_shared))
        return false;
    for (size_t i = 0; i < o->n; i++)
        if (has_bit(o->has[i], block))
            return false;
    return true;
}

static bool find_for_hub(const struct carry_disk *d, const struct carry_others *o, uint32_t *ret,
                         uint32_t *ret_end)
{
    const struct manifest *m = d->manifest;
    uint32_t block = d->next_block;
    for (size_t file = d->next_file; file < m->n; file++, block = 0) {
        const size_t i = d->order[file];
        for (uint32_t b = m->first[i] + block; b < m->first[i + 1]; b++)
            if (is_for_hub(d, o, b)) {
                *ret = b;
                *ret_end = m->first[i + 1];
                return true;
            }
    }
    return false;
}

uint32_t carry_disk_next_run(struct carry_disk *d, const struct carry_others *others, uint32_t *ret)
{
    uint32_t n = 0, end;
    move_marks(d);
    if (!find_for_hub(d, others, ret, &end))
        return 0;
    for (; *ret + n < end && is_for_hub(d, others, *ret + n); n++)
        d->blocks[*ret + n].state = BLOCK_ASKED;
    return n;
}

bool carry_disk_lacks_run(const struct carry_disk *d, const struct carry_others *others)
{
    uint32_t block, end;
    return find_for_hub(d, others, &block, &end);
}

void carry_disk_put_back(struct carry_disk *d, uint32_t block)
{
    if (d->blocks[block].state == BLOCK_ASKED)
        d->blocks[block].state = BLOCK_MISSING;
    d->next_file = 0;
    d->next_block = 0;
}

bool carry_disk_has(const struct carry_disk *d, uint32_t block)
{
    return d->blocks[block].state == BLOCK_HERE;
}

bool carry_disk_promises(const struct carry_disk *d, uint32_t block)
{
    return d->blocks[block].state == BLOCK_HERE || d->blocks[block].is_outline;
}

/* Of a large model its bits are some 20 KB, and 64 MiB in between. */
uint32_t carry_disk_promised(const struct carry_disk *d)
{
    const uint32_t part = d->manifest->blocks / 64, each = part < 1 ? 1 : part < NEWS_MOST ? part : NEWS_MOST;
    return d->promised + d->kept / each;
}

uint64_t carry_disk_done(const struct carry_disk *d)
{
    return d->done;
}

uint64_t carry_disk_total(const struct carry_disk *d)
{
    return d->total;
}
