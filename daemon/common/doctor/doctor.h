/* SPDX-License-Identifier: MIT
 *
 * PURE: what is wrong with a set of nodes, judged from facts about them. The daemon passes the
 * answers of all reachable nodes (doctor_ask.c); ringctl passes its own findings where no daemon
 * runs. Any thread.
 *
 * A world is {"nodes": [facts…], "silent": [{"name", "why", "fix"}…], "ring": {"state", "text"}};
 * facts are those of doctor_host.h and doctor_ask.c. They come from other machines: a field that is
 * missing or of another type is one that is not known, and never an error. The first node is the
 * one that asks: clocks are compared with the middle one, or with its. */
#ifndef DAEMON_DOCTOR_H
#define DAEMON_DOCTOR_H

#include <jansson.h>
#include <stdbool.h>

/* [{"severity", "node", "check", "thing", "text", "fix"}…], node by node in the order of `world`;
 * severity is "ok", "note", "warning" or "error", `fix` a command for a shell on that node, or "".
 * Each check that finds nothing says so as "ok". The caller owns it. */
json_t *doctor_judge(const json_t *world);
/* Something is a warning or an error. */
bool doctor_is_ill(const json_t *findings);

#endif
