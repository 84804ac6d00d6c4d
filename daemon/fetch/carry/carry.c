/* SPDX-License-Identifier: MIT
 *
 * The loop, and what ringd says and hears. */
#include "daemon/fetch/carry/carry.h"

#include <errno.h>
#include <jansson.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/ipc.h"
#include "daemon/common/model/model_name.h"
#include "daemon/common/xalloc.h"
#include "daemon/fetch/carry/carry_impl.h"

#define SECOND_US UINT64_C(1000000)

static void ask_room(struct carry *c)
{
    const uint64_t missing = carry_disk_total(c->disk) - carry_disk_done(c->disk);
    c->room = missing ? ROOM_ASKED : ROOM_GIVEN;
    carry_say_progress(c, 0);
    if (missing)
        carry_say(c, json_pack("{s:s s:I}", "ev", "room", "bytes", (json_int_t)missing));
}

/* --- what ringd says -------------------------------------------------------------------------- */

static void add_lane(struct carry *c, struct ipc_lane *lane, int fd)
{
    struct carry_lane *l = xcalloc(1, sizeof *l);
    l->path = lane->path;
    l->is_source = lane->rank != CARRY_RANK_TAKER;
    l->is_hub = lane->rank == CARRY_RANK_HUB;
    const int r = carry_line_open(&l->line, lane, fd, c->now);
    c->lanes[c->n++] = l;
    if (r)
        carry_lane_lose(c, l, false, "the connection cannot be used: %s", strerror(-r));
    else if (c->n == CARRY_LANES)
        carry_lane_lose(c, l, false, "%.100s has %d connections here, as many as there can be",
                        c->setup->model, CARRY_LANES - 1);
    else if (l->is_source && c->is_ready)
        carry_lane_lose(c, l, false, "all that is wanted of %.100s is here", c->setup->model);
}

/* More of it is to come. */
static void take_want(struct carry *c, const json_t *order)
{
    int r = carry_disk_want(c->disk, json_object_get(order, "blocks"), c->err);
    if (!r && json_is_true(json_object_get(order, "whole")))
        r = carry_disk_want_all(c->disk, c->err);
    if (r)
        carry_fail(c, r);
    c->is_ready = false;
    c->want = json_integer_value(json_object_get(order, "number"));
    c->asks_again = c->room == ROOM_ASKED;
    c->room = c->asks_again ? ROOM_ASKED : ROOM_UNKNOWN;
    c->sourced = c->now;
}

static void take_order(struct carry *c, const json_t *order)
{
    const char *what = json_string_value(json_object_get(order, "do")),
               *why = json_string_value(json_object_get(order, "why"));
    if (what && !strcmp(what, "want"))
        take_want(c, order);
    else if (!what || strcmp(what, "room") != 0 || c->room != ROOM_ASKED)
        carry_fail(c, err_set(c->err, -EBADMSG, "ringd says what was not asked for: same version of both?"));
    else if (why)
        carry_fail(c, err_set(c->err, -ENOSPC, "%s", why));
    else
        c->room = c->asks_again ? ROOM_UNKNOWN : ROOM_GIVEN;
    c->asks_again = c->asks_again && c->room == ROOM_ASKED;
}

static void hear_ringd(struct carry *c)
{
    struct ipc_lane lane;
    json_t *order = NULL;
    int fd;
    const int r = ipc_receive(c->setup->ipc, &order, &lane, &fd);
    if (r < 0)
        carry_fail(c, -ECANCELED);
    else if (r == 0)
        take_order(c, order);
    else if (fd >= 0)
        add_lane(c, &lane, fd);
    else
        carry_fail(c, err_set(c->err, -EBADMSG, "ringd gives a connection without its socket"));
    if (r == 0 && fd >= 0)
        close(fd);
    explicit_bzero(&lane, sizeof lane);
    json_decref(order);
}

/* --- a turn ----------------------------------------------------------------------------------- */

static bool is_fed(const struct carry *c)
{
    for (size_t i = 0; i < c->n; i++)
        if (c->lanes[i]->is_source && carry_take_may_get(c, c->lanes[i]))
            return true;
    return false;
}

static void forget_lost(struct carry *c)
{
    size_t kept = 0;
    for (size_t i = 0; i < c->n; i++) {
        if (!c->lanes[i]->is_lost) {
            c->lanes[kept++] = c->lanes[i];
            continue;
        }
        if (c->lanes[i]->is_source)
            carry_take_let_go(c, c->lanes[i]);
        carry_line_close(&c->lanes[i]->line);
        free(c->lanes[i]->has);
        free(c->lanes[i]);
    }
    c->n = kept;
}

static void become_ready(struct carry *c)
{
    c->is_ready = true;
    c->used = c->now;
    c->readied++;
    carry_say(c, json_pack("{s:s s:I}", "ev", "ready", "want", c->want));
    for (size_t i = 0; i < c->n; i++)
        if (c->lanes[i]->is_source)
            carry_lane_lose(c, c->lanes[i], false, "all that is wanted of %.100s is here", c->setup->model);
}

/* True: there is more to do at once. */
static bool work(struct carry *c)
{
    const int r = carry_disk_work(c->disk, c->err);
    if (r < 0)
        carry_fail(c, r);
    if (!c->r && carry_disk_is_checked(c->disk) && c->room == ROOM_UNKNOWN)
        ask_room(c);
    if (!c->r && !c->is_ready && carry_disk_is_complete(c->disk))
        become_ready(c);
    return r > 0;
}

/* So many bytes a second; what was not used in a tenth of one is gone. */
static void fill_tokens(struct carry *c)
{
    const uint64_t gone = clock_since_us(c->now, c->filled), rate = c->setup->rate;
    const int64_t most = (int64_t)(rate / 10 + 1);
    if (!rate)
        return;
    c->filled = c->now;
    c->tokens += (int64_t)((double)rate * (double)(gone < SECOND_US ? gone : SECOND_US) / 1e6);
    c->tokens = c->tokens < most ? c->tokens : most;
}

/* When tokens are there again, for who waits for nothing else. */
static uint64_t until_tokens(const struct carry *c)
{
    if (!c->setup->rate || c->tokens > 0)
        return UINT64_MAX;
    return (uint64_t)((double)(1 - c->tokens) * 1e6 / (double)c->setup->rate) + 1000;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Its files are still hashed, perhaps. */
static bool has_come(const struct carry *c)
{
    return carry_disk_is_checked(c->disk) && carry_disk_done(c->disk) == carry_disk_total(c->disk);
}

/* Deadlines of the whole. Returns µs until the next one. */
static uint64_t watch(struct carry *c)
{
    const bool is_taking = !c->is_ready, has_hub = carry_take_patience(c) != UINT64_MAX,
               has_source = is_fed(c) || has_come(c) || has_hub;
    if (has_source || !is_taking || carry_disk_is_complete(c->disk))
        c->sourced = c->now;
    if (c->n)
        c->used = c->now;
    const uint64_t lonely = clock_since_us(c->now, c->sourced), unused = clock_since_us(c->now, c->used);
    if (lonely >= c->setup->patience_us)
        carry_fail(c, err_set(c->err, -EHOSTUNREACH, "no node that has what is missing of %s can be reached",
                              c->setup->model));
    c->is_over = c->is_ready && unused >= c->setup->idle_us;
    if (is_taking && !has_source && lonely < c->setup->patience_us)
        return least(c->setup->patience_us - lonely, carry_take_patience(c));
    if (is_taking)
        return carry_take_patience(c);
    return c->is_ready && !c->n && !c->is_over ? c->setup->idle_us - unused : UINT64_MAX;
}

static void wait_for_all(struct carry *c, uint64_t wait_us)
{
    struct pollfd fds[CARRY_LANES + 1] = {{.fd = c->setup->ipc, .events = POLLIN}};
    const size_t n = c->n;
    for (size_t i = 0; i < n; i++) {
        const bool is_stuck = !carry_line_is_free(&c->lanes[i]->line);
        fds[i + 1] = (struct pollfd){.fd = c->lanes[i]->line.fd, .events = POLLIN | (is_stuck ? POLLOUT : 0)};
    }
    const uint64_t ms = least((wait_us + 999) / 1000, 60000);
    if (poll(fds, n + 1, (int)ms) < 0 && errno != EINTR)
        carry_fail(c, err_set(c->err, -errno, "poll: %s", strerror(errno)));
    c->now = clock_now();
    for (size_t i = 0; i < n && !c->r; i++)
        if (fds[i + 1].revents & (POLLIN | POLLHUP | POLLERR))
            carry_lane_read(c, c->lanes[i]);
    if (fds[0].revents)
        hear_ringd(c);
}

static void turn(struct carry *c)
{
    uint64_t wait_us = work(c) ? 0 : UINT64_MAX;
    fill_tokens(c);
    for (size_t i = 0; i < c->n && !c->r; i++) {
        wait_us = carry_lane_write(c, c->lanes[i]) ? 0 : wait_us;
        if (!c->lanes[i]->is_lost)
            wait_us = least(wait_us, carry_lane_watch(c, c->lanes[i]));
    }
    forget_lost(c);
    wait_us = least(least(wait_us, carry_say_late(c)), least(watch(c), until_tokens(c)));
    if (!c->r && !c->is_over)
        wait_for_all(c, wait_us);
    forget_lost(c);
}

static void close_all(struct carry *c)
{
    for (size_t i = 0; i < c->n; i++)
        carry_lane_lose(c, c->lanes[i], false, "%s",
                        c->r && *c->err->text ? c->err->text : "this node ends it");
    forget_lost(c);
    carry_disk_close(c->disk);
    free(c->list);
}

int carry_run(const struct carry_setup *setup, struct err *err)
{
    struct carry c = {.setup = setup, .err = err, .is_ready = !setup->want, .now = clock_now()};
    if (!model_content_is(setup->content))
        return err_set(err, -EINVAL, "the content that is wanted is no SHA-256");
    int r = carry_disk_open(&c.disk, setup->dir, setup->model, setup->content, setup->list, err);
    if (r)
        return r;
    carry_disk_set_source(c.disk, setup->source);
    c.sourced = c.used = c.filled = c.moved = c.now;
    c.room = ROOM_GIVEN;
    if (setup->want)
        take_want(&c, setup->want);
    else if (!carry_disk_is_named(c.disk))
        c.r = err_set(err, -ENOENT, "%s is not on this node any more", setup->model);
    while (!c.r && !c.is_over)
        turn(&c);
    if (c.is_over)
        carry_say(&c, json_pack("{s:s}", "ev", "idle"));
    r = c.r;
    close_all(&c);
    return r;
}
