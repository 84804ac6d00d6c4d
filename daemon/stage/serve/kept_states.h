/* SPDX-License-Identifier: MIT
 *
 * Which text each kept state is of (engine/model/stage.h: spec.kept, numbered from 1 on), by the
 * hash of its tokens. As many states as the plan has memory for: the one that was needed longest
 * ago gives way. Knows no stage. Main thread of rank 0. */
#ifndef DAEMON_KEPT_STATES_H
#define DAEMON_KEPT_STATES_H

#include <stddef.h>
#include <stdint.h>

struct kept_states;

/* NULL: no memory. n may be 0. */
struct kept_states *kept_states_new(size_t n);
void kept_states_free(struct kept_states *k);

/* The number of the state behind a text; 0: none is kept. */
uint32_t kept_states_find(struct kept_states *k, uint64_t hash);
/* A sequence will begin with it: until it is released as often, nothing else takes its place. */
void kept_states_hold(struct kept_states *k, uint32_t number);
void kept_states_release(struct kept_states *k, uint32_t number);
/* Where the state behind this text may be kept now; 0: nowhere, or it is kept already. If the state
 * of `before` is kept, that is the one to give way. before 0: none in particular. */
uint32_t kept_states_take(struct kept_states *k, uint64_t hash, uint64_t before);

#endif
