/* SPDX-License-Identifier: MIT */
#include <stdio.h>

#include "daemon/measure.h"
#include "daemon/node.h"
#include "daemon/peers_impl.h"
#include "net/seal.h"

static json_t *session_encode(const struct session *s)
{
    struct link_stats st;
    link_stats(s->link, &st);
    const struct link_hello *peer = link_peer(s->link);
    json_t *shown =
        json_pack("{s:s s:s s:s s:s s:s s:f s:I s:I s:f s:b}", "peer", peer ? peer->name : "", "address",
                  link_address(s->link), "direction", link_dialed(s->link) ? "dialed" : "accepted", "state",
                  link_state_name(link_state(s->link)), "cipher", s->up ? seal_suite_name(st.suite) : "",
                  "rtt_ms", st.rtt_us / 1e3, "tx_bytes", (json_int_t)st.tx_bytes, "rx_bytes",
                  (json_int_t)st.rx_bytes, "up_seconds", (double)st.up_us / 1e6, "suspect", (int)st.suspect);
    json_t *speed = measure_encode(s->p->node->measure, s->cable);
    json_object_update_missing(shown, speed);
    json_decref(speed);
    return shown;
}

static json_t *dial_encode(const struct dial *d)
{
    char address[160];
    snprintf(address, sizeof address, "%s:%u", d->host, d->port);
    return json_pack("{s:s s:s s:s s:s s:s}", "peer", "", "address", address, "direction", "dialing", "state",
                     "down", "why", *d->why ? d->why : "not tried yet");
}

json_t *peers_encode(struct peers *p)
{
    json_t *list = json_array();
    struct session *s;
    struct dial *d;
    LIST_FOREACH(s, &p->sessions, next)
    if (s->up)
        json_array_append_new(list, session_encode(s));
    LIST_FOREACH(d, &p->dials, next)
    if (!(d->known && peers_session_with(p, d->id, NULL)))
        json_array_append_new(list, dial_encode(d));
    return list;
}
