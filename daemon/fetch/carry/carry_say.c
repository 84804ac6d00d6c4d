/* SPDX-License-Identifier: MIT
 *
 * What ringd hears of all of them, and the end of a lane. */
#include "daemon/fetch/carry/carry_impl.h"

#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "daemon/common/ipc.h"

enum { PROGRESS_US = 250000 };

void carry_fail(struct carry *c, int r)
{
    c->r = c->r ? c->r : r;
}

void carry_say(struct carry *c, json_t *event)
{
    if (ipc_send(c->setup->ipc, event))
        carry_fail(c, -ECANCELED);
}

void carry_say_progress(struct carry *c, uint32_t block)
{
    const struct manifest *m = carry_disk_manifest(c->disk);
    const uint64_t done = carry_disk_done(c->disk), total = carry_disk_total(c->disk);
    c->late = block;
    c->is_late = clock_since_us(c->now, c->reported) < PROGRESS_US && done < total;
    if (c->is_late)
        return;
    c->reported = c->now;
    carry_say(c, json_pack("{s:s s:I s:I s:s}", "ev", "progress", "done", (json_int_t)done, "total",
                           (json_int_t)total, "file", m->files[manifest_file_of(m, block)].name));
}

uint64_t carry_say_late(struct carry *c)
{
    if (c->is_late)
        carry_say_progress(c, c->late);
    return c->is_late ? PROGRESS_US - clock_since_us(c->now, c->reported) : UINT64_MAX;
}

/* One attempt: what the socket does not take at once is not worth a wait. */
static void say_gone(struct carry *c, struct carry_lane *l, const char *why)
{
    const size_t n = strnlen(why, CARRY_SENTENCE);
    if (carry_line_push(&l->line, c->now) || !carry_line_is_free(&l->line))
        return;
    uint8_t *to = carry_line_space(&l->line);
    const size_t head = carry_frame_write(to, CARRY_GONE, 0, 0);
    memcpy(to + head, why, n);
    if (!carry_line_put(&l->line, head + n, c->now))
        (void)carry_line_push(&l->line, c->now);
}

void carry_lane_lose(struct carry *c, struct carry_lane *l, bool wrong, const char *why, ...)
{
    char text[CARRY_SENTENCE + 100];
    va_list args;
    if (l->is_lost)
        return;
    va_start(args, why);
    vsnprintf(text, sizeof text, why, args);
    va_end(args);
    l->is_lost = true;
    say_gone(c, l, text);
    json_t *event = json_pack("{s:s s:I s:i s:s}", "ev", "lost", "path", (json_int_t)l->path, "rank",
                              l->is_source ? 0 : 1, "error", text);
    if (wrong)
        json_object_set_new(event, "wrong", json_true());
    ipc_send(c->setup->ipc, event);
}
