/* SPDX-License-Identifier: MIT
 *
 * ringctl token: what a client of the daemon's TCP port needs. ringctl key: keys that open no more
 * than what is served. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "daemon/ctl/ctl.h"
#include "daemon/ctl/ctl_client.h"
#include "daemon/ctl/terminal/ctl_print.h"
#include "daemon/ctl/terminal/ctl_table.h"

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

/* --- keys of clients -------------------------------------------------------------------------- */

const struct opt_def ctl_key_options[] = {
    {.name = "rate",
     .type = OPT_INT,
     .placeholder = "N",
     .def = "0",
     .min = 0,
     .max = 60000,
     .help = "with add: allow this many requests a minute; 0 does not limit them"},
    {.name = NULL},
};

static void print_key(const json_t *answer)
{
    puts(field_text(answer, "key", ""));
}

static void print_keys(const json_t *answer)
{
    const json_t *list = json_object_get(answer, "keys"), *key;
    struct table *t = table_new("NAME\tRATE");
    size_t i;
    json_array_foreach (list, i, key) {
        const double rate = field_number(key, "rate");
        if (rate > 0)
            table_add(t, "%s\t%.0f a minute", field_text(key, "name", "-"), rate);
        else
            table_add(t, "%s\tunlimited", field_text(key, "name", "-"));
    }
    if (json_array_size(list)) {
        table_print_free(t, stdout);
        return;
    }
    table_free(t);
    puts("no client has a key of its own: ringctl key add NAME makes one");
}

static void print_removed(const json_t *answer)
{
    printf("the key of %s opens nothing any more\n", field_text(answer, "name", "-"));
}

static int remove_key(const struct ctl *ctl, const char *name)
{
    char path[256];
    if (strlen(name) > 200 || strpbrk(name, "/?#% "))
        return ctl_usage(ctl, "\"%.64s\" is no name of a key: ringctl key list shows them", name);
    snprintf(path, sizeof path, "/v1/keys/%s", name);
    return ctl_request_print(ctl, "DELETE", path, NULL, print_removed);
}

int ctl_key_main(struct ctl *ctl)
{
    const char *word = ctl->n_args ? ctl->args[0] : "", *name = ctl->n_args == 2 ? ctl->args[1] : NULL;
    if (!strcmp(word, "list") && ctl->n_args == 1)
        return ctl_request_print(ctl, "GET", "/v1/keys", NULL, print_keys);
    if (!strcmp(word, "add") && name)
        return ctl_request_print(
            ctl, "POST", "/v1/keys",
            json_pack("{s:s s:I}", "name", name, "rate", (json_int_t)opts_int(ctl->opts, "rate")), print_key);
    if (!strcmp(word, "remove") && name)
        return remove_key(ctl, name);
    return ctl_usage(ctl, "key takes add NAME, list, or remove NAME");
}
