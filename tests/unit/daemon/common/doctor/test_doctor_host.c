/* SPDX-License-Identifier: MIT
 *
 * The doctor's facts of a machine, read from a made-up /proc and /sys. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/common/doctor/doctor_host.h"
#include "daemon/ringd/peer/half_open.h"

static const char *field(const json_t *f, const char *key)
{
    const char *text = json_string_value(json_object_get(f, key));
    return text ? text : "";
}

static void write_file(const char *root, const char *path, const char *text)
{
    char full[512], command[600];
    snprintf(full, sizeof full, "%s%s", root, path);
    snprintf(command, sizeof command, "mkdir -p \"$(dirname '%s')\"", full);
    assert_int_equal(system(command), 0);
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static void calls_that_are_half_open(void **state)
{
    char root[] = "/tmp/ringd-doctor-XXXXXX", command[64];
    (void)state;
    assert_non_null(mkdtemp(root));
    write_file(root, "/proc/self/net/tcp6",
               "  sl  local_address                         remote_address                        st\n"
               "   0: 00000000000000000000000000000000:4438 00000000000000000000000000000000:0000 0A 0\n"
               "   1: 000080FE00000000FF2F295404602CFE:4438 000080FE00000000FF6874BC14DFFAFE:D650 03 0\n"
               "   2: 000080FE00000000FF2F295404602CFE:4438 000080FE00000000FF6874BC15DFFAFE:D650 01 0\n");
    assert_true(half_open_from(root, "fe80::bc74:68ff:fefa:df14%3", 17464));
    assert_false(half_open_from(root, "fe80::bc74:68ff:fefa:df14%3", 17465));
    assert_false(half_open_from(root, "fe80::bc74:68ff:fefa:df15", 17464)); /* that one stands */
    assert_false(half_open_from(root, "192.168.7.2", 17464));
    assert_false(half_open_from("/nowhere", "fe80::bc74:68ff:fefa:df14", 17464));
    snprintf(command, sizeof command, "rm -r %s", root);
    assert_int_equal(system(command), 0);
}

static void the_keeper_of_the_keys(void **state)
{
    char root[] = "/tmp/ringd-doctor-XXXXXX", path[64], command[64];
    (void)state;
    assert_non_null(mkdtemp(root));
    json_t *keys = doctor_host_keys(root, root, 0);
    assert_false(json_object_get(keys, "mode"));
    assert_true(json_is_false(json_object_get(keys, "running")));
    assert_false(json_object_get(keys, "filters"));
    json_decref(keys);
    write_file(root, "/identity", "secret");
    snprintf(path, sizeof path, "%s/identity", root);
    assert_int_equal(chmod(path, 0604), 0);
    const char *const says[] = {"Name:\tringd-keys\nSeccomp:\t2\n", "Seccomp:\t0\n"};
    for (size_t i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "/proc/%d/status", (int)getpid());
        write_file(root, path, says[i]);
        keys = doctor_host_keys(root, root, getpid());
        assert_int_equal(json_integer_value(json_object_get(keys, "mode")), 0604);
        assert_true(json_is_true(json_object_get(keys, "running")));
        assert_int_equal(json_is_true(json_object_get(keys, "filters")), i == 0);
        json_decref(keys);
    }
    snprintf(command, sizeof command, "rm -r %s", root);
    assert_int_equal(system(command), 0);
}

static void modes_of_apparmor(void **state)
{
    static const struct {
        const char *says, *mode;
    } cases[] = {{"ringd (enforce)\n", "enforce"},
                 {"ringd//&ringd//stage (enforce)\n", "enforce"},
                 {"ringd (complain)\n", "complain"},
                 {"ringd//&ringd//stage (mixed)\n", "unconfined"},
                 {"unconfined\n", "unconfined"}};
    char root[] = "/tmp/doctorXXXXXX", command[64];
    (void)state;
    assert_non_null(mkdtemp(root));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_file(root, "/proc/self/attr/apparmor/current", cases[i].says);
        write_file(root, "/sys/module/apparmor/parameters/enabled", i % 2 ? "Y\n" : "N\n");
        json_t *off = doctor_host_apparmor(root);
        assert_string_equal(json_string_value(off), i % 2 ? cases[i].mode : "");
        json_decref(off);
        write_file(root, "/sys/module/apparmor/parameters/enabled", "Y\n");
        json_t *on = doctor_host_apparmor(root);
        assert_string_equal(json_string_value(on), cases[i].mode);
        json_decref(on);
    }
    snprintf(command, sizeof command, "rm -r %s", root);
    assert_int_equal(system(command), 0);
}

static void facts_of_a_machine(void **state)
{
    (void)state;
    char root[] = "/tmp/doctorXXXXXX", command[64];
    assert_non_null(mkdtemp(root));
    write_file(root, "/proc/cpuinfo", "processor\t: 0\nmodel name\t: A CPU @ 2 GHz\n");
    write_file(root, "/proc/meminfo", "MemTotal:       1000 kB\nMemAvailable:    400 kB\nSwapTotal: 0 kB\n");
    write_file(root, "/proc/net/if_inet6",
               "fe800000000000000000000000000a01 02 40 20 80     eth1\nfd000000000000000000000000000001 02 "
               "40 00 80 eth1\n");
    write_file(root, "/proc/sys/net/ipv6/conf/eth1/disable_ipv6", "1\n");
    write_file(root, "/etc/ufw/ufw.conf", "# comment\nENABLED=yes\n");
    write_file(root, "/sys/bus/thunderbolt/devices/domain0/security", "user\n");
    write_file(root, "/sys/bus/thunderbolt/devices/0-1/authorized", "0\n");
    write_file(root, "/sys/class/net/eth1/ifindex", "7\n");
    write_file(root, "/sys/class/net/eth1/flags", "0x1003\n");
    write_file(root, "/sys/class/net/eth1/mtu", "1500\n");
    write_file(root, "/sys/class/net/eth1/carrier", "1\n");
    write_file(root, "/sys/class/net/eth1/device/vendor", "x\n");
    write_file(root, "/sys/class/net/eth1/statistics/rx_packets", "12345\n");
    write_file(root, "/sys/class/net/docker0/ifindex", "8\n");
    write_file(root, "/run/systemd/netif/links/7",
               "ADMIN_STATE=configured\nNETWORK_FILE=/etc/systemd/network/x.network\n");
    json_t *facts = doctor_host_facts(root, root), *ports = doctor_host_ports(root),
           *eth1 = json_array_get(ports, 0);
    assert_string_equal(field(facts, "firewall"), "ufw");
    assert_string_equal(field(json_object_get(facts, "cpu"), "model"), "A CPU @ 2 GHz");
    assert_int_equal(json_integer_value(json_object_get(json_object_get(facts, "memory"), "available")),
                     400 * 1024);
    const json_t *tb = json_object_get(facts, "thunderbolt");
    assert_string_equal(field(tb, "security"), "user");
    assert_true(json_is_false(json_object_get(tb, "module")));
    assert_string_equal(json_string_value(json_array_get(json_object_get(tb, "waiting"), 0)), "0-1");
    assert_int_equal(json_array_size(ports), 1);
    assert_string_equal(field(eth1, "name"), "eth1");
    assert_string_equal(field(eth1, "link_local"), "fe80::a01");
    assert_string_equal(field(eth1, "manager"), "networkd");
    assert_true(json_is_true(json_object_get(eth1, "up")));
    assert_true(json_is_true(json_object_get(eth1, "ipv6_disabled")));
    assert_false(json_is_true(json_object_get(eth1, "enslaved")));
    assert_true(doctor_host_received(root, "eth1") == 12345);
    assert_true(doctor_host_received(root, "eth2") < 0);
    json_decref(facts);
    json_decref(ports);
    snprintf(command, sizeof command, "rm -r '%s'", root);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_that_are_half_open),
        cmocka_unit_test(the_keeper_of_the_keys),
        cmocka_unit_test(modes_of_apparmor),
        cmocka_unit_test(facts_of_a_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
