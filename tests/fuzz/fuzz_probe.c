/* SPDX-License-Identifier: MIT
 *
 * Frames of measuring from a neighbour with a bug, over two cables, as time passes. Input: (u8 what
 * ‖ u8 time ‖ frame)*. */
#include "tests/fuzz/lib/input.h"

#include "daemon/ringd/peer/probe.c" /* to begin anew without memory for a burst */

static size_t sent;

static int send_frame(void *owner, uint64_t path, const uint8_t *body, size_t n)
{
    (void)owner;
    expect(path >= 1 && path <= 2 && body && n <= PROBE_FRAME);
    return ++sent % 97 ? 0 : -ENOBUFS;
}

static bool idle(void *owner, const uint8_t peer[16])
{
    (void)peer;
    return *(bool *)owner;
}

static void measured(void *owner, uint64_t cable)
{
    (void)owner;
    expect(cable == 11 || cable == 12);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const struct probe_ops ops = {send_frame, idle, measured};
    static const uint8_t self[16] = {5}, peer[3][16] = {{0}, {1}, {9}}; /* one asks us, the other is asked */
    static uint8_t burst[PROBE_FRAME];
    struct instant now = {1};
    struct probe_result result;
    struct input in = {data, n};
    bool is_idle = true;
    struct probe probe = {.ops = &ops, .owner = &is_idle, .random = 1, .burst = burst}, *p = &probe;
    memcpy(p->self, self, sizeof p->self);
    sent = 0;
    for (uint64_t i = 1; i <= 2; i++)
        probe_up(p, 10 + i, i, peer[i], now);
    while (in.left) {
        const uint8_t what = input_u8(&in), time = input_u8(&in);
        uint8_t frame[SMALL] = {0};
        const size_t length = what & 4 ? input_bytes(&in, frame, sizeof frame) : sizeof frame;
        is_idle = what % 8 != 1;
        now.us += time * (uint64_t)time * 100;
        frame[0] = what & 4 ? frame[0] : what / 16;
        probe_frame(p, 1 + what % 2, frame, length, now);
        if (probe_due(p).us <= now.us)
            probe_tick(p, now);
        expect(probe_due(p).us > now.us);
    }
    for (uint64_t i = 11; i <= 12; i++)
        if (probe_result(p, i, &result))
            expect(result.at.us <= now.us);
    return 0;
}
