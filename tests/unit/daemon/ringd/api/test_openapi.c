/* SPDX-License-Identifier: MIT
 *
 * docs/openapi.json and docs/API.md against the table of routes and that of the fields of a spec:
 * what one has the others have, and who may is said right. What the answers look like is compared
 * by tests/system/api.sh, on a daemon that runs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <ctype.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ringd/api/api.h"
#include "daemon/common/job_plan.h"
#include "daemon/common/job_spec.h"

static char *read_text(const char *path)
{
    FILE *f = fopen(path, "re");
    if (!f)
        fail_msg("%s is not to be found from here: run in the project's folder", path);
    char *text = NULL;
    size_t size = 0;
    ssize_t n = getdelim(&text, &size, '\0', f);
    fclose(f);
    assert_true(n > 0);
    return text;
}

static json_t *read_openapi(void)
{
    char *text = read_text("docs/openapi.json");
    json_error_t where;
    json_t *api = json_loads(text, 0, &where);
    if (!api)
        fail_msg("docs/openapi.json line %d: %s", where.line, where.text);
    free(text);
    return api;
}

static json_t *method_of(const json_t *item, const char *method)
{
    char lower[16] = "";
    for (size_t i = 0; method[i] && i + 1 < sizeof lower; i++)
        lower[i] = (char)tolower((unsigned char)method[i]);
    return json_object_get(item, lower);
}

static void every_route_is_described(void **state)
{
    (void)state;
    json_t *api = read_openapi(), *paths = json_object_get(api, "paths");
    char *people = read_text("docs/API.md");
    size_t n;
    const struct api_route *routes = api_routes(&n);
    for (size_t i = 0; i < n; i++) {
        json_t *about = method_of(json_object_get(paths, routes[i].path), routes[i].method);
        char row[128], *id;
        if (!about)
            fail_msg("docs/openapi.json lacks %s %s", routes[i].method, routes[i].path);
        const json_t *security = json_object_get(about, "security"), *first = json_array_get(security, 0);
        bool needs_token = json_object_get(first, "token");
        if (needs_token != (routes[i].access != API_OPEN))
            fail_msg("docs/openapi.json: %s %s tells of another security", routes[i].method, routes[i].path);
        snprintf(row, sizeof row, "| `%s %s` |", routes[i].method, routes[i].path);
        if ((id = strstr(row, "{id}"))) {
            *id = 'N';
            memmove(id + 1, id + 4, strlen(id + 4) + 1);
        }
        if (!strstr(people, row))
            fail_msg("docs/API.md has no row %s", row);
    }
    free(people);
    json_decref(api);
}

static void every_description_is_a_route(void **state)
{
    (void)state;
    json_t *api = read_openapi(), *item, *about;
    const char *path, *method;
    size_t n;
    const struct api_route *routes = api_routes(&n);
    json_object_foreach (json_object_get(api, "paths"), path, item) {
        json_object_foreach (item, method, about) {
            bool found = !strcmp(method, "parameters");
            for (size_t i = 0; i < n && !found; i++)
                found = !strcmp(routes[i].path, path) && method_of(item, routes[i].method) == about;
            if (!found)
                fail_msg("docs/openapi.json describes %s %s, which is no route", method, path);
        }
    }
    json_decref(api);
}

/* Of a $ref: is there such a thing? */
static void check_references(const json_t *api, const json_t *at)
{
    const char *key;
    json_t *value;
    size_t i;
    const char *to = json_string_value(json_object_get(at, "$ref"));
    if (to) {
        static const char begin[] = "#/components/";
        assert_true(!strncmp(to, begin, sizeof begin - 1));
        const char *kind = to + sizeof begin - 1, *name = strchr(kind, '/');
        char word[64];
        assert_non_null(name);
        snprintf(word, sizeof word, "%.*s", (int)(name - kind), kind);
        if (!json_object_get(json_object_get(json_object_get(api, "components"), word), name + 1))
            fail_msg("docs/openapi.json: %s leads nowhere", to);
    }
    json_object_foreach ((json_t *)(uintptr_t)at, key, value)
        check_references(api, value);
    json_array_foreach (at, i, value)
        check_references(api, value);
}

static void references_lead_somewhere(void **state)
{
    (void)state;
    json_t *api = read_openapi();
    check_references(api, api);
    json_decref(api);
}

static void add_line(char **text, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add_line(char **text, const char *format, ...)
{
    char *line, *longer;
    va_list args;
    va_start(args, format);
    assert_true(vasprintf(&line, format, args) >= 0);
    va_end(args);
    assert_true(asprintf(&longer, "%s%s", *text, line) >= 0);
    free(line);
    free(*text);
    *text = longer;
}

/* --- what the table of fields says ------------------------------------------------------------ */

/* Replaces what stands between `from` and the next `to` behind `section` of a text. */
static void put_between(char **text, const char *section, const char *from, const char *to, const char *new)
{
    char *at = strstr(*text, section), *end, *made;
    at = at ? strstr(at, from) : NULL;
    end = at ? strstr(at + strlen(from), to) : NULL;
    if (!end)
        fail_msg("there is no \"%s\" behind \"%s\"", from, section);
    assert_true(asprintf(&made, "%.*s%s%s%s", (int)(at - *text), *text, from, new, end) >= 0);
    free(*text);
    *text = made;
}

/* The file is as it should be, or is made so where that is asked for. */
static void check_file(const char *path, const char *wanted)
{
    char *is = read_text(path);
    const bool same = !strcmp(is, wanted);
    free(is);
    if (!same && getenv("RINGD_WRITE_DOCS")) {
        FILE *f = fopen(path, "we");
        assert_non_null(f);
        fputs(wanted, f);
        assert_int_equal(fclose(f), 0);
    } else if (!same)
        fail_msg("%s tells of other fields than the table in daemon/common/spec_fields.c: run this test with "
                 "RINGD_WRITE_DOCS=1 in the environment, which writes them there",
                 path);
}

static char *said(const json_t *value)
{
    return json_dumps(value, JSON_REAL_PRECISION(6) | JSON_ENCODE_ANY);
}

/* A line for each property. */
static char *schema_lines(const json_t *properties)
{
    char *lines = strdup("");
    size_t left = json_object_size(properties);
    const char *key;
    json_t *value;
    json_object_foreach ((json_t *)(uintptr_t)properties, key, value) {
        char *about = said(value);
        add_line(&lines, "\n        \"%s\": %s%s", key, about, --left ? "," : "");
        free(about);
    }
    return lines;
}

/* Takes over `schema`; `section` is what its place in the file begins with. */
static void put_schema(char **text, const char *section, json_t *schema)
{
    char *required = said(json_object_get(schema, "required")),
         *lines = schema_lines(json_object_get(schema, "properties"));
    put_between(text, section, "\"required\": ", ",\n", required);
    put_between(text, section, "\"properties\": {", "\n      }", lines);
    free(required);
    free(lines);
    json_decref(schema);
}

static void schemas_are_those_of_the_fields(void **state)
{
    (void)state;
    char *text = read_text("docs/openapi.json");
    put_schema(&text, "    \"plan\": {\n      \"type\": [\"object\", \"null\"], \"description\"",
               fields_schema(job_plan_fields(), JOB_PLAN_SHOWN));
    for (enum job_type type = 0; type < JOB_TYPES; type++) {
        char section[40];
        snprintf(section, sizeof section, "\"spec_%s\": {", job_type_name(type));
        put_schema(&text, section, fields_schema(job_spec_fields(), JOB_SPEC_OF(type)));
    }
    check_file("docs/openapi.json", text);
    free(text);
}

/* "| `rank` | train | a whole number from 1 to 4096 | 8 | Rank of the adapter |" */
static void add_row(char **rows, const struct field *f)
{
    char range[RANGE_TEXT], types[40] = "";
    const json_t *about = NULL;
    json_t *schemas[JOB_TYPES];
    for (enum job_type type = 0; type < JOB_TYPES; type++) {
        schemas[type] = fields_schema(job_spec_fields(), JOB_SPEC_OF(type));
        if (!(f->use & JOB_SPEC_OF(type)))
            continue;
        const size_t n = strlen(types);
        snprintf(types + n, sizeof types - n, "%s%s", n ? ", " : "", job_type_name(type));
        about = json_object_get(json_object_get(schemas[type], "properties"), f->name);
    }
    field_range(range, f);
    if (about) {
        const json_t *usual = json_object_get(about, "default");
        char *value = usual ? said(usual) : strdup(f->missing ? "needed" : "");
        add_line(rows, "\n| `%s` | %s | %s | %s | %s |", f->name, types, range, value,
                 json_string_value(json_object_get(about, "description")));
        free(value);
    }
    for (size_t i = 0; i < JOB_TYPES; i++)
        json_decref(schemas[i]);
}

static void people_read_of_every_field(void **state)
{
    (void)state;
    char *text = read_text("docs/API.md"), *rows = strdup("");
    for (const struct field *f = job_spec_fields(); f->name; f++)
        add_row(&rows, f);
    put_between(&text, "| Key | Of | What it may be", "|---|---|---|---|---|", "\n\n", rows);
    check_file("docs/API.md", text);
    free(rows);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_route_is_described),   cmocka_unit_test(schemas_are_those_of_the_fields),
        cmocka_unit_test(people_read_of_every_field), cmocka_unit_test(every_description_is_a_route),
        cmocka_unit_test(references_lead_somewhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
