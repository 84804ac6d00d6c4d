/* SPDX-License-Identifier: MIT
 *
 * The subset of Jinja that chat templates use, with the settings they are written for (trim_blocks,
 * lstrip_blocks) and Python's meaning of values. Tags: if, for (else, if, break, continue), set
 * (also of a block), macro, call, filter, with, raw, generation. What is not known is refused by
 * name and line when the template is read: tags, filters, tests; or when it is met: methods and
 * functions. Pure but for strftime_now, which formats the time it is given. docs/TEMPLATES.md lists
 * everything. */
#ifndef TEXT_JINJA_H
#define TEXT_JINJA_H

#include <jansson.h>
#include <stddef.h>
#include <time.h>

#include "err.h"
#include "text/chat_text.h"

struct jinja;

/* `text` is copied. */
int jinja_parse(struct jinja **ret, const char *text, size_t n, struct err *err);
void jinja_free(struct jinja *program);

/* vars: objects whose members become variables; later ones win. NULL among them is skipped. */
int jinja_render(const struct jinja *program, const json_t *const *vars, size_t nvars, time_t now,
                 struct chat_text *ret, struct err *err);

#endif
