/* SPDX-License-Identifier: MIT
 *
 * Parts of a model that nodes carry to each other: only what is wanted comes, from who has it. */
#include "daemon/fetch/carry/carry_disk.h"
#include "tests/unit/daemon/fetch/carry_checks.h"

/* --- a part of it ----------------------------------------------------------------------------- */

/* Bytes of the weights that are on the disk, and have to be there. */
static uint64_t taken_on_disk(int dir)
{
    struct stat st;
    assert_int_equal(fstatat(dir, CARRY_MODEL "/model.safetensors", &st, 0), 0);
    assert_int_equal(st.st_size, WEIGHTS);
    return (uint64_t)st.st_blocks * 512;
}

static void assert_is_sound(int dir)
{
    struct err err = {""};
    if (verify_model(dir, CARRY_MODEL, no_progress, NULL, &err))
        fail_msg("%s", err.text);
}

static void assert_is_in_part(int dir, uint32_t blocks)
{
    assert_true(models_has_name(dir, CARRY_MODEL));
    assert_false(models_is_whole(dir, CARRY_MODEL));
    assert_is_sound(dir);
    assert_true(taken_on_disk(dir) >= (uint64_t)blocks * BLOCK_BYTES);
    assert_true(taken_on_disk(dir) < (uint64_t)(blocks + 2) * BLOCK_BYTES); /* and the head */
    json_t *list = models_list(dir), *m = json_array_get(list, 0);
    assert_int_equal(json_array_size(list), 1);
    assert_false(json_is_true(json_object_get(m, "whole")));
    assert_in_range(json_integer_value(json_object_get(m, "here")), (uint64_t)blocks * BLOCK_BYTES,
                    (uint64_t)blocks * BLOCK_BYTES + 100);
    json_decref(list);
}

static void only_what_is_wanted_is_taken(void **state)
{
    struct carry_world *w = *state;
    struct carry_node n;
    struct carry_peer from;
    const int dir = carry_world_folder(w, 'b');
    carry_node_start_for(&n, dir, w->content, 0, 0);
    carry_peer_open(&from, w, &n, true);
    serve(&from, 1, &n, "ready");
    assert_int_equal(from.wanted, OUTLINE);
    assert_int_equal(from.asked[HEAD], 1);
    assert_is_in_part(dir, 0);
    carry_peer_close(&from);

    carry_node_want(&n, 5, 7); /* of the same process */
    carry_peer_open(&from, w, &n, true);
    serve(&from, 1, &n, "ready");
    assert_int_equal(from.wanted, 2);
    assert_true(from.asked[1 + 5] && from.asked[1 + 6]);
    assert_is_in_part(dir, 2);
    carry_peer_close(&from);
    carry_node_stop(&n);

    carry_node_start(&n, dir, w->content, PATIENT, 0); /* and of a later one: the rest */
    carry_peer_open(&from, w, &n, true);
    serve(&from, 1, &n, "ready");
    assert_int_equal(from.wanted, BLOCKS - OUTLINE - 2);
    assert_is_whole(w, dir);
    end_all(&from, 1, &n, dir);
}

static void a_block_is_asked_of_who_has_it(void **state)
{
    struct carry_world *w = *state;
    struct carry_node n;
    struct carry_peer from[2];
    const int dir = carry_world_folder(w, 'b');
    carry_node_start(&n, dir, w->content, PATIENT, 0);
    for (int i = 0; i < 2; i++) {
        carry_peer_open(&from[i], w, &n, true);
        memset(from[i].has, 0, sizeof from[i].has);
        from[i].has[0] = i ? 0xaa : 0x55;
        from[i].has[1] = 0xff;
    }
    serve(from, 2, &n, "ready");
    for (uint32_t b = 0; b < 8; b++)
        assert_int_equal(from[b % 2].asked[b], 1);
    assert_is_whole(w, dir);
    end_all(from, 2, &n, dir);
}

static void what_nobody_has_is_not_waited_for(void **state)
{
    struct carry_world *w = *state;
    struct carry_node n;
    struct carry_peer from;
    const int dir = carry_world_folder(w, 'b');
    carry_node_start(&n, dir, w->content, IMPATIENT, 0);
    carry_peer_open(&from, w, &n, true);
    from.has[0] = 0xf7;
    json_t *event = carry_peers_serve(&from, 1, &n, "room");
    json_decref(event);
    carry_node_say_room(&n, NULL);
    carry_peer_serve_wants(&from, BLOCKS - 1);
    assert_failed_meanwhile(&from, &n, -EHOSTUNREACH, "has what is missing");
    end_all(&from, 1, &n, dir);
}

/* The length that a node gives of a head may be wrong: only the hash shows that. */
static void a_wrong_head_costs_its_source_the_lane(void **state)
{
    struct carry_world *w = *state;
    struct carry_node n;
    struct carry_peer from[2];
    const int dir = carry_world_folder(w, 'b');
    const uint8_t little[HEAD_LENGTH] = {100}, less[HEAD_LENGTH] = {0xf8, 0xff, 0x3f};
    const uint8_t *const lies[] = {little, less};
    carry_node_start_for(&n, dir, w->content, 0, 0);
    for (size_t i = 0; i < 2; i++) {
        carry_peer_open(&from[0], w, &n, true);
        from[0].length = lies[i];
        assert_lost(carry_peers_serve(from, 1, &n, "lost"), from[0].path, true,
                    i ? "another hash" : "not asked for");
        carry_peer_close(&from[0]);
    }
    carry_peer_open(&from[1], w, &n, true);
    serve(&from[1], 1, &n, "ready");
    assert_is_in_part(dir, 0);
    end_all(&from[1], 1, &n, dir);
}

/* The first block holds the head's bytes as well: what is wrong in it does not reach a head that is
 * here. */
static void a_wrong_block_leaves_the_head_as_it_is(void **state)
{
    struct carry_world *w = *state;
    struct carry_node n;
    struct carry_peer from;
    const int dir = carry_world_folder(w, 'b');
    carry_node_start_for(&n, dir, w->content, 0, 1);
    carry_peer_open(&from, w, &n, true);
    from.flipped = 1;
    assert_lost(carry_peers_serve(&from, 1, &n, "lost"), from.path, true, "another hash");
    assert_int_equal(from.asked[HEAD], 1);
    assert_is_sound(dir);
    carry_peer_close(&from);
    carry_peer_open(&from, w, &n, true);
    serve(&from, 1, &n, "ready");
    assert_is_in_part(dir, 1);
    end_all(&from, 1, &n, dir);
}

static bool next_is(struct carry_disk *d, uint32_t block)
{
    uint8_t all[8];
    uint32_t next;
    memset(all, 0xff, sizeof all);
    return carry_disk_next(d, all, &next) && next == block;
}

static struct carry_disk *open_disk(const struct carry_world *w, int dir)
{
    struct carry_disk *d;
    struct manifest *m;
    struct err err = {""};
    uint8_t *list = malloc(w->list_n);
    assert_non_null(list);
    memcpy(list, w->list, w->list_n);
    assert_int_equal(carry_disk_open(&d, dir, CARRY_MODEL, w->content, "", &err), 0);
    assert_int_equal(manifest_decode(&m, list, w->list_n, &err), 0);
    carry_disk_plan(d, m, list, w->list_n);
    assert_int_equal(carry_disk_want_all(d, &err), 0);
    while (!carry_disk_is_checked(d))
        assert_int_equal(carry_disk_work(d, &err), 1);
    return d;
}

static void write_part(struct carry_disk *d, uint32_t block, const uint8_t *bytes)
{
    struct err err = {""};
    const uint32_t n = manifest_size(carry_disk_manifest(d), block);
    assert_int_equal(carry_disk_write(d, block, 0, bytes, n, &err), 0);
}

static void keep(struct carry_disk *d, const struct carry_world *w, uint32_t block)
{
    struct err err = {""};
    assert_int_equal(carry_disk_keep(d, block, w->manifest->hashes[block], &err), 0);
}

/* Both are under way, from two sources: one of them is wrong, and writes last. The other one does
 * not count, and comes again. */
static void a_wrong_head_and_a_block_may_come_at_once(void **state)
{
    struct carry_world *w = *state;
    const int dir = carry_world_folder(w, 'b');
    struct carry_disk *d = open_disk(w, dir);
    uint8_t *wrong = calloc(1, WEIGHTS);
    assert_non_null(wrong);
    assert_true(next_is(d, 0) && next_is(d, HEAD) && next_is(d, 1) && next_is(d, 2));
    carry_disk_size_head(d, HEAD, w->weights);
    write_part(d, 1, w->weights);
    write_part(d, HEAD, wrong);
    keep(d, w, 1);
    assert_false(carry_disk_has(d, 1));
    carry_disk_put_back(d, HEAD); /* its hash is wrong */
    assert_true(next_is(d, HEAD) && next_is(d, 1));
    carry_disk_size_head(d, HEAD, w->weights);
    write_part(d, HEAD, w->weights);
    write_part(d, 2, wrong);
    keep(d, w, HEAD);
    assert_false(carry_disk_has(d, HEAD));
    carry_disk_put_back(d, 2);
    assert_true(next_is(d, HEAD) && next_is(d, 2));
    carry_disk_size_head(d, HEAD, w->weights);
    write_part(d, HEAD, w->weights);
    keep(d, w, HEAD);
    write_part(d, 1, wrong); /* which leaves the head as it is */
    write_part(d, 2, w->weights + BLOCK_BYTES);
    keep(d, w, 2);
    assert_true(carry_disk_has(d, HEAD) && carry_disk_has(d, 2));
    free(wrong);
    carry_disk_close(d);
    close(dir);
}

/* A model that is here in part gives what it has, and is made whole by a pull. */
static void a_part_is_given_and_pulled_whole(void **state)
{
    struct carry_world *w = *state;
    struct carry_node n, other;
    struct carry_peer from;
    struct err err;
    const int dir = carry_world_folder(w, 'b'), dir_c = carry_world_folder(w, 'c');
    carry_node_start_for(&n, dir, w->content, 8, 9);
    carry_peer_open(&from, w, &n, true);
    serve(&from, 1, &n, "ready");
    carry_peer_close(&from);
    carry_node_start_for(&other, dir_c, w->content, 8, 9);
    carry_world_connect(w, &n, &other);
    hear(&other, "ready");
    assert_is_in_part(dir_c, 1);
    carry_node_stop(&other);
    carry_node_stop(&n);

    assert_int_equal(settle_take_name(dir, CARRY_MODEL, &err), 0);
    assert_false(models_has_name(dir, CARRY_MODEL));
    const int folder = settle_open_part(dir, CARRY_MODEL, &err);
    assert_true(folder >= 0);
    assert_int_equal(faccessat(folder, "model.safetensors.part", F_OK, 0), 0);
    assert_int_not_equal(faccessat(folder, "model.safetensors", F_OK, 0), 0);
    close(folder);
    close(dir);
    close(dir_c);
}

static void a_changed_block_of_a_part_is_found(void **state)
{
    struct carry_world *w = *state;
    struct carry_node n;
    struct carry_peer from;
    struct err err = {""};
    const int dir = carry_world_folder(w, 'b');
    carry_node_start_for(&n, dir, w->content, 8, 9);
    carry_peer_open(&from, w, &n, true);
    serve(&from, 1, &n, "ready");
    const int fd = openat(dir, CARRY_MODEL "/model.safetensors", O_WRONLY | O_CLOEXEC);
    assert_int_equal(pwrite(fd, "x", 1, 5 * BLOCK_BYTES), 1); /* a hole is nobody's */
    assert_int_equal(verify_model(dir, CARRY_MODEL, no_progress, NULL, &err), 0);
    assert_int_equal(pwrite(fd, "xyz", 3, 8 * BLOCK_BYTES + 77), 3);
    assert_int_equal(verify_model(dir, CARRY_MODEL, no_progress, NULL, &err), -EBADMSG);
    assert_non_null(strstr(err.text, "block 8 of model.safetensors"));
    assert_int_equal(pwrite(fd, "xyz", 3, 4711), 3);
    assert_int_equal(verify_model(dir, CARRY_MODEL, no_progress, NULL, &err), -EBADMSG);
    assert_non_null(strstr(err.text, "the head of model.safetensors"));
    close(fd);
    end_all(&from, 1, &n, dir);
}

static void a_wish_for_blocks_that_it_has_not_is_refused(void **state)
{
    struct carry_world *w = *state;
    struct carry_node n;
    struct carry_peer from;
    const int dir = carry_world_folder(w, 'b');
    carry_node_start_for(&n, dir, w->content, 5, CARRY_WORLD_BLOCKS + 1);
    carry_peer_open(&from, w, &n, true);
    assert_failed_meanwhile(&from, &n, -EBADMSG, "has no blocks 5 to 11 of a file model.safetensors");
    end_all(&from, 1, &n, dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(only_what_is_wanted_is_taken, open_world, close_world),
        cmocka_unit_test_setup_teardown(a_block_is_asked_of_who_has_it, open_world, close_world),
        cmocka_unit_test_setup_teardown(what_nobody_has_is_not_waited_for, open_world, close_world),
        cmocka_unit_test_setup_teardown(a_wrong_block_leaves_the_head_as_it_is, open_world, close_world),
        cmocka_unit_test_setup_teardown(a_wrong_head_costs_its_source_the_lane, open_world, close_world),
        cmocka_unit_test_setup_teardown(a_wrong_head_and_a_block_may_come_at_once, open_world, close_world),
        cmocka_unit_test_setup_teardown(a_part_is_given_and_pulled_whole, open_world, close_world),
        cmocka_unit_test_setup_teardown(a_changed_block_of_a_part_is_found, open_world, close_world),
        cmocka_unit_test_setup_teardown(a_wish_for_blocks_that_it_has_not_is_refused, open_world,
                                        close_world),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
