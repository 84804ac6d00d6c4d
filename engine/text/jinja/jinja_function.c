/* SPDX-License-Identifier: MIT
 *
 * Functions every template may call: Jinja's own, and those chat templates are given. Owns nothing;
 * called by the interpreter, on its thread. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "text/jinja/jinja_run.h"

static struct jinja_value range(struct jinja_run *run, const struct jinja_call *call)
{
    bool has_stop = call->arg[1].kind != JINJA_ABSENT;
    int64_t first = jinja_arg_int(run, call, 0, 0), start = has_stop ? first : 0;
    int64_t stop = has_stop ? jinja_arg_int(run, call, 1, 0) : first, step = jinja_arg_int(run, call, 2, 1);
    struct jinja_value list = jinja_list_new(run, JINJA_LIST, 0);
    if (!run->code && step == 0)
        jinja_fail(run, -EINVAL, "range: a step of 0 has no end");
    for (int64_t i = start; !run->code && (step > 0 ? i < stop : i > stop);) {
        if (list.list->n == JINJA_RANGE_MAX)
            jinja_fail(run, -EFBIG, "range: more than %d numbers", JINJA_RANGE_MAX);
        else
            jinja_list_add(run, list.list, jinja_int(i));
        if (__builtin_add_overflow(i, step, &i))
            break;
    }
    return list;
}

/* Of another one, and of what is named. */
static struct jinja_value make_dict(struct jinja_run *run, const struct jinja_call *call,
                                    enum jinja_kind kind)
{
    const struct jinja_args *args = call->all;
    struct jinja_value made = jinja_dict_new(run, kind);
    if (args->n > 1 || (args->n && args->at[0].kind != JINJA_DICT))
        jinja_fail(run, -ENOTSUP, "%s: only a dict, and names with values, are known", call->name);
    for (size_t i = 0; !run->code && args->n && i < args->at[0].dict->n && jinja_step(run, 1); i++)
        jinja_dict_set(run, made.dict, args->at[0].dict->at[i].key, args->at[0].dict->at[i].value);
    for (size_t i = 0; !run->code && i < args->nkeys; i++) {
        struct jinja_value key = {.kind = JINJA_TEXT, .text = args->key[i].name};
        jinja_dict_set(run, made.dict, key, args->key[i].value);
    }
    return made;
}

static struct jinja_value dict(struct jinja_run *run, const struct jinja_call *call)
{
    return make_dict(run, call, JINJA_DICT);
}

static struct jinja_value namespace(struct jinja_run *run, const struct jinja_call *call)
{
    return make_dict(run, call, JINJA_NAMESPACE);
}

static struct jinja_value raise_exception(struct jinja_run *run, const struct jinja_call *call)
{
    struct jinja_value text = jinja_str(run, call->arg[0]);
    if (run->code)
        return text;
    return jinja_fail(run, -EPROTO, "the template refuses these messages: %.*s",
                      text.text.n < 300 ? (int)text.text.n : 300, text.text.s);
}

/* One directive, as in the C locale; false for one that is not known. */
static bool append_time(struct textbuf *buf, const struct tm *tm, char directive, bool bare)
{
    static const char *const days[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                       "Thursday", "Friday", "Saturday"};
    static const char *const months[] = {"January",   "February", "March",    "April",
                                         "May",       "June",     "July",     "August",
                                         "September", "October",  "November", "December"};
    const int hour = tm->tm_hour % 12 ? tm->tm_hour % 12 : 12;
    const struct {
        char directive;
        int width, value;
    } numbers[] = {{'d', 2, tm->tm_mday},        {'m', 2, tm->tm_mon + 1}, {'y', 2, tm->tm_year % 100},
                   {'Y', 1, tm->tm_year + 1900}, {'H', 2, tm->tm_hour},    {'I', 2, hour},
                   {'M', 2, tm->tm_min},         {'S', 2, tm->tm_sec},     {'j', 3, tm->tm_yday + 1},
                   {'w', 1, tm->tm_wday}};
    char text[32];
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (numbers[i].directive == directive) {
            snprintf(text, sizeof text, "%0*d", bare ? 1 : numbers[i].width, numbers[i].value);
            textbuf_append(buf, text, strlen(text));
            return true;
        }
    const char *day = days[tm->tm_wday], *month = months[tm->tm_mon];
    switch (directive) {
    case 'a': textbuf_append(buf, day, 3); return true;
    case 'A': textbuf_append(buf, day, strlen(day)); return true;
    case 'b': textbuf_append(buf, month, 3); return true;
    case 'B': textbuf_append(buf, month, strlen(month)); return true;
    case 'p': textbuf_append(buf, tm->tm_hour < 12 ? "AM" : "PM", 2); return true;
    case '%': textbuf_append(buf, "%", 1); return true;
    case 'F':
        return append_time(buf, tm, 'Y', false) &&
               (textbuf_append(buf, "-", 1), append_time(buf, tm, 'm', false)) &&
               (textbuf_append(buf, "-", 1), append_time(buf, tm, 'd', false));
    default: return false;
    }
}

static struct jinja_value strftime_now(struct jinja_run *run, const struct jinja_call *call)
{
    struct jinja_text f = jinja_arg_text(run, call, 0, NULL);
    struct textbuf buf = {0};
    struct tm tm;
    if (!localtime_r(&run->now, &tm))
        return jinja_fail(run, -ERANGE, "strftime_now: there is no such time");
    for (size_t i = 0; i < f.n; i++) {
        if (f.s[i] != '%') {
            textbuf_append(&buf, f.s + i, 1);
            continue;
        }
        bool bare = i + 1 < f.n && f.s[i + 1] == '-'; /* without leading zeros */
        i += 1 + bare;
        if (i >= f.n || !append_time(&buf, &tm, f.s[i], bare))
            jinja_fail(run, -ENOTSUP, "strftime_now: %%%.*s is not known", (int)(i < f.n), f.s + i);
    }
    return jinja_take_text(run, &buf);
}

const struct jinja_builtin *jinja_find_function(struct jinja_text name)
{
    static const struct jinja_builtin functions[] = {
        {"range", "start stop step", 1, range},
        {"dict", "*", 0, dict},
        {"namespace", "*", 0, namespace},
        {"raise_exception", "message", 1, raise_exception},
        {"strftime_now", "format", 1, strftime_now},
        {.name = NULL},
    };
    return jinja_find_in(functions, name);
}
