/* SPDX-License-Identifier: MIT
 *
 * Reads schedules of the user. Owns nothing beyond what it returns. Pure; called by sched_make and
 * ringctl. */
#include "pipe/sched_text.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "pipe/sched_impl.h"

/* Numbers larger than this are nobody's stage or microbatch; what is within is checked against the
 * rest later. */
enum { NUMBER_MAX = SCHED_MAX_CELLS - 1, CELL_SHOWN = 32 };

struct sched_reading {
    struct sched *sched; /* under construction; rank_of_stage comes last */
    size_t rank, cell;   /* where it stands, cells counted from 1 */
    size_t most_stage, most_mb;
    bool any;
    uint32_t *place;  /* [NUMBER_MAX + 1] rank + 1 where the stage came first, 0 = nowhere yet */
    uint8_t *stepped; /* [NUMBER_MAX + 1] its O has been */
    struct err *err;
};

static int refuse(const struct sched_reading *r, const char *at, size_t n, const char *why)
{
    return err_set(r->err, -EINVAL, "line %zu, column %zu (%.*s): %s", r->rank + 1, r->cell,
                   (int)(n < CELL_SHOWN ? n : CELL_SHOWN), at, why);
}

/* Decimal digits at *at, which moves on; −1 where there is none, −ERANGE where there are too
 * many. */
static long number(const char **at, const char *end)
{
    long value = 0;
    const char *begin = *at;
    for (; *at < end && isdigit((unsigned char)**at); ++*at) {
        value = value * 10 + (**at - '0');
        if (value > NUMBER_MAX)
            return -ERANGE;
    }
    return *at == begin ? -1 : value;
}

static int append(struct sched_reading *r, enum sched_op op, size_t stage, size_t mb, const char *at,
                  size_t n)
{
    struct sched_list *list = &r->sched->rank[r->rank];
    if (r->stepped[stage])
        return refuse(r, at, n, "the stage has made its optimizer step (O) before; move it behind");
    /* The room doubles whenever the count reaches a power of two. */
    if ((list->n & (list->n - 1)) == 0) {
        const size_t room = list->n ? 2 * list->n : 1;
        struct sched_task *tasks = reallocarray(list->tasks, room, sizeof *tasks);
        if (tasks)
            list->tasks = tasks;
        uint32_t *column = reallocarray(list->column, room, sizeof *column);
        if (column)
            list->column = column;
        if (!tasks || !column)
            return err_set(r->err, -ENOMEM, "no memory for the schedule");
    }
    list->column[list->n] = (uint32_t)r->cell;
    list->tasks[list->n++] = (struct sched_task){op, (uint32_t)stage, (uint32_t)mb};
    r->most_stage = stage > r->most_stage ? stage : r->most_stage;
    r->most_mb = mb > r->most_mb ? mb : r->most_mb;
    r->any = true;
    if (!r->place[stage])
        r->place[stage] = (uint32_t)r->rank + 1;
    return 0;
}

/* What stands between stage and microbatch: a task, something that follows from the tasks, or
 * nothing known. */
enum word { WORD_TASK, WORD_STEP, WORD_FOLLOWS, WORD_UNKNOWN };

static enum word word_of(const char *at, size_t n, enum sched_op *ret_op)
{
    static const char *const follow[] = {"SEND_F",  "RECV_F",  "SEND_B",     "RECV_B",
                                         "UNSHARD", "RESHARD", "REDUCE_GRAD"};
    for (int op = 0; op < OP_COUNT; op++)
        if (n == 1 && *at == *sched_op_name((enum sched_op)op)) {
            *ret_op = (enum sched_op)op;
            return WORD_TASK;
        }
    if (n == 1 && *at == 'O')
        return WORD_STEP;
    for (size_t i = 0; i < sizeof follow / sizeof *follow; i++)
        if (n == strlen(follow[i]) && memcmp(at, follow[i], n) == 0)
            return WORD_FOLLOWS;
    return WORD_UNKNOWN;
}

static int read_action(struct sched_reading *r, const char *at, size_t n)
{
    const char *p = at, *end = at + n, *word;
    long stage = number(&p, end);
    for (word = p; p < end && !isdigit((unsigned char)*p);)
        p++;
    size_t length = (size_t)(p - word);
    long mb = number(&p, end);
    if (stage == -ERANGE || mb == -ERANGE)
        return refuse(r, at, n, "the number is out of range; stages and microbatches are counted from 0");
    enum sched_op op = OP_F;
    enum word kind = stage < 0 || p != end ? WORD_UNKNOWN : word_of(word, length, &op);
    if (kind == WORD_UNKNOWN || (kind == WORD_TASK && mb < 0))
        return refuse(r, at, n,
                      "not a task; one is written as stage, F, I, W, B or R, and microbatch, as in 0F3");
    if (kind == WORD_STEP)
        r->stepped[stage] = 1;
    return kind == WORD_TASK ? append(r, op, (size_t)stage, (size_t)mb, at, n) : 0;
}

static bool is_word(const char *at, size_t n, const char *word)
{
    return n == strlen(word) && memcmp(at, word, n) == 0;
}

/* "(0F7;7B3)OVERLAP_F_B": torch runs the two side by side, here one follows the other. */
static int read_overlap(struct sched_reading *r, const char *at, size_t n)
{
    const char *close = memchr(at, ')', n);
    if (!close || !is_word(close + 1, n - (size_t)(close + 1 - at), "OVERLAP_F_B"))
        return refuse(r, at, n, "not a task; overlapping ones are written as in (0F7;7B3)OVERLAP_F_B");
    int rc = 0;
    for (const char *p = at + 1; rc == 0 && p <= close;) {
        const char *stop = memchr(p, ';', (size_t)(close - p));
        stop = stop ? stop : close;
        rc = read_action(r, p, (size_t)(stop - p));
        p = stop + 1;
    }
    return rc;
}

static int read_cell(struct sched_reading *r, const char *at, const char *end)
{
    while (at < end && isspace((unsigned char)*at))
        at++;
    while (at < end && isspace((unsigned char)end[-1]))
        end--;
    size_t n = (size_t)(end - at);
    if (n >= 2 && *at == '"' && end[-1] == '"')
        at++, n -= 2;
    if (n == 0 || is_word(at, n, "None"))
        return 0;
    return *at == '(' ? read_overlap(r, at, n) : read_action(r, at, n);
}

static int read_line(struct sched_reading *r, const char *at, const char *end)
{
    int rc = 0;
    for (r->cell = 1; rc == 0 && at <= end; r->cell++) {
        const char *stop = memchr(at, ',', (size_t)(end - at));
        stop = stop ? stop : end;
        rc = read_cell(r, at, stop);
        at = stop + 1;
    }
    return rc;
}

static int read_lines(struct sched_reading *r, const char *text, const char *end)
{
    int rc = 0;
    for (const char *at = text; rc == 0 && at < end; r->rank++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        stop = stop ? stop : end;
        if (r->rank == SCHED_MAX_RANKS)
            return err_set(r->err, -EINVAL, "a schedule has at most %d lines, one for each rank",
                           SCHED_MAX_RANKS);
        rc = read_line(r, at, stop);
        at = stop + 1;
    }
    return rc;
}

static int place_stages(struct sched_reading *r)
{
    struct sched *sched = r->sched;
    if (!r->any)
        return err_set(r->err, -EINVAL,
                       "the schedule is empty; it has a line for each rank, tasks separated by commas");
    sched->stages = r->most_stage + 1;
    sched->microbatches = r->most_mb + 1;
    sched->ranks = r->rank;
    sched->rank_of_stage = calloc(sched->stages, sizeof *sched->rank_of_stage);
    if (!sched->rank_of_stage)
        return err_set(r->err, -ENOMEM, "no memory for the schedule");
    for (size_t s = 0; s < sched->stages; s++) {
        if (!r->place[s])
            return err_set(r->err, -EINVAL, "stage %zu has no task on any rank, but there is a stage %zu", s,
                           r->most_stage);
        sched->rank_of_stage[s] = r->place[s] - 1;
    }
    for (size_t k = 0; k < sched->ranks; k++)
        if (!sched->rank[k].n)
            return err_set(r->err, -EINVAL, "line %zu has no task; take it out, or give its rank a stage",
                           k + 1);
    return 0;
}

int sched_read(struct sched **ret, const char *text, struct err *err)
{
    size_t n = strlen(text);
    if (n > SCHED_TEXT_MAX)
        return err_set(err, -EFBIG, "a schedule has at most %d MiB of text, not %zu bytes",
                       SCHED_TEXT_MAX >> 20, n);
    while (n && isspace((unsigned char)text[n - 1]))
        n--;
    struct sched_reading r = {.err = err, .sched = calloc(1, sizeof *r.sched)};
    r.place = calloc(NUMBER_MAX + 1, sizeof *r.place);
    r.stepped = calloc(NUMBER_MAX + 1, 1);
    int rc = r.sched && r.place && r.stepped ? 0 : err_set(err, -ENOMEM, "no memory for the schedule");
    if (rc == 0 && !(r.sched->rank = calloc(SCHED_MAX_RANKS, sizeof *r.sched->rank)))
        rc = err_set(err, -ENOMEM, "no memory for the schedule");
    if (r.sched)
        r.sched->ranks = r.sched->rank ? SCHED_MAX_RANKS : 0; /* what there is to free */
    if (rc == 0)
        rc = read_lines(&r, text, text + n);
    if (rc == 0)
        rc = place_stages(&r);
    free(r.place);
    free(r.stepped);
    if (rc == 0)
        *ret = r.sched;
    else
        sched_free(r.sched);
    return rc;
}
