/* SPDX-License-Identifier: MIT
 *
 * Copies of what is trained, in files in memory: made by the daemon's held_files.c, which keeps
 * them beyond the life of a stage, and written by stages as daemon/stage/hold does. What must hold:
 * while all but one node of a job keep theirs, the job does no more than one step again. */
#include "tests/sim/cluster/sim.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/xalloc.h"
#include "daemon/ringd/job/workers_impl.h"
#include "tests/sim/cluster/stage.h"

enum { TURNS = 2, PARTS = 2 * TURNS, LANES = 1 << 20, FILES = 1 << 28 };

struct sim_file {
    unsigned refs;
    struct {
        uint64_t step; /* 0: nothing */
        size_t first, end;
    } part[PARTS]; /* its own by turns, then the previous rank's */
};

/* --- files ------------------------------------------------------------------------------------ */

static void unref(struct sim_file *f)
{
    if (f && !--f->refs)
        for (size_t i = 0; i < sim->nfiles; i++)
            if (sim->files[i] == f) {
                sim->files[i] = NULL;
                free(f);
                return;
            }
}

/* A job that begins on a node takes the place of another one's copies. */
static void note_job(struct sim_node *n)
{
    const struct workers *ws = n->node.workers;
    const struct held_files *held = NULL;
    for (size_t i = 0; i < ws->n; i++) /* one job trains at a time */
        if (ws->at[i]->trains && ws->at[i]->state != WORKER_IDLE)
            held = &ws->at[i]->held;
    for (size_t i = 0; held && i < sim->jobs; i++) {
        const struct sim_job *job = &sim->job[i];
        const bool is_it = job->id && job->id == held->job &&
                           !memcmp(sim->roster.at[job->head->number].id, held->head, sizeof held->head);
        n->memory[i] += !is_it || n->holds != i + 1;
        if (is_it)
            n->holds = i + 1;
    }
}

int __wrap_memfd_create(const char *name, unsigned flags);
int __wrap_memfd_create(const char *name, unsigned flags)
{
    (void)name, (void)flags;
    struct sim_file *f = xcalloc(1, sizeof *f);
    f->refs = 1;
    note_job(sim->here);
    size_t i = 0; /* the lowest number that is free, as kernels have it */
    while (i < sim->nfiles && sim->files[i])
        i++;
    if (i == sim->nfiles)
        sim->files = xreallocarray(sim->files, ++sim->nfiles, sizeof *sim->files);
    sim->files[i] = f;
    return FILES + (int)i;
}

int __real_close(int fd);
int __wrap_close(int fd);
int __wrap_close(int fd)
{
    if (fd < LANES || !sim)
        return __real_close(fd);
    if (fd >= FILES)
        unref(sim->files[fd - FILES]);
    return 0;
}

void sim_memory_lose(struct sim_node *n)
{
    for (size_t i = 0; i < SIM_JOBS; i++)
        n->memory[i]++;
    n->holds = 0;
}

/* --- what stages do --------------------------------------------------------------------------- */

void copies_take_file(struct spawn *s, int fd)
{
    if (s->nfiles == STAGE_FILES || fd < FILES) {
        sim_wrong("a stage gets a file for copies that it cannot use");
        return;
    }
    s->files[s->nfiles] = sim->files[fd - FILES];
    s->files[s->nfiles++]->refs++;
}

void copies_leave(struct spawn *s)
{
    while (s->nfiles)
        unref(s->files[--s->nfiles]);
}

json_t *copies_report(const struct spawn *s)
{
    json_t *list = json_array();
    for (size_t f = 0; f + 1 < s->nfiles; f++)
        for (size_t p = 0; p < PARTS; p++)
            if (s->files[f]->part[p].step)
                json_array_append_new(list, json_pack("{s:I s:[[I,I]]}", "step",
                                                      (json_int_t)s->files[f]->part[p].step, "units",
                                                      (json_int_t)s->files[f]->part[p].first,
                                                      (json_int_t)s->files[f]->part[p].end));
    for (size_t i = 0; i < json_array_size(list); i++)
        sim_trace("a copy of step %lld is here",
                  (long long)json_integer_value(json_object_get(json_array_get(list, i), "step")));
    return list;
}

static void put(struct spawn *s, size_t part, uint64_t step, size_t of)
{
    struct sim_file *f = s->files[s->nfiles - 1];
    f->part[part].step = step;
    f->part[part].first = of ? stage_first_layer(of, s->ranks) + 1 : 0;
    f->part[part].end = stage_first_layer(of + 1, s->ranks) + (of + 1 < s->ranks ? 1 : 2);
}

/* Of each step but the last, and of the one that it went on from, if that was no file. */
static bool is_due(const struct spawn *s, uint64_t step)
{
    const struct sim_job *job = &sim->job[s->job];
    return s->nfiles && s->attempt == job->next.attempt && step >= job->next.began + !job->next.is_restored &&
           step < job->steps;
}

static void note_whole(struct spawn *s)
{
    if (s->given == 1)
        stage_say(s, "whole", json_object());
}

void copies_give(struct spawn *s, uint64_t step)
{
    struct sim_job *job = &sim->job[s->job];
    if (!is_due(s, step))
        return;
    put(s, step % TURNS, step, s->rank);
    s->given++;
    if (s->ranks < 2)
        note_whole(s);
    if (s->given < 2)
        return;
    job->next.is_settled = true; /* files of the run before go */
    job->run = job->next;
    if (s->given == 2)
        stage_say(s, "settled", json_object());
}

bool copies_take(struct spawn *s, uint64_t step)
{
    const size_t of = (s->rank + s->ranks - 1) % s->ranks;
    if (s->ranks < 2 || !is_due(s, step))
        return true;
    const struct spawn *from = stage_of_rank(s, of);
    if (!from || !from->nfiles || from->files[from->nfiles - 1]->part[step % TURNS].step != step)
        return false;
    put(s, TURNS + step % TURNS, step, of);
    note_whole(s);
    return true;
}

/* --- lines of rank 0 ------------------------------------------------------------------------- */

static void add_line(char **lines, const char *kind, json_t *line)
{
    json_object_set_new(line, "ev", json_string(kind));
    char *text = json_dumps(line, JSON_COMPACT), *all = xasprintf("%s%s\n", *lines, text);
    json_decref(line);
    free(text);
    free(*lines);
    *lines = all;
}

void copies_pass_lines(struct spawn *s, struct spawn *next, uint64_t step)
{
    char *lines = xstrdup("");
    if (!s->passes)
        add_line(&lines, "said",
                 s->said ? json_pack("{s:{s:{s:I}}}", "said", "step", "", (json_int_t)s->said)
                         : json_pack("{s:{}}", "said"));
    s->passed = s->passes ? s->passed : s->said;
    s->passes = true;
    while (s->passed < step) {
        s->passed++;
        add_line(&lines, "step", stage_step(s, s->passed));
    }
    if (*lines)
        stage_say(next, "lines", json_pack("{s:s}", "lines", lines));
    free(lines);
}

/* --- going on from them ----------------------------------------------------------------------- */

static bool has(const struct spawn *s, uint64_t step, size_t unit)
{
    for (size_t f = 0; f + 1 < s->nfiles; f++)
        for (size_t p = 0; p < PARTS; p++)
            if (s->files[f]->part[p].step == step && unit >= s->files[f]->part[p].first &&
                unit < s->files[f]->part[p].end)
                return true;
    return false;
}

/* How many of the nodes of a run have lost its copies, or take no part any more. */
static size_t lost(const struct spawn *s, const struct sim_run *run)
{
    size_t n = 0;
    for (size_t i = 0; i < sim->nodes; i++) {
        bool is_here = false;
        for (size_t r = 0; r < s->ranks; r++)
            is_here = is_here || (stage_of_rank(s, r) && stage_of_rank(s, r)->node == &sim->at[i]);
        n += (run->nodes >> i & 1) && (!is_here || run->memory[i] != sim->at[i].memory[s->job]);
    }
    return n;
}

static void check_lost(const struct spawn *s, const struct sim_job *job)
{
    const struct sim_run *run = &job->run;
    const uint64_t made = run->made;
    /* After the last step all copies go, and so they do when the job fails or is cancelled: a head
     * that loses that word goes on without them. */
    if (!job->copies || !made || made == job->steps || run->is_over || lost(s, run) > (run->ranks > 1))
        return;
    if (s->step + 1 < made)
        sim_wrong("job %zu begins again behind step %llu of %llu, and no more than one node was lost", s->job,
                  (unsigned long long)s->step, (unsigned long long)made);
}

void copies_begin(struct spawn *s, const json_t *restore)
{
    struct sim_job *job = &sim->job[s->job];
    const uint64_t step = (uint64_t)json_integer_value(json_object_get(restore, "step"));
    const json_t *by = json_object_get(restore, "by");
    if (s->generates)
        return;
    for (size_t u = 0; restore && u < STAGE_UNITS; u++) {
        const size_t rank = (size_t)json_integer_value(json_array_get(by, u));
        const struct spawn *of = stage_of_rank(s, rank);
        if (of && !has(of, step, u)) /* else it has just ended, and with it this attempt */
            sim_wrong("job %zu is to go on from a copy of step %llu that rank %zu has not", s->job,
                      (unsigned long long)step, rank);
    }
    const bool is_restored = step > s->step;
    s->step = is_restored ? step : s->step;
    check_lost(s, job);
    /* Until it has copies of its own, those of the run before are what counts. */
    job->next = (struct sim_run){.attempt = s->attempt,
                                 .began = s->step,
                                 .made = s->step,
                                 .is_restored = is_restored,
                                 .ranks = s->ranks};
    for (size_t r = 0; r < s->ranks; r++) {
        const struct spawn *of = stage_of_rank(s, r);
        if (!of)
            continue;
        job->next.nodes |= 1U << of->node->number;
        job->next.memory[of->node->number] = of->node->memory[s->job];
    }
}

void sim_copies_over(const struct sim_node *head, uint64_t id)
{
    size_t turn;
    struct sim_job *job = sim_job_at(head, id, &turn);
    if (job && turn == job->turn)
        job->run.is_over = job->next.is_over = true;
}

void sim_copies_made(struct spawn *s)
{
    struct sim_job *job = &sim->job[s->job];
    job->next.made = s->step;
    if (job->next.is_settled || job->next.made >= job->next.began + 2)
        job->run = job->next;
}
