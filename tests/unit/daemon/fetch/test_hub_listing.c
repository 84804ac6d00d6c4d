/* SPDX-License-Identifier: MIT
 *
 * What is taken of a hub's list of files, of its headers, and of names of models: enemies'
 * included. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/common/model/model_name.h"
#include "daemon/fetch/hub_headers.h"
#include "daemon/fetch/hub_listing.h"

#define COMMIT "0123456789abcdef0123456789abcdef01234567"
#define SHA256 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static int read_files(struct hub_listing *l, const char *files, struct err *err)
{
    char text[4096];
    snprintf(text, sizeof text, "{\"sha\":\"" COMMIT "\",\"siblings\":[%s]}", files);
    return hub_listing_read(l, text, strlen(text), err);
}

static void what_a_model_needs_is_wanted(void **state)
{
    struct hub_listing l;
    struct err err;
    (void)state;
    assert_int_equal(
        read_files(&l,
                   "{\"rfilename\":\"config.json\",\"size\":5,\"blobId\":\"" COMMIT "\"},"
                   "{\"rfilename\":\"README.md\"},{\"rfilename\":\"pytorch_model.bin\"},"
                   "{\"rfilename\":\"onnx/model.safetensors\"},"
                   "{\"rfilename\":\"model.safetensors\",\"lfs\":{\"size\":9,\"sha256\":\"" SHA256 "\"}},"
                   "{\"rfilename\":\"consolidated.safetensors\"}",
                   &err),
        0);
    assert_int_equal(hub_listing_choose(&l, NULL, 0, &err), 0);
    assert_int_equal(l.n, 2);
    const struct hub_file *weights = hub_listing_find(&l, "model.safetensors"),
                          *config = hub_listing_find(&l, "config.json");
    assert_int_equal(weights->kind, HUB_HASH_SHA256);
    assert_int_equal(weights->size, 9);
    assert_int_equal(config->kind, HUB_HASH_GIT);
    assert_string_equal(l.commit, COMMIT);
    hub_listing_done(&l);
}

static void an_index_says_which_weights(void **state)
{
    static const char index[] =
        "{\"weight_map\":{\"a\":\"model-1.safetensors\",\"b\":\"model-1.safetensors\"}}",
                      outside[] = "{\"weight_map\":{\"a\":\"../../etc/x.safetensors\"}}";
    static const char files[] = "{\"rfilename\":\"config.json\"},{\"rfilename\":\"model-1.safetensors\"},"
                                "{\"rfilename\":\"model-2.safetensors\"}";
    struct hub_listing l;
    struct err err;
    (void)state;
    assert_int_equal(read_files(&l, files, &err), 0);
    assert_int_equal(hub_listing_choose(&l, index, sizeof index - 1, &err), 0);
    assert_non_null(hub_listing_find(&l, "model-1.safetensors"));
    assert_null(hub_listing_find(&l, "model-2.safetensors"));
    hub_listing_done(&l);
    assert_int_equal(read_files(&l, files, &err), 0);
    assert_int_equal(hub_listing_choose(&l, outside, sizeof outside - 1, &err), -EBADMSG);
    hub_listing_done(&l);
}

static void pickles_are_named(void **state)
{
    struct hub_listing l;
    struct err err;
    (void)state;
    assert_int_equal(
        read_files(&l, "{\"rfilename\":\"config.json\"},{\"rfilename\":\"pytorch_model.bin\"}", &err), 0);
    assert_int_equal(hub_listing_choose(&l, NULL, 0, &err), -ENOENT);
    assert_non_null(strstr(err.text, ".bin"));
    hub_listing_done(&l);
}

static void hostile_lists_are_refused(void **state)
{
    static const char *const lists[] = {
        "{\"rfilename\":\"../config.json\"}",
        "{\"rfilename\":\"/etc/config.json\"}",
        "{\"rfilename\":\"a/../../config.json\"}",
        "{\"rfilename\":\"a\\\\config.json\"}",
        "{\"rfilename\":\"con\\u001bfig.json\"}",
        "{\"rfilename\":\"\"}",
        "{\"rfilename\":7}",
        "{}",
        "{\"rfilename\":\"config.json\",\"size\":-1}",
        "{\"rfilename\":\"config.json\",\"size\":99999999999999999}",
        "{\"rfilename\":\"config.json\"},{\"rfilename\":\"config.json\"}",
    };
    (void)state;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        struct hub_listing l;
        struct err err = {""};
        if (read_files(&l, lists[i], &err) != -EBADMSG || !*err.text)
            fail_msg("taken: %s", lists[i]);
    }
}

static void files_have_a_cap(void **state)
{
    struct hub_listing l;
    struct err err;
    char *text = NULL;
    size_t size;
    (void)state;
    FILE *f = open_memstream(&text, &size);
    fputs("{\"sha\":\"" COMMIT "\",\"siblings\":[{\"rfilename\":\"config.json\"}", f);
    for (int i = 0; i < HUB_FILES_MAX; i++)
        fprintf(f, ",{\"rfilename\":\"m%d.safetensors\"}", i);
    fputs("]}", f);
    fclose(f);
    assert_int_equal(hub_listing_read(&l, text, size, &err), -EBADMSG);
    free(text);
}

static void take(struct hub_headers *h, const char *line)
{
    assert_true(hub_headers_take(h, line, strlen(line)));
}

static void the_hubs_own_word_counts(void **state)
{
    struct hub_headers h = {.status = 0};
    struct hub_file file = {.name = "x"};
    (void)state;
    take(&h, "HTTP/1.1 302 Found\r\n");
    take(&h, "x-linked-etag: \"" SHA256 "\"\r\n");
    take(&h, "ETag: \"other\"\r\n");
    take(&h, "X-Linked-Size: 77\r\n");
    take(&h, "Content-Length: 5\r\n");
    take(&h, "X-Repo-Commit: " COMMIT "\r\n");
    take(&h, "Retry-After: 7\r\n");
    take(&h, "X-Error-Message: no \x1b[31mentry\r\n");
    assert_int_equal(h.status, 302);
    assert_int_equal(h.size, 77);
    assert_int_equal(h.retry_after_s, 7);
    assert_string_equal(h.commit, COMMIT);
    assert_null(strchr(h.message, '\x1b'));
    assert_true(hub_hash_read(&file, h.etag));
    assert_int_equal(file.kind, HUB_HASH_SHA256);
    take(&h, "HTTP/1.1 206 Partial Content\r\n");
    take(&h, "Content-Range: bytes 100-199/300\r\n");
    assert_true(h.has_range && h.from == 100 && h.total == 300 && !*h.etag);
    take(&h, "Content-Range: bytes x-y/z\r\n");
    assert_false(h.has_range);
    while (h.bytes < HUB_HEADERS_MAX - 100)
        take(&h, "X-More: of the same, again and again\r\n");
    assert_false(hub_headers_take(&h,
                                  "X-More: of the same, again and again, for as long as there is anybody who "
                                  "reads a line of it",
                                  100));
}

static void names_stay_in_their_folder(void **state)
{
    static const char *const wrong[] = {"a",      "/a/b",   "a/b/c", "../b",  "a/..",     "a/.b",      "a/b@",
                                        "a/b@/x", "a/b@..", "a b/c", "a/b\n", "-a/b@x@y", "a/b@x/../y"};
    struct model_name n;
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (!model_name_read(&n, wrong[i], NULL))
            fail_msg("taken: %s", wrong[i]);
    assert_int_equal(model_name_read(&n, "Org-1/Na.me_2@refs/pr/3", NULL), 0);
    assert_string_equal(n.revision, "refs/pr/3");
    assert_int_equal(model_name_read(&n, "a/b", NULL), 0);
    assert_string_equal(n.revision, "main");
    assert_true(model_name_is_exact("a/b@" COMMIT));
    assert_false(model_name_is_exact("a/b@main"));
    assert_false(model_name_is("/srv/model"));
    assert_false(model_name_is("./a/b"));
    assert_false(model_name_is("a/b/c"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_model_needs_is_wanted),
        cmocka_unit_test(an_index_says_which_weights),
        cmocka_unit_test(pickles_are_named),
        cmocka_unit_test(hostile_lists_are_refused),
        cmocka_unit_test(files_have_a_cap),
        cmocka_unit_test(the_hubs_own_word_counts),
        cmocka_unit_test(names_stay_in_their_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
