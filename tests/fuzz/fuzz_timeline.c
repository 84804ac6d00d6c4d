/* SPDX-License-Identifier: MIT
 *
 * What ranks tell of the last step of a job: rows of any numbers, from ranks that need not agree. Whatever is taken can be shown. Input:
 * u8 schedule and ranks ‖ (u8 rank ‖ u8 step ‖ u8 microbatches ‖ u8 rows ‖ 7 bytes a row)*. */
#include "tests/fuzz/input.h"

#include "daemon/timeline.h"

enum { RANKS = 4, MESSAGES = 24 };

static json_t *row(struct input *in)
{
    int8_t v[7] = {0};
    input_bytes(in, v, sizeof v);
    return json_pack("[i,i,I,I,i,i,i]", v[0] & 15, v[1], (json_int_t)v[2] * 1000, (json_int_t)v[3] * 1000,
                     v[4], v[5] & 15, v[6]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const char *const schedules[] = {"1f1b", "gpipe", "zb-h1", "interleaved-1f1b", "none"};
    static const char names[RANKS][64] = {"a", "b", "c", "d"};
    struct input in = {data, n};
    const uint8_t how = input_u8(&in);
    const size_t ranks = 1 + how % RANKS;
    struct timeline *t = timeline_new(&(struct timeline_job){
        .schedule = schedules[how / RANKS % 5], .ranks = ranks, .stages = how & 64 ? 2 * ranks : 0});
    for (int i = 0; i < MESSAGES && in.left; i++) {
        const uint8_t rank = input_u8(&in) % 5, step = input_u8(&in), mbs = input_u8(&in) % 8;
        json_t *tasks = json_array();
        for (size_t rows = input_u8(&in) % 32; rows > 0 && in.left; rows--)
            json_array_append_new(tasks, row(&in));
        json_t *adapters = json_array();
        for (int k = 0; k < mbs && how & 128; k++)
            json_array_append_new(adapters, json_integer(k % (1 + (step & 3))));
        json_t *event = json_pack("{s:o s:i s:i s:i s:b s:o}", "adapters", adapters, "step", step & 15,
                                  "microbatches", mbs, "lowest", step >> 4, "tied", step & 1, "tasks", tasks);
        const int r = timeline_add(t, rank, event);
        expect(r == 0 || r == 1 || r == -EBADMSG || r == -ESTALE);
        json_decref(event);
        if (r == 1) {
            json_t *shown = timeline_encode(t, 1, names);
            expect(json_array_size(json_object_get(shown, "ranks")) == ranks);
            json_decref(shown);
        }
    }
    timeline_free(t);
    return 0;
}
