/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/job/job_send.h"

#include <jansson.h>

#include "daemon/ringd/job/job.h"
#include "daemon/ringd/log.h"
#include "daemon/ringd/node.h"
#include "daemon/ringd/peer/peers.h"

void job_send(struct node *node, const struct job *job, size_t rank, const char *kind)
{
    if (peers_send(node->peers, job->nodes[rank],
                   json_pack("{s:s s:I}", "kind", kind, "job", (json_int_t)job->id)))
        log_job(LOG_LEVEL_DEBUG, job->id, "the message %s cannot be sent to %s", kind, job->names[rank]);
}

void job_send_all(struct node *node, const struct job *job, const char *kind)
{
    for (size_t r = 0; r < job->ranks; r++)
        job_send(node, job, r, kind);
}

void job_send_open(struct node *node, const struct job *job, size_t rank)
{
    peers_send(node->peers, job->nodes[rank], job_encode_open(job, rank));
}

void job_send_stop(struct node *node, const struct job *job)
{
    for (size_t r = 0; r < job->ranks; r++)
        if (!job->stopped[r])
            peers_send(node->peers, job->nodes[r],
                       json_pack("{s:s s:I s:I s:s}", "kind", "job-stop", "job", (json_int_t)job->id, "rank",
                                 (json_int_t)r, "cause", job->error));
}

void job_send_away(struct node *node, const uint8_t from[16], const json_t *body)
{
    peers_send(node->peers, from,
               json_pack("{s:s s:O* s:O* s:s}", "kind", "job-stop", "job", json_object_get(body, "job"),
                         "rank", json_object_get(body, "rank"), "cause", "the job has ended"));
}

void job_send_wanted(struct node *node, const struct members_ring *ring)
{
    for (size_t r = 1; r < ring->n; r++)
        peers_send(node->peers, ring->at[r]->id, json_pack("{s:s}", "kind", "job-wanted"));
}
