/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/ledger.h"

#include <stdlib.h>

#include "daemon/common/xalloc.h"

struct ledger {
    struct ledger_queue *first; /* borrowed: their owners */
};

struct ledger *ledger_new(void)
{
    return xcalloc(1, sizeof(struct ledger));
}

void ledger_free(struct ledger *ledger)
{
    free(ledger);
}

void ledger_register(struct ledger *ledger, struct ledger_queue *q, const char *name, size_t cap)
{
    q->name = name;
    q->cap = cap;
    atomic_init(&q->bytes, 0);
    atomic_init(&q->refused, 0);
    q->next = ledger ? ledger->first : NULL;
    if (ledger)
        ledger->first = q;
}

const struct ledger_queue *ledger_first(const struct ledger *ledger)
{
    return ledger->first;
}

bool ledger_take(struct ledger_queue *q, size_t n)
{
    size_t bytes = atomic_load(&q->bytes);
    do {
        if (n > q->cap || bytes > q->cap - n) {
            atomic_fetch_add(&q->refused, 1);
            return false;
        }
    } while (!atomic_compare_exchange_weak(&q->bytes, &bytes, bytes + n));
    return true;
}

void ledger_give(struct ledger_queue *q, size_t n)
{
    atomic_fetch_sub(&q->bytes, n);
}

void ledger_set(struct ledger_queue *q, size_t bytes)
{
    atomic_store(&q->bytes, bytes);
}
