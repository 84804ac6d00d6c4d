/* SPDX-License-Identifier: MIT
 *
 * Owns nothing. Called by every command that prints. */
#include "daemon/ctl/terminal/ctl_print.h"

#include <string.h>
#include <time.h>

#include "daemon/ctl/terminal/ctl_term.h"

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

void print_work(char *buf, size_t size, const json_t *stage, const json_t *node)
{
    const json_t *seconds = json_object_get(stage ? stage : node, "seconds");
    snprintf(buf, size, "%s\t%s\t%s%s%s", print_number(json_object_get(stage, "job"), "-").text,
             print_number(json_object_get(stage, "rank"), "-").text,
             field_text(stage ? stage : node, "doing", "-"), json_is_number(seconds) ? ", " : "",
             json_is_number(seconds) ? print_duration(json_number_value(seconds)).text : "");
}

void print_json(const json_t *json)
{
    json_dumpf(json, stdout, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
    putchar('\n');
}

static void print_painted(FILE *to, enum paint paint, const char *text)
{
    if (!term_has_colors(to))
        paint = PAINT_NONE;
    fprintf(to, "%s%s%s", paint_on(paint), text, paint_off(paint));
}

void print_state(FILE *to, const char *word)
{
    print_painted(to, paint_of_state(word, strlen(word)), word);
}

void print_trouble(FILE *to, const char *head, const char *sentence)
{
    print_painted(to, PAINT_BAD, head);
    fprintf(to, "  %s\n", sentence);
}
