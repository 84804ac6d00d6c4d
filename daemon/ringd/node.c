/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/node.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <signal.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "daemon/ringd/api/api.h"
#include "daemon/ringd/peer/cables.h"
#include "daemon/ringd/cluster/cluster.h"
#include "daemon/common/conf.h"
#include "daemon/ringd/hub/supply.h"
#include "daemon/ringd/job/coord.h"
#include "daemon/common/cores.h"
#include "daemon/ringd/doctor/doctor_ask.h"
#include "daemon/ringd/api/elsewhere.h"
#include "daemon/ringd/cluster/enrol.h"
#include "daemon/ringd/http/http_server.h"
#include "daemon/ringd/aside.h"
#include "daemon/ringd/job/plan/cost_server.h"
#include "daemon/ringd/job/deputy/ballots.h"
#include "daemon/ringd/job/deputy/deputy.h"
#include "daemon/ringd/job/deputy/parts.h"
#include "daemon/ringd/event_log.h"
#include "daemon/ringd/api/intake.h"
#include "daemon/ringd/cluster/identity.h"
#include "daemon/ringd/cluster/keys.h"
#include "daemon/ringd/cluster/keys_process.h"
#include "daemon/ringd/ledger.h"
#include "daemon/ringd/api/loan_desk.h"
#include "daemon/ringd/job/loan.h"
#include "daemon/ringd/job/survive/loan_store.h"
#include "daemon/ringd/log.h"
#include "daemon/ringd/mailbox.h"
#include "daemon/ringd/node_impl.h"
#include "daemon/ringd/peer/measure.h"
#include "daemon/ringd/api/metrics_text.h"
#include "daemon/ringd/store/metrics.h"
#include "daemon/ringd/peer/peers.h"
#include "daemon/ringd/job/plan/plan_request.h"
#include "daemon/ringd/job/spawn.h"
#include "daemon/ringd/job/survive/held_disk.h"
#include "daemon/ringd/cluster/record.h"
#include "daemon/ringd/peer/relay.h"
#include "daemon/ringd/service.h"
#include "daemon/ringd/serve/desk.h"
#include "daemon/ringd/store/store.h"
#include "daemon/ringd/job/plan/cost_query.h"
#include "daemon/ringd/job/workers.h"
#include "daemon/common/xalloc.h"
#include "daemon/ringd/timer.h"
#include "engine/num/kernels.h"

/* Finding the ring of many nodes with many cables takes a while: of each second this much at most,
 * and nobody waits longer. */
enum { PATIENCE = 4, SOON_MOST_US = 200000 };
enum { EVENTS_KEPT = 2048, EVENTS_BYTES = 128 << 10 };
enum {
    RECORD_LIVES = 3
}; /* × --dead-after: a record on its way round a ring may have been held up at every hop */

/* --- our own record --------------------------------------------------------------------------- */

/* Asked often, so no more is read than the first lines, which hold both. In bytes; 0: not known. */
static void read_memory(uint64_t *ret_total, uint64_t *ret_available)
{
    char text[512];
    unsigned long long total = 0, available = 0;
    int fd = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = '\0';
    const char *a = strstr(text, "MemTotal:"), *b = strstr(text, "MemAvailable:");
    if (!a || sscanf(a, "MemTotal: %llu", &total) != 1 || !b ||
        sscanf(b, "MemAvailable: %llu", &available) != 1)
        total = available = 0;
    *ret_total = (uint64_t)total * 1024;
    *ret_available = (uint64_t)available * 1024;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

void node_refresh_self(struct node *n)
{
    struct member *self = members_self(n->members);
    uint64_t limit = n->memory_limit ? n->memory_limit : UINT64_MAX, total, available;
    read_memory(&total, &available);
    /* What a stage maps of files is free to the kernel, and the stage's own all the same. */
    uint64_t untaken = 0;
    const uint64_t lost = n->spawner ? spawner_lingering(n->spawner) : 0,
                   promised = n->workers ? workers_promised(n->workers, &untaken) : 0;
    self->memory_total = smaller(total, limit);
    self->memory_available = smaller(less(available, untaken), less(limit, lost + promised));
    node_refresh_doings(n);
}

void node_refresh_doings(struct node *n)
{
    struct member *self = members_self(n->members);
    self->heard = clock_now();
    self->jobs = elsewhere_version(n->elsewhere);
    cables_describe(n->cables, self);
    if (n->workers)
        workers_describe(n->workers, self);
}

void node_publish(struct node *n)
{
    char text[1500];
    members_describe(n->members, text, sizeof text);
    json_t *event = json_pack("{s:s}", "text", text);
    char *json = event ? json_dumps(event, JSON_COMPACT) : NULL;
    if (json)
        event_log_publish(n->events, 0, "node", json);
    free(json);
    json_decref(event);
}

/* When nothing but the time has to pass: a better ring has been better for long enough, or a node
 * silent for too long. */
static void arm_ring_timer(struct node *n, struct instant settled)
{
    struct instant now = clock_now(), due = members_due(n->members);
    if (settled.us < due.us)
        due = settled;
    if (due.us == UINT64_MAX) {
        timer_stop(n->ring_timer);
        return;
    }
    uint64_t us = due.us > now.us ? due.us - now.us : 0;
    timer_set_us(n->ring_timer, us);
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
    uint64_t us = n->change_us * PATIENCE < SOON_MOST_US ? n->change_us * PATIENCE : SOON_MOST_US;
    if (!timer_is_pending(n->soon))
        timer_set_us(n->soon, us);
}

void node_changed(struct node *n)
{
    char text[1500];
    const struct instant begin = clock_now();
    arm_ring_timer(n, members_settle(n->members, clock_now()));
    members_describe(n->members, text, sizeof text);
    if (strcmp(text, n->ring_text)) {
        snprintf(n->ring_text, sizeof n->ring_text, "%s", text);
        log_info("%s", text);
        node_publish(n);
        enrol_share(n->enrol); /* whoever came or came back may be asked by a joiner, */
        node_share_keys(n);    /* or by a client with a key */
    }
    if (n->relay)
        relay_changed(n->relay);
    if (n->workers)
        workers_changed(n->workers);
    if (n->supply)
        supply_paths_changed(n->supply);
    if (n->coord)
        coord_changed(n->coord);
    if (n->deputy)
        deputy_changed(n->deputy);
    elsewhere_changed(n->elsewhere);
    if (n->cost_query)
        cost_query_changed(n->cost_query);
    if (n->service)
        service_status(n->service);
    n->change_us = clock_since_us(clock_now(), begin);
}

/* A member is called what its certificate says: that is what the others check. */
static void choose_name(struct node *n)
{
    const struct cert *cert = cluster_cert(n->cluster);
    bool member = cluster_state(n->cluster) == CLUSTER_MEMBER;
    snprintf(n->name, sizeof n->name, "%s", member ? cert->name : opts_str(n->opts, "name"));
}

void node_membership_changed(struct node *n)
{
    struct member *self = members_self(n->members);
    char before[sizeof n->name];
    memcpy(before, n->name, sizeof before);
    choose_name(n);
    memcpy(self->name, n->name, sizeof self->name);
    bool renamed = strcmp(before, n->name);
    if (renamed)
        log_info("%s is called %s in cluster %s", before, n->name, cluster_roster(n->cluster)->name);
    if (cluster_state(n->cluster) == CLUSTER_REMOVED)
        log_warning("%s was removed from cluster %s; `ringctl join` with a new token lets it in again",
                    n->name, cluster_roster(n->cluster)->name);
    cables_keys_changed(n->cables);
    peers_membership_changed(n->peers);
    if (renamed)
        peers_flood_self(n->peers);
    node_changed(n);
}

/* --- opening, top down ------------------------------------------------------------------------ */

/* First of all, while there is nothing else that it could inherit. */
static int open_identity(struct node *n, struct err *err)
{
    snprintf(n->state_dir, sizeof n->state_dir, "%s", opts_str(n->opts, "state-dir"));
    if (mkdir(n->state_dir, 0700) && errno != EEXIST)
        return err_set(err, -errno, "--state-dir %s cannot be created: %s", n->state_dir, strerror(errno));
    int r = keys_process_start(&n->keys_process, opts_str(n->opts, "keys-binary"), n->state_dir, err);
    if (!r)
        r = keys_open(&n->keys, &(struct keys_setup){keys_process_ask, n->keys_process}, err);
    if (!r)
        r = cluster_open(&n->cluster, n->state_dir, n->keys, err);
    if (!r)
        n->memory_limit = conf_size(n->opts, "memory-limit", err);
    return r;
}

static void apply_patience(struct node *n)
{
    members_set_patience(n->members, RECORD_LIVES * (uint64_t)opts_int(n->opts, "dead-after") * 1000000);
}

static void open_members(struct node *n)
{
    struct member self = {.seq = 1};
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    struct timespec now;
    struct err err;
    clock_gettime(CLOCK_REALTIME, &now);
    auth_node_id(self.id, keys_identity(n->keys)->pub);
    choose_name(n);
    memcpy(self.name, n->name, sizeof self.name);
    snprintf(self.version, sizeof self.version, "%s", RINGD_VERSION);
    if (identity_boot(&self.boot, n->state_dir, (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000,
                      &err))
        log_warning("%s", err.text);
    n->threads = (int)cores_threads((unsigned)opts_int(n->opts, "threads"));
    snprintf(self.kernels, sizeof self.kernels, "%s", isa_rounding());
    self.cores = cores > 0 ? (unsigned)cores : 1;
    self.threads = n->threads ? (unsigned)n->threads : self.cores;
    if (opts_str(n->opts, "ring"))
        snprintf(self.ring, sizeof self.ring, "%s", opts_str(n->opts, "ring"));
    n->members = members_new(&self);
    n->records = records_new(keys_identity(n->keys), n->members);
    apply_patience(n);
    node_refresh_self(n);
}

static void on_signal(evutil_socket_t fd, short what, void *arg)
{
    struct node *n = arg;
    (void)fd;
    (void)what;
    node_end(n);
}

static void on_hangup(evutil_socket_t fd, short what, void *arg)
{
    struct node *n = arg;
    struct err err;
    json_t *done;
    (void)fd;
    (void)what;
    if (!service_reload(n->service, &done, &err)) /* else it has been said in the log */
        json_decref(done);
}

/* Without its keys a node can do nothing more: whoever starts it again starts both. */
static void on_keys_lost(void *owner, const char *why)
{
    struct node *n = owner;
    log_error("%s", why);
    n->is_lost = true;
    service_stopping(n->service);
    event_base_loopbreak(n->base);
}

static struct instant beat(void *owner)
{
    const struct node *n = owner;
    return peers_beat(n->peers);
}

static void on_sample(void *owner, double seconds, int64_t now, json_t *rows)
{
    struct metrics_sources from;
    node_refresh_self(owner);
    node_metrics_sources(owner, &from);
    metrics_sample(&from, seconds, now, rows);
}

static int reload_token(void *owner, const struct opts *fresh, struct err *err)
{
    return node_reload_token(owner, fresh, err);
}

static void on_options_applied(void *owner)
{
    struct node *n = owner;
    struct member *self = members_self(n->members);
    struct err err;
    n->threads = (int)cores_threads((unsigned)opts_int(n->opts, "threads"));
    n->memory_limit = conf_size(n->opts, "memory-limit", &err);
    store_set_limit(n->store, conf_size(n->opts, "history-limit", &err));
    self->threads = n->threads ? (unsigned)n->threads : self->cores;
    const char *ring = opts_str(n->opts, "ring");
    snprintf(self->ring, sizeof self->ring, "%s", ring ? ring : "");
    apply_patience(n);
    peers_flood_self(n->peers);
    node_changed(n);
    node_publish(n);
}

static void open_service(struct node *n)
{
    n->service = service_new(&(struct service_setup){.base = n->base,
                                                     .opts = n->opts,
                                                     .argc = n->argc,
                                                     .argv = n->argv,
                                                     .members = n->members,
                                                     .store = n->store,
                                                     .coord = n->coord,
                                                     .workers = n->workers,
                                                     .owner = n,
                                                     .beat = beat,
                                                     .sample = on_sample,
                                                     .reload_token = reload_token,
                                                     .applied = on_options_applied});
}

static int open_rest(struct node *n, struct err *err)
{
    char note[256];
    int r = mailbox_new(&n->mailbox, n->base);
    if (r)
        return err_set(err, r, "the loop's mailbox: %s", strerror(-r));
    r = cluster_start_writing(n->cluster, n->base, n->mailbox, 0);
    if (r)
        return err_set(err, r, "the thread that writes %s/cluster cannot start: %s", n->state_dir,
                       strerror(-r));
    n->aside = aside_new(n->mailbox);
    n->ledger = ledger_new();
    n->events = event_log_new(EVENTS_KEPT, EVENTS_BYTES);
    event_log_register(n->events, n->ledger);
    r = store_open(&n->store, n->state_dir, n->mailbox, n->ledger, note, err);
    if (r)
        return r;
    if (*note)
        log_warning("%s", note);
    uint64_t limit = conf_size(n->opts, "history-limit", err);
    store_set_limit(n->store, limit);
    n->metrics = metrics_new();
    node_open_enrol(n);
    node_open_measure(n);
    node_open_relay(n);
    r = node_open_peers(n, err);
    if (r)
        return r;
    node_open_hub(n);
    node_open_job(n);
    open_service(n);
    r = node_open_http(n, err);
    r = r ? r : node_open_cables(n, err);
    if (!r)
        node_open_api(n);
    return r;
}

/* The coarse clock that libevent uses by default is up to 4 ms behind: a timer then wakes the loop
 * up to three times before it is due. */
static struct event_base *new_base(void)
{
    struct event_config *config = event_config_new();
    struct event_base *base = NULL;
    if (config && !event_config_set_flag(config, EVENT_BASE_FLAG_PRECISE_TIMER))
        base = event_base_new_with_config(config);
    if (config)
        event_config_free(config);
    return base;
}

int node_open(struct node **ret, struct opts *opts, int argc, char **argv, struct err *err)
{
    struct node *n = xcalloc(1, sizeof *n);
    n->opts = opts;
    n->argc = argc;
    n->argv = argv;
    int r = sodium_init() < 0 ? err_set(err, -EIO, "libsodium cannot start") : open_identity(n, err);
    if (!r && !(n->base = new_base()))
        r = err_set(err, -ENOMEM, "the event loop cannot start");
    if (!r) {
        n->ring_timer = timer_new(n->base, on_ring_timer, n);
        n->soon = timer_new(n->base, on_soon, n);
        open_members(n);
        r = open_rest(n, err);
    }
    if (r) {
        node_close(n);
        return r;
    }
    keys_process_watch(n->keys_process, n->base, on_keys_lost, n);
    n->sigterm = evsignal_new(n->base, SIGTERM, on_signal, n);
    n->sigint = evsignal_new(n->base, SIGINT, on_signal, n);
    event_add(n->sigterm, NULL);
    event_add(n->sigint, NULL);
    n->sighup = evsignal_new(n->base, SIGHUP, on_hangup, n);
    event_add(n->sighup, NULL);
    *ret = n;
    return 0;
}

int node_run(struct node *n)
{
    node_changed(n);
    log_info("%s: peers on port %u, API on %s", n->name, peers_port(n->peers), opts_str(n->opts, "socket"));
    service_ready(n->service);
    int r = n->is_lost ? 0 : event_base_dispatch(n->base);
    return n->is_lost ? -EPIPE : r < 0 ? -EIO : 0;
}

/* --- closing, bottom up ----------------------------------------------------------------------- */

void node_close(struct node *n)
{
    if (!n)
        return;
    deputy_stop(n->deputy);
    desk_free(n->desk);
    n->desk = NULL;
    elsewhere_stop(n->elsewhere);
    if (n->coord)
        coord_end_streams(n->coord);
    http_stop(n->http);
    cables_close(n->cables);
    n->cables = NULL; /* our record is still asked for */
    peers_close(n->peers);
    measure_free(n->measure);
    enrol_free(n->enrol);
    workers_free(n->workers);
    relay_free(n->relay);
    service_free(n->service);
    api_stop(n->api);
    intake_free(n->intake);
    loan_desk_free(n->loan_desk);
    plan_request_free(n->plan_request);
    cost_server_free(n->cost_server);
    cost_query_free(n->cost_query);
    coord_free(n->coord);
    doctor_free(n->doctor);
    held_disk_free(n->held_disk);
    supply_free(n->supply);
    spawner_free(n->spawner);
    loan_store_free(n->loan_store);
    loan_book_free(n->loans);
    store_close(n->store);
    deputy_free(n->deputy);
    parts_free(n->parts);
    ballots_free(n->ballots);
    aside_free(n->aside);
    if (n->cluster)
        cluster_stop_writing(n->cluster);
    api_free(n->api);
    elsewhere_free(n->elsewhere);
    metrics_free(n->metrics);
    event_log_free(n->events);
    ledger_free(n->ledger);
    mailbox_free(n->mailbox);
    records_free(n->records);
    members_free(n->members);
    timer_free(n->ring_timer);
    timer_free(n->soon);
    timer_free(n->leaving);
    if (n->sigterm)
        event_free(n->sigterm);
    if (n->sigint)
        event_free(n->sigint);
    if (n->sighup)
        event_free(n->sighup);
    if (n->base)
        event_base_free(n->base);
    cluster_close(n->cluster);
    keys_close(n->keys);
    keys_process_close(n->keys_process);
    free(n);
}
