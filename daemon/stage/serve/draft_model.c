/* SPDX-License-Identifier: MIT */
#include "daemon/stage/serve/draft_model.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "daemon/common/cache_dir.h"
#include "engine/file/maps.h"
#include "engine/file/st.h"
#include "engine/model/family.h"
#include "net/clock.h"

struct draft_model {
    const char *dir;             /* borrowed, as the next */
    const struct job_plan *plan; /* of the served model */
    struct config config;
    size_t weight_bits, bytes;
    struct stage *stage;            /* owned, as all below; NULL: it is not open */
    struct kv_pool *pool;           /* which sequence has which of its blocks */
    struct sample_scratch *scratch; /* [vocab] */
    float *in, *out;                /* [plan->tokens, dim] where it is ahead */
};

/* --- is it one? ------------------------------------------------------------------------------- */

static int check_token(const struct draft_setup *setup, const struct tokenizer *tok, uint32_t id,
                       struct err *err)
{
    size_t n = 0, nmine = 0;
    const char *text = tokenizer_text(setup->tok, id, &n), *mine = tokenizer_text(tok, id, &nmine);
    if (!text && !mine)
        return 0;
    if (text && mine && n == nmine && !memcmp(text, mine, n))
        return 0;
    return err_set(err, -EINVAL,
                   "--draft-model %s has another vocabulary: token %u is \"%.*s\" there, and \"%.*s\" in the "
                   "served model; name a model of the same family",
                   setup->dir, id, (int)(nmine < 60 ? nmine : 60), mine ? mine : "", (int)(n < 60 ? n : 60),
                   text ? text : "");
}

static int check_tokens(const struct draft_setup *setup, size_t vocab, struct err *err)
{
    struct tokenizer *tok = NULL;
    int r = setup->tok ? tokenizer_open(&tok, setup->dir, err) : 0;
    for (uint32_t id = 0; tok && id < vocab && !r; id++)
        r = check_token(setup, tok, id, err);
    tokenizer_close(tok);
    return r;
}

static int check_vocabulary(const struct draft_setup *setup, const struct config *c, struct err *err)
{
    if (!family_find(c->family))
        return err_set(err, -ENOTSUP, "--draft-model %s: models of the family \"%s\" are not supported",
                       setup->dir, c->family);
    if (c->vocab != setup->served->vocab)
        return err_set(err, -EINVAL,
                       "--draft-model %s has another vocabulary: %zu tokens, and the served model has %zu; "
                       "name a model of the same family",
                       setup->dir, c->vocab, setup->served->vocab);
    return check_tokens(setup, c->vocab, err);
}

/* --- its size --------------------------------------------------------------------------------- */

size_t draft_model_positions(const struct draft_model *d)
{
    const size_t made_for = config_positions(&d->config), wanted = d->plan->positions;
    return made_for && made_for < wanted ? made_for : wanted;
}

static struct stage_spec spec_of(const struct draft_model *d)
{
    const struct job_plan *p = d->plan;
    return (struct stage_spec){.model_dir = d->dir,
                               .config = d->config,
                               .tune = {.end_layer = d->config.layers},
                               .first_layer = d->config.is_ahead ? d->config.layers - 1 : 0,
                               .end_layer = d->config.layers,
                               .embed = true,
                               .head = true,
                               .slots = 1,
                               .tokens = p->tokens,
                               .seqs = p->seqs,
                               .positions = draft_model_positions(d),
                               .weight_bits = d->weight_bits,
                               .kv = true,
                               .kv_blocks = p->kv_blocks,
                               .states = job_plan_states(p),
                               .guesses = p->guesses,
                               .kv_type = p->kv_type,
                               .logit_rows = p->seqs};
}

bool draft_model_has_state(const struct draft_model *d)
{
    const struct stage_spec spec = spec_of(d);
    return stage_has_state(&spec);
}

/* What it reads and gives, and what sequences keep until it reads it. */
static size_t rows_bytes(const struct draft_model *d)
{
    const size_t rows = 2 * d->plan->tokens + d->plan->seqs * DRAFT_KEEPS;
    return d->config.is_ahead ? rows * d->config.dim * sizeof(float) : 0;
}

/* Rank 0 has the embedding in any case; it is mapped once. */
static int measure(struct draft_model *d, struct err *err)
{
    struct stage_spec spec = spec_of(d);
    struct stage_bytes all, table = {.mapped = 0};
    int r = stage_measure(&all, &spec, err);
    spec.config.is_ahead = spec.head = false;
    spec.first_layer = spec.end_layer = 0;
    if (!r && d->config.is_ahead && !d->weight_bits)
        r = stage_measure(&table, &spec, err);
    if (!r)
        d->bytes = all.total - table.mapped + d->config.vocab * sizeof *d->scratch + rows_bytes(d);
    return r;
}

static int read_config(struct draft_model *d, const struct draft_setup *setup, struct err *err)
{
    const int r = config_read(&d->config, setup->dir, err);
    return r ? err_prefix(err, r, "--draft-model") : check_vocabulary(setup, &d->config, err);
}

/* Many configs name such a layer that the files do not have. */
static int check_layer(const struct draft_model *d, struct err *err)
{
    char name[TENSOR_NAME];
    struct st *st = NULL;
    if (!st_dir_lists(d->dir)) /* a plan alone, of a config */
        return 0;
    family_ahead_linear(name, &d->config);
    int r = st_open_heads(&st, d->dir, err);
    if (!r && !st_find(st, name))
        r = err_set(err, -ENOTSUP,
                    "--draft-mtp: %s has no layer that predicts a further token (%s); leave out --draft-mtp",
                    d->dir, name);
    st_close(st);
    return r;
}

static int read_layer(struct draft_model *d, const struct draft_setup *setup, struct err *err)
{
    return config_ahead(&d->config, setup->served)
               ? check_layer(d, err)
               : err_set(err, -ENOTSUP,
                         "--draft-mtp: a model of the family %s has no layer that predicts a further token, "
                         "or none that is computed here; leave out --draft-mtp",
                         setup->served->family);
}

int draft_model_read(struct draft_model **ret, const struct draft_setup *setup, struct err *err)
{
    struct draft_model *d = calloc(1, sizeof *d);
    if (!d)
        return err_set(err, -ENOMEM, "out of memory for the draft model");
    *d = (struct draft_model){.dir = setup->dir, .plan = setup->plan, .weight_bits = setup->weight_bits};
    int r = setup->is_ahead ? read_layer(d, setup, err) : read_config(d, setup, err);
    r = r ? r : measure(d, err);
    if (r)
        draft_model_free(d);
    else
        *ret = d;
    return r;
}

void draft_model_free(struct draft_model *d)
{
    if (!d)
        return;
    stage_close(d->stage);
    kv_pool_free(d->pool);
    free(d->scratch);
    free(d->in);
    free(d->out);
    free(d);
}

size_t draft_model_bytes(const struct draft_model *d)
{
    return d->bytes;
}

const char *draft_model_dir(const struct draft_model *d)
{
    return d->dir;
}

/* --- its work --------------------------------------------------------------------------------- */

int draft_model_open(struct draft_model *d, struct num *num, struct maps *maps, struct err *err)
{
    char dir[4096];
    uint64_t salt = 0;
    struct stage_spec spec = spec_of(d);
    int r = d->weight_bits ? cache_dir(dir, sizeof dir, "weights", err) : 0;
    spec.cache_dir = dir;
    spec.maps = maps;
    if (getrandom(&salt, sizeof salt, GRND_NONBLOCK) != sizeof salt)
        salt = (uint64_t)clock_now().us;
    if (!r)
        r = stage_open(&d->stage, num, &spec, err);
    if (r)
        return err_prefix(err, r, "%s %s", d->config.is_ahead ? "--draft-mtp with" : "--draft-model", d->dir);
    const size_t floats = d->config.is_ahead ? d->plan->tokens * d->config.dim : 1;
    d->pool = kv_pool_new(d->plan->kv_blocks, salt);
    d->scratch = calloc(d->config.vocab, sizeof *d->scratch);
    d->in = calloc(floats, sizeof *d->in);
    d->out = calloc(floats, sizeof *d->out);
    return d->pool && d->scratch && d->in && d->out
               ? 0
               : err_set(err, -ENOMEM, "out of memory for the draft model");
}

bool draft_model_is_ahead(const struct draft_model *d)
{
    return d->config.is_ahead;
}

float *draft_model_in(struct draft_model *d)
{
    return d->in;
}

const float *draft_model_out(const struct draft_model *d)
{
    return d->out;
}

struct kv_pool *draft_model_pool(struct draft_model *d)
{
    return d->pool;
}

int draft_model_pass(struct draft_model *d, const struct stage_piece *pieces, size_t npieces,
                     const uint32_t *ids, const uint32_t *rows, size_t n, const float **ret_logits,
                     struct err *err)
{
    const bool is_ahead = d->config.is_ahead;
    const int r =
        stage_rows(d->stage, pieces, npieces, ids, is_ahead ? d->in : NULL, is_ahead ? d->out : NULL, err);
    return r || !n ? r : stage_rows_logits(d->stage, rows, n, ret_logits, err);
}

struct sample_scratch *draft_model_scratch(struct draft_model *d)
{
    return d->scratch;
}
