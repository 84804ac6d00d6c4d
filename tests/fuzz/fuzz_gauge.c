/* SPDX-License-Identifier: MIT
 *
 * What a node is asked that another's plan needs, and what it answers, as JSON: a question whose
 * units are of the model and fit its plan, which means itself again, or none; and of an answer only
 * times that can be reckoned with, whatever is said of them and of cables. */
#include "tests/fuzz/lib/fuzz.h"

#include <math.h>

#include "daemon/stage/plan/cost_table.h"

enum { LAYERS = 4, POSITIONS = 64 };

static bool is_like(const struct unit_want *a, const struct unit_want *b)
{
    return a->unit == b->unit && a->tokens == b->tokens && a->seqs == b->seqs && a->at == b->at &&
           a->trained == b->trained && a->needed == b->needed;
}

static void question(const json_t *json)
{
    static struct unit_list list, again;
    const struct config config = {.layers = LAYERS};
    struct job_plan plan = {.ranks = 1, .kv = true, .positions = POSITIONS};
    struct err err = {""};
    const json_t *said = json_object_get(json, "plan");
    if (said && job_plan_decode(&plan, said, &err)) {
        expect(err.text[0] != '\0');
        return;
    }
    if (units_decode(&list, json_object_get(json, "units"), &plan, &config) == 0) {
        json_t *back = units_encode(&list, &plan);
        expect(list.n >= 1 && list.n <= UNITS_MOST);
        expect(units_decode(&again, json_object_get(back, "units"), &plan, &config) == 0 &&
               again.n == list.n);
        for (size_t i = 0; i < list.n; i++) {
            const struct unit_want *w = &list.at[i];
            expect(w->unit <= LAYERS + 1 && w->tokens >= 1 && w->seqs >= 1 && w->seqs <= w->tokens);
            expect(!plan.kv || w->at + w->tokens <= plan.positions);
            expect(is_like(w, &again.at[i]));
        }
        json_decref(back);
    }
    job_plan_done(&plan);
}

static bool is_time(double seconds)
{
    return isfinite(seconds) && seconds >= 0 && seconds <= 1e9;
}

static void answer(const json_t *json)
{
    static struct sched_cost cost[UNITS_MOST];
    static bool have[UNITS_MOST];
    const json_t *list = json_object_get(json, "costs");
    size_t n = json_array_size(list);
    n = n > 0 && n <= UNITS_MOST ? n : 1;
    if (units_decode_answer(cost, have, n, json))
        return;
    for (size_t i = 0; i < n; i++)
        expect(!have[i] || (cost[i].f > 0 && is_time(cost[i].f) && is_time(cost[i].i) && is_time(cost[i].w) &&
                            is_time(cost[i].r)));
}

/* Both nodes say that, of themselves and of the way between them. */
static void ways(json_t *json)
{
    static struct head head;
    head.plan.ranks = 2;
    head.planning.nodes =
        json_pack("[{s:s s:O?} {s:s s:O?}]", "id", "a", "mbps", json_object_get(json, "mbps"), "id", "b",
                  "mbps", json_object_get(json, "mbps"));
    struct cost_table *t = cost_table_new(&head);
    expect(t != NULL);
    t->answers = json_pack("[O O]", json, json);
    for (size_t rank = 0; rank < 2; rank++) {
        const struct sched_link link = cost_table_link(t, rank, 1 - rank, 1e6);
        expect(is_time(link.transfer) && is_time(link.latency));
    }
    cost_table_free(t);
    json_decref(head.planning.nodes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    json_t *json = json_loadb((const char *)data, n, 0, NULL);
    if (json_is_object(json)) {
        question(json);
        answer(json);
        ways(json);
    }
    json_decref(json);
    return 0;
}
