/* SPDX-License-Identifier: MIT
 *
 * What of HTTP is decided by us: Host, Origin, Authorization and Content-Type as any text, one per
 * line, and addresses to listen on. Nobody reads or writes without the token, and no name but this
 * machine's is answered to. */
#include "tests/fuzz/lib/fuzz.h"

#include "daemon/ringd/http/http_access.h"
#include "daemon/ringd/http/http_listen.h"

enum { HEADERS = 4 };

static void ask(const struct access_rules *rules, char *const header[HEADERS])
{
    const char *why = NULL;
    const int r = access_check(rules, header[0], header[1], &why);
    expect(r == 0 || r == 421 || r == 403);
    expect((r == 0) == (why == NULL));
    const struct access_claim claim = {
        .authorization = header[2], .content_type = header[3], .has_body = true};
    if (access_may_write(rules, &claim) || access_may_read(rules, &claim))
        expect(header[2] && strlen(header[2]) == 7 + strlen("secret") && !strcmp(header[2] + 7, "secret"));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct access_rules rules = {.is_tcp = true, .is_loopback = true, .host = "127.0.0.1", .token = "secret"};
    char *text = fuzz_text(data, n), *header[HEADERS] = {NULL}, *at = text;
    struct listen_addr addr;
    struct err err = {""};
    if (listen_read_addr(&addr, text, &err))
        expect(err.text[0] != '\0');
    else
        expect(memchr(addr.host, '\0', sizeof addr.host) != NULL);
    for (size_t i = 0; i < HEADERS && at; i++)
        header[i] = strsep(&at, "\n");
    ask(&rules, header);
    rules.is_loopback = false;
    ask(&rules, header);
    free(text);
    return 0;
}
