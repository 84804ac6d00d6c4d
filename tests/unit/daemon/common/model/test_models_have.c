/* SPDX-License-Identifier: MIT
 *
 * How much of a model is in a folder of models, and which blocks of it. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/common/model/models_dir.h"
#include "engine/file/have_map.h"

#define MODEL "org/name@0123456789abcdef0123456789abcdef01234567"
#define CONTENT "1111111111111111111111111111111111111111111111111111111111111111"
enum { BLOCKS = 5, TAIL = 7 };

static char place[64];
static int dir;

static void write_file(const char *name, off_t bytes)
{
    char path[200];
    snprintf(path, sizeof path, MODEL "/%s", name);
    const int fd = openat(dir, path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, bytes), 0);
    close(fd);
}

static void have(const char *blocks)
{
    struct have_map *map;
    assert_int_equal(have_map_open(&map, dir, MODEL "/w", CONTENT, BLOCKS), 0);
    for (; *blocks; blocks++)
        assert_int_equal(have_map_set(map, (uint32_t)(*blocks - '0')), 0);
    have_map_close(map);
}

static int set_up(void **state)
{
    struct err err;
    (void)state;
    strcpy(place, "/tmp/test_models_have.XXXXXX");
    if (!mkdtemp(place) || (dir = models_dir_open(place, &err)) < 0 || models_make_parents(dir, MODEL "/x"))
        return -1;
    const off_t bytes = (off_t)(BLOCKS - 1) * HAVE_BLOCK + TAIL;
    json_t *record = json_pack("{s:s s:I}", "content", CONTENT, "bytes", (json_int_t)bytes + 100);
    const int r = models_record_write(dir, MODEL, record);
    json_decref(record);
    write_file("config.json", 100);
    write_file("w", bytes);
    return r;
}

static int tear_down(void **state)
{
    char command[100];
    (void)state;
    close(dir);
    snprintf(command, sizeof command, "rm -r %s", place);
    return system(command);
}

static void is(bool blocks, const char *expected)
{
    json_t *found = models_have(dir, MODEL, blocks), *right = json_loads(expected, 0, NULL);
    assert_non_null(right);
    json_object_del(found, "content");
    /* files come in any order */
    json_t *runs = json_object_get(found, "blocks"), *first = json_array_get(runs, 0);
    if (first && strcmp(json_string_value(json_array_get(first, 0)), "config.json") != 0) {
        json_t *last = json_incref(json_array_get(runs, json_array_size(runs) - 1));
        json_array_remove(runs, json_array_size(runs) - 1);
        json_array_insert_new(runs, 0, last);
    }
    assert_true(json_equal(found, right));
    json_decref(found);
    json_decref(right);
}

static void a_whole_model_names_no_blocks(void **state)
{
    (void)state;
    is(true, "{\"whole\": true, \"here\": 16777323, \"bytes\": 16777323}");
}

static void of_a_part_each_run_of_blocks_is_named(void **state)
{
    (void)state;
    have("0134");
    is(true, "{\"whole\": false, \"here\": 12583019, \"bytes\": 16777323, \"blocks\": [[\"config.json\", 0, "
             "1], [\"w\", 0, 2], "
             "[\"w\", 3, 5]]}");
    is(false, "{\"whole\": false, \"here\": 12583019, \"bytes\": 16777323}");
}

static void without_its_outline_it_is_not_there(void **state)
{
    (void)state;
    assert_int_equal(unlinkat(dir, MODEL "/config.json", 0), 0);
    assert_null(models_have(dir, MODEL, true));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_whole_model_names_no_blocks, set_up, tear_down),
        cmocka_unit_test_setup_teardown(of_a_part_each_run_of_blocks_is_named, set_up, tear_down),
        cmocka_unit_test_setup_teardown(without_its_outline_it_is_not_there, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
