/* SPDX-License-Identifier: MIT
 *
 * Generation, driven from rank 0: prefill in chunks that follow one another through the stages, then a token
 * a round. */
#include "daemon/stage_head.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct gen {
    struct head *h;
    struct runner *r;
    uint32_t *ids; /* owned: new tokens */
    size_t n;
    char *text; /* owned: what they decode to so far */
    size_t length;
    struct tokenizer_stream *stream; /* owned, NULL without a tokenizer */
};

static bool is_eos(const struct config *c, uint32_t id)
{
    for (size_t i = 0; i < c->neos; i++)
        if ((uint32_t)c->eos[i] == id)
            return true;
    return false;
}

/* The prompt, chunk by chunk as microbatches of one round: a later stage works on one while an earlier one
 * has the next. */
static int prefill(struct gen *g, uint32_t *ret_token, struct err *err)
{
    struct head *h = g->h;
    size_t m = h->plan.microbatches, chunk = h->plan.tokens;
    struct head_mb *mb = calloc(m, sizeof *mb);
    struct seqs *seqs = calloc(m, sizeof *seqs);
    uint32_t(*start)[2] = calloc(m, sizeof *start);
    int e = mb && seqs && start ? 0 : err_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < m && !e; i++) {
        size_t left = h->nids - i * chunk;
        start[i][1] = (uint32_t)(left < chunk ? left : chunk);
        seqs[i] = (struct seqs){1, start[i]};
        mb[i].ids = h->ids + i * chunk;
    }
    struct head_round round = {.mb = mb};
    struct go go = {.program = PROGRAM_DECODE,
                    .want_token = true,
                    .temperature = (float)h->spec.temperature,
                    .top_p = (float)h->spec.top_p,
                    .seed = h->spec.seed,
                    .microbatches = m,
                    .mb = seqs};
    if (!e)
        e = runner_round(g->r, &go, &round, err);
    *ret_token = round.token;
    free(mb);
    free(seqs);
    free(start);
    return e;
}

static int decode_next(struct gen *g, uint32_t *token, struct err *err)
{
    const struct job_spec *s = &g->h->spec;
    uint32_t id = *token, start[2] = {0, 1};
    struct head_mb mb = {.ids = &id};
    struct seqs seqs = {1, start};
    struct head_round round = {.mb = &mb};
    struct go go = {.program = PROGRAM_DECODE,
                    .want_token = true,
                    .step = g->n,
                    .at = g->h->nids + g->n - 1,
                    .temperature = (float)s->temperature,
                    .top_p = (float)s->top_p,
                    .seed = s->seed,
                    .microbatches = 1,
                    .mb = &seqs};
    int e = runner_round(g->r, &go, &round, err);
    *token = round.token;
    return e;
}

/* Appends to the text; cuts it at the first stop string, and says so. */
static bool hit_stop(struct gen *g, size_t before)
{
    const json_t *stops = g->h->spec.stop;
    for (size_t i = 0; i < json_array_size(stops); i++) {
        const char *stop = json_string_value(json_array_get(stops, i));
        size_t len = stop ? strlen(stop) : 0;
        if (!len)
            continue;
        const char *at = memmem(g->text + (before > len ? before - len : 0),
                                g->length - (before > len ? before - len : 0), stop, len);
        if (at) {
            g->length = (size_t)(at - g->text);
            g->text[g->length] = 0;
            return true;
        }
    }
    return false;
}

static int take_token(struct gen *g, uint32_t token, bool *stop, struct err *err)
{
    const char *piece = "";
    size_t n = 0, before = g->length;
    g->ids[g->n++] = token;
    if (g->stream && tokenizer_stream_push(g->stream, token, &piece, &n))
        return err_set(err, -ENOMEM, "out of memory");
    char *grown = realloc(g->text, g->length + n + 1);
    if (!grown)
        return err_set(err, -ENOMEM, "out of memory");
    g->text = grown;
    memcpy(g->text + g->length, piece, n);
    g->length += n;
    g->text[g->length] = 0;
    *stop = hit_stop(g, before);
    head_event(
        g->h, "token",
        json_pack("{s:I s:s}", "id", (json_int_t)token, "text", g->length > before ? g->text + before : ""));
    return 0;
}

static int generate(struct gen *g, struct err *err)
{
    uint32_t token;
    int e = prefill(g, &token, err);
    for (bool stop = false; !e && !stop;) {
        if (is_eos(&g->h->config, token))
            break;
        e = take_token(g, token, &stop, err);
        if (e || stop || g->n == g->h->spec.max_tokens)
            break;
        e = decode_next(g, &token, err);
    }
    return e;
}

static json_t *id_list(const uint32_t *ids, size_t n)
{
    json_t *a = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(a, json_integer(ids[i]));
    return a;
}

int head_generate(struct head *h, struct runner *r, json_t **ret_result, struct err *err)
{
    struct gen g = {.h = h, .r = r, .text = strdup("")};
    g.ids = calloc(h->spec.max_tokens, sizeof *g.ids);
    int e = g.ids && g.text ? 0 : err_set(err, -ENOMEM, "out of memory");
    if (!e && h->tok)
        e = tokenizer_stream_new(&g.stream, h->tok, true, err);
    for (size_t i = 0; g.stream && !e && i < h->nids;
         i++) { /* so that the first new token knows what stands before it */
        const char *piece;
        size_t n;
        e = tokenizer_stream_push(g.stream, h->ids[i], &piece, &n);
    }
    if (!e)
        e = generate(&g, err);
    if (!e)
        *ret_result = json_pack("{s:o s:o s:s}", "prompt_ids", id_list(h->ids, h->nids), "ids",
                                id_list(g.ids, g.n), "text", g.text);
    tokenizer_stream_free(g.stream);
    free(g.ids);
    free(g.text);
    return e;
}
