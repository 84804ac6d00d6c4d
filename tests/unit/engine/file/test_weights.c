/* SPDX-License-Identifier: MIT
 *
 * Weights known by what they hold: hashes do not depend on threads or on how files are cut, what is
 * kept is believed only for the file it was made from, and texts of other nodes are compared or
 * refused. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "engine/file/weights.h"

static const char header[] =
    "{\"model.embed_tokens.weight\":{\"dtype\":\"F32\",\"shape\":[3145728],\"data_offsets\":[0,12582912]},"
    "\"model.layers.0.a\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[12582912,12582916]},"
    "\"model.layers.1.a\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[12582916,12582920]},"
    "\"model.norm.weight\":{\"dtype\":\"F16\",\"shape\":[0],\"data_offsets\":[12582920,12582920]}}";
enum { DATA = 12582920, LAYERS = 2 };

struct world {
    char root[40], dir[60], file[90], cache[60];
};

static void write_model(const struct world *w)
{
    const uint64_t n = sizeof header - 1;
    char *data = calloc(1, DATA);
    FILE *f = fopen(w->file, "w");
    assert_non_null(f);
    for (size_t i = 0; i < DATA; i++)
        data[i] = (char)(i * 31 + (i >> 12));
    memcpy(data + DATA - 4, data + DATA - 8, 4); /* the same bytes, of another type */
    fwrite(&n, 1, sizeof n, f);
    fwrite(header, 1, n, f);
    assert_int_equal(fwrite(data, 1, DATA, f), DATA);
    assert_int_equal(fclose(f), 0);
    free(data);
}

static void flip(const struct world *w, off_t from_end)
{
    char byte;
    int fd = open(w->file, O_RDWR);
    off_t at = lseek(fd, -from_end, SEEK_END);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

static void make_world(struct world *w)
{
    strcpy(w->root, "/tmp/ringd-weights-XXXXXX");
    assert_non_null(mkdtemp(w->root));
    snprintf(w->dir, sizeof w->dir, "%s/model", w->root);
    snprintf(w->cache, sizeof w->cache, "%s/cache", w->root);
    snprintf(w->file, sizeof w->file, "%s/model.safetensors", w->dir);
    assert_int_equal(mkdir(w->dir, 0700), 0);
    write_model(w);
}

static void drop_world(const struct world *w)
{
    char command[80];
    snprintf(command, sizeof command, "rm -rf %s", w->root);
    assert_int_equal(system(command), 0);
}

/* The text, and in ret_read how many bytes were read for it. */
static char *text_of(const struct world *w, int threads, uint64_t *ret_read)
{
    struct weights *weights;
    struct err err;
    const struct weights_reading how = {.threads = threads};
    assert_int_equal(weights_open(&weights, w->dir, LAYERS, w->cache, NULL, NULL, &err), 0);
    assert_int_equal(weights_read(weights, &how, ret_read, &err), 0);
    char *text = weights_text(weights);
    assert_non_null(text);
    weights_close(weights);
    return text;
}

static void threads_and_cache(void **state)
{
    struct world w;
    uint64_t read;
    char command[200];
    (void)state;
    make_world(&w);
    char *first = text_of(&w, 1, &read), *again = text_of(&w, 1, &read);
    assert_int_equal(read, 0);
    assert_string_equal(again, first);
    free(again);
    snprintf(command, sizeof command,
             "for f in %s/*; do printf x | dd of=$f bs=1 seek=60 conv=notrunc status=none; done", w.cache);
    assert_int_equal(system(command), 0); /* damaged: not believed */
    again = text_of(&w, 3, &read);
    assert_int_equal(read, DATA);
    assert_string_equal(again, first);
    free(again);
    free(first);
    drop_world(&w);
}

static void one_byte(void **state)
{
    struct world w;
    struct weights_difference d;
    uint64_t read;
    static const struct {
        off_t from_end;
        size_t tensor, unit;
    } cases[] = {{DATA, 0, 0}, {DATA - (5 << 20), 0, 0}, {8, 1, 1}, {1, 2, 2}};
    (void)state;
    make_world(&w);
    char *first = text_of(&w, 2, &read);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        flip(&w, cases[i].from_end);
        char *now = text_of(&w, 2, &read);
        assert_int_equal(read, DATA);
        assert_int_equal(weights_text_compare(&d, first, now), 0);
        assert_int_equal(d.units, 1);
        assert_int_equal(d.tensors, 1);
        assert_int_equal(d.unit, cases[i].unit);
        assert_int_equal(d.tensor, cases[i].tensor);
        assert_int_equal(d.compared, LAYERS + 2);
        free(now);
        flip(&w, cases[i].from_end);
    }
    assert_string_not_equal(strchr(first, ',') + 1, strchr(strchr(first, ',') + 1, ',') + 1);
    free(first);
    drop_world(&w);
}

static void shrinking(void **state)
{
    struct world w;
    struct weights *weights;
    struct err err;
    uint64_t read;
    const struct weights_reading how = {.threads = 1};
    (void)state;
    make_world(&w);
    assert_int_equal(weights_open(&weights, w.dir, LAYERS, NULL, NULL, NULL, &err), 0);
    assert_int_equal(truncate(w.file, 1 << 20), 0);
    assert_int_equal(weights_read(weights, &how, &read, &err), -ESTALE);
    assert_non_null(strstr(err.text, w.file));
    weights_close(weights);
    assert_int_equal(weights_open(&weights, w.dir, LAYERS, NULL, NULL, NULL, &err), -EBADMSG);
    assert_non_null(strstr(err.text, "is truncated"));
    drop_world(&w);
}

static void texts(void **state)
{
    struct weights_difference d;
    static const char a[] = "0123456789abcdef0123456789abcdef", b[] = "0123456789abcdef0123456789abcdee";
    char mine[200], theirs[200];
    (void)state;
    snprintf(mine, sizeof mine, "%s,-,%s;AAAAAAABAAAC", a, a);
    snprintf(theirs, sizeof theirs, "%s,%s,%s;AAABAAABAAAD", a, b, b);
    assert_int_equal(weights_text_compare(&d, mine, theirs), 0);
    assert_int_equal(d.units, 1);
    assert_int_equal(d.unit, 2);
    assert_int_equal(d.tensor, 2);
    assert_int_equal(d.compared, 2);
    assert_int_equal(d.all, 3);
    snprintf(theirs, sizeof theirs, "%s,-,%s;", a, b); /* too many tensors to name */
    assert_int_equal(weights_text_compare(&d, mine, theirs), 0);
    assert_int_equal(d.tensor, SIZE_MAX);
    static const char *const wrong[] = {"", ";", "-", "-,-;", "-,-,-,-;", "-,-,-", "0,-,-;", ",,;", "-,-,-,"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(weights_text_compare(&d, mine, wrong[i]), -EBADMSG);
}

static void units(void **state)
{
    (void)state;
    assert_int_equal(weights_unit("model.embed_tokens.weight", 4), 0);
    assert_int_equal(weights_unit("model.layers.0.mlp.up_proj.weight", 4), 1);
    assert_int_equal(weights_unit("model.layers.3.x", 4), 4);
    assert_int_equal(weights_unit("model.layers.4.x", 4), 6);
    assert_int_equal(weights_unit("model.norm.weight", 4), 5);
    assert_int_equal(weights_unit("lm_head.weight", 4), 5);
}

int main(void)
{
    const struct CMUnitTest all[] = {
        cmocka_unit_test(threads_and_cache),
        cmocka_unit_test(one_byte),
        cmocka_unit_test(shrinking),
        cmocka_unit_test(texts),
        cmocka_unit_test(units),
    };
    return cmocka_run_group_tests(all, NULL, NULL);
}
