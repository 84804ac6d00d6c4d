/* SPDX-License-Identifier: MIT */
#include <string.h>

#include "daemon/ringd/cluster/cluster.h"
#include "daemon/ringd/log.h"
#include "daemon/ringd/peer/peers_impl.h"

void peers_note_ended(struct peers *p, const uint8_t id[16])
{
    struct member *self = members_self(p->s.members);
    size_t i = 0;
    while (i < self->nended && memcmp(self->ended[i], id, 16))
        i++;
    if (i == self->nended && i < RING_MAX_NODES)
        memcpy(self->ended[self->nended++], id, 16);
}

void peers_forget_ended(struct peers *p, const uint8_t id[16])
{
    struct member *self = members_self(p->s.members);
    for (size_t i = 0; i < self->nended; i++)
        if (!memcmp(self->ended[i], id, 16))
            memcpy(self->ended[i], self->ended[--self->nended], 16);
}

void peers_send_roster(struct peers *p, struct link *link)
{
    size_t n;
    const uint8_t *roster = cluster_roster_bytes(p->s.cluster, &n);
    if (roster)
        link_send(link, FRAME_ROSTER, roster, n);
}

void peers_learn_roster(struct peers *p, struct link *link, const uint8_t *body, size_t n)
{
    struct err err;
    int r = cluster_learn(p->s.cluster, body, n, &err);
    if (r < 0)
        log_warning("the roster that %s sent was not applied: %s", link_peer(link)->name, err.text);
    else if (r > 0)
        p->s.ops->membership_changed(p->s.owner);
}

void peers_redial(struct peers *p)
{
    bool member = cluster_state(p->s.cluster) == CLUSTER_MEMBER;
    struct way_news news = {.event = member ? WAY_OPENED : WAY_CLOSED};
    struct dial *d, *next;
    for (d = LIST_FIRST(&p->dials); d; d = next) {
        next = LIST_NEXT(d, next);
        peers_way_step(d, &news);
    }
}

/* A change is told first, to those it throws out as well: they learn it from the signed word and
 * not from a closed door. */
void peers_membership_changed(struct peers *p)
{
    struct session *s;
    char why[256];
    LIST_FOREACH (s, &p->sessions, next)
        if (s->up)
            peers_send_roster(p, s->link);
    LIST_FOREACH (s, &p->sessions, next) {
        if (link_kind(s->link) != LINK_JOIN && link_peer(s->link) && link_state(s->link) != LINK_DOWN &&
            cluster_judge(p->s.cluster, link_peer_key(s->link), link_peer(s->link), why, sizeof why))
            link_close(s->link, LINK_END_REFUSED, why);
        else if (s->up)
            link_rekey(s->link);
    }
    peers_redial(p);
}
