/* SPDX-License-Identifier: MIT
 *
 * Names of cables' ends. Pure. */
#include "daemon/ctl/host/hosts.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static size_t put_clean(char *ret, size_t at, size_t cap, const char *text)
{
    for (; *text && at < cap; text++) {
        char c = *text >= 'A' && *text <= 'Z' ? (char)(*text + ('a' - 'A')) : *text;
        if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'))
            ret[at++] = c;
        else if (at > 0 && ret[at - 1] != '-')
            ret[at++] = '-';
    }
    return at;
}

void hosts_label(char ret[static HOSTS_LABEL], const char *node, const char *port)
{
    size_t cap = HOSTS_LABEL - 1;
    /* the port's name is short and tells the cables of a node apart: it is not the one to be cut */
    size_t at = put_clean(ret, 0, cap - 16, node);
    at = put_clean(ret, at, cap, "-");
    at = put_clean(ret, at, cap, port);
    while (at > 0 && ret[at - 1] == '-')
        at--;
    if (at == 0)
        ret[at++] = 'x';
    ret[at] = '\0';
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

/* What has been named already: {"label": "node port"}. */
static void name_end(json_t *names, const char *node, const char *port, char ret[static HOSTS_LABEL + 16])
{
    char label[HOSTS_LABEL], whose[256];
    hosts_label(label, node, port);
    snprintf(whose, sizeof whose, "%s %s", node, port);
    snprintf(ret, HOSTS_LABEL + 16, "%s.ring", label);
    for (unsigned i = 2; json_object_get(names, ret) && strcmp(text_of(names, ret), whose); i++)
        snprintf(ret, HOSTS_LABEL + 16, "%.56s-%u.ring", label, i);
    json_object_set_new(names, ret, json_string(whose));
}

static void add_line(json_t *list, const char *address, const char *name, const char *why)
{
    char bare[64];
    snprintf(bare, sizeof bare, "%.*s", (int)strcspn(address, "/"), address);
    if (*bare)
        json_array_append_new(list, json_pack("{s:s s:s s:s}", "address", bare, "name", name, "why", why));
}

static void add_subnets(json_t *list, const json_t *cable, const char *mine, const char *theirs)
{
    static const char *const suffixes[] = {"", "4"};
    for (size_t i = 0; i < 2; i++) {
        char ours[32], other[32], set[32], trouble[32];
        snprintf(ours, sizeof ours, "subnet%s", suffixes[i]);
        snprintf(other, sizeof other, "peer_subnet%s", suffixes[i]);
        snprintf(set, sizeof set, "subnet%s_set", suffixes[i]);
        snprintf(trouble, sizeof trouble, "subnet%s_trouble", suffixes[i]);
        const char *why = json_is_true(json_object_get(cable, set)) ? "" : text_of(cable, trouble);
        add_line(list, text_of(cable, ours), mine, why);
        add_line(list, text_of(cable, other), theirs, why);
    }
}

static bool has_line(const json_t *list, const char *address)
{
    const size_t n = strcspn(address, "/");
    size_t i;
    json_t *line;
    json_array_foreach (list, i, line) {
        const char *known = text_of(line, "address");
        if (strlen(known) == n && !strncmp(known, address, n))
            return true;
    }
    return false;
}

/* What other nodes say of their own ends, but for those that are seen from here. */
static void add_elsewhere(json_t *list, json_t *names, const json_t *elsewhere)
{
    static const char *const keys[] = {"subnet", "subnet4"};
    size_t i;
    json_t *cable;
    json_array_foreach (elsewhere, i, cable) {
        char name[HOSTS_LABEL + 16];
        for (size_t k = 0; k < 2; k++) {
            const char *address = text_of(cable, keys[k]);
            if (!*address || has_line(list, address))
                continue;
            name_end(names, text_of(cable, "node"), text_of(cable, "port"), name);
            add_line(list, address, name, "");
        }
    }
}

json_t *hosts_list(const json_t *ports, const char *self)
{
    json_t *list = json_array(), *names = json_object();
    size_t i, k;
    json_t *port, *cable;
    json_array_foreach (json_object_get(ports, "ports"), i, port)
        json_array_foreach (json_object_get(port, "heard"), k, cable) {
            char mine[HOSTS_LABEL + 16], theirs[HOSTS_LABEL + 16];
            if (!*text_of(cable, "subnet") && !*text_of(cable, "subnet4"))
                continue;
            name_end(names, self, text_of(port, "name"), mine);
            name_end(names, text_of(cable, "node"), text_of(cable, "port"), theirs);
            add_subnets(list, cable, mine, theirs);
        }
    add_elsewhere(list, names, json_object_get(ports, "elsewhere"));
    json_decref(names);
    return list;
}
