/* SPDX-License-Identifier: MIT
 *
 * Owns the requests' records until their owners drop them, and what is known of each model. A
 * callback may drop any request, so none is touched after a callback without being looked up. */
#include "daemon/ringd/serve/desk.h"

#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "daemon/common/xalloc.h"
#include "daemon/ringd/ledger.h"
#include "daemon/ringd/serve/desk_read.h"
#include "daemon/ringd/serve/visit_lines.h"
#include "daemon/ringd/timer.h"
#include "net/clock.h"

enum {
    PATIENCE_MS = 600000,
    MOST_BYTES = 64 << 20, /* of requests and of tokens that their answers have so far */
    ASKS_MAX = 4096,       /* two requests with the most inputs of embeddings; each event looks for its own */
    LOSSES_MAX = 3,        /* of stages that worked on a request and said no token of it */
};

static const double seconds_ends[DESK_BUCKETS] = DESK_SECONDS, tokens_ends[DESK_BUCKETS] = DESK_TOKENS;

struct ask_choice {
    json_t *ids;       /* owned: its tokens so far */
    struct instant at; /* when the last of them came */
    bool is_over;
};

struct model_ask {
    LIST_ENTRY(model_ask) next;
    struct desk *d; /* borrowed: owner */
    uint64_t id, job;
    json_t *request;            /* owned */
    struct ask_choice *choices; /* owned [nchoices] */
    size_t nchoices, nover;
    const struct ask_ops *ops; /* borrowed */
    void *owner;
    struct timer *patience; /* owned */
    bool is_begun, is_over; /* is_over: nothing more comes */
    bool is_said;           /* a stage knows of it */
    size_t nprompt;         /* tokens of the prompt whose log-probabilities came */
    unsigned losses;        /* stages that have ended since its last token */
    uint64_t serving;       /* the last time that a stage took requests and this one was looked at */
    size_t bytes;           /* in the ledger */
    struct instant asked;
};

struct desk_entry {
    LIST_ENTRY(desk_entry) next;
    struct desk_model it;
};

struct desk {
    struct desk_setup setup;
    LIST_HEAD(, model_ask) asks;
    LIST_HEAD(, desk_entry) models; /* at most one for each job of this node that serves */
    struct ledger_queue bytes;
    size_t n; /* of asks */
    struct visit_lines lines;
    uint64_t last_id;
    uint64_t serving; /* how often a stage began to take requests */
};

static struct desk_entry *entry_of(const struct desk *d, uint64_t job)
{
    struct desk_entry *m;
    LIST_FOREACH (m, &d->models, next)
        if (m->it.job == job)
            return m;
    return NULL;
}

/* Of the model; NULL: it is gone. */
static struct desk_stats *stats_of(const struct desk *d, uint64_t job)
{
    struct desk_entry *m = entry_of(d, job);
    return m ? &m->it.stats : NULL;
}

static void count(const struct model_ask *a, enum desk_outcome outcome)
{
    struct desk_stats *stats = stats_of(a->d, a->job);
    if (stats)
        stats->outcomes[outcome]++;
}

/* --- the end of a request --------------------------------------------------------------------- */

static bool say(struct model_ask *a, json_t *message)
{
    return !a->d->setup.say(a->d->setup.owner, a->job, message);
}

static void finish(struct model_ask *a)
{
    a->is_over = true;
    timer_stop(a->patience);
}

static void fail(struct model_ask *a, const struct refusal *refusal)
{
    finish(a);
    count(a, DESK_FAILED);
    a->ops->failed(a->owner, refusal);
}

static bool any_asks(const struct desk *d, uint64_t job)
{
    const struct model_ask *a;
    LIST_FOREACH (a, &d->asks, next)
        if (a->job == job)
            return true;
    return false;
}

void ask_drop(struct model_ask *a)
{
    if (!a)
        return;
    struct desk *d = a->d;
    const uint64_t job = a->job;
    if (!a->is_over) {
        count(a, DESK_CANCELLED);
        say(a, json_pack("{s:s s:I}", "do", "cancel", "id", (json_int_t)a->id));
    }
    LIST_REMOVE(a, next);
    d->n--;
    ledger_give(&d->bytes, a->bytes);
    timer_free(a->patience);
    for (size_t i = 0; i < a->nchoices; i++)
        json_decref(a->choices[i].ids);
    free(a->choices);
    json_decref(a->request);
    free(a);
    if (!any_asks(d, job))
        d->setup.asked(d->setup.owner, job, false);
}

static void wait_on(struct model_ask *a)
{
    timer_set_ms(a->patience, a->d->setup.patience_ms ? a->d->setup.patience_ms : PATIENCE_MS);
}

static void on_patience(void *owner)
{
    struct model_ask *a = owner;
    struct refusal refusal;
    say(a, json_pack("{s:s s:I}", "do", "cancel", "id", (json_int_t)a->id));
    refusal_set(
        &refusal, REFUSAL_BUSY, NULL,
        "job %llu, which serves this model, said nothing of this request for %u s: see `ringctl job %llu`",
        (unsigned long long)a->job, (a->d->setup.patience_ms ? a->d->setup.patience_ms : PATIENCE_MS) / 1000,
        (unsigned long long)a->job);
    fail(a, &refusal);
}

/* --- asking ----------------------------------------------------------------------------------- */

/* As it is now: with the tokens that its answers have so far. */
static void ask_stage(struct model_ask *a)
{
    json_t *request = json_copy(a->request), *so_far = json_array();
    size_t have = 0;
    for (size_t i = 0; i < a->nchoices; i++) {
        json_array_append(so_far, a->choices[i].ids);
        have += json_array_size(a->choices[i].ids);
    }
    json_object_set_new(request, "id", json_integer((json_int_t)a->id));
    if (have)
        json_object_set(request, "so_far", so_far);
    json_decref(so_far);
    a->is_said = say(a, json_pack("{s:s s:o}", "do", "ask", "ask", request)) || a->is_said;
    for (size_t i = 0; i < a->nchoices; i++)
        if (a->choices[i].is_over)
            say(a,
                json_pack("{s:s s:I s:I}", "do", "cancel", "id", (json_int_t)a->id, "choice", (json_int_t)i));
}

int desk_ask(struct desk *d, struct model_ask **ret, uint64_t job, json_t *request, size_t choices,
             const struct ask_ops *ops, void *owner, struct refusal *refusal)
{
    const size_t bytes = sizeof(struct model_ask) + json_dumpb(request, NULL, 0, JSON_COMPACT);
    if (d->n == ASKS_MAX) {
        json_decref(request);
        return refusal_set(refusal, REFUSAL_RATE, NULL, "%d requests wait already: ask again in a moment",
                           ASKS_MAX);
    }
    if (!ledger_take(&d->bytes, bytes)) {
        json_decref(request);
        return refusal_set(refusal, REFUSAL_RATE, NULL,
                           "requests that wait fill all the memory for them: ask again in a moment");
    }
    struct model_ask *a = xcalloc(1, sizeof *a);
    *a = (struct model_ask){.d = d,
                            .id = ++d->last_id,
                            .job = job,
                            .request = request,
                            .choices = xcalloc(choices, sizeof *a->choices),
                            .nchoices = choices,
                            .ops = ops,
                            .owner = owner,
                            .bytes = bytes,
                            .asked = clock_now()};
    for (size_t i = 0; i < choices; i++)
        a->choices[i].ids = json_array();
    a->serving = d->serving; /* what serves now hears of it below */
    a->patience = timer_new(d->setup.base, on_patience, a);
    const bool is_first = !any_asks(d, job);
    LIST_INSERT_HEAD(&d->asks, a, next);
    d->n++;
    if (is_first)
        d->setup.asked(d->setup.owner, job, true);
    wait_on(a);
    ask_stage(a);
    *ret = a;
    return 0;
}

static bool wants(const struct model_ask *a, uint64_t job, const char *adapter)
{
    const char *name = json_string_value(json_object_get(a->request, "adapter"));
    return a->job == job && !a->is_over && name && !strcmp(name, adapter);
}

bool desk_wants(const struct desk *d, uint64_t job, const char *adapter)
{
    const struct model_ask *a;
    LIST_FOREACH (a, &d->asks, next)
        if (wants(a, job, adapter))
            return true;
    return false;
}

void desk_rename(struct desk *d, uint64_t job, const char *adapter, const char *former)
{
    const struct model_ask *a;
    LIST_FOREACH (a, &d->asks, next)
        if (wants(a, job, adapter))
            json_object_set_new(a->request, "adapter", json_string(former));
}

/* --- what a stage says ------------------------------------------------------------------------ */

static struct model_ask *find(struct desk *d, uint64_t job, const json_t *event)
{
    const json_t *id = json_object_get(event, "id");
    struct model_ask *a;
    LIST_FOREACH (a, &d->asks, next)
        if (a->job == job && !a->is_over && json_is_integer(id) && a->id == (uint64_t)json_integer_value(id))
            return a;
    return NULL;
}

static struct ask_choice *choice_of(const struct model_ask *a, const json_t *event, size_t *ret_at)
{
    const json_int_t at = json_integer_value(json_object_get(event, "choice"));
    if (!a || at < 0 || (size_t)at >= a->nchoices || a->choices[at].is_over)
        return NULL;
    *ret_at = (size_t)at;
    return &a->choices[at];
}

static void close_choice(struct model_ask *a, struct ask_choice *c)
{
    c->is_over = true;
    if (++a->nover == a->nchoices)
        finish(a);
}

/* Before it serves. */
static void hear_template(struct desk *d, uint64_t job, const json_t *event)
{
    const json_t *text = json_object_get(event, "template");
    struct desk_entry *m = entry_of(d, job);
    if (!m) {
        m = xcalloc(1, sizeof *m);
        m->it.job = job;
        LIST_INSERT_HEAD(&d->models, m, next);
    }
    m->it.format =
        chat_format_of(json_is_string(text) ? json_string_value(text) : "", json_string_length(text));
}

/* One that this stage was not asked yet: looked for from the beginning, since others may go. */
static struct model_ask *next_to_ask(const struct desk *d, uint64_t job)
{
    struct model_ask *a;
    LIST_FOREACH (a, &d->asks, next)
        if (a->job == job && !a->is_over && a->serving != d->serving)
            return a;
    return NULL;
}

/* A request that ends each stage would keep all others from their answers. */
static void give_up(struct model_ask *a)
{
    struct refusal refusal;
    refusal_set(&refusal, REFUSAL_INTERNAL, NULL,
                "%u stages of this model ended one after the other while they worked on this request",
                a->losses);
    fail(a, &refusal);
}

static void hear_serving(struct desk *d, uint64_t job, const json_t *event)
{
    struct desk_entry *m = entry_of(d, job);
    if (!m)
        return;
    m->it.max_context = desk_size_of(event, "max_context");
    m->it.dim = desk_size_of(event, "dim");
    m->it.kv_blocks = desk_size_of(event, "kv_blocks");
    d->serving++;
    for (struct model_ask *a; (a = next_to_ask(d, job));) {
        a->serving = d->serving;
        a->losses += a->is_said;
        if (a->losses > LOSSES_MAX)
            give_up(a);
        else
            ask_stage(a);
    }
}

static void hear_load(struct desk *d, uint64_t job, const json_t *event)
{
    struct desk_entry *m = entry_of(d, job);
    if (!m)
        return;
    desk_model_hear_load(&m->it, event);
}

static double seconds_since(struct instant then)
{
    return 1e-6 * (double)clock_since_us(clock_now(), then);
}

static void count_begun(const struct model_ask *a)
{
    struct desk_stats *stats = stats_of(a->d, a->job);
    if (stats)
        histogram_add(&stats->queue, seconds_ends, seconds_since(a->asked));
}

static void count_token(const struct model_ask *a, struct ask_choice *c)
{
    struct desk_stats *stats = stats_of(a->d, a->job);
    const bool is_first = !json_array_size(c->ids);
    if (stats)
        histogram_add(is_first ? &stats->first : &stats->between, seconds_ends,
                      seconds_since(is_first ? a->asked : c->at));
    c->at = clock_now();
}

static void hear_begun(struct desk *d, uint64_t job, const json_t *event)
{
    struct model_ask *a = find(d, job, event);
    const json_t *tail = json_object_get(event, "tail");
    if (!a)
        return;
    wait_on(a);
    if (a->is_begun) /* once more, after a loss */
        return;
    a->is_begun = true;
    count_begun(a);
    const struct ask_begun begun = {.prompt_tokens = desk_size_of(event, "prompt_tokens"),
                                    .cached_tokens = desk_size_of(event, "cached_tokens"),
                                    .tail = json_is_string(tail) ? json_string_value(tail) : "",
                                    .ntail = json_string_length(tail)};
    if (a->ops->begun)
        a->ops->begun(a->owner, &begun);
}

/* Kept, so that the answer can go on after a loss. */
static bool keep_id(struct model_ask *a, struct ask_choice *c, const json_t *token)
{
    const json_t *id = json_object_get(token, "token");
    const size_t more = 3 * sizeof(json_int_t); /* of a number, roughly */
    if (!json_is_integer(id) || !ledger_take(&a->d->bytes, more))
        return false;
    a->bytes += more;
    a->losses = 0;
    return !json_array_append_new(c->ids, json_integer(json_integer_value(id)));
}

static void hear_token(struct desk *d, uint64_t job, const json_t *token)
{
    struct desk_read read;
    struct refusal refusal;
    size_t at;
    struct model_ask *a = find(d, job, token);
    struct ask_choice *c = choice_of(a, token, &at);
    if (!c || !a->is_begun || !desk_read_token(&read, token) ||
        desk_size_of(token, "n") != json_array_size(c->ids) + 1)
        return; /* of an attempt that is over, or nonsense */
    wait_on(a);
    count_token(a, c);
    if (!keep_id(a, c, token)) {
        refusal_set(&refusal, REFUSAL_BUSY, NULL, "answers under way fill all the memory for them");
        say(a, json_pack("{s:s s:I}", "do", "cancel", "id", (json_int_t)a->id));
        fail(a, &refusal);
        return;
    }
    if (a->ops->token(a->owner, at, &read.token))
        return;
    c = choice_of(a = find(d, job, token), token, &at);
    if (!c)
        return;
    if (a->nover + 1 < a->nchoices)
        say(a, json_pack("{s:s s:I s:I}", "do", "cancel", "id", (json_int_t)a->id, "choice", (json_int_t)at));
    else
        say(a, json_pack("{s:s s:I}", "do", "cancel", "id", (json_int_t)a->id));
    close_choice(a, c);
    if (a->is_over)
        count(a, DESK_STOPPED);
}

static void hear_tokens(struct desk *d, uint64_t job, const json_t *event)
{
    size_t i;
    json_t *token;
    struct desk_stats *stats = stats_of(d, job);
    const size_t n = json_array_size(json_object_get(event, "tokens"));
    if (stats && n)
        histogram_add(&stats->batch, tokens_ends, (double)n);
    json_array_foreach (json_object_get(event, "tokens"), i, token)
        hear_token(d, job, token);
}

/* What a stage says again after a loss is passed over. */
static void hear_prompt(struct desk *d, uint64_t job, const json_t *event)
{
    const size_t first = desk_size_of(event, "at");
    struct desk_read read;
    size_t i;
    json_t *token;
    json_array_foreach (json_object_get(event, "tokens"), i, token) {
        struct model_ask *a = find(d, job, event);
        if (!a || !a->is_begun || !a->ops->prompt || first + i > a->nprompt)
            return;
        wait_on(a);
        if (first + i < a->nprompt || !desk_read_token(&read, token))
            continue;
        const bool is_first = !a->nprompt++;
        a->losses = 0;
        a->ops->prompt(a->owner, &(struct ask_prompt_token){&read.token, is_first, token});
    }
}

static void hear_refused(struct desk *d, uint64_t job, const json_t *event)
{
    static const struct {
        const char *name;
        enum refusal_kind kind;
    } kinds[] = {{"invalid", REFUSAL_INVALID},
                 {"too_long", REFUSAL_TOO_LONG},
                 {"no_model", REFUSAL_NO_MODEL},
                 {"busy", REFUSAL_BUSY}};
    struct model_ask *a = find(d, job, event);
    const char *name = json_string_value(json_object_get(event, "kind")),
               *text = json_string_value(json_object_get(event, "error"));
    enum refusal_kind kind = REFUSAL_INTERNAL;
    struct refusal refusal;
    for (size_t i = 0; name && i < sizeof kinds / sizeof *kinds; i++)
        kind = strcmp(name, kinds[i].name) ? kind : kinds[i].kind;
    refusal_set(&refusal, kind, NULL, "%s", text ? text : "the stage of this model refuses it");
    if (a)
        fail(a, &refusal);
}

static void hear_ended(struct desk *d, uint64_t job, const json_t *event)
{
    struct model_ask *a = find(d, job, event);
    const char *why = json_string_value(json_object_get(event, "why"));
    size_t at;
    struct ask_choice *c = choice_of(a, event, &at);
    if (!c)
        return;
    if (!why || !strcmp(why, "error")) {
        hear_refused(d, job, event);
        return;
    }
    close_choice(a, c);
    if (a->is_over)
        count(a, strcmp(why, "length") ? DESK_STOPPED : DESK_CUT);
    a->ops->ended(a->owner, at, !strcmp(why, "length"));
}

static void hear_answer(struct desk *d, uint64_t job, const json_t *event)
{
    struct model_ask *a = find(d, job, event);
    if (!a || !a->ops->answered)
        return;
    finish(a);
    count(a, DESK_STOPPED);
    a->ops->answered(a->owner, event);
}

static const struct {
    const char *kind;
    void (*hear)(struct desk *d, uint64_t job, const json_t *event);
    bool is_shared; /* who follows the job hears it, too */
} words[] = {{"chat-template", hear_template, false},
             {"serving", hear_serving, true},
             {"load", hear_load, true},
             {"ask-begun", hear_begun, false},
             {"prompt-tokens", hear_prompt, false},
             {"tokens", hear_tokens, false},
             {"ended", hear_ended, false},
             {"refused", hear_refused, false},
             {"embedded", hear_answer, false},
             {"tokenized", hear_answer, false},
             {"detokenized", hear_answer, false}};

bool desk_hear(struct desk *d, uint64_t job, const char *kind, const json_t *event)
{
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcmp(words[i].kind, kind)) {
            words[i].hear(d, job, event);
            return !words[i].is_shared;
        }
    return false;
}

/* --- models, opening and closing -------------------------------------------------------------- */

const struct desk_model *desk_next(const struct desk *d, const struct desk_model *before)
{
    const struct desk_entry *m = before ? LIST_NEXT(entry_of(d, before->job), next) : LIST_FIRST(&d->models);
    return m ? &m->it : NULL;
}

const struct desk_model *desk_model(const struct desk *d, uint64_t job)
{
    const struct desk_entry *m = entry_of(d, job);
    return m && m->it.max_context ? &m->it : NULL;
}

static void forget_model(struct desk_entry *m)
{
    LIST_REMOVE(m, next);
    json_decref(m->it.load);
    free(m);
}

/* One after the other from the beginning, for each may drop others. job 0: of all. */
static void fail_all(struct desk *d, uint64_t job, const struct refusal *refusal)
{
    for (struct model_ask *a = LIST_FIRST(&d->asks); a;) {
        const bool is_meant = !a->is_over && (!job || a->job == job);
        if (is_meant)
            fail(a, refusal);
        a = is_meant ? LIST_FIRST(&d->asks) : LIST_NEXT(a, next);
    }
}

void desk_ended(struct desk *d, uint64_t job, const char *why)
{
    struct refusal refusal;
    struct desk_entry *m = entry_of(d, job);
    if (m)
        forget_model(m);
    refusal_set(&refusal, REFUSAL_INTERNAL, NULL, "job %llu, which served this model, is over: %s",
                (unsigned long long)job, why);
    fail_all(d, job, &refusal);
}

struct desk *desk_new(const struct desk_setup *setup)
{
    struct desk *d = xcalloc(1, sizeof *d);
    d->setup = *setup;
    LIST_INIT(&d->asks);
    LIST_INIT(&d->models);
    ledger_register(setup->ledger, &d->bytes, "asks", MOST_BYTES);
    return d;
}

struct visit_lines *desk_visit_lines(struct desk *d)
{
    return &d->lines;
}

void desk_free(struct desk *d)
{
    struct refusal refusal;
    if (!d)
        return;
    refusal_set(&refusal, REFUSAL_BUSY, NULL, "ringd on this node is stopping");
    fail_all(d, 0, &refusal);
    while (!LIST_EMPTY(&d->models))
        forget_model(LIST_FIRST(&d->models));
    free(d);
}
