/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/job/job_send.h"

#include <errno.h>
#include <jansson.h>

#include "daemon/common/model/model_name.h"
#include "daemon/ringd/cluster/unsent.h"
#include "daemon/ringd/job/job.h"
#include "daemon/ringd/log.h"

/* Who is out of reach hears it later; of what else it is, nobody would know. */
static void send_or_log(const struct job_post *post, const struct job *job, size_t rank, const char *kind,
                        json_t *message)
{
    const int r = message ? post->send(post->owner, job_nodes(job)->id[rank], message) : -ENOMEM;
    if (r)
        log_job(r == -EHOSTUNREACH ? LOG_LEVEL_DEBUG : LOG_LEVEL_WARNING, job->id,
                "the message %s was not sent: %s %s", kind, job_nodes(job)->name[rank], unsent_why(r));
}

void job_send(const struct job_post *post, const struct job *job, size_t rank, const char *kind)
{
    send_or_log(post, job, rank, kind,
                json_pack("{s:s s:I s:I}", "kind", kind, "job", (json_int_t)job->id, "attempt",
                          (json_int_t)job->attempt));
}

void job_send_all(const struct job_post *post, const struct job *job, const char *kind)
{
    for (size_t r = 0; r < job_nodes(job)->n; r++)
        job_send(post, job, r, kind);
}

void job_send_run(const struct job_post *post, const struct job *job, size_t rank)
{
    send_or_log(post, job, rank, "job-run",
                json_pack("{s:s s:I s:I s:O* s:O*}", "kind", "job-run", "job", (json_int_t)job->id, "attempt",
                          (json_int_t)job->attempt, "restore", rank ? NULL : job->restore, "said",
                          rank ? NULL : job->said));
}

void job_send_open(const struct job_post *post, const struct job *job, size_t rank)
{
    json_t *message = job_encode_open(job, rank);
    const char *model = job->plan->shared.model;
    bool parts = false;
    json_t *holders =
        post->holders && model_name_is_exact(model) ? post->holders(post->owner, model, &parts) : NULL;
    if (holders) {
        json_object_set_new(message, "holders", holders);
        json_object_set_new(message, "parts", json_boolean(parts));
    }
    send_or_log(post, job, rank, "job-open", message);
}

int job_send_turn(const struct job_post *post, const struct job *job, json_t *turn)
{
    return post->send(post->owner, job_nodes(job)->id[0],
                      json_pack("{s:s s:I s:I s:o*}", "kind", "job-turn", "job", (json_int_t)job->id,
                                "attempt", (json_int_t)job->attempt, "turn", turn));
}

void job_send_kept(const struct job_post *post, const struct job *job)
{
    send_or_log(post, job, 0, "job-kept",
                json_pack("{s:s s:I s:I s:I s:b}", "kind", "job-kept", "job", (json_int_t)job->id, "attempt",
                          (json_int_t)job->attempt, "step", (json_int_t)job->kept.step, "whole",
                          (int)kept_is_whole(&job->kept)));
}

void job_send_leave(const struct job_post *post, const struct job *job)
{
    send_or_log(post, job, 0, "job-leave",
                json_pack("{s:s s:I s:I s:b}", "kind", "job-leave", "job", (json_int_t)job->id, "attempt",
                          (json_int_t)job->attempt, "save", (int)(job->leaves_for == JOB_PAUSED)));
}

void job_send_stop(const struct job_post *post, const struct job *job)
{
    for (size_t r = 0; r < job_nodes(job)->n; r++)
        if (!job->stopped[r])
            send_or_log(post, job, r, "job-stop",
                        json_pack("{s:s s:I s:I s:I s:s s:b}", "kind", "job-stop", "job", (json_int_t)job->id,
                                  "attempt", (json_int_t)job->attempt, "rank", (json_int_t)r, "cause",
                                  job->error, "keep", (int)!job_state_ended(job->outcome)));
}

void job_send_over(const struct job_post *post, const struct job *job)
{
    const struct job_nodes *nodes = &job->interruption.nodes;
    for (size_t r = 0; r < nodes->n; r++) /* what does not reach them they let go of in time */
        post->send(post->owner, nodes->id[r],
                   json_pack("{s:s s:I s:I s:I s:s}", "kind", "job-stop", "job", (json_int_t)job->id,
                             "attempt", (json_int_t)job->attempt, "rank", (json_int_t)r, "cause",
                             "the job is cancelled"));
}

void job_send_away(const struct job_post *post, const uint8_t from[16], const json_t *body, bool goes_on)
{
    post->send(post->owner, from,
               json_pack("{s:s s:O* s:O* s:O* s:s s:b}", "kind", "job-stop", "job",
                         json_object_get(body, "job"), "attempt", json_object_get(body, "attempt"), "rank",
                         json_object_get(body, "rank"), "cause",
                         goes_on ? "the job was interrupted" : "the job has ended", "keep", (int)goes_on));
}

void job_send_wanted(const struct job_post *post, const struct members_ring *ring)
{
    for (size_t r = 1; r < ring->n; r++)
        post->send(post->owner, ring->at[r]->id, json_pack("{s:s}", "kind", "job-wanted"));
}
