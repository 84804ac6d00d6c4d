/* SPDX-License-Identifier: MIT
 *
 * The option table: values, ranges, sentences, the file, and ringd's own table. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/conf.h"
#include "daemon/common/optable.h"

static const struct opt_def table[] = {
    {.name = "model", .type = OPT_PATH, .placeholder = "DIR", .help = "where the model is", .required = true},
    {.name = "data", .type = OPT_PATH, .placeholder = "FILE", .help = "what to learn", .required = true},
    {.name = "rank", .type = OPT_INT, .placeholder = "N", .def = "8", .min = 1, .max = 1024, .help = "rank"},
    {.name = "seed", .type = OPT_INT, .placeholder = "N", .def = "0", .help = "seed"},
    {.name = "lr",
     .type = OPT_FLOAT,
     .placeholder = "X",
     .def = "2e-4",
     .min = 0,
     .max = INFINITY,
     .help = "rate"},
    {.name = "schedule",
     .type = OPT_CHOICE,
     .placeholder = "naive|gpipe|1f1b",
     .def = "1f1b",
     .help = "order of work"},
    {.name = "keep", .type = OPT_FLAG, .help = "keep it", .short_name = 'k'},
    {.name = "verbose", .type = OPT_FLAG, .help = "say more", .short_name = 'v'},
    {.name = "threads", .type = OPT_INT, .placeholder = "N", .help = "threads", .short_name = 't'},
    {.name = "peer", .type = OPT_LIST, .placeholder = "HOST:PORT", .help = "a neighbour"},
    {.name = NULL},
};

struct parsed {
    struct opts *o;
    char **positional;
    int n;
    bool help;
    struct err err;
    int rc;
};

/* Words separated by single spaces; the program's name is put before them. */
static struct parsed parse(const char *line)
{
    struct parsed p = {.o = opts_new(table)};
    static char words[512];
    char *argv[32] = {"prog"};
    int argc = 1;
    snprintf(words, sizeof words, "%s", line);
    for (char *save, *w = strtok_r(words, " ", &save); w; w = strtok_r(NULL, " ", &save))
        argv[argc++] = w;
    p.rc = opts_parse(p.o, argc, argv, &p.positional, &p.n, &p.help, &p.err);
    return p;
}

static void done(struct parsed *p)
{
    free(p->positional);
    opts_free(p->o);
}

static void expect_error(const char *line, const char *sentence)
{
    struct parsed p = parse(line);
    assert_true(p.rc < 0);
    assert_string_equal(p.err.text, sentence);
    done(&p);
}

static void defaults_hold_until_set(void **state)
{
    (void)state;
    struct parsed p = parse("");
    const char *const *list;
    assert_int_equal(p.rc, 0);
    assert_int_equal(opts_int(p.o, "rank"), 8);
    assert_true(opts_float(p.o, "lr") == 2e-4);
    assert_string_equal(opts_str(p.o, "schedule"), "1f1b");
    assert_null(opts_str(p.o, "model"));
    assert_null(opts_str(p.o, "threads"));
    assert_false(opts_flag(p.o, "keep"));
    assert_false(opts_is_set(p.o, "rank"));
    assert_int_equal(opts_list(p.o, "peer", &list), 0);
    done(&p);
}

static void every_spelling_is_read(void **state)
{
    (void)state;
    struct parsed p = parse("one --rank 16 --lr=1e-3 -kv -t5 --peer a:1 two --peer=b:2 --seed -7 --schedule "
                            "gpipe -- --rank three");
    const char *const *list;
    assert_int_equal(p.rc, 0);
    assert_int_equal(opts_int(p.o, "rank"), 16);
    assert_true(opts_is_set(p.o, "rank"));
    assert_true(opts_float(p.o, "lr") == 1e-3);
    assert_string_equal(opts_str(p.o, "lr"), "1e-3");
    assert_int_equal(opts_int(p.o, "seed"), -7);
    assert_int_equal(opts_int(p.o, "threads"), 5);
    assert_true(opts_flag(p.o, "keep") && opts_flag(p.o, "verbose"));
    assert_int_equal(opts_list(p.o, "peer", &list), 2);
    assert_string_equal(list[0], "a:1");
    assert_string_equal(list[1], "b:2");
    assert_int_equal(p.n, 4);
    assert_string_equal(p.positional[0], "one");
    assert_string_equal(p.positional[1], "two");
    assert_string_equal(p.positional[2], "--rank");
    assert_string_equal(p.positional[3], "three");
    done(&p);
}

static void errors_name_what_is_allowed(void **state)
{
    (void)state;
    expect_error("--rank 0", "--rank must be a whole number from 1 to 1024, and is 0");
    expect_error("--rank 99999999999999999999",
                 "--rank must be a whole number from 1 to 1024, and is 99999999999999999999");
    expect_error("--rank 8x", "--rank must be a whole number from 1 to 1024, and is \"8x\"");
    expect_error("--lr -1", "--lr must be a number of at least 0, and is -1");
    expect_error("--lr nan", "--lr must be a number of at least 0, and is nan");
    expect_error("--schedule zigzag", "--schedule must be naive, gpipe or 1f1b, and is \"zigzag\"");
    expect_error("--schedule 1f", "--schedule must be naive, gpipe or 1f1b, and is \"1f\"");
    expect_error("--keep=maybe", "--keep must be yes or no, and is \"maybe\"");
    expect_error("--rank", "--rank: a value is missing (N)");
    expect_error("--model=", "--model: an empty DIR");
    expect_error("--shedule gpipe", "unknown option --shedule: did you mean --schedule?");
    expect_error("--zb",
                 "unknown option --zb: --help lists the options"); /* not --lr, where both letters differ */
    expect_error("--z", "unknown option --z: --help lists the options");
    expect_error("--rnak 8", "unknown option --rnak: did you mean --rank?");
    expect_error("--sched gpipe", "unknown option --sched: did you mean --schedule?"); /* begun */
    expect_error("--completely-different 1",
                 "unknown option --completely-different: --help lists the options");
    expect_error("-x",
                 "unknown option -x: --help lists the options (a text that begins with - goes after --)");
}

static void missing_options_are_named_at_once(void **state)
{
    (void)state;
    struct parsed p = parse("");
    assert_true(opts_check(p.o, &p.err) < 0);
    assert_string_equal(p.err.text, "missing: --model DIR, --data FILE");
    assert_int_equal(opts_set(p.o, "model", "/m", &p.err), 0);
    assert_int_equal(opts_set(p.o, "data", "/d", &p.err), 0);
    assert_int_equal(opts_check(p.o, &p.err), 0);
    done(&p);
}

static void help_is_aligned_and_wrapped(void **state)
{
    (void)state;
    char *text = NULL;
    size_t n = 0;
    FILE *to = open_memstream(&text, &n);
    opts_help(conf_table, to);
    fclose(to);
    for (const char *line = text; *line; line += strcspn(line, "\n") + 1)
        assert_true(strcspn(line, "\n") <= 100);
    assert_non_null(strstr(text, "--listen ADDR:PORT"));
    assert_non_null(strstr(text, "[::]:17464)"));
    free(text);
    struct parsed p = parse("--help");
    assert_int_equal(p.rc, 0);
    assert_true(p.help);
    done(&p);
}

static void write_file(char path[32], const char *text)
{
    strcpy(path, "/tmp/ringd-conf-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

static void expect_file_error(const char *text, const char *sentence)
{
    char path[32], want[300];
    struct err err = {""};
    struct opts *o = opts_new(table);
    write_file(path, text);
    assert_true(opts_read_ini(o, path, &err) < 0);
    snprintf(want, sizeof want, "%s %s", path, sentence);
    assert_string_equal(err.text, want);
    unlink(path);
    opts_free(o);
}

static void the_file_is_read_and_flags_win(void **state)
{
    (void)state;
    char path[32];
    struct parsed p = parse("--rank 3 --peer flag:1");
    const char *const *list;
    write_file(path, "# a comment\nrank = 5\n[ringd]\nseed = 9\nkeep = yes\npeer = a:1\npeer = b:2\n");
    assert_int_equal(opts_read_ini(p.o, path, &p.err), 0);
    assert_int_equal(opts_int(p.o, "rank"), 3);
    assert_int_equal(opts_int(p.o, "seed"), 9);
    assert_true(opts_flag(p.o, "keep"));
    assert_int_equal(opts_list(p.o, "peer", &list), 1);
    assert_string_equal(list[0], "flag:1");
    unlink(path);
    done(&p);
}

static void a_wrong_file_is_named_with_its_line(void **state)
{
    (void)state;
    expect_file_error("seed = 1\nrnak = 5\n", "line 2: unknown option rnak: did you mean rank?");
    expect_file_error("\n[other]\nseed = 1\n", "line 3: unknown section [other]: there is only [ringd]");
    expect_file_error("seed = 1\n\nrank = 0\nseed = x\n",
                      "line 3: --rank must be a whole number from 1 to 1024, and is 0");
    expect_file_error("seed = 1\njust words\nrank = 0\n", "line 2: neither [section] nor key = value");
    char longer[400] = "seed = 1\nmodel = ";
    memset(longer + strlen(longer), 'x', 300);
    expect_file_error(longer, "line 2: longer than 199 bytes");
    struct opts *o = opts_new(table);
    struct err err;
    assert_true(opts_read_ini(o, "/nonexistent.conf", &err) < 0);
    assert_string_equal(err.text, "/nonexistent.conf: cannot be read: No such file or directory");
    assert_true(opts_read_ini(o, "/tmp", &err) < 0);
    opts_free(o);
}

static struct opts *load(int argc, char **argv)
{
    struct opts *o = NULL;
    struct err err;
    bool help;
    if (conf_load(&o, argc, argv, &help, &err))
        fail_msg("%s", err.text);
    return o;
}

static void ringds_defaults_follow_the_state_dir(void **state)
{
    (void)state;
    char path[32];
    write_file(path, "dead-after = 3\n");
    char *plain[] = {"ringd", "--config", path},
         *moved[] = {"ringd", "--config", path, "--state-dir", "/x/y", "--name", "n1"};
    struct opts *o = load(3, plain);
    assert_string_equal(opts_str(o, "socket"), "/run/ringd/ringd.sock");
    assert_true(strlen(opts_str(o, "name")) > 0);
    assert_int_equal(opts_int(o, "dead-after"), 3);
    opts_free(o);
    o = load(7, moved);
    assert_string_equal(opts_str(o, "socket"), "/x/y/ringd.sock");
    assert_string_equal(opts_str(o, "name"), "n1");
    opts_free(o);
    unlink(path);
}

static void ringd_checks_sizes_and_arguments(void **state)
{
    (void)state;
    static const char *const bad[] = {"8X", "-1", "", "G", "99999999999999999999", "99999999999G"};
    struct opts *o = NULL;
    struct err err;
    bool help;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char *argv[] = {"ringd", "--memory-limit", (char *)(uintptr_t)bad[i]};
        assert_true(conf_load(&o, 3, argv, &help, &err) < 0);
        assert_non_null(strstr(err.text, "--memory-limit"));
    }
    char *good[] = {"ringd", "--memory-limit", "8G"}, *stray[] = {"ringd", "start"};
    o = load(3, good);
    opts_free(o);
    assert_true(conf_load(&o, 2, stray, &help, &err) < 0);
    assert_string_equal(err.text, "\"start\": ringd takes options only, --help lists them");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_hold_until_set),
        cmocka_unit_test(every_spelling_is_read),
        cmocka_unit_test(errors_name_what_is_allowed),
        cmocka_unit_test(missing_options_are_named_at_once),
        cmocka_unit_test(help_is_aligned_and_wrapped),
        cmocka_unit_test(the_file_is_read_and_flags_win),
        cmocka_unit_test(a_wrong_file_is_named_with_its_line),
        cmocka_unit_test(ringds_defaults_follow_the_state_dir),
        cmocka_unit_test(ringd_checks_sizes_and_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
