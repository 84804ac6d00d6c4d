/* SPDX-License-Identifier: MIT
 *
 * Schedules as text: both dialects, there and back; what is refused and how it is said; charts. */
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

#include "pipe/plan.h"
#include "pipe/sched_text.h"

static struct sched *read_text(const char *text)
{
    struct sched *sched = NULL;
    struct err err = {0};
    if (sched_read(&sched, text, &err) < 0)
        fail_msg("%s", err.text);
    return sched;
}

static char *written(const struct sched *sched, bool messages)
{
    char *text = NULL;
    size_t n;
    struct err err = {0};
    FILE *to = open_memstream(&text, &n);
    assert_non_null(to);
    if (sched_write(to, sched, messages, &err) < 0)
        fail_msg("%s", err.text);
    fclose(to);
    return text;
}

static void assert_written(const char *text, const char *wanted)
{
    struct sched *sched = read_text(text);
    char *got = written(sched, false);
    assert_string_equal(got, wanted);
    free(got);
    sched_free(sched);
}

static void test_reading(void **state)
{
    (void)state;
    struct sched *sched = read_text("0F0,3F0,3I0,3W0,0B0\r\n1F0, 2F0 ,\"2B0\",None,,1B0,\n\n");
    const uint32_t placement[] = {0, 1, 1, 0};
    assert_int_equal(sched->ranks, 2);
    assert_int_equal(sched->stages, 4);
    assert_int_equal(sched->microbatches, 1);
    assert_memory_equal(sched->rank_of_stage, placement, sizeof placement);
    assert_int_equal(sched->rank[0].n, 5);
    assert_int_equal(sched->rank[1].n, 4);
    assert_int_equal(plan_check(sched, NULL), 0);
    sched_free(sched);
    assert_written(
        "0UNSHARD,0F0,0SEND_F0,0RECV_B0,0R0,0B0,0REDUCE_GRAD,0RESHARD,0O\n1RECV_F0,1F0,1B0,1SEND_B0,1O0",
        "0F0,0R0,0B0\n1F0,1B0\n");
    assert_written("0F0,(0F1;0B0)OVERLAP_F_B,0I1,0W1", "0F0,0F1,0B0,0I1,0W1\n");
}

static void refuse(const char *text, const char *sentence)
{
    struct sched *sched = NULL;
    struct err err = {0};
    struct sched_sim sim = {0};
    const struct sched_costs units = {.each = {1, 1, 1, 1, 0}};
    int rc = sched_read(&sched, text, &err);
    if (rc == 0)
        rc = sched_simulate(&sim, sched, &units, &err);
    assert_true(rc < 0);
    assert_string_equal(err.text, sentence);
    sched_free(sched);
}

static void test_what_is_no_task(void **state)
{
    (void)state;
    const char *grammar = "not a task; one is written as stage, F, I, W, B or R, and microbatch, as in 0F3";
    static const char *const cells[] = {"0X0",  "F0",      "0F",  "0", "0F0x", "-1F0", "0SEND_F0,1.5F0",
                                        "(0F0", "0F0;0B0", "0 F0"};
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
        struct sched *sched = NULL;
        struct err err = {0};
        assert_int_equal(sched_read(&sched, cells[i], &err), -EINVAL);
        assert_non_null(strstr(err.text, "line 1, column "));
        assert_non_null(strstr(err.text, "not a task"));
    }
    char sentence[200];
    snprintf(sentence, sizeof sentence, "line 2, column 2 (1Q0): %s", grammar);
    refuse("0F0,0B0\n1F0,1Q0", sentence);
    refuse("0F0,0F99999999999999999999",
           "line 1, column 2 (0F99999999999999999999): the number is out of range; stages and "
           "microbatches are counted from 0");
    refuse("0F0,(0F1;0B0)TOGETHER",
           "line 1, column 2 ((0F1;0B0)TOGETHER): not a task; overlapping ones are written as in "
           "(0F7;7B3)OVERLAP_F_B");
    refuse("", "the schedule is empty; it has a line for each rank, tasks separated by commas");
    refuse("\n \n,None,\n", "the schedule is empty; it has a line for each rank, tasks separated by commas");
    refuse("0F0,0B0\n\n1F0,1B0", "line 2 has no task; take it out, or give its rank a stage");
    refuse("0F0,0B0\n2F0,2B0", "stage 1 has no task on any rank, but there is a stage 2");
    refuse("0F0,0O,0B0",
           "line 1, column 3 (0B0): the stage has made its optimizer step (O) before; move it behind");
}

/* Each way in which an order of existing tasks is none. */
static void test_what_cannot_run(void **state)
{
    (void)state;
    refuse("0F0,0B0,0B1\n1F0,1B0,1F1,1B1",
           "line 1, column 3: 0B1 needs 0F1, which is missing; add it before");
    refuse("0F0,0B0\n1F0,1B0,1F1,1B1", "line 1, column 2: the list ends there, but 0F1 is missing; add it");
    refuse("0F0,0F1,0B0\n1F0,1B0,1F1,1B1",
           "line 1, column 2: the backward of 0F1 is missing; add 0B1, or 0I1 and 0W1");
    refuse("0F0,0F0,0B0\n1F0,1B0", "line 1, column 2: 0F0 is a duplicate of column 1; remove one");
    refuse("0F0,0B0\n1B0,1F0", "line 2, column 1: 1B0 stands before 1F0 (column 2); exchange them");
    refuse("0F0,0W0,0I0\n1F0,1B0", "line 1, column 2: 0W0 stands before 0I0 (column 3); exchange them");
    refuse("0F0,0I0\n1F0,1B0", "line 1, column 2: 0I0 has no 0W0; add it, or use 0B0");
    refuse("0F0,0B0,0W0\n1F0,1B0",
           "line 1, column 3: 0W0 stands beside the other form of its backward; B is I and W in one "
           "task: use either B, or I and W");
    refuse(
        "0F0,1F0,0B0\n1F0,1B0",
        "line 2, column 1 (1F0): stage 1 belongs to line 1 and cannot lie on two ranks; move the task there");
    refuse("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1", "the schedule waits in a circle: line 1, column 2 (0B0) "
                                               "waits for 1B0, line 2, column 2 (1F1) waits "
                                               "for 0F1; reorder one of these lists");
    refuse("1F0,0F0,0B0,1B0",
           "the schedule waits in a circle: line 1, column 1 (1F0) waits for 0F0; reorder one of these "
           "lists");
    /* Columns are cells, as empty ones and messages are, too. */
    refuse("0F0,,None,1RECV_B0,0B0,0B0\n1F0,1B0",
           "line 1, column 6: 0B0 is a duplicate of column 5; remove one");
    refuse("0F0,0B0,0R0", "line 1, column 3: 0R0 stands after the backward it is for; move it before");
    refuse("0R0,0F0,0B0", "line 1, column 1: 0R0 stands before 0F0 (column 2); exchange them");
}

static void test_sizes(void **state)
{
    (void)state;
    char lines[SCHED_MAX_RANKS + sizeof "0F0,0B0"];
    memset(lines, '\n', SCHED_MAX_RANKS);
    strcpy(lines + SCHED_MAX_RANKS, "0F0,0B0");
    refuse(lines, "a schedule has at most 1024 lines, one for each rank");
    struct sched *sched = NULL;
    struct err err;
    struct sched_request req = {.text = "0F0,0B0\n1F0,1B0", .ranks = 3};
    assert_int_equal(sched_make(&sched, &req, &err), -EINVAL);
    assert_string_equal(err.text, "the schedule is written for 2 ranks, but there are 3");
    req = (struct sched_request){.text = req.text, .microbatches = 4};
    assert_int_equal(sched_make(&sched, &req, &err), -EINVAL);
    assert_string_equal(err.text, "the schedule is written for 1 microbatches, but there are 4");
    req = (struct sched_request){.text = req.text, .chunks = 1};
    assert_int_equal(sched_make(&sched, &req, &err), -EINVAL);
    req = (struct sched_request){.text = req.text, .ranks = 2, .microbatches = 1};
    assert_int_equal(sched_make(&sched, &req, &err), 0);
    sched_free(sched);
}

/* --- there and back --------------------------------------------------------------------------- */

struct cell {
    char text[24];
};

/* Sends that wait for their receive and receives that wait for their send, cell by cell: true if
 * all end. */
static bool runs_without_buffers(const char *text, size_t ranks)
{
    char *copy = strdup(text), *line[16] = {0}, *rest = copy;
    assert_true(copy && ranks <= 16);
    for (size_t r = 0; r < ranks; r++)
        line[r] = strsep(&rest, "\n");
    struct cell at[16] = {0};
    bool moved = true, left = true;
    while (moved) {
        moved = left = false;
        for (size_t r = 0; r < ranks; r++) {
            if (!at[r].text[0] && line[r] && (moved = true))
                snprintf(at[r].text, sizeof at[r].text, "%s", strsep(&line[r], ","));
            left = left || at[r].text[0];
            unsigned stage, mb;
            char way;
            if (at[r].text[0] && sscanf(at[r].text, "%uSEND_%c%u", &stage, &way, &mb) != 3 &&
                sscanf(at[r].text, "%uRECV_%c%u", &stage, &way, &mb) != 3) {
                at[r] = (struct cell){""};
                moved = true;
            }
            if (sscanf(at[r].text, "%uSEND_%c%u", &stage, &way, &mb) != 3)
                continue;
            struct cell wanted;
            snprintf(wanted.text, sizeof wanted.text, "%uRECV_%c%u", way == 'F' ? stage + 1 : stage - 1, way,
                     mb);
            for (size_t k = 0; k < ranks; k++)
                if (!strcmp(at[k].text, wanted.text)) {
                    at[k] = at[r] = (struct cell){""};
                    moved = true;
                }
        }
    }
    free(copy);
    return !left;
}

static void test_there_and_back(void **state)
{
    (void)state;
    for (size_t k = 0; sched_names()[k]; k++)
        for (size_t p = 1; p <= 5; p++)
            for (size_t m = 1; m <= 9; m += 2) {
                struct sched *sched = NULL;
                struct sched_request req = {.name = sched_names()[k], .ranks = p, .microbatches = m};
                assert_int_equal(sched_make(&sched, &req, NULL), 0);
                char *tasks = written(sched, false), *all = written(sched, true);
                struct sched *back = read_text(all);
                assert_memory_equal(back->rank_of_stage, sched->rank_of_stage,
                                    sched->stages * sizeof *sched->rank_of_stage);
                char *again = written(back, false);
                assert_string_equal(again, tasks);
                if (!runs_without_buffers(all, p))
                    fail_msg("%s p=%zu m=%zu stands still without buffers:\n%s", sched_names()[k], p, m, all);
                sched_free(back);
                sched_free(sched);
                free(again);
                free(tasks);
                free(all);
            }
}

static void test_chart(void **state)
{
    (void)state;
    struct sched *sched = read_text("0F0,3F0,3I0,3W0,0B0\n1F0,2F0,2B0,1B0");
    const struct sched_costs units = {.each = {1, 1, 1, 1, 0}};
    struct sched_sim sim;
    assert_int_equal(sched_simulate(&sim, sched, &units, NULL), 0);
    char *text = NULL;
    size_t n;
    FILE *to = open_memstream(&text, &n);
    assert_non_null(to);
    sched_chart(to, sched, &sim, 1.0);
    fclose(to);
    assert_string_equal(text, "r0 F0  .  . f0 i0 w0  .  .  . B0 --\n"
                              "r1  . F0 f0  .  . b0 -- B0 --  .  .\n");
    free(text);
    sched_sim_done(&sim);
    sched_free(sched);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reading),         cmocka_unit_test(test_what_is_no_task),
        cmocka_unit_test(test_what_cannot_run), cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_there_and_back),  cmocka_unit_test(test_chart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
