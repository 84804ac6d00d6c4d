/* SPDX-License-Identifier: MIT
 *
 * What is taken for true of cables wherever a time is foreseen: of a step, and of a model on its
 * way. Pure: any thread. */
#ifndef PIPE_CABLE_USE_H
#define PIPE_CABLE_USE_H

#define CABLE_USABLE 0.9      /* of what a cable is said to carry */
#define CABLE_LEAST_MBPS 1e-3 /* less is not believed: it stands for a rate that is not known */

#endif
