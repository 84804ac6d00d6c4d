/* SPDX-License-Identifier: MIT
 *
 * Questions as sequences: each token of a text counts once, whatever the windows; choices of a row
 * share their context, and what counts of them is the choice. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/stage/eval/eval_work.h"

#define MODEL "tests/data/models/llama"

enum { BOS = 1, ROOM = 400 };

struct world {
    struct tokenizer *tok;
    struct config config;
};

static int world_open(void **state)
{
    static struct world w;
    struct err err;
    *state = &w;
    return tokenizer_open(&w.tok, MODEL, &err) || config_read(&w.config, MODEL, &err);
}

static int world_close(void **state)
{
    struct world *w = *state;
    tokenizer_close(w->tok);
    return 0;
}

static int make(struct world *w, struct eval_work **ret, const char *rows, size_t seq_len, size_t max_tokens,
                struct err *err)
{
    char path[] = "/tmp/test-eval-XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, rows, strlen(rows)), strlen(rows));
    close(fd);
    const struct job_spec spec = {
        .type = JOB_EVAL, .data = path, .seq_len = seq_len, .max_tokens = max_tokens};
    const int r = eval_work_new(ret, &spec, &w->config, w->tok, err);
    unlink(path);
    return r;
}

static struct eval_work *made(struct world *w, const char *rows, size_t seq_len, size_t max_tokens)
{
    struct err err = {""};
    struct eval_work *work = NULL;
    if (make(w, &work, rows, seq_len, max_tokens, &err))
        fail_msg("%s", err.text);
    return work;
}

static size_t encode(struct world *w, const char *text, bool special, uint32_t ret[ROOM])
{
    struct err err;
    uint32_t *ids;
    size_t n;
    assert_int_equal(tokenizer_encode(w->tok, text, strlen(text), special, &ids, &n, &err), 0);
    assert_true(n <= ROOM);
    memcpy(ret, ids, n * sizeof *ids);
    free(ids);
    return n;
}

static void windows_cover_a_text(void **state)
{
    static const char text[] = "The little dog ran over the hill and the owl said that it was late";
    uint32_t ids[ROOM];
    const size_t n = encode(*state, text, false, ids);
    char row[200];
    snprintf(row, sizeof row, "{\"text\":\"%s\"}\n", text);
    for (size_t window = 2; window <= n + 2; window++) {
        struct eval_work *work = made(*state, row, window, 0);
        size_t done = 0;
        for (size_t s = 0; s < work->nseqs; s++) {
            const struct eval_seq *seq = &work->seqs[s];
            const uint32_t *at = work->ids + seq->at;
            assert_true(seq->n <= window + 1 && seq->from >= 1 && seq->from < seq->n && !seq->follows);
            assert_memory_equal(at + seq->from, ids + done, (seq->n - seq->from) * sizeof *ids);
            done += seq->n - seq->from;
            if (seq->n == done + 1) /* all that there was so far, behind the first token */
                assert_int_equal(at[0], BOS);
            else
                assert_memory_equal(at, ids + done - seq->n, seq->n * sizeof *ids);
        }
        assert_int_equal(done, n);
        if (n > window) /* the last window is as long as the others */
            assert_int_equal(work->seqs[work->nseqs - 1].n, window + 1);
        eval_work_free(work);
    }
}

static void choices_stand_behind_their_context(void **state)
{
    struct eval_work *work =
        made(*state,
             "{\"prompt\":\"The owl and the \",\"choices\":[\"dog\",\"little girl\"],\"answer\":0}\n"
             "{\"prompt\":\"The owl and the\",\"choices\":[\"dog\",\"little girl\"],\"answer\":0}\n",
             100, 0);
    uint32_t context[ROOM], whole[ROOM];
    const size_t from = encode(*state, "The owl and the", true, context);
    assert_int_equal(work->nseqs, 4);
    assert_int_equal(work->cut, 0);
    for (size_t s = 0; s < 4; s++) {
        const struct eval_seq *seq = &work->seqs[s];
        const size_t n =
            encode(*state, s % 2 ? "The owl and the little girl" : "The owl and the dog", true, whole);
        assert_int_equal(seq->row, s / 2);
        assert_int_equal(seq->follows, s % 2);
        assert_int_equal(seq->from, from);
        assert_int_equal(seq->n, n);
        assert_memory_equal(work->ids + seq->at, whole, n * sizeof *whole);
    }
    eval_work_free(work);
}

static void what_is_too_long_loses_its_beginning(void **state)
{
    uint32_t whole[ROOM];
    const size_t n = encode(*state, "The little owl saw the dog", true, whole);
    struct eval_work *work = made(
        *state, "{\"prompt\":\"The little owl saw the\",\"choices\":[\"dog\",\"x\"],\"answer\":0}\n", 4, 0);
    const struct eval_seq *seq = &work->seqs[0];
    assert_int_equal(seq->n, 5);
    assert_memory_equal(work->ids + seq->at, whole + n - 5, 5 * sizeof *whole);
    assert_int_equal(work->cut, 1);
    eval_work_free(work);
    work = made(*state, "{\"prompt\":\"The little owl saw the dog\",\"answer\":\"x\"}\n", 6, 3);
    seq = &work->seqs[0];
    assert_int_equal(seq->n, 3);
    assert_int_equal(seq->from, 3);
    assert_memory_equal(work->ids + seq->at, whole + n - 3, 3 * sizeof *whole);
    assert_int_equal(work->positions, 6);
    eval_work_free(work);
}

static void answers_leave_room_for_prompts(void **state)
{
    struct err err = {""};
    struct eval_work *work;
    assert_int_not_equal(make(*state, &work, "{\"prompt\":\"a\",\"answer\":\"x\"}\n", 6, 6, &err), 0);
    assert_non_null(strstr(err.text, "--max-tokens 6 leaves no room"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows_cover_a_text),
        cmocka_unit_test(choices_stand_behind_their_context),
        cmocka_unit_test(what_is_too_long_loses_its_beginning),
        cmocka_unit_test(answers_leave_room_for_prompts),
    };
    return cmocka_run_group_tests(tests, world_open, world_close);
}
