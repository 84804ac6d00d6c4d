/* SPDX-License-Identifier: MIT
 *
 * Owns the last answer. Called by the API; loop thread. */
#include "daemon/ringd/api/api_status.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ringd/api/api_ring.h"
#include "daemon/ringd/peer/cables.h"
#include "daemon/ringd/job/coord.h"
#include "daemon/ringd/api/elsewhere.h"
#include "daemon/ringd/http/http.h"
#include "daemon/ringd/event_log.h"
#include "daemon/ringd/cluster/identity.h"
#include "daemon/ringd/job/job.h"
#include "daemon/ringd/cluster/members.h"
#include "daemon/ringd/api/api_impl.h"
#include "daemon/ringd/peer/peers.h"
#include "daemon/ringd/cluster/record.h"
#include "daemon/ringd/store/store.h"
#include "daemon/common/xalloc.h"
#include "engine/num/kernels.h"

enum { KEPT_US = 250000 }; /* what makes no event, as the memory that is free, may be so old */

struct api_status {
    char *text;     /* owned; NULL = none yet */
    uint64_t event; /* the newest when it was made: since then nothing has happened */
    struct instant made;
};

static json_t *jobs_in_hand(struct api *api)
{
    json_t *running = json_array(), *queued = json_array(), *paused = json_array();
    for (const struct job *job = coord_first(api->setup.coord); job; job = job->next)
        if (!job_state_ended(job->state) && job->state != JOB_MOVED) /* its new head has it */
            json_array_insert_new(job->state == JOB_QUEUED   ? queued
                                  : job->state == JOB_PAUSED ? paused
                                                             : running,
                                  0, json_integer((json_int_t)job->id));
    return json_pack("{s:o s:o s:o s:o}", "running", running, "queued", queued, "paused", paused, "elsewhere",
                     elsewhere_in_hand(api->setup.elsewhere));
}

static json_t *status_encode(struct api *api)
{
    api->setup.self_shown(api->setup.owner);
    const struct member *self = members_self(api->setup.members);
    json_t *trouble = json_array();
    char id[33];
    id_hex(id, self->id);
    if (store_trouble(api->setup.store))
        json_array_append_new(
            trouble, json_sprintf("job history is not being written: %s", store_trouble(api->setup.store)));
    if (records_forged(api->setup.records))
        json_array_append_new(
            trouble, json_sprintf("ringd dropped %llu records with a wrong signature: a member of the ring "
                                  "is broken or hostile, and the log names the first sender",
                                  (unsigned long long)records_forged(api->setup.records)));
    if (peers_forged(api->setup.peers))
        json_array_append_new(
            trouble,
            json_sprintf("ringd dropped %llu messages with a wrong signature, or repeated: a member of "
                         "the ring is broken or hostile, and the log names the first sender",
                         (unsigned long long)peers_forged(api->setup.peers)));
    cables_add_troubles(api->setup.cables, trouble);
    return json_pack("{s:s s:{s:s s:s s:i s:s s:I s:I} s:o s:o s:o}", "version", RINGD_VERSION, "node", "id",
                     id, "name", self->name, "threads", (int)self->threads, "kernels", isa_rounding(),
                     "memory_total", (json_int_t)self->memory_total, "memory_available",
                     (json_int_t)self->memory_available, "ring", api_ring_encode(api->setup.members), "jobs",
                     jobs_in_hand(api), "trouble", trouble);
}

void api_get_status(struct api *api, struct http_call *call)
{
    struct api_status *s = api->status;
    const uint64_t newest = event_log_newest(api->setup.events);
    if (!s->text || s->event != newest || clock_since_us(clock_now(), s->made) >= KEPT_US) {
        json_t *json = status_encode(api);
        free(s->text);
        s->text = json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(17));
        s->event = newest;
        s->made = clock_now();
        json_decref(json);
    }
    if (s->text)
        http_reply(call, 200, "application/json", s->text, strlen(s->text));
    else
        http_fail(call, 500, "internal", "the answer could not be written");
}

struct api_status *api_status_new(void)
{
    return xcalloc(1, sizeof(struct api_status));
}

void api_status_free(struct api_status *s)
{
    if (!s)
        return;
    free(s->text);
    free(s);
}
