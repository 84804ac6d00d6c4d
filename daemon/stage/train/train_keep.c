/* SPDX-License-Identifier: MIT */
#include "daemon/stage/train/train_keep.h"

#include "daemon/stage/hold/held_memory.h"

/* A rank that has not answered by then has a disk that hangs, or its answer was lost. */
enum { ANSWER_US = 60000000 };

static bool is_pending(const struct train_keep *k)
{
    return k->step && atomic_load(&k->head->kept) / 2 != k->step &&
           clock_since_us(clock_now(), k->asked) < ANSWER_US;
}

int train_keep_init(struct train_keep *k, const struct head *h, struct err *err)
{
    *k = (struct train_keep){.head = h, .is_small = true};
    return h->plan.copies ? held_are_small(&k->is_small, &h->plan, &h->config, err) : 0;
}

bool train_keep_begins(struct train_keep *k, uint64_t held)
{
    if (!held || held == k->step || is_pending(k))
        return false;
    k->step = held;
    k->asked = clock_now();
    k->given = 0;
    k->is_said = false;
    return true;
}

/* There are two turns: the next copies take the other one. */
bool train_keep_forbids(const struct train_keep *k)
{
    return !k->is_small && k->given && is_pending(k);
}

void train_keep_given(struct train_keep *k)
{
    k->given++;
}

bool train_keep_is_whole(struct train_keep *k)
{
    if (k->is_said || !k->step || atomic_load(&k->head->kept) != 2 * k->step + 1)
        return false;
    return k->is_said = true;
}
