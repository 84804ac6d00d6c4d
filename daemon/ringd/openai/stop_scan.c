/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/openai/stop_scan.h"

#include <stdbool.h>
#include <string.h>

/* The longest stop string that the held text ends with. */
static const char *complete(const struct stop_scan *s)
{
    const char *best = NULL;
    size_t longest = 0;
    for (size_t i = 0; i < s->n; i++) {
        const size_t n = strlen(s->texts[i]);
        if (n <= s->nheld && n > longest && !memcmp(s->held + s->nheld - n, s->texts[i], n)) {
            best = s->texts[i];
            longest = n;
        }
    }
    return best;
}

static bool begins_a_stop(const struct stop_scan *s, const char *text, size_t n)
{
    for (size_t i = 0; i < s->n; i++)
        if (strlen(s->texts[i]) > n && !memcmp(s->texts[i], text, n))
            return true;
    return false;
}

/* Moves the first n held bytes out. */
static void release(struct stop_scan *s, size_t n, char *out)
{
    memcpy(out, s->held, n);
    s->nheld -= n;
    memmove(s->held, s->held + n, s->nheld);
}

const char *stop_scan_push(struct stop_scan *s, char byte, char out[STOP_BYTES], size_t *ret_n)
{
    s->held[s->nheld++] = byte;
    const char *stop = complete(s);
    size_t n = 0;
    if (stop) {
        n = s->nheld - strlen(stop);
        release(s, n, out);
        s->nheld = 0;
    } else {
        while (n < s->nheld && !begins_a_stop(s, s->held + n, s->nheld - n))
            n++;
        release(s, n, out);
    }
    *ret_n = n;
    return stop;
}

size_t stop_scan_end(struct stop_scan *s, char out[STOP_BYTES])
{
    const size_t n = s->nheld;
    release(s, n, out);
    return n;
}
