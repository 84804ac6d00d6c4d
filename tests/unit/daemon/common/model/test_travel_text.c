/* SPDX-License-Identifier: MIT
 *
 * What has to come to the nodes of a plan, in words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "daemon/common/model/travel_text.h"

static void says(const char *travel, size_t rank, const char *of_rank, const char *total)
{
    char text[300] = "";
    json_t *read = json_loads(travel, 0, NULL);
    assert_non_null(read);
    assert_int_equal(travel_rank_text(text, sizeof text, read, rank), of_rank != NULL);
    if (of_rank)
        assert_string_equal(text, of_rank);
    assert_int_equal(travel_total_text(text, sizeof text, read), total != NULL);
    if (total)
        assert_string_equal(text, total);
    json_decref(read);
}

#define RANK "\"ranks\": [{\"node\": \"b\", \"share\": 8388608, "

static void from_nodes_it_has_a_time(void **state)
{
    (void)state;
    says("{\"bytes\": 4194304, \"hub\": 0, \"seconds\": 35.4, \"mbps\": 1000, " RANK
         "\"lacks\": 4194304, \"from\": [{\"node\": \"a\"}, {\"node\": \"c\"}], \"hub\": 0}]}",
         0, "node b lacks 4.0 MiB of 8.0 MiB: from node a and node c", "4.0 MiB must travel: 35 s at 1 Gb/s");
    says("{\"bytes\": 4194304, \"hub\": 0, \"seconds\": 7300, \"mbps\": 12.5, \"ranks\": []}", 0, NULL,
         "4.0 MiB must travel: 2.0 h at 12.5 Mb/s");
    says("{\"bytes\": 4194304, \"hub\": 0, \"seconds\": 180, \"mbps\": 2500, \"ranks\": []}", 0, NULL,
         "4.0 MiB must travel: 3 min at 2.5 Gb/s");
    says("{\"bytes\": 4194304, \"hub\": 0, \"ranks\": []}", 0, NULL,
         "4.0 MiB must travel, at a rate that is not known");
}

static void from_the_hub_nobody_knows(void **state)
{
    (void)state;
    says("{\"bytes\": 4194304, \"hub\": 4194304, " RANK
         "\"lacks\": 4194304, \"from\": [], \"hub\": 4194304}]}",
         0, "node b lacks 4.0 MiB of 8.0 MiB: from the hub", "4.0 MiB must travel, all of it from the hub");
    says("{\"bytes\": 4194304, \"hub\": 2097152, \"seconds\": 0.31, \"mbps\": 100, " RANK
         "\"lacks\": 4194304, \"from\": [{\"node\": \"a\"}], \"hub\": 2097152}]}",
         0, "node b lacks 4.0 MiB of 8.0 MiB: from node a and the hub",
         "4.0 MiB must travel, 2.0 MiB of it from the hub, and the rest takes 0.31 s at 100 Mb/s");
}

static void where_nothing_lacks_nothing_is_said(void **state)
{
    char text[10];
    (void)state;
    says("{\"bytes\": 0, \"hub\": 0, " RANK "\"lacks\": 0, \"from\": [], \"hub\": 0}]}", 0, NULL, NULL);
    says("{\"bytes\": 0, \"hub\": 0, " RANK "\"why\": \"is gone\"}]}", 0,
         "what node b lacks of 8.0 MiB is not known: it is gone", NULL);
    assert_false(travel_rank_text(text, sizeof text, NULL, 0));
    assert_false(travel_total_text(text, sizeof text, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(from_nodes_it_has_a_time),
        cmocka_unit_test(from_the_hub_nobody_knows),
        cmocka_unit_test(where_nothing_lacks_nothing_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
