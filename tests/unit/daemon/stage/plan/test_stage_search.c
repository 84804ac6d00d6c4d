/* SPDX-License-Identifier: MIT
 *
 * --schedule auto names a schedule that there is, shares out all layers, and says what a step will
 * take; where nothing may be timed, it is refused in words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/stage/plan/stage_head.h"
#include "tests/lib/golden.h"
#include "tests/lib/tiny.h"

struct planning {
    struct stage_events events;
    struct head head;
    int sock[2];
    struct temp_dir cache;
};

static int start(void **state)
{
    static struct planning p;
    p = (struct planning){0};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, p.sock))
        return -1;
    p.cache = temp_dir_new();
    setenv("CACHE_DIRECTORY", p.cache.path, 1);
    stage_events_init(&p.events, p.sock[0]);
    head_init(&p.head, &p.events);
    *state = &p;
    return 0;
}

static int stop(void **state)
{
    struct planning *p = *state;
    head_done(&p->head);
    stage_events_done(&p->events);
    temp_dir_free(&p->cache);
    close(p->sock[0]);
    close(p->sock[1]);
    return 0;
}

static json_t *spec_of(const char *out)
{
    const struct data_path model = data_path("models/llama"), data = data_path("datasets/tables");
    return json_pack("{s:s s:s s:s s:s s:b s:i s:i s:i s:i}", "model", model.text, "data", data.text,
                     "adapter_out", out, "schedule", "auto", "dry_run", 1, "iters", 1, "batch_size", 4,
                     "seq_len", 64, "seed", 1);
}

static int plan(struct planning *p, size_t ranks, struct err *err)
{
    json_t *nodes = json_array(), *spec = spec_of(p->cache.path);
    for (size_t r = 0; r < ranks; r++)
        json_array_append_new(nodes, json_pack("{s:s s:i s:i}", "name", "n", "speed", 1, "mbps", 1000));
    const int e = head_plan(&p->head, JOB_TRAIN, spec, nodes, err);
    json_decref(nodes);
    json_decref(spec);
    return e;
}

static void auto_finds_a_schedule_for_all_layers(void **state)
{
    struct planning *p = *state;
    struct err err = {""};
    if (plan(p, 2, &err))
        fail_msg("%s", err.text);
    const struct job_plan *plan = &p->head.plan;
    assert_non_null(sched_info(plan->schedule));
    assert_int_equal(plan->first[0], 0);
    assert_int_equal(plan->first[plan->stages], p->head.config.layers);
    for (size_t s = 0; s < plan->stages; s++)
        assert_true(plan->first[s] <= plan->first[s + 1]);
    const json_t *forecast = p->head.planning.forecast;
    assert_string_equal(json_string_value(json_object_get(forecast, "schedule")), plan->schedule);
    assert_true(json_number_value(json_object_get(forecast, "seconds")) > 0);
    assert_int_equal(json_array_size(json_object_get(forecast, "costs")), plan->stages);
}

/* Nothing is kept of earlier timings in a cache that is new. */
static void auto_without_timing_is_refused(void **state)
{
    struct planning *p = *state;
    struct err err = {""};
    p->head.planning.must_not_time = true;
    assert_true(plan(p, 2, &err) < 0);
    assert_memory_equal(err.text, "--schedule auto: ", strlen("--schedule auto: "));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(auto_finds_a_schedule_for_all_layers, start, stop),
        cmocka_unit_test_setup_teardown(auto_without_timing_is_refused, start, stop),
    };
    return cmocka_run_group_tests_name("stage_search", tests, NULL, NULL);
}
