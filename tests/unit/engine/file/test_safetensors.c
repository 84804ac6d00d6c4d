/* SPDX-License-Identifier: MIT
 *
 * safetensors: what is written can be read, real sharded models open, and every way a file can be
 * wrong is refused with its name. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "file/murmur.h"
#include "file/st.h"

struct place {
    char dir[64];
    char path[128]; /* of the file the test works on */
};

static int set_up(void **state)
{
    struct place *p = calloc(1, sizeof *p);
    strcpy(p->dir, "/tmp/test_safetensors.XXXXXX");
    if (!mkdtemp(p->dir))
        return -1;
    snprintf(p->path, sizeof p->path, "%s/model.safetensors", p->dir);
    *state = p;
    return 0;
}

static int tear_down(void **state)
{
    static const char *const names[] = {
        "model.safetensors", "model.safetensors.tmp", "model.safetensors.index.json",
        "a.safetensors",     "b.safetensors",         "outside"};
    struct place *p = *state;
    char path[128];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", p->dir, names[i]);
        unlink(path);
    }
    int r = rmdir(p->dir);
    free(p);
    return r;
}

static void write_bytes(const char *path, const void *data, size_t n)
{
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* A file from a header's text and so many bytes of data. */
static void write_file(const char *path, const char *header, size_t data_bytes)
{
    uint64_t n = strlen(header);
    size_t total = 8 + n + data_bytes;
    unsigned char *all = calloc(1, total);
    memcpy(all, &n, 8);
    memcpy(all + 8, header, n);
    for (size_t i = 0; i < data_bytes; i++)
        all[8 + n + i] = (unsigned char)i;
    write_bytes(path, all, total);
    free(all);
}

static void refuse(struct place *p, int code, const char *part)
{
    struct st *st = NULL;
    struct err err = {""};
    assert_int_equal(st_open_file(&st, p->path, &err), code);
    assert_null(st);
    if (!strstr(err.text, part) || !strstr(err.text, p->path))
        fail_msg("\"%s\" does not say \"%s\" and the path", err.text, part);
}

/* --- writing and reading ---------------------------------------------------------------------- */

static const struct st_out_tensor out_tensors[] = {
    {.name = "zeta", .dtype = DTYPE_BF16, .ndim = 1, .shape = {3}},
    {.name = "alpha", .dtype = DTYPE_F16, .ndim = 2, .shape = {1, 2}},
    {.name = "mid", .dtype = DTYPE_F32, .ndim = 2, .shape = {2, 2}},
    {.name = "empty", .dtype = DTYPE_F32, .ndim = 2, .shape = {0, 7}},
    {.name = "scalar", .dtype = DTYPE_F32, .ndim = 0},
};

static void check_written(const char *path)
{
    static const char *const order[] = {"alpha", "empty", "mid", "scalar", "zeta"};
    struct st *st = NULL;
    struct err err = {""};
    const char *const *names;
    assert_int_equal(st_open_file(&st, path, &err), 0);
    assert_int_equal(st_count(st), 5);
    assert_int_equal(st_names(st, &names), 5);
    for (size_t i = 0; i < 5; i++) {
        assert_string_equal(st_at(st, i)->name, order[i]);
        assert_string_equal(names[i], order[i]);
    }
    const struct st_tensor *zeta = st_find(st, "zeta");
    assert_int_equal(zeta->dtype, DTYPE_BF16);
    assert_int_equal(zeta->bytes, 6);
    float got[4];
    dtype_to_f32(got, zeta->data, zeta->dtype, 3);
    assert_memory_equal(got, ((float[]){1, -2, 0.5f}), 12);
    const struct st_tensor *mid = st_find(st, "mid");
    assert_int_equal((uintptr_t)mid->data % 64, 0); /* the first of the widest type: where the data begins */
    assert_memory_equal(mid->data, ((float[]){1, 2, 3, 4}), 16);
    assert_int_equal(st_find(st, "scalar")->elements, 1);
    assert_int_equal(st_find(st, "empty")->bytes, 0);
    st_willneed(st, mid);
    st_willneed(st, st_find(st, "empty"));
    assert_null(st_find(st, "nobody"));
    st_close(st);
}

static void test_round_trip(void **state)
{
    struct place *p = *state;
    struct st_writer *w = NULL;
    struct err err = {""};
    assert_int_equal(st_writer_open(&w, p->path, out_tensors, 5, &err), 0);
    assert_int_equal(st_writer_put(w, "mid", (float[]){1, 2, 3, 4}, 4, &err), 0);
    assert_int_equal(st_writer_put(w, "zeta", (float[]){1, -2, 0.5f}, 3, &err), 0);
    assert_int_equal(st_writer_put(w, "alpha", (float[]){7, 8}, 2, &err), 0);
    assert_int_equal(st_writer_put(w, "scalar", (float[]){9}, 1, &err), 0);
    assert_int_equal(access(p->path, F_OK), -1);
    assert_int_equal(st_writer_finish(w, &err), 0);
    check_written(p->path);
    struct stat sb;
    assert_int_equal(stat(p->path, &sb), 0);
    char tmp[160];
    snprintf(tmp, sizeof tmp, "%s.tmp", p->path);
    assert_int_equal(access(tmp, F_OK), -1);
}

/* A tensor of several chunks keeps its order in every type. */
static void test_large(void **state)
{
    struct place *p = *state;
    size_t n = 50000;
    struct st_out_tensor t = {.name = "t", .dtype = DTYPE_BF16, .ndim = 1, .shape = {n}};
    float *x = malloc(n * sizeof *x), *y = malloc(n * sizeof *y);
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(i % 251);
    struct st_writer *w = NULL;
    struct st *st = NULL;
    assert_int_equal(st_writer_open(&w, p->path, &t, 1, NULL), 0);
    assert_int_equal(st_writer_put(w, "t", x, n, NULL), 0);
    assert_int_equal(st_writer_finish(w, NULL), 0);
    assert_int_equal(st_open_file(&st, p->path, NULL), 0);
    dtype_to_f32(y, st_at(st, 0)->data, DTYPE_BF16, n);
    assert_memory_equal(x, y, n * sizeof *x);
    st_close(st);
    free(x);
    free(y);
}

static void test_writer_refuses(void **state)
{
    struct place *p = *state;
    struct st_writer *w = NULL;
    struct err err = {""};
    float x[4] = {0};
    assert_int_equal(st_writer_open(&w, p->path, out_tensors, 5, &err), 0);
    assert_int_equal(st_writer_put(w, "other", x, 1, &err), -ENOENT);
    assert_int_equal(st_writer_put(w, "mid", x, 3, &err), -EINVAL);
    assert_int_equal(st_writer_put(w, "mid", x, 4, &err), 0);
    assert_int_equal(st_writer_put(w, "mid", x, 4, &err), -EINVAL);
    assert_non_null(strstr(err.text, "already"));
    assert_int_equal(st_writer_finish(w, &err), -ENODATA);
    assert_non_null(strstr(err.text, "never written"));
    assert_int_equal(access(p->path, F_OK), -1);

    struct st_out_tensor twice[] = {{.name = "t", .ndim = 0}, {.name = "t", .ndim = 0}};
    assert_int_equal(st_writer_open(&w, p->path, twice, 2, &err), -EEXIST);
    struct st_out_tensor vast = {.name = "t", .ndim = 2, .shape = {(size_t)1 << 40, (size_t)1 << 30}};
    assert_int_equal(st_writer_open(&w, p->path, &vast, 1, &err), -EOVERFLOW);
    assert_int_equal(st_writer_open(&w, "/nonexistent/x", twice, 1, &err), -ENOENT);
    assert_non_null(strstr(err.text, "/nonexistent/x.tmp"));
    st_writer_abort(NULL);
}

/* More than any disk has, asked for before a byte of it is taken. */
static void test_full_disk(void **state)
{
    struct place *p = *state;
    struct st_out_tensor t = {.name = "t", .dtype = DTYPE_F32, .ndim = 1, .shape = {(size_t)1 << 58}};
    struct st_writer *w = NULL;
    struct err err = {""};
    assert_int_equal(st_writer_open(&w, p->path, &t, 1, &err), -ENOSPC);
    assert_null(w);
    assert_non_null(strstr(err.text, p->path));
    assert_non_null(strstr(err.text, "needs 1152921504606847"));
    assert_non_null(strstr(err.text, "free"));
    char tmp[160];
    snprintf(tmp, sizeof tmp, "%s.tmp", p->path);
    assert_int_equal(access(tmp, F_OK), -1);
}

/* --- damaged files ---------------------------------------------------------------------------- */

static void test_bad_headers(void **state)
{
    static const struct {
        const char *header;
        size_t data_bytes;
        int code;
        const char *part;
    } cases[] = {
        {"{\"t\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 7, -EBADMSG, "is truncated"},
        {"{\"t\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 9, -EBADMSG,
         "1 bytes after the last"},
        {"{\"t\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]}}", 8, -EBADMSG,
         "dtype and shape make 12"},
        {"{\"t\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}}", 8, -EBADMSG,
         "shape of tensor t"},
        {"{\"t\":{\"dtype\":\"F32\",\"shape\":[2.0],\"data_offsets\":[0,8]}}", 8, -EBADMSG,
         "shape of tensor t"},
        {"{\"t\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,2],\"data_offsets\":[0,8]}}", 8, -EBADMSG,
         "at most 8"},
        {"{\"t\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,8]}}", 8,
         -EOVERFLOW, "tensor t"},
        {"{\"t\":{\"dtype\":\"F32\",\"shape\":[9223372036854775807],\"data_offsets\":[0,8]}}", 8, -EOVERFLOW,
         "tensor t"},
        {"{\"t\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]}}", 2, -EOVERFLOW,
         "possible number of bytes"},
        {"{\"t\":{\"dtype\":\"F33\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, -ENOTSUP, "\"F33\""},
        {"{\"t\":{\"shape\":[2],\"data_offsets\":[0,8]}}", 8, -EBADMSG, "no dtype"},
        {"{\"t\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}", 8, -EBADMSG,
         "data_offsets of tensor t"},
        {"{\"t\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0]}}", 8, -EBADMSG,
         "data_offsets of tensor t"},
        {"{\"t\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8, -EBADMSG, "data_offsets of tensor t"},
        {"{\"t\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[-4,-4]}}", 0, -EBADMSG,
         "data_offsets of tensor t"},
        {"{\"t\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[9223372036854775807,9223372036854775807]}"
         "}",
         0, -EBADMSG, "truncated"},
        {"{\"t\":7}", 0, -EBADMSG, "tensor t is not an object"},
        {"{\"__metadata__\":{\"n\":7}}", 0, -EBADMSG, "__metadata__ entry n"},
        {"{\"__metadata__\":7}", 0, -EBADMSG, "__metadata__"},
        {"{\"t\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8, -EBADMSG,
         "4 bytes before tensor t"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
         "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[3,7]}}",
         7, -EBADMSG, "a and b overlap"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
         "\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[4,8]}}",
         8, -EBADMSG, "duplicate"},
        {"{\"model.a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
         "\"language_model.model.a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[4,8]}}",
         8, -EBADMSG, "holds tensor model.a twice"},
        {"[1]", 0, -EBADMSG, "does not start with '{'"},
        {"{\"a\":", 0, -EBADMSG, "not sound JSON"},
        {"{}{}", 0, -EBADMSG, "not sound JSON"},
        {"{}", 1, -EBADMSG, "1 bytes after the last"},
    };
    struct place *p = *state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_file(p->path, cases[i].header, cases[i].data_bytes);
        refuse(p, cases[i].code, cases[i].part);
    }
}

static void test_bad_files(void **state)
{
    struct place *p = *state;
    refuse(p, -ENOENT, "cannot be opened");
    write_bytes(p->path, "", 0);
    refuse(p, -EBADMSG, "has 0 bytes and needs at least 10");
    write_bytes(p->path, "version https://git-lfs.github.com/spec/v1\n", 43);
    refuse(p, -EBADMSG, "Git LFS pointer");
    write_bytes(p->path, "\x00\x00\x00\x00\x00\x00\x00\x01{}", 10);
    refuse(p, -EBADMSG, "not a safetensors file");
    write_bytes(p->path, "\x00\x01\x00\x00\x00\x00\x00\x00{}", 10);
    refuse(p, -EBADMSG, "is truncated: it has 10 bytes and needs more than 264");
    write_file(p->path, "{\"t\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 3);
    refuse(p, -EBADMSG, "is truncated: it has 65 bytes and needs 70; copy it again");
}

/* Types we do not compute with are listed, not refused; an empty tensor may lie anywhere between
 * others. */
static void test_unusual(void **state)
{
    struct place *p = *state;
    struct st *st = NULL;
    write_file(p->path,
               "{\"q\":{\"dtype\":\"F8_E5M2\",\"shape\":[2,2],\"data_offsets\":[0,4]},"
               "\"e\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[4,4]},"
               "\"r\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[4,12],\"note\":1},\"__metadata__\":{"
               "\"a\":\"b\"}}   ",
               12);
    assert_int_equal(st_open_file(&st, p->path, NULL), 0);
    assert_int_equal(st_count(st), 3);
    const struct st_tensor *q = st_find(st, "q");
    assert_int_equal(q->dtype, DTYPE_COUNT);
    assert_string_equal(q->dtype_name, "F8_E5M2");
    assert_int_equal(((const unsigned char *)st_find(st, "r")->data)[0], 4);
    st_close(st);
    write_file(p->path, "{}", 0);
    assert_int_equal(st_open_file(&st, p->path, NULL), 0);
    assert_int_equal(st_count(st), 0);
    assert_null(st_find(st, "q"));
    st_close(st);
    st_close(NULL);
}

/* --- directories ------------------------------------------------------------------------------ */

static void in_dir(const struct place *p, const char *name, const char *header, size_t data_bytes)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", p->dir, name);
    if (data_bytes > 0)
        write_file(path, header, data_bytes);
    else
        write_bytes(path, header, strlen(header));
}

static void refuse_dir(const struct place *p, int code, const char *part, const char *also)
{
    struct st *st = NULL;
    struct err err = {""};
    assert_int_equal(st_open_dir(&st, p->dir, NULL, NULL, &err), code);
    assert_null(st);
    if (!strstr(err.text, part) || !strstr(err.text, also))
        fail_msg("\"%s\" does not say \"%s\" and \"%s\"", err.text, part, also);
}

#define ONE(name) "{\"" name "\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}"
#define INDEX "model.safetensors.index.json"

static void test_bad_index(void **state)
{
    struct place *p = *state;
    refuse_dir(p, -ENOENT, p->dir, "neither");
    in_dir(p, INDEX, "{\"metadata\":{}}", 0);
    refuse_dir(p, -EBADMSG, INDEX, "weight_map");
    in_dir(p, INDEX, "{\"weight_map\":{\"x\":\"../outside\"}}", 0);
    refuse_dir(p, -EBADMSG, "tensor x", "same directory");
    in_dir(p, INDEX, "{\"weight_map\":{\"x\":7}}", 0);
    refuse_dir(p, -EBADMSG, "tensor x", "same directory");
    in_dir(p, INDEX, "{\"weight_map\":{\"x\":\"a.safetensors\",\"y\":\"b.safetensors\"}}", 0);
    in_dir(p, "a.safetensors", ONE("x"), 4);
    refuse_dir(p, -ENOENT, "b.safetensors is missing", INDEX);
    in_dir(p, "b.safetensors", ONE("z"), 4);
    refuse_dir(p, -EBADMSG, "tensor y", "b.safetensors");
    in_dir(p, "b.safetensors", ONE("x"), 4);
    refuse_dir(p, -EBADMSG, "holds tensor x", "a.safetensors");
    in_dir(p, "b.safetensors", ONE("y"), 2);
    refuse_dir(p, -EBADMSG, "b.safetensors is truncated", "copy it again");
}

static bool wants(void *arg, const char *name)
{
    return strncmp(name, arg, strlen(arg)) == 0;
}

static void test_wanted_shards(void **state)
{
    struct place *p = *state;
    struct st *st = NULL;
    const char *const *names;
    in_dir(p, INDEX, "{\"weight_map\":{\"x\":\"a.safetensors\",\"y\":\"b.safetensors\"}}", 0);
    in_dir(p, "b.safetensors", ONE("y"), 4);
    /* a.safetensors is not there, and nobody asks for it */
    assert_int_equal(st_open_dir(&st, p->dir, wants, "y", NULL), 0);
    assert_int_equal(st_count(st), 1);
    assert_non_null(st_find(st, "y"));
    assert_null(st_find(st, "x"));
    assert_int_equal(st_names(st, &names), 2);
    assert_string_equal(names[0], "x");
    assert_string_equal(names[1], "y");
    st_close(st);
    assert_int_equal(st_open_dir(&st, p->dir, wants, "none", NULL), 0);
    assert_int_equal(st_count(st), 0);
    st_close(st);
}

static void test_real_models(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        size_t tensors;
        const char *dtype;
    } models[] = {{"cases/llama_gqa_rope3/model", 39, "F32"}, {"cases/llama_tied_bf16/model", 29, "BF16"}};
    for (size_t i = 0; i < 2; i++) {
        char dir[512];
        struct st *st = NULL;
        struct err err = {""};
        const char *const *names;
        snprintf(dir, sizeof dir, "tests/data/%s", models[i].name);
        if (st_open_dir(&st, dir, NULL, NULL, &err) < 0)
            fail_msg("%s", err.text);
        assert_int_equal(st_count(st), models[i].tensors);
        assert_int_equal(st_names(st, &names), models[i].tensors);
        const struct st_tensor *t = st_find(st, "model.embed_tokens.weight");
        assert_non_null(t);
        assert_string_equal(t->dtype_name, models[i].dtype);
        assert_int_equal(t->ndim, 2);
        st_close(st);
    }
}

/* The hash's own verification procedure: keys 0…i with seed 256−i, and the hash of all those
 * hashes. */
static void test_murmur(void **state)
{
    (void)state;
    unsigned char key[256];
    uint64_t hashes[256][2], final[2];
    for (unsigned i = 0; i < 256; i++) {
        key[i] = (unsigned char)i;
        murmur128(hashes[i], key, i, 256 - i);
    }
    murmur128(final, hashes, sizeof hashes, 0);
    assert_int_equal((uint32_t) final[0], 0x6384BA69u);
}

#define PLACED(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        PLACED(test_round_trip),       PLACED(test_large),
        PLACED(test_writer_refuses),   PLACED(test_full_disk),
        PLACED(test_bad_headers),      PLACED(test_bad_files),
        PLACED(test_unusual),          PLACED(test_bad_index),
        PLACED(test_wanted_shards),    cmocka_unit_test(test_real_models),
        cmocka_unit_test(test_murmur),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
