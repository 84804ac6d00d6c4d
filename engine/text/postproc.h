/* SPDX-License-Identifier: MIT
 *
 * tokenizer.json's "post_processor": the ids it puts before and behind a text (BOS and the like).
 * Read-only once parsed. */
#ifndef TEXT_POSTPROC_H
#define TEXT_POSTPROC_H

#include <jansson.h>

#include "err.h"
#include "text/bpe.h"

struct postproc {
    struct idbuf before, behind; /* before: nearest to the text last */
};

int postproc_parse(struct postproc *post, const json_t *json, struct err *err); /* null: nothing */
void postproc_done(struct postproc *post);

#endif
