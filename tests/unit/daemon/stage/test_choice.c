/* SPDX-License-Identifier: MIT
 *
 * What is adjusted before a token is chosen: what was said in the window, each token once, and
 * biases; and a sentence for a bias that names no token. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/stage/choice.h"

enum { VOCAB = 100 };

static const uint32_t prompt[] = {7, 8, 7, 9}, answer[] = {8, 30, 30, 30};

static struct job_spec spec_with(size_t last_n)
{
    return (struct job_spec){.temperature = 0.5,
                             .top_p = 0.9,
                             .min_p = 0.125,
                             .top_k = 40,
                             .seed = 11,
                             .repetition_penalty = 1.5,
                             .presence_penalty = 0.25,
                             .frequency_penalty = 0.5,
                             .repeat_last_n = last_n};
}

static struct sample_params next(const struct job_spec *spec, size_t n_answer, void **ret_room)
{
    const struct choice_ids ids = {prompt, answer, sizeof prompt / sizeof *prompt, n_answer};
    *ret_room = malloc(choice_room(spec) + 1);
    assert_non_null(*ret_room);
    return choice_next(spec, &ids, *ret_room);
}

static void check(const struct sample_params *p, const struct sample_adjust *want, size_t n)
{
    assert_int_equal(p->nadjust, n);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(p->adjust[i].id, want[i].id);
        assert_true(p->adjust[i].repeat == want[i].repeat && p->adjust[i].add == want[i].add);
    }
}

static void penalties_count_what_was_said(void **state)
{
    (void)state;
    void *room;
    const struct job_spec spec = spec_with(64);
    struct sample_params p = next(&spec, 4, &room);
    assert_true(p.temperature == 0.5f && p.top_p == 0.9f && p.min_p == 0.125f && p.top_k == 40 &&
                p.seed == 11);
    /* The prompt counts for the repetition alone. */
    check(&p, (struct sample_adjust[]){{7, 1.5f, 0}, {8, 1.5f, -0.75f}, {9, 1.5f, 0}, {30, 1.5f, -1.75f}}, 4);
    free(room);
    p = next(&spec, 0, &room);
    check(&p, (struct sample_adjust[]){{7, 1.5f, 0}, {8, 1.5f, 0}, {9, 1.5f, 0}}, 3);
    free(room);
}

static void the_window_ends(void **state)
{
    (void)state;
    void *room;
    struct job_spec spec = spec_with(3);
    struct sample_params p = next(&spec, 2, &room);
    check(&p, (struct sample_adjust[]){{8, 1.5f, -0.75f}, {9, 1.5f, 0}, {30, 1.5f, -0.75f}}, 3);
    free(room);
    spec.repeat_last_n = 0;
    p = next(&spec, 2, &room);
    check(&p, NULL, 0);
    free(room);
}

static void biases_come_last(void **state)
{
    (void)state;
    void *room;
    json_t *bias = json_pack("{s:i, s:f}", "30", -100, "99", 2.5);
    struct job_spec spec = spec_with(1);
    spec.logit_bias = bias;
    const struct sample_params p = next(&spec, 2, &room);
    check(&p, (struct sample_adjust[]){{30, 1.5f, -0.75f}, {30, 1, -100}, {99, 1, 2.5f}}, 3);
    free(room);
    json_decref(bias);
}

static void a_spec_without_any_needs_no_room(void **state)
{
    (void)state;
    struct job_spec spec = spec_with(64);
    spec.repetition_penalty = 1;
    spec.presence_penalty = spec.frequency_penalty = 0;
    assert_int_equal(choice_room(&spec), 0);
}

static void a_bias_of_no_token_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *json, *says;
    } bad[] = {{"{\"100\":1}", "tokens 0 to 99"},   {"{\"\":1}", "id of a token"},
               {"{\" 1\":1}", "id of a token"},     {"{\"1x\":1}", "id of a token"},
               {"{\"-1\":1}", "id of a token"},     {"{\"99999999999999999999\":1}", "id of a token"},
               {"{\"1\":101}", "from -100 to 100"}, {"{\"1\":\"2\"}", "from -100 to 100"},
               {"{\"1\":null}", "from -100 to 100"}};
    struct err err;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        json_t *bias = json_loads(bad[i].json, 0, NULL);
        assert_non_null(bias);
        const struct job_spec spec = {.logit_bias = bias};
        assert_int_equal(choice_check(&spec, VOCAB, &err), -EINVAL);
        assert_non_null(strstr(err.text, bad[i].says));
        json_decref(bias);
    }
    json_t *good = json_loads("{\"0\":-100,\"99\":0.5}", 0, NULL);
    const struct job_spec spec = {.logit_bias = good};
    assert_int_equal(choice_check(&spec, VOCAB, &err), 0);
    json_decref(good);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(penalties_count_what_was_said),
        cmocka_unit_test(the_window_ends),
        cmocka_unit_test(biases_come_last),
        cmocka_unit_test(a_spec_without_any_needs_no_room),
        cmocka_unit_test(a_bias_of_no_token_is_refused),
    };
    return cmocka_run_group_tests_name("choice", tests, NULL, NULL);
}
