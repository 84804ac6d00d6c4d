/* SPDX-License-Identifier: MIT
 *
 * Any bytes as a request to ringd-link and as a reply to ringd: refused, or a packet that means
 * itself again and stays within what ringd-link may be asked for. */
#include "tests/fuzz/lib/fuzz.h"

#include <sys/socket.h>

#include "daemon/common/link_proto.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    uint8_t request[RLINK_REQUEST], reply[RLINK_REPLY];
    const char *what = NULL;
    struct rlink_request r;
    struct rlink_reply a;

    if (rlink_request_decode(data, n, &r, &what) == 0) {
        rlink_request_encode(&r, request);
        expect(n == sizeof request && memcmp(request, data, n) == 0);
        expect(rlink_verb_name(r.verb) != NULL && r.ifindex <= INT32_MAX);
        expect(r.verb != RLINK_SCOPE || rlink_is_scope(&r.addr));
        expect(r.verb != RLINK_ADDR_ADD || (r.value <= RLINK_MAX_LEASE_S && r.addr.plen >= 31));
    } else {
        expect(what != NULL);
    }
    if (rlink_reply_decode(data, n, &a) == 0) {
        rlink_reply_encode(&a, reply);
        expect(n == sizeof reply && memcmp(reply, data, n) == 0);
    }
    return 0;
}
