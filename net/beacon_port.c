/* SPDX-License-Identifier: MIT
 *
 * A port's own beacons: when the next is due, how long they count, when each was sent; how much a
 * sender may say; the number of a cable. Called by beacon.c and beacon_table.c, on the loop. */
#include "beacon_impl.h"

#include "buf.h"

#include <sodium.h>
#include <string.h>

uint64_t cable_id(const uint8_t a_node[static 16], uint32_t a_port, const uint8_t b_node[static 16],
                  uint32_t b_port)
{
    int order = memcmp(a_node, b_node, 16);
    bool swap = order > 0 || (order == 0 && a_port > b_port);
    uint8_t pair[40], hash[16];
    struct buf_out out;
    struct buf_in in;

    buf_out_init(&out, pair, sizeof pair);
    buf_out_bytes(&out, swap ? b_node : a_node, 16);
    buf_out_u32(&out, swap ? b_port : a_port);
    buf_out_bytes(&out, swap ? a_node : b_node, 16);
    buf_out_u32(&out, swap ? a_port : b_port);
    crypto_generichash(hash, sizeof hash, pair, sizeof pair, NULL, 0);
    buf_in_init(&in, hash, sizeof hash);
    return buf_in_u64(&in);
}

bool bucket_take(struct bucket *bucket, unsigned per_second, struct instant now)
{
    uint64_t even = bucket->even.us > now.us ? bucket->even.us : now.us;

    if (even + 1000000 / per_second > now.us + 1000000)
        return false;
    bucket->even.us = even + 1000000 / per_second;
    return true;
}

void beacon_port_kick(struct beacon_port *port, struct instant now)
{
    uint64_t soon = now.us;

    if (port->seq > port->first_seq) {
        uint64_t next = port->sent[(port->seq - 1) % BEACON_SENT].us + BEACON_QUICK_US;

        soon = next > soon ? next : soon;
    }
    port->quick = BEACON_QUICK;
    port->changed = now;
    if (soon < port->due.us)
        port->due.us = soon;
}

uint64_t beacon_port_hold_us(const struct beacon_port *port)
{
    return port->shared ? BEACON_HOLD_SLOW_US : BEACON_HOLD_US;
}

bool beacon_port_sent(const struct beacon_port *port, uint64_t seq, struct instant now, struct instant *ret)
{
    if (seq < port->first_seq || seq >= port->seq || port->seq - seq > BEACON_SENT)
        return false;
    *ret = port->sent[seq % BEACON_SENT];
    return clock_since_us(now, *ret) <= beacon_port_hold_us(port);
}
