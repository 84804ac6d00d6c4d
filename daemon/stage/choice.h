/* SPDX-License-Identifier: MIT
 *
 * What a job's spec says of the choice of tokens: temperature and the like, penalties of what was
 * said before, biases of single tokens. Everything follows from the spec and the ids so far, so a
 * generation that goes on after a loss chooses as before. Main thread of rank 0. */
#ifndef DAEMON_CHOICE_H
#define DAEMON_CHOICE_H

#include <stddef.h>
#include <stdint.h>

#include "daemon/common/job_spec.h"
#include "engine/err.h"
#include "engine/text/sample.h"

/* Ids so far: of the prompt, and of the answer behind it. */
struct choice_ids {
    const uint32_t *prompt, *answer; /* borrowed */
    size_t n_prompt, n_answer;
};

/* −EINVAL: a key of "logit_bias" is no token of a model with so many, or its value is no bias. */
int choice_check(const struct job_spec *spec, size_t vocab, struct err *err);

/* Bytes of room that choice_next needs; 0: the spec adjusts no token. */
size_t choice_room(const struct job_spec *spec);

/* How the token after these is chosen. The adjustments are written to `room`, which the result
 * borrows. The spec was checked. */
struct sample_params choice_next(const struct job_spec *spec, const struct choice_ids *ids, void *room);

#endif
