/* SPDX-License-Identifier: MIT
 *
 * Normalization forms on top of utf8proc's tables. The marks are put in order here, by merge sort:
 * utf8proc_map() does it by exchanging neighbours, which takes quadratic time on a hostile run of
 * marks. Stateless; any thread. */
#include "text/nform.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "text/textbuf.h"
#include "text/utf8.h"

enum { LONGEST_DECOMPOSITION = 32 }; /* code points; the longest in Unicode has 18 */

struct codepoints {
    utf8proc_int32_t *at; /* owned */
    size_t n, cap;
    bool failed;
};

static void decompose(struct codepoints *cps, const char *s, size_t n, utf8proc_option_t options)
{
    for (size_t i = 0; i < n && !cps->failed;) {
        struct utf8_char c = utf8_next(s + i, n - i);
        void *at = cps->at;
        if (array_reserve(&at, &cps->cap, cps->n + LONGEST_DECOMPOSITION, sizeof *cps->at)) {
            cps->failed = true;
            return;
        }
        cps->at = at;
        int boundclass = 0;
        utf8proc_ssize_t got = utf8proc_decompose_char((utf8proc_int32_t)c.cp, cps->at + cps->n,
                                                       LONGEST_DECOMPOSITION, options, &boundclass);
        cps->failed = got < 0 || got > LONGEST_DECOMPOSITION;
        cps->n += cps->failed ? 0 : (size_t)got;
        i += c.len;
    }
}

static int combining_class(utf8proc_int32_t cp)
{
    return utf8proc_get_property(cp)->combining_class;
}

/* Stable merge sort of at[0, n) by combining class. */
static void sort_marks(utf8proc_int32_t *at, utf8proc_int32_t *spare, size_t n)
{
    if (n < 2)
        return;
    size_t half = n / 2;
    sort_marks(at, spare, half);
    sort_marks(at + half, spare, n - half);
    memcpy(spare, at, half * sizeof *at);
    for (size_t left = 0, right = half, out = 0; left < half; out++) {
        if (right < n && combining_class(at[right]) < combining_class(spare[left]))
            at[out] = at[right++];
        else
            at[out] = spare[left++];
    }
}

static void order_marks(struct codepoints *cps)
{
    utf8proc_int32_t *spare = NULL;
    for (size_t i = 0; i < cps->n && !cps->failed;) {
        size_t end = i;
        while (end < cps->n && combining_class(cps->at[end]) > 0)
            end++;
        if (end - i > 1 && !spare) {
            spare = malloc(cps->n * sizeof *spare);
            cps->failed = !spare;
        }
        if (end - i > 1 && spare)
            sort_marks(cps->at + i, spare, end - i);
        i = end + 1;
    }
    free(spare);
}

void nform_append(struct textbuf *out, const char *s, size_t n, enum nform form)
{
    size_t ascii = 0;
    while (ascii < n && (unsigned char)s[ascii] < 0x80)
        ascii++;
    if (ascii == n) { /* ASCII is its own normal form, in all four */
        textbuf_append(out, s, n);
        return;
    }
    bool compat = form == NFORM_KC || form == NFORM_KD;
    bool compose = form == NFORM_C || form == NFORM_KC;
    struct codepoints cps = {0};
    decompose(&cps, s, n, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compat ? UTF8PROC_COMPAT : 0));
    order_marks(&cps);
    utf8proc_ssize_t left = cps.failed ? -1 : (utf8proc_ssize_t)cps.n;
    if (compose && !cps.failed)
        left = utf8proc_normalize_utf32(cps.at, left, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    for (utf8proc_ssize_t i = 0; i < left; i++)
        textbuf_append_char(out, (unsigned)cps.at[i]);
    if (left < 0)
        out->failed = true;
    free(cps.at);
}
