/* SPDX-License-Identifier: MIT
 *
 * What a head keeps of a job that generates, so that the job can go on when it has lost a stage
 * process: prompts and the tokens after them, 4 bytes each. Nothing is kept of the sampler, whose
 * random numbers follow from the seed and the number of the token. Of a conversation only what the
 * caches still hold is kept. Bounded by a queue of the ledger; without room there the log is given
 * up, and the job can no longer go on. Owned by its job; loop thread. */
#ifndef DAEMON_TOKEN_LOG_H
#define DAEMON_TOKEN_LOG_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct ledger_queue;
struct token_log;

struct token_log *token_log_new(struct ledger_queue *room); /* borrowed */
void token_log_free(struct token_log *log);

/* Events of the job's stage. "prompt": {"kept", "seed", "ids"}, ids from position `kept` on; below
 * it the caches hold what is there. "token": {"id"}. False: with this one the log was given up. */
bool token_log_prompt(struct token_log *log, const json_t *event);
bool token_log_token(struct token_log *log, const json_t *event);

bool token_log_is_given_up(const struct token_log *log);
/* For the next stage process, as so_far_read has it; NULL: nothing was read yet. A new object. */
json_t *token_log_encode(const struct token_log *log);

/* For the disk, from which the next life of the daemon goes on: the latest tokens, {"n", "ids"},
 * whenever there are TOKEN_LOG_PART more of the answer, n the number of the first; otherwise NULL.
 * A new object. */
enum { TOKEN_LOG_PART = 64 };
json_t *token_log_part(const struct token_log *log);
/* Into an empty log: the "prompt" event and then such parts. What comes behind a part that is
 * missing is left out: the same tokens are generated again. Returns how many tokens it has. */
size_t token_log_restore(struct token_log *log, const json_t *events);

#endif
