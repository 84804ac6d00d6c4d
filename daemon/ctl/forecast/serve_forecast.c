/* SPDX-License-Identifier: MIT */
#include "daemon/ctl/forecast/serve_forecast.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double ANSWER_BYTES = 8; /* of each token that the last node chose */

/* An answer that is being given. */
struct stream {
    size_t n, computed; /* tokens of prompt and answer; positions that are computed or under way */
    bool is_running, is_in_flight, is_over;
    double *at; /* borrowed [tokens]: when each came */
};

/* A microbatch under way. */
struct paper_flight {
    struct stream **chosen; /* owned [limits.seqs]: whose next tokens it brings, then */
    struct stream **other;  /* owned [limits.seqs]: whose prompts are not read with it */
    size_t nchosen, nother, rows;
    double behind; /* positions, of all rows together */
    double back;   /* when its tokens are back on the first node */
};

struct serving_run {
    const struct serve_ring *ring;
    struct stream *stream;       /* owned [streams], by age */
    double *at;                  /* owned [streams, tokens] */
    struct paper_flight *flight; /* owned [ranks]: a ring, the oldest at `oldest` */
    size_t oldest, nflights, running;
    double now;          /* of the first node */
    double *free, *line; /* owned [ranks]: when a node, and its cable, has nothing more to do */
    double *busy, *cable;
};

/* --- costs ------------------------------------------------------------------------------------ */

double rows_line_at(const struct rows_line *l, size_t rows)
{
    size_t i = 1;
    if (!rows || !l->n)
        return 0;
    if (l->n == 1 || rows <= l->rows[0])
        return l->seconds[0] * (l->n == 1 ? (double)rows / (double)l->rows[0] : 1);
    while (i + 1 < l->n && l->rows[i] < rows)
        i++;
    const double slope = (l->seconds[i] - l->seconds[i - 1]) / (double)(l->rows[i] - l->rows[i - 1]);
    return fmax(l->seconds[i - 1] + slope * ((double)rows - (double)l->rows[i - 1]), 0);
}

static void divide(struct rows_line *line, double parts)
{
    for (size_t i = 0; i < line->n; i++)
        line->seconds[i] /= parts;
}

void serve_ring_share(struct serve_ring *ring, const struct serve_sharing *how)
{
    enum { TIMES = 4 };
    const double parts = (double)how->slices, others = (parts - 1) / parts;
    for (size_t n = 0; n < ring->limits.ranks && how->slices > 1; n++) {
        struct serve_stage *stage = &ring->stage[n];
        divide(&stage->rows, parts);
        divide(&stage->choices, parts);
        stage->position /= parts;
        stage->gather = (double)stage->layers * TIMES * how->once;
        stage->gather_row = (double)stage->layers * how->layer_bytes * others * how->byte;
        stage->gather_scores = how->once;
        stage->gather_score = how->score_bytes * others * how->byte;
    }
}

static double stage_seconds(const struct serving_run *s, size_t node, const struct paper_flight *f)
{
    const struct serve_stage *stage = &s->ring->stage[node];
    const bool is_last = node + 1 == s->ring->limits.ranks;
    const double chosen = (double)f->nchosen, choices = rows_line_at(&stage->choices, f->nchosen) +
                                                        chosen * (s->ring->choice + stage->gather_score) +
                                                        (f->nchosen ? stage->gather_scores : 0);
    return rows_line_at(&stage->rows, f->rows) + stage->position * f->behind + stage->gather +
           stage->gather_row * (double)f->rows + (is_last ? choices : 0);
}

/* --- what pipe/rows_order.h asks -------------------------------------------------------------- */

struct filling_paper {
    struct serving_run *s;
    struct paper_flight *f;
};

static void *next_stream(void *owner, void *seq)
{
    const struct serving_run *s = ((struct filling_paper *)owner)->s;
    struct stream *q = seq ? (struct stream *)seq + 1 : s->stream;
    while (q < s->stream + s->ring->streams && q->is_over)
        q++;
    return q < s->stream + s->ring->streams ? q : NULL;
}

static struct rows_seq look(const void *seq)
{
    const struct stream *q = seq;
    return (struct rows_seq){.is_running = q->is_running,
                             .is_ready = q->is_running && !q->is_in_flight,
                             .left = q->n - q->computed};
}

static int add_rows(struct paper_flight *f, struct stream *q, size_t n)
{
    const bool is_chosen = q->computed + n == q->n;
    f->rows += n;
    f->behind += (double)n * (double)q->computed;
    q->computed += n;
    q->is_in_flight = true;
    if (is_chosen)
        f->chosen[f->nchosen++] = q;
    else
        f->other[f->nother++] = q;
    return is_chosen;
}

/* Nothing is guessed. */
static int add_token(void *owner, void *seq, size_t most)
{
    (void)most;
    return add_rows(((struct filling_paper *)owner)->f, seq, 1);
}

static int add_piece(void *owner, void *seq, size_t n)
{
    return add_rows(((struct filling_paper *)owner)->f, seq, n);
}

/* --- the first node's loop, as serve.c has it ------------------------------------------------- */

static void admit(struct serving_run *s)
{
    const size_t most = rows_running_most(&s->ring->limits);
    for (size_t i = 0; i < s->ring->streams && s->running < most; i++)
        if (!s->stream[i].is_running && !s->stream[i].is_over) {
            s->stream[i].is_running = true;
            s->running++;
        }
}

/* Through the stages behind the first, and back to it: each node takes microbatches in their
 * order, and so does each cable. */
static void send(struct serving_run *s, struct paper_flight *f)
{
    const size_t ranks = s->ring->limits.ranks;
    for (size_t node = 0; node < ranks; node++) {
        const struct serve_stage *stage = &s->ring->stage[node];
        const double took = stage_seconds(s, node, f), from = node ? fmax(f->back, s->free[node]) : s->now,
                     bytes = node + 1 < ranks ? s->ring->row_bytes * (double)f->rows
                                              : ANSWER_BYTES * (double)f->nchosen,
                     carried = ranks > 1 ? stage->hop_byte * bytes : 0;
        s->free[node] = from + took;
        s->busy[node] += took;
        s->line[node] = fmax(s->free[node], s->line[node]) + carried;
        s->cable[node] += carried;
        f->back = s->line[node] + (ranks > 1 ? stage->hop : 0);
    }
    s->now = s->free[0];
}

/* 1: a microbatch was sent. */
static int send_next(struct serving_run *s)
{
    struct paper_flight *f = &s->flight[(s->oldest + s->nflights) % s->ring->limits.ranks];
    struct filling_paper filling = {s, f};
    const struct rows_source source = {&filling, next_stream, look, add_token, add_piece};
    f->nchosen = f->nother = f->rows = 0;
    f->behind = f->back = 0;
    admit(s);
    if (rows_order_next(&s->ring->limits, &source) <= 0)
        return 0;
    send(s, f);
    s->nflights++;
    return 1;
}

static void take_oldest(struct serving_run *s)
{
    struct paper_flight *f = &s->flight[s->oldest];
    const double text = s->ring->text * (double)f->nchosen;
    s->oldest = (s->oldest + 1) % s->ring->limits.ranks;
    s->nflights--;
    s->now += text;
    s->busy[0] += text;
    for (size_t i = 0; i < f->nother; i++)
        f->other[i]->is_in_flight = false;
    for (size_t i = 0; i < f->nchosen; i++) {
        struct stream *q = f->chosen[i];
        q->is_in_flight = false;
        q->at[q->n++ - s->ring->prompt] = s->now;
        q->is_over = q->n - s->ring->prompt == s->ring->tokens;
        q->is_running = !q->is_over;
        s->running -= q->is_over;
    }
}

static void run(struct serving_run *s)
{
    for (bool any = true; any;) {
        if (s->nflights && s->flight[s->oldest].back <= s->now)
            take_oldest(s);
        else if (s->nflights < s->ring->limits.ranks && send_next(s))
            continue;
        else if (s->nflights)
            s->now = s->flight[s->oldest].back;
        else
            any = false;
    }
}

/* --- what clients see ------------------------------------------------------------------------- */

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double share_of(double *x, size_t n, double share)
{
    qsort(x, n, sizeof *x, ascending);
    return n ? x[(size_t)fmin((double)n - 1, floor(share * (double)n))] : 0;
}

static void see(struct serve_forecast *f, const struct serving_run *s, double *room)
{
    const size_t streams = s->ring->streams, tokens = s->ring->tokens;
    double from = 0, to = INFINITY;
    size_t n = 0, in = 0;
    for (size_t i = 0; i < streams; i++) {
        const double *at = s->stream[i].at;
        room[i] = at[0];
        from = fmax(from, at[0]);
        to = fmin(to, at[tokens - 1]);
        f->seconds = fmax(f->seconds, at[tokens - 1]);
    }
    f->first = share_of(room, streams, 0.5);
    f->first_most = from;
    for (size_t i = 0; i < streams; i++)
        for (size_t k = 1; k < tokens; k++) {
            const double *at = s->stream[i].at;
            in += at[k] > from && at[k] <= to;
            if (at[k - 1] >= from && at[k] <= to)
                room[n++] = at[k] - at[k - 1];
        }
    f->tokens_per_second = in ? (double)in / (to - from) : (double)(streams * tokens) / f->seconds;
    f->gap = share_of(room, n, 0.5);
    f->gap_p99 = share_of(room, n, 0.99);
}

/* --- all of it -------------------------------------------------------------------------------- */

static int check(const struct serve_ring *r, struct err *err)
{
    double token = 0;
    if (!r->limits.ranks || !r->limits.seqs || !r->limits.prompt || !r->streams || !r->prompt ||
        r->tokens < 2)
        return err_set(err, -EINVAL,
                       "a forecast of serving needs nodes, streams, prompts and answers of two tokens");
    if (r->streams > SERVE_STREAMS_MOST || r->tokens > SERVE_TOKENS_MOST / r->streams)
        return err_set(
            err, -EINVAL,
            "%zu streams of %zu tokens are too many to simulate: %d streams, and %d tokens together",
            r->streams, r->tokens, SERVE_STREAMS_MOST, SERVE_TOKENS_MOST);
    for (size_t i = 0; i < r->limits.ranks; i++)
        token += rows_line_at(&r->stage[i].rows, 1);
    return token > 0 ? 0 : err_set(err, -EINVAL, "a forecast of serving needs layers that take time");
}

static int serving_init(struct serving_run *s, const struct serve_ring *ring, struct err *err)
{
    const size_t ranks = ring->limits.ranks;
    bool ok = true;
    s->ring = ring;
    s->stream = calloc(ring->streams, sizeof *s->stream);
    s->at = calloc(ring->streams * ring->tokens, sizeof *s->at);
    s->flight = calloc(ranks, sizeof *s->flight);
    s->free = calloc(ranks, sizeof *s->free);
    s->line = calloc(ranks, sizeof *s->line);
    s->busy = calloc(ranks, sizeof *s->busy);
    s->cable = calloc(ranks, sizeof *s->cable);
    for (size_t i = 0; s->flight && i < ranks; i++) {
        s->flight[i].chosen = calloc(ring->limits.seqs, sizeof(struct stream *));
        s->flight[i].other = calloc(ring->limits.seqs, sizeof(struct stream *));
        ok = ok && s->flight[i].chosen && s->flight[i].other;
    }
    if (!ok || !s->stream || !s->at || !s->flight || !s->free || !s->line || !s->busy || !s->cable)
        return err_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < ring->streams; i++)
        s->stream[i] = (struct stream){.n = ring->prompt, .at = s->at + i * ring->tokens};
    return 0;
}

static void serving_done(struct serving_run *s)
{
    for (size_t i = 0; s->flight && i < s->ring->limits.ranks; i++) {
        free(s->flight[i].chosen);
        free(s->flight[i].other);
    }
    free(s->flight);
    free(s->stream);
    free(s->at);
    free(s->free);
    free(s->line);
    free(s->busy);
    free(s->cable);
}

int serve_forecast_make(struct serve_forecast *ret, const struct serve_ring *ring, struct err *err)
{
    struct serving_run s = {0};
    double *room = NULL;
    int r = check(ring, err);
    if (r)
        return r;
    r = serving_init(&s, ring, err);
    if (!r && !(room = calloc(ring->streams * ring->tokens, sizeof *room)))
        r = err_set(err, -ENOMEM, "out of memory");
    if (!r) {
        struct serve_forecast f = {.nodes = ring->limits.ranks, .busy = s.busy, .cable = s.cable};
        run(&s);
        see(&f, &s, room);
        for (size_t i = 0; i < f.nodes; i++) {
            f.busy[i] /= f.seconds;
            f.cable[i] /= f.seconds;
        }
        s.busy = s.cable = NULL;
        *ret = f;
    }
    free(room);
    serving_done(&s);
    return r;
}

void serve_forecast_done(struct serve_forecast *f)
{
    free(f->busy);
    free(f->cable);
    *f = (struct serve_forecast){0};
}
