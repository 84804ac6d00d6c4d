/* SPDX-License-Identifier: MIT
 *
 * Owns tables while they are put together. Called by every command that prints. */
#include "daemon/ctl_print.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/xalloc.h"

enum { COLUMNS_MAX = 16, COLUMN_GAP = 2 };

struct table {
    char **rows; /* owned: cells separated by tabs; the first is the heads */
    size_t n;
};

struct table *table_new(const char *heads)
{
    struct table *t = xcalloc(1, sizeof *t);
    table_add(t, "%s", heads);
    return t;
}

void table_add(struct table *t, const char *fmt, ...)
{
    char *row = NULL;
    va_list ap;
    va_start(ap, fmt);
    int n = vasprintf(&row, fmt, ap);
    va_end(ap);
    if (n < 0)
        row = xstrdup("");
    t->rows = xreallocarray(t->rows, t->n + 1, sizeof *t->rows);
    t->rows[t->n++] = row;
}

size_t table_rows(const struct table *t)
{
    return t->n - 1;
}

/* Characters, not bytes: every byte but the continuations of UTF-8. */
static size_t columns_of(const char *cell, size_t bytes)
{
    size_t n = 0;
    for (size_t i = 0; i < bytes; i++)
        n += ((unsigned char)cell[i] & 0xc0) != 0x80;
    return n;
}

void table_print_free(struct table *t, FILE *to)
{
    size_t widths[COLUMNS_MAX] = {0};
    for (size_t r = 0; r < t->n; r++) {
        const char *cell = t->rows[r];
        for (size_t c = 0; c < COLUMNS_MAX; c++) {
            size_t bytes = strcspn(cell, "\t"), width = columns_of(cell, bytes);
            widths[c] = width > widths[c] ? width : widths[c];
            if (!cell[bytes])
                break;
            cell += bytes + 1;
        }
    }
    for (size_t r = 0; r < t->n; r++) {
        const char *cell = t->rows[r];
        for (size_t c = 0; c < COLUMNS_MAX; c++) {
            size_t bytes = strcspn(cell, "\t");
            fprintf(to, "%.*s", (int)bytes, cell);
            if (!cell[bytes])
                break;
            fprintf(to, "%*s", (int)(widths[c] - columns_of(cell, bytes) + COLUMN_GAP), "");
            cell += bytes + 1;
        }
        fputc('\n', to);
        free(t->rows[r]);
    }
    free(t->rows);
    free(t);
}

struct amount print_bytes(double bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    struct amount a;
    size_t i = 0;
    while (bytes >= 1024 && i < 4) {
        bytes /= 1024;
        i++;
    }
    snprintf(a.text, sizeof a.text, "%.*f %s", i && bytes < 100 ? 1 : 0, bytes, units[i]);
    return a;
}

struct amount print_duration(double seconds)
{
    struct amount a;
    /* Beyond any run, and what does not fit an integer. */
    if (!(seconds >= 0 && seconds < 1e9))
        snprintf(a.text, sizeof a.text, "-");
    else if (seconds < 60)
        snprintf(a.text, sizeof a.text, "%.*f s", seconds < 10 ? 1 : 0, seconds);
    else if (seconds < 3600)
        snprintf(a.text, sizeof a.text, "%d min %d s", (int)seconds / 60, (int)seconds % 60);
    else if (seconds < 86400)
        snprintf(a.text, sizeof a.text, "%d h %d min", (int)seconds / 3600, (int)seconds / 60 % 60);
    else
        snprintf(a.text, sizeof a.text, "%d d %d h", (int)seconds / 86400, (int)seconds / 3600 % 24);
    return a;
}

struct amount print_time(double unix_time)
{
    struct amount a = {"-"};
    time_t t = (time_t)unix_time;
    struct tm local;
    if (unix_time > 0 && localtime_r(&t, &local))
        strftime(a.text, sizeof a.text, "%Y-%m-%d %H:%M:%S", &local);
    return a;
}

struct amount print_number(const json_t *number, const char *otherwise)
{
    struct amount a;
    if (json_is_integer(number))
        snprintf(a.text, sizeof a.text, "%lld", (long long)json_integer_value(number));
    else if (json_is_real(number))
        snprintf(a.text, sizeof a.text, "%.6g", json_real_value(number));
    else
        snprintf(a.text, sizeof a.text, "%s", otherwise);
    return a;
}

const char *field_text(const json_t *object, const char *key, const char *otherwise)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : otherwise;
}

double field_number(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

void print_json(const json_t *json)
{
    json_dumpf(json, stdout, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
    putchar('\n');
}
