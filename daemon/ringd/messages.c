/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/messages.h"

#include "daemon/ringd/job/coord.h"
#include "daemon/ringd/doctor/doctor_ask.h"
#include "daemon/ringd/http/elsewhere.h"
#include "daemon/ringd/cluster/enrol.h"
#include "daemon/ringd/job/cost_server.h"
#include "daemon/ringd/node.h"
#include "daemon/ringd/peer/relay.h"
#include "daemon/ringd/job/cost_query.h"
#include "daemon/ringd/job/worker.h"

void messages_receive(struct node *node, const uint8_t from[16], const json_t *body)
{
    const char *kind = json_string_value(json_object_get(body, "kind"));
    if (!kind)
        return;
    enrol_message(node->enrol, from, kind, body);
    doctor_message(node->doctor, from, kind, body);
    elsewhere_message(node->elsewhere, from, kind, body);
    coord_message(node->coord, from, kind, body);
    survey_message(node->survey, from, kind, body);
    gauge_message(node->gauge, from, kind, body);
    relay_message(node->relay, from, kind, body);
    worker_message(node->worker, from, kind, body);
}
