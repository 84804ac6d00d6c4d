/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/peer/half_open.h"

#include <arpa/inet.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { SYN_RECEIVED = 3 };

/* "N: LOCAL:PORT REMOTE:PORT STATE …" in hex, an address as four words in the machine's own order
 * of bytes */
static bool is_it(const char *line, const struct in6_addr *from, uint16_t port)
{
    uint32_t local[4], remote[4];
    unsigned local_port, remote_port, state;
    if (sscanf(line, " %*u: %8x%8x%8x%8x:%x %8x%8x%8x%8x:%x %x", &local[0], &local[1], &local[2], &local[3],
               &local_port, &remote[0], &remote[1], &remote[2], &remote[3], &remote_port, &state) != 11)
        return false;
    return state == SYN_RECEIVED && local_port == port && !memcmp(remote, from, sizeof remote);
}

bool half_open_from(const char *root, const char *address, uint16_t port)
{
    char path[PATH_MAX], text[INET6_ADDRSTRLEN], line[256];
    struct in6_addr from;
    bool found = false;
    snprintf(text, sizeof text, "%s", address);
    text[strcspn(text, "%")] = 0;
    snprintf(path, sizeof path, "%s/proc/self/net/tcp6", root);
    FILE *f = inet_pton(AF_INET6, text, &from) == 1 ? fopen(path, "re") : NULL;
    while (f && !found && fgets(line, sizeof line, f))
        found = is_it(line, &from, port);
    if (f)
        fclose(f);
    return found;
}
