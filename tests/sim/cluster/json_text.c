/* SPDX-License-Identifier: MIT
 *
 * json_dumps as daemons call it, several times as fast: each change of a job is a record. jansson
 * looks for circles in what it writes, and prints each number by a format. Where messages travel
 * as text, jansson writes some of them again, and both are compared. */
#include "tests/sim/cluster/sim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/xalloc.h"

enum { FLAGS = JSON_COMPACT | JSON_REAL_PRECISION(17), WHOLE = 1 << 30, COMPARED = 8 };

char *__real_json_dumps(const json_t *json, size_t flags);
char *__wrap_json_dumps(const json_t *json, size_t flags);

struct text {
    char *at;
    size_t n, cap;
};

static void put(struct text *t, const char *s, size_t n)
{
    if (t->n + n > t->cap) {
        t->cap = 2 * (t->n + n);
        t->at = xrealloc(t->at, t->cap);
    }
    memcpy(t->at + t->n, s, n);
    t->n += n;
}

static void put_word(struct text *t, const char *s)
{
    put(t, s, strlen(s));
}

/* What is rare is left to jansson. */
static void put_as_it_does(struct text *t, const json_t *v)
{
    char *s = __real_json_dumps(v, FLAGS | JSON_ENCODE_ANY);
    put_word(t, s);
    free(s);
}

static void put_integer(struct text *t, json_int_t v)
{
    char digits[24], *at = digits + sizeof digits;
    unsigned long long left = v < 0 ? -(unsigned long long)v : (unsigned long long)v;
    do
        *--at = (char)('0' + left % 10);
    while (left /= 10);
    if (v < 0)
        *--at = '-';
    put(t, at, (size_t)(digits + sizeof digits - at));
}

static void put_real(struct text *t, const json_t *real)
{
    const double v = json_real_value(real);
    if (!(fabs(v) < WHOLE) || v != (double)(int)v || (v == 0 && signbit(v))) {
        put_as_it_does(t, real);
        return;
    }
    put_integer(t, (int)v);
    put(t, ".0", 2);
}

static void put_string(struct text *t, const char *s, size_t n)
{
    put(t, "\"", 1);
    put(t, s, n);
    put(t, "\"", 1);
}

static bool is_plain(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] < ' ' || s[i] == '"' || s[i] == '\\')
            return false;
    return true;
}

static void put_value(struct text *t, const json_t *v);

/* Keys are the daemon's own names, and are plain. */
static void put_object(struct text *t, json_t *object)
{
    const char *key;
    json_t *v;
    const char *between = "{";
    json_object_foreach (object, key, v) {
        put(t, between, 1);
        put_string(t, key, strlen(key));
        put(t, ":", 1);
        put_value(t, v);
        between = ",";
    }
    put_word(t, *between == '{' ? "{}" : "}");
}

static void put_array(struct text *t, const json_t *array)
{
    const size_t n = json_array_size(array);
    put(t, "[", 1);
    for (size_t i = 0; i < n; i++) {
        put(t, ",", i > 0);
        put_value(t, json_array_get(array, i));
    }
    put(t, "]", 1);
}

static void put_value(struct text *t, const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_OBJECT: put_object(t, (json_t *)v); break;
    case JSON_ARRAY: put_array(t, v); break;
    case JSON_STRING:
        if (is_plain(json_string_value(v), json_string_length(v)))
            put_string(t, json_string_value(v), json_string_length(v));
        else
            put_as_it_does(t, v);
        break;
    case JSON_INTEGER: put_integer(t, json_integer_value(v)); break;
    case JSON_REAL: put_real(t, v); break;
    case JSON_TRUE: put_word(t, "true"); break;
    case JSON_FALSE: put_word(t, "false"); break;
    case JSON_NULL: put_word(t, "null"); break;
    }
}

char *__wrap_json_dumps(const json_t *json, size_t flags)
{
    if (!json || flags != FLAGS)
        return __real_json_dumps(json, flags);
    struct text t = {.at = xmalloc(1024), .cap = 1024};
    put_value(&t, json);
    put(&t, "", 1);
    char *same = sim->by_text && t.n % COMPARED == 0 ? __real_json_dumps(json, flags) : NULL;
    if (same && strcmp(same, t.at))
        sim_wrong("jansson writes another text: %s, and not %s", same, t.at);
    free(same);
    return t.at;
}
