/* SPDX-License-Identifier: MIT
 *
 * Results written beside the steps: what was handed over is on the disk when it is said, a newer
 * save takes the place of one that waits, one that must be kept is never lost, and a disk without
 * room is said. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/stage/train/saver.h"
#include "tests/lib/place.h"

enum { MOST_SAVES = 8, WAIT_S = 60, MARK = 77 };

struct world {
    struct place place;
    struct tune tune;
    float *state; /* owned */
    struct saver *saver;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_held;               /* the saver stays in its first word until this is false */
    uint64_t saved[MOST_SAVES]; /* steps, as they were said */
    uint64_t begun;             /* the step whose save began last */
    size_t nsaved, nfailed;
    char why[512];
};

static void must_do(int failed, const struct err *err)
{
    if (failed)
        fail_msg("%s", err->text);
}

/* Nothing is written before; a mark that is another one is refused. */
static int on_begins(void *owner, uint64_t step, uint64_t mark, struct err *err)
{
    struct world *w = owner;
    pthread_mutex_lock(&w->lock);
    w->begun = step;
    pthread_mutex_unlock(&w->lock);
    return mark == MARK ? 0 : err_set(err, -EINVAL, "another mark");
}

static void on_saved(void *owner, uint64_t step)
{
    struct world *w = owner;
    pthread_mutex_lock(&w->lock);
    assert_int_equal(w->begun, step);
    w->saved[w->nsaved++] = step;
    pthread_cond_broadcast(&w->changed);
    while (w->is_held)
        pthread_cond_wait(&w->changed, &w->lock);
    pthread_mutex_unlock(&w->lock);
}

static void on_failed(void *owner, uint64_t step, const char *why)
{
    struct world *w = owner;
    (void)step;
    pthread_mutex_lock(&w->lock);
    w->nfailed++;
    snprintf(w->why, sizeof w->why, "%s", why);
    pthread_mutex_unlock(&w->lock);
}

static void hold(struct world *w, bool is_held)
{
    pthread_mutex_lock(&w->lock);
    w->is_held = is_held;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

static void await_saved(struct world *w, size_t n)
{
    pthread_mutex_lock(&w->lock);
    while (w->nsaved < n)
        pthread_cond_wait(&w->changed, &w->lock);
    pthread_mutex_unlock(&w->lock);
}

static void make(struct world *w)
{
    size_t n;
    *w = (struct world){0};
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    place_make(&w->place, DTYPE_F32);
    w->tune = place_lora(&w->place, "q_proj,v_proj", 0, PLACE_LAYERS);
    w->state = place_random(&w->place, &w->tune, &n);
}

static void start(struct world *w, size_t most_bytes)
{
    const struct saver_setup setup = {most_bytes, on_begins, on_saved, on_failed, w};
    struct err err = {""};
    must_do(saver_new(&w->saver, &setup, &err), &err);
}

static void begin(struct world *w, size_t most_bytes)
{
    make(w);
    start(w, most_bytes);
}

static void end(struct world *w)
{
    saver_free(w->saver);
    free(w->state);
    place_free(&w->place);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
}

static void give_pieces(struct world *w)
{
    struct param_pieces pieces;
    struct err err = {""};
    const float *at = w->state;
    must_do(param_pieces_make(&pieces, &w->tune, w->place.family, &w->place.config, true, &err), &err);
    for (size_t i = 0; i < pieces.n; at += pieces.piece[i++].n)
        must_do(saver_piece(w->saver, &pieces.piece[i], at, &err), &err);
    param_pieces_done(&pieces);
}

static void give(struct world *w, uint64_t step, bool must_keep)
{
    const struct adapter_out_request req = place_request(&w->place, &w->tune, step);
    struct err err = {""};
    must_do(saver_begin(w->saver, step, MARK, must_keep, &err), &err);
    must_do(saver_part(w->saver, &req, NULL, NULL, &err), &err);
    give_pieces(w);
    saver_end(w->saver);
}

static void check_disk(const struct world *w, const char *dir, uint64_t step)
{
    struct adapter_in *in;
    struct tune tune = {.kind = TUNE_LORA};
    struct err err = {""};
    uint64_t is;
    must_do(adapter_in_open_state(&in, dir, &tune, w->place.family, &w->place.config, &is, &err), &err);
    assert_int_equal(is, step);
    place_check(in, &w->place, &w->tune, w->state);
    adapter_in_close(in);
}

static void what_is_said_is_on_the_disk(void **state)
{
    struct world w;
    struct err err = {""};
    (void)state;
    begin(&w, 1 << 20);
    give(&w, 7, false);
    assert_int_equal(saver_wait(w.saver, WAIT_S, &err), 0);
    assert_int_equal(w.nsaved, 1);
    assert_int_equal(w.saved[0], 7);
    check_disk(&w, w.place.out, 7);
    end(&w);
}

/* Room for one value: each piece waits until the one before it is written. */
static void values_beyond_the_cap_wait_for_the_disk(void **state)
{
    struct world w;
    struct err err = {""};
    (void)state;
    begin(&w, sizeof(float));
    give(&w, 1, false);
    assert_int_equal(saver_wait(w.saver, WAIT_S, &err), 0);
    check_disk(&w, w.place.out, 1);
    end(&w);
}

static void the_newest_takes_the_place_of_one_that_waits(void **state)
{
    struct world w;
    struct err err = {""};
    (void)state;
    begin(&w, 1 << 20);
    hold(&w, true);
    give(&w, 1, false);
    await_saved(&w, 1);
    for (uint64_t step = 2; step <= 5; step++)
        give(&w, step, false);
    hold(&w, false);
    assert_int_equal(saver_wait(w.saver, WAIT_S, &err), 0);
    assert_int_equal(w.nsaved, 2);
    assert_int_equal(w.saved[1], 5);
    check_disk(&w, w.place.out, 5);
    end(&w);
}

static void *let_go(void *arg)
{
    hold(arg, false);
    return NULL;
}

static void what_must_be_kept_is_waited_for(void **state)
{
    struct world w;
    struct err err = {""};
    pthread_t other;
    (void)state;
    begin(&w, 1 << 20);
    hold(&w, true);
    give(&w, 1, false);
    await_saved(&w, 1);
    give(&w, 2, true);
    assert_int_equal(pthread_create(&other, NULL, let_go, &w), 0);
    give(&w, 3, false);
    give(&w, 4, true);
    pthread_join(other, NULL);
    assert_int_equal(saver_wait(w.saver, WAIT_S, &err), 0);
    assert_int_equal(w.saved[1], 2);
    assert_int_equal(w.saved[w.nsaved - 1], 4);
    end(&w);
}

static void a_disk_that_refuses_is_said_and_tried_again(void **state)
{
    struct world w;
    struct err err = {""};
    (void)state;
    begin(&w, 1 << 20);
    FILE *file = fopen(w.place.out, "w"); /* where a folder is to be */
    assert_non_null(file);
    fclose(file);
    give(&w, 1, false);
    assert_true(saver_wait(w.saver, WAIT_S, &err) < 0);
    assert_int_equal(w.nfailed, 1);
    assert_non_null(strstr(w.why, w.place.out));
    assert_string_equal(err.text, w.why);
    unlink(w.place.out);
    give(&w, 2, false);
    assert_int_equal(saver_wait(w.saver, WAIT_S, &err), 0);
    assert_int_equal(w.nsaved, 1);
    check_disk(&w, w.place.out, 2);
    end(&w);
}

static void give_best(struct world *w, const char *best, const char *spare)
{
    const struct adapter_out_request req = place_request(&w->place, &w->tune, 3);
    struct err err = {""};
    must_do(saver_begin(w->saver, 3, MARK, true, &err), &err);
    must_do(saver_part(w->saver, &req, best, spare, &err), &err);
    give_pieces(w);
    saver_end(w->saver);
    must_do(saver_wait(w->saver, WAIT_S, &err), &err);
}

static void the_best_goes_to_a_second_folder_or_to_its_spare(void **state)
{
    struct world w;
    char best[200], spare[200];
    (void)state;
    begin(&w, 1 << 20);
    mkdir(w.place.out, 0777);
    snprintf(best, sizeof best, "%s/best", w.place.out);
    snprintf(spare, sizeof spare, "%s/spare/best", w.place.dir.path);
    give_best(&w, best, spare);
    check_disk(&w, best, 3);
    check_disk(&w, w.place.out, 3);
    assert_int_equal(access(spare, F_OK), -1);
    snprintf(best, sizeof best, "%s/no/such/folder", w.place.out);
    give_best(&w, best, spare);
    check_disk(&w, spare, 3);
    end(&w);
}

/* A round that failed: nothing of its save stays, and the next goes on. */
static void a_save_that_is_dropped_leaves_nothing(void **state)
{
    struct world w;
    struct err err = {""};
    char tmp[200];
    (void)state;
    begin(&w, 1 << 20);
    give(&w, 1, false);
    must_do(saver_wait(w.saver, WAIT_S, &err), &err);
    const struct adapter_out_request req = place_request(&w.place, &w.tune, 2);
    must_do(saver_begin(w.saver, 2, MARK, false, &err), &err);
    must_do(saver_part(w.saver, &req, NULL, NULL, &err), &err);
    saver_drop(w.saver);
    assert_int_equal(saver_wait(w.saver, WAIT_S, &err), 0);
    assert_int_equal(w.nsaved, 1);
    assert_int_equal(w.nfailed, 0);
    check_disk(&w, w.place.out, 1);
    snprintf(tmp, sizeof tmp, "%s/adapter_model.safetensors.tmp", w.place.out);
    assert_int_equal(access(tmp, F_OK), -1);
    must_do(saver_begin(w.saver, 3, MARK, false, &err), &err); /* and is never filled */
    must_do(saver_part(w.saver, &req, NULL, NULL, &err), &err);
    end(&w);
}

/* A job that is cancelled: the process ends by the signal, after the disk has what was complete. */
static void a_stage_that_is_to_end_finishes_its_save(void **state)
{
    struct world w;
    int status;
    (void)state;
    make(&w);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        start(&w, 1 << 20);
        give(&w, 9, false);
        raise(SIGTERM);
        for (;;)
            pause();
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGTERM);
    check_disk(&w, w.place.out, 9);
    end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stage_that_is_to_end_finishes_its_save),
        cmocka_unit_test(what_is_said_is_on_the_disk),
        cmocka_unit_test(values_beyond_the_cap_wait_for_the_disk),
        cmocka_unit_test(the_newest_takes_the_place_of_one_that_waits),
        cmocka_unit_test(what_must_be_kept_is_waited_for),
        cmocka_unit_test(a_disk_that_refuses_is_said_and_tried_again),
        cmocka_unit_test(the_best_goes_to_a_second_folder_or_to_its_spare),
        cmocka_unit_test(a_save_that_is_dropped_leaves_nothing),
    };
    return cmocka_run_group_tests_name("saver", tests, NULL, NULL);
}
