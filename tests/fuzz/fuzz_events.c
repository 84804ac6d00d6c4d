/* SPDX-License-Identifier: MIT
 *
 * A stream of events as ringctl reads it from a daemon, in pieces of any size: however it is cut,
 * the same events come, and what is shown of them commands no terminal. Input: u8 length of a piece
 * ‖ the stream. */
#include "tests/fuzz/lib/fuzz.h"

#include "daemon/ctl/ctl_client.h"

#include <curl/curl.h>

#undef curl_easy_getinfo
#define curl_easy_getinfo(handle, info, to) ((void)(handle), *(to) = 200) /* the stream is no transfer */
#include "daemon/ctl/ctl_client.c" /* how it is read is not for others */

struct seen {
    size_t events;
    uint64_t sum;
};

static void is_clean(const json_t *json, bool is_log)
{
    const char *key;
    const json_t *value;
    size_t i;
    for (const char *c = json_string_value(json); c && *c; c++)
        expect((uint8_t)*c >= ' ' || *c == '\n' || *c == '\t');
    json_object_foreach ((json_t *)json, key, value)
        if (is_log || !kept_text(NULL) || strcmp(key, kept_text(NULL)) != 0)
            is_clean(value, is_log);
    json_array_foreach (json, i, value)
        is_clean(value, is_log);
}

static bool on_event(void *owner, const char *type, const json_t *data)
{
    struct seen *seen = owner;
    char *text = data ? json_dumps(data, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    is_clean(data, !strcmp(type, "log"));
    for (const char *c = text; c && *c; c++)
        seen->sum = seen->sum * 31 + (uint8_t)*c;
    free(text);
    seen->events++;
    return strcmp(type, "end") != 0;
}

static struct seen read_in_pieces(const uint8_t *data, size_t n, size_t piece)
{
    struct seen seen = {0};
    struct ctl_stream stream = {.event = on_event, .owner = &seen};
    struct reader r = {.stream = &stream};
    for (size_t at = 0; at < n && !r.stopped; at += piece) {
        const size_t size = piece < n - at ? piece : n - at;
        expect(take_stream((char *)data + at, 1, size, &r) == size || r.stopped);
    }
    free(r.line.data);
    free(r.data.data);
    free(r.refusal.data);
    return seen;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n < 2)
        return 0;
    const struct seen whole = read_in_pieces(data + 1, n - 1, n - 1),
                      cut = read_in_pieces(data + 1, n - 1, 1 + data[0]);
    expect(whole.events == cut.events && whole.sum == cut.sum);
    return 0;
}
