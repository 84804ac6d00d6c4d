/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/api/metrics_text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ringd/api/metrics_served.h"
#include "daemon/ringd/api/metrics_write.h"
#include "daemon/ringd/cluster/members.h"
#include "daemon/ringd/job/coord.h"
#include "daemon/ringd/job/job.h"
#include "daemon/ringd/job/workers.h"
#include "daemon/ringd/ledger.h"
#include "daemon/ringd/log.h"
#include "daemon/ringd/peer/peers.h"
#include "daemon/ringd/store/metrics.h"
#include "daemon/ringd/store/store.h"

static const double bucket_ends[METRICS_BUCKETS] = METRICS_BUCKET_ENDS;
static const char *const end_states[METRICS_END_STATES] = METRICS_END_NAMES;

static void single(FILE *to, const char *name, const char *type, const char *help, double value)
{
    metrics_describe(to, name, type, help);
    fprintf(to, "ringd_%s %.17g\n", name, value);
}

static void write_node(FILE *to, const struct metrics_sources *n)
{
    struct members_ring ring;
    const struct member *self = members_self(n->members);
    size_t reachable = 0;
    members_ring(n->members, NULL, &ring);
    for (size_t i = 0; i < members_count(n->members); i++)
        reachable += members_reachable(n->members, members_at(n->members, i)->id);
    metrics_describe(to, "build_info", "gauge", "The version, as a label.");
    fprintf(to, "ringd_build_info{version=\"%s\"} 1\n", RINGD_VERSION);
    single(to, "start_time_seconds", "gauge", "When the daemon started, since 1970.",
           (double)self->boot / 1e6);
    single(to, "ring_nodes", "gauge", "Nodes in the ring, this one included.", (double)ring.n);
    single(to, "ring_closed", "gauge",
           "1 if the ring is closed, or this node is alone; a chain can work too.",
           ring.shape == RING_CLOSED || ring.shape == RING_ALONE);
    single(to, "nodes_reachable", "gauge", "Nodes that can be reached, this one included.",
           (double)reachable);
    single(to, "nodes_known", "gauge", "Nodes known, reachable or not.", (double)members_count(n->members));
    single(to, "memory_total_bytes", "gauge", "Memory of this machine, or what --memory-limit leaves of it.",
           (double)self->memory_total);
    single(to, "memory_available_bytes", "gauge", "Memory that is free for a stage.",
           (double)self->memory_available);
    single(to, "loop_lateness_seconds", "gauge",
           "The longest the event loop was late within the last minute.", n->lateness);
    single(to, "log_dropped_total", "counter", "Lines of the log that nobody read in time.",
           (double)log_dropped());
    single(to, "history_failing", "gauge", "1 while the job history cannot be written.",
           store_trouble(n->store) != NULL);
}

static bool is_in_hand(const struct job *job)
{
    return job->state != JOB_QUEUED && !job_phase(job->state)->is_aside && !job_state_ended(job->state);
}

static double step_of(const struct job *job)
{
    return (double)job->step;
}

static double steps_of(const struct job *job)
{
    return (double)job->steps;
}

static double loss_of(const struct job *job)
{
    return job->has_loss ? job->loss : (double)NAN;
}

/* Of each that has left the queue; what is no number yet is left out. */
static void write_each(FILE *to, const struct metrics_sources *n, const char *name, const char *help,
                       double (*of)(const struct job *job))
{
    bool is_described = false;
    for (const struct job *job = coord_first(n->coord); job; job = job->next) {
        const double value = is_in_hand(job) ? of(job) : (double)NAN;
        if (isnan(value))
            continue;
        if (!is_described)
            metrics_describe(to, name, "gauge", help);
        is_described = true;
        fprintf(to, "ringd_%s{job=\"%llu\"} %.17g\n", name, (unsigned long long)job->id, value);
    }
}

static void write_progress(FILE *to, const struct metrics_sources *n)
{
    write_each(to, n, "job_step", "Steps a job that runs has made.", step_of);
    write_each(to, n, "job_steps", "Steps a job that runs will have made in the end.", steps_of);
    write_each(to, n, "job_loss", "Loss of a running job's last step.", loss_of);
}

static void write_jobs(FILE *to, const struct metrics_sources *n)
{
    const struct metrics_counts *m = metrics_counts(n->metrics);
    size_t queued = 0, running = 0, paused = 0;
    for (const struct job *job = coord_first(n->coord); job; job = job->next) {
        queued += job->state == JOB_QUEUED;
        paused += job->state == JOB_PAUSED;
        running += is_in_hand(job);
    }
    metrics_describe(to, "jobs", "gauge", "Jobs submitted here and not ended.");
    fprintf(to,
            "ringd_jobs{state=\"queued\"} %zu\nringd_jobs{state=\"running\"} %zu\n"
            "ringd_jobs{state=\"paused\"} %zu\n",
            queued, running, paused);
    metrics_describe(to, "jobs_ended_total", "counter",
                     "Jobs submitted here that have ended since the start.");
    for (size_t i = 0; i < METRICS_END_STATES; i++)
        fprintf(to, "ringd_jobs_ended_total{state=\"%s\"} %llu\n", end_states[i],
                (unsigned long long)m->ended[i]);
    single(to, "trained_tokens_total", "counter", "Tokens of all training steps.", (double)m->tokens);
    single(to, "generated_tokens_total", "counter", "Tokens generated.", (double)m->generated);
    single(to, "bubble_ratio", "gauge", "Share of the last training step in which nodes did not compute.",
           m->bubble);
    metrics_describe(to, "step_seconds", "histogram", "Length of training steps.");
    uint64_t sum = 0;
    for (size_t i = 0; i < METRICS_BUCKETS; i++) {
        sum += m->bucket[i];
        fprintf(to, "ringd_step_seconds_bucket{le=\"%g\"} %llu\n", bucket_ends[i], (unsigned long long)sum);
    }
    fprintf(to,
            "ringd_step_seconds_bucket{le=\"+Inf\"} %llu\nringd_step_seconds_sum "
            "%.17g\nringd_step_seconds_count %llu\n",
            (unsigned long long)m->steps, m->step_seconds, (unsigned long long)m->steps);
    write_progress(to, n);
}

static void write_stage(FILE *to, const struct metrics_sources *n)
{
    struct worker_totals t;
    workers_totals(n->workers, &t);
    single(to, "stages_running", "gauge", "Stages that this node holds.", (double)t.running);
    single(to, "stage_busy_seconds_total", "counter", "Seconds stages of this node computed.",
           t.busy_seconds);
    single(to, "stage_wait_seconds_total", "counter",
           "Seconds stages of this node stood still within a round.", t.wait_seconds);
    single(to, "stage_tx_bytes_total", "counter", "Bytes stages of this node sent to others.",
           (double)t.tx_bytes);
    single(to, "stage_rx_bytes_total", "counter", "Bytes stages of this node received from others.",
           (double)t.rx_bytes);
    single(to, "stage_memory_bytes", "gauge",
           "Memory of the stages, with the mapped files of the model, and of killed stages that do not end.",
           (double)t.memory_bytes);
    single(to, "stage_planned_memory_bytes", "gauge", "Memory that plans foresee for the stages.",
           (double)t.planned_bytes);
}

static void write_requests(FILE *to, const struct metrics_counts *m)
{
    metrics_describe(to, "http_requests_total", "counter",
                     "Requests answered, by route and class of status.");
    for (size_t i = 0; i < METRICS_ROUTES && m->requests[i].route; i++)
        for (unsigned class = 0; class < METRICS_CLASSES; class ++) {
            if (!m->requests[i].count[class])
                continue;
            fputs("ringd_http_requests_total{", to);
            metrics_label(to, "route", m->requests[i].route);
            fprintf(to, ",code=\"%uxx\"} %llu\n", class, (unsigned long long)m->requests[i].count[class]);
        }
}

/* What may grow by what others do, and how far. */
static void write_queues(FILE *to, const struct ledger *ledger)
{
    metrics_describe(to, "queue_bytes", "gauge", "Bytes that wait in a queue whose length others decide.");
    for (const struct ledger_queue *q = ledger_first(ledger); q; q = q->next)
        fprintf(to, "ringd_queue_bytes{name=\"%s\"} %zu\n", q->name, atomic_load(&q->bytes));
    metrics_describe(to, "queue_cap_bytes", "gauge", "Bytes that this queue may hold.");
    for (const struct ledger_queue *q = ledger_first(ledger); q; q = q->next)
        fprintf(to, "ringd_queue_cap_bytes{name=\"%s\"} %zu\n", q->name, q->cap);
    metrics_describe(to, "queue_refused_total", "counter",
                     "How often something did not fit into this queue.");
    for (const struct ledger_queue *q = ledger_first(ledger); q; q = q->next)
        fprintf(to, "ringd_queue_refused_total{name=\"%s\"} %llu\n", q->name,
                (unsigned long long)atomic_load(&q->refused));
}

/* --- links ------------------------------------------------------------------------------------ */

static const char *text_of(const json_t *link, const char *key)
{
    const char *text = json_string_value(json_object_get(link, key));
    return text ? text : "";
}

/* A link has one name in all its series: whom it leads to, over which port and cable. False:
 * another of that name came first. */
static bool link_name(const json_t *link, json_t *seen, char *buf, size_t size)
{
    snprintf(buf, size, "%s\n%s\n%s", text_of(link, "peer"), text_of(link, "port"), text_of(link, "cable"));
    return !json_object_get(seen, buf) && !json_object_set_new(seen, buf, json_true());
}

struct link_metric {
    const char *name, *type, *help, *key;
    double scale;
};

static const struct link_metric link_metrics[] = {
    {"link_tx_bytes_total", "counter", "Bytes sent on the control connection.", "tx_bytes", 1},
    {"link_rx_bytes_total", "counter", "Bytes received on the control connection.", "rx_bytes", 1},
    {"link_retransmits_total", "counter", "Segments the kernel sent again on the control connection.",
     "retransmits", 1},
    {"link_rtt_seconds", "gauge", "Round trip of the last heartbeat.", "rtt_ms", 1e-3},
    {"link_up_seconds", "gauge", "For how long the connection has stood.", "up_seconds", 1},
    {"link_key_seconds", "gauge", "Age of the keys of the control connection.", "key_seconds", 1},
    {"link_measured_tx_bytes_per_second", "gauge",
     "What the cable was measured to carry from here, 0 = not yet.", "tx_mbps", 125e3},
    {"link_measured_rx_bytes_per_second", "gauge",
     "What the cable was measured to carry to here, 0 = not yet.", "rx_mbps", 125e3},
};

static const struct link_metric lane_metrics[] = {
    {"link_data_tx_bytes_total", "counter", "Bytes stages sent over the cable.", "data_tx_bytes", 1},
    {"link_data_rx_bytes_total", "counter", "Bytes stages received over the cable.", "data_rx_bytes", 1},
    {"link_data_retransmits_total", "counter", "Segments of data connections the kernel sent again.",
     "data_retransmits", 1},
    {"link_data_rtt_seconds", "gauge", "Smoothed round trip of the data connection, from the kernel.",
     "data_rtt_ms", 1e-3},
    {"link_data_key_seconds", "gauge", "Age of the oldest key that data sent over the cable is sealed with.",
     "data_key_seconds", 1},
};

static void write_link(FILE *to, const char *metric, const json_t *link, double value)
{
    fprintf(to, "ringd_%s{", metric);
    metrics_label(to, "peer", text_of(link, "peer"));
    fputc(',', to);
    metrics_label(to, "port", text_of(link, "port"));
    fputc(',', to);
    metrics_label(to, "cable", text_of(link, "cable"));
    fprintf(to, "} %.17g\n", value);
}

static void write_table(FILE *to, const json_t *links, const struct link_metric *metrics, size_t n)
{
    const json_t *link;
    char name[512];
    size_t i;
    json_t *seen = json_object();
    for (size_t k = 0; k < n; k++) {
        const struct link_metric *m = &metrics[k];
        json_object_clear(seen);
        metrics_describe(to, m->name, m->type, m->help);
        json_array_foreach (links, i, link) {
            const json_t *value = json_object_get(link, m->key);
            if (json_is_number(value) && link_name(link, seen, name, sizeof name))
                write_link(to, m->name, link, json_number_value(value) * m->scale);
        }
    }
    json_decref(seen);
}

static void write_links(FILE *to, const json_t *links, const json_t *lanes)
{
    const json_t *link;
    char name[512];
    size_t i;
    json_t *seen = json_object();
    metrics_describe(to, "link_up", "gauge",
                     "1 if the connection over that cable, or with that peer, stands.");
    json_array_foreach (links, i, link) {
        if (link_name(link, seen, name, sizeof name))
            write_link(to, "link_up", link, !strcmp(text_of(link, "state"), "up"));
    }
    json_decref(seen);
    write_table(to, links, link_metrics, sizeof link_metrics / sizeof *link_metrics);
    write_table(to, lanes, lane_metrics, sizeof lane_metrics / sizeof *lane_metrics);
}

char *metrics_text(const struct metrics_sources *n)
{
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    if (!to)
        return NULL;
    json_t *links = peers_encode(n->peers), *lanes = workers_lanes(n->workers);
    write_node(to, n);
    write_jobs(to, n);
    write_stage(to, n);
    write_links(to, links, lanes);
    write_requests(to, metrics_counts(n->metrics));
    metrics_describe(
        to, "messages_dropped_total", "counter",
        "Messages of other daemons that were dropped: their sender or one of their fields is not allowed.");
    fprintf(to, "ringd_messages_dropped_total %llu\n",
            (unsigned long long)metrics_counts(n->metrics)->messages_dropped);
    write_queues(to, n->ledger);
    metrics_write_served(to, n->desk, n->coord);
    json_decref(lanes);
    json_decref(links);
    if (!fclose(to))
        return text;
    free(text);
    return NULL;
}

/* --- series ----------------------------------------------------------------------------------- */

void metrics_sample(const struct metrics_sources *n, double seconds, int64_t now, json_t *rows)
{
    struct metrics *m = n->metrics;
    struct worker_totals t;
    const json_t *link;
    size_t i;
    workers_totals(n->workers, &t);
    const struct member *self = members_self(n->members);
    metrics_add(rows, "node/memory_used", now, (double)(self->memory_total - self->memory_available));
    metrics_add(rows, "node/stage_memory", now, (double)t.memory_bytes);
    metrics_add_rate(m, rows, "node/busy", now, seconds, t.busy_seconds);
    metrics_add_rate(m, rows, "node/wait", now, seconds, t.wait_seconds);
    metrics_add_rate(m, rows, "node/trained_tokens", now, seconds, (double)metrics_counts(m)->tokens);
    json_t *links = peers_encode(n->peers);
    json_array_foreach (links, i, link) {
        const char *port = text_of(link, "port");
        char name[256];
        if (strcmp(text_of(link, "state"), "up"))
            continue;
        int len = snprintf(name, sizeof name - 8, "cable/%s/%s", text_of(link, "peer"), *port ? port : "-");
        len = len < (int)sizeof name - 8 ? len : (int)sizeof name - 9;
        strcpy(name + len, "/tx");
        metrics_add_rate(m, rows, name, now, seconds, json_number_value(json_object_get(link, "tx_bytes")));
        strcpy(name + len, "/rx");
        metrics_add_rate(m, rows, name, now, seconds, json_number_value(json_object_get(link, "rx_bytes")));
        strcpy(name + len, "/rtt");
        metrics_add(rows, name, now, json_number_value(json_object_get(link, "rtt_ms")) / 1e3);
    }
    json_decref(links);
}
