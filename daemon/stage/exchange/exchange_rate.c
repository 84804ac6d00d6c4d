/* SPDX-License-Identifier: MIT
 *
 * What the kernel measures of a lane's connection. A file of its own: the kernel's header has more
 * of tcp_info than the C library's, and cannot stand beside it. */
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "daemon/stage/exchange/exchange_impl.h"

bool lane_sample(const struct lane *l, struct share_sample *ret)
{
    struct tcp_info info;
    socklen_t n = sizeof info;
    if (getsockopt(l->fd, IPPROTO_TCP, TCP_INFO, &info, &n) ||
        n < offsetof(struct tcp_info, tcpi_busy_time) + sizeof info.tcpi_busy_time)
        return false;
    ret->acked = info.tcpi_bytes_acked;
    ret->busy_us = info.tcpi_busy_time;
    ret->unsent = info.tcpi_notsent_bytes + (size_t)info.tcpi_unacked * info.tcpi_snd_mss;
    ret->trip = (int64_t)info.tcpi_min_rtt * 1000 / 2;
    return true;
}
