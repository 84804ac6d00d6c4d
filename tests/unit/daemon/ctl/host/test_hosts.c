/* SPDX-License-Identifier: MIT
 *
 * Names for the ends of cables. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <string.h>

#include "daemon/ctl/host/hosts.h"

static void names_are_labels(void **state)
{
    static const struct {
        const char *node, *port, *label;
    } cases[] = {
        {"anna", "eth1", "anna-eth1"},
        {"Anna's Mac", "enp0s31f6.7", "anna-s-mac-enp0s31f6-7"},
        {"--a--", "__", "a"},
        {"", "", "x"},
        {"b\xc3\xb6rse", "e", "b-rse-e"},
        {"", "eth0", "eth0"},
        {"0123456789012345678901234567890123456789012345678901234567890123456789", "thunderbolt0123",
         "01234567890123456789012345678901234567890123456-thunderbolt0123"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char label[HOSTS_LABEL];

        hosts_label(label, cases[i].node, cases[i].port);
        assert_string_equal(label, cases[i].label);
    }
}

static const char *at(const json_t *list, size_t i, const char *key)
{
    return json_string_value(json_object_get(json_array_get(list, i), key));
}

static void both_ends_of_every_cable(void **state)
{
    json_t *ports = json_loads(
        "{\"ports\":[{\"name\":\"eth.1\",\"heard\":[{\"node\":\"b\",\"port\":\"eth0\",\"subnet\":\"fd00::1/"
        "127\",\"peer_subnet\":\"fd00::/127\","
        "\"subnet_set\":true,\"subnet_trouble\":\"\",\"subnet4\":\"10.98.0.2/"
        "31\",\"peer_subnet4\":\"10.98.0.3/31\",\"subnet4_set\":false,"
        "\"subnet4_trouble\":\"not yet\"}]},"
        "{\"name\":\"eth-1\",\"heard\":[{\"node\":\"c\",\"port\":\"\",\"subnet\":\"fd00::2/"
        "127\",\"peer_subnet\":\"fd00::3/127\",\"subnet_set\":true}]},"
        "{\"name\":\"eth2\",\"heard\":[{\"node\":\"d\",\"port\":\"e\",\"subnet\":\"\",\"subnet4\":\"\"}]}],"
        "\"elsewhere\":[{\"node\":\"b\",\"port\":\"eth0\",\"subnet\":\"fd00::/127\",\"subnet4\":\"10.98.0.3/"
        "31\"},"
        "{\"node\":\"d\",\"port\":\"e0\",\"subnet\":\"fd00::9/127\",\"subnet4\":\"\"}]}",
        0, NULL);
    json_t *list;

    (void)state;
    assert_non_null(ports);
    list = hosts_list(ports, "a");
    assert_int_equal(json_array_size(list), 7);
    assert_string_equal(at(list, 6, "name"), "d-e0.ring"); /* of b's nothing but what is known from here */
    assert_string_equal(at(list, 6, "address"), "fd00::9");
    assert_string_equal(at(list, 0, "address"), "fd00::1");
    assert_string_equal(at(list, 0, "name"), "a-eth-1.ring");
    assert_string_equal(at(list, 0, "why"), "");
    assert_string_equal(at(list, 1, "name"), "b-eth0.ring");
    assert_string_equal(at(list, 2, "address"), "10.98.0.2");
    assert_string_equal(at(list, 2, "name"), "a-eth-1.ring"); /* one name, an address of each family */
    assert_string_equal(at(list, 2, "why"), "not yet");
    assert_string_equal(at(list, 4, "name"), "a-eth-1-2.ring"); /* another port, that only looks the same */
    assert_string_equal(at(list, 5, "name"), "c.ring");
    json_decref(list);
    json_decref(ports);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_labels),
        cmocka_unit_test(both_ends_of_every_cable),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
