/* SPDX-License-Identifier: MIT
 *
 * ringctl reload: the daemon reads its configuration again. systemd's ExecReload is this command,
 * so its exit status is what `systemctl reload` tells. */
#include <stdio.h>

#include "daemon/ctl/ctl.h"
#include "daemon/ctl/ctl_client.h"
#include "daemon/ctl/terminal/ctl_print.h"

static void print_options(const char *head, const json_t *names)
{
    size_t i;
    json_t *name;
    if (!json_array_size(names))
        return;
    fputs(head, stdout);
    json_array_foreach (names, i, name)
        printf("%s %s", i ? "," : "", json_string_value(name));
    putchar('\n');
}

static void print_reload(const json_t *answer)
{
    const json_t *applied = json_object_get(answer, "applied"), *restart = json_object_get(answer, "restart");
    if (!json_array_size(applied) && !json_array_size(restart))
        puts("the configuration has been read again; nothing in it has changed");
    print_options("in force now:", applied);
    print_options("changed, and in force when ringd is started again:", restart);
}

int ctl_reload_main(struct ctl *ctl)
{
    json_t *answer = NULL;
    if (ctl->n_args)
        return ctl_usage(ctl, "\"%s\": it takes no arguments", ctl->args[0]);
    int rc = ctl_request(ctl, "POST", "/v1/reload", NULL, &answer);
    if (rc)
        return rc;
    if (ctl->json)
        print_json(answer);
    else
        print_reload(answer);
    json_decref(answer);
    return CTL_OK;
}
