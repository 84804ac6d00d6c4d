/* SPDX-License-Identifier: MIT
 *
 * The facts of a model directory that the doctor sends to others. Called by doctor_model.c, on its
 * thread, and by the stage process that reads all of it. */
#ifndef DAEMON_MODEL_FACTS_H
#define DAEMON_MODEL_FACTS_H

#include <jansson.h>

#include "engine/file/weights.h"

/* {"dir","fingerprint","bytes","weights","missing","names"}, or {"dir","error"}: `bytes` of its
 * weights' files, `weights` as of weights_text, `missing` files that the index names and that are
 * not here, `names` a line "TENSOR\tFILE" for each tensor of the text. Headers of all files are
 * checked. how: NULL reads no tensor, and uses the hashes kept from before. */
json_t *model_facts(const char *dir, const struct weights_reading *how);

/* Of all files of weights in the folder; 0: there are none. */
double model_file_bytes(const char *dir);

#endif
