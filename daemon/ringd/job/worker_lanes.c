/* SPDX-License-Identifier: MIT
 *
 * The data connections of a worker's job, to the ranks that its own talks to: those that this node
 * dials and those that it takes, and each goes to the stage as a lane. Called by worker.c and
 * by whoever accepts connections; loop thread. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/optable.h"
#include "daemon/ringd/job/lane_counts.h"
#include "daemon/ringd/log.h"
#include "daemon/ringd/peer/routes.h"
#include "daemon/ringd/peer/peers.h"
#include "daemon/ringd/job/spawn.h"
#include "daemon/ringd/job/worker_impl.h"
#include "daemon/ringd/timer.h"

enum { REFUSED_US = 3000000 };

static size_t next_rank(const struct worker *w)
{
    return (size_t)(w->rank + 1) % w->ranks;
}

static bool talks_to(const struct worker *w, size_t rank)
{
    return rank < w->ranks && (w->talks >> rank & 1) != 0;
}

static bool all_reached(const struct worker *w)
{
    for (size_t rank = 0; rank < w->ranks; rank++)
        if (talks_to(w, rank) && !w->alive[rank])
            return false;
    return true;
}

static void hand_over(struct worker *w, struct link *link, uint32_t rank, uint64_t path)
{
    struct ipc_lane lane;
    int fd;
    memset(&lane, 0, sizeof lane); /* its padding leaves this process */
    lane.path = path;
    lane.rank = rank;
    struct path_name name = {0};
    if (!peers_path_name(w->setup.peers, path, &name))
        snprintf(name.peer, sizeof name.peer, "%s", link_peer(link)->name);
    lane_counts_name(w->counts, path, &name);
    if (link_detach(link, &fd, &lane.tx, &lane.rx)) {
        link_free(link);
        return;
    }
    if (w->stage)
        worker_check_taken(w, spawn_send_lane(w->stage, &lane, fd));
    close(fd);
    seal_wipe(&lane.tx);
    seal_wipe(&lane.rx);
    bool was = all_reached(w);
    w->alive[rank]++;
    if (all_reached(w)) {
        timer_stop(w->patience);
        if (w->state == WORKER_READY && !was)
            worker_tell(w, "job-connected", json_object());
    }
}

static void on_lane_up(void *owner, struct link *link, uint32_t rank, uint64_t path)
{
    hand_over(owner, link, rank, path);
}

/* Before the job runs, a refusal may be the cause itself (another model, another width) or the echo
 * of a stage that has just failed over there: whoever knows better has a moment to say so. */
static void on_lane_refused(void *owner, uint32_t rank, const char *text)
{
    struct worker *w = owner;
    if (w->state != WORKER_READY || timer_is_pending(w->patience))
        return;
    snprintf(w->why_lost, sizeof w->why_lost, "no data connection to rank %u: %s", rank, text);
    worker_wait(w, REFUSED_US);
}

static bool keeps(const struct worker *w, uint64_t path)
{
    for (size_t rank = 0; rank < RING_MAX_NODES; rank++)
        if (w->lanes[rank] && !lanes_keeps(w->lanes[rank], path))
            return false;
    return true;
}

/* A path that is gone will carry nothing any more, though TCP may take minutes to believe it: the
 * stage lets go of its lanes there, and of a relayed one that a direct one has replaced; what they
 * had not delivered goes over the others. */
void worker_cut_lanes(struct worker *w)
{
    json_t *paths = json_array();
    uint64_t all[PATHS_MAX];
    size_t n = paths_all(w->setup.members, w->setup.peers, all);
    for (size_t i = 0; i < n; i++)
        if (keeps(w, all[i]))
            json_array_append_new(paths, json_integer((json_int_t)all[i]));
    worker_say(w, json_pack("{s:s s:o}", "do", "paths", "alive", paths));
}

static void on_relayed(void *owner, uint32_t rank, const char *through)
{
    struct worker *w = owner;
    worker_tell(w, "job-relayed", json_pack("{s:i s:s}", "to", (int)rank, "through", through ? through : ""));
    if (!through && w->state == WORKER_RUNNING)
        worker_cut_lanes(w);
}

static struct lanes *lanes_to(struct worker *w, size_t rank)
{
    static const struct lanes_ops ops = {on_lane_up, on_lane_refused, on_relayed};
    if (!w->lanes[rank])
        w->lanes[rank] = lanes_new(&(struct lanes_setup){.base = w->setup.base,
                                                         .members = w->setup.members,
                                                         .peers = w->setup.peers,
                                                         .relay = w->setup.relay,
                                                         .ops = &ops,
                                                         .owner = w});
    return w->lanes[rank];
}

/* A data connection broke under a running job. The end that made it makes another, over whatever
 * path there is; with none left, both ends wait for as long as a silent node is given. If the cause
 * was the other node's end, its daemon or its absence says so before. */
void worker_lane_lost(struct worker *w, const json_t *event)
{
    const json_int_t rank = json_integer_value(json_object_get(event, "rank"));
    const uint64_t path = (uint64_t)json_integer_value(json_object_get(event, "path"));
    const char *why = json_string_value(json_object_get(event, "why"));
    const long long seconds = opts_int(w->setup.opts, "dead-after");
    if (w->state != WORKER_RUNNING || rank < 0 || (size_t)rank >= w->ranks || !w->alive[rank])
        return;
    w->alive[rank]--;
    log_stage(LOG_LEVEL_INFO, w->job, w->rank, "a data connection to rank %lld broke, %u left: %s",
              (long long)rank, w->alive[rank], why ? why : "");
    if (!w->alive[rank] && !timer_is_pending(w->patience)) {
        snprintf(w->why_lost, sizeof w->why_lost, "no data connection to rank %lld for %lld s: %s",
                 (long long)rank, seconds, why ? why : "");
        worker_wait(w, (uint64_t)seconds * 1000000 + WORKER_RETURN_US);
    }
    lanes_lost(lanes_to(w, (size_t)rank), path);
}

void worker_lanes_changed(struct worker *w)
{
    for (size_t rank = 0; rank < RING_MAX_NODES; rank++)
        if (w->lanes[rank])
            lanes_changed(w->lanes[rank]);
}

void worker_stop_lanes(struct worker *w)
{
    for (size_t rank = 0; rank < RING_MAX_NODES; rank++)
        if (w->lanes[rank])
            lanes_stop(w->lanes[rank]);
}

void worker_free_lanes(struct worker *w)
{
    for (size_t rank = 0; rank < RING_MAX_NODES; rank++)
        lanes_free(w->lanes[rank]);
}

/* Through other nodes each rank calls the next one, and others that come behind it; of two, only
 * the first. */
static bool relays_to(const struct worker *w, size_t rank)
{
    if (rank == next_rank(w))
        return w->ranks > 2 || w->rank == 0;
    return (size_t)w->rank != (rank + 1) % w->ranks && (size_t)w->rank < rank;
}

static void connect_to(struct worker *w, size_t rank)
{
    struct link_hello hello = {
        .job = w->job, .from_rank = (uint16_t)w->rank, .to_rank = (uint16_t)rank, .dim = w->dim};
    memcpy(hello.head_id, w->head, 16);
    memcpy(hello.fingerprint, w->fingerprint, sizeof hello.fingerprint);
    lanes_start(lanes_to(w, rank), w->nodes[rank], &hello, relays_to(w, rank));
}

void worker_connect(struct worker *w)
{
    if (w->ranks == 1) {
        worker_tell(w, "job-connected", json_object());
        return;
    }
    for (size_t rank = 0; rank < w->ranks; rank++)
        if (talks_to(w, rank))
            connect_to(w, rank);
}

void worker_no_stage(const struct worker_setup *s, const struct link_hello *peer, char *why, size_t size)
{
    snprintf(why, size, "%s holds no stage of job %llu", members_self(s->members)->name,
             (unsigned long long)peer->job);
}

int worker_data_hello(const struct worker *w, const struct link_hello *peer, char *why, size_t size)
{
    const size_t from = peer->from_rank;
    bool ours = (w->state == WORKER_READY || w->state == WORKER_RUNNING) && peer->job == w->job &&
                !memcmp(peer->head_id, w->head, 16);
    if (!ours)
        worker_no_stage(&w->setup, peer, why, size);
    else if (peer->to_rank != w->rank || !talks_to(w, from) || memcmp(peer->node_id, w->nodes[from], 16))
        snprintf(why, size, "rank %u to %u was not expected by rank %d", peer->from_rank, peer->to_rank,
                 w->rank);
    else if (strcmp(peer->fingerprint, w->fingerprint))
        snprintf(why, size, "model fingerprints differ: %s on rank %u, %s on rank %d", peer->fingerprint,
                 peer->from_rank, w->fingerprint, w->rank);
    else if (peer->dim != w->dim)
        snprintf(why, size, "activation widths differ: %u on rank %u, %u on rank %d", peer->dim,
                 peer->from_rank, w->dim, w->rank);
    else
        return 0;
    return -EPERM;
}

void worker_data_up(struct worker *w, struct link *link, uint32_t from_rank)
{
    char why[256];
    if (worker_data_hello(w, link_peer(link), why,
                          sizeof why)) { /* another job may have come since it said hello */
        link_free(link);
        return;
    }
    uint64_t path = peers_path_of(w->setup.peers, link, w->nodes[from_rank]);
    lanes_came(lanes_to(w, from_rank), path);
    hand_over(w, link, from_rank,
              path ? path
                   : paths_at(w->setup.members, w->setup.peers,
                              link_address(link))); /* a relay's, if not the node's own */
}
