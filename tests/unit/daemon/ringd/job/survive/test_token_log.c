/* SPDX-License-Identifier: MIT
 *
 * What is kept of a generation: prompts and tokens in their order, of a conversation what its
 * caches still hold, and nothing where there is no room for it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ringd/job/survive/token_log.h"
#include "daemon/ringd/ledger.h"

static struct ledger_queue room_of(size_t bytes)
{
    struct ledger_queue q = {0};
    ledger_register(NULL, &q, "tokens", bytes);
    return q;
}

/* n ids from `from` on. */
static bool say_prompt(struct token_log *log, size_t kept, uint64_t seed, unsigned from, size_t n)
{
    json_t *ids = json_array();
    for (unsigned i = 0; i < n; i++)
        json_array_append_new(ids, json_integer(from + i));
    json_t *event =
        json_pack("{s:I s:I s:o}", "kept", (json_int_t)kept, "seed", (json_int_t)seed, "ids", ids);
    const bool ok = token_log_prompt(log, event);
    json_decref(event);
    return ok;
}

static bool say_tokens(struct token_log *log, unsigned from, size_t n)
{
    bool ok = true;
    for (unsigned i = 0; i < n && ok; i++) {
        json_t *event = json_pack("{s:i s:s}", "id", (int)(from + i), "text", "x");
        ok = token_log_token(log, event);
        json_decref(event);
    }
    return ok;
}

static void holds(const struct token_log *log, const char *want)
{
    json_t *is = token_log_encode(log);
    char *text = is ? json_dumps(is, JSON_COMPACT | JSON_SORT_KEYS) : strdup("nothing");
    assert_string_equal(text, want);
    free(text);
    json_decref(is);
}

static void a_generation_is_kept_token_by_token(void **state)
{
    (void)state;
    struct ledger_queue room = room_of(1 << 16);
    struct token_log *log = token_log_new(&room);
    holds(log, "nothing");
    assert_true(say_tokens(log, 1, 1)); /* of no prompt */
    holds(log, "nothing");
    assert_true(say_prompt(log, 0, 9, 100, 3));
    assert_true(say_tokens(log, 7, 2));
    holds(log, "{\"first_prompt\":3,\"turns\":[{\"answer\":[7,8],\"ids\":[100,101,102],"
               "\"kept\":0,\"seed\":9}]}");
    token_log_free(log);
    assert_int_equal(room.bytes, 0);
}

static void a_conversation_is_kept_as_far_as_its_caches(void **state)
{
    (void)state;
    struct ledger_queue room = room_of(1 << 16);
    struct token_log *log = token_log_new(&room);
    say_prompt(log, 0, 1, 10, 3);
    say_tokens(log, 20, 4);
    holds(log, "{\"first_prompt\":3,\"turns\":[{\"answer\":[20,21,22,23],\"ids\":[10,11,12],"
               "\"kept\":0,\"seed\":1}]}");
    /* Two of the four tokens are still in the caches. */
    say_prompt(log, 5, 2, 30, 2);
    say_tokens(log, 40, 1);
    holds(log, "{\"first_prompt\":3,\"turns\":["
               "{\"answer\":[20,21],\"ids\":[10,11,12],\"kept\":0,\"seed\":1},"
               "{\"answer\":[40],\"ids\":[30,31],\"kept\":5,\"seed\":2}]}");
    /* The second turn is not; of the first prompt two positions, but its chunk is computed
     * whole. */
    say_prompt(log, 2, 3, 50, 1);
    holds(log, "{\"first_prompt\":3,\"turns\":["
               "{\"answer\":[],\"ids\":[10,11,12],\"kept\":0,\"seed\":1},"
               "{\"answer\":[],\"ids\":[50],\"kept\":2,\"seed\":3}]}");
    say_prompt(log, 0, 4, 60, 1);
    holds(log, "{\"first_prompt\":3,\"turns\":[{\"answer\":[],\"ids\":[60],\"kept\":0,"
               "\"seed\":4}]}");
    token_log_free(log);
    assert_int_equal(room.bytes, 0);
}

static void without_room_it_is_given_up(void **state)
{
    (void)state;
    struct ledger_queue room = room_of(4096);
    struct token_log *log = token_log_new(&room);
    assert_true(say_prompt(log, 0, 1, 10, 100));
    assert_false(token_log_is_given_up(log));
    assert_false(say_tokens(log, 1, 1000));
    assert_true(token_log_is_given_up(log));
    assert_int_equal(room.bytes, 0);
    assert_true(say_tokens(log, 1, 1)); /* said once */
    assert_true(say_prompt(log, 0, 1, 10, 1));
    holds(log, "nothing");
    token_log_free(log);
}

/* At most 32 bytes a token, however many there are. */
static void a_token_takes_few_bytes(void **state)
{
    (void)state;
    struct ledger_queue room = room_of(1 << 20);
    struct token_log *log = token_log_new(&room);
    say_prompt(log, 0, 1, 10, 50);
    for (size_t n = 50; n < 5000; n++) {
        assert_true(say_tokens(log, 1, 1));
        assert_true(room.bytes <= 32 * (n + 1));
    }
    token_log_free(log);
}

static json_t *parts_of(unsigned n)
{
    struct ledger_queue room = room_of(1 << 16);
    struct token_log *log = token_log_new(&room);
    json_t *parts = json_pack("[{s:i s:i s:[i]}]", "kept", 0, "seed", 9, "ids", 3);
    say_prompt(log, 0, 9, 3, 1);
    for (unsigned i = 0; i < n; i++) {
        say_tokens(log, i, 1);
        json_t *part = token_log_part(log);
        assert_int_equal(part != NULL, (i + 1) % TOKEN_LOG_PART == 0);
        if (part)
            json_array_append_new(parts, part);
    }
    token_log_free(log);
    return parts;
}

static size_t restored(const json_t *parts)
{
    struct ledger_queue room = room_of(1 << 16);
    struct token_log *log = token_log_new(&room);
    const size_t n = token_log_restore(log, parts);
    json_t *is = token_log_encode(log),
           *answer = json_object_get(json_array_get(json_object_get(is, "turns"), 0), "answer");
    assert_int_equal(json_array_size(answer), n);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(json_integer_value(json_array_get(answer, i)), i);
    json_decref(is);
    token_log_free(log);
    return n;
}

/* A disk that is slow or full may lose a part: what follows it is of no use. */
static void what_is_behind_a_gap_is_left_out(void **state)
{
    (void)state;
    json_t *parts = parts_of(4 * TOKEN_LOG_PART + 7);
    assert_int_equal(restored(parts), 4 * TOKEN_LOG_PART);
    json_array_remove(parts, 3);
    assert_int_equal(restored(parts), 2 * TOKEN_LOG_PART);
    json_array_remove(parts, 0); /* the prompt */
    assert_int_equal(restored(parts), 0);
    json_decref(parts);
    assert_int_equal(restored(NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_generation_is_kept_token_by_token),
        cmocka_unit_test(a_conversation_is_kept_as_far_as_its_caches),
        cmocka_unit_test(without_room_it_is_given_up),
        cmocka_unit_test(a_token_takes_few_bytes),
        cmocka_unit_test(what_is_behind_a_gap_is_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
