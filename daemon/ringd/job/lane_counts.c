/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/job/lane_counts.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/common/progress.h"
#include "daemon/common/xalloc.h"
#include "net/clock.h"

enum {
    CABLES_MAX = 64
}; /* that a stage here has ever talked over; the last stands for all that come later */

struct cable_count {
    struct path_name name;
    uint64_t tx_bytes, rx_bytes, retransmits;
    uint32_t rtt_us;   /* 0 = not known now */
    uint64_t keyed_us; /* the oldest key's begin; 0: no data connection is there now */
};
struct lane_counts {
    struct cable_count cables[CABLES_MAX];
    size_t n;
    struct {
        uint64_t path;
        size_t cable;
    } paths[PROGRESS_LANES]; /* of the present stage */
    size_t npaths;
};

struct lane_counts *lane_counts_new(void)
{
    return xcalloc(1, sizeof(struct lane_counts));
}

void lane_counts_free(struct lane_counts *c)
{
    free(c);
}

static bool same_name(const struct path_name *a, const struct path_name *b)
{
    return !strcmp(a->peer, b->peer) && !strcmp(a->port, b->port) && !strcmp(a->cable, b->cable);
}

static size_t cable_named(struct lane_counts *c, const struct path_name *name)
{
    size_t i = 0;
    while (i < c->n && !same_name(&c->cables[i].name, name))
        i++;
    if (i == c->n && c->n < CABLES_MAX)
        c->cables[c->n++].name = *name;
    return i < CABLES_MAX ? i : CABLES_MAX - 1;
}

void lane_counts_name(struct lane_counts *c, uint64_t path, const struct path_name *name)
{
    for (size_t k = 0; k < c->npaths; k++)
        if (c->paths[k].path == path)
            return;
    const size_t i = cable_named(c, name);
    if (c->npaths == PROGRESS_LANES)
        return;
    c->paths[c->npaths].path = path;
    c->paths[c->npaths++].cable = i;
}

static void add_stage(struct lane_counts *c, const struct progress *stage)
{
    for (size_t k = 0; k < c->npaths; k++)
        for (size_t i = 0; i < PROGRESS_LANES; i++) {
            const struct progress_lane *lane = &stage->lanes[i];
            struct cable_count *cable = &c->cables[c->paths[k].cable];
            if (!atomic_load_explicit(&lane->used, memory_order_acquire) || lane->path != c->paths[k].path)
                continue;
            uint32_t rtt = atomic_load_explicit(&lane->rtt_us, memory_order_relaxed);
            cable->tx_bytes += atomic_load_explicit(&lane->tx_bytes, memory_order_relaxed);
            cable->rx_bytes += atomic_load_explicit(&lane->rx_bytes, memory_order_relaxed);
            cable->retransmits += atomic_load_explicit(&lane->retransmits, memory_order_relaxed);
            cable->rtt_us = rtt ? rtt : cable->rtt_us;
            const uint64_t keyed = atomic_load_explicit(&lane->keyed_us, memory_order_relaxed);
            if (keyed && (!cable->keyed_us || keyed < cable->keyed_us))
                cable->keyed_us = keyed;
        }
}

void lane_counts_keep(struct lane_counts *c, const struct progress *stage)
{
    add_stage(c, stage);
    for (size_t i = 0; i < c->n; i++)
        c->cables[i].rtt_us = 0, c->cables[i].keyed_us = 0;
    c->npaths = 0;
}

void lane_counts_add(struct lane_counts *c, const struct lane_counts *more, const struct progress *stage)
{
    struct lane_counts now = *more;
    if (stage)
        add_stage(&now, stage);
    for (size_t i = 0; i < now.n; i++) {
        const struct cable_count *from = &now.cables[i];
        struct cable_count *to = &c->cables[cable_named(c, &from->name)];
        to->tx_bytes += from->tx_bytes;
        to->rx_bytes += from->rx_bytes;
        to->retransmits += from->retransmits;
        to->rtt_us = from->rtt_us ? from->rtt_us : to->rtt_us;
        if (from->keyed_us && (!to->keyed_us || from->keyed_us < to->keyed_us))
            to->keyed_us = from->keyed_us;
    }
}

json_t *lane_counts_encode(const struct lane_counts *c)
{
    json_t *list = json_array();
    for (size_t i = 0; i < c->n; i++) {
        const struct cable_count *at = &c->cables[i];
        json_t *one =
            json_pack("{s:s s:s s:s s:I s:I s:I}", "peer", at->name.peer, "port", at->name.port, "cable",
                      at->name.cable, "data_tx_bytes", (json_int_t)at->tx_bytes, "data_rx_bytes",
                      (json_int_t)at->rx_bytes, "data_retransmits", (json_int_t)at->retransmits);
        if (at->rtt_us)
            json_object_set_new(one, "data_rtt_ms", json_real(at->rtt_us / 1e3));
        if (at->keyed_us)
            json_object_set_new(
                one, "data_key_seconds",
                json_real((double)clock_since_us(clock_now(), (struct instant){at->keyed_us}) / 1e6));
        json_array_append_new(list, one);
    }
    return list;
}
