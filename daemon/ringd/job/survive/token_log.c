/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/job/survive/token_log.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/xalloc.h"
#include "daemon/ringd/ledger.h"

struct logged_turn {
    size_t kept, prompt, answer; /* prompt, answer: how many tokens of it are in ids */
    uint64_t seed;
};

struct token_log {
    struct ledger_queue *room; /* borrowed */
    uint32_t *ids;             /* [n] owned: of all turns, one after the other */
    size_t n, ids_room;
    struct logged_turn *turns; /* [n_turns] owned; each kept more than the one before */
    size_t n_turns, turns_room;
    size_t taken; /* bytes, of the ledger's */
    size_t first_prompt;
    bool is_given_up;
};

struct token_log *token_log_new(struct ledger_queue *room)
{
    struct token_log *log = xcalloc(1, sizeof *log);
    log->room = room;
    return log;
}

static void drop(struct token_log *log)
{
    free(log->ids);
    free(log->turns);
    ledger_give(log->room, log->taken);
}

void token_log_free(struct token_log *log)
{
    if (!log)
        return;
    drop(log);
    free(log);
}

static bool give_up(struct token_log *log)
{
    drop(log);
    *log = (struct token_log){.room = log->room, .is_given_up = true};
    return false;
}

/* For how many elements of `size` bytes there is room once `n` fit, where there was room for `has`;
 * 0: the ledger has none. */
static size_t take_room(struct token_log *log, size_t has, size_t n, size_t size)
{
    const size_t want = n <= has ? has : n > 2 * has ? n : 2 * has;
    if (!ledger_take(log->room, (want - has) * size))
        return 0;
    log->taken += (want - has) * size;
    return want;
}

static bool make_room(struct token_log *log, size_t ids, size_t turns)
{
    const size_t n = take_room(log, log->ids_room, log->n + ids, sizeof *log->ids);
    if (!n)
        return false;
    log->ids = xrealloc(log->ids, n * sizeof *log->ids);
    log->ids_room = n;
    const size_t m = take_room(log, log->turns_room, log->n_turns + turns, sizeof *log->turns);
    if (!m)
        return false;
    log->turns = xrealloc(log->turns, m * sizeof *log->turns);
    log->turns_room = m;
    return true;
}

/* The caches lose what lies behind `kept` positions. Of a prompt nothing is cut off: its chunks are
 * computed whole. */
static void forget_behind(struct token_log *log, size_t kept)
{
    while (log->n_turns && log->turns[log->n_turns - 1].kept >= kept) {
        const struct logged_turn *last = &log->turns[--log->n_turns];
        log->n -= last->prompt + last->answer;
    }
    if (!log->n_turns)
        return;
    struct logged_turn *last = &log->turns[log->n_turns - 1];
    const size_t end = last->kept + last->prompt, needed = kept > end ? kept - end : 0;
    if (last->answer > needed) {
        log->n -= last->answer - needed;
        last->answer = needed;
    }
}

bool token_log_prompt(struct token_log *log, const json_t *event)
{
    const json_t *ids = json_object_get(event, "ids");
    const size_t kept = (size_t)json_integer_value(json_object_get(event, "kept")), n = json_array_size(ids);
    size_t i;
    json_t *id;
    if (log->is_given_up)
        return true;
    forget_behind(log, kept);
    if (!make_room(log, n, 1))
        return give_up(log);
    if (!log->first_prompt)
        log->first_prompt = n;
    log->turns[log->n_turns++] = (struct logged_turn){
        .kept = kept, .prompt = n, .seed = (uint64_t)json_integer_value(json_object_get(event, "seed"))};
    json_array_foreach (ids, i, id)
        log->ids[log->n++] = (uint32_t)json_integer_value(id);
    return true;
}

bool token_log_token(struct token_log *log, const json_t *event)
{
    if (log->is_given_up || !log->n_turns)
        return true;
    if (!make_room(log, 1, 0))
        return give_up(log);
    log->ids[log->n++] = (uint32_t)json_integer_value(json_object_get(event, "id"));
    log->turns[log->n_turns - 1].answer++;
    return true;
}

bool token_log_is_given_up(const struct token_log *log)
{
    return log->is_given_up;
}

static json_t *list(const uint32_t *ids, size_t n)
{
    json_t *a = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(a, json_integer((json_int_t)ids[i]));
    return a;
}

json_t *token_log_encode(const struct token_log *log)
{
    json_t *turns = json_array();
    size_t at = 0;
    if (!log->n_turns) {
        json_decref(turns);
        return NULL;
    }
    for (size_t i = 0; i < log->n_turns; i++) {
        const struct logged_turn *t = &log->turns[i];
        json_array_append_new(turns, json_pack("{s:I s:I s:o s:o}", "kept", (json_int_t)t->kept, "seed",
                                               (json_int_t)t->seed, "ids", list(log->ids + at, t->prompt),
                                               "answer", list(log->ids + at + t->prompt, t->answer)));
        at += t->prompt + t->answer;
    }
    return json_pack("{s:I s:o}", "first_prompt", (json_int_t)log->first_prompt, "turns", turns);
}

json_t *token_log_part(const struct token_log *log)
{
    const size_t answer = log->n_turns ? log->turns[log->n_turns - 1].answer : 0;
    if (!answer || answer % TOKEN_LOG_PART)
        return NULL;
    return json_pack("{s:I s:o}", "n", (json_int_t)(answer - TOKEN_LOG_PART + 1), "ids",
                     list(log->ids + log->n - TOKEN_LOG_PART, TOKEN_LOG_PART));
}

static void restore_part(struct token_log *log, const json_t *part)
{
    const json_t *ids = json_object_get(part, "ids");
    size_t i;
    json_t *id;
    if (!log->n_turns || json_integer_value(json_object_get(part, "n")) != (json_int_t)log->turns->answer + 1)
        return;
    json_array_foreach (ids, i, id) {
        json_t *token = json_pack("{s:O}", "id", id);
        token_log_token(log, token);
        json_decref(token);
    }
}

size_t token_log_restore(struct token_log *log, const json_t *events)
{
    size_t i;
    json_t *event;
    json_array_foreach (events, i, event)
        if (json_object_get(event, "n"))
            restore_part(log, event);
        else
            token_log_prompt(log, event);
    return log->n_turns ? log->turns->answer : 0;
}
