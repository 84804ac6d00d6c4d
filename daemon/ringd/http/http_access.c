/* SPDX-License-Identifier: MIT
 *
 * Owns nothing. Called by http.c on the server's threads, and by tests. */
#include "daemon/ringd/http/http_access.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* "name:80", "[::1]:80", "::1" → the host alone. False if it does not fit or is empty. */
static bool host_of(const char *header, char ret[256])
{
    size_t n;
    if (*header == '[') {
        header++;
        n = strcspn(header, "]");
        if (!header[n])
            return false;
    } else {
        const char *colon = strchr(header, ':');
        n = colon && !strchr(colon + 1, ':') ? (size_t)(colon - header) : strlen(header);
    }
    if (!n || n > 255)
        return false;
    memcpy(ret, header, n);
    ret[n] = '\0';
    return true;
}

static bool is_address(const char *host, bool *ret_loopback)
{
    struct in_addr v4;
    struct in6_addr v6;
    if (inet_pton(AF_INET, host, &v4) == 1) {
        *ret_loopback = (ntohl(v4.s_addr) >> 24) == 127;
        return true;
    }
    if (inet_pton(AF_INET6, host, &v6) == 1) {
        *ret_loopback = IN6_IS_ADDR_LOOPBACK(&v6);
        return true;
    }
    return false;
}

static bool is_this_machine(const struct access_rules *rules, const char *host)
{
    bool loopback;
    if (!strcasecmp(host, "localhost") || !strcasecmp(host, rules->host))
        return true;
    /* A bare address cannot have been rebound; on a loopback port it must still be a loopback
     * one. */
    if (is_address(host, &loopback))
        return loopback || !rules->is_loopback;
    char name[256] = "";
    return !rules->is_loopback && gethostname(name, sizeof name - 1) == 0 && !strcasecmp(host, name);
}

bool access_is_allowed(const struct access_rules *rules, const char *origin)
{
    for (size_t i = 0; origin && i < rules->norigins; i++)
        if (!strcasecmp(origin, rules->origins[i]))
            return true;
    return false;
}

int access_check(const struct access_rules *rules, const char *host, const char *origin, const char **ret_why)
{
    char name[256];
    if (!rules->is_tcp)
        return 0;
    if (!host || !host_of(host, name) || !is_this_machine(rules, name)) {
        *ret_why = "the Host header does not name this machine: use localhost or its address";
        return 421;
    }
    if (origin && !access_is_allowed(rules, origin) &&
        (strncasecmp(origin, "http://", 7) != 0 || strcasecmp(origin + 7, host) != 0)) {
        *ret_why = "a page of another origin may not use this API, unless --allow-origin names it";
        return 403;
    }
    return 0;
}

bool access_same_secret(const char *given, const char *secret)
{
    size_t n_given = strlen(given), n = strlen(secret);
    unsigned char difference = n_given != n || !n;
    for (size_t i = 0; i < n; i++)
        difference |= (unsigned char)(secret[i] ^ (n_given ? given[i % n_given] : 0));
    return !difference;
}

const char *access_given(const struct access_claim *claim)
{
    const bool is_bearer = claim->authorization && !strncasecmp(claim->authorization, "Bearer ", 7);
    return is_bearer ? claim->authorization + 7 : claim->api_key;
}

static bool is_known(const struct access_rules *rules, const struct access_claim *claim)
{
    const char *given = access_given(claim);
    return claim->has_session || (rules->token && given && access_same_secret(given, rules->token));
}

bool access_may_read(const struct access_rules *rules, const struct access_claim *claim)
{
    return !rules->is_tcp || is_known(rules, claim);
}

bool access_has_type(const struct access_claim *claim)
{
    static const char json[] = "application/json";
    const char *type = claim->content_type ? claim->content_type : "";
    return !claim->has_body ||
           (!strncasecmp(type, json, sizeof json - 1) && strchr("; ", type[sizeof json - 1]));
}

bool access_may_write(const struct access_rules *rules, const struct access_claim *claim)
{
    return !rules->is_tcp || (access_has_type(claim) && is_known(rules, claim));
}
