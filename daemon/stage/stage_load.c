/* SPDX-License-Identifier: MIT
 *
 * A round of PROGRAM_LOAD for each adapter that does not start from nothing: its values go from the
 * head's files to the stages. */
#include "daemon/stage/stage_drive.h"

static int load_piece(void *owner, const struct param_piece *piece, float *values, struct err *err)
{
    const struct head_adapter *a = owner;
    (void)err;
    adapter_in_piece(a->in, piece, values);
    return 0;
}

int head_load(struct head *h, struct runner *r, struct err *err)
{
    int e = 0;
    for (size_t i = 0; i < h->nadapters && !e; i++) {
        struct head_adapter *a = &h->adapters[i];
        if (!a->in)
            continue;
        struct head_round round = {.piece = load_piece, .owner = a};
        struct go go = {.program = PROGRAM_LOAD,
                        .state = adapter_in_has_state(a->in),
                        .step = a->first_step,
                        .adapter = (uint32_t)i};
        e = runner_round(r, &go, &round, err);
    }
    return e;
}
