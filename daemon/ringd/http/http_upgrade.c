/* SPDX-License-Identifier: MIT
 *
 * Requests that go on in another protocol: the server answers 101 and lets go of the connection.
 * Owns what an answer needs until the connection is handed over; the server's thread, but for
 * http_upgrade. */
#include <fcntl.h>
#include <microhttpd.h>
#include <stdlib.h>

#include "daemon/common/xalloc.h"
#include "daemon/ringd/http/http.h"
#include "daemon/ringd/http/http_call.h"

/* The server closes its own descriptor, and the connection lives on in ours. What came before the
 * client could know of the new protocol is none of it. */
static void on_upgraded(void *arg, struct MHD_Connection *mhd, void *request, const char *early,
                        size_t n_early, MHD_socket sock, struct MHD_UpgradeResponseHandle *handle)
{
    const struct call_upgrade to = *(const struct call_upgrade *)arg;
    (void)mhd, (void)request, (void)early;
    const int fd = n_early ? -1 : fcntl(sock, F_DUPFD_CLOEXEC, 3);
    MHD_upgrade_action(handle, MHD_UPGRADE_ACTION_CLOSE);
    if (fd >= 0)
        to.take(to.owner, fd);
}

void http_upgrade(struct http_call *call, const char *protocol, void (*take)(void *owner, int fd),
                  void *owner)
{
    call->upgrade_to = (struct call_upgrade){take, owner};
    struct MHD_Response *r = MHD_create_response_for_upgrade(on_upgraded, &call->upgrade_to);
    if (r)
        MHD_add_response_header(r, "Upgrade", protocol);
    call_answer(call, MHD_HTTP_SWITCHING_PROTOCOLS, r, false);
}
