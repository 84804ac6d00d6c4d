/* SPDX-License-Identifier: MIT */
#include "packet_size.h"

#include <stddef.h>

/* What networks are made for, between the least and the largest */
static const uint32_t usual[] = {1280, 1400, 1492, 1500, 4000, 8000, 9000, 16000, 32000};

static void rest(struct packet_search *s, struct instant now)
{
    s->settled = s->passes != 0;
    s->testing = s->whole;
    s->tries = 0;
    s->due.us = now.us + PACKET_AGAIN_US;
}

static void test(struct packet_search *s, uint32_t size, struct instant now)
{
    s->testing = size;
    s->tries = 0;
    s->due = now;
}

void packet_search_begin(struct packet_search *s, uint32_t whole, struct instant now)
{
    if (s->whole == whole)
        return;
    *s = (struct packet_search){.whole = whole};
    test(s, whole, now);
}

/* The size under test does not come back. Where the least does not either, the other end is busy or
 * gone, and nothing is known. */
static void lose(struct packet_search *s, struct instant now)
{
    const bool was_narrow = packet_search_is_narrow(s) && s->settled;
    if (s->testing <= PACKET_LEAST)
        s->passes = 0;
    if (s->testing == s->whole && s->whole > PACKET_LEAST && !was_narrow)
        test(s, PACKET_LEAST, now);
    else
        rest(s, now);
}

uint32_t packet_search_next(struct packet_search *s, struct instant now)
{
    const bool passed_before = s->passes >= s->testing;
    if (!s->whole || now.us < s->due.us)
        return 0;
    if (s->tries == (passed_before ? PACKET_TRIES_AFTER : PACKET_TRIES)) {
        lose(s, now);
        if (now.us < s->due.us)
            return 0;
    }
    s->tries++;
    s->due.us = now.us + PACKET_TRY_US;
    return s->testing;
}

void packet_search_answered(struct packet_search *s, uint32_t size, struct instant now)
{
    if (size != s->testing)
        return; /* late: what it says is known */
    s->passes = size;
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        if (usual[i] > size && usual[i] < s->whole) {
            test(s, usual[i], now);
            return;
        }
    rest(s, now);
}

bool packet_search_is_narrow(const struct packet_search *s)
{
    return s->passes && s->passes < s->whole;
}
