/* SPDX-License-Identifier: MIT */
#include "daemon/fetch/hub_headers.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "daemon/common/text_clean.h"

/* Digits and nothing else, up to what a size can be. */
static bool read_number(const char *text, const char *end, uint64_t *ret)
{
    uint64_t n = 0;
    if (text == end || end - text > 18)
        return false;
    for (; text < end; text++) {
        if (*text < '0' || *text > '9')
            return false;
        n = n * 10 + (uint64_t)(*text - '0');
    }
    *ret = n;
    return true;
}

/* "bytes 5-9/10" */
static void read_range(struct hub_headers *to, const char *value)
{
    const char *dash = strchr(value, '-'), *slash = strchr(value, '/');
    to->has_range = !strncmp(value, "bytes ", 6) && dash && slash && dash < slash &&
                    read_number(value + 6, dash, &to->from) &&
                    read_number(slash + 1, value + strlen(value), &to->total);
}

static void read_size(struct hub_headers *to, const char *value, bool is_linked)
{
    uint64_t n;
    if ((to->is_linked_size && !is_linked) || !read_number(value, value + strlen(value), &n))
        return;
    to->size = n;
    to->has_size = true;
    to->is_linked_size = is_linked;
}

static void read_etag(struct hub_headers *to, const char *value, bool is_linked)
{
    if ((to->is_linked && !is_linked) || strlen(value) >= sizeof to->etag)
        return;
    snprintf(to->etag, sizeof to->etag, "%s", value);
    to->is_linked = is_linked;
}

static void take_field(struct hub_headers *to, const char *name, const char *value)
{
    uint64_t n;
    if (!strcasecmp(name, "x-repo-commit"))
        snprintf(to->commit, sizeof to->commit, "%s", model_commit_is(value) ? value : "");
    else if (!strcasecmp(name, "x-linked-etag") || !strcasecmp(name, "etag"))
        read_etag(to, value, name[0] == 'x' || name[0] == 'X');
    else if (!strcasecmp(name, "x-linked-size") || !strcasecmp(name, "content-length"))
        read_size(to, value, name[0] == 'x' || name[0] == 'X');
    else if (!strcasecmp(name, "content-range"))
        read_range(to, value);
    else if (!strcasecmp(name, "retry-after"))
        to->retry_after_s = read_number(value, value + strlen(value), &n) && n <= 86400 ? (unsigned)n : 0;
    else if (!strcasecmp(name, "location"))
        snprintf(to->location, sizeof to->location, "%s", strlen(value) < HUB_URL ? value : "");
    else if (!strcasecmp(name, "x-error-code"))
        text_clean(to->code, sizeof to->code, value, false);
    else if (!strcasecmp(name, "x-error-message"))
        text_clean(to->message, sizeof to->message, value, false);
}

bool hub_headers_take(struct hub_headers *to, const char *line, size_t n)
{
    char copy[HUB_URL + 64], *colon;
    to->bytes += n;
    if (to->bytes > HUB_HEADERS_MAX)
        return false;
    while (n && (line[n - 1] == '\r' || line[n - 1] == '\n' || line[n - 1] == ' '))
        n--;
    if (n >= sizeof copy || memchr(line, '\0', n))
        return true;
    memcpy(copy, line, n);
    copy[n] = '\0';
    if (!strncmp(copy, "HTTP/", 5)) {
        const char *space = strchr(copy, ' ');
        const size_t bytes = to->bytes;
        *to = (struct hub_headers){.bytes = bytes};
        to->status = space ? (unsigned)strtoul(space + 1, NULL, 10) : 0;
    } else if ((colon = strchr(copy, ':'))) {
        *colon++ = '\0';
        take_field(to, copy, colon + strspn(colon, " \t"));
    }
    return true;
}
