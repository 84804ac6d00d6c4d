/* SPDX-License-Identifier: MIT */
#include "daemon/ctl/models/model_wait.h"

#include <stdio.h>
#include <string.h>

#include "daemon/ctl/ctl.h"
#include "daemon/ctl/terminal/ctl_print.h"
#include "daemon/ctl/ctl_client.h"

enum { STILL_MS = 60000 };

bool model_wait_goes_on(struct model_wait *w, const json_t *answer, int *ret_rc)
{
    const char *why = field_text(answer, "waits_for", NULL);
    const int64_t now = ctl_now_ms();
    *ret_rc = CTL_OK;
    if (!why)
        return false;
    if (strcmp(w->last, why) != 0) {
        fprintf(stderr, "%s\n", why);
        snprintf(w->last, sizeof w->last, "%s", why);
        w->since_ms = now;
    }
    if (now - w->since_ms < STILL_MS)
        return true;
    *ret_rc = ctl_fail(CTL_FAILED, "given up after a minute without news: %s", w->last);
    return false;
}
