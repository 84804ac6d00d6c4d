/* SPDX-License-Identifier: MIT
 *
 * ringctl token: what a client of the daemon's TCP port needs. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "daemon/ctl/ctl.h"
#include "daemon/ctl/ctl_client.h"
#include "daemon/ctl/terminal/ctl_print.h"

const struct opt_def ctl_token_options[] = {
    {.name = "new", .type = OPT_FLAG, .help = "make a new token; the daemon no longer accepts the old token"},
    {.name = NULL},
};

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
