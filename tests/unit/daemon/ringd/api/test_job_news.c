/* SPDX-License-Identifier: MIT
 *
 * Rows of jobs between heads: told once, told again after a loss or a restart, and nothing said
 * while nothing changes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ringd/api/job_news.h"
#include "daemon/ringd/api/job_row.h"
#include "daemon/ringd/job/job_state.h"

enum { SECOND = 1000000 };

struct end {
    struct job_news *news;
    uint8_t id[16];
    uint64_t boot;
    json_t *sent;  /* the last message, not delivered yet */
    size_t n_sent; /* all */
    size_t n_changed;
    const char *state; /* of its jobs */
};

static int send_message(void *owner, const uint8_t to[16], json_t *message)
{
    struct end *e = owner;
    (void)to;
    json_decref(e->sent);
    e->sent = message;
    e->n_sent++;
    return 0;
}

static json_t *short_form(void *owner, uint64_t job)
{
    const struct end *e = owner;
    return json_pack("{s:I s:s s:s s:I s:n s:f s:s}", "id", (json_int_t)job, "type", "train", "state",
                     e->state, "created", (json_int_t)(100 + job), "ended", "loss", 2.5, "unheard-of", "x");
}

static void changed(void *owner, const uint8_t head[16], const json_t *row)
{
    struct end *e = owner;
    (void)head;
    assert_true(json_is_object(row));
    e->n_changed++;
}

static void begin(struct end *e, uint8_t id, uint64_t boot)
{
    *e = (struct end){.boot = boot, .state = "running"};
    memset(e->id, id, sizeof e->id);
    e->news = job_news_new(&(struct job_news_setup){
        .send = send_message, .short_form = short_form, .changed = changed, .owner = e, .boot = boot});
}

static void end(struct end *e)
{
    job_news_free(e->news);
    json_decref(e->sent);
}

/* What `from` sent last arrives. */
static void deliver(struct end *from, struct end *to)
{
    json_t *message = from->sent;
    from->sent = NULL;
    assert_non_null(message);
    if (!strcmp(json_string_value(json_object_get(message, "kind")), "jobs-ask"))
        job_news_take_ask(to->news, from->id, message);
    else
        job_news_take_told(to->news, from->id, message);
    json_decref(message);
}

static void hear(struct end *from, struct end *to, uint64_t now_us)
{
    job_news_heard(to->news, from->id, from->boot, job_news_version(from->news), (struct instant){now_us});
}

static void share(struct end *from, struct end *to, uint64_t now_us)
{
    hear(from, to, now_us);
    deliver(to, from);
    deliver(from, to);
}

static json_int_t id_at(const struct end *e, const struct end *head, size_t i)
{
    return json_integer_value(json_object_get(json_array_get(job_news_of(e->news, head->id), i), "id"));
}

static void changes_are_asked_for_and_nothing_else(void **state)
{
    struct end a, b;
    (void)state;
    begin(&a, 1, 1000);
    begin(&b, 2, 2000);
    hear(&a, &b, SECOND);
    assert_int_equal(b.n_sent, 0); /* no jobs, no question */
    assert_null(job_news_of(b.news, a.id));
    for (uint64_t job = 1; job <= 3; job++)
        job_news_touch(a.news, job);
    share(&a, &b, 2 * SECOND);
    assert_int_equal(json_array_size(job_news_of(b.news, a.id)), 3);
    assert_int_equal(id_at(&b, &a, 0), 3);
    assert_int_equal(b.n_changed, 3);
    for (size_t i = 3; i < 100; i++)
        hear(&a, &b, i * SECOND);
    assert_int_equal(b.n_sent, 1);
    a.state = "done";
    job_news_touch(a.news, 2);
    share(&a, &b, 100 * SECOND);
    assert_int_equal(b.n_changed, 4); /* that row alone */
    const json_t *row = json_array_get(job_news_of(b.news, a.id), 1);
    assert_string_equal(json_string_value(json_object_get(row, "state")), "done");
    assert_null(json_object_get(row, "unheard-of"));
    end(&a);
    end(&b);
}

static void a_row_arrives_in_every_state(void **state)
{
    (void)state;
    for (enum job_state s = 0; s < JOB_STATES; s++) {
        struct end a, b;
        begin(&a, 1, 1000);
        begin(&b, 2, 2000);
        a.state = job_state_name(s);
        job_news_touch(a.news, 1);
        share(&a, &b, SECOND);
        const json_t *row = json_array_get(job_news_of(b.news, a.id), 0);
        assert_string_equal(json_string_value(json_object_get(row, "state")), a.state);
        end(&a);
        end(&b);
    }
}

static void what_was_lost_is_asked_for_again(void **state)
{
    struct end a, b;
    (void)state;
    begin(&a, 1, 1000);
    begin(&b, 2, 2000);
    job_news_touch(a.news, 1);
    hear(&a, &b, SECOND); /* the question is lost */
    hear(&a, &b, 2 * SECOND);
    assert_int_equal(b.n_sent, 1);
    share(&a, &b, 5 * SECOND);
    assert_int_equal(b.n_sent, 2);
    assert_int_equal(id_at(&b, &a, 0), 1);
    end(&a);
    end(&b);
}

static void a_new_life_is_told_from_its_beginning(void **state)
{
    struct end a, b;
    (void)state;
    begin(&a, 1, 1000);
    begin(&b, 2, 2000);
    for (uint64_t job = 1; job <= 5; job++)
        job_news_touch(a.news, job);
    share(&a, &b, SECOND);
    end(&a);
    begin(&a, 1, 1001);
    json_t *before =
        json_pack("{s:i s:s s:s s:i}", "id", 4, "type", "score", "state", "failed", "created", 7);
    job_news_remember(a.news, before);
    job_news_remember(a.news, before);
    share(&a, &b, 2 * SECOND);
    assert_int_equal(json_array_size(job_news_of(b.news, a.id)), 1);
    assert_int_equal(id_at(&b, &a, 0), 4);
    assert_int_equal(json_array_size(job_news_remembered(a.news)), 1);
    job_news_touch(a.news, 4); /* goes on in this life */
    job_news_remember(a.news, before);
    assert_int_equal(json_array_size(job_news_remembered(a.news)), 0);
    json_decref(before);
    end(&a);
    end(&b);
}

static void only_the_newest_are_kept(void **state)
{
    struct end a, b;
    (void)state;
    begin(&a, 1, 1000);
    begin(&b, 2, 2000);
    for (uint64_t job = 1; job <= 300; job++) {
        job_news_touch(a.news, job);
        if (job % 50 == 0)
            share(&a, &b, job * SECOND);
    }
    job_news_touch(a.news, 1);
    assert_int_equal(json_array_size(job_news_of(b.news, a.id)), JOB_NEWS_ROWS);
    assert_int_equal(id_at(&b, &a, 0), 300);
    assert_int_equal(id_at(&b, &a, JOB_NEWS_ROWS - 1), 300 - JOB_NEWS_ROWS + 1);
    end(&a);
    end(&b);
}

static void what_others_tell_is_cut_and_cleaned(void **state)
{
    char text[1000];
    (void)state;
    memset(text, 'x', sizeof text);
    memcpy(text + JOB_ROW_TEXT - 1, "\xc3\xa9", 2);
    memcpy(text, "\x1b[2J\n\xc2\x9b", 7);
    text[sizeof text - 1] = '\0';
    json_t *told = json_pack("{s:i s:s s:s s:i s:s s:s s:i s:i}", "id", 1, "type", "train", "state", "failed",
                             "created", 5, "error", text, "loss", "low", "step", -1, "idle", 3);
    json_t *row = job_row_read(told);
    const char *error = json_string_value(json_object_get(row, "error"));
    assert_int_equal(strlen(error), JOB_ROW_TEXT - 1);
    assert_int_equal(strncmp(error, "?[2J???x", 8), 0);
    assert_true(json_is_null(json_object_get(row, "loss")));
    assert_true(json_is_null(json_object_get(row, "step")));
    assert_null(json_object_get(row, "idle"));
    assert_true(job_row_ended(row));
    json_decref(row);
    json_object_set_new(told, "state", json_string("asleep"));
    assert_null(job_row_read(told));
    json_object_set_new(told, "state", json_string("done"));
    json_object_set_new(told, "id", json_integer(0));
    assert_null(job_row_read(told));
    assert_null(job_row_read(NULL));
    json_decref(told);
}

static void nobody_is_told_unasked(void **state)
{
    struct end a, b;
    (void)state;
    begin(&a, 1, 1000);
    begin(&b, 2, 2000);
    job_news_touch(a.news, 1);
    hear(&a, &b, SECOND);
    deliver(&b, &a);
    json_t *told = json_incref(a.sent);
    deliver(&a, &b);
    assert_int_equal(b.n_changed, 1);
    job_news_take_told(b.news, a.id, told); /* again */
    assert_int_equal(b.n_changed, 1);
    uint8_t stranger[16] = {9};
    job_news_take_told(b.news, stranger, told);
    assert_null(job_news_of(b.news, stranger));
    json_decref(told);
    end(&a);
    end(&b);
}

/* A node may be hostile: what it serves with are texts, and not many. */
static void the_adapters_of_a_row_are_a_short_list_of_texts(void **state)
{
    json_t *told = json_pack("{s:i s:s s:s s:i s:s s:[s,i,s]}", "id", 1, "type", "serve", "state", "running",
                             "created", 1, "serves", "m", "serves_with", "owl", 7, "a\x1b[b");
    (void)state;
    json_t *row = job_row_read(told), *list = json_object_get(row, "serves_with");
    assert_int_equal(json_array_size(list), 2);
    assert_string_equal(json_string_value(json_array_get(list, 0)), "owl");
    assert_string_equal(json_string_value(json_array_get(list, 1)), "a?[b");
    json_decref(row);
    json_t *many = json_array();
    for (int i = 0; i < 100; i++)
        json_array_append_new(many, json_string("x"));
    json_object_set_new(told, "serves_with", many);
    row = job_row_read(told);
    assert_int_equal(json_array_size(json_object_get(row, "serves_with")), 16);
    json_decref(row);
    json_object_set_new(told, "serves_with", json_string("owl"));
    row = job_row_read(told);
    assert_false(json_is_string(json_object_get(row, "serves_with")));
    json_decref(row);
    json_decref(told);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(changes_are_asked_for_and_nothing_else),
        cmocka_unit_test(a_row_arrives_in_every_state),
        cmocka_unit_test(what_was_lost_is_asked_for_again),
        cmocka_unit_test(a_new_life_is_told_from_its_beginning),
        cmocka_unit_test(only_the_newest_are_kept),
        cmocka_unit_test(what_others_tell_is_cut_and_cleaned),
        cmocka_unit_test(nobody_is_told_unasked),
        cmocka_unit_test(the_adapters_of_a_row_are_a_short_list_of_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
