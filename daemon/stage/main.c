/* SPDX-License-Identifier: MIT
 *
 * ringd-stage: hosts one rank of one job. Started by ringd with a socket (fd 3) and a progress page
 * (fd 4); what it is told:
 *   {"do":"cell","state","user"}            first: the directory that is the daemon's own. With the
 *                                           next message it enters its cell (cell/cell.h)
 *   {"do":"hold"}, and a file               of a job that trains: copies that earlier processes
 *                                           left, and last the file in memory to be written
 *   {"do":"hold","disk"}, and a file        likewise, on the disk; behind them all
 *   {"do":"lend","files","folders"}         before all that follows, on the head: paths that a
 *                                           client opened for its job; their descriptors come next
 *   {"do":"plan","type","spec","nodes"}     head only: read the inputs and answer
 *   {"ev":"planned","plan","steps","mirrored","chosen","forecast","speed","pace","shared",
 *                                           "travel"}; perhaps after {"ev":"survey","nodes",
 *                                           "question"}, which {"do":"surveyed","answers"} answers,
 *                                           and {"ev":"travel"} (share/stage_travel.h)
 *   {"do":"measure","question","threads"}   instead of all else: what another head asks
 *   (stage_units.h), {"ev":"measured","answer"}
 *   {"do":"weights","model"}                instead of all else: read all tensors of a model,
 *   {"ev":"weights","model"} (model_facts.h)
 *   {"do":"open","plan","rank","threads"}   map and allocate, answer {"ev":"ready"}
 *   struct ipc_lane, and a socket           a data connection; repeated
 *   {"do":"run"}                            go; ends with {"ev":"done","result"}, {"ev":"left"} or
 *   {"ev":"failed","error","kept"}. While it runs, {"ev":"lane-lost","rank","path","why"} asks for
 *   another connection, and further ones come; {"do":"paths"} names those to keep. Of a training
 *   job, {"ev":"kept","step","error"} says that copies are on this node's disk, or why not;
 *   {"ev":"settled","disk"}, that all have them; {"do":"kept","step","whole"} tells rank 0;
 *   {"ev":"whole"} says that the first ones in memory are all here. Of a generation,
 *   {"ev":"prompt","kept","seed","ids"} is what the daemon keeps for another try. Of a
 *   conversation, {"ev":"answer","result"} says that the next {"do":"turn","turn":{"messages",
 *   "seed"}} may come; without "turn" it is the end. Of a job that serves, {"do":"ask","ask"} and
 *   {"do":"cancel","id","choice"} come at any time (serve/serve_ask.h); what goes back is in
 *   serve/serve_tell.c
 *   {"do":"rest"}                           at any time after "open": let go of this attempt at the
 *   job. At {"ev":"resting"} no data connection, key, copy or slab is left; what was read and
 *   mapped stays for the next "plan" or "open", of the same job
 * It never outlives its daemon. Threads: this one computes; while it runs a second one listens to
 * the daemon; exchange_lane.c adds four per connection. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/common/ipc.h"
#include "daemon/stage/attempt.h"
#include "daemon/stage/stage_bench.h"
#include "daemon/stage/stage_cell.h"
#include "daemon/stage/stage_faults.h"
#include "daemon/stage/stage_lent.h"
#include "daemon/stage/stage_drive.h"
#include "daemon/stage/plan/stage_memory.h"
#include "daemon/stage/plan/stage_shared.h"
#include "daemon/stage/stage_data.h"
#include "daemon/stage/serve/draft_model.h"
#include "daemon/stage/serve/serve.h"
#include "daemon/stage/stage_merge.h"
#include "daemon/stage/stage_text.h"
#include "daemon/stage/plan/stage_units.h"
#include "daemon/stage/share/stage_share.h"
#include "daemon/stage/share/stage_travel.h"
#include "daemon/stage/share/stage_weights.h"
#include "engine/file/maps.h"

struct process {
    json_t *cell; /* owned: what the daemon said of it, or NULL */
    bool is_in_cell;
    struct stage_events events;
    struct progress *progress;
    struct head head;
    struct attempt attempt;
    struct num *num;       /* owned, */
    int asked_threads;     /* for so many */
    struct maps *maps;     /* owned: of the stages of this attempt, and of earlier ones */
    atomic_bool must_rest; /* the daemon said so while the job ran */
    bool is_kept;          /* it has rested before */
    bool is_opening;
    json_t *opening; /* owned: the order that waits for weights, or NULL */
    struct config config;
    char lacked[4096]; /* the model whose missing blocks were asked for last */
};

static int do_plan(struct process *p, const json_t *msg, struct err *err)
{
    const char *name = json_string_value(json_object_get(msg, "type"));
    enum job_type type;
    int r = job_type_read(&type, name ? name : "", err);
    if (r)
        return r;
    p->attempt.is_head = true;
    p->head.planning.must_not_time = json_is_false(json_object_get(msg, "may_time"));
    r = head_plan(&p->head, type, json_object_get(msg, "spec"), json_object_get(msg, "nodes"), err);
    const char *content = json_string_value(json_object_get(msg, "content"));
    if (!p->head.plan.tune.random_init)
        snprintf(p->head.plan.content, sizeof p->head.plan.content, "%s", content ? content : "");
    if (!r && !p->head.spec.dry_run)
        r = weights_of_head(&p->head, err);
    if (r)
        return r;
    json_t *travel;
    r = stage_travel_ask(&travel, &p->head, err);
    if (r)
        return r;
    const struct head_planning *planning = &p->head.planning;
    stage_event(&p->events, "planned",
                json_pack("{s:o s:I s:b s:I s:O* s:O* s:O* s:o* s:o*}", "plan",
                          job_plan_encode(&p->head.plan), "steps", (json_int_t)p->head.steps, "mirrored",
                          (int)planning->is_mirrored, "chosen", (json_int_t)planning->chosen, "forecast",
                          planning->forecast, "speed", planning->speed, "pace", planning->pace, "shared",
                          stage_shared_show(&p->head), "travel", travel));
    return 0;
}

/* For another's plan: nothing is opened that stays. */
static void do_measure(struct process *p, const json_t *msg)
{
    json_t *answer = units_answer(json_object_get(msg, "question"),
                                  (int)json_integer_value(json_object_get(msg, "threads")),
                                  json_is_true(json_object_get(msg, "may_time")));
    stage_event(&p->events, "measured", json_pack("{s:o}", "answer", answer));
}

/* For the doctor: likewise. */
static void do_weights(struct process *p, const json_t *msg)
{
    const char *dir = json_string_value(json_object_get(msg, "model"));
    stage_event(&p->events, "weights",
                json_pack("{s:o}", "model", weights_of_dir(&p->events, dir ? dir : "")));
}

/* The head's node gets files from the one who asks, this one does not. */
static int explain_rights(const struct process *p, int code, struct err *err)
{
    const char *user = json_string_value(json_object_get(p->cell, "user"));
    char text[sizeof err->text];
    if (code != -EACCES || !p->attempt.rank)
        return code;
    snprintf(text, sizeof text, "%s", err->text);
    return err_set(err, code,
                   "%s. Here ringd's user %s opens it, because ringctl hands over files only where it runs: "
                   "use a path that this user can read",
                   text, user ? user : "");
}

/* It takes a while to make. */
static int make_num(struct process *p, int threads, struct err *err)
{
    if (p->num && threads == p->asked_threads)
        return 0;
    num_free(p->num);
    p->num = NULL;
    p->asked_threads = threads;
    return num_new(&p->num, threads, err);
}

/* 1: it was said what is missing of the model, and the daemon answers when that is here. */
static int say_lacks(struct process *p, const char *model, const struct share_ask *ask, struct err *err)
{
    json_t *blocks;
    const int r = share_lacks(&blocks, model, ask, err);
    if (r || !json_array_size(blocks)) {
        json_decref(blocks);
        return r;
    }
    const bool is_said = !strcmp(p->lacked, model);
    snprintf(p->lacked, sizeof p->lacked, "%s", model);
    if (is_said)
        json_decref(blocks);
    else
        stage_event(&p->events, "lacks", json_pack("{s:s s:o}", "model", model, "blocks", blocks));
    return is_said ? err_set(err, -ENODATA,
                             "parts of %s that this rank needs have come, and are not on the disk: `ringctl "
                             "models verify` looks at it",
                             model)
                   : 1;
}

static int find_lacks(struct process *p, struct err *err)
{
    const struct attempt *a = &p->attempt;
    struct share_want own;
    int r = share_want_init(&own, &a->plan, &p->config, a->rank, err);
    if (r)
        return r;
    const bool is_ahead = p->head.draft && draft_model_is_ahead(p->head.draft);
    if (is_ahead) /* the model's head, and what lies behind its last layer */
        own.units[p->config.layers + 1] = own.units[p->config.layers + 2] = true;
    if (!a->plan.tune.random_init)
        r = say_lacks(p, a->plan.model, &(struct share_ask){share_wants, share_wants_lower, &own}, err);
    if (!r && a->draft && !is_ahead)
        r = say_lacks(p, a->draft, &(struct share_ask){.want = NULL}, err);
    share_want_done(&own);
    return r;
}

static void forget_opening(struct process *p)
{
    json_decref(p->opening);
    p->opening = NULL;
    *p->lacked = '\0';
}

/* Once nothing is missing of its models. */
static int open_layers(struct process *p, struct err *err)
{
    const json_t *msg = p->opening;
    int r = find_lacks(p, err);
    if (r > 0)
        return 0;
    if (!r)
        r = attempt_compare(&p->attempt, &p->config, err);
    if (!r)
        r = make_num(p, (int)json_integer_value(json_object_get(msg, "threads")), err);
    if (!r && !p->maps && !(p->maps = maps_new()))
        r = err_set(err, -ENOMEM, "out of memory");
    if (r)
        return explain_rights(p, r, err);
    r = head_open_draft(&p->head, p->num, p->maps, err);
    r = r ? r : attempt_open(&p->attempt, &p->config, p->num, p->maps, err);
    p->is_opening = r;
    forget_opening(p);
    return r;
}

static int do_open(struct process *p, const json_t *msg, struct err *err)
{
    forget_opening(p);
    p->is_opening = true;
    const int r = attempt_admit(&p->attempt, &p->config, msg, err);
    if (r)
        return explain_rights(p, r, err);
    p->opening = json_deep_copy(msg);
    p->attempt.draft = p->head.draft ? draft_model_dir(p->head.draft) : NULL;
    return open_layers(p, err);
}

/* What was missing is here, or does not come. */
static int do_brought(struct process *p, const json_t *msg, struct err *err)
{
    const char *why = json_string_value(json_object_get(msg, "error"));
    return why ? err_set(err, -ENODATA, "parts of %s that this rank needs do not come: %s", p->lacked, why)
               : open_layers(p, err);
}

static int do_connect(struct process *p, struct ipc_lane *lane, int fd, struct err *err)
{
    int r =
        fd < 0 || !p->attempt.exchange
            ? err_set(
                  err, -EBADMSG,
                  "the daemon sent a data connection this stage cannot use: install the same version of both")
            : exchange_add(p->attempt.exchange, lane->rank, lane->path, fd, &lane->tx, &lane->rx, err);
    seal_wipe(&lane->tx);
    seal_wipe(&lane->rx);
    return r;
}

static void on_lane_lost(void *owner, uint32_t rank, uint64_t path, const char *why)
{
    struct process *p = owner;
    stage_event(&p->events, "lane-lost",
                json_pack("{s:I s:I s:s}", "rank", (json_int_t)rank, "path", (json_int_t)path, "why", why));
}

static void keep_paths(struct process *p, const json_t *list)
{
    size_t n = json_array_size(list);
    uint64_t *alive = calloc(n + 1, sizeof *alive);
    for (size_t i = 0; alive && i < n; i++)
        alive[i] = (uint64_t)json_integer_value(json_array_get(list, i));
    if (alive)
        exchange_keep(p->attempt.exchange, alive, n);
    free(alive);
}

/* New lanes while the main thread computes. Ends when the job does, for the main thread then shuts
 * the reading side; or when this process is to rest. */
static void *listen_main(void *arg)
{
    struct process *p = arg;
    struct ipc_lane lane;
    json_t *msg;
    int fd, r;
    while ((r = ipc_receive(IPC_FD, &msg, &lane, &fd)) >= 0) {
        struct err err;
        if (r == 1) {
            if (do_connect(p, &lane, fd, &err) && fd >= 0)
                close(fd);
            continue;
        }
        const char *what = json_string_value(json_object_get(msg, "do"));
        if (what && !strcmp(what, "rest")) {
            atomic_store(&p->must_rest, true);
            exchange_abandon(p->attempt.exchange);
            json_decref(msg);
            break;
        }
        if (what && !strcmp(what, "paths"))
            keep_paths(p, json_object_get(msg, "alive"));
        if (what && !strcmp(what, "kept"))
            atomic_store(&p->head.kept, 2 * (uint64_t)json_integer_value(json_object_get(msg, "step")) +
                                            json_is_true(json_object_get(msg, "whole")));
        const bool is_turn = what && !strcmp(what, "turn");
        json_t *turn =
            is_turn ? json_incref(json_object_get(msg, "turn")) : NULL; /* NULL: the last was said */
        const bool is_ask = what && (!strcmp(what, "ask") || !strcmp(what, "cancel"));
        json_t *ask = is_ask ? json_incref(msg) : NULL;
        if (what && !strcmp(what, "leave")) {
            atomic_store(&p->head.leave,
                         json_is_true(json_object_get(msg, "save")) ? HEAD_SAVES_AND_LEAVES : HEAD_LEAVES);
            ask_inbox_wake(&p->head.asks);
        }
        json_decref(msg);
        if (is_ask)
            ask_inbox_put(&p->head.asks, ask);
        if (is_turn) /* now it is in one thread's hands alone, as jansson wants it */
            chat_inbox_put(&p->head.inbox, turn);
    }
    ask_inbox_put(&p->head.asks, NULL);
    chat_inbox_put(&p->head.inbox, NULL); /* the daemon is gone, or wants no more of this attempt */
    return NULL;
}

static int drive_job(struct process *p, json_t **ret_result, struct err *err)
{
    static int (*const drive[JOB_TYPES])(struct head *, struct runner *, json_t **, struct err *) = {
        head_train, head_generate, head_score, head_serve, head_eval};
    if (!p->attempt.is_head)
        return runner_follow(p->attempt.runner, err);
    int r = head_load(&p->head, p->attempt.runner, err);
    if (!r)
        r = drive[p->attempt.plan.type](&p->head, p->attempt.runner, ret_result, err);
    return r ? r : runner_stop(p->attempt.runner, p->head.has_left, err);
}

/* Only what was read and mapped stays. */
static void rest(struct process *p)
{
    attempt_done(&p->attempt);
    forget_opening(p);
    head_rest(&p->head);
    atomic_store(&p->must_rest, false);
    p->is_kept = true;
    progress_set(p->progress, PROGRESS_IDLE, 0, 0, 0);
    stage_event(&p->events, "resting", json_object());
}

/* The end of a run that came to `r`. Who has left waits for the word to rest. Of a run that fails
 * by itself nothing is used again. */
static int end_run(struct process *p, pthread_t listener, int r, json_t *result, struct err *err)
{
    const bool has_left = !r && runner_has_left(p->attempt.runner);
    if (has_left)
        stage_event(&p->events, "left", json_object());
    const bool rests = has_left || atomic_load(&p->must_rest);
    if (!rests)
        shutdown(IPC_FD, SHUT_RD);
    pthread_join(listener, NULL);
    if (rests && p->head.is_stuck)
        return err_set(err, -EIO, "the disk did not take a save before the end of this attempt at the job");
    if (rests && atomic_load(&p->must_rest) && (!r || r == -ECANCELED)) {
        rest(p);
        return 1;
    }
    if (!r && !rests)
        stage_event(&p->events, "done", json_pack("{s:O}", "result", result ? result : json_null()));
    return r;
}

static int do_run(struct process *p, const json_t *msg, struct err *err)
{
    json_t *result = NULL;
    pthread_t listener;
    exchange_on_lost(p->attempt.exchange, on_lane_lost, p);
    int r = pthread_create(&listener, NULL, listen_main, p);
    if (r)
        return err_set(err, -r, "no thread can be started for the daemon's messages: %s", strerror(r));
    head_take_said(&p->head, json_object_get(msg, "said"));
    r = p->attempt.is_head ? head_restore_read(&p->head, json_object_get(msg, "restore"), err) : 0;
    if (!r)
        r = drive_job(p, &result, err);
    r = end_run(p, listener, r, result, err);
    json_decref(result);
    return r;
}

/* Nothing that comes from outside is looked at before. */
static int enter_cell(struct process *p, const json_t *msg, struct err *err)
{
    int r = p->is_in_cell
                ? 0
                : stage_cell_enter(p->cell, msg, (unsigned)p->attempt.nheld + !!p->attempt.disk, err);
    p->is_in_cell = !r;
    return r;
}

/* on_disk: the last file. */
static int take_held(struct process *p, bool on_disk, int fd, struct err *err)
{
    /* Before the cell nothing else is open, and what has its place there stays. */
    const int to = p->is_in_cell ? fd : IPC_PROGRESS_FD + 1 + (int)p->attempt.nheld;
    if (fd < 0 || (!on_disk && p->attempt.nheld == HOLD_FILES_MAX) || p->attempt.disk ||
        p->attempt.plan.ranks || (fd != to && dup3(fd, to, O_CLOEXEC) < 0))
        return err_set(
            err, -EBADMSG,
            "the daemon sent a file for copies that this stage cannot use: install the same version of both");
    if (fd != to)
        close(fd);
    if (on_disk)
        p->attempt.disk = to;
    else
        p->attempt.held[p->attempt.nheld++] = to;
    return 1;
}

/* Returns 1 to go on, 0 when the job is done, negative on failure. fd: what came with the message,
 * or −1. */
static int obey(struct process *p, const json_t *msg, int fd, struct err *err)
{
    const char *what = json_string_value(json_object_get(msg, "do"));
    if (what && !strcmp(what, "hold"))
        return take_held(p, json_is_true(json_object_get(msg, "disk")), fd, err);
    if (what && !strcmp(what, "cell") && !p->cell) {
        p->cell = json_deep_copy(msg);
        return 1;
    }
    int r = what && !strcmp(what, "lend") && !p->is_in_cell ? stage_lent_take(IPC_FD, msg, err) : 1;
    if (r <= 0)
        return r ? r : 1;
    r = enter_cell(p, msg, err);
    if (r)
        return r;
    r = -EINVAL;
    if (what && !strcmp(what, "measure")) {
        do_measure(p, msg);
        return 0;
    }
    if (what && !strcmp(what, "weights")) {
        do_weights(p, msg);
        return 0;
    }
    if (what && !strcmp(what, "plan"))
        r = do_plan(p, msg, err);
    else if (what && !strcmp(what, "open"))
        r = do_open(p, msg, err);
    else if (what && !strcmp(what, "run") && p->attempt.runner)
        return do_run(p, msg, err);
    else if (what && !strcmp(what, "brought") && p->opening)
        r = do_brought(p, msg, err);
    else if (what && !strcmp(what, "rest") && (p->attempt.runner || p->opening)) {
        rest(p);
        return 1;
    } else
        err_set(
            err, r,
            "the daemon sent an unknown request, \"%s\": install the same version of ringd and ringd-stage",
            what ? what : "");
    return r ? r : 1;
}

static void process_done(struct process *p)
{
    attempt_done(&p->attempt);
    head_done(&p->head); /* what it has opened is of the next two */
    maps_free(p->maps);
    num_free(p->num);
    stage_events_done(&p->events);
    progress_detach(p->progress);
    json_decref(p->opening);
    json_decref(p->cell);
}

/* What a plan lacks may come: the daemon looks who holds it. */
static void say_failed(struct process *p, int r, const char *why, bool kept)
{
    json_t *event = json_pack("{s:s s:b}", "error", why, "kept", (int)kept);
    if (event && r == -ENOSPC && p->head.planning.lacks) {
        json_object_set_new(event, "lacks", json_integer((json_int_t)p->head.planning.lacks));
        json_object_set_new(event, "at", json_string(p->head.planning.lacks_at));
    }
    stage_event(&p->events, "failed", event);
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "merge"))
        return stage_merge_main(argc - 1, argv + 1);
    if (argc > 1 && !strcmp(argv[1], "convert"))
        return stage_convert_main(argc - 1, argv + 1);
    if (argc > 1 && !strcmp(argv[1], "data"))
        return stage_data_main(argc - 1, argv + 1);
    if (argc > 1 && !strcmp(argv[1], "text"))
        return stage_text_main(argc - 1, argv + 1);
    if (argc > 1 && !strcmp(argv[1], "bench"))
        return stage_bench_main(argc - 1, argv + 1);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGPIPE, SIG_IGN);
    struct process p = {.progress = progress_attach(IPC_PROGRESS_FD)};
    if (p.progress)
        faults_watch(p.progress);
    stage_events_init(&p.events, IPC_FD);
    p.attempt = (struct attempt){.events = &p.events, .progress = p.progress};
    head_init(&p.head, &p.events);
    if (argc > 1 || !p.progress) {
        fputs("ringd-stage is started by ringd, one per job; there is nothing to type here.\n", stderr);
        return 2;
    }
    struct err err = {""};
    int r = 1;
    while (r == 1) {
        struct ipc_lane lane;
        json_t *msg;
        int fd;
        r = ipc_receive(IPC_FD, &msg, &lane, &fd);
        if (r < 0) {
            err_set(&err, r, "the daemon is gone");
        } else if (r == 1) {
            int added = do_connect(&p, &lane, fd, &err);
            r = added ? added : 1;
        } else {
            r = obey(&p, msg, fd, &err);
            json_decref(msg);
        }
    }
    if (r == -ENOMEM)
        memory_explain(&err, p.attempt.plan.type,
                       p.attempt.rank < p.attempt.plan.ranks ? p.attempt.plan.bytes[p.attempt.rank] : 0);
    /* Its cell lets it open the files that there were then: a new process may do better. */
    const bool kept = p.is_kept && (p.is_opening || r == -EACCES);
    if (r < 0)
        say_failed(&p, r, err.text, kept);
    process_done(&p);
    return r < 0;
}
