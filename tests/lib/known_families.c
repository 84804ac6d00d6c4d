/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "file/config.h"
#include "tests/lib/known_families.h"

void known_families_all(bool (*has)(const void *of, const char *family), const void *of, const char *lack)
{
    static const char unknown[] = "{\"model_type\":\"nothing\"}", list[] = "(known: ";
    struct config c;
    struct err err;
    assert_true(config_parse(&c, unknown, sizeof unknown - 1, &err) < 0);
    char *at = strstr(err.text, list);
    assert_non_null(at);
    for (char *rest, *name = strtok_r(at + sizeof list - 1, ", )", &rest); name;
         name = strtok_r(NULL, ", )", &rest))
        if (!has(of, name))
            fail_msg("%s %s", name, lack);
}
