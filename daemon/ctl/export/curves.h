/* SPDX-License-Identifier: MIT
 *
 * The curves of a job as rows, and those rows in forms that other programs read. One thread. */
#ifndef DAEMON_CTL_CURVES_H
#define DAEMON_CTL_CURVES_H

#include <jansson.h>
#include <stdio.h>

/* {ADAPTER: [row, …]}, "" of a job with one adapter; a new object. A row has "step", "time" and
 * what is known of "loss", "lr", "grad_norm", "tokens_per_second", "valid_loss", and of pairs
 * "rewards/margins" and its like, of further sets "valid_loss/NAME", in the order of steps. `time`
 * is in seconds since 1970, as if the job had begun at `started` and had made its steps without a
 * pause. steps, evaluations: of GET /v1/jobs/{id}/steps and /evaluations. */
json_t *curves_of(const json_t *steps, const json_t *evaluations, double started);

/* What fails is seen with ferror. */
void curves_write_csv(FILE *to, const json_t *rows);
void curves_write_lines(FILE *to, const json_t *rows); /* a JSON object a line */
void curves_write_events(FILE *to, const json_t *rows);

#endif
