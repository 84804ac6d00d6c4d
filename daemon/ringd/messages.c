/* SPDX-License-Identifier: MIT
 *
 * Called by the control connections, for every message to this node: looks whether its fields and
 * its sender are what message_table.h says, and hands it to the module that handles it. */
#include "daemon/ringd/messages.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>

#include "daemon/ringd/cluster/cluster.h"
#include "daemon/ringd/cluster/enrol.h"
#include "daemon/ringd/doctor/doctor_ask.h"
#include "daemon/ringd/api/elsewhere.h"
#include "daemon/ringd/hub/supply.h"
#include "daemon/ringd/job/coord.h"
#include "daemon/ringd/job/plan/cost_query.h"
#include "daemon/ringd/job/plan/cost_server.h"
#include "daemon/ringd/job/deputy/deputy.h"
#include "daemon/ringd/job/deputy/parts.h"
#include "daemon/ringd/job/workers.h"
#include "daemon/ringd/log.h"
#include "daemon/ringd/message_table.h"
#include "daemon/ringd/node.h"
#include "daemon/ringd/peer/relay.h"
#include "daemon/ringd/store/metrics.h"

/* --- handlers --------------------------------------------------------------------------------- */

/* A handler for a kind: what of node, sender and message it needs. */
#define HANDLER(name, call)                                                                                  \
    static void name(struct node *n, const uint8_t from[16], const json_t *body)                             \
    {                                                                                                        \
        (void)from, (void)body;                                                                              \
        call;                                                                                                \
    }

HANDLER(on_tokens, enrol_take_tokens(n->enrol, from, body))
HANDLER(on_join_ask, enrol_take_join_ask(n->enrol, from, body))
HANDLER(on_join_answer, enrol_take_join_answer(n->enrol, body))

HANDLER(on_doctor_ask, doctor_take_ask(n->doctor, from, body))
HANDLER(on_doctor_facts, doctor_take_facts(n->doctor, from, body))
HANDLER(on_doctor_reading, doctor_take_reading(n->doctor, from, body))

HANDLER(on_jobs_ask, elsewhere_take_jobs_ask(n->elsewhere, from, body))
HANDLER(on_jobs_told, elsewhere_take_jobs_told(n->elsewhere, from, body))
HANDLER(on_api_ask, elsewhere_take_api_ask(n->elsewhere, from, body))
HANDLER(on_api_more, elsewhere_take_api_more(n->elsewhere, from, body))
HANDLER(on_api_told, elsewhere_take_api_told(n->elsewhere, from, body))

HANDLER(on_job_wanted, coord_take_wanted(n->coord))
HANDLER(on_job_planned, coord_take_word(n->coord, JOB_WORD_PLANNED, body))
HANDLER(on_job_ready, coord_take_word(n->coord, JOB_WORD_READY, body))
HANDLER(on_job_connected, coord_take_word(n->coord, JOB_WORD_CONNECTED, body))
HANDLER(on_job_event, coord_take_word(n->coord, JOB_WORD_EVENT, body))
HANDLER(on_job_relayed, coord_take_word(n->coord, JOB_WORD_RELAYED, body))
HANDLER(on_job_failed, coord_take_word(n->coord, JOB_WORD_FAILED, body))
HANDLER(on_job_left, coord_take_word(n->coord, JOB_WORD_LEFT, body))
HANDLER(on_job_done, coord_take_word(n->coord, JOB_WORD_DONE, body))
HANDLER(on_job_stopped, coord_take_word(n->coord, JOB_WORD_STOPPED, body))
HANDLER(send_away, coord_send_away(n->coord, from, body))

HANDLER(on_job_open, workers_take_open(n->workers, from, body))
HANDLER(on_job_connect, worker_take_connect(workers_of_head(n->workers, from, body)))
HANDLER(on_job_run, worker_take_run(workers_of_head(n->workers, from, body), body))
HANDLER(on_job_leave, worker_take_leave(workers_of_head(n->workers, from, body), body))
HANDLER(on_job_kept, worker_take_kept(workers_of_head(n->workers, from, body), body))
HANDLER(on_drain, node_drain(n, from, json_string_value(json_object_get(body, "reason"))))
HANDLER(on_client_keys, node_take_keys(n, from, json_object_get(body, "keys")))
HANDLER(on_job_turn, worker_take_turn(workers_of_head(n->workers, from, body), body))
HANDLER(on_job_stop, worker_take_stop(workers_of_head(n->workers, from, body), body))
HANDLER(say_stopped, workers_say_stopped(n->workers, from, body))
HANDLER(on_lane_turn, workers_take_lane_turn(n->workers, from, body))

HANDLER(on_dossier_news, deputy_take_news(n->deputy, from, body))
HANDLER(on_dossier_noted, coord_take_noted(n->coord, from, body))
HANDLER(on_dossier_recall, deputy_take_recall(n->deputy, from, body))
HANDLER(on_dossier_held, coord_take_held(n->coord, from, body))
HANDLER(on_head_ask, coord_take_head_ask(n->coord, from, body))
HANDLER(on_head_answer, workers_take_head_answer(n->workers, from, body))
HANDLER(on_claim_ask, deputy_take_claim_ask(n->deputy, from, body))
HANDLER(on_claim_answer, deputy_take_claim_answer(n->deputy, from, body))
HANDLER(on_claim_release, deputy_take_claim_release(n->deputy, from, body))
HANDLER(on_job_adopted, coord_take_adopted(n->coord, n->parts, from, body))
HANDLER(on_adapter_offered, coord_take_offered(n->coord, n->parts, from, body))
HANDLER(on_adapter_answer, coord_take_offer_answer(n->coord, from, body))
HANDLER(on_part_ask, parts_take_ask(n->parts, from, body))
HANDLER(on_part_told, parts_take_told(n->parts, from, body))

static void on_job_landed(struct node *n, const uint8_t from[16], const json_t *body)
{
    uint64_t as;
    if (deputy_take_landed(n->deputy, from, body, &as))
        coord_cancel(n->coord, as);
}

HANDLER(on_model_want, supply_take_want(n->supply, from, body))
HANDLER(on_model_told, supply_take_told(n->supply, from, body))
HANDLER(on_model_push, supply_take_push(n->supply, from, body))
HANDLER(on_model_pushed, supply_take_pushed(n->supply, from, body))
HANDLER(on_model_give, supply_take_give(n->supply, from, body))
HANDLER(on_model_denied, supply_take_denied(n->supply, from, body))
HANDLER(on_model_census, supply_take_census(n->supply, from, body))
HANDLER(on_model_counted, supply_take_counted(n->supply, from, body))
HANDLER(on_cost_ask, cost_server_take_ask(n->cost_server, from, body))
HANDLER(on_cost_heard, cost_query_take_heard(n->cost_query, from, body))
HANDLER(on_cost_told, cost_query_take_told(n->cost_query, from, body))

HANDLER(on_relay_open, relay_take_open(n->relay, from, body))
HANDLER(on_relay_ready, relay_take_ready(n->relay, from, body))
HANDLER(on_relay_refused, relay_take_refused(n->relay, from, body))

static const struct {
    void (*take)(struct node *n, const uint8_t from[16], const json_t *body);
    /* The sender is not the head or rank that it speaks as: the job is over. NULL: the message is
     * dropped without a word. */
    void (*answer_stranger)(struct node *n, const uint8_t from[16], const json_t *body);
} handlers[MESSAGE_KINDS] = {
    [MESSAGE_TOKENS] = {on_tokens},
    [MESSAGE_JOIN_ASK] = {on_join_ask},
    [MESSAGE_JOIN_ANSWER] = {on_join_answer},
    [MESSAGE_DOCTOR_ASK] = {on_doctor_ask},
    [MESSAGE_DOCTOR_FACTS] = {on_doctor_facts},
    [MESSAGE_DOCTOR_READING] = {on_doctor_reading},
    [MESSAGE_JOBS_ASK] = {on_jobs_ask},
    [MESSAGE_JOBS_TOLD] = {on_jobs_told},
    [MESSAGE_API_ASK] = {on_api_ask},
    [MESSAGE_API_MORE] = {on_api_more},
    [MESSAGE_API_TOLD] = {on_api_told},
    [MESSAGE_JOB_WANTED] = {on_job_wanted},
    [MESSAGE_JOB_PLANNED] = {on_job_planned},
    [MESSAGE_JOB_OPEN] = {on_job_open},
    [MESSAGE_JOB_READY] = {on_job_ready, send_away},
    [MESSAGE_JOB_CONNECT] = {on_job_connect},
    [MESSAGE_JOB_CONNECTED] = {on_job_connected, send_away},
    [MESSAGE_JOB_RUN] = {on_job_run},
    [MESSAGE_JOB_TURN] = {on_job_turn},
    [MESSAGE_JOB_LEAVE] = {on_job_leave},
    [MESSAGE_JOB_KEPT] = {on_job_kept},
    [MESSAGE_JOB_LEFT] = {on_job_left},
    [MESSAGE_JOB_EVENT] = {on_job_event},
    [MESSAGE_JOB_RELAYED] = {on_job_relayed},
    [MESSAGE_JOB_DONE] = {on_job_done},
    [MESSAGE_JOB_FAILED] = {on_job_failed},
    [MESSAGE_JOB_STOP] = {on_job_stop, say_stopped},
    [MESSAGE_JOB_STOPPED] = {on_job_stopped},
    [MESSAGE_DOSSIER_NEWS] = {on_dossier_news},
    [MESSAGE_DOSSIER_NOTED] = {on_dossier_noted},
    [MESSAGE_DOSSIER_RECALL] = {on_dossier_recall},
    [MESSAGE_DOSSIER_HELD] = {on_dossier_held},
    [MESSAGE_HEAD_ASK] = {on_head_ask},
    [MESSAGE_HEAD_ANSWER] = {on_head_answer},
    [MESSAGE_CLAIM_ASK] = {on_claim_ask},
    [MESSAGE_CLAIM_ANSWER] = {on_claim_answer},
    [MESSAGE_CLAIM_RELEASE] = {on_claim_release},
    [MESSAGE_JOB_ADOPTED] = {on_job_adopted},
    [MESSAGE_JOB_LANDED] = {on_job_landed},
    [MESSAGE_ADAPTER_OFFERED] = {on_adapter_offered},
    [MESSAGE_ADAPTER_ANSWER] = {on_adapter_answer},
    [MESSAGE_PART_ASK] = {on_part_ask},
    [MESSAGE_PART_TOLD] = {on_part_told},
    [MESSAGE_LANE_TURN] = {on_lane_turn},
    [MESSAGE_DRAIN] = {on_drain},
    [MESSAGE_CLIENT_KEYS] = {on_client_keys},
    [MESSAGE_MODEL_WANT] = {on_model_want},
    [MESSAGE_MODEL_TOLD] = {on_model_told},
    [MESSAGE_MODEL_PUSH] = {on_model_push},
    [MESSAGE_MODEL_PUSHED] = {on_model_pushed},
    [MESSAGE_MODEL_GIVE] = {on_model_give},
    [MESSAGE_MODEL_DENIED] = {on_model_denied},
    [MESSAGE_MODEL_CENSUS] = {on_model_census},
    [MESSAGE_MODEL_COUNTED] = {on_model_counted},
    [MESSAGE_COST_ASK] = {on_cost_ask},
    [MESSAGE_COST_HEARD] = {on_cost_heard},
    [MESSAGE_COST_TOLD] = {on_cost_told},
    [MESSAGE_RELAY_OPEN] = {on_relay_open},
    [MESSAGE_RELAY_READY] = {on_relay_ready},
    [MESSAGE_RELAY_REFUSED] = {on_relay_refused},
};

/* --- senders ---------------------------------------------------------------------------------- */

static bool is_member(const struct node *n, const uint8_t id[16], bool must_sign)
{
    const struct roster *roster = cluster_roster(n->cluster);
    const struct roster_entry *entry = roster ? roster_find(roster, id) : NULL;
    return entry && entry->status == ROSTER_ACTIVE && (entry->authority || !must_sign);
}

static bool may_send(const struct node *n, enum message_sender sender, const uint8_t from[16],
                     const json_t *body)
{
    switch (sender) {
    case MESSAGE_FROM_ANYONE: return true;
    case MESSAGE_FROM_MEMBER: return is_member(n, from, false);
    case MESSAGE_FROM_AUTHORITY: return is_member(n, from, true);
    case MESSAGE_FROM_HEAD: return workers_of_head(n->workers, from, body) != NULL;
    case MESSAGE_FROM_RANK: return coord_is_rank(n->coord, from, body);
    }
    return false;
}

static void drop(const struct node *n, const uint8_t from[16], const char *kind, const char *why)
{
    const struct member *m = members_find(n->members, from);
    metrics_message_dropped(n->metrics);
    log_line(LOG_LEVEL_DEBUG, "the message %s of %s is dropped: %s", kind, m ? m->name : "a stranger", why);
}

void messages_receive(struct node *n, const uint8_t from[16], const json_t *body)
{
    enum message_kind kind = MESSAGE_KINDS;
    struct err err;
    const int r = message_check(&kind, body, &err);
    if (r) {
        drop(n, from, r == -ENOENT ? "of another version" : message_row(kind)->name, err.text);
        return;
    }
    const enum message_sender sender = message_row(kind)->sender;
    if (may_send(n, sender, from, body)) {
        handlers[kind].take(n, from, body);
    } else if (handlers[kind].answer_stranger) {
        handlers[kind].answer_stranger(n, from, body);
    } else if (sender < MESSAGE_FROM_HEAD) { /* else a word that comes late, of a job that is over */
        char why[80];
        snprintf(why, sizeof why, "it is sent by %s alone", message_sender_text(sender));
        drop(n, from, message_row(kind)->name, why);
    }
}
