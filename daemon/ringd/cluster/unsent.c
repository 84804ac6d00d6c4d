/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/cluster/unsent.h"

#include <errno.h>

const char *unsent_why(int error)
{
    switch (-error) {
    case EHOSTUNREACH:
    case ENOTCONN: return "cannot be reached";
    case EMSGSIZE: return "cannot be sent this message: it has more than 1 MiB";
    case ENOBUFS: return "takes no messages now: 16 MiB wait for it already";
    default: return "cannot be sent this message: no memory is left for it";
    }
}
