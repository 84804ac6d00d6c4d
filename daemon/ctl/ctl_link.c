/* SPDX-License-Identifier: MIT
 *
 * The commands about cables and their addresses: ports, links --hosts, link adopt and link release.
 * The last two are for root, and need no daemon. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/ctl/host/netmanager.h"
#include "daemon/ctl/ctl.h"
#include "daemon/ctl/ctl_client.h"
#include "daemon/ctl/terminal/ctl_print.h"
#include "daemon/ctl/terminal/ctl_table.h"
#include "daemon/ctl/host/hosts.h"

const struct opt_def ctl_link_options[] = {
    {.name = "dry-run", .type = OPT_FLAG, .help = "show the files, but write none"},
    {.name = NULL},
};

/* --- links --hosts --- */

int ctl_links_hosts(const struct ctl *ctl)
{
    json_t *ports = NULL, *status = NULL;
    int rc = ctl_request(ctl, "GET", "/v1/ports", NULL, &ports);
    if (!rc)
        rc = ctl_request(ctl, "GET", "/v1/status", NULL, &status);
    if (!rc) {
        json_t *list = hosts_list(ports, field_text(json_object_get(status, "node"), "name", "node")), *line;
        size_t i;
        json_array_foreach (list, i, line) {
            const char *why = field_text(line, "why", "");
            if (!ctl->json)
                printf("%s%s %s%s%s\n", *why ? "# " : "", field_text(line, "address", "?"),
                       field_text(line, "name", "?"), *why ? ": " : "", why);
        }
        json_t *answer = json_pack("{s:o}", "hosts", list);
        if (ctl->json)
            print_json(answer);
        json_decref(answer);
    }
    json_decref(ports);
    json_decref(status);
    return rc;
}

/* --- ports --- */

static const char *speed_text(char *ret, size_t size, const json_t *port)
{
    const json_t *tb = json_object_get(port, "thunderbolt");
    double mbps = field_number(port, "speed_mbps");
    snprintf(ret, size, "-");
    if (field_number(tb, "rx_lanes") > 0)
        snprintf(ret, size, "%.0f Gb/s x %.0f in, %.0f x %.0f out", field_number(tb, "rx_gbps"),
                 field_number(tb, "rx_lanes"), field_number(tb, "tx_gbps"), field_number(tb, "tx_lanes"));
    else if (mbps >= 1000)
        snprintf(ret, size, "%g Gb/s", mbps / 1000);
    else if (mbps > 0)
        snprintf(ret, size, "%g Mb/s", mbps);
    return ret;
}

/* "b:cable1 two-way, c:lan0 one-way", or why nobody is heard. */
static void heard_text(char *ret, size_t size, const json_t *port)
{
    json_t *one;
    size_t i, at = 0;
    snprintf(ret, size, "%s", field_text(port, "why", ""));
    json_array_foreach (json_object_get(port, "heard"), i, one)
        if (at < size)
            at += (size_t)snprintf(ret + at, size - at, "%s%s:%s %s%s", at ? ", " : "",
                                   field_text(one, "node", "?"), field_text(one, "port", "?"),
                                   field_text(one, "state", "?"),
                                   json_is_true(json_object_get(one, "shared")) ? ", shared" : "");
}

/* Sentences below the table. */
static void print_port_details(const json_t *port)
{
    static const char *const troubles[] = {"mtu_trouble", "subnet_trouble", "subnet4_trouble"};
    const json_t *tb = json_object_get(port, "thunderbolt");
    const char *name = field_text(port, "name", "?");
    json_t *one;
    size_t i;
    if (*field_text(tb, "peer", ""))
        printf("%s: to \"%s\", domain %s; our domain's security level is %s, %s\n", name,
               field_text(tb, "peer", ""), field_text(tb, "peer_domain", "unknown"),
               *field_text(tb, "security", "") ? field_text(tb, "security", "") : "unknown",
               json_is_true(json_object_get(tb, "iommu"))
                   ? "with an IOMMU between the cable and the memory"
                   : "without an IOMMU: the machine on the cable may read the memory");
    json_array_foreach (json_object_get(port, "heard"), i, one)
        for (size_t k = 0; k < 3; k++)
            if (*field_text(one, troubles[k], ""))
                printf("%s, to %s: %s\n", name, field_text(one, "node", "?"),
                       field_text(one, troubles[k], ""));
}

static void print_ports(const json_t *answer)
{
    struct table *t = table_new("PORT\tKIND\tDRIVER\tSPEED\tMTU\tHEARD");
    const char *trouble = field_text(json_object_get(answer, "thunderbolt"), "trouble", "");
    json_t *port;
    size_t i;
    json_array_foreach (json_object_get(answer, "ports"), i, port) {
        char speed[64], heard[512];
        heard_text(heard, sizeof heard, port);
        table_add(t, "%s\t%s\t%s\t%s\t%.0f\t%s", field_text(port, "name", "?"), field_text(port, "kind", "?"),
                  *field_text(port, "driver", "") ? field_text(port, "driver", "") : "-",
                  speed_text(speed, sizeof speed, port), field_number(port, "mtu"),
                  *heard ? heard : "nobody");
    }
    if (!table_rows(t))
        table_add(t, "none: ringd runs with --discover off, or --ports-deny leaves none");
    table_print_free(t, stdout);
    json_array_foreach (json_object_get(answer, "ports"), i, port)
        print_port_details(port);
    if (*trouble)
        printf("Thunderbolt: %s\n", trouble);
}

int ctl_ports_main(struct ctl *ctl)
{
    json_t *answer = NULL;
    if (ctl->n_args)
        return ctl_usage(ctl, "\"%s\": it takes no arguments", ctl->args[0]);
    int rc = ctl_request(ctl, "GET", "/v1/ports", NULL, &answer);
    if (rc)
        return rc;
    if (ctl->json)
        print_json(answer);
    else
        print_ports(answer);
    json_decref(answer);
    return CTL_OK;
}

/* --- link adopt, link release --- */

static void print_adopted(const struct ctl *ctl, const struct adopt_file *f, const char *did)
{
    if (ctl->json) {
        json_t *answer = json_pack("{s:s? s:s s:s s:s? s:s}", "manager", f->manager, "path", f->path, "text",
                                   f->text, "apply", f->apply, "did", did);
        print_json(answer);
        json_decref(answer);
        return;
    }
    printf("%s %s, for %s\n", did, f->path, f->manager);
    if (!strcmp(did, "would write"))
        printf("\n%s\n", f->text);
    printf("to be applied with: %s\n", f->apply);
}

static int adopt(const struct ctl *ctl, const char *port)
{
    struct adopt_file file;
    struct err err;
    if (adopt_plan(&file, "", port, &err))
        return ctl_fail(CTL_FAILED, "%s", err.text);
    if (!file.manager) {
        if (ctl->json)
            print_adopted(ctl, &file, "nothing");
        else
            printf("neither systemd-networkd nor NetworkManager manages %s: nothing takes its addresses "
                   "away, and nothing has to be "
                   "written\n",
                   port);
        return CTL_OK;
    }
    if (opts_flag(ctl->opts, "dry-run")) {
        print_adopted(ctl, &file, "would write");
        return CTL_OK;
    }
    if (adopt_write("", &file, &err))
        return ctl_fail(CTL_FAILED, "%s", err.text);
    print_adopted(ctl, &file, "wrote");
    if (!ctl->json && strstr(file.path, "NetworkManager"))
        printf("NetworkManager no longer sets it up: write ports-allow = %s into /etc/ringd/ringd.conf, so "
               "that ringd does\n",
               port);
    return CTL_OK;
}

static int release(const struct ctl *ctl, const char *port)
{
    struct adopt_file file;
    struct err err;
    if (adopt_release(&file, "", port, &err))
        return ctl_fail(CTL_FAILED, "%s", err.text);
    print_adopted(ctl, &file, "removed");
    return CTL_OK;
}

int ctl_link_main(struct ctl *ctl)
{
    bool is_adopt = ctl->n_args == 2 && !strcmp(ctl->args[0], "adopt");
    bool is_release = ctl->n_args == 2 && !strcmp(ctl->args[0], "release");
    if (!is_adopt && !is_release)
        return ctl_usage(ctl, "say what to do and with which port, as in: ringctl link adopt enp3s0");
    if (is_release && opts_flag(ctl->opts, "dry-run"))
        return ctl_usage(ctl, "--dry-run needs adopt");
    return is_adopt ? adopt(ctl, ctl->args[1]) : release(ctl, ctl->args[1]);
}
