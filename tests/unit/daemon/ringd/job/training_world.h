/* SPDX-License-Identifier: MIT
 *
 * A training job of a head (head_world.h) that runs, and what its stage says of it. Included after
 * cmocka.h. */
#ifndef TESTS_TRAINING_WORLD_H
#define TESTS_TRAINING_WORLD_H

#include "tests/unit/daemon/ringd/job/head_world.h"

static inline const struct job *train(struct head *h, const char *on_loss, unsigned wait_for)
{
    const struct job *job = submit_spec(h, JOB_TRAIN,
                                        json_pack("{s:s s:s s:s s:i s:s s:i s:s}", "model", "/m", "data",
                                                  "/d", "adapter_out", "/out", "iters", 5, "on_loss", on_loss,
                                                  "wait_for", wait_for, "init_adapter", "/init"));
    say_planned(h, job);
    say_ready(h, job);
    all_say(h, job, "job-connected");
    assert_int_equal(job->state, JOB_RUNNING);
    return job;
}

static inline void step(struct head *h, const struct job *job, unsigned number)
{
    say(h, job, 0, "job-event",
        json_pack("{s:{s:s s:i s:i s:f s:i}}", "event", "ev", "step", "step", number, "steps", 5, "loss", 1.0,
                  "tokens", 8));
}

static inline void saved(struct head *h, const struct job *job, unsigned number)
{
    say(h, job, 0, "job-event",
        json_pack("{s:{s:s s:i s:i}}", "event", "ev", "logged", "step", number, "log_bytes", 100 * number));
    say(h, job, 0, "job-event", json_pack("{s:{s:s s:i}}", "event", "ev", "saved", "step", number));
}

/* The other node's daemon says goodbye. */
static inline void lose_node(struct head *h, const struct job *job)
{
    struct member *self = members_self(h->members);
    link_nodes(h, false);
    self->ended[0][0] = 2;
    self->nended = 1;
    coord_changed(h->coord);
    assert_int_equal(job->state, JOB_STOPPING);
    say(h, job, 0, "job-stopped", json_object());
}

/* Another life of the daemon, on the same disk; the job is what it finds there. */
static inline const struct job *reopen(struct head *h, const struct job *job)
{
    const uint64_t id = job->id;
    coord_free(h->coord);
    open_coord(h, 0, JOB_QUEUED);
    return coord_find(h->coord, id);
}

static inline void take_text(void *arg, const char *json)
{
    *(char **)arg = strdup(json ? json : "");
}

static inline void run(struct head *h, const struct job *job)
{
    say_planned(h, job);
    say_ready(h, job);
    all_say(h, job, "job-connected");
}

/* All ranks hold all units after step 2. */
static inline void say_ready_with_copies(struct head *h, const struct job *job)
{
    for (unsigned r = 0; r < RANKS; r++)
        say(h, job, r, "job-ready",
            json_pack("{s:[[i,i]] s:[{s:i s:[[i,i]]}]}", "layers", r, r + 1, "held", "step", 2, "units", 0,
                      99));
    all_say(h, job, "job-connected");
}

static inline void so_far(struct head *h, const struct job *job, unsigned number, unsigned best)
{
    say(h, job, 0, "job-event",
        json_pack("{s:{s:s s:i s:{s:f s:i}}}", "event", "ev", "so-far", "step", number, "so_far", "best", 1.0,
                  "best_step", best));
}

static inline json_t *step_line(unsigned number)
{
    return json_pack("{s:s s:i s:i s:f s:i}", "ev", "step", "step", number, "steps", 5, "loss", 1.0, "tokens",
                     8);
}

#endif
