/* SPDX-License-Identifier: MIT
 *
 * The states of a job at its head (daemon/ringd/job/job_state.c, job_life.c) and at the two nodes that work on it
 * (worker.c). The control connection between them breaks and comes back, daemons start again, stages fail.
 *
 * The claim: whatever happens, every job ends and every node lets go of its lease. A deadline may pass at any time in a
 * state that has one. That it passes in the end, and that no stage works for ever, is the fairness of the search.
 *
 * BEFORE: the head does not answer a rank of a job that it has forgotten. The search then finds a lease that stays. */
#ifndef JOBS
#define JOBS 2 /* one after the other: the second needs the leases of the first */
#endif
#ifndef TROUBLE
#define TROUBLE 1 /* breaks, restarts and failures together */
#endif
#define TRIES 2   /* of two heads that reach for the same node; somebody cancels the job then */

mtype:word = { OPEN, CONNECT, RUN, STOP, PLANNED, READY, CONNECTED, DONE, FAILED, BUSY, STOPPED };
mtype:head = { QUEUED, PLANNING, OPENING, CONNECTING, RUNNING, STOPPING, ENDED };
mtype:work = { IDLE, AT_PLAN, AT_OPEN, AT_READY, AT_RUN, AT_END };

/* Rank 0 is the node of the head itself: what is said there goes through the mailbox and is not lost. */
chan to_rank[2] = [12] of { mtype:word, byte };
chan to_head[2] = [12] of { mtype:word, byte };

mtype:head head = QUEUED;
bool again;                 /* the job that stops is to be queued again, */
bool waits;                 /* and begins after RETRY_MS, when what was on its way has arrived */
byte tries;
byte job = 1;               /* above JOBS: all have ended */
bool opened;                /* rank 1 has been told of it */
byte is_ready, is_connected, is_stopped; /* a bit for each rank */
#define BOTH 3

mtype:work work[2] = IDLE;
byte lease[2];              /* the job that a node works on */
bool is_connecting[2], reported[2];
bool said_ready[2], said_connected[2], said_failed[2], said_stopped[2]; /* told again when the head is back */

bool linked = true;
bool head_back, rank_back;  /* the connection stands again, and that end has not acted upon it yet */
bool head_gone, rank_gone;  /* out of reach for --dead-after, or there with another boot */
byte trouble;

inline say(c, what, number) {
    assert(nfull(c)); /* the daemon would queue it */
    c ! what, number
}
/* Without a connection nothing is sent: it is told again when there is one. */
inline tell_rank(r, what, number) {
    if
    :: r == 0 || linked -> say(to_rank[r], what, number)
    :: else -> skip
    fi
}
inline tell_head(r, what) {
    if
    :: r == 0 || linked -> say(to_head[r], what, lease[r])
    :: else -> skip
    fi
}

/* --- the head --------------------------------------------------------------------------------- */

inline leave() {
    if
    :: again && tries < TRIES -> tries++
    :: else -> job++; again = false; tries = 0
    fi;
    waits = again; again = false;
    head = (job > JOBS -> ENDED : QUEUED);
    opened = false;
    is_ready = 0; is_connected = 0; is_stopped = 0
}
inline look_stopped() {
    if
    :: is_stopped == BOTH || is_stopped == 1 && !linked -> leave()
    :: else -> skip
    fi
}
inline send_stop() {
    tell_rank(0, STOP, job);
    if
    :: opened -> tell_rank(1, STOP, job)
    :: else -> skip
    fi
}
/* tells: the stages of a job that is done end by themselves. */
inline stop(tells, queue) {
    if
    :: head == QUEUED || head == STOPPING || head == ENDED -> skip
    :: else ->
        again = queue;
        head = STOPPING;
        if
        :: !opened -> is_stopped = is_stopped | 2
        :: else -> skip
        fi;
        if
        :: tells -> send_stop()
        :: else -> skip
        fi;
        look_stopped()
    fi
}
inline all(set, next, what) {
    if
    :: set == BOTH -> head = next; tell_rank(0, what, job); tell_rank(1, what, job)
    :: else -> skip
    fi
}
inline hear(r) {
    if
    :: number != job || head == QUEUED || head == ENDED || (r == 1 && !opened) ->
        if
#ifndef BEFORE
        :: got == READY || got == CONNECTED -> tell_rank(r, STOP, number)
#endif
        :: else -> skip
        fi
    :: else ->
        if
        :: got == PLANNED && head == PLANNING -> opened = true; head = OPENING; tell_rank(0, OPEN, job); tell_rank(1, OPEN, job)
        :: got == READY && head == OPENING -> is_ready = is_ready | (1 << r); all(is_ready, CONNECTING, CONNECT)
        :: got == CONNECTED && head == CONNECTING -> is_connected = is_connected | (1 << r); all(is_connected, RUNNING, RUN)
#ifndef BEFORE
        :: (got == READY || got == CONNECTED) && head == STOPPING ->
            is_stopped = is_stopped & ~(1 << r); tell_rank(r, STOP, job)
#endif
        :: got == DONE && r == 0 && head == RUNNING -> stop(false, false)
        :: got == BUSY && head == OPENING -> stop(true, true)
        :: got == BUSY && head != OPENING || got == FAILED -> stop(true, false)
        :: got == STOPPED ->
            is_stopped = is_stopped | (1 << r);
            if
            :: head == STOPPING -> look_stopped()
            :: else -> skip
            fi
        :: else -> skip
        fi
    fi;
    got = 0; number = 0
}

active proctype Head() {
    mtype:word got;
    byte number;
    do
#define quiet (empty(to_rank[0]) && empty(to_rank[1]) && empty(to_head[0]) && empty(to_head[1]))
    :: atomic { head == QUEUED && work[0] == IDLE && linked && (!waits || quiet) ->
        head = PLANNING; waits = false;
        work[0] = AT_PLAN; lease[0] = job; /* worker_plan is called, not told */
        is_connecting[0] = false; reported[0] = false;
        said_ready[0] = false; said_connected[0] = false; said_failed[0] = false; said_stopped[0] = false }
    :: atomic { head == QUEUED && !linked -> leave() } /* no ring for SETTLE_S */
    :: atomic { to_head[0] ? got, number -> hear(0) }
    :: atomic { to_head[1] ? got, number -> hear(1) }
    /* What it notices by itself. */
    /* A deadline is seconds, a message milliseconds: no more than two are on their way when one passes. */
#define few (len(to_rank[0]) + len(to_rank[1]) + len(to_head[0]) + len(to_head[1]) <= 2)
    :: atomic { few && (head == PLANNING || head == OPENING || head == CONNECTING) -> stop(true, false) }
    :: atomic { few && head == RUNNING && is_stopped != 0 -> stop(true, false) } /* JOB_LATE_ENDED */
    :: atomic { few && head == STOPPING -> send_stop(); leave() }                /* JOB_LATE_GONE */
    :: atomic { head_back ->
        head_back = false;
        if
        :: head == OPENING -> tell_rank(1, OPEN, job)
        :: head == CONNECTING -> tell_rank(1, CONNECT, job)
        :: head == RUNNING -> tell_rank(1, RUN, job)
        :: else -> skip
        fi }
    :: atomic { head_gone -> head_gone = false; stop(true, false) }
    :: atomic { head == STOPPING && !linked -> look_stopped() }
    od
}

/* --- a node that works on it -------------------------------------------------------------------- */

inline tell_failed(r) {
    if
    :: reported[r] -> skip
    :: else -> reported[r] = true; said_failed[r] = true; tell_head(r, FAILED)
    fi
}
inline tell_again(r) {
    if :: said_ready[r] -> tell_head(r, READY) :: else -> skip fi;
    if :: said_connected[r] -> tell_head(r, CONNECTED) :: else -> skip fi;
    if :: said_failed[r] -> tell_head(r, FAILED) :: else -> skip fi;
    if :: said_stopped[r] -> tell_head(r, STOPPED) :: else -> skip fi
}
inline take(r) {
    if
    :: got == OPEN && (work[r] == AT_OPEN || work[r] == AT_READY) && lease[r] == number -> tell_again(r)
    :: got == OPEN && (work[r] == IDLE || work[r] == AT_PLAN && lease[r] == number) ->
        work[r] = AT_OPEN; lease[r] = number;
        is_connecting[r] = false; reported[r] = false;
        said_ready[r] = false; said_connected[r] = false; said_failed[r] = false; said_stopped[r] = false
    :: got == OPEN && work[r] != IDLE && lease[r] != number -> /* refused: of another job */
        if :: r == 0 || linked -> say(to_head[r], BUSY, number) :: else -> skip fi
    :: got == STOP && (work[r] == IDLE || lease[r] != number) -> /* nothing to stop here: say so */
        if :: r == 0 || linked -> say(to_head[r], STOPPED, number) :: else -> skip fi
    :: got == STOP && work[r] != IDLE && lease[r] == number -> reported[r] = true; work[r] = AT_END
    :: got == CONNECT && work[r] != IDLE && lease[r] == number ->
        if
        :: work[r] == AT_READY && !is_connecting[r] -> is_connecting[r] = true
        :: else -> tell_again(r)
        fi
    :: got == RUN && work[r] == AT_READY && lease[r] == number -> work[r] = AT_RUN
    :: else -> skip
    fi;
    got = 0; number = 0
}

proctype Rank(byte r) {
    mtype:word got;
    byte number;
    do
    :: atomic { to_rank[r] ? got, number -> take(r) }
    /* its stage */
    :: atomic { work[r] == AT_PLAN && !reported[r] -> reported[r] = true; tell_head(r, PLANNED) }
    :: atomic { work[r] == AT_OPEN -> work[r] = AT_READY; said_ready[r] = true; tell_head(r, READY) }
    :: atomic { work[r] == AT_READY && is_connecting[r] && !said_connected[r] -> said_connected[r] = true; tell_head(r, CONNECTED) }
    :: atomic { r == 0 && work[0] == AT_RUN && work[1] == AT_RUN && !reported[r] -> reported[r] = true; tell_head(r, DONE); work[r] = AT_END }
    :: atomic { work[r] == AT_RUN && r == 1 && head != RUNNING -> work[r] = AT_END } /* its neighbour's stage has closed */
    :: atomic { work[r] != IDLE && work[r] != AT_END && trouble < TROUBLE -> trouble++; tell_failed(r); work[r] = AT_END }
    :: atomic { work[r] == AT_END -> work[r] = IDLE; said_stopped[r] = true; tell_head(r, STOPPED) } /* SIGTERM, SIGKILL, given up */
    /* its connection with the head */
    :: atomic { r == 1 && rank_back -> rank_back = false; tell_again(r) }
    :: atomic { r == 1 && rank_gone ->
        rank_gone = false;
        if
        :: work[r] == IDLE -> skip
        :: else -> reported[r] = true; work[r] = AT_END
        fi }
    od
}

/* --- what goes wrong ----------------------------------------------------------------------------- */

inline lose() {
    linked = false;
    do :: to_rank[1] ? _, _ :: empty(to_rank[1]) -> break od;
    do :: to_head[1] ? _, _ :: empty(to_head[1]) -> break od;
    head_back = false; rank_back = false
}
active proctype World() {
    run Rank(0); run Rank(1);
    do
    :: atomic { linked && trouble < TROUBLE -> trouble++; lose() }
    :: atomic { !linked -> linked = true; head_back = true; rank_back = true }
    :: atomic { !linked -> head_gone = true; rank_gone = true; linked = true; head_back = true; rank_back = true } /* later than --dead-after */
    /* The daemon of rank 1 starts again: its stage dies with it. The head sees another boot. */
    :: atomic { linked && trouble < TROUBLE ->
        trouble++; lose();
        work[1] = IDLE; lease[1] = 0; rank_gone = false;
        said_ready[1] = false; said_connected[1] = false; said_failed[1] = false; said_stopped[1] = false;
        linked = true; head_gone = true }
    od
}

/* Nothing more can happen: then all is over. */
active proctype Quiet() {
    timeout -> assert(head == ENDED && work[0] == IDLE && work[1] == IDLE)
}
