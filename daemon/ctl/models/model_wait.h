/* SPDX-License-Identifier: MIT
 *
 * A request that waits for a model on its way: the daemon says what for, and it is asked again for
 * as long as that changes, and a minute longer. One thread. */
#ifndef DAEMON_CTL_MODEL_WAIT_H
#define DAEMON_CTL_MODEL_WAIT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct model_wait { /* all zeros before the first answer */
    char last[1000];
    int64_t since_ms;
};

/* answer: of the request; NULL has none. True: it says what it waits for, which has been printed:
 * ask again. ret_rc: CTL_OK, or that it has waited for too long, which has been said. */
bool model_wait_goes_on(struct model_wait *w, const json_t *answer, int *ret_rc);

#endif
