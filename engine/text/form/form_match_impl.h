/* SPDX-License-Identifier: MIT
 *
 * The automaton of form_match.h: for form_match.c, form_states.c and form_mask.c. */
#ifndef TEXT_FORM_MATCH_IMPL_H
#define TEXT_FORM_MATCH_IMPL_H

#include "text/form/form_impl.h"
#include "text/form/form_match.h"
#include "text/form/form_tokens_impl.h"

/* States that stand for none. */
enum { STATE_UNKNOWN, STATE_DEAD, STATE_BEYOND, STATE_FIRST };
enum { NO_FRAME = 0, NO_MASK = UINT32_MAX };

/* A rule that waits: where it goes on. Frames with the same content are one. */
struct form_frame_of {
    uint32_t below, op, depth, same; /* same: the next one of its list */
    bool is_used;
};

/* A place in the rules: a step that takes a byte, and its stack. */
struct form_way {
    uint32_t op, frame;
};

struct form_place {
    struct form_way *ways; /* owned [nways], in order; NULL: no such state */
    uint32_t *to;          /* owned [nclasses]: the state after a byte of each class */
    uint32_t nways, holds, mask, same;
    uint64_t hash;
    bool may_end, has_even, has_loops;
    uint64_t even;   /* with has_even: kinds of bytes that all lead to one state, */
    form_state next; /* this one */
    uint64_t loops;  /* with has_loops: what form_mask.c says */
};

struct form_mask_of {
    uint64_t *bits; /* owned */
    form_state state;
    uint64_t used; /* when it was asked for last */
};

/* One of each sort of bytes that may come next in UTF-8, and that the form tells apart. */
struct form_bytes {
    uint8_t at[128];
    size_t n;
};

struct form_match {
    const struct form *form;          /* borrowed */
    const struct form_tokens *tokens; /* borrowed */
    struct form_place *places;        /* owned [nplaces], by state */
    size_t nplaces, places_cap;
    uint32_t *place_lists;        /* owned [LISTS]: by hash */
    uint32_t place_free;          /* the first of a list of states that are no more, by `same` */
    struct form_frame_of *frames; /* owned [nframes]; number 0 is no frame */
    size_t nframes, frames_cap;
    uint32_t *frame_lists, frame_free;
    size_t bytes;                  /* what all states take */
    size_t work;                   /* steps looked at, and memory taken, since the last call from outside */
    bool is_beyond;                /* some way was left out since then */
    bool is_costly;                /* more than FORM_WORK_MAX: what comes of it is no answer */
    bool is_out;                   /* of memory */
    struct form_way *todo, *found; /* owned: of one closure */
    size_t todo_cap, nfound, found_cap;
    uint64_t *seen; /* owned [SEEN]: ways of one closure, as a hash set */
    uint32_t *seen_in, closure;
    struct form_mask_of *masks; /* owned [MASKS] */
    size_t nmasks;
    uint64_t clock;
    form_state *path; /* owned [longest + 1]: of a walk over tokens, */
    bool *is_plain;   /* and whether all bytes above lead back to its first state */
    form_state start;
    struct form_bytes wide[FORM_UTF8_STATES]; /* beyond ASCII, by state of form_utf8_step */
};

enum {
    FORM_LISTS = 1 << 13,
    FORM_SEEN = 1 << 15,            /* more than all steps of a closure */
    FORM_STEPS_MAX = FORM_SEEN / 2, /* steps of a closure */
    FORM_MASKS = 256,
    FORM_WORK_MAX = 1 << 19, /* of one call, */
    FORM_WORK_BYTES = 16,    /* where so many bytes for a state count as one */
    FORM_BYTES_MAX = 8 << 20
};

/* Fills in `wide`. */
void form_find_wide(struct form_match *m);
/* The state after one byte, made where it is new; STATE_DEAD, STATE_BEYOND. */
form_state form_step(struct form_match *m, form_state from, uint8_t byte);
/* The state before any byte; as form_step. */
form_state form_first(struct form_match *m);
/* Whether the last call left something out, as a sentence: −ENOMEM, −E2BIG; else 0. */
int form_match_failed(const struct form_match *m, struct err *err);
/* Forgets all states that nobody holds, where all take too much. */
void form_tidy(struct form_match *m);

#endif
