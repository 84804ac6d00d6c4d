/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/job/job_log.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/common/text_clean.h"
#include "daemon/ringd/event_log.h"
#include "daemon/ringd/job/deputy/dossier_send.h"
#include "daemon/ringd/job/job.h"
#include "daemon/ringd/job/job_keep.h"
#include "daemon/ringd/log.h"
#include "daemon/ringd/store/store.h"

static char *text_of(json_t *json)
{
    char *text = json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_decref(json);
    return text;
}

/* What a history is not kept of: what others say as well, or is worth nothing later. */
static bool is_kept(const char *type)
{
    static const char *const passing[] = {"job",    "end",     "token", "memory",  "reading",
                                          "coming", "serving", "load",  "adapters"};
    for (size_t i = 0; i < sizeof passing / sizeof *passing; i++)
        if (!strcmp(type, passing[i]))
            return false;
    return true;
}

static void put_line(const struct job_log *l, const struct job *job, const char *kind, const char *text)
{
    store_put_event(l->store, job->id, kind, text);
    if (l->dossiers)
        dossier_send_line(l->dossiers, job->id);
}

void job_log_publish(const struct job_log *l, const struct job *job, const char *type, json_t *json)
{
    if (strcmp(type, "job") && strcmp(type, "end")) /* those have it as their id */
        json_object_set_new(json, "job", json_integer((json_int_t)job->id));
    char *text = text_of(json);
    if (text)
        event_log_publish(l->events, job->id, type, text);
    if (text && is_kept(type))
        put_line(l, job, type, text);
    free(text);
    l->published(l->owner, job->id, type);
}

void job_log_remember(const struct job_log *l, const struct job *job, const char *kind, json_t *json)
{
    char *text = text_of(json);
    if (text)
        put_line(l, job, kind, text);
    free(text);
}

void job_log_save(const struct job_log *l, const struct job *job)
{
    json_t *life = job_keep_encode(job);
    char *text = text_of(job_encode(job)), *life_text = life ? text_of(life) : NULL;
    if (text)
        store_put_job(l->store, job->id, job_state_name(job->state), text, life_text);
    if (text && l->dossiers)
        dossier_send_record(l->dossiers, job->id, text, life_text);
    free(life_text);
    free(text);
}

void job_log_changed(const struct job_log *l, const struct job *job)
{
    job_log_save(l, job);
    job_log_publish(l, job, "job", job_encode_short(job));
}

void job_log_note(const struct job_log *l, const struct job *job, const char *fmt, ...)
{
    char whole[1024], text[sizeof whole];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(whole, sizeof whole, fmt, ap);
    va_end(ap);
    text_clean(text, sizeof text, whole, true);
    log_job(LOG_LEVEL_INFO, job->id, "%s", text);
    job_log_publish(l, job, "log", json_pack("{s:I s:s}", "time", (json_int_t)time(NULL), "text", text));
}

void job_log_close_record(struct store *store, json_t *record, enum job_state state, const char *error)
{
    json_object_set_new(record, "state", json_string(job_state_name(state)));
    json_object_set_new(record, "ended", json_integer(time(NULL)));
    json_object_set_new(record, "waits_for", json_null());
    json_object_set_new(record, "seconds", json_null()); /* when it ended nobody knows */
    if (error)
        json_object_set_new(record, "error", json_string(error));
    char *text = json_dumps(record, JSON_COMPACT | JSON_REAL_PRECISION(17));
    if (text)
        store_put_job(store, (uint64_t)json_integer_value(json_object_get(record, "id")),
                      job_state_name(state), text, NULL);
    free(text);
}
