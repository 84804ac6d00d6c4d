/* SPDX-License-Identifier: MIT */
#include "daemon/stage/train/train_valid.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/stage/eval/eval_work.h"
#include "daemon/stage/stage_drive.h"
#include "engine/train/eval_figures.h"

/* A set, and what it comes to. */
struct valid_set {
    const struct stage_data *rows; /* borrowed, as the next */
    struct pair_refs *refs;
    double loss;
    size_t tokens;
    struct pair_sums pairs;
};

static double loss_of(const struct valid_set *set)
{
    return set->pairs.n ? set->pairs.loss / (double)set->pairs.n : set->loss / (double)set->tokens;
}

static struct pair_loss how_of(const struct train_run *run, size_t adapter)
{
    return (struct pair_loss){run->h->plan.loss, run->h->adapters[adapter].spec.beta};
}

static int evaluate_packs(struct train_run *run, size_t adapter, uint64_t step, const size_t *packs, size_t n,
                          struct valid_set *set, struct err *err)
{
    struct head *h = run->h;
    const struct pair_loss how = how_of(run, adapter);
    int e = set->refs->logp ? pair_refs_find(set->refs, h, run->r, &run->batch, packs, n, err) : 0;
    if (e)
        return e;
    run->batch.n = 0;
    set->tokens += batch_fill(&run->batch, h, set->rows, packs, n, h->spec.micro_batch).supervised;
    struct head_round round = {.mb = run->batch.mb};
    struct go go = {.program = PROGRAM_FORWARD,
                    .step = step,
                    .adapter = (uint32_t)adapter,
                    .microbatches = run->batch.n,
                    .mb = run->batch.seqs};
    e = runner_round(run->r, &go, &round, err);
    if (!e && how.kind != LOSS_NLL)
        pair_sums_add(&set->pairs, set->rows, set->refs, &how, &run->batch, 0, packs, n);
    set->loss += batch_loss(&run->batch, 0, run->batch.n);
    return e;
}

static int evaluate_set(struct train_run *run, size_t adapter, uint64_t step, struct valid_set *set,
                        struct err *err)
{
    struct head *h = run->h;
    size_t packs = data_packs_count(set->rows->packs), per = h->plan.microbatches * h->spec.micro_batch,
           *pick = calloc(per, sizeof *pick);
    int e = pick ? 0 : err_set(err, -ENOMEM, "out of memory");
    for (size_t at = 0; at < packs && !e; at += per) {
        size_t n = packs - at < per ? packs - at : per;
        for (size_t i = 0; i < n; i++)
            pick[i] = at + i;
        e = evaluate_packs(run, adapter, step, pick, n, set, err);
    }
    free(pick);
    return e;
}

/* Those of --eval-data, as "valid_loss/NAME". */
static int evaluate_more(struct train_run *run, size_t adapter, uint64_t step, json_t *line, struct err *err)
{
    const struct head *h = run->h;
    const struct pair_loss how = how_of(run, adapter);
    const char *name;
    json_t *path;
    size_t i = 0;
    int e = 0;
    json_object_foreach ((json_t *)(uintptr_t)h->spec.eval_data, name, path) {
        struct valid_set set = {.rows = &h->more_valid[i], .refs = &run->more_refs[i]};
        char key[JOB_ADAPTER_NAME + 32];
        i++;
        e = e ? e : evaluate_set(run, adapter, step, &set, err);
        if (e)
            continue;
        snprintf(key, sizeof key, "valid_loss/%s", name);
        json_object_set_new(line, key, json_real(loss_of(&set)));
        snprintf(key, sizeof key, "valid_tokens/%s", name);
        json_object_set_new(line, key, json_integer((json_int_t)set.tokens));
        snprintf(key, sizeof key, "valid/%s/", name);
        if (set.pairs.n)
            pair_sums_encode(line, key, &set.pairs, &how);
    }
    return e;
}

/* What the adapter writes behind each prompt of --eval-questions, the likeliest token each time,
 * and how many of these answers are right: as `ringctl eval` counts them. */
static int ask_questions(struct train_run *run, size_t adapter, uint64_t step, json_t *line, struct err *err)
{
    const struct eval_work *w = run->h->eval;
    json_t *stop = json_pack("[s]", EVAL_STOP);
    size_t right = 0;
    int e = stop ? 0 : err_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < w->nseqs && !e; i++) {
        const struct eval_seq *seq = &w->seqs[i];
        char *text;
        e = head_answer(run->h, run->r, adapter, step, (struct head_prompt){w->ids + seq->at, seq->n, stop},
                        &text, err);
        if (e)
            break;
        right += eval_is_match(&w->set.rows[seq->row], text, strlen(text));
        free(text);
    }
    json_decref(stop);
    if (!e)
        json_object_update_new(line,
                               json_pack("{s:f s:I}", "exact_match", eval_share_of(right, w->set.n).mean,
                                         "questions", (json_int_t)w->set.n));
    return e;
}

int train_evaluate(struct train_run *run, size_t adapter, uint64_t step, struct err *err)
{
    const struct pair_loss how = how_of(run, adapter);
    struct valid_set set = {.rows = &run->h->valid, .refs = &run->valid_refs};
    int e = evaluate_set(run, adapter, step, &set, err);
    if (e)
        return e;
    run->of[adapter].last_valid = loss_of(&set);
    json_t *line = json_pack("{s:I s:f s:I}", "step", (json_int_t)step, "valid_loss",
                             run->of[adapter].last_valid, "valid_tokens", (json_int_t)set.tokens);
    if (line && set.pairs.n)
        pair_sums_encode(line, "valid_", &set.pairs, &how);
    else if (line)
        json_object_set_new(line, "valid_perplexity", json_real(exp(run->of[adapter].last_valid)));
    e = line ? evaluate_more(run, adapter, step, line, err) : 0;
    if (!e && line && run->h->eval)
        e = ask_questions(run, adapter, step, line, err);
    if (e) {
        json_decref(line);
        return e;
    }
    return train_tell(run, "valid", adapter, step, line, (struct train_more){0}, err);
}
