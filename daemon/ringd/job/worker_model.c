/* SPDX-License-Identifier: MIT
 *
 * What a stage lacks of its model: it says so before it opens its layers, and waits until that has
 * come. Called by worker.c and by who brings it; loop thread. */
#include <stdio.h>
#include <string.h>

#include "daemon/ringd/job/worker_impl.h"
#include "daemon/ringd/log.h"

void worker_add_content(const struct worker *w, json_t *order, const char *model)
{
    const char *content = model && w->setup.content ? w->setup.content(w->setup.owner, model) : NULL;
    if (content)
        json_object_set_new(order, "content", json_string(content));
}

void worker_hear_lacks(struct worker *w, const json_t *event)
{
    const char *model = json_string_value(json_object_get(event, "model"));
    const json_t *blocks = json_object_get(event, "blocks");
    if (w->state != WORKER_OPENING || *w->lacks || !model || strlen(model) >= sizeof w->lacks ||
        !w->setup.bring)
        return;
    snprintf(w->lacks, sizeof w->lacks, "%s", model);
    log_stage(LOG_LEVEL_INFO, w->job, w->rank, "parts of %s that its stage needs are brought here", model);
    w->setup.bring(w->setup.owner, model, blocks, w->rank ? w->holders : NULL, w->parts);
}

void worker_hear_travel(struct worker *w, const json_t *event)
{
    if (w->setup.travel)
        w->setup.travel(w->setup.owner, w->stage, event);
    else
        worker_say(w, json_pack("{s:s}", "do", "travel"));
}

void worker_coming(struct worker *w, const char *model, const json_t *event)
{
    if (w->state == WORKER_OPENING && !strcmp(w->lacks, model))
        worker_tell(w, "job-event", json_pack("{s:O}", "event", event));
}

void worker_brought(struct worker *w, const char *model, const char *why)
{
    if (w->state != WORKER_OPENING || strcmp(w->lacks, model) != 0)
        return;
    *w->lacks = '\0';
    worker_say(w, json_pack("{s:s s:s*}", "do", "brought", "error", why));
}
