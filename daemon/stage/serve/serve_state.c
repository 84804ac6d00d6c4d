/* SPDX-License-Identifier: MIT
 *
 * A state is of one text up to one position, so it is kept where others are likely to go on: where
 * texts were seen to part, behind the last whole block of a prompt, and behind that of an answer as
 * it grows. Pieces of prompts end there. */
#include "daemon/stage/serve/serve_impl.h"

size_t seq_begin_state(struct server_run *s, struct seq *q)
{
    const size_t shared = q->table.known;
    size_t blocks = shared;
    while (blocks && !(q->from = kept_states_find(s->kept, kv_pool_hash(s->pool, &q->table, blocks))))
        blocks--;
    if (q->from)
        kept_states_hold(s->kept, q->from);
    q->parts = shared > blocks ? shared * STAGE_KV_BLOCK : 0;
    kv_pool_cut(s->pool, &q->table, blocks);
    return blocks * STAGE_KV_BLOCK;
}

/* Its first token is always computed, so that of the last block is not there yet. */
static size_t prompt_end(const struct seq *q)
{
    return (q->n_prompt - 1) / STAGE_KV_BLOCK * STAGE_KV_BLOCK;
}

size_t seq_piece_rows(const struct server_run *s, const struct seq *q, size_t n)
{
    const size_t places[] = {q->parts, prompt_end(q)};
    for (size_t i = 0; s->has_state && i < 2; i++)
        if (places[i] > q->computed && places[i] - q->computed < n)
            n = places[i] - q->computed;
    return n;
}

void seq_piece_state(struct server_run *s, struct seq *q, struct stage_piece *piece)
{
    const bool is_answer = q->computed > q->n_prompt;
    piece->state = q->state;
    piece->from = q->from;
    if (q->from)
        kept_states_release(s->kept, q->from);
    q->from = 0;
    if (!s->has_state || !q->computed || q->computed != q->table.known * STAGE_KV_BLOCK ||
        !(is_answer || q->computed == q->parts || q->computed == prompt_end(q)))
        return;
    piece->keep = kept_states_take(s->kept, q->table.hash, is_answer ? q->kept_text : 0);
    if (is_answer && piece->keep)
        q->kept_text = q->table.hash;
}

void seq_drop_state(struct server_run *s, struct seq *q)
{
    if (q->from)
        kept_states_release(s->kept, q->from);
    if (q->is_running)
        s->states[s->nstates++] = q->state;
    q->from = 0;
    q->parts = 0;
}
