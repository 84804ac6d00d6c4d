/* SPDX-License-Identifier: MIT
 *
 * The ledger: a queue holds its cap and no byte more, whoever counts at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>

#include "daemon/ringd/ledger.h"

static void a_queue_holds_its_cap(void **state)
{
    (void)state;
    struct ledger *ledger = ledger_new();
    struct ledger_queue a, b;
    ledger_register(ledger, &a, "a", 100);
    ledger_register(ledger, &b, "b", SIZE_MAX);
    assert_true(ledger_take(&a, 60));
    assert_false(ledger_take(&a, 41));
    assert_false(ledger_take(&a, SIZE_MAX));
    assert_true(ledger_take(&a, 40));
    assert_true(ledger_take(&a, 0));
    ledger_give(&a, 60);
    assert_true(ledger_take(&a, 60));
    assert_true(ledger_take(&b, SIZE_MAX));
    assert_false(ledger_take(&b, 1));
    size_t seen = 0;
    for (const struct ledger_queue *q = ledger_first(ledger); q; q = q->next)
        seen += q == &a || q == &b;
    assert_int_equal(seen, 2);
    assert_int_equal(atomic_load(&a.bytes), 100);
    assert_int_equal(atomic_load(&a.refused), 2);
    ledger_free(ledger);
}

enum { ROUNDS = 20000, PIECE = 30 };

static void *churn(void *arg)
{
    struct ledger_queue *q = arg;
    for (int i = 0; i < ROUNDS; i++)
        if (ledger_take(q, PIECE)) {
            if (atomic_load(&q->bytes) > q->cap)
                return q;
            ledger_give(q, PIECE);
        }
    return NULL;
}

static void threads_share_it(void **state)
{
    (void)state;
    struct ledger_queue q;
    pthread_t thread[4];
    void *wrong;
    ledger_register(NULL, &q, "q", 100);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, churn, &q), 0);
    for (size_t i = 0; i < 4; i++) {
        pthread_join(thread[i], &wrong);
        assert_null(wrong);
    }
    assert_int_equal(atomic_load(&q.bytes), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_queue_holds_its_cap),
        cmocka_unit_test(threads_share_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
