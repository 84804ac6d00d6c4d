/* SPDX-License-Identifier: MIT
 *
 * The record of a run's order of rows, and of what it computes in: it goes into the state with
 * every save, and is compared when the run is resumed, so that it goes on with the rows it would
 * have taken next or says why it cannot. Called by the head's thread. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/stage/plan/stage_head.h"

json_t *head_order_record(const struct head *h, size_t adapter)
{
    const struct job_spec *s = &h->adapters[adapter].spec;
    char fingerprint[17];
    snprintf(fingerprint, sizeof fingerprint, "%016" PRIx64, data_fingerprint(h->train.data));
    return json_pack("{s:s s:I s:s s:I s:b s:I s:I s:b s:s}", "data", s->data, "rows",
                     (json_int_t)data_rows(h->train.data), "fingerprint", fingerprint, "seed",
                     (json_int_t)s->seed, "shuffle", (int)!s->no_shuffle, "batch_size", (json_int_t)s->batch,
                     "pack_tokens", (json_int_t)(s->packing ? s->seq_len : 0), "group_by_length",
                     (int)s->group_by_length, "compute", num_compute_name(s->compute));
}

/* The path may have changed, but not what was in the file. */
static const char *difference(const json_t *was, json_t *is)
{
    const char *key;
    json_t *value;
    json_object_foreach (is, key, value) {
        const json_t *before = json_object_get(was, key);
        if (strcmp(key, "data") != 0 && !json_equal(before, value))
            return key;
    }
    return NULL;
}

static int refuse(const char *path, const char *key, const json_t *was, const json_t *is, struct err *err)
{
    char *before = json_dumps(json_object_get(was, key), JSON_ENCODE_ANY),
         *now = json_dumps(json_object_get(is, key), JSON_ENCODE_ANY);
    const bool data = !strcmp(key, "rows") || !strcmp(key, "fingerprint");
    int code = err_set(
        err, -EINVAL,
        !strcmp(key, "compute")
            ? "%s: the run began with another number type of products (--%s was %s and is %s), so its "
              "losses would not be those of one run; give the first value, or start a new run with "
              "--init-adapter"
        : data ? "%s: the run began with other data (%s was %s and is %s), so the next rows are "
                 "unknown; give the same data, or start a new run with --init-adapter"
               : "%s: the run began with another order of rows (%s was %s and is %s), so the next rows "
                 "are unknown; give the first value, or start a new run with --init-adapter",
        path, key, before ? before : "?", now ? now : "?");
    free(before);
    free(now);
    return code;
}

int head_check_order(const struct head *h, size_t adapter, struct err *err)
{
    const struct job_spec *s = &h->adapters[adapter].spec;
    if (!s->resume)
        return 0;
    const json_t *was = adapter_in_record(h->adapters[adapter].in);
    json_t *is = head_order_record(h, adapter);
    const char *key = is ? difference(was, is) : NULL;
    int code = !is   ? err_set(err, -ENOMEM, "out of memory")
               : key ? refuse(s->adapter_out, key, was, is, err)
                     : 0;
    json_decref(is);
    return code;
}

void head_keep_cut(struct head *h)
{
    struct job_spec *s = &h->spec;
    const json_t *record = s->resume ? adapter_in_record(h->adapters[0].in) : NULL;
    const json_int_t was = json_integer_value(json_object_get(record, HEAD_MICRO_BATCH));
    if (was < 1 || (size_t)was > s->batch || s->has_micro_batch || s->microbatches)
        return;
    if (s->any_parallel || (size_t)was != s->micro_batch)
        stage_say(
            h->events,
            "the run in %s goes on with %lld row%s in a microbatch, as it began, for others round its sums "
            "in another way: --micro-batch-size chooses others",
            s->adapter_out, (long long)was, was == 1 ? "" : "s");
    s->micro_batch = (size_t)was;
    s->has_micro_batch = true;
}
