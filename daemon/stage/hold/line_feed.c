/* SPDX-License-Identifier: MIT */
#include "daemon/stage/hold/line_feed.h"

#include <stdlib.h>
#include <string.h>

void line_feed_done(struct line_feed *f)
{
    free(f->text);
    *f = (struct line_feed){0};
}

static void give_up(struct line_feed *f)
{
    line_feed_done(f);
    f->is_over = true;
}

static bool make_room(struct line_feed *f, size_t n)
{
    const size_t room = 2 * (f->n + n);
    if (f->n + n > LINE_FEED_MOST)
        return false;
    if (f->n + n <= f->room)
        return true;
    char *grown = realloc(f->text, room);
    if (!grown)
        return false;
    f->text = grown;
    f->room = room;
    return true;
}

void line_feed_add(struct line_feed *f, const json_t *line)
{
    if (f->is_over)
        return;
    char *text = json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(17));
    const size_t n = text ? strlen(text) : 0;
    if (!n || !make_room(f, n + 1)) {
        give_up(f);
    } else {
        memcpy(f->text + f->n, text, n);
        f->text[f->n + n] = '\n';
        f->n += n + 1;
    }
    free(text);
}

size_t line_feed_next(struct line_feed *f, size_t room)
{
    if (f->n <= room)
        return f->n;
    size_t n = room;
    while (n && f->text[n - 1] != '\n')
        n--;
    if (!n) /* a line that no GO has room for */
        give_up(f);
    return n;
}

void line_feed_sent(struct line_feed *f, size_t n)
{
    if (!n)
        return;
    memmove(f->text, f->text + n, f->n - n);
    f->n -= n;
}
