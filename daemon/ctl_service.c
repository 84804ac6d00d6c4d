/* SPDX-License-Identifier: MIT
 *
 * ringctl reload, token: the daemon's configuration read again, and the token of its TCP port. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "daemon/ctl.h"
#include "daemon/ctl_client.h"
#include "daemon/ctl_print.h"

const struct opt_def ctl_token_options[] = {
    {.name = "new", .type = OPT_FLAG, .help = "make a new one; the old one counts no more"},
    {.name = NULL},
};

static void print_names(const char *before, const json_t *names)
{
    size_t i;
    json_t *name;
    if (!json_array_size(names))
        return;
    fputs(before, stdout);
    json_array_foreach(names, i, name)
    {
        printf("%s%s", i ? ", " : "", json_string_value(name));
    }
    puts("");
}

int ctl_reload_main(struct ctl *ctl)
{
    json_t *done;
    if (ctl->n_args)
        return ctl_usage(ctl, "reload takes no arguments");
    int status = ctl_request(ctl, "POST", "/v1/reload", NULL, &done);
    if (status != CTL_OK)
        return status;
    const json_t *applied = json_object_get(done, "applied"), *restart = json_object_get(done, "restart");
    if (ctl->json) {
        print_json(done);
    } else if (!json_array_size(applied) && !json_array_size(restart)) {
        puts("nothing has changed");
    } else {
        print_names("in effect now: ", applied);
        print_names("at the next start (systemctl restart ringd): ", restart);
    }
    json_decref(done);
    return CTL_OK;
}

int ctl_token_main(struct ctl *ctl)
{
    json_t *answer, *body = json_pack("{s:b}", "new", (int)opts_flag(ctl->opts, "new"));
    int status = ctl->n_args ? ctl_usage(ctl, "token takes no arguments")
                             : ctl_request(ctl, "POST", "/v1/token", body, &answer);
    json_decref(body);
    if (status != CTL_OK)
        return status;
    const char *token = json_string_value(json_object_get(answer, "token"));
    if (ctl->json)
        print_json(answer);
    else
        puts(token ? token : "");
    json_decref(answer);
    return CTL_OK;
}
