/* SPDX-License-Identifier: MIT
 *
 * What ringctl simulate takes at most. */
#ifndef DAEMON_SIMULATE_SIZES_H
#define DAEMON_SIMULATE_SIZES_H

enum { SIMULATE_LAYERS_MAX = 4096, SIMULATE_ADAPTERS_MAX = 16 };

#endif
