/* SPDX-License-Identifier: MIT
 *
 * What has to come to the nodes of a plan, in words: for ringctl and for a job's log. travel: as a
 * plan shows it (docs/API.md), or NULL. Pure: any thread. */
#ifndef DAEMON_TRAVEL_TEXT_H
#define DAEMON_TRAVEL_TEXT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* "node b lacks 3.1 GiB of 4.2 GiB: from node a"; false: it lacks nothing. */
bool travel_rank_text(char *text, size_t size, const json_t *travel, size_t rank);
/* "4.1 GiB must travel: 35 s at 1 Gb/s"; false: nothing must. */
bool travel_total_text(char *text, size_t size, const json_t *travel);
/* "of splits that are within 2 % of the fastest this one spares 1.2 GiB of travel"; false: it was
 * not chosen by that. */
bool travel_spared_text(char *text, size_t size, const json_t *travel);

#endif
