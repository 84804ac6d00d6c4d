/* SPDX-License-Identifier: MIT
 *
 * `ringctl links`, and with -v why a cable is no link yet: every port, what is heard on it, the
 * connection over that, which timer runs, and below the table a sentence on everything that is
 * missing. */
#include <stdio.h>
#include <string.h>

#include "daemon/ctl/ctl.h"
#include "daemon/ctl/ctl_client.h"
#include "daemon/ctl/terminal/ctl_print.h"
#include "daemon/ctl/terminal/ctl_table.h"

const struct opt_def ctl_links_options[] = {
    {.name = "hosts",
     .type = OPT_FLAG,
     .help = "print lines for /etc/hosts: the addresses of both ends of every cable in the cluster, named "
             "NODE-PORT.ring"},
    {.name = "verbose",
     .type = OPT_FLAG,
     .help = "show ports, cables and links together, with their timers, and why a cable has no link yet",
     .short_name = 'v'},
    {.name = NULL},
};

/* "940 of 1000 Mb/s": what was measured, the slower way, of what was negotiated. */
static struct amount speed_of(const json_t *link)
{
    double tx = field_number(link, "tx_mbps"), rx = field_number(link, "rx_mbps"),
           negotiated = field_number(link, "negotiated_mbps");
    struct amount a = {"-"};
    char measured[16] = "?";
    if (tx > 0)
        snprintf(measured, sizeof measured, "%.0f", tx < rx ? tx : rx);
    if (negotiated > 0)
        snprintf(a.text, sizeof a.text, "%s of %.0f Mb/s", measured, negotiated);
    else if (tx > 0)
        snprintf(a.text, sizeof a.text, "%s Mb/s", measured);
    return a;
}

/* None without a heartbeat. */
static struct amount rtt_of(const json_t *link)
{
    const json_t *rtt = json_object_get(link, "rtt_ms");
    struct amount a = {"-"}, number = print_number(rtt, "-");
    if (json_is_number(rtt))
        snprintf(a.text, sizeof a.text, "%.16s ms", number.text);
    return a;
}

static void print_links(const json_t *answer)
{
    struct table *t = table_new("PEER\tADDRESS\tDIRECTION\tSTATE\tCIPHER\tRTT\tSPEED\tSENT\tRECEIVED\tUP");
    size_t i;
    json_t *l;
    json_array_foreach (json_object_get(answer, "links"), i, l) {
        const char *peer = field_text(l, "peer", "");
        table_add(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s", *peer ? peer : "?",
                  field_text(l, "address", "-"), field_text(l, "direction", "-"), field_text(l, "state", "?"),
                  field_text(l, "cipher", "-"), rtt_of(l).text, speed_of(l).text,
                  print_bytes(field_number(l, "tx_bytes")).text,
                  print_bytes(field_number(l, "rx_bytes")).text,
                  print_duration(field_number(l, "up_seconds")).text);
    }
    if (!table_rows(t))
        table_add(t, "none: plug in a cable (`ringctl links -v` shows each port), or give ringd a neighbour "
                     "with --peer HOST:PORT");
    table_print_free(t, stdout);
    json_array_foreach (json_object_get(answer, "links"), i, l) {
        const char *peer =
            field_text(l, "peer", ""); /* whom a dial finds is not known before it is answered */
        if (*field_text(l, "warning", ""))
            printf("WARNING  %s\n", field_text(l, "warning", ""));
        if (*field_text(l, "why", ""))
            printf("%s: %s\n", *peer ? peer : field_text(l, "address", "?"), field_text(l, "why", ""));
    }
}

/* --- the long form ---------------------------------------------------------------------------- */

static const char *why_no_cable(const char *state)
{
    static const struct {
        const char *state, *why;
    } reasons[] = {
        {"heard", "it has not answered a beacon of this node yet: that takes a second or two"},
        {"one-way", "it does not hear this node: a firewall there drops UDP port 17464, or one pair of the "
                    "cable is dead"},
        {"version", "it runs a ringd with another protocol: install the same version"},
        {"cloned",
         "it has its identity on two machines: remove the file identity in one machine's state directory"},
    };
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if (!strcmp(state, reasons[i].state))
            return reasons[i].why;
    return "";
}

static const json_t *link_over(const json_t *links, const char *cable)
{
    size_t i;
    json_t *l;
    json_array_foreach (links, i, l)
        if (*cable && !strcmp(field_text(l, "cable", ""), cable))
            return l;
    return NULL;
}

static void put_rate(char *ret, size_t size, const json_t *l, const char *key)
{
    const double mbps = field_number(l, key);
    if (mbps > 0)
        snprintf(ret, size, "%.0f", mbps);
    else
        snprintf(ret, size, "?");
}

/* What such a port does, what the two ends agreed on, and what was measured, out and in. */
static const char *rates(char *ret, size_t size, const json_t *l)
{
    static const char *const keys[] = {"expected_mbps", "negotiated_mbps", "tx_mbps", "rx_mbps"};
    char text[4][24];
    for (size_t i = 0; i < 4; i++)
        put_rate(text[i], sizeof text[i], l, keys[i]);
    snprintf(ret, size, "%s, %s, %s/%s", text[0], text[1], text[2], text[3]);
    return l ? ret : "-";
}

/* How closely the two clocks are known to each other: that is how finely a step's timeline can be
 * laid together. */
static struct amount clock_of(const json_t *l)
{
    struct amount a = {"-"};
    const json_t *error = json_object_get(l, "clock_error_us");
    if (json_is_number(error))
        snprintf(a.text, sizeof a.text, "+-%.3f ms", json_number_value(error) / 1e3);
    return a;
}

/* The row of a link; `port` and `cable` are its first cells. */
static void add_link(struct table *t, const char *port, const char *cable, const json_t *l)
{
    const char *timer = field_text(l, "timer", "");
    char mbps[100];
    table_add(t, "%s\t%s\t%s\t%s\t%s%s%s\t%.0f\t%s\t%s", port, cable, l ? field_text(l, "state", "?") : "-",
              l ? print_duration(field_number(l, "since_seconds")).text : "-", *timer ? timer : "-",
              *timer ? ", " : "", *timer ? print_duration(field_number(l, "timer_seconds")).text : "",
              field_number(l, "flaps"), clock_of(l).text, rates(mbps, sizeof mbps, l));
}

static void add_port(struct table *t, const json_t *port, const json_t *links)
{
    size_t i;
    json_t *heard;
    char cable[160];
    json_array_foreach (json_object_get(port, "heard"), i, heard) {
        snprintf(cable, sizeof cable, "%s %s, %s%s", field_text(heard, "node", "?"),
                 field_text(heard, "port", ""), field_text(heard, "state", "?"),
                 json_is_true(json_object_get(heard, "shared")) ? ", shared" : "");
        add_link(t, field_text(port, "name", "?"), cable, link_over(links, field_text(heard, "cable", "")));
    }
    if (!json_array_size(json_object_get(port, "heard")))
        table_add(t, "%s\t%s", field_text(port, "name", "?"),
                  json_is_true(json_object_get(port, "usable")) ? "nobody is heard" : "not usable");
}

static bool is_heard(const json_t *ports, const char *cable)
{
    size_t i, k;
    json_t *port, *heard;
    json_array_foreach (ports, i, port)
        json_array_foreach (json_object_get(port, "heard"), k, heard)
            if (*cable && !strcmp(field_text(heard, "cable", ""), cable))
                return true;
    return false;
}

static void explain_port(const json_t *port)
{
    size_t i;
    json_t *heard;
    const char *name = field_text(port, "name", "?");
    if (*field_text(port, "why", ""))
        printf("%s: %s\n", name, field_text(port, "why", ""));
    else if (!json_array_size(json_object_get(port, "heard")))
        printf("%s: no node is heard: the other end does not run ringd or is in another cluster, or a "
               "firewall here drops UDP port 17464\n",
               name);
    json_array_foreach (json_object_get(port, "heard"), i, heard) {
        const char *why = why_no_cable(field_text(heard, "state", ""));
        if (*why)
            printf("%s on %s: %s\n", field_text(heard, "node", "?"), name, why);
    }
}

static void explain_link(const json_t *l)
{
    const char *peer = field_text(l, "peer", ""), *port = field_text(l, "port", "");
    const char *why = field_text(l, "why", ""), *words = field_text(l, "last_words", "");
    if (*field_text(l, "warning", ""))
        printf("WARNING  %s\n", field_text(l, "warning", ""));
    if (!*why && !*words)
        return;
    printf("%s%s%s: %s%s\n", *peer ? peer : field_text(l, "address", "?"), *port ? " on " : "", port,
           *why ? "" : "the connection before this one: ", *why ? why : words);
}

static void print_verbose(const json_t *ports, const json_t *links)
{
    struct table *t =
        table_new("PORT\tCABLE\tLINK\tFOR\tTIMER\tFLAPS\tCLOCK\tMBIT/S EXPECTED, AGREED, OUT/IN");
    size_t i;
    json_t *one;
    json_array_foreach (ports, i, one)
        add_port(t, one, links);
    json_array_foreach (links, i, one) {
        const char *port = field_text(one, "port", ""), *peer = field_text(one, "peer", "");
        if (!is_heard(ports, field_text(one, "cable", "")))
            add_link(t, *port ? port : "-", *peer ? peer : field_text(one, "address", "?"), one);
    }
    if (!table_rows(t))
        table_add(t, "none: ringd uses no port (--discover, --ports-allow) and has no --peer");
    table_print_free(t, stdout);
    json_array_foreach (ports, i, one)
        explain_port(one);
    json_array_foreach (links, i, one)
        explain_link(one);
}

static int show_verbose(const struct ctl *ctl)
{
    json_t *ports = NULL, *links = NULL;
    int rc = ctl_request(ctl, "GET", "/v1/ports", NULL, &ports);
    if (!rc)
        rc = ctl_request(ctl, "GET", "/v1/links", NULL, &links);
    if (!rc && ctl->json) {
        json_object_update(ports, links);
        print_json(ports);
    } else if (!rc) {
        print_verbose(json_object_get(ports, "ports"), json_object_get(links, "links"));
    }
    json_decref(ports);
    json_decref(links);
    return rc ? rc : CTL_OK;
}

int ctl_links_main(struct ctl *ctl)
{
    json_t *answer = NULL;
    if (ctl->n_args)
        return ctl_usage(ctl, "\"%s\": it takes no arguments", ctl->args[0]);
    if (opts_flag(ctl->opts, "hosts"))
        return ctl_links_hosts(ctl);
    if (opts_flag(ctl->opts, "verbose"))
        return show_verbose(ctl);
    int rc = ctl_request(ctl, "GET", "/v1/links", NULL, &answer);
    if (!rc && ctl->json)
        print_json(answer);
    else if (!rc)
        print_links(answer);
    json_decref(answer);
    return rc ? rc : CTL_OK;
}
