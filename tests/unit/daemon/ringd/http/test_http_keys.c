/* SPDX-License-Identifier: MIT
 *
 * Keys of clients: what they open, how often, and what is kept of them; and pages of other origins
 * that may ask with one. */
#include "daemon/ringd/http/http_keys.h"
#include "tests/unit/daemon/ringd/http/http_world.h"

static char key[CLIENT_KEY_ROOM];

static void make_key(struct fixture *f, const char *name, unsigned rate)
{
    struct err err;
    if (http_add_key(f->http, name, rate, key, &err))
        fail_msg("%s", err.text);
}

/* A request with that key, and more headers. */
static void try_key(struct fixture *f, const char *line, const char *more, const char *body,
                    const char *status, const char *has)
{
    char request[1024];
    snprintf(request, sizeof request,
             "%s HTTP/1.1\r\n" HOST "Authorization: Bearer %s\r\nContent-Length: %zu\r\n%s\r\n%s", line, key,
             strlen(body), more, body);
    expect(dial_tcp(f), request, status, has);
}

static void a_key_opens_what_is_served_alone(void **state)
{
    struct fixture *f = *state;
    make_key(f, "phone", 0);
    try_key(f, "POST /x", "Content-Type: application/json\r\n", "{}", "200",
            "write=0 read=0 n=2 body={} serve=1");
    try_key(f, "POST /x", "", "{}", "403", "application/json");
    char header[256];
    snprintf(header, sizeof header, "GET /x HTTP/1.1\r\n" HOST "X-Api-Key: %s\r\n\r\n", key);
    expect(dial_tcp(f), header, "200", "write=0 read=0 n=0 body= serve=1");
    key[10] ^= 1;
    try_key(f, "POST /x", "Content-Type: application/json\r\n", "{}", "401", "ringctl key add");
    key[10] ^= 1;
    struct err err;
    assert_int_equal(http_remove_key(f->http, "phone", &err), 0);
    try_key(f, "POST /x", "Content-Type: application/json\r\n", "{}", "401", "ringctl key add");
    assert_int_equal(http_remove_key(f->http, "phone", &err), -ENOENT);
}

static void listed_origins_may_read_answers(void **state)
{
    struct fixture *f = *state;
    make_key(f, "page", 0);
    try_key(f, "POST /x", "Content-Type: application/json\r\nOrigin: https://chat.example\r\n", "{}", "200",
            "Access-Control-Allow-Origin: https://chat.example");
    try_key(f, "POST /x", "Content-Type: application/json\r\nOrigin: https://chat.example\r\n", "{}", "200",
            "Vary: Origin");
    try_key(f, "POST /x", "Content-Type: application/json\r\nOrigin: https://chat.example.evil\r\n", "{}",
            "403", "foreign-origin");
    expect(dial_tcp(f),
           "OPTIONS /x HTTP/1.1\r\n" HOST "Origin: https://chat.example\r\n"
           "Access-Control-Request-Headers: authorization\r\n\r\n",
           "204", "Access-Control-Allow-Headers: authorization");
    expect(dial_tcp(f), "OPTIONS /x HTTP/1.1\r\n" HOST "Origin: https://evil.example\r\n\r\n", "403",
           "foreign-origin");
    expect(dial_tcp(f), "GET /x HTTP/1.1\r\n" HOST "Origin: https://chat.example\r\n\r\n", "200", "serve=0");
    key[10] ^= 1; /* the page sees why it is refused */
    try_key(f, "POST /x", "Content-Type: application/json\r\nOrigin: https://chat.example\r\n", "{}", "401",
            "Access-Control-Allow-Origin: https://chat.example");
}

static struct instant at(uint64_t seconds)
{
    return (struct instant){.us = (int64_t)(seconds + 1000) * 1000000};
}

static void a_rate_is_kept(void **state)
{
    struct client_keys k;
    struct err err;
    (void)state;
    assert_int_equal(client_keys_open(&k, NULL, &err), 0);
    assert_int_equal(client_keys_add(&k, "a", 6, key, &err), 0);
    for (int i = 0; i < 6; i++)
        assert_int_equal(client_keys_take(&k, "a", at(0)), 0);
    assert_int_equal(client_keys_take(&k, "a", at(0)), 10);
    assert_int_equal(client_keys_take(&k, "a", at(4)), 6);
    assert_int_equal(client_keys_take(&k, "a", at(10)), 0);
    assert_int_equal(client_keys_take(&k, "a", at(10)), 10);
    for (int i = 0; i < 6; i++) /* no more than a minute's are saved up */
        assert_int_equal(client_keys_take(&k, "a", at(10000)), 0);
    assert_int_not_equal(client_keys_take(&k, "a", at(10000)), 0);
    assert_int_equal(client_keys_take(&k, "gone", at(0)), 0);
    client_keys_done(&k);
}

static void the_file_has_no_key(void **state)
{
    struct fixture *f = *state;
    struct client_keys k;
    struct err err;
    char path[160], text[4096] = "";
    make_key(f, "phone", 7);
    snprintf(path, sizeof path, "%s/keys", f->dir);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_true(fread(text, 1, sizeof text - 1, file) > 0);
    fclose(file);
    assert_null(strstr(text, key + 6));
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(client_keys_open(&k, strdup(path), &err), 0);
    assert_string_equal(client_keys_find(&k, key)->name, "phone");
    assert_null(client_keys_find(&k, "ringd-"));
    assert_null(client_keys_find(&k, ""));
    client_keys_done(&k);
    file = fopen(path, "w");
    fputs("{\"clients\":[{\"name\":\"../x\",\"hash\":\"00\",\"rate\":1}]}", file);
    fclose(file);
    assert_int_equal(client_keys_open(&k, strdup(path), &err), -EBADMSG);
    assert_non_null(strstr(err.text, "is damaged"));
    unlink(path);
}

static void names_and_numbers_are_bounded(void **state)
{
    struct client_keys k;
    struct err err;
    char name[32];
    (void)state;
    assert_int_equal(client_keys_open(&k, NULL, &err), 0);
    assert_int_equal(client_keys_add(&k, "a/b", 0, key, &err), -EINVAL);
    assert_int_equal(client_keys_add(&k, "", 0, key, &err), -EINVAL);
    for (int i = 0; i < CLIENTS_MAX; i++) {
        snprintf(name, sizeof name, "c%d", i);
        assert_int_equal(client_keys_add(&k, name, 0, key, &err), 0);
    }
    assert_int_equal(client_keys_add(&k, "c3", 0, key, &err), -EEXIST);
    assert_int_equal(client_keys_add(&k, "more", 0, key, &err), -ENOSPC);
    assert_int_equal(client_keys_remove(&k, "c3", &err), 0);
    assert_int_equal(client_keys_add(&k, "more", 0, key, &err), 0);
    client_keys_done(&k);
}

/* One node tells another what it has. */
static bool tell(const struct client_keys *from, struct client_keys *to)
{
    json_t *list = client_keys_tell(from);
    struct err err;
    bool news;
    if (client_keys_merge(to, list, &news, &err))
        fail_msg("%s", err.text);
    json_decref(list);
    return news;
}

static void nodes_have_the_same_keys(void **state)
{
    struct client_keys a, b;
    struct err err;
    char second[CLIENT_KEY_ROOM];
    (void)state;
    assert_int_equal(client_keys_open(&a, NULL, &err), 0);
    assert_int_equal(client_keys_open(&b, NULL, &err), 0);
    assert_int_equal(client_keys_add(&a, "phone", 6, key, &err), 0);
    assert_true(tell(&a, &b));
    assert_string_equal(client_keys_find(&b, key)->name, "phone");
    assert_int_equal(client_keys_find(&b, key)->rate, 6);
    assert_false(tell(&a, &b));
    assert_false(tell(&b, &a));
    assert_int_equal(client_keys_remove(&b, "phone", &err), 0);
    assert_false(tell(&a, &b)); /* what is gone does not come back from who has not heard of it */
    assert_null(client_keys_find(&b, key));
    assert_true(tell(&b, &a));
    assert_null(client_keys_find(&a, key));
    json_t *shown = client_keys_show(&a);
    assert_int_equal(json_array_size(shown), 0);
    json_decref(shown);
    assert_int_equal(client_keys_add(&a, "phone", 0, second, &err), 0); /* within the same millisecond, too */
    assert_true(tell(&a, &b));
    assert_non_null(client_keys_find(&b, second));
    client_keys_done(&a);
    client_keys_done(&b);
}

/* Each has given the name away while they did not see each other: one key is left, on both. */
static void one_of_two_keys_of_a_name_stays(void **state)
{
    struct client_keys a, b;
    struct err err;
    char other[CLIENT_KEY_ROOM];
    (void)state;
    assert_int_equal(client_keys_open(&a, NULL, &err), 0);
    assert_int_equal(client_keys_open(&b, NULL, &err), 0);
    assert_int_equal(client_keys_add(&a, "phone", 0, key, &err), 0);
    assert_int_equal(client_keys_add(&b, "phone", 0, other, &err), 0);
    assert_int_equal(tell(&a, &b) + tell(&b, &a), 1);
    assert_int_equal(!client_keys_find(&a, key) + !client_keys_find(&a, other), 1);
    assert_int_equal(!client_keys_find(&a, key), !client_keys_find(&b, key));
    client_keys_done(&a);
    client_keys_done(&b);
}

static void nonsense_changes_nothing(void **state)
{
    static const char *const lists[] = {"[1]", "[{\"name\":\"../x\",\"changed\":1,\"gone\":true}]",
                                        "[{\"name\":\"x\",\"changed\":1,\"hash\":\"00\",\"rate\":1}]",
                                        "[{\"name\":\"x\",\"changed\":-1,\"gone\":true}]",
                                        "[{\"name\":\"x\",\"changed\":9223372036854775807,\"gone\":true}]"};
    struct client_keys k;
    struct err err;
    bool news;
    (void)state;
    assert_int_equal(client_keys_open(&k, NULL, &err), 0);
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        json_t *list = json_loads(lists[i], 0, NULL);
        assert_int_equal(client_keys_merge(&k, list, &news, &err), -EBADMSG);
        json_decref(list);
    }
    client_keys_done(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_key_opens_what_is_served_alone, set_up, tear_down),
        cmocka_unit_test_setup_teardown(listed_origins_may_read_answers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_file_has_no_key, set_up, tear_down),
        cmocka_unit_test(a_rate_is_kept),
        cmocka_unit_test(nodes_have_the_same_keys),
        cmocka_unit_test(one_of_two_keys_of_a_name_stays),
        cmocka_unit_test(nonsense_changes_nothing),
        cmocka_unit_test(names_and_numbers_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
