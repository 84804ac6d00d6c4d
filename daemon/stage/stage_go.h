/* SPDX-License-Identifier: MIT
 *
 * The message that starts a round: which program, on microbatches of which shape. Passed along the
 * ring ahead of the first activations, so that every receive buffer is posted with its exact size
 * before a byte arrives.
 */
#ifndef DAEMON_STAGE_GO_H
#define DAEMON_STAGE_GO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/layer/layer.h"
#include "engine/pipe/plan.h"
#include "engine/text/sample.h"

enum { GO_TOP_MAX = 255, GO_ADJUST_MAX = 2048 };
enum {                    /* as a program: */
       GO_SERVE = 0xfffe, /* microbatches of rows follow (serve/rows_ring.h) */
       GO_STOP = 0xffff   /* the job is over */
};

/* Of one adapter, whose microbatches of the round come after those of the step before. */
struct go_step {
    uint32_t adapter;
    uint64_t step; /* optimizer step, from 1 */
    double dscale; /* 1 / its supervised tokens; of pairs: 1 / those */
    double beta;   /* of pairs: as struct pair_loss has it; else 0 */
};
/* All but TRAIN: of no adapter, the model as it was before. */
#define GO_NO_ADAPTER UINT32_MAX

struct go {
    uint32_t program; /* enum program, or GO_STOP */
    uint32_t round;
    bool state;      /* moves: moments too */
    bool logprobs;   /* DECODE: its log-probability comes with the token */
    uint32_t top;    /* with them: of that many of the likeliest tokens too, at most GO_TOP_MAX */
    bool want_token; /* DECODE */
    bool trace;      /* TRAIN: every rank tells afterwards what it did when */
    bool keep;       /* SAVE: every rank puts its newest copies onto its disk as well */
    bool kept;       /* TRAIN: all ranks have, those of the last time */
    bool hold;       /* TRAIN, RESTORE: every rank copies afterwards what it trains, for a later start */
    /* To rank 1, of a job with copies: what rank 0 has said since the GO before
     * (hold/line_feed.h). */
    const char *lines; /* [nlines], or NULL: nothing */
    size_t nlines;     /* bytes */
    uint64_t
        step; /* TRAIN: of the first of its steps; RESTORE: the one restored; DECODE: index of the new token */
    uint32_t adapter;             /* all but TRAIN: which one it is about */
    uint64_t at;                  /* DECODE: first position */
    struct sample_params choice;  /* DECODE: of the token, at most GO_ADJUST_MAX adjustments */
    size_t nsteps;                /* TRAIN: ≥ 1, with as many microbatches each */
    struct go_step *steps;        /* [nsteps] */
    size_t microbatches;          /* of all of them */
    struct seqs *mb;              /* [microbatches] */
    size_t nrefs;                 /* TRAIN with LOSS_DPO: pairs of all microbatches; else 0 */
    double *refs;                 /* [nrefs] the reference's log p(chosen) − log p(rejected) of each */
    size_t nheld;                 /* RESTORE: units; else 0 */
    uint32_t *held_by;            /* [nheld] the rank that each unit comes from */
    struct sample_adjust *adjust; /* of a decoded GO: what choice.adjust points to, */
    char *own_lines;              /* and what `lines` does */
    /* All offsets behind mb[].start. Of a decoded GO, go_done frees it, mb, steps, adjust,
     * own_lines, refs and held_by. */
    uint32_t *starts;
};

/* lines: the most bytes of them; 0: there are none. */
size_t go_max_size(size_t microbatches, size_t seqs, size_t steps, size_t units, size_t adjusts,
                   size_t lines);
size_t go_encode(uint8_t *out, const struct go *go); /* out of go_max_size bytes; returns the length */
int go_decode(struct go *ret, const uint8_t *in, size_t n, size_t max_tokens); /* −EBADMSG; go_done frees */
void go_done(struct go *go);

#endif
