/* SPDX-License-Identifier: MIT */
#include "daemon/stage/plan/stage_head_eval.h"

#include "daemon/stage/eval/eval_work.h"
#include "engine/model/stage.h"

enum {
    PIECE = 512,   /* rows of a message */
    CACHED = 8192, /* positions of all sequences that are under way, where the longest one lets it */
    SEQS_MOST = 64
};

/* Of a training job, what is asked between its steps. */
static struct job_spec asked_of(const struct job_spec *s)
{
    struct job_spec own = *s;
    if (s->type != JOB_TRAIN)
        return own;
    own.data = s->eval_questions;
    own.task = EVAL_GENERATION;
    own.max_tokens = s->sample_tokens;
    own.limit = 0;
    return own;
}

int head_read_questions(struct head *h, struct err *err)
{
    const struct job_spec spec = asked_of(&h->spec);
    if (h->eval)
        return 0;
    const int r = eval_work_new(&h->eval, &spec, &h->config, h->tok, err);
    const struct eval_work *w = h->eval;
    if (r)
        return spec.type == JOB_TRAIN ? err_prefix(err, r, "--eval-questions") : r;
    stage_say(h->events, "%s: %zu rows, task %s, %zu tokens in %zu sequences", spec.data, w->set.n,
              eval_task_name(w->set.task), w->nids, w->nseqs);
    if (w->cut)
        stage_say(h->events, "rows whose beginning is cut off, because they have more than %zu tokens: %zu",
                  w->seq_len, w->cut);
    return 0;
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* More ranks want more sequences, or some have nothing to do. No figure depends on it. */
void head_plan_questions(struct head *h)
{
    struct job_plan *p = &h->plan;
    const size_t fit = CACHED / h->eval->positions, least = p->ranks + 1;
    p->positions = h->eval->positions;
    p->seqs = smaller(smaller(fit > least ? fit : least, SEQS_MOST), h->eval->nseqs);
    p->kv = true;
    p->kv_type = KV_F32;
    p->kv_blocks = p->seqs * ((p->positions + STAGE_KV_BLOCK - 1) / STAGE_KV_BLOCK);
    p->tokens = smaller(p->seqs * p->positions, PIECE);
    p->microbatches = 1;
}
