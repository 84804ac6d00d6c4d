/* SPDX-License-Identifier: MIT
 *
 * Planning, what microbatches of a job that serves will take, by their rows: what ringctl simulate
 * --serve foresees serving with. Called by head_split, in the stage process of rank 0. */
#ifndef DAEMON_ROWS_FORECAST_H
#define DAEMON_ROWS_FORECAST_H

#include "daemon/stage/plan/stage_head.h"

/* Of a job whose plan stands, into head->planning.speed, as docs/API.md has it. Left out, with a
 * line of log, where nothing could be timed. */
void rows_forecast_make(struct head *h);

#endif
