/* SPDX-License-Identifier: MIT
 *
 * What ringctl merge and ringctl convert become: a ringd-stage that writes a model in
 * another form. */
#ifndef DAEMON_STAGE_MERGE_H
#define DAEMON_STAGE_MERGE_H

/* "merge" MODEL ADAPTER OUT stored|f32|f16|bf16 text|json. Prints and returns what ringctl
 * should. */
int stage_merge_main(int argc, char **argv);
/* "convert" MODEL OUT stored|f32|f16|bf16 BITS GROUP SHARD-BYTES text|json, with 0 bits where
 * nothing is to be quantized. The same. */
int stage_convert_main(int argc, char **argv);

#endif
