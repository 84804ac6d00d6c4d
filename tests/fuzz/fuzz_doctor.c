/* SPDX-License-Identifier: MIT
 *
 * Facts about nodes, as they come from other machines, with fields missing or of any type: judged,
 * and nothing that is said of them can steer a terminal. */
#include "tests/fuzz/lib/input.h"

#include "daemon/common/doctor/doctor.h"

static const char *const keys[] = {
    "name",      "ports",      "links",         "cables",   "heard",      "address",
    "state",     "link_local", "thunderbolt",   "iommu",    "kind",       "kernel",
    "discover",  "silent",     "why",           "fix",      "ring",       "text",
    "mtu",       "speed_mbps", "measured_mbps", "class",    "usable",     "carrier",
    "up",        "memory",     "available",     "cpu",      "isa",        "swap_free",
    "governor",  "throttled",  "disk",          "fds",      "cluster",    "roster_version",
    "offset_us", "rtt_us",     "version",       "model",    "dir",        "fingerprint",
    "bytes",     "error",      "helper",        "overlaps", "waiting",    "received",
    "peer",      "security",   "domains",       "peers",    "has_driver", "driver",
    "rx_mbps",   "tx_mbps",    "duplex",        "bad",      "good",       "total",
    "free",      "limit",      "swap",          "firewall", "enslaved",   "history_trouble",
    NULL};
static const char *const texts[] = {
    "thunderbolt", "ethernet", "usb",      "wifi", "two-way", "heard",        "member", "none",
    "fe80::1",     "fe80::2",  "6.1.0-13", "a",    "b",       "0.1.0",        "/m",     "connected",
    "powersave",   "avx2",     "up",       "down", "ring",    "\x1b[2J'$(x)", "",       NULL};
static const struct input_words words = {keys, texts};

static void is_plain(const json_t *finding, const char *key)
{
    for (const char *c = json_string_value(json_object_get(finding, key)); *c; c++)
        expect((uint8_t)*c >= ' ' && *c != 0x7f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct input in = {data, n};
    json_t *nodes = json_array(), *finding;
    size_t i;
    while (in.left && json_array_size(nodes) < 3)
        json_array_append_new(nodes, input_object(&in, &words, 0));
    json_t *world =
        json_pack("{s:o s:o s:o}", "nodes", nodes, "silent", input_json(&in, &words, INPUT_DEEP - 2), "ring",
                  input_json(&in, &words, INPUT_DEEP - 1));
    json_t *findings = doctor_judge(world);
    expect(json_is_array(findings));
    json_array_foreach (findings, i, finding) {
        is_plain(finding, "text");
        is_plain(finding, "thing");
        is_plain(finding, "fix");
    }
    (void)doctor_is_ill(findings);
    json_decref(findings);
    json_decref(world);
    return 0;
}
