/* SPDX-License-Identifier: MIT
 *
 * How links end: with a goodbye, behind much data, inside a callback, and with their process. */
#include "tests/unit/net/link_world.h"

#include "net/link_impl.h"

enum { MUCH = 12 }; /* frames of the greatest size */

static void test_close_says_goodbye(void **state)
{
    struct world *w = *state;

    bring_up(w);
    w->a.on_down = w->b.on_down = stop_when_both_down;
    link_close(w->b.link, LINK_END_LOCAL, "going down for an update");
    assert_int_equal(w->b.downs, 0); /* the loop says it later */
    assert_int_equal(link_send(w->b.link, LINK_FRAME_USER, "x", 1), -ENOTCONN);
    link_close(w->b.link, LINK_END_LOCAL, "twice is once");
    run(w);
    expect_end(&w->a, LINK_END_PEER_LEFT, "going down for an update");
    expect_end(&w->b, LINK_END_LOCAL, "going down for an update");
}

/* All of it still waits; the loop ends once both links are down. */
static void send_much(struct world *w)
{
    uint8_t *body = calloc(1, LINK_FRAME_MAX);
    assert_non_null(body);
    bring_up(w);
    for (int i = 0; i < MUCH; i++)
        assert_int_equal(link_send(w->a.link, LINK_FRAME_USER, body, LINK_FRAME_MAX), 0);
    w->a.on_down = w->b.on_down = stop_when_both_down;
    free(body);
}

/* A close right after much data still delivers the data and the reason. */
static void test_close_lingers(void **state)
{
    struct world *w = *state;
    send_much(w);
    link_close(w->a.link, LINK_END_REFUSED, "a second connection to the same node");
    run(w);
    assert_int_equal(w->b.frames, MUCH);
    expect_end(&w->b, LINK_END_REFUSED, "second connection");
}

static void hear_frames(struct world *w, size_t n)
{
    while (w->b.frames < n)
        assert_int_equal(event_base_loop(w->base, EVLOOP_ONCE), 0);
}

/* A second begins again while last words leave, but not for ever. */
static void test_lingers_while_bytes_leave(void **state)
{
    struct world *w = *state;
    send_much(w);
    link_close(w->a.link, LINK_END_LOCAL, "much to say");
    assert_false(link_lingers(w->a.link)); /* nothing has left yet */
    for (size_t i = 1; i <= LINK_LINGERS; i++) {
        hear_frames(w, i);
        assert_true(link_lingers(w->a.link));
    }
    hear_frames(w, LINK_LINGERS + 1);
    assert_false(link_lingers(w->a.link));
    run(w);
    assert_int_equal(w->b.frames, MUCH);
    expect_end(&w->b, LINK_END_PEER_LEFT, "much to say");
}

static void test_free_says_goodbye(void **state)
{
    struct world *w = *state;

    bring_up(w);
    link_free(w->a.link);
    w->a.link = NULL;
    run(w);
    expect_end(&w->b, LINK_END_PEER_LEFT, "closed");
    assert_int_equal(w->a.downs, 0);
}

/* A process that ends says so; one that is killed leaves its kernel to close the socket, which
 * nobody else does without a goodbye. */
static void test_the_end_of_a_process_is_told(void **state)
{
    struct world *w = *state;

    bring_up(w);
    link_leave(w->a.link);
    w->a.link = NULL;
    run(w);
    expect_end(&w->b, LINK_END_ENDED, "was ended");
}

static void free_here(struct side *side)
{
    link_free(side->link);
    side->link = NULL;
}

static void close_here(struct side *side)
{
    link_close(side->link, LINK_END_LOCAL, "closed in a callback");
}

/* Whatever callback ends the link, from either end: no crash, no further callback after a free, one
 * `down` after a close. */
static void test_end_inside_callbacks(void **state)
{
    static const size_t hooks[] = {offsetof(struct side, on_hello), offsetof(struct side, on_up),
                                   offsetof(struct side, on_frame), offsetof(struct side, on_beaten),
                                   offsetof(struct side, on_down)};

    for (size_t i = 0; i < 3 * 2 * sizeof hooks / sizeof hooks[0]; i++) {
        size_t hook = hooks[i / 6];
        struct world *w;
        struct side *ender, *other;
        bool frees = i % 2 == 0;

        if (i > 0)
            world_setup(state);
        w = *state;
        ender = i % 6 < 3 ? &w->a : &w->b;
        other = ender == &w->a ? &w->b : &w->a;
        other->on_down = stop;
        *(side_fn **)((char *)ender + hook) = frees ? free_here : close_here;
        dial(w);
        if (hook == offsetof(struct side, on_frame) || hook == offsetof(struct side, on_down)) {
            other->on_up = stop;
            run(w);
            other->on_up = NULL;
            assert_int_equal(link_send(other->link, LINK_FRAME_USER, "hit", 3), 0);
        }
        if (hook == offsetof(struct side, on_down))
            link_close(other->link, LINK_END_LOCAL, "done");
        run(w);
        assert_int_equal(other->downs, 1);
        if (frees)
            assert_null(ender->link);
        if (i + 1 < 3 * 2 * sizeof hooks / sizeof hooks[0])
            world_teardown(state);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_close_says_goodbye),           TEST(test_close_lingers),
        TEST(test_lingers_while_bytes_leave),    TEST(test_free_says_goodbye),
        TEST(test_the_end_of_a_process_is_told), TEST(test_end_inside_callbacks),
    };

    signal(SIGPIPE, SIG_IGN);
    return sodium_init() < 0 ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
