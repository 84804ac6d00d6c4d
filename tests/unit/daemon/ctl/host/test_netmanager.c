/* SPDX-License-Identifier: MIT
 *
 * Which file tells which manager to leave a port alone, on machines that the test makes up as
 * folders. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/ctl/host/netmanager.h"

static void put(const char *root, const char *path, const char *text)
{
    char at[256];
    FILE *f;

    snprintf(at, sizeof at, "%s%s", root, path);
    for (char *c = at + strlen(root) + 1; (c = strchr(c, '/')); c++) {
        *c = '\0';
        mkdir(at, 0755);
        *c = '/';
    }
    f = fopen(at, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static bool get(const char *root, const char *path, char ret[1024])
{
    char at[256];
    FILE *f;

    snprintf(at, sizeof at, "%s%s", root, path);
    f = fopen(at, "r");
    if (f) {
        ret[fread(ret, 1, 1023, f)] = '\0';
        fclose(f);
    }
    return f != NULL;
}

/* A machine with eth1, its number 4, and the default route on eth0. */
static int make_root(void **state)
{
    char name[] = "/tmp/adoptXXXXXX", *root = mkdtemp(name) ? strdup(name) : NULL;

    if (!root)
        return -1;
    put(root, "/sys/class/net/eth1/type", "1\n");
    put(root, "/sys/class/net/eth1/ifindex", "4\n");
    put(root, "/sys/class/net/eth1/address", "02:00:00:00:00:07\n");
    put(root, "/sys/class/net/eth1/addr_assign_type", "0\n");
    put(root, "/sys/class/net/eth0/type", "1\n");
    put(root, "/proc/net/route",
        "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
        "eth0\t00000000\t0101A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
        "eth1\t0101A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n");
    *state = root;
    return 0;
}

static int remove_root(void **state)
{
    char command[64];
    int r;

    snprintf(command, sizeof command, "rm -rf %s", (const char *)*state);
    r = system(command);
    free(*state);
    return r;
}

static void run_networkd(const char *root, const char *links)
{
    put(root, "/proc/17/comm", "systemd-network\n");
    put(root, "/run/systemd/netif/links/4", links);
}

static void nobody_manages_it(void **state)
{
    struct adopt_file f;
    struct err err;

    assert_int_equal(adopt_plan(&f, *state, "eth1", &err), 0);
    assert_null(f.manager);
    run_networkd(*state, "ADMIN_STATE=unmanaged\nOPER_STATE=routable\n");
    assert_int_equal(adopt_plan(&f, *state, "eth1", &err), 0);
    assert_null(f.manager);
}

static void networkd_is_told(void **state)
{
    const char *root = *state;
    char text[1024];
    struct adopt_file f, again;
    struct err err;

    run_networkd(root, "# This is private data.\nADMIN_STATE=configured\n");
    assert_int_equal(adopt_plan(&f, root, "eth1", &err), 0);
    assert_string_equal(f.manager, "systemd-networkd");
    assert_string_equal(f.path, "/etc/systemd/network/10-ringd-eth1.network");
    assert_false(get(root, f.path, text)); /* a plan writes nothing */
    assert_int_equal(adopt_write(root, &f, &err), 0);
    assert_int_equal(adopt_write(root, &f, &err), 0); /* over its own */
    assert_true(get(root, f.path, text));
    assert_string_equal(text, f.text);
    assert_non_null(strstr(text, "\nMACAddress=02:00:00:00:00:07\n"));
    assert_non_null(strstr(text, "\nKeepConfiguration=yes\n"));
    assert_non_null(strstr(f.apply, "networkctl"));
    assert_int_equal(adopt_release(&again, root, "eth1", &err), 0);
    assert_string_equal(again.path, f.path);
    assert_false(get(root, f.path, text));
    assert_int_equal(adopt_release(&again, root, "eth1", &err), -ENOENT);
}

static void network_manager_is_told(void **state)
{
    const char *root = *state;
    char text[1024];
    struct adopt_file f;
    struct err err;

    put(root, "/proc/18/comm", "NetworkManager\n");
    put(root, "/run/NetworkManager/devices/4", "[device]\nmanaged=true\n");
    assert_int_equal(adopt_plan(&f, root, "eth1", &err), 0);
    assert_string_equal(f.manager, "NetworkManager");
    assert_int_equal(adopt_write(root, &f, &err), 0);
    assert_true(get(root, "/etc/NetworkManager/conf.d/10-ringd-eth1.conf", text));
    assert_non_null(strstr(text, "[keyfile]\nunmanaged-devices+=mac:02:00:00:00:00:07\n"));
    put(root, "/run/NetworkManager/devices/4", "[device]\nmanaged=false\n");
    assert_int_equal(adopt_plan(&f, root, "eth1", &err), 0);
    assert_null(f.manager);
    assert_int_equal(adopt_release(&f, root, "eth1", &err), 0);
    assert_false(get(root, "/etc/NetworkManager/conf.d/10-ringd-eth1.conf", text));
}

static void a_mac_drawn_at_random_names_nothing(void **state)
{
    struct adopt_file f;
    struct err err;

    run_networkd(*state, "ADMIN_STATE=configuring\n");
    put(*state, "/sys/class/net/eth1/addr_assign_type", "1\n");
    assert_int_equal(adopt_plan(&f, *state, "eth1", &err), 0);
    assert_non_null(strstr(f.text, "\nName=eth1\n"));
}

static void foreign_files_stay(void **state)
{
    const char *root = *state, *path = "/etc/systemd/network/10-ringd-eth1.network";
    char text[1024];
    struct adopt_file f;
    struct err err;

    run_networkd(root, "ADMIN_STATE=configured\n");
    put(root, path, "[Match]\nName=eth1\n");
    assert_int_equal(adopt_plan(&f, root, "eth1", &err), 0);
    assert_int_equal(adopt_write(root, &f, &err), -EEXIST);
    assert_int_equal(adopt_release(&f, root, "eth1", &err), -EEXIST);
    assert_true(get(root, path, text));
    assert_string_equal(text, "[Match]\nName=eth1\n");
}

static void refuse(const char *root, const char *port, int code, const char *word)
{
    struct adopt_file f;
    struct err err;

    assert_int_equal(adopt_plan(&f, root, port, &err), code);
    if (!strstr(err.text, word))
        fail_msg("%s: %s", port, err.text);
}

static void what_is_refused(void **state)
{
    const char *root = *state;

    run_networkd(root, "ADMIN_STATE=configured\n");
    refuse(root, "eth0", -EBUSY, "default route");
    put(root, "/sys/class/net/eth2/type", "1\n");
    put(root, "/proc/net/ipv6_route",
        "00000000000000000000000000000000 00 00000000000000000000000000000000 00 "
        "fe800000000000000000000000000001 00000400 "
        "00000001 00000000 00000003 eth2\n");
    refuse(root, "eth2", -EBUSY, "default route");
    put(root, "/sys/class/net/lo/type", "772\n");
    refuse(root, "lo", -EINVAL, "not Ethernet");
    put(root, "/sys/class/net/wlan0/type", "1\n");
    put(root, "/sys/class/net/wlan0/phy80211", "");
    refuse(root, "wlan0", -EBUSY, "wifi");
    put(root, "/sys/class/net/eth3/type", "1\n");
    put(root, "/sys/class/net/eth3/master", "");
    refuse(root, "eth3", -EBUSY, "bridge");
    refuse(root, "eth9", -ENODEV, "no interface");
    refuse(root, "../../etc", -EINVAL, "no name");
    refuse(root, "", -EINVAL, "no name");
    refuse(root, "averylonginterface", -EINVAL, "no name");
    refuse(root, "a\n[x]", -EINVAL, "no name");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nobody_manages_it, make_root, remove_root),
        cmocka_unit_test_setup_teardown(networkd_is_told, make_root, remove_root),
        cmocka_unit_test_setup_teardown(network_manager_is_told, make_root, remove_root),
        cmocka_unit_test_setup_teardown(a_mac_drawn_at_random_names_nothing, make_root, remove_root),
        cmocka_unit_test_setup_teardown(foreign_files_stay, make_root, remove_root),
        cmocka_unit_test_setup_teardown(what_is_refused, make_root, remove_root),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
