/* SPDX-License-Identifier: MIT
 *
 * Whom this node takes for the head of a job: what it writes down of that, and what it lets go of
 * when the head says that the job is over. Called by worker.c; loop thread. */
#include "daemon/ringd/job/worker_impl.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/common/xalloc.h"
#include "daemon/ringd/cluster/identity.h"
#include "daemon/ringd/job/deputy/ballots.h"
#include "daemon/ringd/job/survive/held_disk.h"
#include "daemon/ringd/peer/peers.h"
#include "daemon/ringd/store/store.h"
#include "daemon/ringd/timer.h"

/* What an answer of the store leads back to. */
struct noting {
    struct worker *worker; /* NULL: nobody waits for it any more */
};

static void say_ready(struct worker *w, const json_t *event)
{
    json_t *ready = json_deep_copy(event), *lines = w->trains ? line_log_encode(&w->lines, w->said) : NULL;
    w->state = WORKER_READY;
    if (lines)
        json_object_set_new(ready, "lines", lines);
    worker_tell(w, "job-ready", ready);
    timer_set_ms(w->again, WORKER_AGAIN_MS);
}

void worker_forget_noting(struct worker *w)
{
    if (w->noting)
        w->noting->worker = NULL;
    w->noting = NULL;
    json_decref(w->ready);
    w->ready = NULL;
}

static void on_noted(void *arg, const char *nothing)
{
    struct noting *n = arg;
    struct worker *w = n->worker;
    (void)nothing;
    free(n);
    if (!w)
        return;
    json_t *ready = w->ready;
    w->noting = NULL;
    w->ready = NULL;
    if (w->state == WORKER_OPENING && store_trouble(w->setup.store))
        worker_fail(w, "this node cannot write to its disk that it takes part");
    else if (ready && w->state == WORKER_OPENING)
        say_ready(w, ready);
    json_decref(ready);
}

void worker_note_attempt(struct worker *w)
{
    const uint8_t *deputy = w->ranks > 1 ? w->nodes[1] : w->head;
    worker_forget_noting(w);
    ballots_open(w->setup.ballots, &w->origin, w->head, deputy, (uint32_t)w->attempt, time(NULL));
    if (w->ranks < 2) /* nobody could take it over */
        return;
    w->noting = xmalloc(sizeof *w->noting);
    w->noting->worker = w;
    store_sync(w->setup.store, on_noted, w->noting);
}

void worker_hear_ready(struct worker *w, const json_t *event)
{
    if (!w->noting)
        say_ready(w, event);
    else if (!w->ready)
        w->ready = json_deep_copy(event);
}

static bool may_open(const struct worker *w, const uint8_t head[16], const json_t *taken,
                     const struct origin *of, char *cause, size_t size)
{
    struct takeover from;
    if (memcmp(of->head, head, sizeof of->head) != 0 && !ballots_find(w->setup.ballots, of) &&
        members_reachable(w->setup.members, of->head)) {
        snprintf(cause, size, "reaches the node that the job was submitted on");
        return false;
    }
    return ballots_may_open(w->setup.ballots, of, head, takeover_read(&from, taken) ? &from : NULL, cause,
                            size);
}

/* It may have handed the job on, and this node was not there. */
static void ask_head(struct worker *w, const struct origin *of, const uint8_t by[16])
{
    const struct ballot *known = ballots_find(w->setup.ballots, of);
    w->asked.of = *of;
    memcpy(w->asked.head, known ? known->head : of->head, sizeof w->asked.head);
    if (memcmp(w->asked.head, by, sizeof w->asked.head) != 0)
        peers_send(w->setup.peers, w->asked.head,
                   json_pack("{s:s s:o}", "kind", "head-ask", "origin", origin_encode(of)));
}

void worker_take_head_answer(struct worker *w, const uint8_t from[16], const json_t *body)
{
    const char *hex = json_string_value(json_object_get(body, "head"));
    struct origin of;
    uint8_t to[16];
    if (origin_read(&of, json_object_get(body, "origin")) && origin_is(&of, &w->asked.of) &&
        !memcmp(from, w->asked.head, sizeof w->asked.head) && hex && !id_parse(to, hex))
        ballots_move(w->setup.ballots, &of, from, to, time(NULL));
}

void worker_origin_of(struct origin *ret, const uint8_t head[16], const json_t *body)
{
    if (origin_read(ret, json_object_get(body, "origin")))
        return;
    ret->job = (uint64_t)json_integer_value(json_object_get(body, "job"));
    memcpy(ret->head, head, sizeof ret->head);
}

bool worker_may_open(struct worker *w, const uint8_t head[16], const json_t *body, struct origin *ret,
                     char *cause, size_t size)
{
    worker_origin_of(ret, head, body);
    const bool may = may_open(w, head, json_object_get(body, "taken"), ret, cause, size);
    if (!may)
        ask_head(w, ret, head);
    return may;
}

void worker_let_go(struct worker *w, const json_t *stop)
{
    if (json_is_true(json_object_get(stop, "keep")))
        return;
    worker_drop_copies(w);
    ballots_ended(w->setup.ballots, &w->origin, time(NULL));
}

bool worker_let_go_of_earlier(const struct worker_setup *s, const uint8_t head[16], uint64_t job)
{
    struct origin of = {.job = job};
    memcpy(of.head, head, sizeof of.head);
    const struct ballot *x = ballots_find(s->ballots, &of);
    if (x && memcmp(x->head, head, sizeof x->head) != 0)
        return false;
    held_disk_drop(s->held_disk, head, job);
    ballots_ended(s->ballots, &of, time(NULL));
    return true;
}
