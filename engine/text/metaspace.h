/* SPDX-License-Identifier: MIT
 *
 * Metaspace's fields, which pre-tokenizer and decoder share. */
#ifndef TEXT_METASPACE_H
#define TEXT_METASPACE_H

#include <jansson.h>

#include "err.h"
#include "text/pretok_step.h"

/* The mark ("replacement", one character) and when it goes in front, from the present and the older
 * spelling.
 */
int metaspace_parse(const json_t *json, const char *where, const char **ret_mark,
                    enum prepend_scheme *ret_prepend, struct err *err);

#endif
