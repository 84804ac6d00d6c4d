/* SPDX-License-Identifier: MIT
 *
 * A second, smaller model of the same vocabulary, whole on rank 0 of a job that serves: what it
 * would choose is what the served model is likely to choose (speculative decoding; Leviathan et al.
 * 2023, arXiv 2211.17192). It has a pool of keys and values of its own, so that many sequences go
 * through it in one pass. Or the layer of the served model that predicts a token more (multi-token
 * prediction), which is then a model of one layer: it reads a token together with what the served
 * model gave before it. serve_guess.c decides who asks it. Main thread of rank 0. */
#ifndef DAEMON_DRAFT_MODEL_H
#define DAEMON_DRAFT_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/common/job_plan.h"
#include "daemon/stage/serve/kv_pool.h"
#include "engine/err.h"
#include "engine/file/config.h"
#include "engine/model/stage.h"
#include "engine/text/sample.h"
#include "engine/text/tokenizer.h"

enum { DRAFT_KEEPS = 32 }; /* rows of a sequence that wait until a layer of the model reads them */

struct draft_model;
struct maps;

struct draft_setup {
    const char *dir;             /* borrowed as long as the draft model, as the next */
    const struct job_plan *plan; /* of the served model: its positions, rows and blocks are decided */
    const struct config *served; /* borrowed during the call, as the next */
    const struct tokenizer *tok; /* of the served model; NULL: it has none */
    size_t weight_bits;          /* as in stage_spec */
    bool is_ahead;               /* dir is the served model's: its own layer that predicts a token more */
};

/* Reads its config and tokenizer, and measures it. −EINVAL: another vocabulary; the sentence names
 * the first token that differs. −ENOTSUP: a family that is not computed, or a model without such a
 * layer; errors of files. */
int draft_model_read(struct draft_model **ret, const struct draft_setup *setup, struct err *err);
void draft_model_free(struct draft_model *d);

/* Bytes that it takes once it is open, mapped weights among them. */
size_t draft_model_bytes(const struct draft_model *d);
const char *draft_model_dir(const struct draft_model *d);
/* Positions that it has: as many as the plan's, or those that it was made for. */
size_t draft_model_positions(const struct draft_model *d);
/* Is it the served model's layer? Then its position i holds what the model gave at i, [dim], and
 * the token at i + 1, and it says what may come at i + 2. */
bool draft_model_is_ahead(const struct draft_model *d);

/* Has it layers with a state? Then its pieces name that of the served sequence. */
bool draft_model_has_state(const struct draft_model *d);

/* Maps its weights, and allocates its pool. num, maps: borrowed until draft_model_free. */
int draft_model_open(struct draft_model *d, struct num *num, struct maps *maps, struct err *err);

/* Of an open one. The pool counts blocks as kv_pool.h says, all without an adapter. */
struct kv_pool *draft_model_pool(struct draft_model *d);
/* As stage_rows, and then rows [n] of them are chosen from: logits of row i are at vocab·i. */
int draft_model_pass(struct draft_model *d, const struct stage_piece *pieces, size_t npieces,
                     const uint32_t *ids, const uint32_t *rows, size_t n, const float **ret_logits,
                     struct err *err);
/* Where it is ahead: what a pass reads beside its ids, [plan's tokens, dim], and what the last pass
 * gave, likewise: the same of guessed tokens. Both are its own. */
float *draft_model_in(struct draft_model *d);
const float *draft_model_out(const struct draft_model *d);
/* [vocab] for sample_token. */
struct sample_scratch *draft_model_scratch(struct draft_model *d);

#endif
