/* SPDX-License-Identifier: MIT
 *
 * ringctl's options of a spec against the fields they are made of: what one refuses the other does,
 * in the same words, and what an option does not say is what the daemon takes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/job_spec.h"
#include "daemon/ctl/spec_options.h"

static const unsigned uses[] = {JOB_SPEC_OF(JOB_TRAIN), JOB_SPEC_OF(JOB_GENERATE), JOB_SPEC_OF(JOB_SCORE),
                                JOB_SPEC_OF_DATA, JOB_SPEC_OF_CHAT};
enum { USES = sizeof uses / sizeof *uses };

static const struct opt_def *option_named(const struct opt_def *defs, const char *name)
{
    while (defs->name && strcmp(defs->name, name) != 0)
        defs++;
    return defs->name ? defs : NULL;
}

/* The row of that use alone, as a table. */
struct table {
    struct field rows[2];
};

static struct table table_of(const struct field *f)
{
    struct table t = {{*f, {.name = NULL}}};
    t.rows[0].offset = 0;
    t.rows[0].missing = NULL;
    return t;
}

/* The "must be …, and is" of both sentences; 200 is also written 200.0. */
static void expect_same_range(const char *option_says, const char *field_says)
{
    static const char until[] = ", and is ";
    option_says = strstr(option_says, " must be ");
    field_says = strstr(field_says, " must be ");
    if (!option_says || !field_says || !strstr(option_says, until))
        fail_msg("not that sentence");
    const size_t n = (size_t)(strstr(option_says, until) - option_says) + strlen(until);
    if (strncmp(option_says, field_says, n) != 0)
        fail_msg("\"%s\" and \"%s\" differ", option_says, field_says);
}

static void expect_same_words(const struct field *f, const struct opt_def *defs, const char *text,
                              json_t *value)
{
    const struct table table = table_of(f);
    union {
        double number;
        uint64_t whole;
        const void *p;
    } at;
    char option[FIELD_OPTION];
    const char *name = option + 2;
    struct err by_option = {""}, by_field = {""};
    struct opts *o = opts_new(defs);
    json_t *object = json_object();
    json_object_set_new(object, f->name, value);
    field_option(option, f);
    const bool refused = opts_set(o, name, text, &by_option) != 0;
    if (refused != (fields_read(&at, table.rows, f->use, object, &by_field) != 0))
        fail_msg("--%s %s: the option says \"%s\", the field \"%s\"", name, text, by_option.text,
                 by_field.text);
    if (refused)
        expect_same_range(by_option.text, by_field.text);
    json_decref(object);
    opts_free(o);
}

static void expect_same_number(const struct field *f, const struct opt_def *defs, double x)
{
    char text[64];
    snprintf(text, sizeof text, "%.17g", x);
    expect_same_words(f, defs, text, f->type == FIELD_WHOLE ? json_integer((json_int_t)x) : json_real(x));
}

static void check_range(const struct field *f, const struct opt_def *defs)
{
    const double beyond = f->type == FIELD_WHOLE ? 1 : 0.5;
    if (f->type == FIELD_WHOLE || (f->type == FIELD_NUMBER && f->max > 1)) {
        expect_same_number(f, defs, f->min);
        expect_same_number(f, defs, f->max);
        expect_same_number(f, defs, f->min - beyond);
        expect_same_number(f, defs, f->max + beyond);
        expect_same_words(f, defs, "many", json_string("many"));
    } else if (f->type == FIELD_CHOICE) {
        expect_same_words(f, defs, f->choices[0].name, json_string(f->choices[0].name));
        expect_same_words(f, defs, "zigzag", json_string("zigzag"));
        expect_same_words(f, defs, "", json_string(""));
    }
}

static void ranges_are_the_same_and_so_are_the_words(void **state)
{
    (void)state;
    for (size_t u = 0; u < USES; u++) {
        struct opt_def *defs = spec_options_new(uses[u], NULL, NULL);
        for (const struct field *f = job_spec_fields(); f->name; f++)
            if (spec_option_is_for(f, uses[u]))
                check_range(f, defs);
        free(defs);
    }
}

/* The row of a key that a use has, with an option or without. */
static void every_use_has_one_row_of_a_key(void **state)
{
    (void)state;
    for (size_t u = 0; u < USES; u++)
        for (const struct field *f = job_spec_fields(); f->name; f++)
            for (const struct field *g = f + 1; g->name; g++)
                if (!strcmp(f->name, g->name) && (f->use & g->use & uses[u]))
                    fail_msg("\"%s\" has two rows for the same use", f->name);
}

static void an_option_is_what_its_row_says(void **state)
{
    static const struct opt_def own[] = {{.name = "own", .type = OPT_FLAG}, {.name = NULL}},
                                global[] = {{.name = "global", .type = OPT_FLAG}, {.name = NULL}};
    (void)state;
    struct opt_def *defs = spec_options_new(JOB_SPEC_OF(JOB_TRAIN), own, global);
    const struct opt_def *rank = option_named(defs, "rank"), *mask = option_named(defs, "mask"),
                         *lr = option_named(defs, "lr"), *args = option_named(defs, "template-arg"),
                         *schedule = option_named(defs, "schedule"), *data = option_named(defs, "data");
    assert_true(rank && rank->type == OPT_INT && rank->min == 1 && rank->max == 4096);
    assert_string_equal(rank->def, "8");
    assert_true(mask && mask->type == OPT_CHOICE);
    assert_string_equal(mask->placeholder, "none|prompt|assistant");
    assert_string_equal(mask->def, "none");
    assert_true(lr && lr->type == OPT_FLOAT && !lr->def); /* it depends */
    assert_true(args && args->type == OPT_LIST && !option_named(defs, "template-args"));
    assert_true(schedule && schedule->type == OPT_CHOICE && !strcmp(schedule->def, "1f1b"));
    assert_true(data && data->type == OPT_PATH && data->required);
    assert_null(option_named(defs, "dry-run"));
    assert_null(option_named(defs, "top-p"));
    assert_non_null(option_named(defs, "own"));
    assert_non_null(option_named(defs, "global"));
    free(defs);
    defs = spec_options_new(0, own, NULL);
    assert_string_equal(defs[0].name, "own");
    assert_null(defs[1].name);
    free(defs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_are_the_same_and_so_are_the_words),
        cmocka_unit_test(every_use_has_one_row_of_a_key),
        cmocka_unit_test(an_option_is_what_its_row_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
