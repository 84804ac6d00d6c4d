/* SPDX-License-Identifier: MIT
 *
 * ringd-link's netlink, through libmnl. The kernel answers a question before
 * sendmsg returns, so reading the answer does not wait; the time limit on the
 * socket is for a kernel that does not. */
#include "daemon/link/link_helper.h"

#include <errno.h>
#include <libmnl/libmnl.h>
#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>

enum { BUFFER = 32768, ANSWER_S = 1 };

struct kernel {
    struct mnl_socket *nl; /* owned */
    uint32_t seq;
    _Alignas(struct nlmsghdr) char buf[BUFFER];
};

int kernel_open(struct kernel **ret)
{
    const struct timeval limit = {.tv_sec = ANSWER_S};
    struct kernel *k = calloc(1, sizeof *k);
    int r = 0;

    if (!k)
        return -ENOMEM;
    k->nl = mnl_socket_open2(NETLINK_ROUTE, SOCK_CLOEXEC);
    if (!k->nl || mnl_socket_bind(k->nl, 0, MNL_SOCKET_AUTOPID) < 0 ||
        setsockopt(mnl_socket_get_fd(k->nl), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) < 0) {
        r = -errno;
        kernel_close(k);
        return r;
    }
    *ret = k;
    return 0;
}

void kernel_close(struct kernel *k)
{
    if (!k)
        return;
    if (k->nl)
        mnl_socket_close(k->nl);
    free(k);
}

/* Sends the request that is in `head` and hands every answer to `each`. An
 * answer that came too late for an earlier question has another number and is
 * left out. */
static int ask(struct kernel *k, struct nlmsghdr *head, mnl_cb_t each, void *arg)
{
    unsigned port = mnl_socket_get_portid(k->nl);
    int r;

    head->nlmsg_seq = ++k->seq;
    if (mnl_socket_sendto(k->nl, head, head->nlmsg_len) < 0)
        return -errno;
    do {
        ssize_t n = mnl_socket_recvfrom(k->nl, k->buf, sizeof k->buf);

        if (n < 0)
            return errno == EAGAIN ? -ETIMEDOUT : -errno;
        if (((const struct nlmsghdr *)k->buf)->nlmsg_seq != k->seq)
            r = MNL_CB_OK;
        else
            r = mnl_cb_run(k->buf, (size_t)n, k->seq, port, each, arg);
    } while (r > MNL_CB_STOP);
    return r < 0 ? -errno : 0;
}

static struct nlmsghdr *begin(void *buf, uint16_t type, uint16_t flags)
{
    struct nlmsghdr *head = mnl_nlmsg_put_header(buf);

    head->nlmsg_type = type;
    head->nlmsg_flags = NLM_F_REQUEST | flags;
    return head;
}

/* --- ports --- */

static void read_kind(struct kernel_port *port, const struct nlattr *info)
{
    const struct nlattr *a;

    mnl_attr_for_each_nested(a, info) if (mnl_attr_get_type(a) == IFLA_INFO_KIND &&
                                          mnl_attr_validate(a, MNL_TYPE_STRING) >= 0)
        strncat(port->kind, mnl_attr_get_str(a), sizeof port->kind - 1);
}

static int on_port(const struct nlmsghdr *head, void *arg)
{
    const struct ifinfomsg *info = mnl_nlmsg_get_payload(head);
    struct kernel_port *port = arg;
    const struct nlattr *a;

    if (head->nlmsg_type != RTM_NEWLINK)
        return MNL_CB_OK;
    *port = (struct kernel_port){.is_ethernet = info->ifi_type == ARPHRD_ETHER,
                                 .is_loopback = info->ifi_flags & IFF_LOOPBACK};
    mnl_attr_for_each(a, head, sizeof *info)
    {
        switch (mnl_attr_get_type(a)) {
        case IFLA_IFNAME: strncat(port->name, mnl_attr_get_str(a), sizeof port->name - 1); break;
        case IFLA_MASTER: port->is_enslaved = true; break;
        case IFLA_LINKINFO: read_kind(port, a); break;
        default: break;
        }
    }
    return MNL_CB_OK;
}

int kernel_port(struct kernel *k, uint32_t ifindex, struct kernel_port *ret)
{
    _Alignas(struct nlmsghdr) char buf[256];
    struct nlmsghdr *head = begin(buf, RTM_GETLINK, NLM_F_ACK);
    struct ifinfomsg *info = mnl_nlmsg_put_extra_header(head, sizeof *info);
    struct kernel_port port = {0};
    int r;

    info->ifi_index = (int)ifindex;
    r = ask(k, head, on_port, &port);
    if (r == 0 && port.name[0] == '\0')
        r = -ENODEV;
    if (r == 0)
        *ret = port;
    return r;
}

static int change_port(struct kernel *k, uint32_t ifindex, unsigned flags, uint32_t mtu)
{
    _Alignas(struct nlmsghdr) char buf[256];
    struct nlmsghdr *head = begin(buf, RTM_NEWLINK, NLM_F_ACK);
    struct ifinfomsg *info = mnl_nlmsg_put_extra_header(head, sizeof *info);

    info->ifi_index = (int)ifindex;
    info->ifi_flags = info->ifi_change = flags;
    if (mtu > 0)
        mnl_attr_put_u32(head, IFLA_MTU, mtu);
    return ask(k, head, NULL, NULL);
}

int kernel_set_up(struct kernel *k, uint32_t ifindex)
{
    return change_port(k, ifindex, IFF_UP, 0);
}

int kernel_set_mtu(struct kernel *k, uint32_t ifindex, uint32_t mtu)
{
    return change_port(k, ifindex, 0, mtu);
}

/* --- addresses --- */

struct listing {
    bool (*each)(void *arg, const struct kernel_addr *a);
    void *arg;
    bool enough;
};

static int on_addr(const struct nlmsghdr *head, void *arg)
{
    const struct ifaddrmsg *info = mnl_nlmsg_get_payload(head);
    struct kernel_addr a = {.ifindex = info->ifa_index, .left_s = UINT32_MAX};
    struct listing *l = arg;
    const struct nlattr *at;
    bool local = false;

    a.addr.family = info->ifa_family;
    a.addr.plen = info->ifa_prefixlen;
    a.is_tentative = (info->ifa_flags & (IFA_F_TENTATIVE | IFA_F_DADFAILED)) == IFA_F_TENTATIVE;
    mnl_attr_for_each(at, head, sizeof *info)
    {
        uint16_t type = mnl_attr_get_type(at), n = mnl_attr_get_payload_len(at);

        /* of a point-to-point address LOCAL is ours, ADDRESS the other end's; IPv6
         * mostly has ADDRESS alone
         */
        if ((type == IFA_LOCAL || (type == IFA_ADDRESS && !local)) && n <= sizeof a.addr.at) {
            memcpy(a.addr.at, mnl_attr_get_payload(at), n);
            local |= type == IFA_LOCAL;
        } else if (type == IFA_CACHEINFO && n >= sizeof(struct ifa_cacheinfo)) {
            a.left_s = ((const struct ifa_cacheinfo *)mnl_attr_get_payload(at))->ifa_valid;
        } else if (type == IFA_PROTO && n == 1) {
            a.is_tagged = true;
            a.owner = mnl_attr_get_u8(at);
        }
    }
    if (!l->enough && prefix_is_valid(&a.addr))
        l->enough = !l->each(l->arg, &a);
    return MNL_CB_OK; /* the rest of a dump must be read in any case */
}

int kernel_addrs(struct kernel *k, uint8_t family, bool (*each)(void *arg, const struct kernel_addr *a),
                 void *arg)
{
    _Alignas(struct nlmsghdr) char buf[256];
    struct nlmsghdr *head = begin(buf, RTM_GETADDR, NLM_F_DUMP);
    struct ifaddrmsg *info = mnl_nlmsg_put_extra_header(head, sizeof *info);
    struct listing l = {.each = each, .arg = arg};

    info->ifa_family = family;
    return ask(k, head, on_addr, &l);
}

static struct nlmsghdr *begin_addr(void *buf, uint16_t type, uint16_t flags, uint32_t ifindex,
                                   const struct prefix *addr)
{
    struct nlmsghdr *head = begin(buf, type, flags | NLM_F_ACK);
    struct ifaddrmsg *info = mnl_nlmsg_put_extra_header(head, sizeof *info);
    size_t n = addr->family == AF_INET ? 4 : 16;

    info->ifa_family = addr->family;
    info->ifa_prefixlen = addr->plen;
    info->ifa_index = ifindex;
    mnl_attr_put(head, IFA_LOCAL, n, addr->at);
    mnl_attr_put(head, IFA_ADDRESS, n, addr->at);
    return head;
}

int kernel_addr_add(struct kernel *k, uint32_t ifindex, const struct prefix *addr, uint32_t lease_s,
                    bool renew)
{
    _Alignas(struct nlmsghdr) char buf[512];
    uint16_t flags = NLM_F_CREATE | (renew ? NLM_F_REPLACE : NLM_F_EXCL);
    struct nlmsghdr *head = begin_addr(buf, RTM_NEWADDR, flags, ifindex, addr);
    struct ifa_cacheinfo lease = {.ifa_prefered = lease_s, .ifa_valid = lease_s};

    mnl_attr_put(head, IFA_CACHEINFO, sizeof lease, &lease);
    mnl_attr_put_u8(head, IFA_PROTO, PORTS_OWNER);
    /* the hash leaves nothing to detect, and an address on a cable should work at
     * once */
    if (addr->family == AF_INET6)
        mnl_attr_put_u32(head, IFA_FLAGS, IFA_F_NODAD);
    return ask(k, head, NULL, NULL);
}

int kernel_addr_del(struct kernel *k, uint32_t ifindex, const struct prefix *addr)
{
    _Alignas(struct nlmsghdr) char buf[512];

    return ask(k, begin_addr(buf, RTM_DELADDR, 0, ifindex, addr), NULL, NULL);
}

/* The kernel does not end a duplicate address detection that has begun. But it does none for an
 * address that is set again without it. */
int kernel_addr_settle(struct kernel *k, uint32_t ifindex, const struct prefix *addr)
{
    _Alignas(struct nlmsghdr) char buf[512];
    struct nlmsghdr *head;
    int r = kernel_addr_del(k, ifindex, addr);

    if (r < 0)
        return r;
    head = begin_addr(buf, RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, ifindex, addr);
    mnl_attr_put_u32(head, IFA_FLAGS, IFA_F_NODAD);
    return ask(k, head, NULL, NULL);
}
