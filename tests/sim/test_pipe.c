/* SPDX-License-Identifier: MIT
 *
 * Many ranks in one process, stepped in seeded random order over a transport that keeps the planned
 * credits and no more: delays, slow links, cut links. `-s SEED -n RUNS`; a failure prints its
 * seed. */
#include "tests/sim/pipe_world.h"

#include <unistd.h>

#include "pipe/split.h"

static uint64_t first_seed = 1;
static unsigned long runs = 2000;

/* --- world ------------------------------------------------------------------------------------ */

static struct sched *random_sched(struct world *w, size_t ranks, size_t microbatches)
{
    struct sched *sched = NULL;
    size_t known = 0;
    while (sched_names()[known])
        known++;
    const char *name = sched_names()[below(w, (uint32_t)known)];
    const struct sched_info *info = sched_info(name);
    size_t chunks = info->min_chunks + below(w, (uint32_t)(info->max_chunks - info->min_chunks) + 1);
    chunks = chunks < MAX_CHUNKS ? chunks : MAX_CHUNKS;
    require(w, sched_make(&sched,
                          &(struct sched_request){
                              .name = name, .ranks = ranks, .chunks = chunks, .microbatches = microbatches},
                          NULL) == 0);
    w->in_order = info->in_order;
    return sched;
}

/* Two stages on each rank, there and back (stage s ≥ p on rank 2p−1−s), in a greedy order: a list
 * that no built-in schedule has. */
static struct sched *random_v(struct world *w, size_t ranks, size_t microbatches)
{
    struct sched *sched = calloc(1, sizeof *sched);
    require(w, sched != NULL);
    *sched = (struct sched){.ranks = ranks, .stages = 2 * ranks, .microbatches = microbatches};
    sched->rank_of_stage = calloc(2 * ranks, sizeof *sched->rank_of_stage);
    sched->rank = calloc(ranks, sizeof *sched->rank);
    require(w, sched->rank_of_stage && sched->rank);
    uint32_t forwards[2 * MAX_RANKS] = {0}, backwards[2 * MAX_RANKS] = {0};
    for (uint32_t s = 0; s < 2 * ranks; s++)
        sched->rank_of_stage[s] = s < ranks ? s : (uint32_t)(2 * ranks - 1 - s);
    for (size_t r = 0; r < ranks; r++) {
        sched->rank[r].tasks = calloc(4 * microbatches, sizeof *sched->rank[r].tasks);
        require(w, sched->rank[r].tasks != NULL);
    }
    for (size_t left = 4 * ranks * microbatches; left;) {
        uint32_t s = below(w, (uint32_t)sched->stages);
        struct sched_list *list = &sched->rank[sched->rank_of_stage[s]];
        bool last = s + 1 == sched->stages;
        if (below(w, 2) && forwards[s] < microbatches && (s == 0 || forwards[s] < forwards[s - 1])) {
            list->tasks[list->n++] = (struct sched_task){OP_F, s, forwards[s]++};
            left--;
        } else if (backwards[s] < (last ? forwards[s] : backwards[s + 1])) {
            list->tasks[list->n++] = (struct sched_task){OP_B, s, backwards[s]++};
            left--;
        }
    }
    return sched;
}

/* Some backwards into halves, W as late as the list lets it. */
static void halve_backwards(struct world *w, struct sched_list *list)
{
    struct sched_task *tasks = calloc(2 * list->n, sizeof *tasks);
    require(w, tasks != NULL);
    struct sched_task late[MAX_CHUNKS * MAX_MB];
    size_t n = 0, nlate = 0, written = 0;
    for (size_t k = 0; k < list->n; k++) {
        struct sched_task task = list->tasks[k];
        if (task.op != OP_B) {
            tasks[n++] = task;
            continue;
        }
        task.op = OP_I;
        tasks[n++] = task;
        task.op = OP_W;
        late[nlate++] = task;
        while (written < nlate && below(w, 2))
            tasks[n++] = late[written++];
    }
    while (written < nlate)
        tasks[n++] = late[written++];
    free(list->tasks);
    *list = (struct sched_list){tasks, n, NULL};
}

static void begin_pipeline(struct world *w, size_t pipeline, const struct sched *sched, size_t steps)
{
    w->pipelines[pipeline].own = (uint32_t)(sched->microbatches / steps);
    w->pipelines[pipeline].has_rows |= pipeline == 0; /* all ranks of others know when their first one does */
}

/* Any number of steps that goes, of up to four adapters that take turns. */
static void ask_for_steps(struct world *w, struct plan_request *req)
{
    const size_t microbatches = req->sched->microbatches;
    const uint32_t adapters = 1 + below(w, 4);
    do
        req->steps = 1 + below(w, (uint32_t)microbatches);
    while (microbatches % req->steps);
    for (uint32_t step = 0; step < req->steps; step++)
        w->adapter_of_step[step] = step % adapters;
    req->adapter_of_step = w->adapter_of_step;
}

static void compile_train(struct world *w, size_t ranks, size_t microbatches)
{
    bool v = below(w, 4) == 0;
    struct sched *sched = v ? random_v(w, ranks, microbatches) : random_sched(w, ranks, microbatches);
    for (size_t r = 0; r < ranks && !v; r++)
        if (below(w, 3) == 0)
            halve_backwards(w, &sched->rank[r]);
    bool recompute[MAX_STAGES];
    for (size_t s = 0; s < MAX_STAGES; s++)
        recompute[s] = below(w, 3) == 0;
    struct plan_request req = {
        .program = PROGRAM_TRAIN, .sched = sched, .tied = below(w, 2), .recompute = recompute};
    if (!req.tied)
        req.lowest_trained = w->lowest = below(w, (uint32_t)sched->stages);
    if (!req.tied && below(w, 2))
        ask_for_steps(w, &req);
    struct err err = {0};
    int rc = plan_compile(&w->plan, &req, &err);
    begin_pipeline(w, 0, sched, req.steps ? req.steps : 1);
    w->flushed = rc == -EDEADLK && req.adapter_of_step;
    if (w->flushed) { /* then at least all can take their steps side by side */
        for (uint32_t step = 0; step < req.steps; step++)
            w->adapter_of_step[step] = step;
        req.adapter_of_step = NULL;
        rc = plan_compile(&w->plan, &req, &err);
    }
    if (rc < 0)
        fail_msg("seed %llu: %s", (unsigned long long)w->seed, err.text);
    sched_free(sched);
}

/* An order for a replica on so many places, of stages that others cut in the same way. */
static struct sched *unlike_sched(struct world *w, size_t places, size_t stages, size_t microbatches)
{
    static const char *const names[] = {"gpipe", "1f1b", "zb-h1", "zb-h2"};
    const struct sched_request want = {
        .name = names[w->seed % 4], .ranks = places, .microbatches = microbatches};
    uint32_t of[MAX_STAGES];
    struct sched *coarse = NULL, *fine = NULL;
    for (size_t s = 0; s < stages; s++)
        of[s] = (uint32_t)(s * places / stages);
    require(w, !sched_make(&coarse, &want, NULL) && !sched_refine(&fine, coarse, stages, of, NULL));
    sched_free(coarse);
    return fine;
}

/* One of each of a replica's slices, all alike. */
static void put_slices(struct world *w, struct plan_pipeline *to, struct sched *sched, size_t groups,
                       size_t replica, size_t steps)
{
    for (size_t k = replica * w->slices; k < (replica + 1) * w->slices; k++) {
        to[k] = (struct plan_pipeline){sched, groups};
        begin_pipeline(w, k, sched, steps);
        w->pipelines[k].has_rows |= sched->ranks > 1 && k; /* only its first rank takes them */
    }
}

/* Replicas with shares of their own, and slices of these, of one step or of several adapters'
 * steps. */
static void compile_replicas(struct world *w, size_t microbatches)
{
    struct plan_pipeline pipelines[MAX_PIPELINES];
    size_t parts[MAX_STAGES], taken = 0, first = 0;
    const size_t n = 1 + below(w, MAX_REPLICAS);
    w->slices = n == 1 ? 2 + below(w, 2) : 1 + below(w, 2);
    const size_t all = n * w->slices, places = 1 + below(w, (uint32_t)(MAX_RANKS / all)),
                 adapters = 1 + below(w, 2), m = n + (microbatches > n ? microbatches - n : 0),
                 per = m / adapters < n ? n : m / adapters, groups = n + below(w, (uint32_t)(per - n + 1));
    struct plan_request req = {.program = PROGRAM_TRAIN,
                               .npipelines = all,
                               .slices = w->slices,
                               .pipelines = pipelines,
                               .groups = groups,
                               .parts = parts,
                               .steps = adapters,
                               .tied = adapters == 1 && below(w, 2),
                               .divided = below(w, 2)};
    const uint64_t rng = w->rng;
    const size_t unlike = adapters == 1 && all == n && below(w, 2) ? 1 + below(w, 3) : 0; /* stages */
    for (size_t d = 0; d < n; d++) {
        const size_t left = groups - taken - (n - 1 - d),
                     own = d + 1 == n ? left : 1 + below(w, (uint32_t)left);
        const size_t end = plan_group_first(taken + own, per, groups);
        const uint64_t after = w->rng;
        w->rng = rng; /* the same schedule for all */
        struct sched *sched = unlike ? NULL : random_sched(w, places, adapters * (end - first));
        w->rng = after;
        const size_t most = unlike < MAX_RANKS / n ? unlike : MAX_RANKS / n,
                     own_places = 1 + below(w, (uint32_t)(most ? most : 1));
        sched = sched ? sched : unlike_sched(w, own_places, unlike, end - first);
        put_slices(w, pipelines, sched, own, d, adapters);
        taken += own;
        first = end;
    }
    w->in_order = false; /* their microbatches have the numbers of all */
    for (size_t s = 0; s < MAX_STAGES; s++)
        w->parts[s] = parts[s] = req.divided ? n * below(w, 3) : below(w, 6);
    for (uint32_t step = 0; step < adapters; step++)
        w->adapter_of_step[step] = step;
    struct err err = {0};
    if (plan_compile(&w->plan, &req, &err) < 0)
        fail_msg("seed %llu: %s", (unsigned long long)w->seed, err.text);
    for (size_t s = 0; s < w->plan->stages; s++)
        w->lowest = parts[s] && n > 1 ? w->lowest : MAX_STAGES; /* who exchanges nothing waits for nobody */
    for (size_t d = 0; d < n; d++)
        sched_free((struct sched *)pipelines[d * w->slices].sched);
}

static void compile_other(struct world *w, size_t ranks, size_t microbatches)
{
    size_t first[MAX_STAGES + 1], chunks = 1 + below(w, MAX_CHUNKS);
    uint32_t place[MAX_STAGES];
    struct plan_request req = {
        .program = PROGRAM_FORWARD + below(w, 4), .ranks = ranks, .microbatches = microbatches};
    if (chunks > 1) {
        req.stages = chunks * ranks;
        req.rank_of_stage = place;
        enum sched_placement placement = chunks == 2 && below(w, 2) ? PLACE_V : PLACE_LOOP;
        for (uint32_t s = 0; s < req.stages; s++)
            place[s] = sched_place(placement, ranks, s);
    }
    struct split_request split = {.stages = req.stages ? req.stages : ranks,
                                  .layers = below(w, MAX_LAYERS + 1)};
    require(w, split_layers(first, &split, NULL) == 0);
    req.first = first;
    req.tied = below(w, 2);
    size_t pieces[MAX_LAYERS + 3] = {0};
    for (size_t u = 0; u < split.layers + 2; u++)
        pieces[u + 1] = pieces[u] + req.tied + below(w, 4);
    req.pieces = pieces;
    req.want_token = below(w, 2);
    struct err err = {0};
    if (plan_compile(&w->plan, &req, &err) < 0)
        fail_msg("seed %llu: %s", (unsigned long long)w->seed, err.text);
}

static void list_messages(struct world *w, uint32_t to)
{
    const struct plan_rank *rank = &w->plan->rank[to];
    for (uint32_t from = 0; from < w->plan->ranks; from++) {
        w->links[from][to].messages = calloc(plan_in_from(rank, from) + 1, sizeof(struct message));
        require(w, w->links[from][to].messages != NULL);
    }
    for (size_t k = 0; k < rank->n; k++)
        for (uint32_t i = 0; i < rank->tasks[k].nneeds; i++) {
            const struct task_need *need = &rank->tasks[k].needs[i];
            struct link *link = &w->links[need->from][to];
            struct message message = {.key = need->key, .from = need->from, .to = to};
            message.key.round = w->round;
            require(w, find(link, &message.key) == NULL);
            link->messages[link->n++] = message;
        }
    for (uint32_t from = 0; from < w->plan->ranks; from++)
        require(w, w->links[from][to].n == plan_in_from(rank, from));
}

static void world_init(struct world *w, uint64_t seed)
{
    *w = (struct world){.seed = seed, .rng = seed * 0xd1342543de82ef95u + 1, .slices = 1, .in_order = true};
    size_t ranks = 1 + below(w, MAX_RANKS), microbatches = 1 + below(w, MAX_MB);
    if (below(w, 3) == 0)
        compile_replicas(w, microbatches);
    else if (below(w, 3))
        compile_train(w, ranks, microbatches);
    else
        compile_other(w, ranks, microbatches);
    ranks = w->plan->ranks;
    w->round = below(w, 1000);
    w->frugal = below(w, 2);
    w->ahead = w->plan->pipelines > 1 && below(w, 2);
    w->credits = !w->ahead && below(w, 4) ? w->plan->rank[0].credits : w->plan->rank[0].credits_fast;
    for (uint32_t r = 0; r < ranks; r++) {
        struct node *node = &w->nodes[r];
        node->world = w;
        memset(node->slot_of, 0xff, sizeof node->slot_of);
        exec_start(&node->exec, w->plan, r, w->round);
        list_messages(w, r);
    }
    uint32_t slow = below(w, 4) ? 3 : 60;
    for (uint32_t a = 0; a < ranks; a++)
        for (uint32_t b = 0; b < ranks; b++) {
            w->links[a][b].slowness = below(w, slow + 1);
            w->links[a][b].cut_at = NEVER;
        }
}

static void world_done(struct world *w)
{
    for (uint32_t a = 0; a < w->plan->ranks; a++)
        for (uint32_t b = 0; b < w->plan->ranks; b++)
            free(w->links[a][b].messages);
    plan_free(w->plan);
}

/* Cuts both directions between two neighbours, as pulling a cable does. */
static void cut_somewhere(struct world *w)
{
    uint32_t a = below(w, (uint32_t)w->plan->ranks), b = plan_next(w->plan->ranks, a);
    w->cut = true;
    w->links[a][b].cut_at = w->links[b][a].cut_at = below(w, 60);
}

static bool step_node(struct world *w, struct node *node)
{
    struct err err = {0};
    const bool was_held = node->is_held;
    if (node->failed || (was_held && !enter(node, exec_task(&node->exec))))
        return false;
    int rc = w->ahead && !was_held ? exec_ahead(&node->exec, &ops, node, &err) : 0;
    const struct task *task = exec_task(&node->exec);
    if (!rc && !was_held && task && gathers(w, task) && can_run(node, task) && !enter(node, task))
        return true;
    rc = rc ? rc : exec_step(&node->exec, &ops, node, &err);
    if (rc == -EAGAIN) {
        require(w, node->exec.wait == EXEC_NEEDS || node->exec.wait == EXEC_NO_ROOM);
        require(w, node->exec.wait_key.round == w->round);
        return false;
    }
    if (rc == 0) {
        require(w, !task && node->exec.wait == EXEC_DONE);
        return false;
    }
    if (rc < 0) {
        require(w, w->cut && rc == -EPIPE && strstr(err.text, "is lost: Broken pipe"));
        require(w, exec_task(&node->exec) == task);
        node->failed = rc;
    }
    return true;
}

/* Until nothing can happen any more: one random action at a time, and time passes when all wait for
 * deliveries. */
static void play(struct world *w)
{
    uint32_t ranks = (uint32_t)w->plan->ranks, idle = 0;
    while (idle < 130) {
        bool moved = false;
        for (uint32_t k = 0; k < 2 * ranks; k++) {
            struct node *node = &w->nodes[below(w, ranks)];
            uint32_t burst = below(w, 3);
            for (uint32_t i = 0; i <= burst; i++)
                moved = step_node(w, node) || moved;
            struct link *link = &w->links[below(w, ranks)][node->exec.rank];
            moved = pump(w, link) || moved;
        }
        idle = moved ? 0 : idle + 1;
        w->now++;
    }
}

static void require_all_done(struct world *w)
{
    for (uint32_t r = 0; r < w->plan->ranks; r++) {
        struct node *node = &w->nodes[r];
        require(w, node->done == w->plan->rank[r].n);
        require(w, node->most_slots == w->plan->rank[r].slots);
        require(w, node->slots == 0);
        require(w, node->nhanded == 0 && node->most_handed == w->plan->rank[r].handed);
        for (uint32_t a = 0; a < w->plan->ranks; a++)
            require(w, w->links[a][r].consumed == w->links[a][r].n && w->links[a][r].unsent == 0);
    }
}

/* After a cut every rank has ended, or has failed, or waits for one that will never send: never for
 * a live rank that could still do something. */
static void require_all_told(struct world *w)
{
    bool failed = false, unfinished = false;
    for (uint32_t r = 0; r < w->plan->ranks; r++) {
        struct node *node = &w->nodes[r];
        failed = failed || node->failed;
        unfinished = unfinished || exec_task(&node->exec);
        if (node->failed || !exec_task(&node->exec))
            continue;
        struct node *other = &w->nodes[node->exec.wait_rank];
        require(w, other->failed || exec_task(&other->exec));
    }
    require(w, failed == unfinished);
}

static bool is_done(const struct world *w)
{
    for (uint32_t r = 0; r < w->plan->ranks; r++)
        if (exec_task(&w->nodes[r].exec))
            return false;
    return true;
}

static void play_seeds(bool cut)
{
    struct world *w = malloc(sizeof *w);
    size_t flushed = 0, followed = 0, ahead = 0;
    assert_non_null(w);
    for (uint64_t seed = first_seed; seed < first_seed + runs; seed++) {
        world_init(w, seed);
        flushed += w->flushed;
        followed +=
            !w->flushed && w->plan->steps > 1 && w->adapter_of_step[w->plan->steps - 1] + 1 < w->plan->steps;
        if (cut && w->plan->ranks > 1)
            cut_somewhere(w);
        play(w);
        if (w->cut)
            require_all_told(w);
        else
            require_all_done(w);
        for (uint32_t r = 0; r < w->plan->ranks; r++)
            ahead += w->nodes[r].went_ahead;
        world_done(w);
    }
    if (runs >= 100)
        assert_true(flushed && followed && ahead);
    free(w);
}

static void test_every_timing(void **state)
{
    (void)state;
    play_seeds(false);
}

static void test_cut_cables(void **state)
{
    (void)state;
    play_seeds(true);
}

/* With one credit less than planned, where that leaves any, every timing ends in a deadlock. */
static void test_one_credit_less(void **state)
{
    (void)state;
    struct world *w = malloc(sizeof *w);
    assert_non_null(w);
    unsigned long tried = 0;
    for (uint64_t seed = first_seed; seed < first_seed + runs; seed++) {
        world_init(w, seed);
        w->frugal = true;
        w->ahead = false;
        w->credits = w->plan->rank[0].credits - 1;
        if (w->credits > 0) {
            play(w);
            require(w, !is_done(w));
            tried++;
        }
        world_done(w);
    }
    free(w);
    assert_true(tried > 0 || runs < 100);
}

int main(int argc, char **argv)
{
    for (int c; (c = getopt(argc, argv, "s:n:")) != -1;) {
        if (c == 's')
            first_seed = strtoull(optarg, NULL, 0);
        else if (c == 'n')
            runs = strtoul(optarg, NULL, 0);
        else
            return fprintf(stderr, "usage: %s [-s SEED] [-n RUNS]\n", argv[0]), 2;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_timing),
        cmocka_unit_test(test_cut_cables),
        cmocka_unit_test(test_one_credit_less),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
