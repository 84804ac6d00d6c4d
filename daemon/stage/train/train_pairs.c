/* SPDX-License-Identifier: MIT */
#include "daemon/stage/train/train_pairs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* --- references ------------------------------------------------------------------------------- */

int pair_refs_init(struct pair_refs *refs, const struct stage_data *set)
{
    refs->set = set;
    refs->logp = calloc(data_rows(set->data), sizeof *refs->logp);
    refs->is_known = calloc(data_packs_count(set->packs), sizeof *refs->is_known);
    return refs->logp && refs->is_known ? 0 : -ENOMEM;
}

void pair_refs_done(struct pair_refs *refs)
{
    free(refs->logp);
    free(refs->is_known);
    *refs = (struct pair_refs){0};
}

/* The row of an answer: a pack holds both of a pair. */
static uint32_t row_of(const struct stage_data *set, size_t pack, size_t answer)
{
    size_t n;
    return data_packs_at(set->packs, pack, &n)[answer];
}

/* A round over n pairs. */
static int find(struct pair_refs *refs, const struct head *h, struct runner *r, struct batch *batch,
                const size_t *packs, size_t n, struct err *err)
{
    batch->n = 0;
    batch_fill(batch, h, refs->set, packs, n, 1);
    struct head_round round = {.mb = batch->mb};
    struct go go = {
        .program = PROGRAM_FORWARD, .adapter = GO_NO_ADAPTER, .microbatches = batch->n, .mb = batch->seqs};
    const int e = runner_round(r, &go, &round, err);
    for (size_t i = 0; i < n && !e; i++)
        for (size_t k = 0; k < PAIR_ANSWERS; k++)
            refs->logp[row_of(refs->set, packs[i], k)] = batch->mb[i].logp[k];
    return e;
}

int pair_refs_find(struct pair_refs *refs, const struct head *h, struct runner *r, struct batch *batch,
                   const size_t *packs, size_t n, struct err *err)
{
    size_t *todo = calloc(h->plan.microbatches, sizeof *todo), found = 0;
    int e = todo ? 0 : err_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < n && !e; i++) {
        if (!refs->is_known[packs[i]])
            todo[found++] = packs[i];
        refs->is_known[packs[i]] = true; /* or the job ends */
        if (found < h->plan.microbatches && (i + 1 < n || !found))
            continue;
        e = find(refs, h, r, batch, todo, found, err);
        found = 0;
    }
    free(todo);
    return e;
}

double pair_refs_of(const struct pair_refs *refs, size_t pack)
{
    return refs->logp[row_of(refs->set, pack, PAIR_CHOSEN)] -
           refs->logp[row_of(refs->set, pack, PAIR_REJECTED)];
}

/* --- figures ---------------------------------------------------------------------------------- */

static void add_pair(struct pair_sums *to, const struct stage_data *set, const struct pair_refs *refs,
                     const struct pair_loss *how, const double *logp, size_t pack)
{
    struct pair_answer pair[PAIR_ANSWERS];
    double reward[PAIR_ANSWERS], weight[PAIR_ANSWERS];
    for (size_t k = 0; k < PAIR_ANSWERS; k++) {
        const uint32_t row = row_of(set, pack, k);
        pair[k] = (struct pair_answer){logp[k], data_row(set->data, row).supervised};
        reward[k] = preference_reward(how, &pair[k], refs->logp ? refs->logp[row] : 0);
    }
    to->loss += preference_loss(how, pair, refs->logp ? pair_refs_of(refs, pack) : 0, weight);
    to->nll -= pair[PAIR_CHOSEN].logp / (double)pair[PAIR_CHOSEN].n;
    to->chosen += reward[PAIR_CHOSEN];
    to->rejected += reward[PAIR_REJECTED];
    to->accuracies += reward[PAIR_CHOSEN] > reward[PAIR_REJECTED];
    to->margins += reward[PAIR_CHOSEN] - reward[PAIR_REJECTED];
    to->logps_chosen += pair[PAIR_CHOSEN].logp;
    to->logps_rejected += pair[PAIR_REJECTED].logp;
    to->n++;
}

void pair_sums_add(struct pair_sums *to, const struct stage_data *set, const struct pair_refs *refs,
                   const struct pair_loss *how, const struct batch *batch, size_t first, const size_t *packs,
                   size_t n)
{
    for (size_t mb = first, k = 0; k < n; mb++)
        for (size_t i = 0; i < batch->seqs[mb].n; i += PAIR_ANSWERS)
            add_pair(to, set, refs, how, batch->mb[mb].logp + i, packs[k++]);
}

void pair_sums_encode(json_t *to, const char *prefix, const struct pair_sums *s, const struct pair_loss *how)
{
    const struct {
        const char *name;
        double sum;
    } figures[] = {{"rewards/chosen", s->chosen},
                   {"rewards/rejected", s->rejected},
                   {"rewards/accuracies", s->accuracies},
                   {"rewards/margins", s->margins},
                   {"logps/chosen", s->logps_chosen},
                   {"logps/rejected", s->logps_rejected},
                   {"nll_loss", s->nll}};
    const size_t n = sizeof figures / sizeof *figures - (how->kind != LOSS_ORPO);
    for (size_t i = 0; i < n; i++) {
        char name[JOB_ADAPTER_NAME + 40];
        snprintf(name, sizeof name, "%s%s", prefix, figures[i].name);
        json_object_set_new(to, name, json_real(figures[i].sum / (double)s->n));
    }
}
