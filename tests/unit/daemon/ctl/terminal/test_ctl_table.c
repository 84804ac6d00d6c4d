/* SPDX-License-Identifier: MIT
 *
 * Tables of ringctl: what fits the terminal, what is cut, what goes on in the next line, and what
 * is painted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "daemon/ctl/terminal/ctl_table.h"
#include "daemon/ctl/terminal/ctl_term.h"

/* What is printed; the caller frees. */
static char *printed(struct table *t, size_t width, bool colors)
{
    char *text = NULL;
    size_t n = 0;
    FILE *to = open_memstream(&text, &n);
    table_print(t, to, width, colors);
    fclose(to);
    table_free(t);
    return text;
}

static void expect(struct table *t, size_t width, const char *want)
{
    char *text = printed(t, width, false);
    assert_string_equal(text, want);
    free(text);
}

static struct table *jobs(void)
{
    struct table *t = table_new("JOB\tSTATE\tERROR");
    table_add(t, "%d\t%s\t%s", 12, "failed", "rank 1 on node b died and took the job with it");
    table_add(t, "%d\t%s\t%s", 3, "done", "");
    return t;
}

static void test_no_terminal_no_limit(void **state)
{
    (void)state;
    expect(jobs(), 0,
           "JOB  STATE   ERROR\n"
           "12   failed  rank 1 on node b died and took the job with it\n"
           "3    done\n");
}

static void test_last_column_goes_on(void **state)
{
    (void)state;
    expect(jobs(), 40,
           "JOB  STATE   ERROR\n"
           "12   failed  rank 1 on node b died and\n"
           "             took the job with it\n"
           "3    done\n");
}

static void test_a_long_cell_is_cut(void **state)
{
    (void)state;
    struct table *t = table_new("NODE\tDOING\tMORE");
    table_add(t, "müller-workstation-2\tcomputing\tx");
    expect(t, 30,
           "NODE           DOING      MORE\n"
           "müller-works…  computing  x\n");
}

/* Whatever the terminal, no line is wider; where it must be, heads are cut, too. */
static void test_every_width(void **state)
{
    (void)state;
    for (size_t width = 24; width < 120; width++) {
        char *text = printed(jobs(), width, false);
        for (const char *line = text; *line; line += strcspn(line, "\n") + 1)
            assert_true(text_columns(line, strcspn(line, "\n")) <= width);
        free(text);
    }
    expect(table_new("A LONG HEAD\tANOTHER"), 14, "A LON…  ANOTH…\n");
}

static void test_a_sentence_makes_no_column_wide(void **state)
{
    (void)state;
    struct table *t = table_new("PEER\tSTATE");
    table_add(t, "none: plug in a cable");
    expect(t, 0, "PEER  STATE\nnone: plug in a cable\n");
}

static void test_states_are_painted_in_their_column_alone(void **state)
{
    (void)state;
    struct table *t = table_new("NODE\tSTATE");
    table_add(t, "done\tgone");
    char *text = printed(t, 0, true);
    assert_string_equal(text, "\033[1mNODE\033[0m  \033[1mSTATE\033[0m\ndone  \033[1;31mgone\033[0m\n");
    free(text);
}

static void test_nothing_steers_the_terminal(void **state)
{
    (void)state;
    struct table *t = table_new("NODE\tSTATE");
    table_add(t, "a\033[2J\rb\tup\x07");
    expect(t, 0, "NODE     STATE\na?[2J?b  up?\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_terminal_no_limit),
        cmocka_unit_test(test_last_column_goes_on),
        cmocka_unit_test(test_a_long_cell_is_cut),
        cmocka_unit_test(test_every_width),
        cmocka_unit_test(test_a_sentence_makes_no_column_wide),
        cmocka_unit_test(test_states_are_painted_in_their_column_alone),
        cmocka_unit_test(test_nothing_steers_the_terminal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
