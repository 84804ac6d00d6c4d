/* SPDX-License-Identifier: MIT
 *
 * Which layers a rank has, in as few signs as people need. PURE; called by ringd and ringctl. */
#ifndef DAEMON_LAYERS_TEXT_H
#define DAEMON_LAYERS_TEXT_H

#include <stddef.h>

/* Puts layers from … to−1 behind what text holds already: "0-3", then "0-3,6". None, and what has
 * no room, leaves it as it is. */
void layers_text_add(char *text, size_t size, size_t from, size_t to);

#endif
