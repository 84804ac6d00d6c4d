/* SPDX-License-Identifier: MIT
 *
 * ringctl ring: the shape of the ring, its order, and what would make it better. */
#include <stdio.h>
#include <string.h>

#include "daemon/ctl/ctl.h"
#include "daemon/ctl/ctl_client.h"
#include "daemon/ctl/terminal/ctl_print.h"

static void print_order(const json_t *ring)
{
    const json_t *nodes = json_object_get(ring, "nodes");
    bool closed = !strcmp(field_text(ring, "state", ""), "closed") && json_array_size(nodes) > 2;
    size_t i;
    json_t *name;
    if (!json_array_size(nodes))
        return;
    printf("order         ");
    json_array_foreach (nodes, i, name)
        printf("%s%s", i ? " - " : "", json_string_value(name));
    printf("%s%s%s\n", closed ? " - " : "", closed ? json_string_value(json_array_get(nodes, 0)) : "",
           json_is_true(json_object_get(ring, "by_hand")) ? "  (set by --ring)" : "");
}

static void print_ring(const json_t *ring)
{
    double class_mbps = field_number(ring, "class_mbps");
    size_t i;
    json_t *pair;
    fputs("shape         ", stdout);
    print_state(stdout, field_text(ring, "state", "?"));
    putchar('\n');
    print_order(ring);
    if (json_array_size(json_object_get(ring, "nodes")) > 1) {
        if (class_mbps > 0)
            printf("slowest hop   class %.0f Mb/s\n", class_mbps);
        else
            printf("slowest hop   not known\n");
        printf("shared hops   %.0f\n", field_number(ring, "shared_hops"));
    }
    if (*field_text(ring, "override", ""))
        printf("--ring        %s\n", field_text(ring, "override", ""));
    json_array_foreach (json_object_get(ring, "missing"), i, pair)
        printf("%s %s and %s\n", i ? "             " : "needs a cable",
               json_string_value(json_array_get(pair, 0)), json_string_value(json_array_get(pair, 1)));
    if (*field_text(ring, "trouble", ""))
        print_trouble(stdout, "TROUBLE", field_text(ring, "trouble", ""));
}

int ctl_ring_main(struct ctl *ctl)
{
    int rc = ctl_no_args(ctl);
    return rc ? rc : ctl_request_print(ctl, "GET", "/v1/ring", NULL, print_ring);
}
