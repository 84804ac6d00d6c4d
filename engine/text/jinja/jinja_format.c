/* SPDX-License-Identifier: MIT
 *
 * Python's "…" % values: %s %r %d %i %x %X %o %f %e %g %c %%, with flags, width and precision. Owns
 * nothing; called by the interpreter, on its thread. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>

#include "text/jinja/jinja_run.h"
#include "text/pytext.h"

enum { WIDTH_MAX = 1000, PRECISION_MAX = 100 };

struct spec {
    bool left, zero, plus, space;
    size_t width, precision;
    bool has_precision;
    char conversion;
};

static size_t read_count(const char *s, size_t n, size_t *at, size_t most)
{
    size_t count = 0;
    for (; *at < n && s[*at] >= '0' && s[*at] <= '9'; (*at)++)
        count = count > most ? count : count * 10 + (size_t)(s[*at] - '0');
    return count > most ? most : count;
}

/* Behind the %; *at ends behind the conversion. */
static struct spec read_spec(const char *s, size_t n, size_t *at)
{
    struct spec spec = {.conversion = '\0'};
    for (; *at < n && s[*at] && strchr("-0+ ", s[*at]); (*at)++) {
        spec.left |= s[*at] == '-';
        spec.zero |= s[*at] == '0';
        spec.plus |= s[*at] == '+';
        spec.space |= s[*at] == ' ';
    }
    spec.width = read_count(s, n, at, WIDTH_MAX);
    if (*at < n && s[*at] == '.') {
        (*at)++;
        spec.has_precision = true;
        spec.precision = read_count(s, n, at, PRECISION_MAX);
    }
    if (*at < n)
        spec.conversion = s[(*at)++];
    return spec;
}

static void fill(struct textbuf *buf, char c, size_t n)
{
    for (; n > 0; n--)
        textbuf_append(buf, &c, 1);
}

/* sign and body, in their width; zeros stand between them. */
static void put_padded(struct textbuf *buf, const struct spec *spec, const char *sign, const char *body,
                       size_t n, bool zeros)
{
    size_t width = strlen(sign) + pytext_length(body, n),
           room = spec->width > width ? spec->width - width : 0;
    bool is_zero = zeros && spec->zero && !spec->left;
    if (!spec->left && !is_zero)
        fill(buf, ' ', room);
    textbuf_append(buf, sign, strlen(sign));
    if (is_zero)
        fill(buf, '0', room);
    textbuf_append(buf, body, n);
    if (spec->left)
        fill(buf, ' ', room);
}

static const char *sign_of(const struct spec *spec, bool is_negative)
{
    return is_negative ? "-" : spec->plus ? "+" : spec->space ? " " : "";
}

static void put_number(struct jinja_run *run, struct textbuf *buf, const struct spec *spec,
                       struct jinja_value v)
{
    char text[512];
    int precision = spec->has_precision ? (int)spec->precision : 6;
    if (!jinja_is_number(v)) {
        jinja_fail(run, -EINVAL, "%%%c needs a number, not %s", spec->conversion, jinja_kind_name(v));
        return;
    }
    double x = fabs(jinja_real_of(v));
    bool is_negative = signbit(jinja_real_of(v)), is_real = strchr("feg", spec->conversion) != NULL;
    if (!is_real && (x >= 9.2e18 || (v.kind == JINJA_FLOAT && strchr("xXo", spec->conversion)))) {
        jinja_fail(run, -ERANGE, "%%%c: this number is not for it", spec->conversion);
        return;
    }
    uint64_t whole = is_real ? 0 : v.kind == JINJA_FLOAT ? (uint64_t)x : (uint64_t)llabs(jinja_integer_of(v));
    switch (spec->conversion) {
    case 'f': snprintf(text, sizeof text, "%.*f", precision, x); break;
    case 'e': snprintf(text, sizeof text, "%.*e", precision, x); break;
    case 'g': snprintf(text, sizeof text, "%.*g", precision, x); break;
    case 'x': snprintf(text, sizeof text, "%" PRIx64, whole); break;
    case 'X': snprintf(text, sizeof text, "%" PRIX64, whole); break;
    case 'o': snprintf(text, sizeof text, "%" PRIo64, whole); break;
    default: snprintf(text, sizeof text, "%0*" PRIu64, spec->has_precision ? precision : 1, whole);
    }
    is_negative = is_negative && (is_real || whole > 0);
    put_padded(buf, spec, sign_of(spec, is_negative), text, strlen(text), true);
}

static void put_text(struct jinja_run *run, struct textbuf *buf, const struct spec *spec,
                     struct jinja_value v)
{
    struct textbuf text = {0};
    if (spec->conversion == 'r')
        jinja_append_repr(run, &text, v);
    else
        jinja_append_str(run, &text, v);
    struct jinja_value whole = jinja_take_text(run, &text);
    if (run->code)
        return;
    size_t n =
        spec->has_precision ? pytext_offset(whole.text.s, whole.text.n, spec->precision) : whole.text.n;
    put_padded(buf, spec, "", whole.text.s, n, false);
}

struct jinja_value jinja_format_text(struct jinja_run *run, struct jinja_text f,
                                     const struct jinja_value *values, size_t n)
{
    struct textbuf buf = {0};
    size_t used = 0;
    for (size_t at = 0; at < f.n && jinja_step(run, 1);) {
        if (f.s[at] != '%') {
            textbuf_append(&buf, f.s + at++, 1);
            continue;
        }
        at++;
        struct spec spec = read_spec(f.s, f.n, &at);
        if (spec.conversion == '%')
            textbuf_append(&buf, "%", 1);
        else if (!spec.conversion || !strchr("sdirxXofeg", spec.conversion))
            jinja_fail(run, -ENOTSUP, "the format %%%.*s is not known", spec.conversion != '\0',
                       f.s + at - 1);
        else if (used == n)
            jinja_fail(run, -EINVAL, "the format asks for more than %zu values", n);
        else if (strchr("sr", spec.conversion))
            put_text(run, &buf, &spec, values[used++]);
        else
            put_number(run, &buf, &spec, values[used++]);
    }
    if (!run->code && used < n)
        jinja_fail(run, -EINVAL, "the format has no place for %zu of %zu values", n - used, n);
    return jinja_take_text(run, &buf);
}
