/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/job/job_keep.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/common/job_type.h"
#include "daemon/ringd/cluster/identity.h"
#include "daemon/ringd/job/job.h"
#include "daemon/ringd/job/loan.h"

/* Each life of the daemon has so many attempts to itself. The last of them may have begun before
 * its number was on the disk, and its messages may still be on their way. */
enum { ATTEMPTS_OF_A_LIFE = 256 };

enum { MACHINE_SIZE = 40 };

/* The number of this life of the machine; "" if it has none. */
static void machine_life(char ret[MACHINE_SIZE])
{
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (!f || !fgets(ret, MACHINE_SIZE, f))
        *ret = '\0';
    if (f)
        fclose(f);
    ret[strcspn(ret, "\n")] = '\0';
}

/* --- written ---------------------------------------------------------------------------------- */

static json_t *interruption_encode(const struct interruption *i)
{
    return json_pack("{s:s s:I s:I s:o s:b s:I s:I s:i s:i s:I s:s}", "cause", i->cause, "since",
                     (json_int_t)i->since, "until", (json_int_t)i->until, "nodes",
                     job_nodes_encode(&i->nodes), "waited", (int)i->is_waited, "refused",
                     (json_int_t)i->refused, "fitted", (json_int_t)i->fitted, "count", (int)i->count,
                     "in_a_row", (int)i->in_a_row, "step", (json_int_t)i->step, "stage_of", i->stage_of);
}

static json_t *head_encode(const struct job_head *h)
{
    return json_pack("{s:o s:s s:I}", "node", id_json(h->id), "name", h->name, "job", (json_int_t)h->job);
}

static json_t *taken_encode(const struct job_former *t)
{
    json_t *o = head_encode(&t->from);
    json_object_set_new(o, "attempt", json_integer(t->attempt));
    return o;
}

json_t *job_keep_encode(const struct job *job)
{
    if (job_state_ended(job->state))
        return NULL;
    char machine[MACHINE_SIZE];
    machine_life(machine);
    json_t *life = json_pack(
        "{s:s s:s s:I s:b s:o* s:o s:o*}", "state", job_phase(job->state)->name, "machine", machine,
        "attempt", (json_int_t)job->attempt, "spared", (int)job->is_spared, "lent",
        job->loan ? json_deep_copy(loan_about(job->loan)) : json_incref(job->lent), "nodes",
        job_nodes_encode(job->ran.n ? &job->ran : job_nodes(job)), "interruption",
        job->interruption.count || job->interruption.fitted ? interruption_encode(&job->interruption) : NULL);
    json_object_set_new(life, "deputies", job_nodes_encode(&job->deputies));
    if (job->origin.job)
        json_object_set_new(life, "origin", origin_encode(&job->origin));
    if (job->taken.from.job)
        json_object_set_new(life, "taken", taken_encode(&job->taken));
    if (job->moved.job)
        json_object_set_new(life, "moved", head_encode(&job->moved));
    if (job->best_step)
        json_object_set_new(life, "best", json_integer((json_int_t)job->best_step));
    if (job->state == JOB_STOPPING)
        json_object_set_new(life, "outcome", json_string(job_phase(job->outcome)->name));
    return life;
}

/* --- read ------------------------------------------------------------------------------------- */

static bool state_read(enum job_state *ret, const json_t *name)
{
    const char *text = json_string_value(name);
    enum job_state s = 0;
    while (text && s < JOB_STATES && strcmp(text, job_phase(s)->name) != 0)
        s++;
    *ret = s;
    return text && s < JOB_STATES;
}

static uint64_t number(const json_t *o, const char *key)
{
    const json_int_t n = json_integer_value(json_object_get(o, key));
    return n > 0 ? (uint64_t)n : 0;
}

static void text_read(char *ret, size_t size, const json_t *o, const char *key)
{
    const char *text = json_string_value(json_object_get(o, key));
    snprintf(ret, size, "%s", text ? text : "");
}

static bool interruption_read(struct interruption *ret, const char *unit, const json_t *o)
{
    *ret = (struct interruption){.since = (int64_t)number(o, "since"),
                                 .until = (int64_t)number(o, "until"),
                                 .is_waited = json_is_true(json_object_get(o, "waited")),
                                 .refused = number(o, "refused"),
                                 .fitted = number(o, "fitted"),
                                 .count = (unsigned)number(o, "count"),
                                 .in_a_row = (unsigned)number(o, "in_a_row"),
                                 .unit = unit,
                                 .step = number(o, "step")};
    text_read(ret->cause, sizeof ret->cause, o, "cause");
    text_read(ret->stage_of, sizeof ret->stage_of, o, "stage_of");
    return job_nodes_read(&ret->nodes, json_object_get(o, "nodes"));
}

static bool head_read(struct job_head *ret, const json_t *o)
{
    const char *id = json_string_value(json_object_get(o, "node"));
    *ret = (struct job_head){.job = number(o, "job")};
    text_read(ret->name, sizeof ret->name, o, "name");
    return id && ret->job && !id_parse(ret->id, id);
}

/* What says who heads it: all of it may be missing. */
static bool heads_read(struct job *job, const json_t *life)
{
    const json_t *origin = json_object_get(life, "origin"), *taken = json_object_get(life, "taken"),
                 *moved = json_object_get(life, "moved"), *deputies = json_object_get(life, "deputies");
    job->taken.attempt = (uint32_t)number(taken, "attempt");
    return (!origin || origin_read(&job->origin, origin)) && (!taken || head_read(&job->taken.from, taken)) &&
           (!moved || head_read(&job->moved, moved)) &&
           (!deputies || job_nodes_read(&job->deputies, deputies));
}

static bool life_read(struct job *job, const json_t *life)
{
    const uint64_t attempt = number(life, "attempt");
    job->attempt = (uint32_t)((attempt / ATTEMPTS_OF_A_LIFE + 1) * ATTEMPTS_OF_A_LIFE);
    job->lent = json_incref(json_object_get(life, "lent"));
    job->is_spared = json_is_true(json_object_get(life, "spared"));
    job->best_step = number(life, "best");
    const json_t *outcome = json_object_get(life, "outcome"),
                 *interruption = json_object_get(life, "interruption");
    return json_is_object(life) && attempt < UINT32_MAX - ATTEMPTS_OF_A_LIFE &&
           state_read(&job->state, json_object_get(life, "state")) && !job_state_ended(job->state) &&
           (!job->lent || loan_about_is_whole(job->lent)) &&
           (job->state != JOB_STOPPING || state_read(&job->outcome, outcome)) &&
           job_nodes_read(&job->offered, json_object_get(life, "nodes")) && heads_read(job, life) &&
           (!interruption || interruption_read(&job->interruption, job_type_unit(job->type), interruption));
}

/* What its history says, and what follows from it. */
static void history_read(struct job *job, const json_t *entry)
{
    const json_t *last = json_object_get(entry, "last"), *saved = json_object_get(entry, "saved");
    size_t i;
    json_t *row;
    json_array_foreach (json_object_get(entry, "said"), i, row)
        job_said(job, json_string_value(json_array_get(row, 0)), json_string_value(json_array_get(row, 1)),
                 (uint64_t)json_integer_value(json_array_get(row, 2)));
    job->saved_step = number(saved, "step");
    job_logged(job, json_object_get(entry, "logged"));
    job->step = number(last, "step");
    job->steps = number(last, "steps");
    job->loss = json_number_value(json_object_get(last, "loss"));
    job->has_loss = json_is_number(json_object_get(last, "loss"));
    job->tokens = number(entry, "tokens");
    char machine[MACHINE_SIZE], before[MACHINE_SIZE];
    machine_life(machine);
    text_read(before, sizeof before, json_object_get(entry, "life"), "machine");
    job->is_log_lost = job->asked.log && strcmp(machine, before) != 0;
    job->log_lost = job->is_log_lost ? job->step : 0;
}

int job_keep_read(struct job **ret, const json_t *entry, struct err *err)
{
    const json_t *record = json_object_get(entry, "record"), *life = json_object_get(entry, "life");
    const char *name = json_string_value(json_object_get(record, "type"));
    json_t *spec = json_object_get(record, "spec");
    enum job_type type;
    struct job_spec asked;
    int r = name ? job_type_read(&type, name, err) : err_set(err, -EBADMSG, "its record has no type");
    r = r ? r : job_spec_read(&asked, type, spec, err);
    if (r)
        return -EBADMSG;
    struct job *job = job_new(number(record, "id"), type, &asked, json_incref(spec));
    if (!life_read(job, life)) {
        job_free(job);
        return err_set(err, -EBADMSG, "what is kept of it beside its record cannot be read");
    }
    job->ran = job->offered;
    job->created = (int64_t)number(record, "created");
    job->started = (int64_t)number(record, "started");
    job->result = json_incref(json_object_get(record, "result"));
    if (json_is_null(job->result))
        job->result = NULL;
    text_read(job->error, sizeof job->error, record, "error");
    history_read(job, entry);
    *ret = job;
    return 0;
}
