/* SPDX-License-Identifier: MIT
 *
 * What ranks map of a model: whose memory is the same, and how much several take together. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "daemon/common/model/mapped.h"
#include "tests/lib/small_plan.h"

/* Of three layers and the ends. */
static size_t units[] = {100, 10, 20, 30, 7};

static struct job_plan plan_of(size_t ranks)
{
    struct job_plan p = small_plan(JOB_GENERATE, ranks);
    p.nmapped = sizeof units / sizeof *units;
    p.mapped = units;
    p.first[ranks] = 3;
    return p;
}

static uint64_t together(const struct mapped *a, const struct mapped *b)
{
    const struct mapped *const both[] = {a, b};
    return mapped_union(both, 2);
}

static void a_rank_maps_its_layers_and_its_ends(void **state)
{
    (void)state;
    struct job_plan p = plan_of(2); /* layer 0; layers 1 and 2 */
    struct mapped first, last;
    assert_int_equal(mapped_of_plan(&first, &p, 0), 0);
    assert_int_equal(mapped_of_plan(&last, &p, 1), 0);
    assert_int_equal(mapped_sum(&first), 110);
    assert_int_equal(mapped_sum(&last), 57);
    mapped_done(&last);
    p.tied = true; /* the head reads the embedding's matrix, too */
    assert_int_equal(mapped_of_plan(&last, &p, 1), 0);
    assert_int_equal(mapped_sum(&last), 157);
    mapped_done(&first);
    mapped_done(&last);
}

static void what_two_map_counts_once(void **state)
{
    (void)state;
    struct job_plan two = plan_of(2), one = plan_of(1);
    struct mapped all, last;
    assert_int_equal(mapped_of_plan(&all, &one, 0), 0);
    assert_int_equal(mapped_of_plan(&last, &two, 1), 0);
    assert_int_equal(together(&all, &last), mapped_sum(&all));
    assert_int_equal(together(&last, &all), mapped_sum(&all));
    last.key++; /* of another model */
    assert_int_equal(together(&all, &last), mapped_sum(&all) + 57);
    mapped_done(&all);
    assert_int_equal(together(&all, &last), 57);
    mapped_done(&last);
}

static void other_files_or_another_form_are_other_memory(void **state)
{
    (void)state;
    struct job_plan p = plan_of(2);
    const uint64_t key = mapped_key(&p);
    struct job_plan path = p, shape = p, form = p, bytes = p, tied = p, split = plan_of(1), nothing = p;
    size_t others[] = {100, 10, 21, 30, 7};
    path.model[1] = 'n';
    shape.fingerprint[0] = 'f';
    form.weight_bits = 4;
    bytes.mapped = others;
    tied.tied = true;
    nothing.nmapped = 0;
    assert_int_not_equal(mapped_key(&path), key);
    assert_int_not_equal(mapped_key(&shape), key);
    assert_int_not_equal(mapped_key(&form), key);
    assert_int_not_equal(mapped_key(&bytes), key);
    assert_int_not_equal(mapped_key(&tied), key);
    assert_int_equal(mapped_key(&split), key); /* who has which layers does not matter */
    assert_int_equal(mapped_key(&nothing), 0);
}

static void a_key_travels_as_text(void **state)
{
    (void)state;
    char text[MAPPED_KEY_TEXT];
    uint64_t back = 1;
    mapped_key_text(text, UINT64_C(0x0123456789abcdef));
    assert_string_equal(text, "0123456789abcdef");
    assert_int_equal(mapped_key_parse(&back, text), 0);
    assert_true(back == UINT64_C(0x0123456789abcdef));
    assert_int_equal(mapped_key_parse(&back, "0123456789abcde"), -EBADMSG);
    assert_int_equal(mapped_key_parse(&back, "0123456789abcdeg"), -EBADMSG);
    assert_int_equal(mapped_key_parse(&back, NULL), -EBADMSG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_maps_its_layers_and_its_ends),
        cmocka_unit_test(what_two_map_counts_once),
        cmocka_unit_test(other_files_or_another_form_are_other_memory),
        cmocka_unit_test(a_key_travels_as_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
