/* SPDX-License-Identifier: MIT
 *
 * What a deputy keeps of the best adapters so far of another head's job, and what of it comes with
 * a job that it takes over. One node of this process is the head too: it hands its files over. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "daemon/common/xalloc.h"
#include "daemon/ringd/job/deputy/ballots.h"
#include "daemon/ringd/job/deputy/deputy_impl.h"
#include "daemon/ringd/job/deputy/file_set.h"
#include "daemon/ringd/job/deputy/parts.h"
#include "daemon/ringd/job/results.h"
#include "tests/unit/daemon/ringd/job/head_world.h"

enum { JOB = 7, SETS = 4 };
static const uint8_t head[16] = {2}, self[16] = {1};

struct world {
    struct head *h; /* owned */
    struct ballots *ballots;
    struct parts *parts;
    struct deputy *deputy;
    struct file_set *sets[SETS]; /* set i has the number i + 1 there */
    json_t *held;                /* owned: a question for a part that waits */
    bool holds;                  /* those that come are */
    unsigned news;
    bool is_taken;
    json_int_t best; /* of the life of the job that was taken over */
};

static int hand_over(void *owner, const uint8_t to[16], json_t *message)
{
    struct world *w = owner;
    const char *kind = json_string_value(json_object_get(message, "kind"));
    (void)to;
    if (!strcmp(kind, "part-ask") && w->holds) {
        assert_null(w->held);
        w->held = json_incref(message);
    } else if (!strcmp(kind, "part-ask")) {
        parts_take_ask(w->parts, head, message);
    } else if (!strcmp(kind, "part-told")) {
        parts_take_told(w->parts, head, message);
    }
    if (!strcmp(kind, "dossier-noted"))
        assert_null(json_object_get(message, "error"));
    json_decref(message);
    return 0;
}

static struct file_set *files_for(void *owner, const uint8_t to[16], uint64_t number)
{
    const struct world *w = owner;
    (void)to;
    return number >= 1 && number <= SETS ? w->sets[number - 1] : NULL;
}

static bool works(void *owner, const struct origin *of)
{
    (void)owner, (void)of;
    return false;
}

static bool on_taken(void *owner, uint64_t as, const json_t *entry, struct loan *loan,
                     const struct job_head *from)
{
    struct world *w = owner;
    (void)as, (void)loan, (void)from;
    w->is_taken = true;
    w->best = json_integer_value(json_object_get(json_object_get(entry, "life"), "best"));
    return true;
}

static bool lend_to_none(void *owner, uint64_t job, struct loan *loan)
{
    (void)owner, (void)job, (void)loan;
    return false;
}

static void open_deputy(struct world *w)
{
    struct head *h = w->h;
    const struct origin of = {.head = {2}, .job = JOB};
    char *text = store_notes(h->store);
    json_t *notes = json_loads(text, 0, NULL);
    w->ballots = ballots_new(h->store, notes, 0);
    ballots_open(w->ballots, &of, head, self, 1, 1);
    w->parts = parts_new(&(struct parts_setup){
        .base = h->base, .aside = h->aside, .send = hand_over, .files = files_for, .owner = w});
    w->deputy = deputy_new(&(struct deputy_setup){.base = h->base,
                                                  .state_dir = h->dir,
                                                  .aside = h->aside,
                                                  .members = h->members,
                                                  .store = h->store,
                                                  .ballots = w->ballots,
                                                  .parts = w->parts,
                                                  .notes = notes,
                                                  .send = hand_over,
                                                  .works = works,
                                                  .taken = on_taken,
                                                  .owner = w});
    json_decref(notes);
    free(text);
}

static void close_deputy(struct world *w)
{
    deputy_stop(w->deputy);
    store_close(w->h->store);
    deputy_free(w->deputy);
    parts_free(w->parts);
    ballots_free(w->ballots);
    json_decref(w->held);
    w->held = NULL;
}

/* Another life of the daemon, on the same disk. */
static void open_again(struct world *w)
{
    struct err err;
    char note[256];
    assert_int_equal(store_open(&w->h->store, w->h->dir, w->h->mailbox, NULL, note, &err), 0);
    open_deputy(w);
}

static void reopen(struct world *w)
{
    close_deputy(w);
    open_again(w);
}

static int open_world(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    set_up((void **)&w->h);
    open_deputy(w);
    *state = w;
    return 0;
}

static int close_world(void **state)
{
    struct world *w = *state;
    struct head *h = w->h;
    close_deputy(w);
    h->store = NULL;
    for (size_t i = 0; i < SETS; i++)
        file_set_drop(w->sets[i]);
    free(w);
    return tear_down((void **)&h);
}

/* --- what the head says ----------------------------------------------------------------------- */

/* Set i of these files below its folder, each of two parts and with bytes of its own. */
static void make_set(struct world *w, size_t i, const char *const paths[])
{
    char *folder = xasprintf("%s/there-%zu", w->h->dir, i), *bytes = xmalloc(FILE_SET_PART + 5);
    struct err err;
    memset(bytes, 'a' + (int)i, FILE_SET_PART + 5);
    for (; *paths; paths++) {
        char *path = xasprintf("%s/%s", folder, *paths);
        file_set_make_folders(folder, *paths);
        FILE *f = fopen(path, "w");
        bytes[0] = **paths;
        assert_true(f && fwrite(bytes, 1, FILE_SET_PART + 5, f) && !fclose(f));
        free(path);
    }
    assert_int_equal(file_set_of_best(&w->sets[i], folder, &err), 0);
    free(bytes);
    free(folder);
}

static json_t *best_of(const struct world *w, size_t i, unsigned step)
{
    return json_pack("{s:i s:i s:o}", "step", step, "number", (int)i + 1, "files", file_set_list(w->sets[i]));
}

/* Takes over `best`. */
static void send_news(struct world *w, json_t *best)
{
    json_t *news = json_pack("{s:i s:i s:o}", "job", JOB, "number", ++w->news, "best", best);
    if (w->news == 1) {
        json_object_set_new(news, "fresh", json_true());
        json_object_set_new(news, "inputs", json_array());
        json_object_set_new(news, "record",
                            json_pack("{s:s s:s s:{s:s s:s s:s}}", "type", "train", "state", "running",
                                      "spec", "model", "/m", "data", "/d", "adapter_out", "/out"));
        json_object_set_new(news, "life",
                            json_pack("{s:i s:[[s,s],[s,s]] s:i}", "attempt", 1, "nodes",
                                      "02000000000000000000000000000000", "n1",
                                      "01000000000000000000000000000000", "n0", "best", 9));
    }
    deputy_take_news(w->deputy, head, news);
    json_decref(news);
}

static void say_best(struct world *w, size_t i, unsigned step)
{
    send_news(w, best_of(w, i, step));
}

static void turn(struct world *w)
{
    assert_false(w->h->is_stuck);
    event_base_loop(w->h->base, EVLOOP_ONCE);
}

static const struct dossier *kept(const struct world *w)
{
    return deputy_find(w->deputy, head, JOB);
}

static void await_kept(struct world *w, size_t i, unsigned step)
{
    while (kept(w)->best.number != i + 1 || kept(w)->best_fetch)
        turn(w);
    assert_int_equal(kept(w)->best.step, step);
}

static void await_question(struct world *w)
{
    while (!w->held)
        turn(w);
}

static void answer(struct world *w)
{
    json_t *question = w->held;
    w->held = NULL;
    parts_take_ask(w->parts, head, question);
    json_decref(question);
}

/* --- what it has of it ------------------------------------------------------------------------ */

static bool is_there(const struct world *w, const char *name)
{
    char *path = xasprintf("%s/dossiers/%s", w->h->dir, name);
    const bool is = !access(path, F_OK);
    free(path);
    return is;
}

static void adopt(struct world *w)
{
    link_nodes(w->h, false);
    deputy_changed(w->deputy);
    w->is_taken = false;
    w->best = -1;
    assert_int_equal(deputy_adopt(w->deputy, head, JOB, false, NULL, NULL), 0);
}

/* Where the result of the job goes there is this file, of that set; i SETS: there is none. */
static void assert_brought(const struct world *w, const char *path, size_t i)
{
    char *to = results_folder(w->h->dir, "/out"), *command;
    if (i == SETS)
        command = xasprintf("test ! -e %s/%s", to, path);
    else
        command = xasprintf("cmp %s/there-%zu/%s %s/%s", w->h->dir, i, path, to, path);
    assert_int_equal(system(command), 0);
    free(command);
    free(to);
}

static const char *const one[] = {"best/a", "best/b", NULL}, *const other[] = {"a/best/a", "best/a", "best/b",
                                                                               NULL};

/* Not before it is over does a newer set take its turn, and no file of the two is mixed. */
static void what_is_being_fetched_is_fetched_to_its_end(void **state)
{
    struct world *w = *state;
    make_set(w, 0, one);
    make_set(w, 1, one);
    make_set(w, 2, other);
    w->holds = true;
    say_best(w, 0, 1);
    await_question(w);
    answer(w);
    say_best(w, 1, 2); /* its first part is on its way to the disk */
    say_best(w, 2, 3);
    await_question(w);
    assert_int_equal(json_integer_value(json_object_get(w->held, "job")), 1);
    assert_true(json_integer_value(json_object_get(w->held, "at")) > 0);
    w->holds = false;
    answer(w);
    while (kept(w)->best.number != 1)
        turn(w);
    await_kept(w, 2, 3);
    while (is_there(w, "1-best-1"))
        turn(w);
    assert_true(is_there(w, "1-best-3/2"));
    adopt(w);
    while (!w->is_taken)
        turn(w);
    assert_int_equal(w->best, 3);
    for (const char *const *path = other; *path; path++)
        assert_brought(w, *path, 2);
}

/* The disk may be full. A newer set comes after the fetch has failed, and before. */
static void what_was_not_fetched_whole_leaves_no_files(void **state)
{
    struct world *w = *state;
    for (size_t i = 0; i < SETS; i++)
        make_set(w, i, one);
    for (size_t i = 0; i < SETS; i += 2) {
        char *folder = xasprintf("1-best-%zu", i + 1);
        w->holds = true;
        say_best(w, i, 1);
        await_question(w);
        answer(w);
        await_question(w);
        assert_true(is_there(w, folder));
        file_set_drop(w->sets[i]);
        w->sets[i] = NULL;
        w->holds = false;
        if (i)
            say_best(w, i + 1, 2);
        answer(w);
        while (!i && kept(w)->best_fetch)
            turn(w);
        if (!i)
            say_best(w, i + 1, 2);
        await_kept(w, i + 1, 2);
        while (is_there(w, folder))
            turn(w);
        free(folder);
    }
}

/* The note on the disk may still name it. */
static void the_folder_before_goes_behind_the_note(void **state)
{
    struct world *w = *state;
    make_set(w, 0, one);
    make_set(w, 1, one);
    say_best(w, 0, 1);
    await_kept(w, 0, 1);
    say_best(w, 1, 2);
    while (kept(w)->best.number != 2)
        turn(w);
    close_deputy(w); /* before it hears that the note is on the disk */
    assert_true(is_there(w, "1-best-1/0"));
    open_again(w);
    assert_false(is_there(w, "1-best-1"));
    assert_true(is_there(w, "1-best-2/0"));
}

static void the_same_files_are_the_best_as_of_a_later_save(void **state)
{
    struct world *w = *state;
    make_set(w, 0, one);
    w->holds = true;
    say_best(w, 0, 1);
    await_question(w);
    say_best(w, 0, 2);
    w->holds = false;
    answer(w);
    await_kept(w, 0, 2);
    w->holds = true;
    say_best(w, 0, 3);
    assert_int_equal(kept(w)->best.step, 3);
    assert_null(w->held);
}

/* Files go by the list that they were fetched for, also in a later life of the daemon, which
 * fetches what had not come. */
static void a_set_that_has_not_all_come_is_not_brought(void **state)
{
    struct world *w = *state;
    make_set(w, 0, one);
    make_set(w, 1, other);
    say_best(w, 0, 1);
    await_kept(w, 0, 1);
    for (int lives = 0; lives < 2; lives++) {
        w->holds = true;
        if (lives) {
            reopen(w);
            deputy_changed(w->deputy);
            assert_false(is_there(w, "1-best-2/0"));
        } else {
            say_best(w, 1, 2);
        }
        for (int i = 0; i < 3; i++) { /* of the first file all, of the second a part */
            await_question(w);
            answer(w);
        }
        await_question(w);
        assert_true(is_there(w, "1-best-2/0"));
    }
    adopt(w);
    while (!w->is_taken)
        turn(w);
    assert_int_equal(w->best, 1);
    assert_brought(w, "best/a", 0);
    assert_brought(w, "best/b", 0);
    assert_brought(w, "a/best/a", SETS);
}

static void a_job_taken_over_in_two_lives_has_its_best(void **state)
{
    struct world *w = *state;
    make_set(w, 0, one);
    say_best(w, 0, 4);
    await_kept(w, 0, 4);
    adopt(w);
    while (!w->deputy->taken)
        turn(w);
    reopen(w); /* before the coord has it */
    assert_false(w->is_taken);
    deputy_lend(w->deputy, lend_to_none, NULL);
    while (!w->is_taken)
        turn(w);
    assert_int_equal(w->best, 4);
    assert_brought(w, "best/a", 0);
    assert_brought(w, "best/b", 0);
}

/* What the life says is true of the old head's disk alone. */
static void without_its_best_it_has_none(void **state)
{
    struct world *w = *state;
    for (size_t i = 0; i < 2; i++) {
        send_news(w, i ? json_pack("{s:i s:i s:[]}", "step", 5, "number", 3, "files") : json_null());
        assert_non_null(kept(w));
    }
    adopt(w);
    while (!w->is_taken)
        turn(w);
    assert_int_equal(w->best, 0);
}

static void no_head_names_another_file(void **state)
{
    static const char *const bad[] = {"adapter_model.safetensors",
                                      "best",
                                      "best/",
                                      "bestof/a",
                                      "best/a/b",
                                      "best/.a",
                                      "best/a.tmp",
                                      ".state/best/a",
                                      "x.tmp/best/a",
                                      "a/b/best/c",
                                      "best//a",
                                      "../best/a",
                                      "/best/a"},
                             *const good[] = {"best/adapter_model.safetensors", "lr-1e-4/best/a"};
    struct best_files b = {0};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad + sizeof good / sizeof *good; i++) {
        const bool is_bad = i < sizeof bad / sizeof *bad;
        json_t *note = json_pack("{s:i s:i s:[{s:s s:i}]}", "step", 1, "number", 1, "files", "path",
                                 is_bad ? bad[i] : good[i - sizeof bad / sizeof *bad], "bytes", 1);
        assert_int_equal(best_read(&b, note), !is_bad);
        best_free(&b);
        json_decref(note);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_world, close_world)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_is_being_fetched_is_fetched_to_its_end),
        TEST(what_was_not_fetched_whole_leaves_no_files),
        TEST(the_folder_before_goes_behind_the_note),
        TEST(the_same_files_are_the_best_as_of_a_later_save),
        TEST(a_set_that_has_not_all_come_is_not_brought),
        TEST(a_job_taken_over_in_two_lives_has_its_best),
        TEST(without_its_best_it_has_none),
        TEST(no_head_names_another_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
