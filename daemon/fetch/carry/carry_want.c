/* SPDX-License-Identifier: MIT
 *
 * Which blocks of a model should come, and in which order. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/xalloc.h"
#include "daemon/fetch/carry/carry_disk_impl.h"

enum { NEWS_MOST = 16 /* blocks that have come before other nodes hear of them */ };

static void add_span(struct carry_disk *d, uint32_t first, uint32_t end)
{
    d->spans[d->n_spans++] = (struct carry_span){first, end};
}

/* Small files first, then heads: a model that lacks one of them is of no use before its weights
 * have come. */
void carry_want_plan(struct carry_disk *d)
{
    const struct manifest *m = d->manifest;
    size_t n = 0;
    d->order = xcalloc(m->n, sizeof *d->order);
    d->spans = xcalloc(m->n + 1, sizeof *d->spans);
    for (int turn = 0; turn < 2; turn++) {
        for (size_t i = 0; i < m->n; i++) {
            if (manifest_is_weights(&m->files[i]) != (turn == 1))
                continue;
            d->order[n++] = i;
            add_span(d, m->first[i], m->first[i + 1]);
        }
        if (turn == 0)
            add_span(d, m->first[m->n], m->blocks);
    }
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
    if (!manifest_is_head(d->manifest, block))
        d->files[manifest_file_of(d->manifest, block)].unwanted -= b->state != BLOCK_HERE;
    d->next_span = 0;
    d->next_block = 0;
}

void carry_want_here(struct carry_disk *d, uint32_t block)
{
    struct carry_block *b = &d->blocks[block];
    if (b->state == BLOCK_HERE)
        return;
    if (!manifest_is_head(d->manifest, block))
        d->files[manifest_file_of(d->manifest, block)].unwanted -= !b->is_wanted;
    d->done += b->is_wanted ? manifest_size(d->manifest, block) : 0;
    d->outline_left -= b->is_outline;
    b->state = BLOCK_HERE;
}

void carry_disk_size_head(struct carry_disk *d, uint32_t head, const uint8_t *length)
{
    const uint32_t before = manifest_size(d->manifest, head);
    if (length)
        manifest_set_head(d->manifest, head, length);
    else
        manifest_forget_head(d->manifest, head);
    if (d->blocks[head].is_wanted)
        d->total += manifest_size(d->manifest, head) - (uint64_t)before;
}

static void want_outline(struct carry_disk *d)
{
    const struct manifest *m = d->manifest;
    for (size_t i = 0; i < m->n; i++)
        for (uint32_t b = m->first[i]; b < m->first[i + 1] && !manifest_is_weights(&m->files[i]); b++)
            want_block(d, b, true, false);
    for (uint32_t b = m->first[m->n]; b < m->blocks; b++)
        want_block(d, b, true, false);
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
    if (d->wants)
        want_outline(d);
    const int r = want_blocks(d, d->asked, err);
    for (uint32_t b = 0; !r && d->wants_all && b < d->manifest->blocks; b++)
        want_block(d, b, false, false);
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

int carry_disk_want_all(struct carry_disk *d, struct err *err)
{
    d->wants_all = true;
    return carry_disk_want(d, NULL, err);
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
static bool find_due(const struct carry_disk *d, const uint8_t *has, size_t span, uint32_t block,
                     uint32_t *ret)
{
    for (; span < d->n_spans; span++, block = 0)
        for (uint32_t b = d->spans[span].first + block; b < d->spans[span].end; b++)
            if (is_due(d, b) && has_bit(has, b)) {
                *ret = b;
                return true;
            }
    return false;
}

static void move_marks(struct carry_disk *d)
{
    for (; d->next_span < d->n_spans; d->next_span++, d->next_block = 0) {
        const struct carry_span *s = &d->spans[d->next_span];
        for (; s->first + d->next_block < s->end; d->next_block++)
            if (is_due(d, s->first + d->next_block))
                return;
    }
}

bool carry_disk_next(struct carry_disk *d, const uint8_t *has, uint32_t *ret)
{
    move_marks(d);
    if (!find_due(d, has, d->next_span, d->next_block, ret))
        return false;
    d->blocks[*ret].state = BLOCK_ASKED;
    return true;
}

bool carry_disk_lacks(const struct carry_disk *d, const uint8_t *has)
{
    uint32_t block;
    return find_due(d, has, d->next_span, d->next_block, &block);
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

/* ret_end: of the run that may begin there: a head is one of its own. */
static bool find_for_hub(const struct carry_disk *d, const struct carry_others *o, uint32_t *ret,
                         uint32_t *ret_end)
{
    uint32_t block = d->next_block;
    for (size_t i = d->next_span; i < d->n_spans; i++, block = 0)
        for (uint32_t b = d->spans[i].first + block; b < d->spans[i].end; b++)
            if (is_for_hub(d, o, b)) {
                *ret = b;
                *ret_end = manifest_is_head(d->manifest, b) ? b + 1 : d->spans[i].end;
                return true;
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
    if (d->blocks[block].state == BLOCK_ASKED) {
        d->blocks[block].state = BLOCK_MISSING;
        if (manifest_is_head(d->manifest, block)) /* who gave its beginning may be wrong */
            carry_disk_size_head(d, block, NULL);
    }
    d->next_span = 0;
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
