/* SPDX-License-Identifier: MIT
 *
 * The folder of quantized weights when it grows: what goes, in which order, and what stays whatever
 * happens. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/quant/quant_cache.h"
#include "tests/lib/tiny.h"

enum { NOW = 1000000000, FILE_BYTES = 64 << 10, DAY = 86400 };
#define HASH "0123456789abcdef0123456789abcde"

static void put(const struct temp_dir *dir, const char *name, long unused_s)
{
    char path[512];
    static const char zeros[FILE_BYTES];
    const struct timespec times[2] = {{NOW - unused_s, 0}, {NOW - unused_s, 0}};
    snprintf(path, sizeof path, "%s/%s", dir->path, name);
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    assert_int_equal(fwrite(zeros, 1, sizeof zeros, f), sizeof zeros);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static bool is_there(const struct temp_dir *dir, const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir->path, name);
    return !access(path, F_OK);
}

/* Four files, the first unused for longest. */
static const char *const kept[] = {HASH "0-unit0-int4.safetensors", HASH "1-unit0-int8.safetensors",
                                   HASH "2-unit1-int4.safetensors", HASH "3-unit1-int4.safetensors"};

static struct temp_dir four_files(void)
{
    struct temp_dir dir = temp_dir_new();
    for (size_t i = 0; i < 4; i++)
        put(&dir, kept[i], (long)(4 - i) * DAY);
    return dir;
}

static size_t count(const struct temp_dir *dir)
{
    size_t n = 0;
    for (size_t i = 0; i < 4; i++)
        n += is_there(dir, kept[i]);
    return n;
}

static void what_was_unused_for_longest_goes(void **state)
{
    (void)state;
    struct temp_dir dir = four_files();
    /* five files with the new one, and five files of free space after it: nothing to do */
    assert_int_equal(quant_cache_trim(dir.path, FILE_BYTES, 6 * FILE_BYTES, NOW), 0);
    assert_int_equal(count(&dir), 4);
    /* one byte less, and the oldest goes */
    assert_int_equal(quant_cache_trim(dir.path, FILE_BYTES, 6 * FILE_BYTES - 1, NOW), FILE_BYTES);
    assert_false(is_there(&dir, kept[0]));
    assert_int_equal(count(&dir), 3);
    /* each that goes is one less here and one more there */
    assert_int_equal(quant_cache_trim(dir.path, FILE_BYTES, 2 * FILE_BYTES, NOW), 2 * FILE_BYTES);
    assert_true(is_there(&dir, kept[3]));
    assert_int_equal(count(&dir), 1);
    temp_dir_free(&dir);
}

static void what_is_in_use_stays(void **state)
{
    (void)state;
    struct temp_dir dir = four_files();
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir.path, kept[0]);
    quant_cache_touch(path);
    put(&dir, kept[1], QUANT_CACHE_SPARED_S);
    put(&dir, "notes", 9 * DAY);
    put(&dir, HASH "0-unit0-int4.txt", 9 * DAY);
    assert_int_equal(quant_cache_trim(dir.path, SIZE_MAX / 4, 1, NOW), 2 * FILE_BYTES);
    assert_true(is_there(&dir, kept[0]) && is_there(&dir, kept[1]));
    assert_true(is_there(&dir, "notes") && is_there(&dir, HASH "0-unit0-int4.txt"));
    temp_dir_free(&dir);
}

static void halves_of_the_dead_go(void **state)
{
    (void)state;
    struct temp_dir dir = four_files();
    put(&dir, HASH "4-unit0-int4.safetensors.123.tmp", 2 * DAY);
    put(&dir, HASH "5-unit0-int4.safetensors.124.tmp", 60); /* being written */
    assert_int_equal(quant_cache_trim(dir.path, 1, SIZE_MAX / 4, NOW), FILE_BYTES);
    assert_false(is_there(&dir, HASH "4-unit0-int4.safetensors.123.tmp"));
    assert_true(is_there(&dir, HASH "5-unit0-int4.safetensors.124.tmp"));
    assert_int_equal(count(&dir), 4);
    temp_dir_free(&dir);
}

static void without_knowing_it_deletes_nothing(void **state)
{
    (void)state;
    struct temp_dir dir = four_files();
    assert_int_equal(quant_cache_available("/nowhere/at/all"), 0);
    assert_true(quant_cache_available(dir.path) > 0);
    assert_int_equal(quant_cache_trim(dir.path, FILE_BYTES, 0, NOW), 0);
    assert_int_equal(quant_cache_trim("/nowhere/at/all", FILE_BYTES, 1, NOW), 0);
    assert_int_equal(count(&dir), 4);
    temp_dir_free(&dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_unused_for_longest_goes),
        cmocka_unit_test(what_is_in_use_stays),
        cmocka_unit_test(halves_of_the_dead_go),
        cmocka_unit_test(without_knowing_it_deletes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
