/* SPDX-License-Identifier: MIT
 *
 * Sentences can be printed and told in JSON, whatever the names in them are, and wherever they are
 * cut. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>
#include <jansson.h>

#include "daemon/common/fds.h"
#include "err.h"
#include "net/base/reason.h"

static void names_are_disarmed(void **state)
{
    (void)state;
    static const struct {
        const char *name, *want;
    } cases[] = {
        {"model.layers.0", "model.layers.0: no"},
        {"\x1b[2Jgone\r\n\ttwo\x7f", "?[2Jgone?  two?: no"},
        {"128 × 128 … 𝄞 ü", "128 × 128 … 𝄞 ü: no"},
        {"cut \xe2\x80", "cut ??: no"},
        {"latin \xfc and \xc0\xaf", "latin ? and ??: no"},
        {"\xed\xa0\x80 \xf4\x90\x80\x80 \xf0\x80\x80\x80", "??? ???? ????: no"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err err;
        assert_int_equal(err_set(&err, -1, "%s: no", cases[i].name), -1);
        assert_string_equal(err.text, cases[i].want);
        assert_int_equal(err_set(&err, -1, "no"), -1);
        assert_int_equal(err_prefix(&err, -2, "%s", cases[i].name), -2);
        assert_string_equal(err.text, cases[i].want);
    }
}

static void is_told(const struct err *err)
{
    json_t *told = json_string(err->text);
    assert_non_null(told);
    json_decref(told);
}

/* At each byte of a character. */
static void what_is_cut_can_be_told(void **state)
{
    (void)state;
    char long_name[3 * sizeof(struct err) + 1] = "";
    for (size_t i = 0; i < sizeof(struct err); i++)
        strcat(long_name, "…");
    for (int at = 0; at < 9; at++) {
        struct err err;
        err_set(&err, -1, "%.*s%s", at, "xxxxxxxxx", long_name);
        assert_int_equal(strlen(err.text), sizeof err.text - 1);
        is_told(&err);
        err_prefix(&err, -1, "%.*s", at, long_name);
        is_told(&err);
        err_set(&err, -1, "nobody listens");
        err_prefix(&err, -1, "%s", long_name);
        is_told(&err);
    }
    assert_int_equal(err_set(NULL, -1, "nobody listens"), -1);
    assert_int_equal(err_prefix(NULL, -1, "nobody listens"), -1);
}

static void a_limit_is_named(void **state)
{
    (void)state;
    struct rlimit before, few;
    struct err err;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = (struct rlimit){77, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    assert_int_equal(err_set(&err, -EMFILE, "a.json cannot be opened: %s; or so", strerror(EMFILE)), -EMFILE);
    assert_string_equal(err.text, "a.json cannot be opened: out of file descriptors: 77 allowed (ulimit -n / "
                                  "LimitNOFILE=); or so");
    err_set(&err, -EMFILE, "no reason given");
    assert_string_equal(err.text, "no reason given");
    assert_string_equal(reason_of(-EMFILE).text,
                        "out of file descriptors: 77 allowed (ulimit -n / LimitNOFILE=)");
    assert_string_equal(reason_of(EACCES).text, strerror(EACCES));
    setrlimit(RLIMIT_NOFILE, &before);
}

/* What the soft limit leaves out is taken; what the hard one leaves is judged. */
static void the_limit_is_raised_and_judged(void **state)
{
    (void)state;
    char note[256];
    struct err err;
    struct rlimit before, low;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    low = (struct rlimit){40, 2000};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    assert_int_equal(fds_raise(note, &err), 0);
    assert_string_equal(note, "");
    assert_int_equal(fds_allowed(), 2000);
    low = (struct rlimit){40, 500};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    assert_int_equal(fds_raise(note, &err), 0);
    assert_non_null(strstr(note, "500 file descriptors are allowed, and a busy node needs up to 1024"));
    low = (struct rlimit){40, 50};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    assert_int_equal(fds_raise(note, &err), -EINVAL);
    assert_non_null(strstr(err.text, "50 file descriptors are allowed, and ringd needs at least 64"));
}

static void amounts_have_one_unit(void **state)
{
    (void)state;
    static const struct {
        size_t need, have;
        const char *want_need, *want_have;
    } cases[] = {
        {500, 20, "500 bytes", "20 bytes"},
        {20 << 20, 0, "20.0 MiB", "0.0 MiB"},
        {20 << 20, 8 << 20, "20.0 MiB", "8.0 MiB"},
        {(20 << 20) + (1 << 14), 20 << 20, "20.02 MiB", "20.00 MiB"},
        {(size_t)3 << 30, 32 << 20, "3.00 GiB", "0.03 GiB"},
        {(size_t)3 << 30, 1, "3.000 GiB", "0.000 GiB"},
        {7, 7, "7 bytes", "7 bytes"},
        {SIZE_MAX, 0, "16.0 EiB", "0.0 EiB"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct err_amounts a = err_amounts(cases[i].need, cases[i].have);
        assert_string_equal(a.need, cases[i].want_need);
        assert_string_equal(a.have, cases[i].want_have);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_disarmed),
        cmocka_unit_test(what_is_cut_can_be_told),
        cmocka_unit_test(a_limit_is_named),
        cmocka_unit_test(amounts_have_one_unit),
        cmocka_unit_test(the_limit_is_raised_and_judged), /* last: what is lowered stays lowered */
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
