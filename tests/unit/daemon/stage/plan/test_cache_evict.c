/* SPDX-License-Identifier: MIT
 *
 * How large the caches are, by files of our own, and memory of which every line is read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/stage/plan/cache_evict.h"

static void put(const char *root, int index, const char *text)
{
    char path[200];
    snprintf(path, sizeof path, "%s/index%d", root, index);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/index%d/size", root, index);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void take_away(const char *root, int index)
{
    char path[200];
    snprintf(path, sizeof path, "%s/index%d/size", root, index);
    unlink(path);
    snprintf(path, sizeof path, "%s/index%d", root, index);
    rmdir(path);
}

static void test_largest_cache(void **state)
{
    char root[] = "/tmp/ringd-cold-XXXXXX";
    (void)state;
    assert_non_null(mkdtemp(root));
    assert_int_equal(cache_evict_cache_bytes(root), 32 << 20);
    put(root, 0, "32K\n");
    put(root, 2, "1024K\n");
    put(root, 3, "none\n");
    assert_int_equal(cache_evict_cache_bytes(root), 1 << 20);
    for (int i = 0; i < 4; i++)
        take_away(root, i);
    assert_int_equal(rmdir(root), 0);
}

static void test_all_of_it_is_read(void **state)
{
    struct cache_evict cold;
    (void)state;
    assert_int_equal(cache_evict_init(&cold, 2 << 20), 0);
    assert_int_equal(cold.bytes, 2 << 20);
    unsigned sum = 0;
    for (unsigned i = 0; i < (2 << 20) / 64; i++) /* each line once */
        sum += cold.at[64 * i] = (unsigned char)(i * i >> 3);
    assert_int_equal(cache_evict_read(&cold), sum);
    cache_evict_done(&cold);
    assert_int_equal(cache_evict_read(&cold), 0);
    assert_int_equal(cache_evict_init(&cold, SIZE_MAX), 0);
    assert_int_equal(cold.bytes, 256 << 20);
    cache_evict_done(&cold);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_largest_cache),
                                       cmocka_unit_test(test_all_of_it_is_read)};
    return cmocka_run_group_tests_name("cache_evict", tests, NULL, NULL);
}
