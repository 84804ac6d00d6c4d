/* SPDX-License-Identifier: MIT
 *
 * What ringctl merge becomes: a ringd-stage that merges. */
#ifndef DAEMON_STAGE_MERGE_H
#define DAEMON_STAGE_MERGE_H

/* "merge" MODEL ADAPTER OUT stored|f32|f16|bf16 text|json. Prints and returns what ringctl
 * should. */
int stage_merge_main(int argc, char **argv);

#endif
