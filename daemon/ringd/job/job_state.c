/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/job/job_state.h"

#include <string.h>

#define WORD(w) (1U << JOB_WORD_##w)
/* A stage may fail, end or say something in every state. Once a job stops, its cause is known. */
#define ENDING (WORD(EVENT) | WORD(RELAYED) | WORD(STOPPED))
#define ALWAYS (ENDING | WORD(FAILED))

static const struct job_phase phases[JOB_STATES] = {
    [JOB_QUEUED] = {.name = "QUEUED", .shown = "queued"}, /* job->error says why */
    /* A large data set is tokenized here. */
    [JOB_PLANNING] = {.name = "PLANNING",
                      .shown = "planned",
                      .limit_ms = 900000,
                      .doing = "reading model and data",
                      .answer = JOB_ANSWER_PLAN,
                      .late = JOB_LATE_FAILS,
                      .hears = ALWAYS | WORD(PLANNED),
                      .extends = true},
    /* A cold model is mapped, full fine-tuning reads all of it. */
    [JOB_OPENING] = {.name = "OPENING",
                     .shown = "planned",
                     .limit_ms = 600000,
                     .doing = "opening its layers",
                     .answer = JOB_ANSWER_READY,
                     .late = JOB_LATE_FAILS,
                     .again = JOB_AGAIN_OPEN,
                     .hears = ALWAYS | WORD(READY),
                     .extends = true},
    /* Handshakes between neighbours. A cable that is out for longer than that may come back. */
    [JOB_CONNECTING] = {.name = "CONNECTING",
                        .shown = "planned",
                        .limit_ms = 15000,
                        .doing = "connecting to the next node",
                        .answer = JOB_ANSWER_CONNECTED,
                        .late = JOB_LATE_LOST,
                        .again = JOB_AGAIN_CONNECT,
                        .hears = ALWAYS | WORD(CONNECTED)},
    /* Watched by heartbeats. Its deadline begins with the first stage process that is gone. */
    [JOB_RUNNING] = {.name = "RUNNING",
                     .shown = "running",
                     .late = JOB_LATE_ENDED,
                     .again = JOB_AGAIN_RUN,
                     .hears = ALWAYS | WORD(DONE) | WORD(LEFT)},
    /* A stage gets 2 s to end, then SIGKILL. A rank that gets on with its work has missed the
     * word. */
    [JOB_STOPPING] = {.name = "STOPPING",
                      .shown = "running",
                      .limit_ms = 6000,
                      .doing = "ending its stage process",
                      .answer = JOB_ANSWER_STOPPED,
                      .late = JOB_LATE_GONE,
                      .hears = ENDING | WORD(READY) | WORD(CONNECTED)},
    /* Its stage processes are gone, and nothing is wrong with it: it begins again once its nodes
     * are back, or without them. Its deadline is the user's. */
    [JOB_INTERRUPTED] = {.name = "INTERRUPTED", .shown = "interrupted", .late = JOB_LATE_FEWER},
    /* Its user stopped it after a step, and says when it goes on. It has no nodes. */
    [JOB_PAUSED] = {.name = "PAUSED", .shown = "paused", .late = JOB_LATE_NEVER, .is_aside = true},
    /* Another node took it over, and hands its result back when it ends. It has no nodes. */
    [JOB_MOVED] = {.name = "MOVED", .shown = "moved", .late = JOB_LATE_NEVER, .is_aside = true},
    [JOB_DONE] = {.name = "DONE", .shown = "done", .is_end = true},
    [JOB_FAILED] = {.name = "FAILED", .shown = "failed", .is_end = true},
    [JOB_CANCELLED] = {.name = "CANCELLED", .shown = "cancelled", .is_end = true},
};

const struct job_phase *job_phase(enum job_state s)
{
    return &phases[s];
}

bool job_phase_hears(enum job_state s, enum job_word word)
{
    return phases[s].hears >> word & 1;
}

const char *job_state_name(enum job_state s)
{
    return phases[s].shown;
}

bool job_state_is_known(const char *shown)
{
    for (size_t i = 0; i < JOB_STATES; i++)
        if (!strcmp(shown, phases[i].shown))
            return true;
    return false;
}

bool job_state_ended(enum job_state s)
{
    return phases[s].is_end;
}
