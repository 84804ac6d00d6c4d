/* SPDX-License-Identifier: MIT
 *
 * What a hub sends, as it may be of an enemy: headers up to the first empty line, then a listing,
 * an index behind the next NUL. What is taken of it names files of one folder alone. */
#include "tests/fuzz/lib/fuzz.h"

#include <string.h>

#include "daemon/fetch/hub_headers.h"
#include "daemon/fetch/hub_listing.h"

static size_t take_headers(const uint8_t *bytes, size_t n)
{
    struct hub_headers h = {.status = 0};
    size_t at = 0;
    while (at < n) {
        const uint8_t *end = memchr(bytes + at, '\n', n - at);
        const size_t line = end ? (size_t)(end - bytes) - at + 1 : n - at;
        if (!hub_headers_take(&h, (const char *)bytes + at, line))
            break;
        at += line;
        if (line <= 2)
            break;
    }
    if (strnlen(h.location, sizeof h.location) == sizeof h.location ||
        (*h.commit && !model_commit_is(h.commit)))
        abort();
    return at;
}

static void check(const struct hub_listing *l)
{
    for (size_t i = 0; i < l->n; i++) {
        const struct hub_file *f = &l->files[i];
        if (!*f->name || *f->name == '.' || strchr(f->name, '/') || f->size > HUB_BYTES_MAX)
            abort();
        if (f->kind != HUB_HASH_UNKNOWN && strlen(f->hash) != (f->kind == HUB_HASH_GIT ? 40 : 64))
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct hub_listing l;
    struct err err = {""};
    const size_t at = take_headers(bytes, n);
    const char *text = (const char *)bytes + at;
    const char *nul = n > at ? memchr(text, '\0', n - at) : NULL;
    const size_t size = nul ? (size_t)(nul - text) : n - at;
    if (hub_listing_read(&l, text, size, &err)) {
        if (!*err.text)
            abort();
        return 0;
    }
    check(&l);
    if (hub_listing_choose(&l, nul ? nul + 1 : NULL, nul ? n - at - size - 1 : 0, &err) && !*err.text)
        abort();
    check(&l);
    hub_listing_done(&l);
    return 0;
}
