/* SPDX-License-Identifier: MIT
 *
 * Owns the order of checks and the words of findings. Called with a whole world of facts; any
 * thread. */
#include "daemon/common/doctor/doctor.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/doctor/doctor_impl.h"

/* --- facts ------------------------------------------------------------------------------------ */

const char *fact_text(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

double fact_number(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

bool fact_flag(const json_t *object, const char *key)
{
    return json_is_true(json_object_get(object, key));
}

bool fact_known(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return value && !json_is_null(value);
}

/* --- findings --------------------------------------------------------------------------------- */

static const char *const severities[] = {"ok", "note", "warning", "error"};

/* What others wrote is shown on a terminal: no byte of it may steer one. */
static void make_printable(char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < ' ' || *text == 0x7f)
            *text = '?';
}

struct word doctor_word(const char *text)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:@%+,-";
    struct word w = {0};
    size_t n = 0;
    if (*text && *text != '-' && strspn(text, plain) == strlen(text)) {
        snprintf(w.text, sizeof w.text, "%s", text);
        return w;
    }
    w.text[n++] = '\'';
    for (; *text && n + 6 < sizeof w.text; text++) {
        if (*text != '\'')
            w.text[n++] = *text;
        else
            n += (size_t)sprintf(w.text + n, "'\\''");
    }
    w.text[n] = '\'';
    return w;
}

void doctor_say(struct judge *j, enum severity severity, const char *thing, char *fix, const char *fmt, ...)
{
    char text[1024], about[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    snprintf(about, sizeof about, "%s", thing);
    make_printable(text);
    make_printable(about);
    if (fix)
        make_printable(fix);
    j->found = true;
    json_t *finding = json_pack("{s:s s:s s:s s:s s:s s:s}", "severity", severities[severity], "node",
                                fact_text(j->me, "name"), "check", j->check, "thing", about, "text", text,
                                "fix", fix ? fix : "");
    if (finding)
        json_array_append_new(j->findings, finding);
    free(fix);
}

bool doctor_is_ill(const json_t *findings)
{
    size_t i;
    json_t *f;
    json_array_foreach (findings, i, f) {
        const char *severity = fact_text(f, "severity");
        if (!strcmp(severity, severities[DOCTOR_WARNING]) || !strcmp(severity, severities[DOCTOR_ERROR]))
            return true;
    }
    return false;
}

/* --- judging ---------------------------------------------------------------------------------- */

static void run(struct judge *j, const struct check *checks)
{
    for (; checks->name; checks++) {
        if (!checks->applies(j))
            continue;
        j->check = checks->name;
        j->found = false;
        checks->look(j);
        if (!j->found)
            doctor_say(j, DOCTOR_OK, "", NULL, "%s", checks->ok);
    }
}

/* A node that did not answer is a finding of its own. */
static void judge_silent(struct judge *j)
{
    size_t i;
    json_t *silent;
    j->check = "answer";
    json_array_foreach (json_object_get(j->world, "silent"), i, silent) {
        const char *fix = fact_text(silent, "fix");
        j->me = silent;
        doctor_say(j, DOCTOR_ERROR, "ringd", *fix ? strdup(fix) : NULL, "%s", fact_text(silent, "why"));
    }
}

json_t *doctor_judge(const json_t *world)
{
    struct judge j = {.world = world, .nodes = json_object_get(world, "nodes"), .findings = json_array()};
    for (size_t i = 0; i < json_array_size(j.nodes); i++) {
        j.me = json_array_get(j.nodes, i);
        run(&j, doctor_net_checks);
        run(&j, doctor_node_checks);
    }
    judge_silent(&j);
    return j.findings;
}
