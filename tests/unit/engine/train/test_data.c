/* SPDX-License-Identifier: MIT
 *
 * Data sets: files and arrays of rows, shifted labels, what is too long, what is refused and
 * how. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "train/data.h"

struct place {
    char dir[64];
    char path[128];
    struct data_request req;
};

static int set_up(void **state)
{
    struct place *p = calloc(1, sizeof *p);
    strcpy(p->dir, "/tmp/test_data.XXXXXX");
    if (!mkdtemp(p->dir))
        return -1;
    snprintf(p->path, sizeof p->path, "%s/train.jsonl", p->dir);
    p->req = (struct data_request){.path = p->path, .split = "train", .seq_len = 6, .vocab = 100, .eos = -1};
    *state = p;
    return 0;
}

static int tear_down(void **state)
{
    struct place *p = *state;
    unlink(p->path);
    int r = rmdir(p->dir);
    free(p);
    return r;
}

static void write_bytes(const struct place *p, const void *data, size_t n)
{
    FILE *f = fopen(p->path, "we");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static struct data *open_rows(const struct place *p, const char *rows)
{
    struct data *data = NULL;
    struct err err = {""};
    write_bytes(p, rows, strlen(rows));
    if (data_open(&data, &p->req, &err) < 0)
        fail_msg("%s", err.text);
    return data;
}

static void check_row(const struct data *data, size_t i, const uint32_t *ids, const int32_t *labels, size_t n)
{
    struct data_row row = data_row(data, i);
    size_t supervised = 0;
    assert_int_equal(row.n, n);
    assert_memory_equal(row.ids, ids, n * sizeof *ids);
    assert_memory_equal(row.labels, labels, n * sizeof *labels);
    for (size_t t = 0; t < n; t++)
        supervised += labels[t] != LABEL_NONE;
    assert_int_equal(row.supervised, supervised);
}

static void test_ids(void **state)
{
    struct place *p = *state;
    struct data *data =
        open_rows(p, "\xef\xbb\xbf{\"input_ids\":[1,2,3],\"attention_mask\":[1,1,1]}\r\n"
                     "\n  \t\n"
                     "{\"input_ids\":[4,5,6,7],\"labels\":[-100,-100,6,99]}\n"
                     "{\"input_ids\":[8,9],\"labels\":[8,-100]}\n" /* nothing to predict */
                     "{\"input_ids\":[8]}\n"
                     "{\"input_ids\":[]}\n"
                     "{\"input_ids\":[10,11,12,13,14,15,16,17]}\n"
                     "{\"input_ids\":[0,1,2,3,4,5,6],\"labels\":[-100,-100,-100,-100,-100,-100,6]}\n"
                     "{\"text\":\"as well\",\"input_ids\":[20,21]}"); /* no newline at the end */
    assert_int_equal(data_rows(data), 4);
    assert_int_equal(data_longest(data), 6);
    check_row(data, 0, (uint32_t[]){1, 2, 3}, (int32_t[]){2, 3, -100}, 3);
    check_row(data, 1, (uint32_t[]){4, 5, 6, 7}, (int32_t[]){-100, 6, 99, -100}, 4);
    check_row(data, 2, (uint32_t[]){10, 11, 12, 13, 14, 15}, (int32_t[]){11, 12, 13, 14, 15, -100}, 6);
    check_row(data, 3, (uint32_t[]){20, 21}, (int32_t[]){21, -100}, 2);
    struct data_counts n = data_counts(data);
    assert_int_equal(n.rows, 8);
    assert_int_equal(n.kept, 4);
    assert_int_equal(n.unsupervised, 4); /* one of them lost its only label to the cut */
    assert_int_equal(n.truncated, 2);
    assert_int_equal(n.tokens, 15);
    assert_int_equal(n.supervised, 2 + 2 + 5 + 1);
    data_close(data);
    data_close(NULL);
}

static void test_directory(void **state)
{
    struct place *p = *state;
    struct err err = {""};
    write_bytes(p, "{\"input_ids\":[1,2]}\n", 20);
    p->req.path = p->dir;
    struct data *data = NULL;
    assert_int_equal(data_open(&data, &p->req, &err), 0);
    assert_int_equal(data_rows(data), 1);
    data_close(data);
    p->req.split = "valid";
    assert_int_equal(data_open(&data, &p->req, &err), -ENOENT);
    assert_non_null(strstr(err.text, "has neither valid.jsonl nor valid.json; put the valid rows"));
    p->req.path = p->path;
    unlink(p->path);
    assert_int_equal(mkfifo(p->path, 0600), 0); /* is not waited for */
    assert_int_equal(data_open(&data, &p->req, &err), -EINVAL);
    assert_non_null(strstr(err.text, "is not a regular file"));
}

/* What is longer than a row may be, and whether any label is lost with it. */
static void test_overlong(void **state)
{
    struct place *p = *state;
    static const char rows[] =
        "{\"input_ids\":[0,1,2,3,4,5,6,7,8,9,10,11,12]}\n{\"input_ids\":[1,2,3]}\n"
        "{\"input_ids\":[0,1,2,3,4,5,6],\"labels\":[-100,-100,-100,-100,-100,-100,6]}\n";
    p->req.overlong = DATA_SPLIT;
    struct data *data = open_rows(p, rows);
    assert_int_equal(data_rows(data), 5);
    check_row(data, 0, (uint32_t[]){0, 1, 2, 3, 4, 5}, (int32_t[]){1, 2, 3, 4, 5, -100}, 6);
    check_row(data, 1, (uint32_t[]){5, 6, 7, 8, 9, 10}, (int32_t[]){6, 7, 8, 9, 10, -100}, 6);
    check_row(data, 2, (uint32_t[]){10, 11, 12}, (int32_t[]){11, 12, -100}, 3);
    check_row(data, 4, (uint32_t[]){5, 6}, (int32_t[]){6, -100}, 2);
    struct data_counts n = data_counts(data);
    assert_int_equal(n.supervised, 12 + 2 + 1); /* every one there was */
    assert_true(n.rows == 3 && n.split == 2 && n.kept == 5 && !n.lost && !n.truncated && !n.unsupervised);
    assert_int_equal(data_row(data, 2).line, 1);
    assert_int_equal(data_row(data, 4).line, 3);
    data_close(data);

    p->req.overlong = DATA_DROP;
    data = open_rows(p, rows);
    assert_int_equal(data_rows(data), 1);
    check_row(data, 0, (uint32_t[]){1, 2, 3}, (int32_t[]){2, 3, -100}, 3);
    n = data_counts(data);
    assert_true(n.rows == 3 && n.dropped == 2 && n.lost == 20 && n.kept == 1 && !n.split && !n.unsupervised);
    data_close(data);

    p->req.overlong = DATA_TRUNCATE;
    data = open_rows(p, rows);
    n = data_counts(data);
    assert_true(n.truncated == 2 && n.lost == 8 && n.unsupervised == 1 && n.kept == 2);
    data_close(data);
}

/* One array, objects over many lines, and both as the same rows as lines; braces and quotes in
 * texts are nothing. */
static void test_array(void **state)
{
    struct place *p = *state;
    static const char *const files[] = {
        "[{\"input_ids\":[1,2],\"x\":\"}]\\\"{\"},{\"input_ids\":[3,4]}]",
        "\n [\n  {\n \"input_ids\": [\n1,\n2], \"x\": {\"y\": [{}]}\n},\n{\"input_ids\":[3,4]}\n]\n\n",
        "{\n\"input_ids\": [1, 2]\n}\n{\"input_ids\":\n[3,4]}",
    };
    static const size_t lines[][2] = {{1, 1}, {3, 8}, {1, 4}};
    for (size_t i = 0; i < 3; i++) {
        struct data *data = open_rows(p, files[i]);
        assert_int_equal(data_rows(data), 2);
        check_row(data, 0, (uint32_t[]){1, 2}, (int32_t[]){2, -100}, 2);
        check_row(data, 1, (uint32_t[]){3, 4}, (int32_t[]){4, -100}, 2);
        assert_int_equal(data_row(data, 0).line, lines[i][0]);
        assert_int_equal(data_row(data, 1).line, lines[i][1]);
        data_close(data);
    }
    enum { LONG = 300000 }; /* beyond the first buffer */
    char *file = malloc(LONG + 100);
    int n = sprintf(file, "[{\"x\": \"");
    memset(file + n, '{', LONG);
    strcpy(file + n + LONG, "\", \"input_ids\": [5, 6]},\n\n{\"input_ids\": [7, 8]}]");
    struct data *data = open_rows(p, file);
    check_row(data, 1, (uint32_t[]){7, 8}, (int32_t[]){8, -100}, 2);
    assert_int_equal(data_row(data, 1).line, 3);
    data_close(data);
    free(file);
}

/* Many rows, so that every array grows several times. */
static void test_many(void **state)
{
    struct place *p = *state;
    enum { ROWS = 20000 };
    FILE *f = fopen(p->path, "we");
    for (int i = 0; i < ROWS; i++)
        fprintf(f, "{\"input_ids\": [%d, %d, %d]}\n", i % 100, i / 100 % 100, i * 7 % 100);
    assert_int_equal(fclose(f), 0);
    struct data *data = NULL;
    assert_int_equal(data_open(&data, &p->req, NULL), 0);
    assert_int_equal(data_rows(data), ROWS);
    for (int i = 0; i < ROWS; i += 777) {
        uint32_t ids[3] = {(uint32_t)i % 100, (uint32_t)i / 100 % 100, (uint32_t)i * 7 % 100};
        check_row(data, (size_t)i, ids, (int32_t[]){(int32_t)ids[1], (int32_t)ids[2], -100}, 3);
    }
    data_close(data);
}

static void refuse(const struct place *p, const char *rows, int code, const char *part)
{
    struct data *data = NULL;
    struct err err = {""};
    write_bytes(p, rows, strlen(rows));
    int got = data_open(&data, &p->req, &err);
    if (got != code || !strstr(err.text, part) || !strstr(err.text, p->path))
        fail_msg("%d \"%s\": not %d, \"%s\" and the path", got, err.text, code, part);
    assert_null(data);
}

#define GOOD "{\"input_ids\":[1,2]}\n"

static void test_refusals(void **state)
{
    struct place *p = *state;
    refuse(p, "", -ENODATA, "has no rows");
    refuse(p, "{\"input_ids\":[1]}\n", -ENODATA, "none of its 1 rows has a supervised token");
    refuse(p, "It was the best of times.\n", -EBADMSG, ":1: not a JSON object; plain text must be");
    refuse(p, "[" GOOD "," GOOD, -EBADMSG, ":3: the file ends before its array does");
    refuse(p, "[" GOOD GOOD "]", -EBADMSG, ":2: no comma between two objects");
    refuse(p, "[" GOOD ",]", -EBADMSG, ":2: a comma before the end of the array");
    refuse(p, "[" GOOD "] {}", -EBADMSG, ":2: there is more after the end of the array");
    refuse(p, "[" GOOD ", 7]", -EBADMSG, ":2: not a JSON object");
    refuse(p, "[ ]", -ENODATA, "has no rows");
    refuse(p, "{\n\"input_ids\": [1,\n", -EBADMSG, ":1: not a sound JSON object: the file ends within it");
    refuse(p, GOOD "{\"input_ids\":[1,2}\n", -EBADMSG, ":2: not a sound JSON object");
    refuse(p, "{\"question\":\"x\",\"answer\":\"y\"}\n", -EBADMSG,
           ":1: has only the keys \"question\", \"answer\"; a row needs \"text\", \"prompt\" and "
           "\"completion\"");
    refuse(p, "{}\n", -EBADMSG, ":1: has no keys; a row needs");
    refuse(p, GOOD GOOD "{\"words\":[]}\n", -EBADMSG, ":3: has only the keys \"words\"");
    refuse(p, GOOD GOOD "{\"messages\":[]}\n", -EBADMSG,
           ":3: has \"messages\", but line 1 has \"input_ids\"");
    refuse(p, GOOD "\n{\"text\":\"x\"}\n", -EBADMSG, ":3: has \"text\", but line 1 has \"input_ids\"");
    refuse(p, "{\"input_ids\":7}\n", -EBADMSG, ":1: \"input_ids\" must be a list");
    refuse(p, "{\"input_ids\":[1,\"2\"]}\n", -EBADMSG, ":1: entry 1 of \"input_ids\" is not a whole number");
    refuse(p, GOOD "{\"input_ids\":[1,100]}\n", -ERANGE,
           ":2: entry 1 of \"input_ids\" is 100, but the model knows ids 0 to 99");
    refuse(p, "{\"input_ids\":[-1,2]}\n", -ERANGE, "is -1");
    refuse(p, "{\"input_ids\":[1,2],\"labels\":[1,-1]}\n", -ERANGE,
           "entry 1 of \"labels\" is -1, allowed are");
    refuse(p, "{\"input_ids\":[1,2],\"labels\":[1,100]}\n", -ERANGE, "entry 1 of \"labels\" is 100");
    refuse(p, "{\"input_ids\":[1,2],\"labels\":[1,null]}\n", -EBADMSG, "entry 1 of \"labels\"");
    refuse(p, "{\"input_ids\":[1,2],\"labels\":[1]}\n", -EBADMSG, ":1: 1 \"labels\" for 2 \"input_ids\"");
    refuse(p, "{\"input_ids\":[1,2],\"labels\":null}\n", -EBADMSG, ":1: \"labels\" must be a list");
    refuse(p, "{\"text\":\"x\"}\n", -EINVAL, ":1: \"text\" needs the model's tokenizer.json");
    refuse(p, "{\"text\":7}\n", -EBADMSG, ":1: \"text\" must be a string");
    refuse(p, "{\"input_ids\":[1,2],\"input_ids\":[1,2]}\n", -EBADMSG, "duplicate");
    refuse(p, "{\"\\u001b[2J\":1}\n", -EBADMSG, "\"?[2J\"");
    p->req.seq_len = 1;
    struct err err = {""};
    struct data *data = NULL;
    assert_int_equal(data_open(&data, &p->req, &err), -EINVAL);
    assert_non_null(strstr(err.text, "sequence length of 1"));
}

static void test_zeros(void **state)
{
    struct place *p = *state;
    struct data *data = NULL;
    struct err err = {""};
    char zeros[100] = {0};
    write_bytes(p, zeros, sizeof zeros);
    assert_int_equal(data_open(&data, &p->req, &err), -EBADMSG);
    assert_non_null(strstr(err.text, ":1: not a JSON object"));
    assert_int_equal(truncate(p->path, (64 << 20) + 1), 0);
    assert_int_equal(data_open(&data, &p->req, &err), -EFBIG);
    assert_non_null(strstr(err.text, ":1: longer than 64 MiB"));
}

/* --- text ------------------------------------------------------------------------------------- */

/* Every text of the file again through the tokenizer, with EOS where it is missing, against the
 * rows. */
static size_t compare_texts(const struct data *data, const struct data_request *req, const char *path)
{
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    char *line = NULL;
    size_t size = 0, i = 0, cut = 0;
    while (getline(&line, &size, f) > 0) {
        json_t *row = json_loads(line, 0, NULL);
        const char *text = json_string_value(json_object_get(row, "text"));
        uint32_t *ids;
        size_t n;
        assert_int_equal(tokenizer_encode(req->tok, text, strlen(text), true, &ids, &n, NULL), 0);
        struct data_row got = data_row(data, i++);
        size_t whole = n + (ids[n - 1] != (uint32_t)req->eos),
               kept = whole < req->seq_len ? whole : req->seq_len;
        assert_int_equal(got.n, kept);
        assert_memory_equal(got.ids, ids, (kept < n ? kept : n) * sizeof *ids);
        if (kept == whole)
            assert_int_equal(got.ids[kept - 1], req->eos);
        for (size_t t = 0; t + 1 < kept; t++)
            assert_int_equal(got.labels[t], got.ids[t + 1]);
        assert_int_equal(got.labels[kept - 1], LABEL_NONE);
        cut += whole > kept;
        free(ids);
        json_decref(row);
    }
    assert_int_equal(data_rows(data), i);
    free(line);
    fclose(f);
    return cut;
}

static void test_texts(void **state)
{
    (void)state;
    static const char model[] = "tests/data/models/llama", dir[] = "tests/data/datasets/tables";
    struct err err = {""};
    struct tokenizer *tok = NULL;
    struct data *data = NULL;
    if (tokenizer_open(&tok, model, &err) < 0)
        fail_msg("%s", err.text);
    struct data_request req = {
        .path = dir, .split = "valid", .tok = tok, .seq_len = 150, .vocab = 512, .eos = 2};
    if (data_open(&data, &req, &err) < 0)
        fail_msg("%s", err.text);
    size_t cut = compare_texts(data, &req, "tests/data/datasets/tables/valid.jsonl");
    assert_true(cut > 0 && cut < data_rows(data));
    assert_int_equal(data_counts(data).truncated, cut);
    assert_int_equal(data_row(data, 0).ids[0], 1); /* BOS */
    data_close(data);
    data = NULL;
    req.vocab = 100; /* a model that is too small for this tokenizer */
    assert_int_equal(data_open(&data, &req, &err), -ERANGE);
    assert_non_null(strstr(err.text, "valid.jsonl:1: the tokenizer gives id"));
    tokenizer_close(tok);
}

#define PLACED(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        PLACED(test_ids),   PLACED(test_directory),       PLACED(test_many),     PLACED(test_refusals),
        PLACED(test_zeros), cmocka_unit_test(test_texts), PLACED(test_overlong), PLACED(test_array),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
