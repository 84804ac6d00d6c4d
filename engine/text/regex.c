/* SPDX-License-Identifier: MIT
 *
 * From Oniguruma's dialect to PCRE2's. Pure; called by pattern.c when a tokenizer opens.
 *
 * What differs, as far as it can matter to tokenizers:
 *   \s \w   Oniguruma: White_Space; Alphabetic + M + Nd + Pc. PCRE2's \s has U+180E too, its \w
 *   lacks marks.
 *   \h      a hexadecimal digit, not horizontal space
 *   (?m)    the dot matches newlines: PCRE2's (?s)
 *   \uHHHH  PCRE2: \x{HHHH}
 *   x{1,3}+ a repeat of a repeat; in PCRE2 a possessive quantifier: refused
 *   [a[b]] [a&&b]   sets of sets: refused */
#include "text/regex.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "text/textbuf.h"

#define SPACE_SET "\\x09-\\x0d\\x{85}\\p{Z}"
/* Alphabetic beyond letters, letter numbers and marks is the circled and squared letters
 * (Other_Alphabetic).
 */
#define WORD_SET                                                                                             \
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}"         \
    "\\x{1f170}-\\x{1f189}"
#define HEX_SET "0-9a-fA-F"

static void put(struct textbuf *out, const char *text)
{
    textbuf_append(out, text, strlen(text));
}

static const char *set_of(char letter)
{
    switch (tolower((unsigned char)letter)) {
    case 's': return SPACE_SET;
    case 'w': return WORD_SET;
    case 'h': return HEX_SET;
    default: return NULL;
    }
}

/* `at` is behind a backslash. Returns the bytes used, or −EINVAL. */
static int put_escape(struct textbuf *out, const char *at, bool in_class, struct err *err)
{
    const char *set = set_of(*at);
    bool inverted = set && isupper((unsigned char)*at);
    if (set && !in_class) {
        put(out, inverted ? "[^" : "[");
        put(out, set);
        put(out, "]");
        return 1;
    }
    if (set && !inverted) {
        put(out, set);
        return 1;
    }
    if (inverted && *at == 'S') {
        /* All that PCRE2's own \S leaves out beyond White_Space. */
        put(out, "\\S\\x{180e}");
        return 1;
    }
    if (inverted)
        return err_set(err, -EINVAL, "\\%c inside [ ] is not supported", *at);
    if (*at == 'u' && strspn(at + 1, "0123456789abcdefABCDEF") >= 4) {
        put(out, "\\x{");
        textbuf_append(out, at + 1, 4);
        put(out, "}");
        return 5;
    }
    if (*at == '\0')
        return err_set(err, -EINVAL, "it ends in a backslash");
    textbuf_append(out, "\\", 1);
    textbuf_append(out, at, 1);
    return 1;
}

/* `at` is behind "[" and a "^" that may follow. Returns the bytes used up to and with "]". */
static int put_class(struct textbuf *out, const char *at, struct err *err)
{
    const char *p = at;
    while (*p && *p != ']') {
        if (*p == '\\') {
            int used = put_escape(out, p + 1, true, err);
            if (used < 0)
                return used;
            p += 1 + used;
        } else if (p[0] == '[' && p[1] == ':') {
            const char *end = strstr(p, ":]");
            if (!end)
                return err_set(err, -EINVAL, "[: has no :]");
            textbuf_append(out, p, (size_t)(end + 2 - p));
            p = end + 2;
        } else if (*p == '[') {
            return err_set(err, -EINVAL, "a set inside a set, [a[b]], is not supported");
        } else if (p[0] == '&' && p[1] == '&') {
            return err_set(err, -EINVAL, "the intersection of sets, [a&&b], is not supported");
        } else {
            textbuf_append(out, p++, 1);
        }
    }
    if (!*p)
        return err_set(err, -EINVAL, "a [ has no ]");
    textbuf_append(out, "]", 1);
    return (int)(p + 1 - at);
}

/* Behind "(?": option letters up to ":" or ")", with m as PCRE2's s. Anything else is left to the
 * main loop.
 */
static int put_options(struct textbuf *out, const char *at)
{
    size_t n = strspn(at, "imx-");
    if (at[n] != ':' && at[n] != ')')
        return 0;
    for (size_t i = 0; i < n; i++)
        textbuf_append(out, at[i] == 'm' ? "s" : at + i, 1);
    return (int)n;
}

/* x{2,5}+ means (x{2,5})+ to Oniguruma. `at` is at the brace. */
static bool is_repeated_interval(const char *at)
{
    size_t n = 1 + strspn(at + 1, "0123456789,");
    return n > 1 && at[n] == '}' && at[n + 1] == '+';
}

static int put_next(struct textbuf *out, const char *p, struct err *err)
{
    int used;
    if (*p == '\\') {
        used = put_escape(out, p + 1, false, err);
        return used < 0 ? used : 1 + used;
    }
    if (*p == '[') {
        int head = p[1] == '^' ? 2 : 1;
        textbuf_append(out, p, (size_t)head);
        used = put_class(out, p + head, err);
        return used < 0 ? used : head + used;
    }
    if (p[0] == '(' && p[1] == '*')
        return err_set(err, -EINVAL, "(* is not supported");
    if (p[0] == '(' && p[1] == '?') {
        textbuf_append(out, p, 2);
        return 2 + put_options(out, p + 2);
    }
    if (*p == '{' && is_repeated_interval(p))
        return err_set(err, -EINVAL, "a repeat of a repeat, {m,n}+, is not supported; write (?:…{m,n})+");
    textbuf_append(out, p, 1);
    return 1;
}

int regex_translate(struct textbuf *out, const char *regex, struct err *err)
{
    for (const char *p = regex; *p;) {
        int used = put_next(out, p, err);
        if (used < 0)
            return err_prefix(err, used, "the regular expression '%.200s' cannot be used", regex);
        p += used;
    }
    textbuf_append(out, "", 1);
    if (out->failed)
        return err_set(err, -ENOMEM, "no memory for a regular expression");
    out->len--;
    return 0;
}
