/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/job/job_hear.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/common/text_clean.h"
#include "daemon/ringd/job/job.h"
#include "daemon/ringd/job/job_log.h"
#include "daemon/common/layers_text.h"
#include "daemon/ringd/log.h"
#include "daemon/ringd/store/metrics.h"
#include "daemon/ringd/job/timeline.h"
#include "daemon/ringd/job/timelines.h"
#include "daemon/common/xalloc.h"

enum { THROUGH_MAX = 255 /* bytes of the names of nodes between */ };

static void note_layers(char *text, size_t size, const struct job *job, size_t rank)
{
    const json_t *first = json_object_get(job->plan, "first");
    char ranges[200] = "";
    for (size_t s = 0; s + 1 < json_array_size(first); s++)
        if (job_rank_of_stage(job->plan, s) == rank)
            layers_text_add(ranges, sizeof ranges, (size_t)json_integer_value(json_array_get(first, s)),
                            (size_t)json_integer_value(json_array_get(first, s + 1)));
    snprintf(text, size, "%s%s", *ranges ? "layers " : "no layer", ranges);
}

void job_hear_plan(const struct job_log *l, struct job *job)
{
    char text[2048] = "";
    const json_t *bytes = json_object_get(job->plan, "bytes");
    for (size_t r = 0; r < job->ranks; r++) {
        char layers[100];
        size_t len = strlen(text);
        note_layers(layers, sizeof layers, job, r);
        snprintf(text + len, sizeof text - len, "%s%s %s (%.1f MiB)", r ? ", " : "", job->names[r], layers,
                 (double)json_integer_value(json_array_get(bytes, r)) / (1 << 20));
    }
    job_log_note(l, job, "planned: %s", text);
}

int job_opened_as_planned(const struct job *job, size_t rank, const json_t *layers, struct err *err)
{
    const json_t *first = json_object_get(job->plan, "first");
    size_t at = 0;
    for (size_t s = 0; s + 1 < json_array_size(first); s++) {
        const json_t *opened = json_array_get(layers, at);
        if (job_rank_of_stage(job->plan, s) != rank)
            continue;
        for (size_t i = 0; i < 2; i++) {
            const json_t *is = json_array_get(opened, i), *due = json_array_get(first, s + i);
            if (json_integer_value(is) == json_integer_value(due) && json_is_integer(is))
                continue;
            return err_set(err, -EPROTO, "node %s opened other layers than planned: %lld where %lld was due",
                           job->names[rank], (long long)json_integer_value(is),
                           (long long)json_integer_value(due));
        }
        at++;
    }
    return 0;
}

/* The last one is asked for, and kept with the job's history; all of them go to who asked for them
 * when the job was submitted. */
static void on_timeline(struct job *job, size_t rank, const json_t *event)
{
    int r = job->timeline ? timeline_add(job->timeline, rank, event) : 0;
    if (r == 1 && job->timelines)
        timelines_add(job->timelines, timeline_encode(job->timeline, job->id, job->names));
    if (r == -EBADMSG)
        log_job(LOG_LEVEL_DEBUG, job->id, "%s sent a malformed step trace", job->names[rank]);
}

static const char *event_kind(const json_t *body)
{
    const char *kind = json_string_value(json_object_get(json_object_get(body, "event"), "ev"));
    return kind ? kind : "";
}

bool job_hear_answer(const struct job_log *l, struct job *job, size_t rank, const json_t *body)
{
    json_t *result = json_object_get(json_object_get(body, "event"), "result");
    if (strcmp(event_kind(body), "answer") != 0 || rank != 0 || !json_is_object(result) ||
        job->state != JOB_RUNNING)
        return false;
    json_decref(job->result);
    job->result = json_incref(result);
    job->is_idle = true;
    job_progress(job, clock_now());
    job_log_publish(l, job, "answer",
                    json_pack("{s:I s:s s:O}", "id", (json_int_t)job->id, "state", job_state_name(job->state),
                              "result", result));
    return true;
}

void job_hear_event(const struct job_log *l, struct metrics *metrics, struct job *job, size_t rank,
                    const json_t *body)
{
    if (!strcmp(event_kind(body), "timeline")) {
        on_timeline(job, rank, json_object_get(body, "event"));
        return;
    }
    if (!strcmp(event_kind(body), "begun")) {
        if (rank == 0)
            job_mark(job, &job->start.first_task, clock_now());
        return;
    }
    if (!strcmp(event_kind(body), "memory") && job_set_memory(job, rank, json_object_get(body, "event")))
        return;
    const bool is_of_rank = !strcmp(event_kind(body), "memory") || !strcmp(event_kind(body), "reading");
    if (rank > 0 && !is_of_rank && strcmp(event_kind(body), "log"))
        return; /* how the job goes is the head's own stage's to say */
    json_t *event = json_deep_copy(json_object_get(body, "event"));
    char kind[16];
    snprintf(kind, sizeof kind, "%s", event_kind(body));
    json_object_del(event, "ev");
    if (!strcmp(kind, "log")) /* a line that any rank may write */
        text_clean_json(event, NULL);
    if (!strcmp(kind, "log"))
        json_object_set_new(event, "time", json_integer(time(NULL)));
    if (is_of_rank)
        json_object_set_new(event, "rank", json_integer((json_int_t)rank));
    if (!strcmp(kind, "reading"))
        json_object_set_new(event, "node", json_string(job->names[rank]));
    metrics_event(metrics, kind, event);
    job_progress(job, clock_now());
    if (!strcmp(kind, "step") || !strcmp(kind, "token"))
        job_mark(job, &job->start.first_result, job->progressed);
    if (!strcmp(kind, "token"))
        job->tokens++;
    if (!strcmp(kind, "step")) {
        job->tokens += (uint64_t)json_integer_value(json_object_get(event, "tokens"));
        job->step = (uint64_t)json_integer_value(json_object_get(event, "step"));
        job->steps = (uint64_t)json_integer_value(json_object_get(event, "steps"));
        job->loss = json_number_value(json_object_get(event, "loss"));
        job->has_loss = true;
    }
    job_log_publish(l, job, kind, event);
}

void job_hear_relayed(const struct job_log *l, struct job *job, size_t rank, const json_t *body)
{
    const char *through = json_string_value(json_object_get(body, "through"));
    const char *from = job->names[rank], *to = job->names[(rank + 1) % job->ranks];
    if (!through || !strcmp(through, job->through[rank] ? job->through[rank] : ""))
        return;
    free(job->through[rank]);
    job->through[rank] = *through ? xstrndup(through, THROUGH_MAX) : NULL;
    if (*through)
        job_log_note(l, job, "the way from %s to %s is relayed through %s", from, to, through);
    else
        job_log_note(l, job, "the way from %s to %s is direct again", from, to);
    job_log_save(l, job);
}
