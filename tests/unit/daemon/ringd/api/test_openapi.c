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

/* As the file has it: a line for each property. */
static char *schema_text(const char *name, const json_t *schema)
{
    const json_t *properties = json_object_get(schema, "properties");
    char *text = strdup(""), *required = json_dumps(json_object_get(schema, "required"), 0);
    size_t left = json_object_size(properties);
    const char *key;
    json_t *value;
    add_line(&text, "\"%s\": {\n  \"type\": \"object\", …, \"required\": %s,\n  \"properties\": {\n", name,
             required);
    json_object_foreach ((json_t *)(uintptr_t)properties, key, value) {
        char *about = json_dumps(value, JSON_REAL_PRECISION(6));
        add_line(&text, "    \"%s\": %s%s\n", key, about, --left ? "," : "");
        free(about);
    }
    add_line(&text, "  }\n}\n");
    free(required);
    return text;
}

/* The schemas of specs are those of the table that the daemon reads them by. */
static void specs_are_described_as_they_are_read(void **state)
{
    (void)state;
    json_t *api = read_openapi(), *schemas = json_object_get(json_object_get(api, "components"), "schemas");
    char *wanted = strdup("");
    for (enum job_type type = 0; type < JOB_TYPES; type++) {
        char name[32];
        snprintf(name, sizeof name, "spec_%s", job_type_name(type));
        json_t *said = json_object_get(schemas, name),
               *schema = fields_schema(job_spec_fields(), JOB_SPEC_OF(type));
        if (!json_equal(json_object_get(said, "required"), json_object_get(schema, "required")) ||
            !json_equal(json_object_get(said, "properties"), json_object_get(schema, "properties"))) {
            char *text = schema_text(name, schema);
            add_line(&wanted, "%s", text);
            free(text);
        }
        json_decref(schema);
    }
    if (*wanted) {
        fputs(wanted, stderr);
        fail_msg("docs/openapi.json has other schemas than job_spec_fields(): write those above there");
    }
    free(wanted);
    json_decref(api);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_route_is_described),
        cmocka_unit_test(specs_are_described_as_they_are_read),
        cmocka_unit_test(every_description_is_a_route),
        cmocka_unit_test(references_lead_somewhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
