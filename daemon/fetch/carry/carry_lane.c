/* SPDX-License-Identifier: MIT */
#include "daemon/fetch/carry/carry_impl.h"

#include <errno.h>
#include <string.h>

#include "daemon/common/text_clean.h"

/* --- what comes ------------------------------------------------------------------------------- */

static void take_sentence(struct carry *c, struct carry_lane *l, const struct carry_frame *f)
{
    char sentence[CARRY_SENTENCE + 1], clean[CARRY_SENTENCE + 1];
    memcpy(sentence, f->bytes, f->n);
    sentence[f->n] = '\0';
    text_clean(clean, sizeof clean, sentence, false);
    carry_lane_lose(c, l, false, l->is_hub ? "%s" : "the other node says: %s", *clean ? clean : "no more");
}

static void lose_line(struct carry *c, struct carry_lane *l, int r)
{
    if (r == -EBADMSG)
        carry_lane_lose(c, l, true, "what the other node sends is no message of this protocol");
    else if (r == -EPIPE)
        carry_lane_lose(c, l, false, "the other node has closed the connection");
    else
        carry_lane_lose(c, l, false, "the connection broke: %s", strerror(-r));
}

void carry_lane_read(struct carry *c, struct carry_lane *l)
{
    struct carry_frame f;
    int r = 1;
    for (unsigned turn = 0; turn < CARRY_TURN && r > 0 && !l->is_lost && !c->r; turn++) {
        r = carry_line_read(&l->line, &f, c->now);
        if (r < 0)
            lose_line(c, l, r);
        else if (r && f.kind == CARRY_GONE)
            take_sentence(c, l, &f);
        else if (r && f.kind == CARRY_BYE)
            lose_line(c, l, -EPIPE);
        else if (r && f.kind != CARRY_WAIT && l->is_source)
            carry_take_frame(c, l, &f);
        else if (r && f.kind != CARRY_WAIT)
            carry_give_frame(c, l, &f);
    }
}

/* --- what goes -------------------------------------------------------------------------------- */

bool carry_lane_write(struct carry *c, struct carry_lane *l)
{
    int r = 1;
    for (unsigned turn = 0; turn < CARRY_TURN && r > 0 && !l->is_lost && !c->r; turn++) {
        r = carry_line_push(&l->line, c->now);
        if (!r)
            r = l->is_source ? carry_take_next(c, l) : carry_give_next(c, l);
    }
    if (r < 0 && r != -EAGAIN)
        lose_line(c, l, r);
    return r > 0;
}

/* --- time ------------------------------------------------------------------------------------- */

static uint64_t left_of(struct instant now, struct instant since, uint64_t of)
{
    const uint64_t gone = clock_since_us(now, since);
    return gone < of ? of - gone : 0;
}

/* Each end says something six times before the other loses patience: silence is always a loss. */
uint64_t carry_lane_watch(struct carry *c, struct carry_lane *l)
{
    const uint64_t patience = c->setup->patience_us, beat = patience / 6;
    const bool is_stuck = !carry_line_is_free(&l->line);
    const uint64_t heard = left_of(c->now, l->line.heard, patience),
                   moved = is_stuck ? left_of(c->now, l->line.moved, patience) : patience;
    if (!heard || !moved) {
        carry_lane_lose(c, l, false,
                        heard ? "the other node takes nothing, for %u s"
                              : "the other node is silent, for %u s",
                        (unsigned)(patience / 1000000));
        return 0;
    }
    if (l->is_open && !is_stuck && !left_of(c->now, l->line.said, beat)) {
        const int r = carry_line_say(&l->line, CARRY_WAIT, 0, 0, c->now);
        const int sent = r ? r : carry_line_push(&l->line, c->now);
        if (sent && sent != -EAGAIN)
            lose_line(c, l, sent);
    }
    const uint64_t next = left_of(c->now, l->line.said, beat);
    const uint64_t soonest = heard < moved ? heard : moved;
    return is_stuck || !l->is_open || soonest < next ? soonest : next;
}
