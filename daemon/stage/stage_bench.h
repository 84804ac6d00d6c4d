/* SPDX-License-Identifier: MIT
 *
 * What ringctl bench becomes in part: a ringd-stage that measures. */
#ifndef DAEMON_STAGE_BENCH_H
#define DAEMON_STAGE_BENCH_H

/* "bench" SPEC: {"threads", and of a model "model", "tokens", "weights"}. Prints one JSON object;
 * returns what ringctl should. */
int stage_bench_main(int argc, char **argv);

#endif
