/* SPDX-License-Identifier: MIT
 *
 * The result of a job that evaluates, as a table. */
#ifndef DAEMON_CTL_EVAL_SHOW_H
#define DAEMON_CTL_EVAL_SHOW_H

#include <jansson.h>

/* Prints `result` of GET /v1/jobs/{id}: a line for each figure, with its standard error if it has
 * one. */
void eval_show(const json_t *result);

#endif
