/* SPDX-License-Identifier: MIT
 *
 * What a store has of a job that an earlier life of the daemon left unfinished, its list of lent
 * files too: a disk may be damaged. What is read can be kept and read again, and shown. */
#include "tests/fuzz/lib/input.h"

#include "daemon/ringd/job/job.h"
#include "daemon/ringd/job/job_keep.h"
#include "daemon/ringd/job/loan.h"

static const char *const keys[] = {
    "state", "machine", "attempt", "spared",  "lent",    "nodes",  "outcome", "interruption", "files",
    "real",  "folders", "cause",   "since",   "until",   "waited", "refused", "fitted",       "count",
    "step",  "steps",   "record",  "said",    "last",    "saved",  "logged",  "tokens",       "loss",
    "id",    "type",    "spec",    "created", "started", "result", "error",   "log_bytes",    NULL};
static const char *const texts[] = {"QUEUED", "RUNNING", "STOPPING", "INTERRUPTED",
                                    "PAUSED", "DONE",    "train",    "generate",
                                    "/a",     "/a/b",    "a",        "01000000000000000000000000000000",
                                    "step",   "",        NULL};
static const struct input_words words = {keys, texts};

enum { ATTEMPTS_MOST = INT32_MAX };

/* Fields of the input stand in place of those that can be read. */
static json_t *entry_of(struct input *in)
{
    json_t *entry =
        json_pack("{s:{s:i s:s s:{s:s s:s s:s s:i}} s:{s:s s:i s:{s:[s] s:[] s:[s]} s:[[s, s]]}}", "record",
                  "id", 7, "type", "train", "spec", "model", "/m", "data", "/d", "adapter_out", "/o", "iters",
                  3, "life", "state", "RUNNING", "attempt", 256, "lent", "files", "/d", "folders", "real",
                  "/d", "nodes", "01000000000000000000000000000000", "a");
    json_t *life = json_object_get(entry, "life");
    json_t *own = input_object(in, &words, 0);
    json_object_update(life, own);
    json_decref(own);
    own = input_object(in, &words, 0);
    json_object_update(json_object_get(life, "lent"), own);
    json_decref(own);
    own = input_object(in, &words, 0);
    json_object_update(entry, own);
    json_decref(own);
    return entry;
}

static void check_lent(const json_t *lent)
{
    size_t i;
    json_t *path;
    expect(loan_about_is_whole(lent));
    const json_t *files = json_object_get(lent, "files");
    expect(json_array_size(files) > 0 && json_array_size(files) <= LOAN_FILES_MAX);
    expect(json_array_size(json_object_get(lent, "real")) == json_array_size(files));
    json_array_foreach (files, i, path)
        expect(json_string_value(path) && *json_string_value(path) == '/');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct input in = {data, n};
    struct job *job, *again;
    struct err err;
    json_t *entry = entry_of(&in);
    if (!job_keep_read(&job, entry, &err)) {
        if (job->lent)
            check_lent(job->lent);
        job->wants_files = job->lent != NULL;
        json_decref(job_encode(job));
        json_t *life = job_keep_encode(job);
        expect(life != NULL);
        json_object_set_new(entry, "life", life);
        if (job->attempt > ATTEMPTS_MOST) { /* no number is left for another life */
            json_decref(entry);
            job_free(job);
            return 0;
        }
        expect(!job_keep_read(&again, entry, &err));
        expect(again->state == job->state && json_equal(again->lent, job->lent) == (job->lent != NULL));
        job_free(again);
        job_free(job);
    }
    json_decref(entry);
    return 0;
}
