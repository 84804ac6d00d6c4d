/* SPDX-License-Identifier: MIT
 *
 * What a stage reads of a generation that goes on: whole prompts again, and a sentence for what
 * does not fit together. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "daemon/stage/so_far.h"

enum { VOCAB = 100 };

static int read_text(struct so_far *ret, const char *text, struct err *err)
{
    json_t *json = json_loads(text, 0, NULL);
    assert_non_null(json);
    const int r = so_far_read(ret, json, VOCAB, err);
    json_decref(json);
    return r;
}

static void turns_become_whole_prompts(void **state)
{
    (void)state;
    struct so_far s;
    struct err err;
    assert_int_equal(read_text(&s,
                               "{\"first_prompt\":3,\"turns\":["
                               "{\"kept\":0,\"seed\":1,\"ids\":[10,11,12],\"answer\":[20,21]},"
                               "{\"kept\":4,\"seed\":2,\"ids\":[30],\"answer\":[40]},"
                               "{\"kept\":5,\"seed\":3,\"ids\":[50,51],\"answer\":[]}]}",
                               &err),
                     0);
    static const uint32_t last[] = {10, 11, 12, 20, 30, 50, 51};
    assert_int_equal(s.n, 3);
    assert_int_equal(s.first_prompt, 3);
    assert_int_equal(s.turns[2].seed, 3);
    assert_int_equal(s.turns[2].n_ids, 7);
    assert_memory_equal(s.turns[2].ids, last, sizeof last);
    assert_int_equal(s.turns[1].n_ids, 5);
    assert_int_equal(s.turns[1].answer[0], 40);
    assert_int_equal(so_far_needed(&s, 0), 4);
    assert_int_equal(so_far_needed(&s, 1), 5);
    assert_int_equal(so_far_fits(&s, 7, 2, &err), 0);
    assert_int_equal(so_far_fits(&s, 6, 2, &err), -EBADMSG);
    assert_int_equal(so_far_fits(&s, 7, 1, &err), -EBADMSG);
    so_far_done(&s);
    assert_int_equal(so_far_read(&s, NULL, VOCAB, &err), 0);
    assert_int_equal(s.n, 0);
    so_far_done(&s);
}

static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "{\"turns\":[{\"kept\":0,\"seed\":1,\"ids\":[1],\"answer\":[]}]}",
        "{\"first_prompt\":1,\"turns\":[{\"kept\":0,\"seed\":1,\"ids\":[100],\"answer\":[]}]}",
        "{\"first_prompt\":1,\"turns\":[{\"kept\":0,\"seed\":1,\"ids\":[1],\"answer\":[-1]}]}",
        "{\"first_prompt\":1,\"turns\":[{\"kept\":0,\"seed\":1,\"ids\":[\"a\"],\"answer\":[]}]}",
        "{\"first_prompt\":1,\"turns\":[{\"kept\":0,\"seed\":1,\"ids\":[],\"answer\":[]}]}",
        "{\"first_prompt\":1,\"turns\":[{\"kept\":1,\"seed\":1,\"ids\":[1],\"answer\":[]}]}",
        "{\"first_prompt\":1,\"turns\":[{\"kept\":0,\"seed\":1,\"ids\":[1],\"answer\":[2]},"
        "{\"kept\":3,\"seed\":1,\"ids\":[1],\"answer\":[]}]}",
        "{\"first_prompt\":1,\"turns\":[{\"kept\":-1,\"seed\":1,\"ids\":[1],\"answer\":[]}]}",
        "{\"first_prompt\":1,\"turns\":[7]}",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct so_far s = {0};
        struct err err;
        if (read_text(&s, bad[i], &err) != -EBADMSG)
            fail_msg("taken: %s", bad[i]);
        assert_non_null(strstr(err.text, "what the daemon kept of this job cannot be read"));
        assert_int_equal(s.n, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(turns_become_whole_prompts),
                                       cmocka_unit_test(what_does_not_fit_is_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
