/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/job/job_send.h"

#include <jansson.h>

#include "daemon/ringd/job/job.h"
#include "daemon/ringd/log.h"

void job_send(const struct job_post *post, const struct job *job, size_t rank, const char *kind)
{
    if (post->send(post->owner, job->nodes[rank],
                   json_pack("{s:s s:I}", "kind", kind, "job", (json_int_t)job->id)))
        log_job(LOG_LEVEL_DEBUG, job->id, "the message %s cannot be sent to %s", kind, job->names[rank]);
}

void job_send_all(const struct job_post *post, const struct job *job, const char *kind)
{
    for (size_t r = 0; r < job->ranks; r++)
        job_send(post, job, r, kind);
}

void job_send_open(const struct job_post *post, const struct job *job, size_t rank)
{
    post->send(post->owner, job->nodes[rank], job_encode_open(job, rank));
}

int job_send_turn(const struct job_post *post, const struct job *job, json_t *turn)
{
    return post->send(
        post->owner, job->nodes[0],
        json_pack("{s:s s:I s:o*}", "kind", "job-turn", "job", (json_int_t)job->id, "turn", turn));
}

void job_send_stop(const struct job_post *post, const struct job *job)
{
    for (size_t r = 0; r < job->ranks; r++)
        if (!job->stopped[r])
            post->send(post->owner, job->nodes[r],
                       json_pack("{s:s s:I s:I s:s}", "kind", "job-stop", "job", (json_int_t)job->id, "rank",
                                 (json_int_t)r, "cause", job->error));
}

void job_send_away(const struct job_post *post, const uint8_t from[16], const json_t *body)
{
    post->send(post->owner, from,
               json_pack("{s:s s:O* s:O* s:s}", "kind", "job-stop", "job", json_object_get(body, "job"),
                         "rank", json_object_get(body, "rank"), "cause", "the job has ended"));
}

void job_send_wanted(const struct job_post *post, const struct members_ring *ring)
{
    for (size_t r = 1; r < ring->n; r++)
        post->send(post->owner, ring->at[r]->id, json_pack("{s:s}", "kind", "job-wanted"));
}
