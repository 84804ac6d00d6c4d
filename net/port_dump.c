/* SPDX-License-Identifier: MIT
 *
 * One look at the kernel's tables of links, addresses and routes. Owns nothing between calls;
 * called by port.c on the loop. The kernel answers a dump at once, so waiting for it is not
 * waiting. */
#include "port_impl.h"

#include <errno.h>
#include <fnmatch.h>
#include <libmnl/libmnl.h>
#include <linux/if.h>
#include <linux/if_addr.h>
#include <linux/if_arp.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

/* Made by container engines and hypervisors for their guests: no cable is behind them. */
static const char *const guests[] = {"docker*", "br-*",     "virbr*", "vnet*", "tap*",    "cali*", "cilium*",
                                     "cni*",    "flannel*", "lxc*",   "lxd*",  "podman*", "fw*"};

struct port_look {
    const struct port_rules *rules;
    struct port_view view;
    size_t ports_cap, prefixes_cap, links;
};

static bool matches(const struct port_globs *globs, const char *name)
{
    for (size_t i = 0; i < globs->n; i++)
        if (fnmatch(globs->at[i], name, 0) == 0)
            return true;
    return false;
}

static bool is_wanted(const struct port_rules *rules, const char *name, const char *kind,
                      const struct ifinfomsg *info)
{
    if (matches(&rules->allow, name))
        return true;
    if (matches(&rules->deny, name))
        return false;
    if (info->ifi_flags & IFF_LOOPBACK || info->ifi_type != ARPHRD_ETHER)
        return false;
    for (size_t i = 0; i < sizeof guests / sizeof *guests; i++)
        if (fnmatch(guests[i], name, 0) == 0)
            return false;
    /* hardware has no kind; a veth is the cable of a container or a test */
    return !*kind || strcmp(kind, "veth") == 0 || strcmp(kind, "bond") == 0 || strcmp(kind, "team") == 0;
}

/* Room for one more; NULL when memory is short. */
static void *grow(void *at, size_t n, size_t *cap, size_t size)
{
    void *more;

    if (n < *cap)
        return at;
    more = reallocarray(at, *cap ? *cap * 2 : 16, size);
    if (more)
        *cap = *cap ? *cap * 2 : 16;
    return more;
}

static uint32_t fold(uint32_t h, const void *data, size_t n) /* FNV-1a */
{
    const uint8_t *at = data;

    for (size_t i = 0; i < n; i++)
        h = (h ^ at[i]) * 16777619u;
    return h;
}

static const char *link_kind_of(const struct nlattr *linkinfo)
{
    const struct nlattr *a;

    mnl_attr_for_each_nested(a, linkinfo)
    {
        if (mnl_attr_get_type(a) == IFLA_INFO_KIND && mnl_attr_validate(a, MNL_TYPE_NUL_STRING) == 0)
            return mnl_attr_get_str(a);
    }
    return "";
}

static void read_mac(struct port *port, const struct nlattr *a)
{
    static const uint8_t none[6];

    if (a && mnl_attr_get_payload_len(a) == 6 && memcmp(mnl_attr_get_payload(a), none, 6) != 0)
        memcpy(port->mac, mnl_attr_get_payload(a), 6);
}

static int collect_attr(const struct nlattr *a, void *data)
{
    const struct nlattr **table = data;

    if (mnl_attr_get_type(a) <= IFLA_MAX)
        table[mnl_attr_get_type(a)] = a;
    return MNL_CB_OK;
}

/* A message of this type, with all of the fixed part that belongs to it. */
static bool is_message(const struct nlmsghdr *msg, uint16_t type, size_t head)
{
    return msg->nlmsg_type == type && mnl_nlmsg_get_payload_len(msg) >= head;
}

/* 0 for an attribute that is not there or too short to be a number. */
static uint32_t number_of(const struct nlattr *a)
{
    return a && mnl_attr_get_payload_len(a) >= sizeof(uint32_t) ? mnl_attr_get_u32(a) : 0;
}

static int on_link(const struct nlmsghdr *msg, void *data)
{
    struct port_look *look = data;
    const struct ifinfomsg *info = mnl_nlmsg_get_payload(msg);
    const struct nlattr *at[IFLA_MAX + 1] = {NULL};
    struct port *port;

    if (!is_message(msg, RTM_NEWLINK, sizeof *info) || ++look->links > PORT_MAX_LINKS)
        return MNL_CB_OK;
    mnl_attr_parse(msg, sizeof *info, collect_attr, at);
    if (!at[IFLA_IFNAME] || mnl_attr_validate(at[IFLA_IFNAME], MNL_TYPE_NUL_STRING) < 0 ||
        strlen(mnl_attr_get_str(at[IFLA_IFNAME])) >= sizeof port->name)
        return MNL_CB_OK;
    if (!is_wanted(look->rules, mnl_attr_get_str(at[IFLA_IFNAME]),
                   at[IFLA_LINKINFO] ? link_kind_of(at[IFLA_LINKINFO]) : "", info))
        return MNL_CB_OK;
    port = grow(look->view.ports, look->view.nports, &look->ports_cap, sizeof *port);
    if (!port) {
        errno = ENOMEM;
        return MNL_CB_ERROR;
    }
    look->view.ports = port;
    port += look->view.nports++;
    memset(port, 0, sizeof *port); /* views are compared byte by byte */
    port->ifindex = (unsigned)info->ifi_index;
    strcpy(port->name, mnl_attr_get_str(at[IFLA_IFNAME]));
    read_mac(port, at[IFLA_ADDRESS]);
    read_mac(port, at[IFLA_PERM_ADDRESS]);
    port->up = info->ifi_flags & IFF_UP;
    port->carrier = info->ifi_flags & IFF_LOWER_UP;
    port->enslaved = at[IFLA_MASTER] != NULL;
    port->named = matches(&look->rules->allow, port->name);
    port->mtu = number_of(at[IFLA_MTU]);
    port->max_mtu = number_of(at[IFLA_MAX_MTU]);
    port_sysfs_read(port, look->rules->sysfs, info->ifi_type == ARPHRD_ETHER);
    return MNL_CB_OK;
}

static struct port *find_port(struct port_view *view, unsigned ifindex)
{
    for (size_t i = 0; i < view->nports; i++)
        if (view->ports[i].ifindex == ifindex)
            return &view->ports[i];
    return NULL;
}

/* `address` NULL: nothing but zeros. */
static int add_prefix(struct port_look *look, sa_family_t family, const struct nlattr *address, uint8_t plen,
                      unsigned ifindex, bool is_route)
{
    size_t size = family == AF_INET ? 4 : 16;
    struct ports_prefix *prefix;

    if (plen > size * 8 || (address && mnl_attr_get_payload_len(address) != size))
        return MNL_CB_OK;
    if (look->view.nprefixes >= PORT_MAX_PREFIXES) {
        look->view.is_partial = true;
        return MNL_CB_OK;
    }
    prefix = grow(look->view.prefixes, look->view.nprefixes, &look->prefixes_cap, sizeof *prefix);
    if (!prefix) {
        errno = ENOMEM;
        return MNL_CB_ERROR;
    }
    look->view.prefixes = prefix;
    prefix += look->view.nprefixes++;
    memset(prefix, 0, sizeof *prefix);
    prefix->family = family;
    prefix->plen = plen;
    prefix->ifindex = ifindex;
    prefix->is_route = is_route;
    if (address)
        memcpy(prefix->at, mnl_attr_get_payload(address), size);
    return MNL_CB_OK;
}

static void mark_last(struct port_look *look, bool is_ours)
{
    struct ports_prefix *last =
        look->view.nprefixes > 0 ? &look->view.prefixes[look->view.nprefixes - 1] : NULL;

    if (last && !look->view.is_partial) {
        last->is_ours = is_ours;
        last->is_made = !is_ours;
    }
}

static int on_address(const struct nlmsghdr *msg, void *data)
{
    struct port_look *look = data;
    const struct ifaddrmsg *info = mnl_nlmsg_get_payload(msg);
    const struct nlattr *at[IFLA_MAX + 1] = {NULL}, *own;
    uint32_t flags;
    struct port *port;

    if (!is_message(msg, RTM_NEWADDR, sizeof *info) ||
        (info->ifa_family != AF_INET && info->ifa_family != AF_INET6))
        return MNL_CB_OK;
    mnl_attr_parse(msg, sizeof *info, collect_attr, at);
    /* IFA_ADDRESS is the other end's where there is a peer, and then IFA_LOCAL is ours */
    own = at[IFA_LOCAL] ? at[IFA_LOCAL] : at[IFA_ADDRESS];
    if (!own)
        return MNL_CB_OK;
    port = find_port(&look->view, info->ifa_index);
    flags = info->ifa_flags;
    if (at[IFA_FLAGS])
        flags = number_of(at[IFA_FLAGS]);
    if (port && info->ifa_family == AF_INET6 && info->ifa_scope == RT_SCOPE_LINK &&
        !(flags & (IFA_F_TENTATIVE | IFA_F_DADFAILED)) && !port->has_link_local &&
        mnl_attr_get_payload_len(own) == sizeof port->link_local) {
        memcpy(&port->link_local, mnl_attr_get_payload(own), sizeof port->link_local);
        port->has_link_local = true;
    }
    if (add_prefix(look, info->ifa_family, own, info->ifa_prefixlen, info->ifa_index, false) != MNL_CB_OK)
        return MNL_CB_ERROR;
    if (at[IFA_PROTO] && mnl_attr_get_u8(at[IFA_PROTO]) == PORTS_OWNER)
        mark_last(look, true);
    if (!at[IFA_ADDRESS] || mnl_attr_get_payload_len(at[IFA_ADDRESS]) != mnl_attr_get_payload_len(own) ||
        memcmp(mnl_attr_get_payload(at[IFA_ADDRESS]), mnl_attr_get_payload(own),
               mnl_attr_get_payload_len(own)) == 0)
        return MNL_CB_OK;
    return add_prefix(look, info->ifa_family, at[IFA_ADDRESS], info->ifa_prefixlen, info->ifa_index, true);
}

static void mark_default(struct port_view *view, unsigned ifindex)
{
    struct port *port = find_port(view, ifindex);

    if (port)
        port->has_default_route = true;
}

static int on_route(const struct nlmsghdr *msg, void *data)
{
    struct port_look *look = data;
    const struct rtmsg *info = mnl_nlmsg_get_payload(msg);
    const struct nlattr *at[IFLA_MAX + 1] = {NULL};
    uint32_t table;
    unsigned ifindex = 0;

    if (!is_message(msg, RTM_NEWROUTE, sizeof *info) || info->rtm_flags & RTM_F_CLONED ||
        (info->rtm_family != AF_INET && info->rtm_family != AF_INET6))
        return MNL_CB_OK;
    mnl_attr_parse(msg, sizeof *info, collect_attr, at);
    table = info->rtm_table;
    if (at[RTA_TABLE])
        table = number_of(at[RTA_TABLE]);
    if (table == RT_TABLE_LOCAL || info->rtm_type == RTN_MULTICAST)
        return MNL_CB_OK;
    if (at[RTA_OIF] && info->rtm_type == RTN_UNICAST)
        ifindex = number_of(at[RTA_OIF]);
    if (info->rtm_dst_len > 0) {
        if (add_prefix(look, info->rtm_family, at[RTA_DST], info->rtm_dst_len, ifindex, true) != MNL_CB_OK)
            return MNL_CB_ERROR;
        if (info->rtm_family == AF_INET && info->rtm_protocol == RTPROT_KERNEL)
            mark_last(look, false);
        return MNL_CB_OK;
    }
    mark_default(&look->view, ifindex);
    if (at[RTA_MULTIPATH]) {
        const struct rtnexthop *hop = mnl_attr_get_payload(at[RTA_MULTIPATH]);
        int left = mnl_attr_get_payload_len(at[RTA_MULTIPATH]);

        for (; left >= (int)sizeof *hop && RTNH_OK(hop, left);
             left -= RTNH_ALIGN(hop->rtnh_len), hop = RTNH_NEXT(hop))
            mark_default(&look->view, (unsigned)hop->rtnh_ifindex);
    }
    return MNL_CB_OK;
}

static int dump(struct mnl_socket *nl, uint16_t type, size_t head, mnl_cb_t on_message,
                struct port_look *look)
{
    char buf[32768];
    struct nlmsghdr *msg = mnl_nlmsg_put_header(buf);
    uint32_t seq = type; /* anything: nothing else is asked of this socket meanwhile */
    ssize_t n;
    int r;

    msg->nlmsg_type = type;
    msg->nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
    msg->nlmsg_seq = seq;
    mnl_nlmsg_put_extra_header(msg, head); /* zeros: all families, all interfaces */
    if (mnl_socket_sendto(nl, msg, msg->nlmsg_len) < 0)
        return -errno;
    do {
        n = mnl_socket_recvfrom(nl, buf, sizeof buf);
        if (n < 0)
            return -errno;
        r = mnl_cb_run(buf, (size_t)n, seq, mnl_socket_get_portid(nl), on_message, look);
    } while (r > MNL_CB_STOP);
    return r < 0 ? -errno : 0;
}

static int compare_ports(const void *a, const void *b)
{
    const struct port *x = a, *y = b;

    return (x->ifindex > y->ifindex) - (x->ifindex < y->ifindex);
}

/* A VLAN has the MAC of its parent: the later one's number is made from its name too. */
static void number_ports(struct port_view *view)
{
    qsort(view->ports, view->nports, sizeof *view->ports, compare_ports);
    for (size_t i = 0; i < view->nports; i++) {
        struct port *port = &view->ports[i];

        port->port_id = fold(2166136261u, port->mac, sizeof port->mac);
        for (size_t k = 0; k < i; k++) {
            if (view->ports[k].port_id != port->port_id)
                continue;
            port->port_id = fold(port->port_id, port->name, strlen(port->name) + 1);
            k = (size_t)-1; /* against all again */
        }
    }
}

/* With a socket of its own: a dump that the kernel interrupts leaves its rest behind. */
static int look_once(struct port_look *look)
{
    struct mnl_socket *nl = mnl_socket_open2(NETLINK_ROUTE, SOCK_CLOEXEC);
    struct timeval patience = {PORT_ANSWER_S, 0};
    int r = 0;

    if (!nl)
        return -errno;
    if (mnl_socket_bind(nl, 0, MNL_SOCKET_AUTOPID) < 0 ||
        setsockopt(mnl_socket_get_fd(nl), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) < 0)
        r = -errno;
    if (r == 0)
        r = dump(nl, RTM_GETLINK, sizeof(struct ifinfomsg), on_link, look);
    if (r == 0)
        r = dump(nl, RTM_GETADDR, sizeof(struct ifaddrmsg), on_address, look);
    if (r == 0)
        r = dump(nl, RTM_GETROUTE, sizeof(struct rtmsg), on_route, look);
    mnl_socket_close(nl);
    return r;
}

int port_view_read(struct port_view *ret, const struct port_rules *rules)
{
    int r = -EINTR;

    for (int i = 0; i < PORT_DUMP_TRIES && r == -EINTR; i++) {
        struct port_look look = {.rules = rules};

        r = look_once(&look);
        if (r == 0) {
            if (look.view.nports > 0)
                number_ports(&look.view);
            *ret = look.view;
        } else {
            port_view_done(&look.view);
        }
    }
    return r;
}

void port_view_done(struct port_view *view)
{
    free(view->ports);
    free(view->prefixes);
    *view = (struct port_view){.ports = NULL};
}

bool port_view_equals(const struct port_view *a, const struct port_view *b)
{
    return a->nports == b->nports && a->nprefixes == b->nprefixes && a->is_partial == b->is_partial &&
           (a->nports == 0 || memcmp(a->ports, b->ports, a->nports * sizeof *a->ports) == 0) &&
           (a->nprefixes == 0 || memcmp(a->prefixes, b->prefixes, a->nprefixes * sizeof *a->prefixes) == 0);
}
