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
#include "daemon/ringd/job/survive/line_log.h"
#include "daemon/ringd/job/survive/pace.h"
#include "daemon/common/layers_text.h"
#include "daemon/ringd/log.h"
#include "daemon/ringd/store/metrics.h"
#include "daemon/ringd/timeline/timeline.h"
#include "daemon/ringd/timeline/timelines.h"
#include "daemon/ringd/job/survive/token_log.h"
#include "daemon/common/model/travel_text.h"
#include "daemon/common/xalloc.h"

enum { THROUGH_MAX = 255 /* bytes of the names of nodes between */ };
enum { SO_FAR_MAX = 256 /* decisions that are kept of an adapter */ };

static void note_layers(char *text, size_t size, const struct job_plan *plan, size_t rank)
{
    char ranges[200] = "";
    for (size_t s = 0; s < plan->stages; s++)
        if (job_plan_is_at(plan, s, rank))
            layers_text_add(ranges, sizeof ranges, plan->first[s], plan->first[s + 1]);
    snprintf(text, size, "%s%s", *ranges ? "layers " : "no layer", ranges);
}

void job_hear_plan(const struct job_log *l, struct job *job)
{
    char text[2048] = "";
    const struct job_plan *plan = &job->plan->shared;
    for (size_t r = 0; r < plan->ranks; r++) {
        char layers[100];
        size_t len = strlen(text);
        note_layers(layers, sizeof layers, plan, r);
        snprintf(text + len, sizeof text - len, "%s%s %s (%.1f MiB)", r ? ", " : "", job->plan->nodes.name[r],
                 layers, (double)plan->bytes[r] / (1 << 20));
    }
    job_log_note(l, job, "planned: %s", text);
    if (travel_total_text(text, sizeof text, job->plan->travel))
        job_log_note(l, job, "%s", text);
    if (travel_spared_text(text, sizeof text, job->plan->travel))
        job_log_note(l, job, "%s", text);
}

static void note_training(const struct job_log *l, const struct job *job)
{
    const json_int_t step = json_integer_value(json_object_get(job->restore, "step"));
    if (job->restore && (uint64_t)step > job->saved_step)
        job_log_note(l, job, "goes on behind step %lld: its nodes have copies of it", (long long)step);
    else if (job->saved_step)
        job_log_note(l, job, "goes on behind step %llu, the last that was saved",
                     (unsigned long long)job->saved_step);
    else
        job_log_note(l, job, "begins again: no step was saved, and no copy is whole");
}

void job_hear_start(const struct job_log *l, struct job *job)
{
    if (job->type == JOB_TRAIN) {
        job_choose_copies(job);
        note_training(l, job);
    } else if (job->is_idle) {
        job_log_note(l, job, "reads the conversation again, and waits for the next message");
    } else if (job->type == JOB_GENERATE && job->tokens) {
        job_log_note(l, job, "goes on behind token %llu", (unsigned long long)job->tokens);
    } else {
        job_log_note(l, job, "begins again");
    }
}

int job_opened_as_planned(const struct job *job, size_t rank, const json_t *layers, struct err *err)
{
    const struct job_plan *plan = &job->plan->shared;
    size_t at = 0;
    for (size_t s = 0; s < plan->stages; s++) {
        const json_t *opened = json_array_get(layers, at);
        if (!job_plan_is_at(plan, s, rank))
            continue;
        for (size_t i = 0; i < 2; i++) {
            const json_t *is = json_array_get(opened, i);
            if (json_is_integer(is) && json_integer_value(is) == (json_int_t)plan->first[s + i])
                continue;
            return err_set(err, -EPROTO, "node %s opened other layers than planned: %lld where %zu was due",
                           job->plan->nodes.name[rank], (long long)json_integer_value(is),
                           plan->first[s + i]);
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
        timelines_add(job->timelines, timeline_encode(job->timeline, job->id, job->plan->nodes.name));
    struct pace *pace = job->plan ? job->plan->pace : NULL;
    const json_t *made = json_object_get(event, "made");
    if (pace && made && pace_hear(pace, rank, made))
        r = -EBADMSG;
    if (r == -EBADMSG)
        log_job(LOG_LEVEL_DEBUG, job->id, "%s sent a malformed step trace", job_nodes(job)->name[rank]);
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
    if (job->is_idle || job->turn.is_here) { /* again, after a loss: its stages are where they were */
        interruption_end(&job->interruption);
        return true;
    }
    json_decref(job->result);
    job->result = json_incref(result);
    job->is_idle = true;
    job_progress(job, clock_now());
    job_log_publish(l, job, "answer",
                    json_pack("{s:I s:s s:O}", "id", (json_int_t)job->id, "state", job_state_name(job->state),
                              "result", result));
    return true;
}

static uint64_t step_of(const json_t *event)
{
    return (uint64_t)json_integer_value(json_object_get(event, "step"));
}

/* Lines of the history that a stage does not say again. */
static bool is_said_once(const char *kind)
{
    return line_log_keeps(kind) && strcmp(kind, "so-far") != 0;
}

static const char *adapter_of(const json_t *event)
{
    const char *adapter = json_string_value(json_object_get(event, "adapter"));
    return adapter ? adapter : "";
}

/* How far the job has come in what it says, for a stage that does some of it again. */
static void keep_said(struct job *job, const char *kind, const json_t *event)
{
    job_said(job, kind, adapter_of(event), step_of(event));
}

/* What the run decided after a step, for a stage that goes on from copies in memory: these are of
 * one of the last steps. */
static void keep_so_far(struct job *job, const json_t *event)
{
    const char *name = adapter_of(event);
    const uint64_t step = step_of(event);
    if (!job->said)
        job->said = json_object();
    if (!json_object_get(job->said, "so-far"))
        json_object_set_new(job->said, "so-far", json_object());
    json_t *of = json_object_get(job->said, "so-far"), *list = json_object_get(of, name);
    if (!list) {
        list = json_array();
        json_object_set_new(of, name, list);
    }
    size_t n = json_array_size(list);
    while (n && step_of(json_array_get(list, n - 1)) >= step)
        json_array_remove(list, --n); /* of a run before, which did this step as well */
    if (n == SO_FAR_MAX)
        json_array_remove(list, 0);
    json_array_append_new(
        list, json_pack("{s:I s:O*}", "step", (json_int_t)step, "so_far", json_object_get(event, "so_far")));
}

/* Said once when saving begins to fail, and once when it works again. */
static void on_saving(const struct job_log *l, struct job *job, bool is_saved, const json_t *event)
{
    const unsigned long long step = (unsigned long long)json_integer_value(json_object_get(event, "step"));
    const char *why = json_string_value(json_object_get(event, "error"));
    const bool was_saved = !*job->unsaved;
    text_clean(job->unsaved, sizeof job->unsaved, is_saved || !why ? "" : why, true);
    if (is_saved)
        job->saved_step = step;
    if (is_saved == was_saved)
        return;
    if (is_saved)
        job_log_note(l, job, "step %llu is saved: saving works again", step);
    else
        job_log_note(l, job, "step %llu is not saved: %s. The job goes on, and tries again at the next save",
                     step, job->unsaved);
    job_log_changed(l, job);
}

/* A token of an earlier life of the daemon, for who follows the job in this one. */
static bool is_said_again(const json_t *body)
{
    return json_is_true(json_object_get(json_object_get(body, "event"), "again"));
}

/* What it takes to go on in another life of the daemon; a conversation does not. */
static void keep_on_disk(const struct job_log *l, struct job *job, bool is_prompt, const json_t *event)
{
    if (!job->token_log || job->asked.keep_alive)
        return;
    json_t *part = is_prompt ? json_deep_copy(event) : token_log_part(job->token_log);
    if (part)
        job_log_remember(l, job, is_prompt ? "prompt" : "tokens", part);
}

/* What it takes to go on after a loss. */
static void keep_tokens(const struct job_log *l, struct job *job, const char *kind, const json_t *event)
{
    const bool is_prompt = !strcmp(kind, "prompt");
    if (is_prompt)
        job_drop_turn(job);
    if (job->token_log &&
        !(is_prompt ? token_log_prompt(job->token_log, event) : token_log_token(job->token_log, event)))
        job_log_note(l, job,
                     "its tokens take too much memory to be kept: if a node is lost now, the job ends");
    keep_on_disk(l, job, is_prompt, event);
}

bool job_hear_kept(const struct job_log *l, struct job *job, size_t rank, const json_t *event)
{
    const char *why = json_string_value(json_object_get(event, "error"));
    const json_t *step = json_object_get(event, "step");
    if (!json_is_integer(step) || json_integer_value(step) < 1)
        return false;
    if (why && !job->kept.is_said)
        job_log_note(l, job,
                     "node %s: copies of step %llu are not on its disk: %s. The job goes on, and tries again "
                     "at the next save",
                     job_nodes(job)->name[rank], (unsigned long long)step_of(event), why);
    job->kept.is_said = job->kept.is_said || why;
    return kept_hear(&job->kept, rank, job_nodes(job)->n, step_of(event), !why);
}

void job_hear_state_lost(const struct job_log *l, struct job *job, const json_t *event)
{
    const char *folder = json_string_value(json_object_get(event, "folder"));
    job_log_note(l, job, "the state of step %llu, which was saved, is not in %s any more",
                 (unsigned long long)job->saved_step, folder ? folder : "--adapter-out");
    job->saved_step = job->best_step = 0;
}

/* It may serve for days without a token: what ended its stage before is no fault of the job. */
static void hear_served(struct job *job, const char *kind, const json_t *event)
{
    const json_int_t made = json_integer_value(json_object_get(event, "generated_tokens"));
    if (!strcmp(kind, "serving")) {
        job->tokens_before = job->tokens;
        interruption_end(&job->interruption);
    } else if (!strcmp(kind, "load") && made > 0) {
        job->tokens = job->tokens_before + (uint64_t)made;
    }
}

static uint64_t number_at(const json_t *event, const char *key)
{
    const json_int_t n = json_integer_value(json_object_get(event, key));
    return n > 0 ? (uint64_t)n : 0;
}

/* What a rank waits for before it opens its layers: "org/name: layers 8-15 come from node a to
 * node c: 31 %, 4 s left" */
static void hear_coming(struct job *job, size_t rank, json_t *event)
{
    const char *model = json_string_value(json_object_get(event, "model")),
               *from = json_string_value(json_object_get(event, "from"));
    const uint64_t done = number_at(event, "done"), total = number_at(event, "total");
    const double rate = json_number_value(json_object_get(event, "rate"));
    const double share = total ? (double)(done < total ? done : total) / (double)total : 0;
    char layers[240], raw[700], left[60] = "", text[700];
    if (!job->plan || rank >= job->plan->shared.ranks)
        return;
    note_layers(layers, sizeof layers, &job->plan->shared, rank);
    if (rate > 0 && done < total)
        snprintf(left, sizeof left, ", %.0f s left", (double)(total - done) / rate);
    snprintf(raw, sizeof raw, "%.*s: %s come from %s to node %s: %.0f %%%s",
             model ? (int)strcspn(model, "@") : 1, model ? model : "?",
             model && strcmp(model, job->plan->shared.model) != 0 ? "its weights" : layers,
             from ? from : "another node", job_nodes(job)->name[rank], 100 * share, left);
    text_clean(text, sizeof text, raw, true);
    json_object_set_new(event, "text", json_string(text));
    free(job->coming[rank]);
    job->coming[rank] = xstrdup(text);
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
    const bool is_prompt = !strcmp(event_kind(body), "prompt"), is_again = is_said_again(body);
    if (rank == 0 && !is_again && (is_prompt || !strcmp(event_kind(body), "token")))
        keep_tokens(l, job, event_kind(body), json_object_get(body, "event"));
    if (is_prompt)
        return;
    if (!strcmp(event_kind(body), "so-far")) {
        if (rank == 0)
            keep_so_far(job, json_object_get(body, "event"));
        return;
    }
    if (!strcmp(event_kind(body), "memory") && job_set_memory(job, rank, json_object_get(body, "event")))
        return;
    const bool is_of_rank = !strcmp(event_kind(body), "memory") || !strcmp(event_kind(body), "reading") ||
                            !strcmp(event_kind(body), "coming");
    if (rank > 0 && !is_of_rank && strcmp(event_kind(body), "log"))
        return; /* how the job goes is the head's own stage's to say */
    json_t *event = json_deep_copy(json_object_get(body, "event"));
    char kind[16];
    snprintf(kind, sizeof kind, "%s", event_kind(body));
    json_object_del(event, "ev");
    json_object_del(event, "again");
    if (!strcmp(kind, "log")) /* a line that any rank may write */
        text_clean_json(event, NULL);
    if (!strcmp(kind, "log"))
        json_object_set_new(event, "time", json_integer(time(NULL)));
    if (is_of_rank)
        json_object_set_new(event, "rank", json_integer((json_int_t)rank));
    if (!strcmp(kind, "reading") || !strcmp(kind, "coming"))
        json_object_set_new(event, "node", json_string(job_nodes(job)->name[rank]));
    if (!strcmp(kind, "coming"))
        hear_coming(job, rank, event);
    if (is_said_once(kind))
        keep_said(job, kind, event);
    if (!strcmp(kind, "saved") || !strcmp(kind, "save-delayed"))
        on_saving(l, job, !strcmp(kind, "saved"), event);
    if (!strcmp(kind, "logged"))
        job_logged(job, event);
    if (!strcmp(kind, "skipped")) {
        text_clean_json(event, NULL);
        const char *text = json_string_value(json_object_get(event, "text"));
        job_log_note(l, job, "%s: the step is left out", text ? text : "?");
        job->step = (uint64_t)json_integer_value(json_object_get(event, "step"));
    }
    if (!is_again)
        metrics_event(metrics, kind, event);
    job_progress(job, clock_now());
    if (job->type == JOB_SERVE)
        hear_served(job, kind, event);
    if (job->state == JOB_RUNNING && (!strcmp(kind, "step") || !strcmp(kind, "token")))
        job_mark(job, &job->start.first_result, job->progressed);
    if (!strcmp(kind, "token") && !is_again)
        job->tokens++;
    if (!strcmp(kind, "step")) {
        job->tokens += (uint64_t)json_integer_value(json_object_get(event, "tokens"));
        job->step = (uint64_t)json_integer_value(json_object_get(event, "step"));
        job->steps = (uint64_t)json_integer_value(json_object_get(event, "steps"));
        job->loss = json_number_value(json_object_get(event, "loss"));
        job->has_loss = json_is_number(json_object_get(event, "loss"));
    }
    job_log_publish(l, job, kind, event);
}

/* --- what a head has missed ------------------------------------------------------------------- */

/* Has it heard all that came before those lines? */
static bool follows(const struct job *job, const json_t *before)
{
    const char *kind, *adapter;
    json_t *of, *step;
    json_object_foreach ((json_t *)(uintptr_t)before, kind, of)
        json_object_foreach (of, adapter, step)
            if (json_is_integer(step) &&
                !job_has_said(job, kind, adapter, (uint64_t)json_integer_value(step)))
                return false;
    return true;
}

/* One that was said later counts, and this one is older. */
static bool is_decided(const struct job *job, const json_t *so_far)
{
    const json_t *list = json_object_get(json_object_get(job->said, "so-far"), adapter_of(so_far));
    const size_t n = json_array_size(list);
    return n && step_of(json_array_get(list, n - 1)) >= step_of(so_far);
}

static bool is_missed(const struct job *job, const json_t *line)
{
    const char *kind = json_string_value(json_object_get(line, "ev"));
    return kind && (strcmp(kind, "so-far")
                        ? is_said_once(kind) && !job_has_said(job, kind, adapter_of(line), step_of(line))
                        : !is_decided(job, line));
}

void job_hear_lines(const struct job_log *l, struct metrics *metrics, struct job *job, size_t rank,
                    const json_t *kept)
{
    const json_t *before = json_object_get(kept, "before");
    const char *adapter;
    json_t *line;
    const uint64_t step = job->step;
    size_t i;
    if (job->type != JOB_TRAIN || !json_is_object(before) || !follows(job, before))
        return;
    json_object_foreach (json_object_get(before, "so-far"), adapter, line)
        if (!is_decided(job, line))
            keep_so_far(job, line);
    json_array_foreach (json_object_get(kept, "lines"), i, line) {
        json_t *body = json_pack("{s:O}", "event", line);
        if (is_missed(job, line))
            job_hear_event(l, metrics, job, 0, body);
        json_decref(body);
    }
    job->log_lost = job->is_log_lost && job->step > step ? job->step : job->log_lost;
    if (job->step > step)
        job_log_note(l, job, "node %s knows what was said of steps %llu to %llu", job_nodes(job)->name[rank],
                     (unsigned long long)step + 1, (unsigned long long)job->step);
}

void job_hear_relayed(const struct job_log *l, struct job *job, size_t rank, const json_t *body)
{
    const char *through = json_string_value(json_object_get(body, "through"));
    const struct job_nodes *nodes = job_nodes(job);
    const json_int_t other = json_integer_value(json_object_get(body, "to"));
    if (!through || other < 0 || (size_t)other >= nodes->n)
        return;
    const char *from = nodes->name[rank], *to = nodes->name[other];
    char **way = &job->through[rank][other];
    if (!strcmp(through, *way ? *way : ""))
        return;
    free(*way);
    *way = *through ? xstrndup(through, THROUGH_MAX) : NULL;
    if (*through)
        job_log_note(l, job, "the way from %s to %s is relayed through %s", from, to, through);
    else
        job_log_note(l, job, "the way from %s to %s is direct again", from, to);
    job_log_save(l, job);
}
