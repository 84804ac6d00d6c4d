/* SPDX-License-Identifier: MIT
 *
 * What data connections carried, by cable, over several paths and stages. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <string.h>

#include "daemon/ringd/job/lane_counts.h"
#include "daemon/common/progress.h"

static void carry(struct progress *p, uint64_t path, uint64_t tx, uint64_t rx)
{
    struct progress_lane *lane = progress_lane(p, path);
    lane->tx_bytes += tx;
    lane->rx_bytes += rx;
    lane->retransmits += 1;
    lane->rtt_us = 500;
}

static json_int_t sum_of(const struct lane_counts *c, const struct progress *p, const char *port,
                         const char *key)
{
    struct lane_counts *all = lane_counts_new();
    lane_counts_add(all, c, p);
    json_t *list = lane_counts_encode(all), *one;
    lane_counts_free(all);
    json_int_t sum = 0;
    size_t i;
    json_array_foreach (list, i, one) {
        if (!strcmp(json_string_value(json_object_get(one, "port")), port))
            sum += (json_int_t)json_number_value(json_object_get(one, key));
    }
    json_decref(list);
    return sum;
}

static void cables_outlive_paths_and_stages(void **state)
{
    (void)state;
    const struct path_name left = {"b", "eth0", "1"}, right = {"c", "eth1", "2"};
    static struct progress first, second;
    struct lane_counts *c = lane_counts_new();
    lane_counts_name(c, 7, &left);
    lane_counts_name(c, 8, &right);
    lane_counts_name(c, 8, &right); /* dialled again */
    carry(&first, 7, 100, 10);
    carry(&first, 8, 1000, 0);
    carry(&first, 8, 1000, 0);
    lane_counts_name(c, 9, &left); /* the cable came back under another number */
    carry(&first, 9, 1, 2);
    assert_int_equal(sum_of(c, &first, "eth0", "data_tx_bytes"), 101);
    assert_int_equal(sum_of(c, &first, "eth0", "data_rx_bytes"), 12);
    assert_int_equal(sum_of(c, &first, "eth1", "data_tx_bytes"), 2000);
    assert_int_equal(sum_of(c, &first, "eth1", "data_retransmits"), 2);
    lane_counts_keep(c, &first);
    assert_int_equal(sum_of(c, NULL, "eth1", "data_tx_bytes"), 2000);
    assert_int_equal(sum_of(c, NULL, "eth1", "data_rtt_ms"), 0);
    lane_counts_name(c, 8, &right);
    carry(&second, 8, 5, 5);
    assert_int_equal(sum_of(c, &second, "eth1", "data_tx_bytes"), 2005);
    assert_int_equal(sum_of(c, &second, "eth0", "data_tx_bytes"), 101);
    lane_counts_free(c);
}

/* More paths and more cables than there are places for: what they carry is counted all the same
 * where there is one. */
static void places_are_bounded(void **state)
{
    (void)state;
    static struct progress stage;
    struct lane_counts *c = lane_counts_new();
    for (uint64_t path = 1; path <= 3 * PROGRESS_LANES; path++) {
        struct path_name name = {"b", "eth0", ""};
        name.cable[0] = (char)('0' + path % 64);
        lane_counts_name(c, path, &name);
        carry(&stage, path, 1, 0);
    }
    assert_int_equal(sum_of(c, &stage, "eth0", "data_tx_bytes"), 3 * PROGRESS_LANES);
    lane_counts_keep(c, &stage);
    assert_int_equal(sum_of(c, NULL, "eth0", "data_tx_bytes"), 3 * PROGRESS_LANES);
    lane_counts_free(c);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(cables_outlive_paths_and_stages),
                                              cmocka_unit_test(places_are_bounded)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
