/* SPDX-License-Identifier: MIT
 *
 * Which files a stage process may open follows from what its daemon tells it to do: the paths that
 * the spec or the plan names, as their tables of fields say. Called by main.c, once. */
#ifndef DAEMON_STAGE_CELL_H
#define DAEMON_STAGE_CELL_H

#include <jansson.h>

#include "daemon/stage/cell/cell.h"

/* The rules for a message {"do": "plan" | "open" | "measure" | "weights", …}. They are the
 * caller's, to be done with. −errno as cell_add; −EINVAL for a type that no job has. */
int stage_cell_rules(struct cell_rules *ret, const char *state, const json_t *message, struct err *err);

/* Enters the cell of the first such message. cell: what came before it, {"do": "cell", "state"}. */
int stage_cell_enter(const json_t *cell, const json_t *message, unsigned kept, struct err *err);

#endif
