/* SPDX-License-Identifier: MIT
 *
 * The hub as a source among nodes: asked for what none of them has, once, and what it sends is held
 * against what it has announced. */
#include "tests/unit/daemon/fetch/carry_checks.h"

#define RUN(first, end) json_pack("[s,i,i]", "model.safetensors", first, end)
#define SHARED(first, end) json_pack("[s,i,i,b]", "model.safetensors", first, end, 1)

/* Block 0 is config.json's, so block b of the weights is bit b + 1. */
static void has_only(struct carry_peer *p, uint32_t first, uint32_t end)
{
    memset(p->has, 0, sizeof p->has);
    for (uint32_t b = first + 1; b < end + 1; b++)
        p->has[b / 8] |= (uint8_t)(1 << b % 8);
}

static void asked_once(const struct carry_peer *p, uint32_t first, uint32_t end)
{
    for (uint32_t b = 0; b < CARRY_WORLD_BLOCKS; b++)
        assert_int_equal(p->asked[1 + b], b >= first && b < end);
}

static void the_hub_is_asked_for_what_no_node_has(void **state)
{
    struct carry_world *w = *state;
    struct carry_node n;
    struct carry_peer from[2];
    const int dir = carry_world_folder(w, 'b');
    carry_node_start(&n, dir, w->content, PATIENT, 0);
    carry_peer_open(&from[0], w, &n, true);
    carry_peer_open_hub(&from[1], w, &n);
    has_only(&from[0], 2, 9); /* more than are asked of a node at once, and it takes its time */
    from[0].give = 0;
    serve(from, 2, &n, "room");
    carry_node_say_room(&n, NULL);
    while (from[1].wanted < OUTLINE)
        serve(from, 2, &n, "progress");
    from[0].give = UINT32_MAX;
    serve(from, 2, &n, "ready");
    asked_once(&from[0], 2, 9);
    for (uint32_t b = 0; b < CARRY_WORLD_BLOCKS; b++)
        assert_int_equal(from[1].asked[1 + b], b < 2 || b >= 9);
    assert_true(from[1].runs <= 4); /* config.json, the head, and all of the rest in two runs */
    assert_is_whole(w, dir);
    end_all(from, 2, &n, dir);
}

/* As the hub is asked for a file whose bytes nobody knows yet: afterwards this node does. */
static void a_list_is_made_of_what_comes(void **state)
{
    struct carry_world *w = *state;
    struct carry_node n;
    struct carry_peer hub;
    char list[DIGEST_HEX];
    const int dir = carry_world_folder(w, 'b');
    manifest_list(list, w->list, w->list_n);
    carry_world_forget_list();
    carry_node_start_for(&n, dir, w->content, 7, 9);
    carry_peer_open_hub(&hub, w, &n);
    serve(&hub, 1, &n, "ready");
    json_t *record = models_record_read(dir, CARRY_MODEL);
    assert_null(json_object_get(record, "list"));
    json_decref(record);
    carry_peer_close(&hub);
    carry_node_want(&n, 0, CARRY_WORLD_BLOCKS);
    carry_peer_open_hub(&hub, w, &n);
    serve(&hub, 1, &n, "ready");
    for (uint32_t b = 7; b < 9; b++)
        assert_int_equal(hub.asked[1 + b], 0);
    assert_is_whole(w, dir);
    record = models_record_read(dir, CARRY_MODEL);
    assert_string_equal(json_string_value(json_object_get(record, "list")), list);
    json_decref(record);
    end_all(&hub, 1, &n, dir);
}

static void a_changed_block_of_the_hub_is_found(void **state)
{
    struct carry_world *w = *state;
    struct carry_node n;
    struct carry_peer hub;
    struct err err = {""};
    const int dir = carry_world_folder(w, 'b');
    carry_world_forget_list();
    carry_node_start_for(&n, dir, w->content, 7, 9);
    carry_peer_open_hub(&hub, w, &n);
    serve(&hub, 1, &n, "ready");
    carry_peer_close(&hub);
    carry_node_stop(&n);
    assert_int_equal(verify_model(dir, CARRY_MODEL, no_progress, NULL, &err), 0);
    const int fd = openat(dir, CARRY_MODEL "/model.safetensors", O_WRONLY | O_CLOEXEC);
    assert_int_equal(pwrite(fd, "xyz", 3, 8 * BLOCK_BYTES + 77), 3);
    assert_int_equal(verify_model(dir, CARRY_MODEL, no_progress, NULL, &err), -EBADMSG);
    assert_non_null(strstr(err.text, "block 8 of model.safetensors"));
    close(fd);
    close(dir);
}

/* Nobody knows which block is wrong, so all of them come again. */
static void a_wrong_file_is_thrown_away(void **state)
{
    struct carry_world *w = *state;
    struct carry_node n;
    struct carry_peer hub;
    const int dir = carry_world_folder(w, 'b');
    carry_world_forget_list();
    carry_node_start(&n, dir, w->content, PATIENT, 0);
    carry_peer_open_hub(&hub, w, &n);
    hub.flipped = 1 + 6;
    assert_failed_meanwhile(&hub, &n, -EBADMSG, "model.safetensors: the bytes that came are not those");
    carry_peer_close(&hub);
    carry_node_stop(&n);
    assert_false(models_is_whole(dir, CARRY_MODEL));
    carry_node_start(&n, dir, w->content, PATIENT, 0);
    carry_peer_open_hub(&hub, w, &n);
    serve(&hub, 1, &n, "ready");
    asked_once(&hub, 0, CARRY_WORLD_BLOCKS);
    assert_is_whole(w, dir);
    end_all(&hub, 1, &n, dir);
}

static void what_a_source_says_of_a_block_is_held_against_it(void **state)
{
    struct carry_world *w = *state;
    struct carry_node n;
    struct carry_peer from;
    const int dir = carry_world_folder(w, 'b');
    carry_world_forget_list();
    carry_node_start(&n, dir, w->content, PATIENT, 0);
    carry_peer_open(&from, w, &n, true);
    from.said = 4;
    assert_lost(carry_peers_serve(&from, 1, &n, "lost"), from.path, true, "has another hash");
    end_all(&from, 1, &n, dir);
}

static void a_run_that_breaks_off_is_gone_on_with(void **state)
{
    struct carry_world *w = *state;
    struct carry_node n;
    struct carry_peer hub;
    const int dir = carry_world_folder(w, 'b');
    carry_node_start(&n, dir, w->content, PATIENT, 0);
    carry_peer_open_hub(&hub, w, &n);
    hub.give = 6; /* config.json, the head, and four blocks of the weights */
    serve(&hub, 1, &n, "room");
    carry_node_say_room(&n, NULL);
    carry_peer_serve_wants(&hub, BLOCKS);
    carry_peer_close(&hub);
    hear(&n, "lost");
    carry_peer_open_hub(&hub, w, &n);
    serve(&hub, 1, &n, "ready");
    asked_once(&hub, 4, CARRY_WORLD_BLOCKS);
    assert_is_whole(w, dir);
    end_all(&hub, 1, &n, dir);
}

/* What a node of a lower rank asks the hub for comes from that node; the hub is asked once there is
 * none that could have it. */
static void what_is_shared_is_waited_for(void **state)
{
    struct carry_world *w = *state;
    struct carry_node n;
    struct carry_peer from[2];
    const int dir = carry_world_folder(w, 'b');
    carry_node_start_rows(&n, dir, w->content, json_pack("[o,o]", SHARED(3, 4), RUN(4, 7)), PATIENT);
    carry_peer_open(&from[0], w, &n, true);
    carry_peer_open_hub(&from[1], w, &n);
    has_only(&from[0], 0, 0);
    serve(from, 2, &n, "room");
    carry_node_say_room(&n, NULL);
    while (from[1].wanted < OUTLINE + 3)
        serve(from, 2, &n, "progress");
    assert_int_equal(from[1].asked[1 + 3], 0);
    has_only(&from[0], 3, 4); /* it says so again, as a node does that has more */
    carry_peer_say(&from[0], CARRY_HAVE, 0, BLOCKS, from[0].has, (BLOCKS + 7) / 8);
    serve(from, 2, &n, "ready");
    asked_once(&from[0], 3, 4);
    assert_int_equal(from[1].asked[1 + 3], 0);
    end_all(from, 2, &n, dir);
}

static void what_is_shared_comes_from_the_hub_without_that_node(void **state)
{
    struct carry_world *w = *state;
    struct carry_node n;
    struct carry_peer from[2];
    const int dir = carry_world_folder(w, 'b');
    carry_node_start_rows(&n, dir, w->content, json_pack("[o]", SHARED(3, 6)), PATIENT);
    carry_peer_open(&from[0], w, &n, true);
    carry_peer_open_hub(&from[1], w, &n);
    has_only(&from[0], 0, 0);
    serve(from, 2, &n, "room");
    carry_node_say_room(&n, NULL);
    while (from[1].wanted < OUTLINE)
        serve(from, 2, &n, "progress");
    assert_int_equal(from[1].asked[1 + 3], 0);
    carry_peer_close(&from[0]);
    serve(&from[1], 1, &n, "ready");
    for (uint32_t b = 3; b < 6; b++)
        assert_int_equal(from[1].asked[1 + b], 1);
    end_all(&from[1], 1, &n, dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_hub_is_asked_for_what_no_node_has, open_world, close_world),
        cmocka_unit_test_setup_teardown(a_list_is_made_of_what_comes, open_world, close_world),
        cmocka_unit_test_setup_teardown(a_changed_block_of_the_hub_is_found, open_world, close_world),
        cmocka_unit_test_setup_teardown(a_wrong_file_is_thrown_away, open_world, close_world),
        cmocka_unit_test_setup_teardown(what_a_source_says_of_a_block_is_held_against_it, open_world,
                                        close_world),
        cmocka_unit_test_setup_teardown(a_run_that_breaks_off_is_gone_on_with, open_world, close_world),
        cmocka_unit_test_setup_teardown(what_is_shared_is_waited_for, open_world, close_world),
        cmocka_unit_test_setup_teardown(what_is_shared_comes_from_the_hub_without_that_node, open_world,
                                        close_world),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
