/* SPDX-License-Identifier: MIT
 *
 * Who heads a job in the simulation: the node it was submitted on, until another one takes it over
 * from its dossier, under a number of its own. */
#include "tests/sim/cluster/sim.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/ringd/cluster/identity.h"
#include "daemon/ringd/store/store.h"

struct sim_head sim_head_of(const struct sim_job *job)
{
    return job->turn ? job->taken[job->turn - 1] : (struct sim_head){job->head, job->id};
}

/* A number that a crash made free may come again: the latest is meant. */
struct sim_job *sim_job_at(const struct sim_node *head, uint64_t id, size_t *ret_turn)
{
    for (size_t i = 0; id && i < sim->jobs; i++) {
        struct sim_job *job = &sim->job[i];
        *ret_turn = job->turn;
        for (; *ret_turn; --*ret_turn)
            if (job->taken[*ret_turn - 1].node == head && job->taken[*ret_turn - 1].id == id)
                return job;
        if (job->head == head && job->id == id)
            return job;
    }
    return NULL;
}

static void forget_number(const struct sim_node *n, uint64_t id)
{
    for (size_t i = 0; i < sim->jobs; i++)
        for (size_t k = 0; k < sim->job[i].turn; k++)
            if (sim->job[i].taken[k].node == n && sim->job[i].taken[k].id == id)
                sim->job[i].taken[k].id = 0;
}

void sim_head_takes(struct sim_node *n, const json_t *note)
{
    const char *hex = json_string_value(json_object_get(note, "head"));
    const uint64_t was = (uint64_t)json_integer_value(json_object_get(note, "job")),
                   as = (uint64_t)json_integer_value(json_object_get(note, "as"));
    uint8_t id[16];
    size_t turn;
    if (!hex || id_parse(id, hex))
        return;
    struct sim_job *job = sim_job_at(sim_node_of(id), was, &turn);
    if (!job) {
        sim_wrong("%s takes over a job that nobody submitted", sim->roster.at[n->number].name);
        return;
    }
    if (job->turn == SIM_TURNS) {
        sim_wrong("job %zu changes hands more than %d times", (size_t)(job - sim->job), SIM_TURNS);
        return;
    }
    forget_number(n, as);
    job->taken[job->turn++] = (struct sim_head){n, as};
    sim_trace("-- job %zu is headed by %s now, the %zu. to take it over", (size_t)(job - sim->job),
              sim->roster.at[n->number].name, job->turn);
}

void sim_head_loses(const struct sim_node *n, const json_t *note)
{
    const uint64_t as = (uint64_t)json_integer_value(json_object_get(note, "as"));
    for (size_t i = 0; i < sim->jobs; i++) {
        struct sim_job *job = &sim->job[i];
        if (job->turn && job->taken[job->turn - 1].node == n && job->taken[job->turn - 1].id == as)
            job->turn--;
    }
}

void sim_head_begins(const struct sim_node *n, uint64_t id, uint64_t said)
{
    size_t turn;
    struct sim_job *job = sim_job_at(n, id, &turn);
    if (!job || turn != job->turn)
        return;
    job->told = job->generates ? 0 : said;
    if (!job->generates)
        job->said = said;
    job->saved = 0;
}
