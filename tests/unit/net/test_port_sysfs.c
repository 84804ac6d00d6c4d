/* SPDX-License-Identifier: MIT
 *
 * What /sys tells of a port, read from a tree of files that the test makes, as thunderbolt-net's
 * looks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "net/port_impl.h"

#define HOST "devices/pci0/domain0/0-0"
#define PEER HOST "/0-1"

static int make_root(void **state)
{
    char root[] = "/tmp/sysfsXXXXXX";

    *state = mkdtemp(root) ? strdup(root) : NULL;
    return *state ? 0 : -1;
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

static void make_folder(const char *root, const char *path)
{
    char at[256];

    snprintf(at, sizeof at, "%s/%s", root, path);
    for (char *c = at + strlen(root) + 1; *c; c++) {
        if (*c != '/')
            continue;
        *c = '\0';
        mkdir(at, 0755);
        *c = '/';
    }
    mkdir(at, 0755);
}

static void put(const char *root, const char *folder, const char *file, const char *text)
{
    char path[256];
    FILE *f;

    make_folder(root, folder);
    snprintf(path, sizeof path, "%s/%s/%s", root, folder, file);
    f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static void put_link(const char *root, const char *folder, const char *link, const char *to)
{
    char path[256], target[256];

    make_folder(root, folder);
    snprintf(path, sizeof path, "%s/%s/%s", root, folder, link);
    snprintf(target, sizeof target, "%s/%s", root, to);
    assert_int_equal(symlink(target, path), 0);
}

/* A port of the given name and number on a service of the computer at `peer`. */
static void put_port(const char *root, const char *name, const char *index, const char *peer)
{
    char service[128], net[192];

    snprintf(service, sizeof service, "%s/%s.0", peer, strrchr(peer, '/') + 1);
    snprintf(net, sizeof net, "%s/net/%s", service, name);
    put(root, net, "ifindex", index);
    put_link(root, net, "device", service);
    make_folder(root, "bus/thunderbolt/drivers/thunderbolt-net");
    put_link(root, service, "subsystem", "bus/thunderbolt");
    put_link(root, service, "driver", "bus/thunderbolt/drivers/thunderbolt-net");
    put_link(root, "class/net", name, net);
}

static void put_peer(const char *root, const char *peer, const char *name)
{
    put(root, peer, "device_name", name);
    put(root, peer, "unique_id", "d4030000-0080-7f1e-8333-7c2f1d0a9e01\n");
    put(root, peer, "rx_speed", "20.0 Gb/s\n");
    put(root, peer, "tx_speed", "10.0 Gb/s\n");
    put(root, peer, "rx_lanes", "2\n");
    put(root, peer, "tx_lanes", "1\n");
    put(root, peer, "uevent", "DEVTYPE=thunderbolt_xdomain\nMODALIAS=x\n");
    put(root, "devices/pci0/domain0", "security", "user\n");
    put(root, "devices/pci0/domain0", "iommu_dma_protection", "1\n");
}

static struct port read_port(const char *root, const char *name, unsigned ifindex, bool carrier)
{
    struct port p;

    memset(&p, 0, sizeof p);
    p.ifindex = ifindex;
    p.carrier = carrier;
    strcpy(p.name, name);
    port_sysfs_read(&p, root, true);
    return p;
}

static void thunderbolt_port(void **state)
{
    const char *root = *state;
    struct port p, q;

    put_port(root, "thunderbolt0", "7\n", PEER);
    put_peer(root, PEER, "mini\n");
    p = read_port(root, "thunderbolt0", 7, true);
    assert_int_equal(p.kind, PORT_TB);
    assert_string_equal(p.driver, "thunderbolt-net");
    assert_string_equal(p.tb.peer_name, "mini");
    assert_string_equal(p.tb.peer_id, "d4030000-0080-7f1e-8333-7c2f1d0a9e01");
    assert_string_equal(p.tb.security, "user");
    assert_true(p.tb.has_iommu);
    assert_int_equal(p.tb.rx_gbps, 20);
    assert_int_equal(p.tb.rx_lanes, 2);
    assert_int_equal(p.tb.tx_gbps, 10);
    assert_int_equal(p.tb.tx_lanes, 1);
    assert_int_equal(p.speed_mbps, 40000);
    q = read_port(root, "thunderbolt0", 7, true);
    assert_memory_equal(&p, &q, sizeof p); /* views are compared so */
    p = read_port(root, "thunderbolt0", 7, false);
    assert_int_equal(p.speed_mbps, 0);
    /* /sys of another namespace: only the name speaks */
    p = read_port(root, "thunderbolt0", 8, true);
    assert_int_equal(p.kind, PORT_TB);
    assert_string_equal(p.tb.peer_name, "");
}

static void behind_a_dock(void **state)
{
    const char *root = *state;

    put_port(root, "thunderbolt3", "9", HOST "/0-3/0-303");
    put_peer(root, HOST "/0-3/0-303", "a\033[31m\nsecond line");
    struct port p = read_port(root, "thunderbolt3", 9, true);
    assert_string_equal(p.tb.peer_name, "a?[31m"); /* nothing that a terminal would obey */
    assert_string_equal(p.tb.security, "user");
}

static void nonsense_does_no_harm(void **state)
{
    const char *root = *state;
    char lots[4096];

    memset(lots, 'x', sizeof lots - 1);
    lots[sizeof lots - 1] = '\0';
    put_port(root, "thunderbolt0", "7", PEER);
    put_peer(root, PEER, lots);
    put(root, PEER, "unique_id", "");
    put(root, PEER, "rx_speed", "99999999999999999999");
    put(root, PEER, "rx_lanes", "-2");
    struct port p = read_port(root, "thunderbolt0", 7, true);
    assert_int_equal(strlen(p.tb.peer_name), sizeof p.tb.peer_name - 1);
    assert_string_equal(p.tb.peer_id, "");
    assert_int_equal(p.tb.rx_gbps, 0);
    assert_int_equal(p.tb.rx_lanes, 0);
    assert_int_equal(p.speed_mbps, 0);
    p = read_port(root, "none0", 3, true);
    assert_int_equal(p.kind, PORT_ETH);
    assert_string_equal(p.driver, "");
}

static void other_kinds(void **state)
{
    const char *root = *state;
    struct port p;

    put(root, "class/net/wlan0", "ifindex", "4");
    make_folder(root, "class/net/wlan0/phy80211");
    put(root, "class/net/enx1", "ifindex", "5");
    put(root, "class/net/enx1", "speed", "2500\n");
    make_folder(root, "bus/usb/drivers/cdc_ncm");
    put_link(root, "class/net/enx1/device", "subsystem", "bus/usb");
    put_link(root, "class/net/enx1/device", "driver", "bus/usb/drivers/cdc_ncm");
    assert_int_equal(read_port(root, "wlan0", 4, true).kind, PORT_WIFI);
    p = read_port(root, "enx1", 5, true);
    assert_int_equal(p.kind, PORT_USB);
    assert_int_equal(p.speed_mbps, 2500);
    assert_string_equal(p.driver, "cdc_ncm");
}

static void counters(void **state)
{
    const char *root = *state;
    struct port p = {.ifindex = 7, .name = "eth9"};
    uint64_t tx = 1, rx = 2;

    assert_false(port_sysfs_counters(&p, root, &tx, &rx));
    put(root, "class/net/eth9", "ifindex", "7");
    put(root, "class/net/eth9/statistics", "tx_bytes", "123456789012\n");
    assert_false(port_sysfs_counters(&p, root, &tx, &rx));
    assert_true(tx == 1 && rx == 2); /* untouched */
    put(root, "class/net/eth9/statistics", "rx_bytes", "0\n");
    assert_true(port_sysfs_counters(&p, root, &tx, &rx));
    assert_true(tx == 123456789012 && rx == 0);
    p.ifindex = 8; /* a port of that name in another namespace */
    assert_false(port_sysfs_counters(&p, root, &tx, &rx));
}

static void the_machine(void **state)
{
    const char *root = *state;
    struct ports_thunderbolt tb = {9, 9, true};

    port_sysfs_thunderbolt(&tb, root);
    assert_true(tb.domains == 0 && tb.peers == 0 && !tb.has_driver);
    put_peer(root, PEER, "mini");
    put_link(root, "bus/thunderbolt/devices", "domain0", "devices/pci0/domain0");
    put_link(root, "bus/thunderbolt/devices", "0-0", HOST);
    put_link(root, "bus/thunderbolt/devices", "0-1", PEER);
    port_sysfs_thunderbolt(&tb, root);
    assert_true(tb.domains == 1 && tb.peers == 1 && !tb.has_driver);
    make_folder(root, "bus/thunderbolt/drivers/thunderbolt-net");
    port_sysfs_thunderbolt(&tb, root);
    assert_true(tb.has_driver);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(thunderbolt_port, make_root, remove_root),
        cmocka_unit_test_setup_teardown(behind_a_dock, make_root, remove_root),
        cmocka_unit_test_setup_teardown(nonsense_does_no_harm, make_root, remove_root),
        cmocka_unit_test_setup_teardown(other_kinds, make_root, remove_root),
        cmocka_unit_test_setup_teardown(counters, make_root, remove_root),
        cmocka_unit_test_setup_teardown(the_machine, make_root, remove_root),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
