/* SPDX-License-Identifier: MIT
 *
 * The desk between clients and the stage that serves a model: what is asked is said, what comes
 * finds its way, and after a loss it is asked again behind the tokens that there are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ringd/serve/desk.h"

enum { JOB = 7 };

static struct world {
    struct event_base *base;
    struct desk *desk;
    struct model_ask *ask;
    json_t *said;  /* owned: what the stage was told, a list */
    bool is_gone;  /* there is no stage */
    bool has_asks; /* as the desk said last */
    size_t asked;  /* how often it did */
    size_t wanted; /* tokens of each choice */
    size_t begun, ended, cut, answered, failed;
    size_t tokens[2];
    char text[2][64];
    struct refusal refusal;
    struct ask_begun last_begun;
    char prompt[64]; /* texts of its tokens; the first, which is not scored, in brackets */
} world;

static int say(void *owner, uint64_t job, json_t *message)
{
    struct world *w = owner;
    assert_int_equal(job, JOB);
    if (w->is_gone) {
        json_decref(message);
        return -ENOTCONN;
    }
    json_array_append_new(w->said, message);
    return 0;
}

static void on_asked(void *owner, uint64_t job, bool has_asks)
{
    struct world *w = owner;
    assert_int_equal(job, JOB);
    w->has_asks = has_asks;
    w->asked++;
}

static void on_begun(void *owner, const struct ask_begun *begun)
{
    struct world *w = owner;
    w->begun++;
    w->last_begun = *begun;
}

static void on_prompt(void *owner, const struct ask_prompt_token *token)
{
    struct world *w = owner;
    const size_t n = strlen(w->prompt);
    assert_ptr_equal(json_string_value(json_object_get(token->said, "text")), token->token->self.text);
    snprintf(w->prompt + n, sizeof w->prompt - n, token->is_first ? "(%s)" : "%s%.0f",
             token->token->self.text, token->token->self.logprob);
}

static bool on_token(void *owner, size_t choice, const struct reply_token *token)
{
    struct world *w = owner;
    assert_true(choice < 2 && strlen(w->text[choice]) + token->self.n < sizeof w->text[choice]);
    strncat(w->text[choice], token->self.text, token->self.n);
    return ++w->tokens[choice] < w->wanted;
}

static void on_ended(void *owner, size_t choice, bool is_cut)
{
    struct world *w = owner;
    (void)choice;
    w->ended++;
    w->cut += is_cut;
}

static void on_answered(void *owner, const json_t *event)
{
    struct world *w = owner;
    w->answered += json_is_object(event);
}

static void on_failed(void *owner, const struct refusal *refusal)
{
    struct world *w = owner;
    w->failed++;
    w->refusal = *refusal;
    ask_drop(w->ask);
    w->ask = NULL;
}

static const struct ask_ops text_ops = {
    .begun = on_begun, .prompt = on_prompt, .token = on_token, .ended = on_ended, .failed = on_failed};
static const struct ask_ops plain_ops = {.answered = on_answered, .failed = on_failed};

static int start(void **state)
{
    world = (struct world){.base = event_base_new(), .said = json_array(), .wanted = 100};
    world.desk =
        desk_new(&(struct desk_setup){.base = world.base, .say = say, .asked = on_asked, .owner = &world});
    *state = &world;
    return 0;
}

static int stop(void **state)
{
    struct world *w = *state;
    ask_drop(w->ask);
    desk_free(w->desk);
    json_decref(w->said);
    event_base_free(w->base);
    return 0;
}

static void ask(struct world *w, size_t choices)
{
    struct refusal refusal;
    assert_int_equal(desk_ask(w->desk, &w->ask, JOB, json_pack("{s:s}", "kind", "text"), choices,
                              choices ? &text_ops : &plain_ops, w, &refusal),
                     0);
}

static void hear(struct world *w, const char *kind, const char *event)
{
    json_t *json = json_loads(event, 0, NULL);
    assert_non_null(json);
    const bool is_shared = !strcmp(kind, "serving") || !strcmp(kind, "load");
    assert_int_equal(desk_hear(w->desk, JOB, kind, json), !is_shared);
    json_decref(json);
}

/* The stage takes requests. */
static void serve(struct world *w, const char *event)
{
    hear(w, "chat-template", "{\"template\":null}");
    hear(w, "serving", event);
}

static void token(struct world *w, int choice, int n, int id, const char *text)
{
    json_t *event = json_pack("{s:[{s:i s:i s:i s:i s:s}]}", "tokens", "id", 1, "choice", choice, "n", n,
                              "token", id, "text", text);
    desk_hear(w->desk, JOB, "tokens", event);
    json_decref(event);
}

/* What the stage was told last, and is forgotten. */
static void assert_said(struct world *w, const char *wanted)
{
    char *text = json_dumps(w->said, JSON_COMPACT | JSON_SORT_KEYS);
    assert_string_equal(text, wanted);
    free(text);
    json_array_clear(w->said);
}

static void a_request_is_answered_token_by_token(void **state)
{
    struct world *w = *state;
    ask(w, 1);
    assert_said(w, "[{\"ask\":{\"id\":1,\"kind\":\"text\"},\"do\":\"ask\"}]");
    token(w, 0, 1, 5, "early"); /* before it has begun: of an earlier life of the stage */
    hear(w, "ask-begun", "{\"id\":1,\"prompt_tokens\":9,\"cached_tokens\":4,\"tail\":\"<think>\"}");
    assert_int_equal(w->last_begun.prompt_tokens, 9);
    assert_int_equal(w->last_begun.cached_tokens, 4);
    token(w, 0, 1, 5, "a");
    token(w, 0, 1, 5, "a"); /* said twice */
    token(w, 0, 2, 6, "b");
    token(w, 1, 1, 6, "x"); /* of a choice that there is not */
    hear(w, "ended", "{\"id\":1,\"choice\":0,\"why\":\"length\"}");
    assert_string_equal(w->text[0], "ab");
    assert_true(w->begun == 1 && w->ended == 1 && w->cut == 1);
    token(w, 0, 3, 6, "late");
    assert_string_equal(w->text[0], "ab");
    ask_drop(w->ask);
    w->ask = NULL;
    assert_said(w, "[]"); /* it is over: there is nothing to cancel */
}

static void after_a_loss_it_goes_on_behind_its_tokens(void **state)
{
    struct world *w = *state;
    ask(w, 2);
    hear(w, "ask-begun", "{\"id\":1,\"prompt_tokens\":9,\"cached_tokens\":0}");
    token(w, 0, 1, 5, "a");
    token(w, 0, 2, 6, "b");
    token(w, 1, 1, 8, "x");
    hear(w, "ended", "{\"id\":1,\"choice\":1,\"why\":\"stop\"}");
    json_array_clear(w->said);
    serve(w, "{\"max_context\":64,\"dim\":4,\"kv_blocks\":8}");
    assert_said(w, "[{\"ask\":{\"id\":1,\"kind\":\"text\",\"so_far\":[[5,6],[8]]},\"do\":\"ask\"},"
                   "{\"choice\":1,\"do\":\"cancel\",\"id\":1}]");
    hear(w, "ask-begun", "{\"id\":1,\"prompt_tokens\":9,\"cached_tokens\":0}");
    token(w, 0, 3, 7, "c");
    assert_string_equal(w->text[0], "abc");
    assert_int_equal(w->begun, 1); /* the client was told */
    assert_int_equal(desk_model(w->desk, JOB)->max_context, 64);
}

/* What is said again after a loss is heard once. */
static void tokens_of_a_prompt_come_once(void **state)
{
    struct world *w = *state;
    ask(w, 1);
    hear(w, "prompt-tokens", "{\"id\":1,\"at\":0,\"tokens\":[{\"text\":\"early\"}]}");
    hear(w, "ask-begun", "{\"id\":1,\"prompt_tokens\":4}");
    hear(w, "prompt-tokens", "{\"id\":1,\"at\":1,\"tokens\":[{\"text\":\"gap\"}]}");
    hear(w, "prompt-tokens", "{\"id\":1,\"at\":0,\"tokens\":[{\"text\":\"a\",\"logprob\":null}]}");
    hear(w, "prompt-tokens",
         "{\"id\":1,\"at\":1,\"tokens\":[{\"text\":\"b\",\"logprob\":-1},{\"text\":\"c\",\"logprob\":-2}]}");
    assert_string_equal(w->prompt, "(a)b-1c-2");
    serve(w, "{\"max_context\":64}");
    hear(w, "ask-begun", "{\"id\":1,\"prompt_tokens\":4}");
    hear(w, "prompt-tokens", "{\"id\":1,\"at\":0,\"tokens\":[{\"text\":\"a\",\"logprob\":null}]}");
    hear(w, "prompt-tokens",
         "{\"id\":1,\"at\":1,\"tokens\":[{\"text\":\"b\",\"logprob\":-1},{\"text\":\"c\",\"logprob\":-2},"
         "{\"text\":\"d\",\"logprob\":-3}]}");
    assert_string_equal(w->prompt, "(a)b-1c-2d-3");
    hear(w, "ended", "{\"id\":1,\"choice\":0,\"why\":\"length\"}");
    assert_true(w->ended == 1 && w->cut == 1);
}

/* One that ends every stage would keep all others from their answers. */
static void what_ends_stage_after_stage_is_given_up(void **state)
{
    struct world *w = *state;
    ask(w, 1);
    hear(w, "ask-begun", "{\"id\":1,\"prompt_tokens\":9}");
    for (int i = 0; i < 3; i++)
        serve(w, "{\"max_context\":64}");
    token(w, 0, 1, 5, "a"); /* it is not the request */
    for (int i = 0; i < 3; i++)
        serve(w, "{\"max_context\":64}");
    assert_int_equal(w->failed, 0);
    serve(w, "{\"max_context\":64}");
    assert_int_equal(w->failed, 1);
    assert_non_null(strstr(w->refusal.text, "4 stages of this model ended"));
}

static void what_is_asked_while_there_is_no_stage_is_asked_later(void **state)
{
    struct world *w = *state;
    w->is_gone = true;
    ask(w, 1);
    w->is_gone = false;
    serve(w, "{\"max_context\":64,\"dim\":4,\"kv_blocks\":8}");
    assert_said(w, "[{\"ask\":{\"id\":1,\"kind\":\"text\"},\"do\":\"ask\"}]");
}

static void what_nobody_wants_is_cancelled(void **state)
{
    struct world *w = *state;
    ask(w, 2);
    hear(w, "ask-begun", "{\"id\":1,\"prompt_tokens\":9}");
    json_array_clear(w->said);
    w->wanted = 1;
    token(w, 0, 1, 5, "a"); /* a stop string, say */
    assert_said(w, "[{\"choice\":0,\"do\":\"cancel\",\"id\":1}]");
    token(w, 1, 1, 5, "b");
    assert_said(w, "[{\"do\":\"cancel\",\"id\":1}]");
    ask_drop(w->ask);
    w->ask = NULL;
    ask(w, 1);
    json_array_clear(w->said);
    ask_drop(w->ask); /* its client has left */
    w->ask = NULL;
    assert_said(w, "[{\"do\":\"cancel\",\"id\":2}]");
}

static uint64_t count_of(const struct histogram *h)
{
    uint64_t n = 0;
    for (size_t i = 0; i < sizeof h->counts / sizeof *h->counts; i++)
        n += h->counts[i];
    return n;
}

/* The first token of a choice is one time, each further one another; a stage that begins again
 * counts nothing twice. */
static void the_times_of_a_request_are_counted(void **state)
{
    struct world *w = *state;
    serve(w, "{\"max_context\":64}");
    ask(w, 2);
    const struct desk_stats *stats = &desk_model(w->desk, JOB)->stats;
    hear(w, "ask-begun", "{\"id\":1,\"prompt_tokens\":9}");
    token(w, 0, 1, 5, "a");
    token(w, 1, 1, 5, "x");
    token(w, 0, 2, 6, "b");
    token(w, 0, 2, 6, "b"); /* said twice */
    serve(w, "{\"max_context\":64}");
    hear(w, "ask-begun", "{\"id\":1,\"prompt_tokens\":9}");
    token(w, 0, 3, 7, "c");
    assert_int_equal(count_of(&stats->queue), 1);
    assert_int_equal(count_of(&stats->first), 2);
    assert_int_equal(count_of(&stats->between), 2);
}

/* One of them may be a list of thousands of texts. */
static void so_many_wait_and_no_more(void **state)
{
    struct world *w = *state;
    struct model_ask *asks[5000];
    struct refusal refusal;
    size_t n = 0;
    while (n < 5000 &&
           !desk_ask(w->desk, &asks[n], JOB, json_pack("{s:s}", "kind", "embed"), 0, &plain_ops, w, &refusal))
        n++;
    assert_int_equal(n, 4096);
    assert_int_equal(refusal_openai_status(&refusal), 429);
    assert_int_equal(refusal_anthropic_status(&refusal), 429);
    ask_drop(asks[--n]);
    ask(w, 1);
    while (n)
        ask_drop(asks[--n]);
}

static void a_refusal_has_its_kind(void **state)
{
    struct world *w = *state;
    ask(w, 1);
    hear(w, "refused", "{\"id\":1,\"kind\":\"too_long\",\"error\":\"it is too long\"}");
    assert_int_equal(w->failed, 1);
    assert_int_equal(w->refusal.kind, REFUSAL_TOO_LONG);
    assert_string_equal(w->refusal.text, "it is too long");
    ask(w, 0);
    hear(w, "embedded", "{\"id\":2,\"values\":[]}");
    hear(w, "embedded", "{\"id\":2,\"values\":[]}");
    assert_int_equal(w->answered, 1);
}

static void the_end_of_the_job_ends_its_requests(void **state)
{
    struct world *w = *state;
    ask(w, 1);
    serve(w, "{\"max_context\":64}");
    desk_ended(w->desk, JOB, "it was stopped");
    assert_int_equal(w->failed, 1);
    assert_non_null(strstr(w->refusal.text, "it was stopped"));
    assert_null(desk_model(w->desk, JOB));
    ask(w, 1);
    desk_free(w->desk);
    w->desk = NULL;
    assert_int_equal(w->failed, 2);
    assert_int_equal(w->refusal.kind, REFUSAL_BUSY);
}

static void what_a_model_works_on_is_shown(void **state)
{
    struct world *w = *state;
    serve(w, "{\"max_context\":64,\"dim\":8,\"kv_blocks\":4}");
    hear(w, "load", "{\"ev\":\"load\",\"requests\":2,\"running\":3}");
    json_t *shown = desk_model_encode(desk_model(w->desk, JOB)), *load = json_object_get(shown, "load");
    assert_int_equal(json_integer_value(json_object_get(shown, "max_context")), 64);
    assert_int_equal(json_integer_value(json_object_get(load, "running")), 3);
    assert_null(json_object_get(load, "ev")); /* a word between the stage and its daemon */
    json_decref(shown);
}

/* Its owner lets the memory of a model go while nobody asks. */
static void the_first_and_the_last_request_are_said(void **state)
{
    struct world *w = *state;
    struct refusal refusal;
    struct model_ask *second;
    ask(w, 1);
    assert_true(w->has_asks);
    assert_int_equal(
        desk_ask(w->desk, &second, JOB, json_pack("{s:s}", "kind", "text"), 1, &text_ops, w, &refusal), 0);
    ask_drop(second);
    assert_int_equal(w->asked, 1);
    ask_drop(w->ask);
    w->ask = NULL;
    assert_false(w->has_asks);
    assert_int_equal(w->asked, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_first_and_the_last_request_are_said, start, stop),
        cmocka_unit_test_setup_teardown(a_request_is_answered_token_by_token, start, stop),
        cmocka_unit_test_setup_teardown(after_a_loss_it_goes_on_behind_its_tokens, start, stop),
        cmocka_unit_test_setup_teardown(tokens_of_a_prompt_come_once, start, stop),
        cmocka_unit_test_setup_teardown(what_ends_stage_after_stage_is_given_up, start, stop),
        cmocka_unit_test_setup_teardown(what_is_asked_while_there_is_no_stage_is_asked_later, start, stop),
        cmocka_unit_test_setup_teardown(what_nobody_wants_is_cancelled, start, stop),
        cmocka_unit_test_setup_teardown(the_times_of_a_request_are_counted, start, stop),
        cmocka_unit_test_setup_teardown(so_many_wait_and_no_more, start, stop),
        cmocka_unit_test_setup_teardown(a_refusal_has_its_kind, start, stop),
        cmocka_unit_test_setup_teardown(what_a_model_works_on_is_shown, start, stop),
        cmocka_unit_test_setup_teardown(the_end_of_the_job_ends_its_requests, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
