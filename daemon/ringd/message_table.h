/* SPDX-License-Identifier: MIT
 *
 * Every kind of message between daemons: who may send it, which fields it has, what it means. What
 * does not fit is dropped before a handler runs (messages.c). The tables of docs/PROTOCOL.md and
 * the keys of the fuzzers come from these rows. Pure: any thread. */
#ifndef DAEMON_MESSAGE_TABLE_H
#define DAEMON_MESSAGE_TABLE_H

#include <jansson.h>
#include <stddef.h>

#include "daemon/common/fields.h"
#include "engine/err.h"

enum message_kind {
    MESSAGE_TOKENS,
    MESSAGE_JOIN_ASK,
    MESSAGE_JOIN_ANSWER,
    MESSAGE_DOCTOR_ASK,
    MESSAGE_DOCTOR_FACTS,
    MESSAGE_DOCTOR_READING,
    MESSAGE_JOBS_ASK,
    MESSAGE_JOBS_TOLD,
    MESSAGE_API_ASK,
    MESSAGE_API_MORE,
    MESSAGE_API_TOLD,
    MESSAGE_JOB_WANTED,
    MESSAGE_JOB_PLANNED,
    MESSAGE_JOB_OPEN,
    MESSAGE_JOB_READY,
    MESSAGE_JOB_CONNECT,
    MESSAGE_JOB_CONNECTED,
    MESSAGE_JOB_RUN,
    MESSAGE_JOB_TURN,
    MESSAGE_JOB_LEAVE,
    MESSAGE_JOB_KEPT,
    MESSAGE_JOB_LEFT,
    MESSAGE_JOB_EVENT,
    MESSAGE_JOB_RELAYED,
    MESSAGE_JOB_DONE,
    MESSAGE_JOB_FAILED,
    MESSAGE_JOB_STOP,
    MESSAGE_JOB_STOPPED,
    MESSAGE_DOSSIER_NEWS,
    MESSAGE_DOSSIER_NOTED,
    MESSAGE_DOSSIER_RECALL,
    MESSAGE_DOSSIER_HELD,
    MESSAGE_HEAD_ASK,
    MESSAGE_HEAD_ANSWER,
    MESSAGE_CLAIM_ASK,
    MESSAGE_CLAIM_ANSWER,
    MESSAGE_CLAIM_RELEASE,
    MESSAGE_JOB_ADOPTED,
    MESSAGE_JOB_LANDED,
    MESSAGE_ADAPTER_OFFERED,
    MESSAGE_ADAPTER_ANSWER,
    MESSAGE_PART_ASK,
    MESSAGE_PART_TOLD,
    MESSAGE_LANE_TURN,
    MESSAGE_DRAIN,
    MESSAGE_CLIENT_KEYS,
    MESSAGE_MODEL_WANT,
    MESSAGE_MODEL_TOLD,
    MESSAGE_MODEL_PUSH,
    MESSAGE_MODEL_PUSHED,
    MESSAGE_MODEL_GIVE,
    MESSAGE_MODEL_DENIED,
    MESSAGE_MODEL_CENSUS,
    MESSAGE_MODEL_COUNTED,
    MESSAGE_COST_ASK,
    MESSAGE_COST_HEARD,
    MESSAGE_COST_TOLD,
    MESSAGE_RELAY_OPEN,
    MESSAGE_RELAY_READY,
    MESSAGE_RELAY_REFUSED,
    MESSAGE_KINDS
};

enum message_sender {
    MESSAGE_FROM_ANYONE, /* a node with which there is a control connection, or a way over others */
    MESSAGE_FROM_MEMBER, /* of the roster, and active */
    MESSAGE_FROM_AUTHORITY,
    MESSAGE_FROM_HEAD, /* of the job that is named, which this node works on */
    MESSAGE_FROM_RANK, /* the node of the job and rank that are named; this node is the head */
};
const char *message_sender_text(enum message_sender sender); /* as the tables say it: "the head" */

struct message_row {
    const char *name;
    enum message_sender sender;
    const char *doc;
    struct field fields[13]; /* ends with a name of NULL; all of size 0: the handler reads them */
};
const struct message_row *message_row(enum message_kind kind);
/* Fields that several kinds have with one meaning: their rows have no text of their own. */
const struct field *message_common_fields(void);

/* Its kind, and whether all its fields are what they may be. −ENOENT: an unknown kind, of a newer
 * version perhaps, or none. −EINVAL with a sentence: a field is missing or out of range; ret_kind
 * is set. A field without a row is left alone. */
int message_check(enum message_kind *ret_kind, const json_t *body, struct err *err);

/* A row as docs/PROTOCOL.md has it; the caller frees. */
char *message_row_text(enum message_kind kind);

#endif
