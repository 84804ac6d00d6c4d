/* SPDX-License-Identifier: MIT
 *
 * Why a message to a node was not sent, as what is said of that node in a sentence. Pure: any
 * thread. */
#ifndef DAEMON_UNSENT_H
#define DAEMON_UNSENT_H

/* error: what sending returned, as peers_send. "cannot be reached". */
const char *unsent_why(int error);

#endif
