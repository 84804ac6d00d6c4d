/* SPDX-License-Identifier: MIT */
#include "daemon/fetch/lend.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/xalloc.h"

enum {
    PATIENCE_MS = 30000, /* of a taker that takes nothing */
    BEAT_MS = 5000,      /* without a word, a taker hears that this end is there */
    HEAD_GUESS = 100000  /* bytes that are asked for while nobody knows how long a head is */
};

struct lend {
    struct lend_setup setup;
    struct hub *hub;    /* borrowed */
    uint32_t block, at; /* of the run that is given: the block that comes now, and bytes of it that left */
    uint32_t first, n;  /* blocks that are wanted; n: 0: none */
    uint8_t *piece;     /* owned: bytes that leave together */
    size_t piece_n;
    bool is_open, is_gone; /* is_gone: the taker has left, or wants no more */
    int r;                 /* it broke the protocol, or takes nothing */
    struct err err;
};

struct lend *lend_new(const struct lend_setup *setup)
{
    struct lend *l = xcalloc(1, sizeof *l);
    l->setup = *setup;
    l->piece = xmalloc(CARRY_BYTES);
    return l;
}

void lend_free(struct lend *l)
{
    if (!l)
        return;
    free(l->piece);
    free(l);
}

/* --- what goes -------------------------------------------------------------------------------- */

/* Waits until all has left. −EPIPE: the taker is gone. */
static int push(struct carry_line *line)
{
    int r;
    while ((r = carry_line_push(line, clock_now())) == -EAGAIN) {
        struct pollfd out = {.fd = line->fd, .events = POLLOUT};
        const int n = poll(&out, 1, PATIENCE_MS);
        if (!n)
            return -ETIMEDOUT;
        if (n < 0 && errno != EINTR)
            return -errno;
    }
    return r;
}

static int say(struct lend *l, enum carry_kind kind, uint32_t a, uint32_t b, const void *bytes, size_t n)
{
    struct carry_line *line = l->setup.line;
    uint8_t *to = carry_line_space(line);
    const size_t head = carry_frame_write(to, kind, a, b);
    if (n)
        memcpy(to + head, bytes, n);
    const int r = carry_line_put(line, head + n, clock_now());
    return r ? r : push(line);
}

void lend_say_gone(struct carry_line *line, const char *why)
{
    uint8_t *to = carry_line_space(line);
    const size_t head = carry_frame_write(to, CARRY_GONE, 0, 0), n = strnlen(why, CARRY_SENTENCE);
    memcpy(to + head, why, n);
    if (carry_line_is_free(line) && !carry_line_put(line, head + n, clock_now()))
        (void)carry_line_push(line, clock_now());
}

static int say_list(struct lend *l)
{
    const struct lend_setup *s = &l->setup;
    int r = 0;
    for (size_t at = 0; at < s->list_n && !r;) {
        const size_t left = s->list_n - at, n = left < CARRY_BYTES ? left : CARRY_BYTES;
        r = say(l, CARRY_LIST, (uint32_t)s->list_n, (uint32_t)at, s->list + at, n);
        at += n;
    }
    return r;
}

static int flush(struct lend *l)
{
    const size_t n = l->piece_n;
    if (!n)
        return 0;
    const int r = say(l, CARRY_PIECE, l->block, l->at, l->piece, n);
    l->piece_n = 0;
    l->at += (uint32_t)n;
    if (l->at == manifest_size(l->setup.manifest, l->block)) {
        l->block++;
        l->at = 0;
    }
    return r;
}

/* A piece ends with its block. */
static int give(void *owner, const void *bytes, size_t n, struct err *err)
{
    struct lend *l = owner;
    const uint8_t *from = bytes;
    int r = 0;
    (void)err;
    while (n && !r) {
        const size_t left = manifest_size(l->setup.manifest, l->block) - l->at,
                     most = left < CARRY_BYTES ? left : CARRY_BYTES, room = most - l->piece_n,
                     part = n < room ? n : room;
        memcpy(l->piece + l->piece_n, from, part);
        l->piece_n += part;
        from += part;
        n -= part;
        r = l->piece_n == most ? flush(l) : 0;
    }
    l->is_gone |= r != 0;
    return r ? -ECANCELED : 0;
}

static void on_waits(void *owner, const char *why)
{
    const struct lend *l = owner;
    l->setup.waits(why);
}

/* --- what comes ------------------------------------------------------------------------------- */

static int refuse(struct lend *l, const char *why)
{
    return l->r = err_set(&l->err, -EPROTO, "%s", why);
}

static int take_open(struct lend *l, const struct carry_frame *f)
{
    char content[DIGEST_HEX];
    digest_hex(content, f->bytes);
    l->is_open = true;
    return strcmp(content, l->setup.content) ? refuse(l, "another model is wanted than was announced") : 0;
}

static int take_want(struct lend *l, const struct carry_frame *f)
{
    const struct manifest *m = l->setup.manifest;
    if (l->n)
        return refuse(l, "a taker asks for more before it has what it asked for");
    if (f->a >= m->blocks ||
        f->b > (manifest_is_head(m, f->a) ? 1 : m->first[manifest_file_of(m, f->a) + 1] - f->a))
        return refuse(l, "a taker asks for a block that the model does not have");
    l->first = l->block = f->a;
    l->n = f->b;
    return 0;
}

static int take_frame(struct lend *l, const struct carry_frame *f)
{
    if (f->kind == CARRY_WAIT)
        return 0;
    if (f->kind == CARRY_GONE) {
        l->is_gone = true;
        return 0;
    }
    if (f->kind == CARRY_OPEN && !l->is_open)
        return take_open(l, f);
    if (f->kind == CARRY_ASK && l->is_open && !l->n)
        return say_list(l);
    if (f->kind == CARRY_WANT && l->is_open)
        return take_want(l, f);
    return refuse(l, "a taker says what the hub is not asked");
}

/* All that has come. */
static int hear(struct lend *l)
{
    struct carry_frame f;
    int r;
    while ((r = carry_line_read(l->setup.line, &f, clock_now())) > 0)
        if ((r = take_frame(l, &f)))
            break;
    l->is_gone |= r == -EPIPE || r == -ECONNRESET;
    return l->is_gone ? 0 : r;
}

bool lend_tick(void *owner)
{
    struct lend *l = owner;
    const struct instant now = clock_now();
    if (hear(l) || l->is_gone)
        return false;
    if (clock_since_us(now, l->setup.line->said) < BEAT_MS * UINT64_C(1000) ||
        !carry_line_is_free(l->setup.line))
        return true;
    l->is_gone = say(l, CARRY_WAIT, 0, 0, NULL, 0) != 0;
    return !l->is_gone;
}

/* --- its life --------------------------------------------------------------------------------- */

static int ask(struct lend *l, uint64_t at, uint64_t end,
               int (*take)(void *owner, const void *bytes, size_t n, struct err *err), struct err *err)
{
    const struct manifest *m = l->setup.manifest;
    struct pull_bytes b = {.file = &m->files[manifest_file_of(m, l->first)],
                           .at = at,
                           .end = end,
                           .take = take,
                           .waits = on_waits,
                           .owner = l};
    const struct pull_source from = {l->hub, l->setup.org, l->setup.name, l->setup.commit};
    return at < end ? pull_bytes(&from, &b, err) : 0;
}

/* No more than HEAD_GUESS. */
static int keep(void *owner, const void *bytes, size_t n, struct err *err)
{
    struct lend *l = owner;
    (void)err;
    memcpy(l->piece + l->piece_n, bytes, n);
    l->piece_n += n;
    return 0;
}

/* Most heads come with one request. */
static int give_head(struct lend *l, struct err *err)
{
    struct manifest *m = l->setup.manifest;
    const uint64_t most = m->files[manifest_file_of(m, l->first)].size,
                   guess = most < HEAD_GUESS ? most : HEAD_GUESS;
    const int r = ask(l, 0, guess, keep, err);
    if (r)
        return r;
    manifest_set_head(m, l->first, l->piece);
    const uint32_t size = manifest_size(m, l->first);
    l->piece_n = size < guess ? size : guess;
    if (flush(l)) {
        l->is_gone = true;
        return 0;
    }
    return ask(l, guess, size, give, err);
}

static int give_run(struct lend *l, struct err *err)
{
    const struct manifest *m = l->setup.manifest;
    const uint32_t last = l->first + l->n - 1;
    const int r = manifest_is_head(m, l->first)
                      ? give_head(l, err)
                      : ask(l, manifest_offset(m, l->first),
                            manifest_offset(m, last) + manifest_size(m, last), give, err);
    l->n = 0;
    l->piece_n = 0;
    return r;
}

/* 1: something has come; 0: it is time to look. */
static int wait_for_word(const struct lend *l)
{
    struct pollfd fds[2] = {{.fd = l->setup.line->fd, .events = POLLIN},
                            {.fd = l->setup.watch, .events = POLLIN}};
    const int n = poll(fds, 2, BEAT_MS);
    if (n < 0 && errno != EINTR)
        return -errno;
    return n > 0 && fds[1].revents ? -ECANCELED : 0;
}

static int turn(struct lend *l, struct err *err)
{
    int r = l->n ? give_run(l, err) : 0;
    if (!r && !l->n)
        r = wait_for_word(l);
    if (!r && !lend_tick(l) && !l->is_gone && !l->r)
        r = err_set(err, -EPROTO, "what the other node sends is no message of this protocol");
    return r;
}

int lend_run(struct lend *l, struct hub *hub, struct err *err)
{
    int r = 0;
    l->hub = hub;
    while (!r && !l->r && !l->is_gone)
        r = turn(l, err);
    if (l->is_gone)
        return 0;
    if (l->r) {
        *err = l->err;
        r = l->r;
    }
    return r;
}
