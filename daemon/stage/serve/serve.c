/* SPDX-License-Identifier: MIT */
#include "daemon/stage/serve/serve.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "daemon/stage/plan/stage_of_plan.h"
#include "daemon/stage/serve/serve_impl.h"

/* --- requests --------------------------------------------------------------------------------- */

static int answer_at_once(struct server_run *s, const struct serve_ask *ask, struct err *err)
{
    const bool is_text = ask->kind == ASK_DETOKENIZE;
    json_t *answer =
        is_text ? serve_ask_plain_text(ask, &s->model, err) : serve_ask_tokens(ask, &s->model, err);
    if (answer)
        stage_event(s->head->events, is_text ? "detokenized" : "tokenized", answer);
    return answer ? 0 : -EINVAL;
}

/* A request that cannot be answered is refused; the others go on. */
static void take_ask(struct server_run *s, const json_t *json)
{
    struct serve_ask *ask = NULL;
    struct err err = {""};
    int r = serve_ask_read(&ask, &s->model, json, &err);
    const bool has_rows = !r && ask->kind <= ASK_EMBED;
    if (!r)
        r = has_rows ? seqs_add(s, ask, &err) : answer_at_once(s, ask, &err);
    if (r)
        tell_refused(s, (uint64_t)json_integer_value(json_object_get(json, "id")), r, err.text);
    if (r || !has_rows)
        serve_ask_free(ask);
}

static void take_cancel(struct server_run *s, const json_t *message)
{
    const json_t *choice = json_object_get(message, "choice");
    const uint64_t id = (uint64_t)json_integer_value(json_object_get(message, "id"));
    for (struct seq *q = s->seqs, *next; q; q = next) {
        next = q->next;
        if (q->ask->id == id && (!choice || (json_int_t)q->choice == json_integer_value(choice)))
            seq_end(s, q);
    }
}

/* False: the daemon wants no more. */
static bool take_messages(struct server_run *s)
{
    json_t *message;
    bool is_over = false;
    while ((message = ask_inbox_take(&s->head->asks, &is_over))) {
        const char *what = json_string_value(json_object_get(message, "do"));
        if (!strcmp(what, "ask"))
            take_ask(s, json_object_get(message, "ask"));
        else
            take_cancel(s, message);
        json_decref(message);
    }
    s->head->has_left = atomic_load(&s->head->leave) != HEAD_STAYS;
    return !is_over && !s->head->has_left;
}

/* --- answers ---------------------------------------------------------------------------------- */

static int take_token(struct server_run *s, json_t *list, struct seq *q, struct chosen_token chosen,
                      struct err *err)
{
    const uint32_t id = chosen.token->token;
    if (id >= s->plan->vocab)
        return err_set(err, -EBADMSG, "the last rank chose %u, which is no token of this model", id);
    s->counts.generated++;
    if (seq_ends_with(s, q, id)) {
        q->ending = "stop";
        return 0;
    }
    const int r = seq_append(q, id, &chosen.text, &chosen.n, err);
    if (r || q->ending)
        return r;
    if (form_at_is_over(&q->form))
        q->ending = "stop";
    else if (q->n - q->n_prompt >= q->ask->max_tokens || q->n >= s->plan->positions)
        q->ending = "length";
    return tell_token(s, list, q, &chosen, err);
}

/* What was right of the draft model's guesses, it need not read again. */
static void saw_guesses(struct server_run *s, struct seq *q, size_t guessed, size_t right)
{
    const enum draft_kind kind = q->guessed_by;
    draft_luck_saw(&q->luck[kind], guessed, right);
    draft_luck_saw(&s->known.luck[kind], guessed, right);
    s->counts.guessed[kind] += guessed;
    s->counts.right[kind] += right;
    if (kind == DRAFT_MODEL && q->drafted.n && !draft_model_is_ahead(s->draft))
        q->drafted_to += right < q->fed ? right : q->fed;
}

/* Choices `from` and behind, which are of one sequence: its next token, and the tokens behind
 * guesses that were right. Returns how many choices it has. */
static int take_tokens(struct server_run *s, json_t *list, const struct flight *f, size_t from,
                       const struct rows_answer *a, struct err *err)
{
    struct seq *q = f->of_choice[from];
    size_t n = 1, right = 0;
    while (from + n < f->batch.nchoices && f->of_choice[from + n] == q)
        n++;
    for (size_t i = from; i < from + n && !q->is_dead && !q->ending; i++) {
        const struct rows_choice *c = &f->batch.choices[i];
        struct chosen_token chosen = {.token = rows_answer_token(a, &f->batch, i), .top = c->top};
        const int r = take_token(s, list, q, chosen, err);
        if (r)
            return r;
        if (q->ending || i + 1 == from + n || chosen.token->token != f->ids[c->row + 1])
            break;
        right++;
        q->computed++;
    }
    saw_guesses(s, q, n - 1, right);
    return (int)n;
}

/* Tokens of prompts, which come before those of the answers. */
static int take_scores(struct server_run *s, const struct flight *f, const struct rows_answer *a,
                       struct err *err)
{
    const struct rows_token *token = rows_answer_token(a, &f->batch, f->batch.nchoices);
    int r = 0;
    for (size_t at = 0, n = 0; at < f->batch.nscores && !r; at += n, n = 0) {
        struct seq *q = f->of_score[at];
        const struct rows_token *first = token;
        for (; at + n < f->batch.nscores && f->of_score[at + n] == q; n++)
            token = rows_token_next(token, f->batch.scores[at + n].top);
        r = q->is_dead || q->ending ? 0 : tell_prompt(s, q, first, n, err);
    }
    return r;
}

/* Those that are read to their end, and have no answer. */
static void end_read(const struct flight *f)
{
    for (size_t i = 0; i < f->batch.npieces; i++) {
        struct seq *q = f->of_piece[i];
        if (!q->is_dead && !q->ending && q->ask->has_no_answer && q->computed == q->n)
            q->ending = "length";
    }
}

/* In the order of the text, so that its pieces make no difference. */
static void take_hidden(struct server_run *s, const struct flight *f, const struct rows_answer *a)
{
    struct seq *q = f->hidden;
    const size_t dim = s->plan->dim;
    const float *rows = rows_answer_hidden(a, &f->batch) + (f->first_embedded - f->batch.first_hidden) * dim;
    if (!q || q->is_dead)
        return;
    for (size_t i = 0; i < f->nembedded; i++)
        for (size_t k = 0; k < dim; k++)
            q->ask->sum[k] += (double)rows[i * dim + k];
    if (q->computed == q->n)
        q->ending = "stop";
}

/* A fault of one answer ends the request: nobody waits for its other answers. */
static void seq_over(struct server_run *s, struct seq *q)
{
    const bool is_fault = !strcmp(q->ending, "error");
    for (struct seq *other = is_fault ? s->seqs : NULL, *next; other; other = next) {
        next = other->next;
        if (other != q && other->ask == q->ask)
            seq_end(s, other);
    }
    seq_end(s, q);
}

/* Of so many answers the usual length is known, and before there was one it is FIRST_LENGTH. */
enum { USUAL_OF = 8, FIRST_LENGTH = 128 };

static void answer_ended(struct server_run *s, const struct seq *q)
{
    s->usual_length += ((double)(q->n - q->n_prompt) - s->usual_length) / USUAL_OF;
    tell_ended(s, q);
}

static void land(struct server_run *s, const struct flight *f)
{
    for (size_t i = 0; i < f->batch.npieces; i++) {
        struct seq *q = f->of_piece[i];
        if (!q->is_dead && q->ending) {
            if (q->ask->kind == ASK_EMBED)
                tell_embedded(s, q);
            else
                answer_ended(s, q);
            seq_over(s, q);
        }
        seq_landed(q);
    }
}

static int take_answer(struct server_run *s, struct rows_answer *a, struct err *err)
{
    struct flight f = s->flights[0];
    memmove(s->flights, s->flights + 1, --s->nflights * sizeof *s->flights);
    json_t *list = json_array();
    int e = a->n >= rows_answer_size(&f.batch, s->plan->dim)
                ? 0
                : err_set(err, -EBADMSG, "the last rank answered with %zu bytes, which is too short", a->n);
    if (!f.has_prompt)
        draft_cost_saw(&s->known.cost, f.batch.nrows, (uint64_t)clock_since_us(clock_now(), f.sent_at));
    if (!e)
        e = take_scores(s, &f, a, err);
    for (size_t i = 0; i < f.batch.nchoices && e >= 0; i += (size_t)e)
        if ((e = take_tokens(s, list, &f, i, a, err)) < 0)
            break;
    e = e > 0 ? 0 : e;
    if (!e)
        take_hidden(s, &f, a);
    if (!e)
        guess_from(s, &f, a);
    end_read(&f);
    if (!e && json_array_size(list))
        stage_event(s->head->events, "tokens", json_pack("{s:O}", "tokens", list));
    json_decref(list);
    land(s, &f);
    flight_done(&f);
    rows_ring_release(&s->ring, a);
    return e;
}

/* --- its life --------------------------------------------------------------------------------- */

static bool may_send(const struct server_run *s)
{
    return s->nflights < job_plan_places(s->plan);
}

/* 1: a microbatch was sent; 0: there is nothing to compute now. */
static int send_next(struct server_run *s, struct err *err)
{
    struct rows_answer answer = {0};
    struct flight f;
    bool any;
    int e = flight_fill(s, &f, &any, err);
    if (e || !any)
        return e;
    f.mb = ++s->last_mb;
    f.sent_at = clock_now();
    s->flights[s->nflights++] = f;
    e = rows_ring_send(&s->ring, f.mb, &f.batch, f.ids, &answer, err);
    if (!e && job_plan_places(s->plan) == 1)
        e = take_answer(s, &answer, err);
    return e ? e : 1;
}

/* 1: an answer came; 0: none is here. */
static int hear(struct server_run *s, struct err *err)
{
    struct rows_answer answer = {0};
    int e = s->nflights ? rows_ring_answer(&s->ring, s->flights[0].mb, &answer, err) : 0;
    if (e == 1)
        e = take_answer(s, &answer, err);
    else
        return e;
    return e ? e : 1;
}

static int serve_loop(struct server_run *s, struct runner *r, struct err *err)
{
    int e = 0;
    while (!e && take_messages(s)) {
        tell_load(s, false);
        e = hear(s, err);
        if (!e && may_send(s))
            e = send_next(s, err);
        if (e > 0) {
            e = 0;
        } else if (!e && s->nflights) {
            rows_ring_wait(&s->ring, s->flights[0].mb);
        } else if (!e) {
            tell_load(s, true);
            runner_idle(r);
            ask_inbox_wait(&s->head->asks);
        }
    }
    while (!e && s->nflights) { /* what is on its way comes home, before the ring is used for other things */
        e = hear(s, err);
        if (!e && s->nflights)
            rows_ring_wait(&s->ring, s->flights[0].mb);
        e = e > 0 ? 0 : e;
    }
    return e ? e : rows_ring_end(&s->ring, s->last_mb + 1, err);
}

/* What ends an answer: for forms, which let it come where they are complete. */
static int name_ends(struct server_run *s, struct err *err)
{
    const struct config *c = &s->head->config;
    struct serve_forms *forms = &s->model.forms;
    const char *end = s->model.tpl ? chat_template_token(s->model.tpl, "eos_token") : NULL;
    forms->ends = calloc(c->neos + 1, sizeof *forms->ends);
    if (!forms->ends)
        return err_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < c->neos; i++)
        if ((size_t)c->eos[i] < s->plan->vocab)
            forms->ends[forms->nends++] = (uint32_t)c->eos[i];
    if (end && s->head->tok && !tokenizer_id(s->head->tok, end, &forms->ends[forms->nends]) &&
        forms->ends[forms->nends] < s->plan->vocab)
        forms->nends++;
    forms->tok = s->head->tok;
    forms->vocab = s->plan->vocab;
    return 0;
}

/* On some rank. */
static bool has_state(const struct head *h)
{
    struct stage_spec all = job_plan_stage(&h->plan, &h->config, 0, 0);
    all.end_layer = h->config.layers;
    return stage_has_state(&all);
}

static int serve_open(struct server_run *s, struct head *h, struct runner *r, struct err *err)
{
    struct err why;
    uint64_t salt = 0;
    *s = (struct server_run){.model = {.head = h}, .head = h, .plan = &h->plan, .reported_at = clock_now()};
    if (chat_template_open(&s->model.tpl, h->spec.model, &why))
        memcpy(s->model.why, why.text, sizeof s->model.why);
    if (getrandom(&salt, sizeof salt, GRND_NONBLOCK) != sizeof salt)
        salt = (uint64_t)clock_now().us;
    s->pool = kv_pool_new(s->plan->kv_blocks, salt);
    s->has_state = has_state(h);
    s->kept = kept_states_new(s->plan->kept_states);
    s->nstates = job_plan_states(s->plan);
    s->states = calloc(s->nstates, sizeof *s->states);
    for (size_t i = 0; s->states && i < s->nstates; i++)
        s->states[i] = (uint32_t)i;
    int e = s->pool && s->states && s->kept ? name_ends(s, err) : err_set(err, -ENOMEM, "out of memory");
    s->draft = h->draft;
    s->usual_length = FIRST_LENGTH;
    e = e ? e : guessing_new(s, err);
    return e ? e : runner_serve(r, &s->ring, err);
}

static void serve_done(struct server_run *s)
{
    for (size_t i = 0; i < s->nflights; i++) {
        for (size_t k = 0; k < s->flights[i].batch.npieces; k++)
            seq_landed(s->flights[i].of_piece[k]);
        flight_done(&s->flights[i]);
    }
    while (s->seqs)
        seq_end(s, s->seqs);
    guessing_free(s->guessing);
    kv_pool_free(s->pool);
    kept_states_free(s->kept);
    free(s->states);
    serve_forms_done(&s->model.forms);
    chat_template_close(s->model.tpl);
}

int head_serve(struct head *h, struct runner *r, json_t **ret_result, struct err *err)
{
    struct server_run s;
    int e = serve_open(&s, h, r, err);
    if (!e) {
        tell_serving(&s);
        e = serve_loop(&s, r, err);
    }
    serve_done(&s);
    *ret_result = NULL;
    return e;
}
