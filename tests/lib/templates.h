/* SPDX-License-Identifier: MIT
 *
 * Templates rendered with a fixed set of variables, for tests of the interpreter. */
#ifndef TESTS_LIB_TEMPLATES_H
#define TESTS_LIB_TEMPLATES_H

#include <stddef.h>

#include "engine/err.h"
#include "engine/text/chat.h"

/* The text, which is ret's, or NULL with the sentence. */
const char *template_render(const char *template, size_t n, struct chat_text *ret, struct err *err);

struct template_case {
    const char *template, *want; /* its text; of one that is refused, the sentence */
};
void template_check(const struct template_case *cases, size_t n);
void template_check_refused(const struct template_case *cases, size_t n);

#endif
