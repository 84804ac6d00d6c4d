/* SPDX-License-Identifier: MIT
 *
 * A dump of links, addresses and routes with any bytes in it. Input: (u8 kind ‖ u8 length ‖ what
 * follows a message's head)*. */
#include "tests/fuzz/lib/fuzz.h"

#include "net/port_dump.c" /* its readers are not for others */

void port_sysfs_read(struct port *port, const char *sysfs,
                     bool ether) /* this machine's files are not part of the input */
{
    (void)sysfs;
    port->kind = ether ? PORT_ETH : PORT_OTHER;
}

/* The kernel frames its messages; what is in them is not believed. */
static void tell(struct port_look *look, uint8_t kind, const uint8_t *data, size_t n)
{
    static const mnl_cb_t readers[] = {on_link, on_address, on_route};
    static const uint16_t types[] = {RTM_NEWLINK, RTM_NEWADDR, RTM_NEWROUTE};
    /* of that size, so that reads past its end are seen; but a message in a buffer fills whole
     * words */
    struct nlmsghdr *msg = calloc(1, NLMSG_ALIGN(sizeof *msg + n));
    expect(msg != NULL);
    *msg = (struct nlmsghdr){.nlmsg_len = (uint32_t)(sizeof *msg + n), .nlmsg_type = types[kind % 3]};
    if (n > 0)
        memcpy(msg + 1, data, n);
    (void)readers[kind % 3](msg, look);
    free(msg);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static char *allow[] = {"a*", "eth*"}, *deny[] = {"eth0"};
    const struct port_rules rules = {.allow = {allow, 2}, .deny = {deny, 1}};
    struct port_look look = {.rules = &rules};
    while (n >= 2) {
        const uint8_t kind = data[0];
        const size_t length = data[1] < n - 2 ? data[1] : n - 2;
        tell(&look, kind, data + 2, length);
        data += 2 + length;
        n -= 2 + length;
    }
    if (look.view.nports > 0)
        number_ports(&look.view);
    for (size_t i = 0; i < look.view.nports; i++)
        expect(memchr(look.view.ports[i].name, '\0', sizeof look.view.ports[i].name) != NULL);
    for (size_t i = 0; i < look.view.nprefixes; i++)
        expect(look.view.prefixes[i].plen <= (look.view.prefixes[i].family == AF_INET ? 32 : 128));
    expect(port_view_equals(&look.view, &look.view));
    port_view_done(&look.view);
    return 0;
}
