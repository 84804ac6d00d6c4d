/* SPDX-License-Identifier: MIT
 *
 * Two questions before anything starts. Does a schedule say what it must (each rank's list by
 * itself; who waits for whom is the simulation's business)? With how few buffers does a plan run to
 * its end? Owns only its scratch. Pure: called by the planner and the simulation, from any
 * thread. */
#include "pipe/plan.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- the schedule ----------------------------------------------------------------------------- */

/* What has been seen of each (stage, microbatch), one bit per sched_op. All tasks of a stage lie on
 * one rank, so one pass over the lists in any order of ranks meets them in the order in which they
 * will run. */
struct order_check {
    const struct sched *sched;
    uint8_t *seen; /* [stages · microbatches] */
    struct err *err;
};

static unsigned bit(enum sched_op op)
{
    return 1u << op;
}

static uint8_t *seen_of(const struct order_check *c, const struct sched_task *task)
{
    return &c->seen[(size_t)task->stage * c->sched->microbatches + task->mb];
}

/* Position of (op, stage, mb) in the list, counting from 1; 0 = not in it. */
static size_t position(const struct sched_list *list, enum sched_op op, uint32_t stage, uint32_t mb)
{
    for (size_t k = 0; k < list->n; k++)
        if (list->tasks[k].op == op && list->tasks[k].stage == stage && list->tasks[k].mb == mb)
            return k + 1;
    return 0;
}

static int check_shape(const struct sched *sched, struct err *err)
{
    if (sched->ranks < 1 || sched->ranks > SCHED_MAX_RANKS || sched->stages < 1 || sched->stages > UINT16_MAX)
        return err_set(err, -EINVAL, "a schedule has 1 to %d ranks and 1 to %d stages, not %zu and %zu",
                       SCHED_MAX_RANKS, UINT16_MAX, sched->ranks, sched->stages);
    if (sched->microbatches < 1 || sched->microbatches > SCHED_MAX_CELLS / sched->stages)
        return err_set(err, -EINVAL, "a schedule of %zu stages has 1 to %zu microbatches, not %zu",
                       sched->stages, SCHED_MAX_CELLS / sched->stages, sched->microbatches);
    for (size_t s = 0; s < sched->stages; s++)
        if (sched->rank_of_stage[s] >= sched->ranks)
            return err_set(err, -EINVAL, "stage %zu is placed on rank %u, but the ranks are 0 to %zu", s,
                           sched->rank_of_stage[s], sched->ranks - 1);
    return 0;
}

static struct sched_spot spot(const struct order_check *c, size_t rank, size_t at)
{
    return sched_spot(c->sched, rank, at, false);
}

/* Is this a task at all, and this rank's? */
static int check_range(const struct order_check *c, size_t rank, size_t at, const struct sched_task *task,
                       const char *name)
{
    const struct sched *sched = c->sched;
    if ((unsigned)task->op >= OP_COUNT)
        return err_set(c->err, -EINVAL, "%s (%s): unknown kind of task; use F, I, W, B or R",
                       spot(c, rank, at).text, name);
    if (task->stage >= sched->stages)
        return err_set(c->err, -EINVAL, "%s (%s): stage %u is out of range 0 to %zu", spot(c, rank, at).text,
                       name, task->stage, sched->stages - 1);
    if (task->mb >= sched->microbatches)
        return err_set(c->err, -EINVAL, "%s (%s): microbatch %u is out of range 0 to %zu",
                       spot(c, rank, at).text, name, task->mb, sched->microbatches - 1);
    if (sched->rank_of_stage[task->stage] != rank)
        return err_set(c->err, -EINVAL,
                       "%s (%s): stage %u belongs to %s and cannot lie on two ranks; move the task there",
                       spot(c, rank, at).text, name, task->stage,
                       spot(c, sched->rank_of_stage[task->stage], 0).text);
    return 0;
}

/* `first` must stand before `task` in the same list: says whether it stands later or nowhere. */
static int refuse_order(const struct order_check *c, size_t rank, size_t at, const struct sched_task *task,
                        enum sched_op first)
{
    char name[24], wanted[24];
    struct sched_task other = {first, task->stage, task->mb};
    sched_task_name(name, sizeof name, task);
    sched_task_name(wanted, sizeof wanted, &other);
    size_t later = position(&c->sched->rank[rank], first, task->stage, task->mb);
    if (later)
        return err_set(c->err, -EINVAL, "%s: %s stands before %s (%s); exchange them", spot(c, rank, at).text,
                       name, wanted, sched_spot(c->sched, rank, later, true).text);
    return err_set(c->err, -EINVAL, "%s: %s needs %s, which is missing; add it before",
                   spot(c, rank, at).text, name, wanted);
}

static int check_task(const struct order_check *c, size_t rank, size_t at, const struct sched_task *task)
{
    char name[24];
    sched_task_name(name, sizeof name, task);
    int rc = check_range(c, rank, at, task, name);
    if (rc < 0)
        return rc;
    uint8_t *seen = seen_of(c, task);
    if (*seen & bit(task->op))
        return err_set(
            c->err, -EINVAL, "%s: %s is a duplicate of %s; remove one", spot(c, rank, at).text, name,
            sched_spot(c->sched, rank, position(&c->sched->rank[rank], task->op, task->stage, task->mb), true)
                .text);
    bool half = task->op == OP_I || task->op == OP_W;
    unsigned rivals = task->op == OP_B ? bit(OP_I) | bit(OP_W) : half ? bit(OP_B) : 0;
    if (*seen & rivals)
        return err_set(c->err, -EINVAL,
                       "%s: %s stands beside the other form of its backward; B is I and "
                       "W in one task: use either B, or I and W",
                       spot(c, rank, at).text, name);
    if (task->op != OP_F && !(*seen & bit(OP_F)))
        return refuse_order(c, rank, at, task, OP_F);
    if (task->op == OP_R && (*seen & (bit(OP_I) | bit(OP_B))))
        return err_set(c->err, -EINVAL, "%s: %s stands after the backward it is for; move it before",
                       spot(c, rank, at).text, name);
    if (task->op == OP_W && !(*seen & bit(OP_I)))
        return refuse_order(c, rank, at, task, OP_I);
    *seen |= (uint8_t)bit(task->op);
    return 0;
}

/* After the pass: each microbatch forward and back through each stage, exactly once. */
static int check_complete(const struct order_check *c, uint32_t stage, uint32_t mb)
{
    uint32_t rank = c->sched->rank_of_stage[stage];
    const struct sched_list *list = &c->sched->rank[rank];
    unsigned seen = c->seen[(size_t)stage * c->sched->microbatches + mb];
    if (!(seen & bit(OP_F)))
        return err_set(c->err, -EINVAL, "%s: the list ends there, but %uF%u is missing; add it",
                       spot(c, rank, list->n).text, stage, mb);
    if (!(seen & (bit(OP_B) | bit(OP_I))))
        return err_set(c->err, -EINVAL, "%s: the backward of %uF%u is missing; add %uB%u, or %uI%u and %uW%u",
                       spot(c, rank, position(list, OP_F, stage, mb)).text, stage, mb, stage, mb, stage, mb,
                       stage, mb);
    if ((seen & bit(OP_I)) && !(seen & bit(OP_W)))
        return err_set(c->err, -EINVAL, "%s: %uI%u has no %uW%u; add it, or use %uB%u",
                       spot(c, rank, position(list, OP_I, stage, mb)).text, stage, mb, stage, mb, stage, mb);
    return 0;
}

int plan_check(const struct sched *sched, struct err *err)
{
    int rc = check_shape(sched, err);
    if (rc < 0)
        return rc;
    struct order_check c = {.sched = sched, .err = err};
    c.seen = calloc(sched->stages * sched->microbatches, 1);
    if (!c.seen)
        return err_set(err, -ENOMEM, "no memory to check %zu stages and %zu microbatches", sched->stages,
                       sched->microbatches);
    for (size_t r = 0; rc == 0 && r < sched->ranks; r++)
        for (size_t k = 0; rc == 0 && k < sched->rank[r].n; k++)
            rc = check_task(&c, r, k + 1, &sched->rank[r].tasks[k]);
    for (uint32_t s = 0; rc == 0 && s < sched->stages; s++)
        for (uint32_t i = 0; rc == 0 && i < sched->microbatches; i++)
            rc = check_complete(&c, s, i);
    free(c.seen);
    return rc;
}

/* --- the plan's dry run ----------------------------------------------------------------------- */

/* The rules a transport keeps, with c credits: the receiver of a link has buffers for the first c
 * messages of its program order that it has not consumed yet, and a message moves, in any order,
 * once it is sent and has its buffer; a task starts when all its needs are here and no outgoing
 * link would hold more than c unsent messages with its emits added; its buffers are freed when it
 * ends.
 *
 * One run decides for every timing. What a rank may do next, or whether a message may move, only
 * ever changes from no to yes by what others do, never back (needs stay here, a rank's own emits
 * alone fill its links, a buffer stays the message's own until consumed). So two possible events
 * can be exchanged, every run that goes on as long as it can ends in the same state, and if one
 * reaches the end, all do. By the same argument more credits never hurt, neither to reach the end
 * nor to reach it sooner, which is why halving intervals finds the fewest. */
enum { MESSAGE_SENT = 1, MESSAGE_HERE = 2 };

struct dry_rank {
    size_t next; /* index of its next task, or of the one it does */
    bool busy;
    uint64_t until; /* when the current task ends */
    size_t emitted; /* messages of finished tasks */
};
struct dry {
    const struct plan *plan;
    size_t messages;
    size_t links, *first; /* [ranks] the first of a rank's incoming links */
    size_t *base; /* [links + 1] a link's messages are base[link] … base[link + 1] − 1, as consumed */
    size_t *emit_base; /* [ranks] first entry of a rank in emits */
    size_t *emits;     /* [messages] which message each emit is, in program order */
    size_t credits;
    uint8_t *state;        /* [messages] */
    size_t *consumed;      /* [links] */
    size_t *unsent;        /* [links] */
    struct dry_rank *rank; /* [ranks] */
};

/* A message by its key and its link; the round is 0 throughout. */
struct dry_key {
    struct msg_key key;
    size_t link, message;
};

static size_t link_of(const struct dry *d, uint32_t from, uint32_t to)
{
    const struct plan_rank *rank = &d->plan->rank[to];
    size_t i = 0;
    while (i < rank->nin && rank->in[i].from != from)
        i++;
    assert(i < rank->nin);
    return d->first[to] + i;
}

static int compare_keys(const void *va, const void *vb)
{
    const struct msg_key *a = &((const struct dry_key *)va)->key, *b = &((const struct dry_key *)vb)->key;
    const size_t la = ((const struct dry_key *)va)->link, lb = ((const struct dry_key *)vb)->link;
    if (la != lb)
        return la < lb ? -1 : 1;
    if (a->kind != b->kind)
        return a->kind < b->kind ? -1 : 1;
    if (a->stage != b->stage)
        return a->stage < b->stage ? -1 : 1;
    return a->mb < b->mb ? -1 : a->mb > b->mb;
}

static void dry_done(struct dry *d)
{
    free(d->first);
    free(d->base);
    free(d->emit_base);
    free(d->emits);
    free(d->state);
    free(d->consumed);
    free(d->unsent);
    free(d->rank);
}

/* Numbers the messages of each link in the order in which they are consumed. */
static void list_needs(struct dry *d, struct dry_key *keys)
{
    const struct plan *plan = d->plan;
    memset(d->consumed, 0, d->links * sizeof *d->consumed);
    for (uint32_t r = 0; r < plan->ranks; r++)
        for (size_t k = 0; k < plan->rank[r].n; k++)
            for (uint32_t i = 0; i < plan->rank[r].tasks[k].nneeds; i++) {
                const struct task_need *need = &plan->rank[r].tasks[k].needs[i];
                const size_t link = link_of(d, need->from, r), message = d->base[link] + d->consumed[link]++;
                keys[message] = (struct dry_key){need->key, link, message};
            }
}

/* Finds for each emit the message that somebody needs. A plan in which the two do not match is a
 * fault of its builder. */
static void match_emits(struct dry *d, const struct dry_key *sorted)
{
    size_t n = 0;
    for (uint32_t r = 0; r < d->plan->ranks; r++) {
        const struct plan_rank *rank = &d->plan->rank[r];
        d->emit_base[r] = n;
        for (size_t k = 0; k < rank->n; k++)
            for (uint32_t i = 0; i < rank->tasks[k].nemits; i++) {
                const struct task_emit *emit = &rank->tasks[k].emits[i];
                const struct dry_key wanted = {.key = emit->key, .link = link_of(d, r, emit->to)};
                const struct dry_key *found =
                    bsearch(&wanted, sorted, d->messages, sizeof wanted, compare_keys);
                assert(found && n < d->messages);
                d->emits[n++] = found->message;
            }
    }
    assert(n == d->messages);
}

static int dry_init(struct dry *d, const struct plan *plan)
{
    *d = (struct dry){.plan = plan};
    d->first = calloc(plan->ranks, sizeof *d->first);
    for (size_t r = 0; d->first && r < plan->ranks; r++) {
        d->first[r] = d->links;
        d->links += plan->rank[r].nin;
    }
    const size_t links = d->links;
    d->base = calloc(links + 1, sizeof *d->base);
    d->emit_base = calloc(plan->ranks, sizeof *d->emit_base);
    d->consumed = calloc(links + 1, sizeof *d->consumed);
    d->unsent = calloc(links + 1, sizeof *d->unsent);
    d->rank = calloc(plan->ranks, sizeof *d->rank);
    if (!d->first || !d->base || !d->emit_base || !d->consumed || !d->unsent || !d->rank)
        return -ENOMEM;
    for (size_t r = 0; r < plan->ranks; r++)
        for (size_t i = 0; i < plan->rank[r].nin; i++)
            d->base[d->first[r] + i + 1] = d->base[d->first[r] + i] + plan->rank[r].in[i].n;
    d->messages = d->base[links];
    /* One entry too many, so that no messages is no special case. */
    d->emits = calloc(d->messages + 1, sizeof *d->emits);
    d->state = calloc(d->messages + 1, sizeof *d->state);
    struct dry_key *keys = calloc(d->messages + 1, sizeof *keys);
    if (!d->emits || !d->state || !keys) {
        free(keys);
        return -ENOMEM;
    }
    list_needs(d, keys);
    qsort(keys, d->messages, sizeof *keys, compare_keys);
    match_emits(d, keys);
    free(keys);
    return 0;
}

/* The i-th need of a rank's next task, as a message. Consumption is in program order, so counting
 * finds it.
 */
static size_t need_message(const struct dry *d, uint32_t r, const struct task *task, uint32_t i)
{
    size_t link = link_of(d, task->needs[i].from, r), message = d->base[link] + d->consumed[link];
    for (uint32_t k = 0; k < i; k++)
        message += link_of(d, task->needs[k].from, r) == link;
    return message;
}

static bool can_start(const struct dry *d, uint32_t r, const struct task *task)
{
    for (uint32_t i = 0; i < task->nneeds; i++)
        if (!(d->state[need_message(d, r, task, i)] & MESSAGE_HERE))
            return false;
    for (uint32_t i = 0; i < task->nemits; i++) {
        size_t link = link_of(d, r, task->emits[i].to), added = 1;
        for (uint32_t k = 0; k < i; k++)
            added += link_of(d, r, task->emits[k].to) == link;
        if (d->unsent[link] + added > d->credits)
            return false;
    }
    return true;
}

static void try_move(struct dry *d, size_t link, size_t message)
{
    bool has_buffer = message < d->base[link] + d->consumed[link] + d->credits;
    if (message < d->base[link + 1] && has_buffer && d->state[message] == MESSAGE_SENT) {
        d->state[message] |= MESSAGE_HERE;
        d->unsent[link]--;
    }
}

static void finish(struct dry *d, uint32_t r, const struct task *task)
{
    struct dry_rank *rank = &d->rank[r];
    for (uint32_t i = 0; i < task->nneeds; i++) {
        size_t link = link_of(d, task->needs[i].from, r);
        d->consumed[link]++;
        try_move(d, link, d->base[link] + d->consumed[link] + d->credits - 1);
    }
    for (uint32_t i = 0; i < task->nemits; i++) {
        size_t link = link_of(d, r, task->emits[i].to);
        size_t message = d->emits[d->emit_base[r] + rank->emitted++];
        d->state[message] = MESSAGE_SENT;
        d->unsent[link]++;
        try_move(d, link, message);
    }
    rank->busy = false;
    rank->next++;
}

static uint64_t unit_cost(enum task_kind kind)
{
    return kind == TASK_B ? 2 : task_is_compute(kind) ? 1 : 0;
}

/* Does whatever can be done at time `now`; false = nothing could. */
static bool advance(struct dry *d, uint64_t now)
{
    bool moved = false;
    for (uint32_t r = 0; r < d->plan->ranks; r++) {
        struct dry_rank *rank = &d->rank[r];
        if (rank->busy && rank->until <= now) {
            finish(d, r, &d->plan->rank[r].tasks[rank->next]);
            moved = true;
        }
        if (rank->busy || rank->next == d->plan->rank[r].n)
            continue;
        const struct task *task = &d->plan->rank[r].tasks[rank->next];
        if (can_start(d, r, task)) {
            rank->busy = true;
            rank->until = now + unit_cost(task->kind);
            moved = true;
        }
    }
    return moved;
}

/* How long the plan takes with so many credits; UINT64_MAX = it deadlocks, and d shows where
 * everyone stands.
 */
static uint64_t dry_run(struct dry *d, size_t credits)
{
    size_t ranks = d->plan->ranks;
    d->credits = credits;
    memset(d->state, 0, d->messages);
    memset(d->consumed, 0, d->links * sizeof *d->consumed);
    memset(d->unsent, 0, d->links * sizeof *d->unsent);
    memset(d->rank, 0, ranks * sizeof *d->rank);
    for (uint64_t now = 0;;) {
        while (advance(d, now))
            ;
        uint64_t soonest = UINT64_MAX;
        bool done = true;
        for (size_t r = 0; r < ranks; r++) {
            if (d->rank[r].busy && d->rank[r].until < soonest)
                soonest = d->rank[r].until;
            done = done && d->rank[r].next == d->plan->rank[r].n;
        }
        if (soonest == UINT64_MAX)
            return done ? now : UINT64_MAX;
        now = soonest;
    }
}

/* The fewest credits, at most `most`, with which the plan takes no longer than `limit`. */
static size_t fewest(struct dry *d, size_t most, uint64_t limit)
{
    size_t low = 1;
    while (low < most) {
        size_t middle = low + (most - low) / 2;
        if (dry_run(d, middle) <= limit)
            most = middle;
        else
            low = middle + 1;
    }
    return low;
}

static int refuse_wait(const struct dry *d, struct err *err)
{
    enum { RANK_TEXT = 60, NEED_TEXT = 60 }; /* what one takes at most */
    char text[400] = "";
    size_t used = 0;
    for (uint32_t r = 0; r < d->plan->ranks && used < sizeof text - RANK_TEXT; r++) {
        size_t at = d->rank[r].next;
        if (at == d->plan->rank[r].n)
            continue;
        const struct task *task = &d->plan->rank[r].tasks[at];
        char name[24];
        used += (size_t)snprintf(text + used, sizeof text - used, "%srank %u at position %zu (%s)",
                                 used ? ", " : "", r, at + 1, task_name(name, sizeof name, task));
        for (uint32_t i = 0; i < task->nneeds; i++)
            if (used < sizeof text - NEED_TEXT && !(d->state[need_message(d, r, task, i)] & MESSAGE_HERE))
                used += (size_t)snprintf(text + used, sizeof text - used, " waits for %s from rank %u",
                                         msg_kind_name((enum msg_kind)task->needs[i].key.kind),
                                         task->needs[i].from);
    }
    return err_set(err, -EDEADLK, "the plan waits in a circle: %s", text);
}

int plan_find_credits(struct plan *plan, struct err *err)
{
    struct dry d;
    int rc = dry_init(&d, plan);
    if (rc < 0) {
        rc = err_set(err, rc, "no memory to try out a plan of %zu ranks", plan->ranks);
        goto out;
    }
    size_t most = 1; /* as many as the busiest link has messages: none ever waits for a buffer */
    for (size_t link = 0; link < d.links; link++)
        if (d.base[link + 1] - d.base[link] > most)
            most = d.base[link + 1] - d.base[link];
    uint64_t best = dry_run(&d, most);
    if (best == UINT64_MAX) {
        rc = refuse_wait(&d, err);
        goto out;
    }
    size_t fast = fewest(&d, most, best), credits = fewest(&d, fast, UINT64_MAX - 1);
    for (size_t r = 0; r < plan->ranks; r++) {
        plan->rank[r].credits = credits;
        plan->rank[r].credits_fast = fast + 1;
    }
out:
    dry_done(&d);
    return rc;
}
