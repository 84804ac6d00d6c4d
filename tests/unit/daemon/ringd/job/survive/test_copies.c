/* SPDX-License-Identifier: MIT
 *
 * From which copies an interrupted job goes on. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "daemon/ringd/job/survive/copies.h"

/* Three ranks, six layers: units 0 to 2, 3 and 4, 5 to 7. */
static struct job_plan plan_of_three(void)
{
    return (struct job_plan){.ranks = 3, .stages = 3, .first = {0, 2, 4, 6}, .place = {0, 1, 2}};
}

static int hear(struct copies *c, uint32_t rank, const char *text)
{
    struct err err;
    json_t *held = text ? json_loads(text, 0, NULL) : NULL;
    assert_true(!text || held);
    int r = copies_hear(c, rank, held, &err);
    json_decref(held);
    return r;
}

static void chosen(const struct copies *c, uint64_t most, const char *expected)
{
    const struct job_plan plan = plan_of_three();
    json_t *choice = copies_choose(c, &plan, most);
    char *text = choice ? json_dumps(choice, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    if (expected)
        assert_string_equal(text, expected);
    else
        assert_null(text);
    free(text);
    json_decref(choice);
}

static void the_newest_step_that_is_whole(void **state)
{
    (void)state;
    struct copies *c = copies_new();
    chosen(c, 100, NULL);
    /* All ranks have written step 8, two of them step 9 already. */
    hear(c, 0,
         "[{\"step\":9,\"units\":[[0,3]]},{\"step\":8,\"units\":[[0,3]]},{\"step\":8,\"units\":[[5,8]]}]");
    hear(c, 1,
         "[{\"step\":8,\"units\":[[3,5]]},{\"step\":7,\"units\":[[3,5]]},{\"step\":8,\"units\":[[0,3]]}]");
    hear(c, 2, "[{\"step\":9,\"units\":[[5,8]]},{\"step\":8,\"units\":[[5,8]]}]");
    chosen(c, 100, "{\"by\":[0,0,0,1,1,2,2,2],\"step\":8}");
    /* Rank 2 is another node now: rank 0 has what it trained. */
    hear(c, 2, NULL);
    chosen(c, 100, "{\"by\":[0,0,0,1,1,0,0,0],\"step\":8}");
    /* A step that the head never heard of is nobody's to claim. */
    chosen(c, 7, NULL);
    hear(c, 1, "[]");
    chosen(c, 100, NULL);
    copies_free(c);
}

static void what_a_member_makes_up_is_refused(void **state)
{
    (void)state;
    static const char *const nonsense[] = {
        "[{\"step\":0,\"units\":[[0,8]]}]",
        "[{\"step\":1,\"units\":[[3,3]]}]",
        "[{\"step\":1,\"units\":[[-1,3]]}]",
        "[{\"step\":1,\"units\":[[0,99999999999]]}]",
        "[{\"units\":[[0,8]]}]",
        "[{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}]",
    };
    struct copies *c = copies_new();
    for (size_t i = 0; i < sizeof nonsense / sizeof *nonsense; i++) {
        assert_int_equal(hear(c, 1, nonsense[i]), -EBADMSG);
        chosen(c, 100, NULL);
    }
    /* Ranges beyond the model help nobody. */
    assert_int_equal(hear(c, 1, "[{\"step\":3,\"units\":[[0,7],[100,200]]}]"), 0);
    chosen(c, 100, NULL);
    assert_int_equal(hear(c, 1, "[{\"step\":3,\"units\":[[0,7],[7,200]]}]"), 0);
    chosen(c, 100, "{\"by\":[1,1,1,1,1,1,1,1],\"step\":3}");
    copies_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_newest_step_that_is_whole),
        cmocka_unit_test(what_a_member_makes_up_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
