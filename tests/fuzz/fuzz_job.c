/* SPDX-License-Identifier: MIT
 *
 * A job as JSON, both ways it travels: the spec a user posts, for every type of job, and the plan that the head's
 * stage hands round. Refused with a sentence, or one that means itself again. */
#include "tests/fuzz/fuzz.h"

#include <math.h>

#include "daemon/stage_plan.h"
#include "daemon/stage_spec.h"

static void spec(const json_t *json)
{
    for (int type = 0; type < JOB_TYPES; type++) {
        struct job_spec s;
        struct err err = {""};
        if (job_spec_read(&s, (enum job_type)type, json, &err) == 0)
            expect(s.type == (enum job_type)type && !isnan(s.lr) && !isnan(s.temperature) && !isnan(s.top_p));
        else
            expect(err.text[0] && memchr(err.text, '\0', sizeof err.text));
    }
}

static void plan(const json_t *json)
{
    struct job_plan p, back;
    struct err err = {""};
    if (job_plan_decode(&p, json, &err)) {
        expect(err.text[0] != '\0');
        return;
    }
    expect(p.ranks >= 1 && p.ranks <= JOB_MAX_RANKS && p.type < JOB_TYPES);
    json_t *again = job_plan_encode(&p);
    expect(again && job_plan_decode(&back, again, &err) == 0);
    expect(back.ranks == p.ranks && back.tokens == p.tokens && !strcmp(back.model, p.model));
    json_decref(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    json_t *json = json_loadb((const char *)data, n, JSON_DECODE_ANY, NULL);
    if (!json)
        return 0;
    spec(json);
    plan(json);
    json_decref(json);
    return 0;
}
