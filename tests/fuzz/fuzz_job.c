/* SPDX-License-Identifier: MIT
 *
 * A job as JSON, both ways it travels: the spec a user posts, for every type of job, and the plan
 * that the head's stage hands round, with any fields of any type. Refused with a sentence, or one
 * that means itself again. First byte: what the fields are put into. */
#include "tests/fuzz/lib/input.h"

#include <math.h>

#include "daemon/common/job_plan.h"
#include "daemon/common/job_spec.h"
#include "daemon/stage/stage_sweep.h"
#include "tests/fuzz/lib/keys.h"
#include "tests/lib/small_plan.h"

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

static void adapters(const json_t *json)
{
    struct sweep s = {0};
    struct job_spec asked;
    struct err err = {""};
    if (job_spec_read(&asked, JOB_TRAIN, json, &err))
        return;
    if (sweep_read(&s, &asked, &err) == 0)
        expect(s.n >= 1 && s.n <= JOB_MAX_ADAPTERS && (s.n == 1 || *s.one[0].name));
    else
        expect(err.text[0] != '\0');
    for (size_t i = 0; i < s.n; i++)
        json_decref(s.one[i].spec);
}

static void plan(const json_t *json)
{
    struct job_plan p, back;
    struct err err = {""};
    if (job_plan_decode(&p, json, &err)) {
        expect(err.text[0] != '\0');
        return;
    }
    expect(p.ranks >= 1 && p.ranks <= JOB_MAX_RANKS && p.stages <= JOB_MAX_STAGES && p.type < JOB_TYPES);
    json_t *again = job_plan_encode(&p);
    expect(again && job_plan_decode(&back, again, &err) == 0);
    expect(back.ranks == p.ranks && back.tokens == p.tokens && !strcmp(back.model, p.model));
    json_decref(again);
    job_plan_done(&p);
    job_plan_done(&back);
}

/* A plan that can be read, and specs that can be: fields of the input stand in place of theirs. */
static json_t *beginning(uint8_t which)
{
    struct job_plan p = small_plan(JOB_TRAIN, 2);
    p.nmore = 1;
    p.more[0] = p.tune;
    switch (which % 8) {
    case 0: return json_object();
    case 1: return json_pack("{s:s s:s s:s}", "model", "/m", "data", "/d", "adapter_out", "/a");
    case 2: return json_pack("{s:s s:s}", "model", "/m", "prompt", "p");
    case 3: return json_pack("{s:s s:s}", "model", "/m", "text", "t");
    default: return job_plan_encode(&p);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const char *keys[KEYS_MAX + 1];
    if (!keys[0]) {
        keys_add(keys, job_spec_fields());
        keys_add(keys, job_plan_fields());
        keys_add(keys, job_tune_fields());
    }
    static const char *const texts[] = {
        "train",  "generate",      "score", "lora", "full", "random", "constant", "linear",
        "cosine", "q_proj,v_proj", "1f1b",  "/m",   "",     "lr=1,2", "rank=4",   NULL};
    static const struct input_words words = {keys, texts};
    struct input in = {data, n};
    json_t *json = beginning(input_u8(&in)), *fields = input_object(&in, &words, 1);
    json_object_update(json, fields);
    spec(json);
    adapters(json);
    plan(json);
    json_decref(fields);
    json_decref(json);
    return 0;
}
