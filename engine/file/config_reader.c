/* SPDX-License-Identifier: MIT
 *
 * Owns the list of complaints about a config and the checks of single values. Called by config*.c
 * while one config is parsed; one thread. */
#include "file/config_reader.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void config_complain(struct config_reader *r, const char *fmt, ...)
{
    char line[sizeof r->text]; /* the names of all families fit */
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    size_t n = strlen(line), gap = r->used ? 2 : 0;
    r->count++;
    if (r->hidden || r->used + gap + n >= sizeof r->text) {
        r->hidden++;
        return;
    }
    memcpy(r->text + r->used, "; ", gap);
    memcpy(r->text + r->used + gap, line, n + 1);
    r->used += gap + n;
}

const json_t *config_lookup(const json_t *obj, const char *key)
{
    const json_t *v = json_object_get(obj, key);
    return json_is_null(v) ? NULL : v;
}

size_t config_size(struct config_reader *r, const json_t *obj, const char *key, size_t fallback, size_t max)
{
    const json_t *v = config_lookup(obj, key);
    if (!v) {
        if (fallback == 0)
            config_complain(r, "%s is missing", key);
        return fallback;
    }
    if (!json_is_integer(v)) {
        config_complain(r, "%s must be a whole number", key);
        return 0;
    }
    json_int_t n = json_integer_value(v);
    if (n >= 1 && (uint64_t)n <= max)
        return (size_t)n;
    config_complain(r, "%s is %" JSON_INTEGER_FORMAT ", allowed are 1 to %zu", key, n, max);
    return 0;
}

double config_real(struct config_reader *r, const json_t *obj, const char *key, double fallback, double low,
                   double high)
{
    const json_t *v = config_lookup(obj, key);
    if (!v) {
        if (isnan(fallback))
            config_complain(r, "%s is missing", key);
        return fallback;
    }
    if (!json_is_number(v)) {
        config_complain(r, "%s must be a number", key);
        return NAN;
    }
    double x = json_number_value(v);
    if (x >= low && x <= high)
        return x;
    config_complain(r, "%s is %g, allowed are %g to %g", key, x, low, high);
    return NAN;
}

bool config_bool(struct config_reader *r, const json_t *obj, const char *key, bool fallback)
{
    const json_t *v = config_lookup(obj, key);
    if (v && !json_is_boolean(v))
        config_complain(r, "%s must be true or false", key);
    return json_is_boolean(v) ? json_is_true(v) : fallback;
}

const char *config_string(struct config_reader *r, const json_t *obj, const char *key, const char *fallback)
{
    const json_t *v = config_lookup(obj, key);
    if (v && !json_is_string(v))
        config_complain(r, "%s must be a string", key);
    return v ? json_string_value(v) : fallback;
}
