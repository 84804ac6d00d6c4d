/* SPDX-License-Identifier: MIT
 *
 * Kimi-K2's tokenizer: its folder has no tokenizer.json but a tiktoken.model, which is a line with
 * a token's bytes in base64 and its rank for each token. How texts are cut and what special tokens
 * there are stands in a program beside it and in tokenizer_config.json. */
#ifndef TEXT_TIKTOKEN_H
#define TEXT_TIKTOKEN_H

#include <jansson.h>

#include "err.h"

/* What a tokenizer.json of this folder would say, owned by the caller. −ENOENT: it has no
 * tiktoken.model. −ENOTSUP: it is not Kimi's. */
int tiktoken_read(json_t **ret, const char *dir, struct err *err);
/* The same from the contents of both files. */
int tiktoken_parse(json_t **ret, const char *ranks, size_t n, const json_t *config, struct err *err);

#endif
