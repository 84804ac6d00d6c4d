/* SPDX-License-Identifier: MIT
 *
 * The command doctor: what the daemon found out about all nodes, or, without a daemon, what can be
 * seen from here. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/common/conf.h"
#include "daemon/ctl/ctl.h"
#include "daemon/ctl/ctl_client.h"
#include "daemon/ctl/terminal/ctl_print.h"
#include "daemon/ctl/ctl_path.h"
#include "daemon/common/doctor/doctor.h"
#include "daemon/common/doctor/doctor_host.h"
#include "daemon/common/installed.h"
#include "daemon/common/xalloc.h"

const struct opt_def ctl_doctor_options[] = {
    {.name = "model",
     .type = OPT_PATH,
     .placeholder = "DIR",
     .help = "also compare this model directory on all nodes, and the model's size with their memory"},
    {.name = "deep",
     .type = OPT_FLAG,
     .help = "with --model: every node reads the whole model, to compare all weights"},
    {.name = "verbose",
     .type = OPT_FLAG,
     .help = "also print the checks that found no fault",
     .short_name = 'v'},
    {.name = NULL},
};

/* --- without a daemon ------------------------------------------------------------------------- */

/* 0: somebody accepts connections. */
static int try_socket(const char *path)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof at.sun_path)
        return -ENAMETOOLONG;
    strcpy(at.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int r = fd < 0 || connect(fd, (const struct sockaddr *)&at, sizeof at) ? -errno : 0;
    if (fd >= 0)
        close(fd);
    return r;
}

/* "active", "failed", …; "" where systemd does not know the unit, or does not run. */
static void unit_state(char *ret, size_t size)
{
    *ret = 0;
    if (access("/run/systemd/system", F_OK))
        return;
    FILE *f = popen("systemctl show -p LoadState,ActiveState --value ringd.service 2>/dev/null", "re");
    char load[32] = "", active[32] = "";
    if (f && fscanf(f, "%31s %31s", load, active) == 2 && !strcmp(load, "loaded"))
        snprintf(ret, size, "%s", active);
    if (f)
        pclose(f);
}

/* Why nobody answers, and the command that helps. */
static json_t *no_daemon(const struct ctl *ctl, const char *host, int error)
{
    char unit[32];
    const char *fix = "systemctl start ringd", *why;
    char *text;
    unit_state(unit, sizeof unit);
    if (error == -EACCES) {
        fix = "adduser $USER ringd";
        why = "this user may not use the socket; it belongs to the group ringd (log in again after the "
              "command)";
    } else if (error == -ECONNREFUSED) {
        why = "the socket exists, but no ringd listens: ringd ended without removing it";
    } else {
        why = strerror(-error);
    }
    if (error != -EACCES && !strcmp(unit, "failed"))
        fix = "journalctl -u ringd -n 30 --no-pager; systemctl restart ringd";
    else if (error != -EACCES && !*unit)
        fix = "ringd";
    text = xasprintf("no ringd answers on %s: %s%s%s", ctl->socket, why,
                     *unit ? "; the unit ringd.service is " : "", unit);
    json_t *finding = json_pack("{s:s s:s s:s s:s s:s s:s}", "severity", "error", "node", host, "check",
                                "daemon", "thing", "ringd", "text", text, "fix", fix);
    free(text);
    return finding;
}

static json_t *alone(const struct ctl *ctl, int error)
{
    char host[64] = "this machine", *stage = conf_default_stage();
    struct err err;
    bool is_there = !installed_check_stage(stage, &err);
    free(stage);
    gethostname(host, sizeof host - 1);
    json_t *facts = doctor_host_facts("", NULL);
    json_object_set_new(facts, "name", json_string(host));
    json_object_set_new(facts, "ports", doctor_host_ports(""));
    json_object_set_new(facts, "stage_trouble", json_string(is_there ? "" : err.text));
    json_t *world = json_pack("{s:[o]}", "nodes", facts);
    json_t *findings = doctor_judge(world);
    json_array_insert_new(findings, 0, no_daemon(ctl, host, error));
    json_decref(world);
    return json_pack("{s:s s:o}", "node", host, "findings", findings);
}

/* --- printing --------------------------------------------------------------------------------- */

static bool is_ok(const json_t *finding)
{
    return !strcmp(field_text(finding, "severity", ""), "ok");
}

static void print_finding(const json_t *f)
{
    const char *thing = field_text(f, "thing", ""), *fix = field_text(f, "fix", "");
    const char *check = field_text(f, "check", "?");
    if (!strcmp(thing, check)) /* once is enough */
        thing = "";
    printf("  %-8s %s%s%s: %s\n", field_text(f, "severity", "?"), check, *thing ? " " : "", thing,
           field_text(f, "text", ""));
    if (*fix)
        printf("           fix: %s\n", fix);
}

/* All of one node: what is wrong, then what is in order, by name. */
static void print_node(const json_t *findings, size_t from, size_t to, bool verbose)
{
    bool any = false;
    puts(field_text(json_array_get(findings, from), "node", "?"));
    for (size_t i = from; i < to; i++) {
        const json_t *f = json_array_get(findings, i);
        if (verbose || !is_ok(f))
            print_finding(f);
    }
    for (size_t i = from; i < to && !verbose; i++) {
        const json_t *f = json_array_get(findings, i);
        if (!is_ok(f))
            continue;
        printf("%s%s", any ? ", " : "  ok       ", field_text(f, "check", "?"));
        any = true;
    }
    if (any)
        putchar('\n');
}

static void print_findings(const json_t *findings, bool verbose)
{
    size_t n = json_array_size(findings);
    for (size_t from = 0, to; from < n; from = to) {
        const char *node = field_text(json_array_get(findings, from), "node", "?");
        for (to = from + 1; to < n && !strcmp(field_text(json_array_get(findings, to), "node", "?"), node);
             to++)
            ;
        print_node(findings, from, to, verbose);
    }
}

/* --- asking ----------------------------------------------------------------------------------- */

enum { DEEP_S = 24 * 3600 /* the daemon itself gives up on nodes that fall silent */ };

/* As long as the slowest disk takes. */
static int ask_deep(struct ctl *ctl, json_t **ret)
{
    char *path = ctl_absolute_path(opts_str(ctl->opts, "model"));
    json_t *body = json_pack("{s:s}", "model", path);
    if (!ctl->json)
        fprintf(stderr, "every node reads all of %s; ^C leaves\n", path);
    int rc = ctl_request_within(ctl, "POST", "/v1/doctor", body, DEEP_S, ret);
    json_decref(body);
    free(path);
    return rc;
}

static char *question(const struct ctl *ctl)
{
    const char *model = opts_str(ctl->opts, "model");
    if (!model)
        return xstrdup("/v1/doctor");
    char *path = ctl_absolute_path(model);
    char *text = xmalloc(3 * strlen(path) + 32), *to = text + sprintf(text, "/v1/doctor?model=");
    for (const char *c = path; *c; c++)
        to += sprintf(to, "%%%02X", (unsigned)(unsigned char)*c);
    free(path);
    return text;
}

int ctl_doctor_main(struct ctl *ctl)
{
    json_t *answer = NULL;
    if (ctl->n_args)
        return ctl_usage(ctl, "\"%s\": it takes no arguments", ctl->args[0]);
    const bool is_deep = opts_flag(ctl->opts, "deep");
    if (is_deep && !opts_str(ctl->opts, "model"))
        return ctl_usage(ctl, "--deep reads a model: say which one with --model DIR");
    int error = try_socket(ctl->socket), rc = CTL_OK;
    if (error) {
        answer = alone(ctl, error);
    } else if (is_deep) {
        rc = ask_deep(ctl, &answer);
    } else {
        char *path = question(ctl);
        rc = ctl_request(ctl, "GET", path, NULL, &answer);
        free(path);
    }
    if (rc)
        return rc;
    const json_t *findings = json_object_get(answer, "findings");
    if (ctl->json)
        print_json(answer);
    else
        print_findings(findings, opts_flag(ctl->opts, "verbose"));
    rc = doctor_is_ill(findings) ? CTL_FAILED : CTL_OK;
    json_decref(answer);
    return rc;
}
