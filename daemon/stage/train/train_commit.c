/* SPDX-License-Identifier: MIT */
#include "daemon/stage/train/train_commit.h"

enum { ANSWER_S = 2 };

int train_commit(struct train_commit *c, uint64_t step, uint64_t log_bytes, struct err *err)
{
    struct head *h = c->head;
    json_int_t heard = 0;
    json_t *turn;
    uint64_t all;
    const int e = stage_log_sync(c->log, &all, err);
    if (e)
        return e;
    if (c->log->file)
        stage_event(h->events, "logged",
                    json_pack("{s:I s:I}", "step", (json_int_t)step, "log_bytes", (json_int_t)log_bytes));
    stage_event(h->events, "commit", json_pack("{s:I}", "number", (json_int_t)++c->number));
    do {
        turn = chat_inbox_wait(&h->inbox, c->is_unheard ? 0 : ANSWER_S);
        heard = turn ? json_integer_value(json_object_get(turn, "committed")) : heard;
        json_decref(turn);
    } while (turn && (uint64_t)heard < c->number);
    c->is_unheard = (uint64_t)heard < c->number;
    return 0;
}
