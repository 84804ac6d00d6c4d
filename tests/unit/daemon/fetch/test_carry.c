/* SPDX-License-Identifier: MIT
 *
 * A model that nodes carry to each other, for real: processes, folders, and sealed connections. */
#include "tests/unit/daemon/fetch/carry_checks.h"
#include "net/wire.h"

/* --- it comes --------------------------------------------------------------------------------- */

static void one_gives_and_one_takes(void **state)
{
    struct carry_world *w = *state;
    struct carry_node a, b;
    const int dir = carry_world_folder(w, 'b');
    carry_node_start(&a, w->dir, w->content, PATIENT, 0);
    carry_node_start(&b, dir, w->content, PATIENT, 0);
    const uint32_t path = carry_world_connect(w, &a, &b);
    hear(&b, "ready");
    assert_is_whole(w, dir);
    assert_lost(carry_node_hear(&a, "lost"), path, false, "all that is wanted of " CARRY_MODEL);
    hear(&a, "idle");
    hear(&b, "idle");
    carry_node_stop(&a);
    carry_node_stop(&b);
    close(dir);
}

/* As after a process that was killed once all had come: who waits for it hears how much it is. */
static void what_is_here_already_is_said(void **state)
{
    struct carry_world *w = *state;
    struct carry_node n;
    carry_node_start(&n, w->dir, w->content, PATIENT, 0);
    json_t *progress = carry_node_hear(&n, "progress");
    const uint64_t all = w->manifest->bytes + manifest_size(w->manifest, HEAD);
    assert_int_equal(json_integer_value(json_object_get(progress, "total")), all);
    assert_int_equal(json_integer_value(json_object_get(progress, "done")), all);
    json_decref(progress);
    hear(&n, "ready");
    carry_node_stop(&n);
}

/* The one in the middle passes on what it has of the outline while the rest is kept from it. */
static void a_chain_does_not_wait_for_the_whole(void **state)
{
    struct carry_world *w = *state;
    struct carry_node b, c;
    struct carry_peer a;
    const int dir_b = carry_world_folder(w, 'b'), dir_c = carry_world_folder(w, 'c');
    carry_node_start(&b, dir_b, w->content, PATIENT, 0);
    carry_node_start(&c, dir_c, w->content, PATIENT, 0);
    carry_world_connect(w, &b, &c);
    carry_peer_open(&a, w, &b, true);
    a.give = 3;
    serve(&a, 1, &b, "room");
    carry_node_say_room(&b, NULL);
    carry_peer_serve_wants(&a, 7);
    json_t *event = NULL;
    for (json_int_t done = 0; done < BLOCK_BYTES; json_decref(event)) {
        event = carry_node_hear(&c, "progress");
        done = json_integer_value(json_object_get(event, "done"));
    }
    a.give = UINT32_MAX;
    serve(&a, 1, &b, "ready");
    hear(&c, "ready");
    assert_int_equal(a.wanted, BLOCKS);
    assert_is_whole(w, dir_b);
    assert_is_whole(w, dir_c);
    carry_peer_close(&a);
    carry_node_stop(&b);
    carry_node_stop(&c);
    close(dir_b);
    close(dir_c);
}

static void two_sources_share_the_blocks(void **state)
{
    struct carry_world *w = *state;
    struct carry_node n;
    struct carry_peer from[2];
    const int dir = carry_world_folder(w, 'b');
    carry_node_start(&n, dir, w->content, PATIENT, 0);
    for (int i = 0; i < 2; i++)
        carry_peer_open(&from[i], w, &n, true);
    serve(from, 2, &n, "ready");
    for (uint32_t b = 0; b < BLOCKS; b++)
        assert_int_equal(from[0].asked[b] + from[1].asked[b], 1);
    assert_true(from[0].wanted > 0 && from[1].wanted > 0);
    assert_is_whole(w, dir);
    end_all(from, 2, &n, dir);
}

static void what_is_there_survives_a_kill(void **state)
{
    enum { BEFORE = 5 };
    struct carry_world *w = *state;
    struct carry_node n;
    struct carry_peer from;
    const int dir = carry_world_folder(w, 'b');
    carry_node_start(&n, dir, w->content, PATIENT, 0);
    carry_peer_open(&from, w, &n, true);
    from.give = BEFORE;
    serve(&from, 1, &n, "room");
    carry_node_say_room(&n, NULL);
    carry_peer_serve_wants(&from, BEFORE + 4);
    carry_node_kill(&n);
    carry_peer_close(&from);

    carry_node_start(&n, dir, w->content, PATIENT, 0);
    carry_peer_open(&from, w, &n, true);
    serve(&from, 1, &n, "ready");
    assert_int_equal(from.wanted, BLOCKS - BEFORE);
    assert_is_whole(w, dir);
    end_all(&from, 1, &n, dir);
}

/* --- it does not ------------------------------------------------------------------------------ */

static void a_wrong_block_costs_its_source_the_lane(void **state)
{
    struct carry_world *w = *state;
    struct carry_node n;
    struct carry_peer from[2];
    const int dir = carry_world_folder(w, 'b');
    carry_node_start(&n, dir, w->content, PATIENT, 0);
    carry_peer_open(&from[0], w, &n, true);
    from[0].flipped = 2;
    assert_lost(carry_peers_serve(from, 1, &n, "lost"), from[0].path, true, "another hash");
    carry_peer_open(&from[1], w, &n, true);
    serve(&from[1], 1, &n, "ready");
    assert_int_equal(from[1].asked[2], 1);
    assert_is_whole(w, dir);
    end_all(from, 2, &n, dir);
}

static void a_silent_source_is_left(void **state)
{
    struct carry_world *w = *state;
    struct carry_node n;
    struct carry_peer from[2];
    const int dir = carry_world_folder(w, 'b');
    carry_node_start(&n, dir, w->content, IMPATIENT, 0);
    carry_peer_open(&from[0], w, &n, true);
    from[0].give = 2;
    assert_lost(carry_peers_serve(from, 1, &n, "lost"), from[0].path, false, "silent");
    carry_peer_open(&from[1], w, &n, true);
    serve(&from[1], 1, &n, "ready");
    assert_int_equal(from[1].wanted, BLOCKS - 2);
    end_all(from, 2, &n, dir);
}

static void without_a_source_it_fails(void **state)
{
    struct carry_world *w = *state;
    struct carry_node n;
    const int dir = carry_world_folder(w, 'b');
    carry_node_start(&n, dir, w->content, IMPATIENT, 0);
    assert_failed(&n, -EHOSTUNREACH, "no node that has");
    carry_node_stop(&n);
    close(dir);
}

static void a_full_folder_refuses(void **state)
{
    struct carry_world *w = *state;
    struct carry_node n;
    struct carry_peer from;
    const int dir = carry_world_folder(w, 'b');
    carry_node_start(&n, dir, w->content, PATIENT, 0);
    carry_peer_open(&from, w, &n, true);
    json_t *room = carry_peers_serve(&from, 1, &n, "room");
    assert_int_equal(json_integer_value(json_object_get(room, "bytes")), w->manifest->bytes + HEAD_LENGTH);
    json_decref(room);
    carry_node_say_room(&n, "no room for it");
    assert_failed(&n, -ENOSPC, "no room for it");
    assert_int_equal(from.wanted, 0);
    end_all(&from, 1, &n, dir);
}

static void other_content_is_never_mixed(void **state)
{
    struct carry_world *w = *state;
    struct carry_node n;
    struct carry_peer from;
    char other[DIGEST_HEX];
    const int dir = carry_world_folder(w, 'b');
    memset(other, 'f', sizeof other - 1);
    other[DIGEST_HEX - 1] = '\0';
    carry_node_start(&n, w->dir, other, PATIENT, 0); /* it is whole, and another one */
    assert_failed(&n, -EEXIST, "with other bytes");
    carry_node_stop(&n);
    carry_node_start(&n, dir, other, PATIENT, 0); /* the source has another one */
    carry_peer_open(&from, w, &n, true);
    assert_lost(carry_peers_serve(&from, 1, &n, "lost"), from.path, true, "another list");
    end_all(&from, 1, &n, dir);
}

/* --- takers ----------------------------------------------------------------------------------- */

static void say_open(struct carry_peer *p, const char *content)
{
    uint8_t bytes[DIGEST];
    for (size_t i = 0; i < DIGEST; i++) {
        const char digits[3] = {content[2 * i], content[2 * i + 1], '\0'};
        bytes[i] = (uint8_t)strtoul(digits, NULL, 16);
    }
    carry_peer_say(p, CARRY_OPEN, 0, 0, bytes, DIGEST);
}

/* What a taker says after OPEN (NULL content: instead of it), and what that costs it. */
static void assert_refused(struct carry_world *w, struct carry_node *n, const char *content,
                           enum carry_kind kind, uint32_t a, uint32_t b, const char *sentence)
{
    struct carry_peer p;
    struct carry_frame f = {.kind = CARRY_WAIT};
    carry_peer_open(&p, w, n, false);
    if (content)
        say_open(&p, content);
    if (kind)
        carry_peer_say(&p, kind, a, b, "", kind == CARRY_PIECE);
    assert_lost(carry_node_hear(n, "lost"), p.path, true, sentence);
    bool is_said = false;
    while (carry_peer_hear(&p, &f))
        is_said |= f.kind == CARRY_GONE;
    assert_true(is_said);
    carry_peer_close(&p);
}

static void nonsense_of_a_taker_is_refused(void **state)
{
    struct carry_world *w = *state;
    struct carry_node n;
    char other[DIGEST_HEX];
    memcpy(other, w->content, sizeof other);
    other[5] = other[5] == '0' ? '1' : '0';
    carry_node_start(&n, w->dir, w->content, PATIENT, 0);
    struct carry_peer honest; /* keeps it from ending for want of lanes */
    carry_peer_open(&honest, w, &n, false);
    say_open(&honest, w->content);
    assert_refused(w, &n, NULL, CARRY_ASK, 0, 0, "does not begin");
    assert_refused(w, &n, other, 0, 0, 0, "with other bytes");
    assert_refused(w, &n, w->content, CARRY_WANT, BLOCKS, 1, "does not have");
    assert_refused(w, &n, w->content, CARRY_WANT, BLOCKS - 1, 2, "does not have");
    assert_refused(w, &n, w->content, CARRY_WANT, UINT32_MAX, 2, "does not have");
    assert_refused(w, &n, w->content, CARRY_WANT, 0, CARRY_WANTS + 1, "more than 64 blocks");
    assert_refused(w, &n, w->content, CARRY_WANT, 0, 0, "no message");
    assert_refused(w, &n, w->content, CARRY_PIECE, 0, 0, "only sources");
    assert_refused(w, &n, w->content, (enum carry_kind)99, 0, 0, "no message");
    carry_peer_say(&honest, CARRY_WANT, 0, 1, NULL, 0);
    struct carry_frame f;
    do
        assert_true(carry_peer_hear(&honest, &f));
    while (f.kind == CARRY_WAIT || f.kind == CARRY_HASH);
    assert_int_equal(f.kind, CARRY_PIECE);
    carry_peer_close(&honest);
    carry_node_stop(&n);
}

/* The other daemon may have given the connection up before it knew that this end has it. */
static void a_goodbye_of_the_connection_is_no_nonsense(void **state)
{
    struct carry_world *w = *state;
    struct carry_node n;
    struct carry_peer honest, p;
    carry_node_start(&n, w->dir, w->content, PATIENT, 0);
    carry_peer_open(&honest, w, &n, false);
    say_open(&honest, w->content);
    carry_peer_open(&p, w, &n, false);
    uint8_t bye[WIRE_FRAME_HEAD + 1 + WIRE_TEXT_MAX];
    static const char text[] = "the other node closed the connection";
    const int size = wire_bye_encode(WIRE_BYE_LEFT, text, bye + WIRE_FRAME_HEAD, 1 + WIRE_TEXT_MAX);
    const struct wire_frame head = {.type = WIRE_BYE, .last = true, .length = (uint32_t)size};
    wire_frame_encode(&head, bye);
    carry_peer_say(&p, (enum carry_kind)bye[0], 0, 0, bye + 1, WIRE_FRAME_HEAD - 1 + (size_t)size);
    assert_lost(carry_node_hear(&n, "lost"), p.path, false, "has closed the connection");
    carry_peer_close(&p);
    carry_peer_close(&honest);
    carry_node_stop(&n);
}

/* --- beside pulls ----------------------------------------------------------------------------- */

static int open_part_folder(int dir)
{
    const int folder = openat(dir, ".part/" CARRY_MODEL, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(folder >= 0);
    return folder;
}

static void pull_some(struct carry_world *w, int dir, size_t bytes)
{
    struct part_file *part;
    struct err err;
    uint64_t at;
    assert_int_equal(models_make_parents(dir, ".part/" CARRY_MODEL "/x"), 0);
    const int folder = open_part_folder(dir);
    assert_int_equal(part_file_open(&part, folder, &w->manifest->files[1], NULL, &at, &err), 0);
    assert_int_equal(at, 0);
    assert_int_equal(part_file_write(part, w->weights, bytes, &err), 0);
    part_file_close(part);
    close(folder);
}

static void what_a_pull_has_left_is_used(void **state)
{
    struct carry_world *w = *state;
    struct carry_node n;
    struct carry_peer from;
    const int dir = carry_world_folder(w, 'b');
    pull_some(w, dir, 3 * BLOCK_BYTES + 5);
    carry_node_start(&n, dir, w->content, PATIENT, 0);
    carry_peer_open(&from, w, &n, true);
    serve(&from, 1, &n, "ready");
    assert_int_equal(from.wanted, BLOCKS - 3 - 1); /* the head lies in these blocks */
    assert_int_equal(from.asked[HEAD], 0);
    assert_is_whole(w, dir);
    end_all(&from, 1, &n, dir);
}

static void a_pull_uses_what_was_carried(void **state)
{
    struct carry_world *w = *state;
    struct carry_node n;
    struct carry_peer from;
    struct part_file *part;
    struct err err;
    uint64_t at;
    const int dir = carry_world_folder(w, 'b');
    carry_node_start_for(&n, dir, w->content, 0, 3);
    carry_peer_open(&from, w, &n, true);
    serve(&from, 1, &n, "ready");
    carry_node_kill(&n);
    carry_peer_close(&from);
    assert_int_equal(settle_take_name(dir, CARRY_MODEL, &err), 0);
    const int folder = settle_open_part(dir, CARRY_MODEL, &err);
    assert_int_equal(part_file_open(&part, folder, &w->manifest->files[1], NULL, &at, &err), 0);
    assert_int_equal(at, 3 * BLOCK_BYTES);
    assert_int_equal(part_file_write(part, w->weights + at, w->bytes - at, &err), 0);
    assert_int_equal(part_file_finish(part, &err), 0);
    close(folder);
    close(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_gives_and_one_takes, open_world, close_world),
        cmocka_unit_test_setup_teardown(what_is_here_already_is_said, open_world, close_world),
        cmocka_unit_test_setup_teardown(a_chain_does_not_wait_for_the_whole, open_world, close_world),
        cmocka_unit_test_setup_teardown(two_sources_share_the_blocks, open_world, close_world),
        cmocka_unit_test_setup_teardown(what_is_there_survives_a_kill, open_world, close_world),
        cmocka_unit_test_setup_teardown(a_wrong_block_costs_its_source_the_lane, open_world, close_world),
        cmocka_unit_test_setup_teardown(a_silent_source_is_left, open_world, close_world),
        cmocka_unit_test_setup_teardown(without_a_source_it_fails, open_world, close_world),
        cmocka_unit_test_setup_teardown(a_full_folder_refuses, open_world, close_world),
        cmocka_unit_test_setup_teardown(other_content_is_never_mixed, open_world, close_world),
        cmocka_unit_test_setup_teardown(nonsense_of_a_taker_is_refused, open_world, close_world),
        cmocka_unit_test_setup_teardown(a_goodbye_of_the_connection_is_no_nonsense, open_world, close_world),
        cmocka_unit_test_setup_teardown(what_a_pull_has_left_is_used, open_world, close_world),
        cmocka_unit_test_setup_teardown(a_pull_uses_what_was_carried, open_world, close_world),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
