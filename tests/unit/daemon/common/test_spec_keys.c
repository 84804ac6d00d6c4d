/* SPDX-License-Identifier: MIT
 *
 * The keys of a job's spec: those of its type are known, and each other one is refused with a
 * sentence that has it and what may have been meant. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/common/job_spec.h"
#include "daemon/common/spec_keys.h"

static void every_key_of_a_type_is_known(void **state)
{
    struct err err = {""};
    (void)state;
    for (enum job_type type = 0; type < JOB_TYPES; type++) {
        json_t *spec = json_object();
        for (const struct field *f = job_spec_fields(); f->name; f++)
            if (field_is_for(f, JOB_SPEC_OF(type)))
                json_object_set_new(spec, f->name, json_null());
        assert_true(json_object_size(spec) > 5);
        if (spec_keys_check(type, spec, &err))
            fail_msg("%s", err.text);
        json_decref(spec);
    }
}

static void refuses(enum job_type type, const char *key, const char *says)
{
    struct err err = {""};
    json_t *spec = json_pack("{s:s s:n}", "model", "/m", key);
    assert_int_equal(spec_keys_check(type, spec, &err), -EINVAL);
    json_decref(spec);
    if (!strstr(err.text, says))
        fail_msg("\"%s\" has no \"%s\"", err.text, says);
}

static void another_key_is_refused_with_what_was_meant(void **state)
{
    char longer[400];
    (void)state;
    refuses(JOB_TRAIN, "iter", "a job of type train has no \"iter\": did you mean \"iters\"?");
    refuses(JOB_TRAIN, "adapter-out", "did you mean \"adapter_out\"?");
    refuses(JOB_GENERATE, "max_token", "did you mean \"max_tokens\"?");
    refuses(JOB_TRAIN, "max_tokens", "\"max_tokens\" is for jobs of type generate, not for train");
    refuses(JOB_SCORE, "iters", "\"iters\" is for jobs of type train, not for score");
    refuses(JOB_SCORE, "zzzzzzzz", "`ringctl help score` lists the options");
    refuses(JOB_TRAIN, "kept_in", "a job of type train has no \"kept_in\""); /* the daemon's own */
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    refuses(JOB_TRAIN, longer, "lists the options");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_key_of_a_type_is_known),
        cmocka_unit_test(another_key_is_refused_with_what_was_meant),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
