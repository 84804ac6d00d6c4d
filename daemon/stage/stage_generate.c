/* SPDX-License-Identifier: MIT
 *
 * Generation, driven from rank 0: prefill in chunks that follow one another through the stages,
 * then a token a round; in a conversation, again for what is said next, as long as the caches hold
 * what was said before. Called by the head for a job that generates, and between the steps of one
 * that trains.
 *
 * A job that goes on after a loss brings the caches to where they were. Each prompt is computed in
 * the same chunks as before, and what was generated after it a few tokens at a time, which gives
 * the bits of one at a time: longer chunks add up in another order, and a text may go on in another
 * way then. But no token waits for the one before it, so the stages work at once. */
#include "daemon/stage/stage_drive.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/stage/choice.h"
#include "daemon/stage/plan/stage_of_plan.h"
#include "daemon/stage/stop_text.h"
#include "daemon/stage/token_json.h"
#include "net/clock.h"

enum { TOP_MOST = 20 };

/* What follows from the tokens that are fed. */
struct next {
    bool is_wanted;
    size_t index; /* of the new token in the answer */
    uint32_t token;
    float logprob;
    struct likely likely[TOP_MOST]; /* [spec.top_logprobs] */
};

struct gen {
    struct head *h;
    struct runner *r;
    uint32_t *ids;         /* owned: new tokens */
    size_t n, told;        /* told: the first so many were generated and reported before a loss, */
    const uint32_t *again; /* these: borrowed; */
    bool is_told_again;    /* they are reported once more */
    char *text;            /* owned: what they decode to so far */
    size_t length;
    struct tokenizer_stream *stream; /* owned, NULL without a tokenizer */
    struct go go;                    /* what all rounds have in common */
    size_t most;                     /* tokens */
    size_t kept;                     /* of the prompt: what the caches hold from the answer before */
    size_t fed;                      /* positions the caches hold */
    struct instant first, last;      /* token */
    void *room;                      /* owned: of the choice of a token */
    json_t *tokens;                  /* owned: how likely each was; NULL: nobody asks */
    bool is_sample; /* of a training job: all of it is told at once, under the number of its step */
};

static bool is_eos(const struct config *c, uint32_t id)
{
    for (size_t i = 0; i < c->neos; i++)
        if ((uint32_t)c->eos[i] == id)
            return true;
    return false;
}

/* [n] ids, the first at position `at`, chunk by chunk as microbatches of one round: a later stage
 * works on one while an earlier one has the next. Only the last one is answered by a token. */
static int feed_round(struct gen *g, const uint32_t *ids, size_t at, size_t n, size_t chunk,
                      struct next *next, struct err *err)
{
    const size_t m = (n + chunk - 1) / chunk;
    struct head_mb *mb = calloc(m, sizeof *mb);
    struct seqs *seqs = calloc(m, sizeof *seqs);
    uint32_t(*start)[2] = calloc(m, sizeof *start);
    int e = mb && seqs && start ? 0 : err_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < m && !e; i++) {
        size_t left = n - i * chunk;
        start[i][1] = (uint32_t)(left < chunk ? left : chunk);
        seqs[i] = (struct seqs){1, start[i]};
        mb[i].ids = ids + i * chunk;
    }
    struct head_round round = {.mb = mb, .likely = next->likely};
    struct go go = g->go;
    const struct choice_ids said = {g->h->ids, g->ids, g->h->nids, next->index};
    if (next->is_wanted && !g->is_sample)
        go.choice = choice_next(&g->h->spec, &said, g->room);
    go.logprobs = next->is_wanted && g->tokens;
    go.top = go.logprobs ? (uint32_t)g->h->spec.top_logprobs : 0;
    go.at = at;
    go.want_token = next->is_wanted;
    go.step += g->is_sample ? 0 : next->index;
    go.microbatches = m;
    go.mb = seqs;
    if (!e)
        e = runner_round(g->r, &go, &round, err);
    next->token = round.token;
    next->logprob = round.logprob;
    free(mb);
    free(seqs);
    free(start);
    return e;
}

/* A round has no more microbatches than the plan: enough for the prompt of a generation, perhaps
 * not for that of a sample. */
static int feed(struct gen *g, const uint32_t *ids, size_t at, size_t n, size_t chunk, struct next *next,
                struct err *err)
{
    const size_t most = g->h->plan.microbatches * chunk;
    const bool is_wanted = next->is_wanted;
    int e = 0;
    for (size_t i = 0, now; i < n && !e; i += now) {
        now = n - i < most ? n - i : most;
        next->is_wanted = is_wanted && i + now == n;
        e = feed_round(g, ids + i, at + i, now, chunk, next, err);
    }
    g->fed = at + n;
    return e;
}

/* Of tokens that were generated one by one. */
static size_t chunk_again(const struct head *h)
{
    return h->plan.tokens < STAGE_DECODE_ALIKE ? h->plan.tokens : STAGE_DECODE_ALIKE;
}

/* The prompt, and behind it what was generated before a loss: all of it and the token that comes
 * next, or, where that was the end, all but the last. */
static int prefill(struct gen *g, bool is_over, struct next *next, struct err *err)
{
    const struct head *h = g->h;
    const size_t again = is_over ? g->n - 1 : g->n;
    *next = (struct next){.is_wanted = !is_over && !again};
    int e = feed(g, h->ids + g->kept, g->kept, h->nids - g->kept, h->plan.tokens, next, err);
    if (!e && again) {
        *next = (struct next){.is_wanted = !is_over, .index = again};
        e = feed(g, g->ids, h->nids, again, chunk_again(h), next, err);
    }
    return e;
}

static int decode_next(struct gen *g, struct next *next, struct err *err)
{
    const uint32_t id = next->token;
    *next = (struct next){.is_wanted = true, .index = g->n};
    return feed(g, &id, g->h->nids + g->n - 1, 1, 1, next, err);
}

/* Cuts the text at the first stop string, and says so. */
static bool hit_stop(struct gen *g, size_t before)
{
    const size_t end = stop_text_find(g->h->spec.stop, g->text, g->length, before);
    const bool is_hit = end < g->length;
    g->length = end;
    g->text[end] = 0;
    return is_hit;
}

/* How likely the latest token was: to the list, and to its event. */
static void note_likely(struct gen *g, const struct next *next, json_t *event)
{
    const size_t top = g->h->spec.top_logprobs;
    json_t *token = token_json(g->h->tok, next->token, json_real((double)next->logprob));
    json_object_set(event, "logprob", json_object_get(token, "logprob"));
    if (top) {
        json_object_set_new(token, "top", token_json_top(g->h->tok, next->likely, top));
        json_object_set(event, "top", json_object_get(token, "top"));
    }
    json_array_append_new(g->tokens, token);
}

static int take_token(struct gen *g, const struct next *next, bool *stop, struct err *err)
{
    const char *piece = "";
    size_t n = 0, before = g->length;
    const bool is_again = g->n < g->told;
    g->last = clock_now();
    if (g->n == g->told)
        g->first = g->last;
    g->ids[g->n++] = next->token;
    if (g->stream && tokenizer_stream_push(g->stream, next->token, &piece, &n))
        return err_set(err, -ENOMEM, "out of memory");
    char *grown = realloc(g->text, g->length + n + 1);
    if (!grown)
        return err_set(err, -ENOMEM, "out of memory");
    g->text = grown;
    memcpy(g->text + g->length, piece, n);
    g->length += n;
    g->text[g->length] = 0;
    *stop = hit_stop(g, before);
    json_t *event = json_pack("{s:I s:s}", "id", (json_int_t)next->token, "text",
                              g->length > before ? g->text + before : "");
    if (!g->h->spec.keep_alive)
        json_object_set_new(event, "n", json_integer((json_int_t)g->n));
    if (is_again)
        json_object_set_new(event, "again", json_true());
    if (g->tokens)
        note_likely(g, next, event);
    if (!g->is_sample && (!is_again || g->is_told_again))
        stage_event(g->h->events, "token", event);
    else
        json_decref(event);
    return 0;
}

/* `told` tokens of before, in g->ids. Where it is asked how likely they were, each is chosen again:
 * it is the same. */
static int generate(struct gen *g, struct err *err)
{
    struct next next = {0};
    bool stop = false;
    int e = 0;
    while (g->n < g->told && !g->tokens && !e) {
        next.token = g->ids[g->n];
        e = take_token(g, &next, &stop, err);
    }
    const bool is_over = stop || g->n == g->most;
    if (!e)
        e = prefill(g, is_over, &next, err);
    while (!e && !is_over && !is_eos(&g->h->config, next.token)) {
        e = take_token(g, &next, &stop, err);
        if (e || stop || g->n == g->most)
            break;
        e = decode_next(g, &next, err);
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

static int gen_open(struct gen *g, struct err *err)
{
    const struct head *h = g->h;
    g->text = strdup("");
    g->ids = calloc(g->most, sizeof *g->ids);
    g->tokens = h->spec.logprobs && !g->is_sample ? json_array() : NULL;
    g->room = malloc(choice_room(&h->spec) + 1);
    int e = g->ids && g->text && g->room ? 0 : err_set(err, -ENOMEM, "out of memory");
    if (!e && g->told)
        memcpy(g->ids, g->again, g->told * sizeof *g->ids);
    if (!e && h->tok)
        e = tokenizer_stream_new(&g->stream, h->tok, true, err);
    for (size_t i = 0; g->stream && !e && i < h->nids;
         i++) { /* so that the first new token knows what stands before it */
        const char *piece;
        size_t n;
        e = tokenizer_stream_push(g->stream, h->ids[i], &piece, &n);
    }
    return e;
}

static void gen_done(struct gen *g)
{
    tokenizer_stream_free(g->stream);
    free(g->ids);
    free(g->text);
    free(g->room);
    json_decref(g->tokens);
}

/* Of those after the first, which ends the prompt. */
static json_t *rate_of(const struct gen *g)
{
    const double took = (double)clock_since_us(g->last, g->first) / 1e6;
    const size_t made = g->n - g->told;
    return made > 1 && took > 0 ? json_real((double)(made - 1) / took) : json_null();
}

/* What the daemon keeps of a prompt, should the job lose a node. */
static void report_prompt(const struct gen *g)
{
    const struct head *h = g->h;
    if (h->spec.on_loss != ON_LOSS_STOP)
        stage_event(h->events, "prompt",
                    json_pack("{s:I s:I s:o}", "kept", (json_int_t)g->kept, "seed", (json_int_t)h->spec.seed,
                              "ids", id_list(h->ids + g->kept, h->nids - g->kept)));
}

/* h->ids, answered. What the caches hold after it is written to `known`, as many as there is room
 * for positions. */
static int answer(struct gen *g, json_t **ret_result, uint32_t *known, struct err *err)
{
    const struct head *h = g->h;
    int e = gen_open(g, err);
    const struct instant begin = clock_now();
    if (!e)
        e = generate(g, err);
    if (!e) {
        *ret_result = json_pack(
            "{s:o s:o s:s s:I s:o s:o}", "prompt_ids", id_list(h->ids, h->nids), "ids", id_list(g->ids, g->n),
            "text", g->text, "cached_tokens", (json_int_t)g->kept, "prompt_seconds",
            g->n > g->told ? json_real((double)clock_since_us(g->first, begin) / 1e6) : json_null(),
            "tokens_per_second", rate_of(g));
        if (g->tokens)
            json_object_set(*ret_result, "tokens", g->tokens);
        memcpy(known, h->ids, h->nids * sizeof *known);
        memcpy(known + h->nids, g->ids, (g->fed - h->nids) * sizeof *known);
    }
    gen_done(g);
    return e;
}

static struct gen gen_of(struct head *h, struct runner *r)
{
    return (struct gen){.h = h, .r = r, .most = h->spec.max_tokens, .go = {.program = PROGRAM_DECODE}};
}

/* Waits for what is said next, and makes it the prompt. 1: there is more to answer; 0: nothing
 * came, or the conversation has outgrown the caches, and the job is done. */
static int take_turn(struct head *h, struct runner *r, json_t **turn, struct err *err)
{
    runner_idle(r);
    json_t *next = chat_inbox_wait(&h->inbox, (unsigned)h->spec.keep_alive);
    if (!next)
        return 0;
    json_decref(*turn); /* spec.messages point into it */
    *turn = next;
    h->spec.messages = json_object_get(next, "messages");
    const json_t *seed = json_object_get(next, "seed");
    h->spec.seed = json_is_integer(seed) ? (uint64_t)json_integer_value(seed) : h->spec.seed;
    int e = head_read_chat(h, err);
    if (!e)
        head_say_positions(h, h->nids + h->spec.max_tokens,
                           "the conversation and its next answer together are");
    return e ? e : h->nids + h->spec.max_tokens <= h->plan.positions;
}

/* How far the caches can go back, whatever rank has which layers. */
static size_t steps_back(const struct head *h)
{
    struct stage_spec all = job_plan_stage(&h->plan, &h->config, 0, 0);
    all.end_layer = h->config.layers;
    return stage_steps_back(&all);
}

/* Of the prompt, what the caches hold already; its last token is always computed, for the first new
 * one follows from it. The prompt begins again where the caches cannot go back as far: a state of
 * linear layers is what all positions made of it, and a window is not kept for long. */
static size_t common(const struct head *h, const uint32_t *known, size_t n)
{
    size_t same = 0;
    while (same < n && same + 1 < h->nids && known[same] == h->ids[same])
        same++;
    return n - same > steps_back(h) ? 0 : same;
}

/* Of a conversation that goes on after a loss: what the caches held before its last prompt. */
static int feed_earlier(struct head *h, struct runner *r, struct err *err)
{
    const struct so_far *s = &h->so_far;
    struct gen g = gen_of(h, r);
    struct next next = {0};
    int e = 0;
    for (size_t i = 0; i + 1 < s->n && !e; i++) {
        const struct so_far_turn *t = &s->turns[i];
        const size_t needed = so_far_needed(s, i), chunk = h->plan.tokens;
        if (needed <= t->kept)
            continue;
        size_t n = t->n_ids - t->kept, again = needed > t->n_ids ? needed - t->n_ids : 0;
        if (needed < t->n_ids) /* chunks are computed whole */
            n = (needed - t->kept + chunk - 1) / chunk * chunk;
        n = n < t->n_ids - t->kept ? n : t->n_ids - t->kept;
        again = again < t->n_answer ? again : t->n_answer;
        e = feed(&g, t->ids + t->kept, t->kept, n, chunk, &next, err);
        if (!e)
            e = feed(&g, t->answer, t->n_ids, again, chunk_again(h), &next, err);
    }
    return e;
}

/* The prompt that the job begins with, or of one that goes on the last one, and its answer. */
static int first_answer(struct gen *g, json_t **ret_result, uint32_t *known, struct err *err)
{
    struct head *h = g->h;
    const struct so_far_turn *last = h->so_far.n ? &h->so_far.turns[h->so_far.n - 1] : NULL;
    int e = feed_earlier(h, g->r, err);
    if (last) {
        g->kept = last->kept;
        g->again = last->answer;
        g->told = last->n_answer;
        g->is_told_again = h->so_far.is_told_again;
    } else
        report_prompt(g);
    return e ? e : answer(g, ret_result, known, err);
}

int head_generate(struct head *h, struct runner *r, json_t **ret_result, struct err *err)
{
    uint32_t *known = calloc(h->plan.positions, sizeof *known);
    struct gen g = gen_of(h, r);
    json_t *result = NULL, *turn = NULL;
    int e = known ? first_answer(&g, &result, known, err) : err_set(err, -ENOMEM, "out of memory"), more = 1;
    while (!e && h->spec.keep_alive && more) {
        size_t fed = g.fed;
        stage_event(h->events, "answer", json_pack("{s:O}", "result", result));
        more = take_turn(h, r, &turn, err);
        if (more == 1) {
            g = gen_of(h, r);
            g.kept = common(h, known, fed);
            report_prompt(&g);
            json_decref(result);
            result = NULL;
            e = answer(&g, &result, known, err);
        }
        e = more < 0 ? more : e;
    }
    h->spec.messages = NULL;
    json_decref(turn);
    free(known);
    if (e)
        json_decref(result);
    else
        *ret_result = result;
    return e;
}

int head_sample(struct head *h, struct runner *r, size_t adapter, uint64_t step, char **ret_text,
                struct err *err)
{
    struct gen g = {.h = h, .r = r, .most = h->spec.sample_tokens, .is_sample = true};
    g.go =
        (struct go){.program = PROGRAM_DECODE, .step = step, .adapter = (uint32_t)adapter, .choice.top_p = 1};
    int e = gen_open(&g, err);
    if (!e)
        e = generate(&g, err);
    if (!e) {
        *ret_text = g.text;
        g.text = NULL;
    }
    gen_done(&g);
    return e;
}

/* What is generated goes on from h->ids, and ends by the spec's texts: those of the prompt for
 * now. */
int head_answer(struct head *h, struct runner *r, size_t adapter, uint64_t step, struct head_prompt prompt,
                char **ret_text, struct err *err)
{
    const struct head_prompt own = {h->ids, h->nids, h->spec.stop};
    h->ids = prompt.ids;
    h->nids = prompt.n;
    h->spec.stop = prompt.stop;
    const int e = head_sample(h, r, adapter, step, ret_text, err);
    h->ids = own.ids;
    h->nids = own.n;
    h->spec.stop = own.stop;
    return e;
}
