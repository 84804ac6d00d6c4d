/* SPDX-License-Identifier: MIT
 *
 * What clients of a model would see that a ring serves which need not exist: the run on paper of so
 * many streams, whose microbatches hold the rows that serving itself would give them
 * (engine/pipe/rows_order.h). PURE; called by ringctl simulate --serve. */
#ifndef DAEMON_SERVE_FORECAST_H
#define DAEMON_SERVE_FORECAST_H

#include <stddef.h>

#include "engine/err.h"
#include "engine/pipe/rows_order.h"

enum { ROWS_LINE_MOST = 16 };

/* Seconds by rows: straight from point to point, and on beyond the last. */
struct rows_line {
    size_t n;
    size_t rows[ROWS_LINE_MOST]; /* ascending */
    double seconds[ROWS_LINE_MOST];
};
double rows_line_at(const struct rows_line *line, size_t rows); /* of no rows, and of no points: 0 */

/* A node with its layers. */
struct serve_stage {
    size_t layers;
    struct rows_line rows;    /* of a microbatch, by its rows */
    struct rows_line choices; /* of the last: the scores behind rows, by how many */
    double position;          /* a row more for each position before its piece */
    double hop, hop_byte;     /* to the next: a message, and each of its bytes */
    /* Where several nodes stand in its place and gather what each computed: in each microbatch, for
     * each of its rows; and of the last, for the scores of all chosen tokens, and of each. */
    double gather, gather_row, gather_scores, gather_score;
};

struct serve_ring {
    struct rows_limits limits; /* limits.ranks nodes */
    struct serve_stage *stage; /* [limits.ranks] */
    double row_bytes;          /* of a message, between two nodes */
    double choice, text;       /* of each token: choosing it, on the last node; telling it, on the first */
    size_t streams, prompt, tokens; /* all asked for at once; tokens of each prompt and answer */
};

/* So many nodes, alike, in the place of each: each does its part of the work, and gathers what the
 * others computed, four times in a layer and once for scores. */
struct serve_sharing {
    size_t slices;                   /* ≥ 1 */
    double layer_bytes, score_bytes; /* of all of them: of a layer and row, and of a token's scores */
    double once, byte;               /* seconds of a small message, and of each byte */
};
void serve_ring_share(struct serve_ring *ring, const struct serve_sharing *how);

enum { SERVE_STREAMS_MOST = 4096, SERVE_TOKENS_MOST = 1 << 22 }; /* the latter: of all answers */

/* Times in seconds. From the first token of the last stream to begin until the first one ends:
 * tokens a second, and the gaps between tokens of a stream. Busy: shares of all of the time. */
struct serve_forecast {
    double seconds;
    double tokens_per_second;
    double first, first_most; /* until the first token: of the median stream, of the last */
    double gap, gap_p99;
    size_t nodes;
    double *busy, *cable; /* [nodes], owned: computing; the cable to the next node carrying bytes */
};
/* −EINVAL: a number is 0 or too large; −ENOMEM. */
int serve_forecast_make(struct serve_forecast *ret, const struct serve_ring *ring, struct err *err);
void serve_forecast_done(struct serve_forecast *f);

#endif
