/* SPDX-License-Identifier: MIT
 *
 * A daemon's life in the simulation: what node.c does, with the parts there are. node_job.c wires
 * the job's room as it does in ringd, messages.c hands on what is heard. The last section stands in
 * for what neither is asked of here: a call of it is a fault of the simulation. */
#include "tests/sim/cluster/sim.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/optable.h"
#include "daemon/ringd/api/api_reply.h"
#include "daemon/ringd/api/elsewhere.h"
#include "daemon/ringd/cluster/cluster.h"
#include "daemon/ringd/cluster/enrol.h"
#include "daemon/ringd/doctor/doctor_ask.h"
#include "daemon/ringd/event_log.h"
#include "daemon/ringd/http/http.h"
#include "daemon/ringd/job/coord.h"
#include "daemon/ringd/job/plan/cost_query.h"
#include "daemon/ringd/job/plan/cost_server.h"
#include "daemon/ringd/job/deputy/ballots.h"
#include "daemon/ringd/job/deputy/deputy.h"
#include "daemon/ringd/job/deputy/dossier_send.h"
#include "daemon/ringd/job/deputy/parts.h"
#include "daemon/ringd/job/loan.h"
#include "daemon/ringd/job/plan/plan_request.h"
#include "daemon/ringd/job/survive/held_disk.h"
#include "daemon/ringd/job/survive/loan_store.h"
#include "daemon/ringd/job/workers.h"
#include "daemon/ringd/log.h"
#include "daemon/ringd/node_impl.h"
#include "daemon/ringd/peer/relay.h"
#include "daemon/ringd/service.h"
#include "daemon/ringd/store/metrics.h"
#include "daemon/ringd/timer.h"

enum { RECORD_LIVES = 3, SOON_US = 1000 };

/* --- node.h ----------------------------------------------------------------------------------- */

void node_refresh_doings(struct node *n)
{
    struct member *self = members_self(n->members);
    self->heard = clock_now();
    if (n->workers)
        workers_describe(n->workers, self);
}

void node_refresh_self(struct node *n)
{
    struct member *self = members_self(n->members);
    uint64_t untaken;
    node_refresh_doings(n);
    self->memory_available = SIM_MEMORY - workers_promised(n->workers, &untaken);
}

/* Nobody drains a node here. */
void node_drain(struct node *n, const uint8_t by[16], const char *reason)
{
    (void)n, (void)by, (void)reason;
}

void node_left_job(struct node *n)
{
    (void)n;
}

static void arm_ring_timer(struct node *n, struct instant settled)
{
    const struct instant now = clock_now(), due = members_due(n->members);
    const uint64_t us = settled.us < due.us ? settled.us : due.us;
    if (us == UINT64_MAX)
        timer_stop(n->ring_timer);
    else
        timer_set_us(n->ring_timer, us > now.us ? us - now.us : 0);
}

static void on_ring_timer(void *owner)
{
    struct node *n = owner;
    members_expire(n->members, clock_now());
    node_changed(n);
}

static void on_soon(void *owner)
{
    node_changed(owner);
}

void node_changed_soon(struct node *n)
{
    if (!timer_is_pending(n->soon))
        timer_set_us(n->soon, SOON_US);
}

void node_changed(struct node *n)
{
    arm_ring_timer(n, members_settle(n->members, clock_now()));
    if (n->workers)
        workers_changed(n->workers);
    if (n->coord)
        coord_changed(n->coord);
    if (n->deputy)
        deputy_changed(n->deputy);
    if (n->cost_query)
        cost_query_changed(n->cost_query);
}

/* --- a life ----------------------------------------------------------------------------------- */

static void open_members(struct sim_node *s)
{
    struct node *n = &s->node;
    struct member self = {
        .seq = 1, .cores = 1, .threads = 1, .memory_total = SIM_MEMORY, .memory_available = SIM_MEMORY};
    const uint64_t wall_us = (uint64_t)((int64_t)sim->now_us + s->wall_us + INT64_C(1700000000) * SIM_S);
    s->boot = s->boot >= wall_us ? s->boot + 1 : wall_us;
    self.boot = s->boot;
    memcpy(self.id, sim->roster.at[s->number].id, 16);
    snprintf(self.name, sizeof self.name, "%s", sim->roster.at[s->number].name);
    snprintf(self.version, sizeof self.version, "1");
    n->members = members_new(&self);
    members_set_patience(n->members, RECORD_LIVES * (uint64_t)opts_int(sim->opts, "dead-after") * SIM_S);
}

void sim_daemon_start(struct sim_node *s)
{
    struct node *n = &s->node;
    struct sim_node *here = sim->here;
    if (s->is_on)
        return;
    sim->here = s;
    s->is_on = s->is_powered = true;
    s->life++;
    sim_trace("ringd starts");
    *n = (struct node){.opts = sim->opts,
                       .base = (struct event_base *)s,
                       .threads = 1,
                       .cluster = (struct cluster *)s,
                       .peers = (struct peers *)s,
                       .relay = (struct relay *)s,
                       .store = s->disk,
                       .state_dir = "/a folder that is not there",
                       .aside = (struct aside *)s};
    n->ring_timer = timer_new(n->base, on_ring_timer, n);
    n->soon = timer_new(n->base, on_soon, n);
    open_members(s);
    n->events = event_log_new(4, SIZE_MAX);
    n->metrics = metrics_new();
    sim_disk_start(s->disk);
    node_open_job(n);
    sim_beat_start(s);
    node_changed(n);
    sim_net_changed();
    sim->here = here;
}

void sim_daemon_kill(struct sim_node *s, bool closes)
{
    struct node *n = &s->node;
    struct sim_node *here = sim->here;
    if (!s->is_on)
        return;
    sim->here = s;
    sim_trace(closes ? "ringd is killed" : "the node loses its power");
    if (metrics_counts(n->metrics)->messages_dropped)
        sim_wrong("%s dropped a message of another daemon", sim->roster.at[s->number].name);
    s->is_on = false;
    s->is_powered = closes;
    s->machine += !closes;
    sim_net_stop(s, closes);
    sim_data_stop(s);
    sim_memory_lose(s);
    workers_free(n->workers);
    plan_request_free(n->plan_request);
    cost_server_free(n->cost_server);
    cost_query_free(n->cost_query);
    deputy_stop(n->deputy);
    coord_free(n->coord);
    loan_store_free(n->loan_store);
    sim_disk_close(n->store);
    loan_book_free(n->loans);
    deputy_free(n->deputy);
    parts_free(n->parts);
    ballots_free(n->ballots);
    sim_aside_stop(s);
    metrics_free(n->metrics);
    event_log_free(n->events);
    members_free(n->members);
    timer_free(n->ring_timer);
    timer_free(n->soon);
    sim_cancel(&s->beat);
    sim_disk_crash(s->disk);
    for (size_t i = 0; i < SIM_NODES; i++) {
        sim_record_drop(s->known[i]);
        s->known[i] = NULL;
    }
    *n = (struct node){.opts = NULL};
    sim->here = here;
}

/* --- the cluster, the log --------------------------------------------------------------------- */

const struct roster *cluster_roster(const struct cluster *c)
{
    (void)c;
    return &sim->roster;
}

bool cluster_has_removed(const struct cluster *c, const uint8_t id[static CERT_ID])
{
    (void)c, (void)id;
    return false;
}

static void trace_line(const char *about, const char *fmt, va_list ap)
{
    printf("%12.6f %-3s %s", (double)sim->now_us / SIM_S,
           sim->here ? sim->roster.at[sim->here->number].name : "", about);
    vprintf(fmt, ap);
    putchar('\n');
}

void sim_trace(const char *fmt, ...)
{
    va_list ap;
    if (!sim->is_traced)
        return;
    va_start(ap, fmt);
    trace_line("", fmt, ap);
    va_end(ap);
}

void log_line(enum log_level level, const char *fmt, ...)
{
    va_list ap;
    (void)level;
    if (!sim->is_traced)
        return;
    va_start(ap, fmt);
    trace_line("- ", fmt, ap);
    va_end(ap);
}

void log_about(enum log_level level, const struct log_about *about, const char *fmt, ...)
{
    char text[40];
    va_list ap;
    (void)level;
    if (!sim->is_traced)
        return;
    snprintf(text, sizeof text, "- job %llu: ", (unsigned long long)about->job);
    va_start(ap, fmt);
    trace_line(about->job ? text : "- ", fmt, ap);
    va_end(ap);
}

uint64_t log_dropped(void)
{
    return 0;
}

void log_set_level(const char *name)
{
    (void)name;
}

/* --- what is no part of this world ------------------------------------------------------------ */

char *__wrap_cgroup_find_room(void);
char *__wrap_cgroup_find_room(void)
{
    return NULL;
}

/* Disks have no copies: those in memory are in copies.c. */
int __wrap_held_disk_open(struct held_disk **ret, const struct held_disk_setup *setup, size_t *ret_removed,
                          struct err *err);
int __wrap_held_disk_open(struct held_disk **ret, const struct held_disk_setup *setup, size_t *ret_removed,
                          struct err *err)
{
    (void)ret, (void)setup, (void)ret_removed;
    return err_set(err, -ENOTSUP, "no disk");
}

/* Tokens are in no history. */
uint64_t __real_event_log_publish(struct event_log *log, uint64_t job, const char *type, const char *json);
uint64_t __wrap_event_log_publish(struct event_log *log, uint64_t job, const char *type, const char *json);
uint64_t __wrap_event_log_publish(struct event_log *log, uint64_t job, const char *type, const char *json)
{
    if (!strcmp(type, "token"))
        sim_check_said(sim->here, job, type, json);
    return __real_event_log_publish(log, job, type, json);
}

/* No job serves here. */
void elsewhere_add_rows(struct elsewhere *e, json_t *list)
{
    (void)e, (void)list;
}

const struct member *elsewhere_node(const struct elsewhere *e, const char *name)
{
    (void)e, (void)name;
    return NULL;
}

void elsewhere_published(struct elsewhere *e, uint64_t job, const char *type)
{
    (void)e, (void)job, (void)type;
}

/* No client comes here. */
void node_take_keys(struct node *n, const uint8_t from[16], const json_t *keys)
{
    (void)n, (void)from, (void)keys;
}

void doctor_yield(struct doctor *d)
{
    (void)d;
}

double service_lateness(const struct service *s)
{
    (void)s;
    return 0;
}

void api_reply(struct http_call *call, int status, json_t *json)
{
    (void)call, (void)status;
    json_decref(json);
}

void http_fail(struct http_call *call, int status, const char *code, const char *fmt, ...)
{
    (void)call, (void)status, (void)code, (void)fmt;
}

/* The kernel's number of this life of the machine is all that daemons open here. */
FILE *__real_fopen(const char *path, const char *mode);
FILE *__wrap_fopen(const char *path, const char *mode);
FILE *__wrap_fopen(const char *path, const char *mode)
{
    static char text[40];
    if (!sim || !sim->here)
        return __real_fopen(path, mode);
    snprintf(text, sizeof text, "machine-%zu-%u\n", sim->here->number, sim->here->machine);
    return fmemopen(text, strlen(text), "r");
}

#define NOT_HERE(name, owner)                                                                                \
    void name(struct owner *o, const uint8_t from[16], const json_t *body)                                   \
    {                                                                                                        \
        (void)o, (void)from, (void)body;                                                                     \
        sim_wrong("%s was called", #name);                                                                   \
    }
NOT_HERE(enrol_take_tokens, enrol)
NOT_HERE(enrol_take_join_ask, enrol)
NOT_HERE(doctor_take_ask, doctor)
NOT_HERE(doctor_take_facts, doctor)
NOT_HERE(doctor_take_reading, doctor)
NOT_HERE(elsewhere_take_jobs_ask, elsewhere)
NOT_HERE(elsewhere_take_jobs_told, elsewhere)
NOT_HERE(elsewhere_take_api_ask, elsewhere)
NOT_HERE(elsewhere_take_api_more, elsewhere)
NOT_HERE(elsewhere_take_api_told, elsewhere)
NOT_HERE(relay_take_open, relay)
NOT_HERE(relay_take_ready, relay)
NOT_HERE(relay_take_refused, relay)

void enrol_take_join_answer(struct enrol *e, const json_t *body)
{
    (void)e, (void)body;
    sim_wrong("enrol_take_join_answer was called");
}
