/* SPDX-License-Identifier: MIT
 *
 * The lines that go to rank 1 with a GO: whole ones, in their order, and none behind one that was
 * too long. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/stage/hold/line_feed.h"

static void add(struct line_feed *f, const char *text)
{
    json_t *line = json_pack("{s:s}", "a", text);
    line_feed_add(f, line);
    json_decref(line);
}

static void next_is(struct line_feed *f, size_t room, const char *want)
{
    const size_t n = line_feed_next(f, room);
    assert_int_equal(n, strlen(want));
    if (n)
        assert_memory_equal(f->text, want, n);
    line_feed_sent(f, n);
}

static void whole_lines_go_in_their_order(void **state)
{
    struct line_feed f = {0};
    (void)state;
    next_is(&f, 100, "");
    add(&f, "1");
    add(&f, "two\nlines");
    next_is(&f, 20, "{\"a\":\"1\"}\n");
    add(&f, "3");
    next_is(&f, 100, "{\"a\":\"two\\nlines\"}\n{\"a\":\"3\"}\n");
    next_is(&f, 100, "");
    line_feed_done(&f);
}

static void behind_a_line_without_room_nothing_goes(void **state)
{
    struct line_feed f = {0};
    (void)state;
    add(&f, "longer than there is room for");
    add(&f, "1");
    next_is(&f, 20, "");
    add(&f, "2");
    next_is(&f, 100, "");
    line_feed_done(&f);
}

static void more_than_may_wait_is_not_kept(void **state)
{
    struct line_feed f = {0};
    char *text = malloc(LINE_FEED_MOST / 2);
    (void)state;
    memset(text, 'x', LINE_FEED_MOST / 2);
    text[LINE_FEED_MOST / 2 - 1] = 0;
    add(&f, text);
    assert_true(f.n > LINE_FEED_MOST / 2);
    add(&f, text);
    assert_int_equal(f.n, 0);
    next_is(&f, LINE_FEED_MOST, "");
    line_feed_done(&f);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_lines_go_in_their_order),
        cmocka_unit_test(behind_a_line_without_room_nothing_goes),
        cmocka_unit_test(more_than_may_wait_is_not_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
