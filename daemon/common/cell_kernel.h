/* SPDX-License-Identifier: MIT
 *
 * What this kernel offers to confine a process with: asked by the stage that enters its cell, and
 * by the doctor. Any thread; nothing is kept. */
#ifndef DAEMON_CELL_KERNEL_H
#define DAEMON_CELL_KERNEL_H

#include <stdbool.h>

enum { CELL_LANDLOCK_BEST = 6 /* the newest ABI of Landlock that stages make use of */ };

/* The version of Landlock's ABI; 0: there is none, or it is switched off, or forbidden. */
unsigned cell_kernel_landlock(void);
/* May system calls be filtered? */
bool cell_kernel_filters(void);

#endif
