/* SPDX-License-Identifier: MIT
 *
 * Planning, what a generation or a scoring will take: the prompt, each token after it, the bytes of
 * caches. Called by head_split, in the stage process of rank 0. */
#ifndef DAEMON_DECODE_FORECAST_H
#define DAEMON_DECODE_FORECAST_H

#include "daemon/stage/plan/stage_head.h"

/* Of a job whose plan stands, into head->speed: {"kv": bytes by rank, "timed", "costs"} and
 *   of a generation {"prompt_tokens", "prompt_seconds", "token_seconds", "tokens_per_second"},
 *   costs by stage [a piece of the prompt, a token];
 *   of a scoring {"rows", "row_tokens", "seconds", "tokens_per_second"}, costs by stage [a row].
 * Left out, with a line of log, where nothing could be timed. */
void decode_forecast_make(struct head *h);

#endif
