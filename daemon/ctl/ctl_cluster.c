/* SPDX-License-Identifier: MIT
 *
 * The commands about membership: init, invite, join, members, remove, promote; and drain,
 * undrain. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ctl/ctl.h"
#include "daemon/ctl/ctl_client.h"
#include "daemon/ctl/terminal/ctl_print.h"
#include "daemon/ctl/terminal/ctl_table.h"

const struct opt_def ctl_init_options[] = {
    {.name = "name",
     .type = OPT_STRING,
     .placeholder = "NAME",
     .help = "name of the cluster (default: ring)"},
    {.name = NULL},
};
const struct opt_def ctl_invite_options[] = {
    {.name = "ttl",
     .type = OPT_STRING,
     .placeholder = "TIME",
     .def = "1h",
     .help = "let the token expire after this time, such as 90s, 30m, 1h or 7d"},
    {.name = NULL},
};
const struct opt_def ctl_join_options[] = {
    {.name = "peer",
     .type = OPT_STRING,
     .placeholder = "HOST:PORT",
     .help = "ask this member (default: any member on a cable that knows the token)"},
    {.name = NULL},
};

const struct opt_def ctl_drain_options[] = {
    {.name = "reason",
     .type = OPT_STRING,
     .placeholder = "TEXT",
     .help = "say why, for those who look at the nodes and jobs (default: its operator takes it out)"},
    {.name = NULL},
};

/* --- init, invite, join --- */

static void print_init(const json_t *answer)
{
    printf("%s is the first member of cluster %s. `ringctl invite` makes a token for the next.\n",
           field_text(answer, "node", "this node"), field_text(answer, "name", "?"));
}

int ctl_init_main(struct ctl *ctl)
{
    const char *name = opts_str(ctl->opts, "name");
    int rc = ctl_no_args(ctl);
    return rc ? rc
              : ctl_request_print(ctl, "POST", "/v1/cluster/init",
                                  name ? json_pack("{s:s}", "name", name) : json_object(), print_init);
}

/* "1h" → 3600; 0 if it is anything else. */
static long parse_ttl(const char *text)
{
    char *end;
    long n = strtol(text, &end, 10);
    long unit = !*end || !strcmp(end, "s") ? 1
                : !strcmp(end, "m")        ? 60
                : !strcmp(end, "h")        ? 3600
                : !strcmp(end, "d")        ? 86400
                                           : 0;
    return end == text || n < 1 || n > 100000000 ? 0 : n * unit;
}

static void print_token(const json_t *answer)
{
    puts(field_text(answer, "token", "?"));
}

int ctl_invite_main(struct ctl *ctl)
{
    long ttl = parse_ttl(opts_str(ctl->opts, "ttl"));
    int rc = ctl_no_args(ctl);
    if (!rc && !ttl)
        rc = ctl_usage(ctl, "--ttl \"%s\": a time is needed, as 90s, 30m, 1h or 7d",
                       opts_str(ctl->opts, "ttl"));
    return rc ? rc
              : ctl_request_print(ctl, "POST", "/v1/cluster/invite",
                                  json_pack("{s:I}", "ttl", (json_int_t)ttl), print_token);
}

static void print_join(const json_t *answer)
{
    printf("This node is in cluster %s now, as %s.\n", field_text(answer, "name", "?"),
           field_text(answer, "node", "?"));
}

int ctl_join_main(struct ctl *ctl)
{
    const char *peer = opts_str(ctl->opts, "peer");
    if (ctl->n_args != 1)
        return ctl_usage(ctl, "one token is needed, as `ringctl invite` prints it on a member");
    json_t *body = json_pack("{s:s}", "token", ctl->args[0]);
    if (peer)
        json_object_set_new(body, "peer", json_string(peer));
    return ctl_request_print(ctl, "POST", "/v1/cluster/join", body, print_join);
}

/* --- members --- */

static void add_member(struct table *t, const json_t *m)
{
    const json_t *seen = json_object_get(m, "last_seen_seconds");
    bool up = json_is_true(json_object_get(m, "up"));
    char ago[40] = "not since the start";
    if (up)
        snprintf(ago, sizeof ago, "now");
    else if (json_is_number(seen))
        snprintf(ago, sizeof ago, "%s ago", print_duration(json_number_value(seen)).text);
    table_add(t, "%s%s\t%s\t%s\t%s\t%s", field_text(m, "name", "?"),
              json_is_true(json_object_get(m, "self")) ? " (this)" : "", field_text(m, "short_id", "?"),
              field_text(m, "status", "?"), json_is_true(json_object_get(m, "authority")) ? "yes" : "-", ago);
}

static void print_members(const json_t *answer)
{
    const json_t *cluster = json_object_get(answer, "cluster");
    const char *state = field_text(cluster, "state", "none");
    size_t i;
    json_t *m;
    if (!strcmp(state, "none")) {
        puts("This node is in no cluster and works alone: `ringctl init` makes one, `ringctl join TOKEN` "
             "enters one.");
        return;
    }
    printf("cluster %s, roster %.0f%s\n", field_text(cluster, "name", "?"),
           field_number(cluster, "roster_version"),
           strcmp(state, "removed") ? "" : " (this node was removed from it)");
    struct table *t = table_new("NODE\tID\tSTATUS\tAUTHORITY\tLAST SEEN");
    json_array_foreach (json_object_get(answer, "members"), i, m)
        add_member(t, m);
    table_print_free(t, stdout);
}

int ctl_members_main(struct ctl *ctl)
{
    int rc = ctl_no_args(ctl);
    return rc ? rc : ctl_request_print(ctl, "GET", "/v1/members", NULL, print_members);
}

/* --- remove, promote --- */

static void print_note(const json_t *answer)
{
    const char *note = field_text(answer, "note", "");
    if (*note)
        printf("Mind: %s.\n", note);
}

static void print_remove(const json_t *answer)
{
    printf("%s is removed; the network key is changed.\n", field_text(answer, "node", "?"));
    print_note(answer);
}

static void print_promote(const json_t *answer)
{
    printf("%s may invite and remove nodes now.\n", field_text(answer, "node", "?"));
    print_note(answer);
}

static int name_one(struct ctl *ctl, const char *path, void (*print)(const json_t *answer))
{
    if (ctl->n_args != 1)
        return ctl_usage(ctl, "one node is needed, by name or id, as `ringctl members` shows them");
    return ctl_request_print(ctl, "POST", path, json_pack("{s:s}", "node", ctl->args[0]), print);
}

int ctl_remove_main(struct ctl *ctl)
{
    return name_one(ctl, "/v1/cluster/remove", print_remove);
}

int ctl_promote_main(struct ctl *ctl)
{
    return name_one(ctl, "/v1/cluster/promote", print_promote);
}

/* --- drain, undrain --- */

static void print_drain(const json_t *answer)
{
    const char *node = field_text(answer, "node", "?");
    printf("%s takes no part in new jobs until `ringctl undrain %s`, or until its ringd is started again.\n",
           node, node);
    if (json_array_size(json_object_get(answer, "stages")))
        printf(
            "Jobs that train or serve move to other nodes after their next step, others end there: `ringctl "
            "nodes` shows when %s is idle.\n",
            node);
}

static void print_undrain(const json_t *answer)
{
    printf("%s takes part in jobs again.\n", field_text(answer, "node", "?"));
}

int ctl_drain_main(struct ctl *ctl)
{
    const char *reason = opts_str(ctl->opts, "reason");
    if (ctl->n_args != 1)
        return ctl_usage(ctl, "one node is needed, by its name, as `ringctl nodes` shows it");
    return ctl_request_print(ctl, "POST", "/v1/drain",
                             json_pack("{s:s s:s*}", "node", ctl->args[0], "reason", reason), print_drain);
}

int ctl_undrain_main(struct ctl *ctl)
{
    return name_one(ctl, "/v1/undrain", print_undrain);
}
