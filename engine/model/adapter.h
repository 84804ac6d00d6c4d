/* SPDX-License-Identifier: MIT
 *
 * What training leaves behind, as files: an adapter directory for PEFT (adapter_model.safetensors)
 * and for mlx-lm (adapters.safetensors) with one adapter_config.json, or a Hugging Face model
 * directory; beside it the state a run continues from. Only the head of a job calls this. */
#ifndef MODEL_ADAPTER_H
#define MODEL_ADAPTER_H

#include <jansson.h>
#include <stdint.h>

#include "err.h"
#include "file/st.h"
#include "model/param_piece.h"

/* Reads adapter_config.json, PEFT's or mlx-lm's, into `tune` (kind LORA, rank, alpha, targets,
 * layers). What we do not compute (biases, factors of the head, modules_to_save, …) is refused by
 * name. */
int adapter_read_config(struct tune *tune, const char *dir, const struct family *f, const struct config *c,
                        struct err *err);
/* The same of a configuration that was found in `path`. */
int adapter_parse_config(struct tune *tune, const json_t *o, const char *path, const struct family *f,
                         const struct config *c, struct err *err);

/* Values to start from, unit by unit. */
struct adapter_in;
/* DIR/adapter_model.safetensors as PEFT writes it, or where there is none DIR/adapters.safetensors
 * of mlx-lm; every factor must be there with the right shape, nothing else may be. */
int adapter_in_open(struct adapter_in **ret, const char *dir, const struct tune *tune, const struct family *f,
                    const struct config *c, struct err *err);
/* DIR/training_state.safetensors, which is all that a run needs to go on: f32 values, AdamW
 * moments, the number of steps done, what the adapter is (for LoRA read into `tune`, which says the
 * kind), and the caller's record. Every byte is compared with the checksums in the file. */
int adapter_in_open_state(struct adapter_in **ret, const char *dir, struct tune *tune, const struct family *f,
                          const struct config *c, uint64_t *ret_step, struct err *err);
/* The caller's record; NULL where none was given. Borrowed from `in`. */
const json_t *adapter_in_record(const struct adapter_in *in);
/* out: piece->n floats; w, and with state m and v. */
void adapter_in_piece(const struct adapter_in *in, const struct param_piece *piece, float *out);
/* One parameter, as tune_params shows it. */
void adapter_in_param(const struct adapter_in *in, const struct param_def *def, float *out);
bool adapter_in_has_state(const struct adapter_in *in);
void adapter_in_close(struct adapter_in *in);

/* Results to keep. Space for every file is reserved at open, so that a full disk is known before
 * the last step; nothing replaces an older result before adapter_out_finish, which renames file by
 * file. */
struct adapter_out;
struct adapter_out_request {
    const char *dir;       /* created if missing */
    const char *model_dir; /* base_model_name_or_path; full: where config and tokenizer are copied from */
    const struct tune *tune;
    const struct family *family;
    const struct config *config;
    uint64_t step;
    json_t *record; /* borrowed until open returns: what the caller wants back with the state; may be NULL */
};
int adapter_out_open(struct adapter_out **ret, const struct adapter_out_request *req, struct err *err);
/* in: piece->n values, with state; the pieces of a unit in their order. */
int adapter_out_piece(struct adapter_out *out, const struct param_piece *piece, const float *in,
                      struct err *err);
int adapter_out_finish(struct adapter_out *out, struct err *err); /* frees either way */
void adapter_out_abort(struct adapter_out *out);

#endif
