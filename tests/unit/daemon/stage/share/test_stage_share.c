/* SPDX-License-Identifier: MIT
 *
 * A model that is on this node in part: which blocks a rank lacks, and that nobody reads a hole as
 * numbers. */
#include <errno.h>
#include <fcntl.h>
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

#include "daemon/stage/share/stage_share.h"
#include "daemon/stage/share/stage_travel.h"
#include "engine/file/have_map.h"

#define MODEL "org/name@0123456789abcdef0123456789abcdef01234567"
#define MIB (UINT64_C(1) << 20)
enum { LAYERS = 4, BLOCKS = 7 };

/* embed_tokens of 6 MiB, four layers of 5 MiB with a norm of 4 KiB each, and a norm at the end. */
struct place {
    char dir[64];
    int was; /* owned: the folder that this process was in */
};

static const struct config config = {.layers = LAYERS, .tied = true};

static size_t add(char *to, size_t size, const char *name, uint64_t *at, uint64_t bytes)
{
    const uint64_t from = *at;
    *at += bytes;
    return (size_t)snprintf(to, size,
                            "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[%llu],\"data_offsets\":[%llu,%llu]}",
                            from ? "," : "{", name, (unsigned long long)bytes / 4, (unsigned long long)from,
                            (unsigned long long)*at);
}

static uint64_t write_weights(void)
{
    char head[2000], name[80];
    uint64_t at = 0, n = add(head, sizeof head, "model.embed_tokens.weight", &at, 6 * MIB);
    for (int l = 0; l < LAYERS; l++) {
        snprintf(name, sizeof name, "model.layers.%d.mlp.up_proj.weight", l);
        n += add(head + n, sizeof head - n, name, &at, 5 * MIB);
        snprintf(name, sizeof name, "model.layers.%d.input_layernorm.weight", l);
        n += add(head + n, sizeof head - n, name, &at, 4096);
    }
    n += add(head + n, sizeof head - n, "model.norm.weight", &at, 4096);
    head[n++] = '}';
    const int fd = open(MODEL "/model.safetensors", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, &n, 8), 8);
    assert_int_equal(write(fd, head, n), n);
    assert_int_equal(ftruncate(fd, (off_t)(8 + n + at)), 0);
    close(fd);
    return 8 + n + at;
}

static void have(const char *blocks)
{
    struct have_map *map;
    char content[65] = "";
    memset(content, 'a', 64);
    unlink(MODEL "/model.safetensors" HAVE_ENDING);
    assert_int_equal(have_map_open(&map, AT_FDCWD, MODEL "/model.safetensors", content, BLOCKS), 0);
    for (; *blocks; blocks++)
        assert_int_equal(have_map_set(map, (uint32_t)(*blocks - '0')), 0);
    have_map_close(map);
}

static int open_place(void **state)
{
    struct place *p = calloc(1, sizeof *p);
    strcpy(p->dir, "/tmp/test_stage_share.XXXXXX");
    p->was = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    *state = p;
    if (!mkdtemp(p->dir) || chdir(p->dir) || mkdir("org", 0700) || mkdir(MODEL, 0700))
        return -1;
    assert_in_range(write_weights(), 6 * (4 * MIB), 7 * (4 * MIB));
    return 0;
}

static int close_place(void **state)
{
    struct place *p = *state;
    unlink(MODEL "/model.safetensors");
    unlink(MODEL "/model.safetensors" HAVE_ENDING);
    int r = rmdir(MODEL) || rmdir("org") || fchdir(p->was) || rmdir(p->dir);
    close(p->was);
    free(p);
    return r;
}

static long long size_of_weights(void)
{
    struct stat st;
    assert_int_equal(stat(MODEL "/model.safetensors", &st), 0);
    return st.st_size;
}

static void lacks(const struct share_ask *ask, const char *expected)
{
    struct err err = {""};
    json_t *list;
    assert_int_equal(share_lacks(&list, MODEL, ask, &err), 0);
    char *text = json_dumps(list, JSON_COMPACT);
    assert_string_equal(text, expected);
    free(text);
    json_decref(list);
}

static void rank_lacks(uint32_t rank, const char *expected)
{
    const struct job_plan plan = {.ranks = 3, .stages = 3, .place = {0, 1, 2}, .first = {0, 1, 3, 4}};
    struct share_want want;
    struct err err;
    assert_int_equal(share_want_init(&want, &plan, &config, rank, &err), 0);
    lacks(&(struct share_ask){share_wants, share_wants_lower, &want}, expected);
    share_want_done(&want);
}

#define RUN(first, end) "[\"model.safetensors\"," #first "," #end "]"
#define LOWER(first, end) "[\"model.safetensors\"," #first "," #end ",true]"

/* Embedding in 0–1, layer 0 in 1–2, 1 in 2–4, 2 in 4–5, 3 in 5–6, the norm in 6; in MiB: 0–6, 6–11,
 * 11–16, 16–21, 21–26. */
static void each_rank_lacks_what_its_tensors_touch(void **state)
{
    (void)state;
    have("0");
    rank_lacks(0, "[" RUN(0, 3) "]");
    rank_lacks(1, "[" LOWER(2, 3) "," RUN(3, 6) "]");
    rank_lacks(2, "[" LOWER(0, 2) "," LOWER(5, 6) "," RUN(6, 7) "]"); /* its head is the embedding */
    lacks(&(struct share_ask){.want = NULL}, "[" RUN(0, 7) "]");
}

static void what_is_here_is_not_lacking(void **state)
{
    (void)state;
    have("0123");
    rank_lacks(0, "[]");
    rank_lacks(1, "[" LOWER(2, 3) "," RUN(
                      3, 6) "]"); /* what else a tensor touches that is here in part is asked for too */
    have("0123456");
    rank_lacks(1, "[]");
    rank_lacks(2, "[]");
    unlink(MODEL "/model.safetensors" HAVE_ENDING);
    lacks(&(struct share_ask){.want = NULL}, "[]");
}

/* Whatever is here: who asks does not know what other nodes have. */
static void the_plan_asks_about_all_that_its_ranks_touch(void **state)
{
    struct job_plan plan = {.ranks = 3, .stages = 3, .place = {0, 1, 2}, .first = {0, 1, 3, 4}};
    json_t *nodes = json_pack("[{s:s} {s:s} {s:s}]", "id", "aa", "id", "bb", "id", "cc"), *question;
    struct st *heads;
    struct err err = {""};
    (void)state;
    strcpy(plan.model, MODEL);
    have("0123");
    assert_int_equal(st_open_heads(&heads, MODEL, &err), 0);
    assert_int_equal(stage_travel_question(&question, heads, &plan, &config, NULL, nodes, &err), 0);
    st_close(heads);
    char *shares = json_dumps(json_object_get(question, "shares"), JSON_COMPACT),
         *ids = json_dumps(json_object_get(question, "nodes"), JSON_COMPACT);
    assert_string_equal(shares, "[[" RUN(0, 3) "],[" RUN(2, 6) "],[" RUN(0, 2) "," RUN(5, 7) "]]");
    assert_string_equal(ids, "[\"aa\",\"bb\",\"cc\"]");
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(question, "sizes"), "model.safetensors")),
        size_of_weights());
    assert_null(json_object_get(question, "draft"));
    free(shares);
    free(ids);
    json_decref(question);
    json_decref(nodes);
}

/* It is for rank 0 alone, and all of it. */
static void the_plan_asks_about_a_draft_model_too(void **state)
{
    struct job_plan plan = {.ranks = 2, .stages = 2, .place = {0, 1}, .first = {0, 2, 4}};
    json_t *nodes = json_pack("[{s:s} {s:s}]", "id", "aa", "id", "bb"), *question;
    struct st *heads;
    struct err err = {""};
    (void)state;
    strcpy(plan.model, MODEL);
    have("0123");
    assert_int_equal(st_open_heads(&heads, MODEL, &err), 0);
    assert_int_equal(stage_travel_question(&question, heads, &plan, &config, MODEL, nodes, &err), 0);
    st_close(heads);
    char *draft = json_dumps(json_object_get(json_object_get(question, "draft"), "shares"), JSON_COMPACT);
    assert_string_equal(draft, "[[" RUN(0, 7) "],[]]");
    free(draft);
    json_decref(question);
    strcpy(plan.model, "/srv/model"); /* which comes to no node */
    assert_false(stage_travel_concerns(&plan));
    assert_int_equal(stage_travel_question(&question, NULL, &plan, &config, MODEL, nodes, &err), 0);
    assert_string_equal(json_string_value(json_object_get(question, "model")), MODEL);
    assert_int_equal(json_array_size(json_object_get(question, "shares")), 2);
    json_decref(question);
    assert_int_equal(stage_travel_question(&question, NULL, &plan, &config, "/srv/draft", nodes, &err), 0);
    assert_null(question);
    json_decref(nodes);
}

/* As above, by unit: what stands behind the last layer is no matter of layers. */
static void each_unit_touches_its_blocks(void **state)
{
    struct err err = {""};
    struct st *heads;
    (void)state;
    have("0");
    assert_int_equal(st_open_heads(&heads, MODEL, &err), 0);
    json_t *units = share_units(heads, config.layers);
    char *text = json_dumps(units, JSON_COMPACT);
    assert_string_equal(text, "[[" RUN(0, 2) "],[" RUN(1, 3) "],[" RUN(2, 5) "],[" RUN(4, 6) "],[" RUN(
                                  5, 7) "],[" RUN(6, 7) "]]");
    free(text);
    json_decref(units);
    st_close(heads);
}

static bool wants_layer_0(void *arg, const char *name)
{
    (void)arg;
    return strstr(name, "layers.0.");
}

static void nobody_reads_a_hole(void **state)
{
    struct st *st;
    struct err err = {""};
    (void)state;
    have("012456");
    assert_int_equal(st_open_dir(&st, MODEL, NULL, NULL, &err), -ENODATA);
    assert_non_null(strstr(err.text, "is on this node in part, and model.layers.1."));
    assert_int_equal(st_open_dir(&st, MODEL, wants_layer_0, NULL, &err), 0);
    assert_non_null(st_find(st, "model.layers.0.mlp.up_proj.weight")->data);
    assert_null(st_find(st, "model.layers.1.mlp.up_proj.weight")->data);
    st_close(st);
    have("0");
    assert_int_equal(st_open_dir(&st, MODEL, wants_layer_0, NULL, &err), -ENODATA);
}

/* What is only timed has the same shapes, and numbers where choices are made of them. */
static void what_is_timed_has_stand_ins(void **state)
{
    struct st *st;
    struct err err = {""};
    (void)state;
    have("0");
    assert_int_equal(st_map_stand_in(&st, MODEL, wants_layer_0, NULL, NULL, &err), 0);
    const struct st_tensor *norm = st_find(st, "model.layers.0.input_layernorm.weight"),
                           *up = st_find(st, "model.layers.0.mlp.up_proj.weight");
    /* in this file all are of one dimension */
    for (size_t i = 0; i < norm->elements; i++)
        assert_true(((const float *)norm->data)[i] != 0 && ((const float *)norm->data)[i] < 1 &&
                    ((const float *)norm->data)[i] > -1);
    assert_non_null(up->data);
    st_close(st);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_rank_lacks_what_its_tensors_touch, open_place, close_place),
        cmocka_unit_test_setup_teardown(what_is_here_is_not_lacking, open_place, close_place),
        cmocka_unit_test_setup_teardown(the_plan_asks_about_all_that_its_ranks_touch, open_place,
                                        close_place),
        cmocka_unit_test_setup_teardown(the_plan_asks_about_a_draft_model_too, open_place, close_place),
        cmocka_unit_test_setup_teardown(each_unit_touches_its_blocks, open_place, close_place),
        cmocka_unit_test_setup_teardown(nobody_reads_a_hole, open_place, close_place),
        cmocka_unit_test_setup_teardown(what_is_timed_has_stand_ins, open_place, close_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
