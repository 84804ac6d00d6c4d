/* SPDX-License-Identifier: MIT
 *
 * The states of a job at its head, as one table: how long each may last, what it waits for, what
 * happens when that does not come, and what ranks may say meanwhile. No behaviour: job_life.c acts
 * on it, job.c shows it. A new state is a row. Pure: any thread. */
#ifndef DAEMON_JOB_STATE_H
#define DAEMON_JOB_STATE_H

#include <stdbool.h>

enum job_state {
    JOB_QUEUED,
    JOB_PLANNING,
    JOB_OPENING,
    JOB_CONNECTING,
    JOB_RUNNING,
    JOB_STOPPING,
    JOB_INTERRUPTED,
    JOB_PAUSED,
    JOB_MOVED,
    JOB_DONE,
    JOB_FAILED,
    JOB_CANCELLED,
    JOB_STATES
};

/* What a rank says to the head of its job. */
enum job_word {
    JOB_WORD_PLANNED,
    JOB_WORD_READY,
    JOB_WORD_CONNECTED,
    JOB_WORD_EVENT,
    JOB_WORD_RELAYED,
    JOB_WORD_FAILED,
    JOB_WORD_DONE,
    JOB_WORD_LEFT,
    JOB_WORD_STOPPED,
    JOB_WORDS
};

/* Which ranks have done what the state waits for. */
enum job_answer {
    JOB_ANSWER_NONE,
    JOB_ANSWER_PLAN,
    JOB_ANSWER_READY,
    JOB_ANSWER_CONNECTED,
    JOB_ANSWER_STOPPED
};

enum job_late {
    JOB_LATE_NEVER,
    JOB_LATE_FAILS, /* the first rank that has not answered is the cause */
    JOB_LATE_LOST,  /* the same, but nothing is wrong with the job itself: it may go on later */
    JOB_LATE_ENDED, /* a stage process is gone, and rank 0 has not said that the job is through */
    JOB_LATE_GONE,  /* the others are asked once more, and not waited for */
    JOB_LATE_FEWER, /* it goes on with the nodes that are there */
};

/* The message that is repeated to a node that was out of reach: it may have missed it. */
enum job_again { JOB_AGAIN_NOTHING, JOB_AGAIN_OPEN, JOB_AGAIN_CONNECT, JOB_AGAIN_RUN };

struct job_phase {
    const char *name;  /* as ARCHITECTURE.md has it */
    const char *shown; /* as the API says it */
    unsigned limit_ms; /* until its deadline; 0: it has none */
    const char *doing; /* what a rank does that has not answered; NULL: no rank is waited for */
    enum job_answer answer;
    enum job_late late;
    enum job_again again;
    unsigned hears; /* 1 << job_word; others are dropped */
    bool extends;   /* while a stage reads, or weights come to it, the limit begins again */
    bool is_aside;  /* it has no nodes, and waits for a word of its user or of another node */
    bool is_end;
};
const struct job_phase *job_phase(enum job_state s);
bool job_phase_hears(enum job_state s, enum job_word word);

const char *job_state_name(enum job_state s); /* job_phase(s)->shown */
bool job_state_ended(enum job_state s);
bool job_state_is_known(const char *shown); /* one of the words of job_state_name */

#endif
