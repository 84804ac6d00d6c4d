/* SPDX-License-Identifier: MIT
 *
 * Follows a form byte by byte and token by token, and says which tokens may come next.
 *
 * The states are those of an automaton that is made on the way: each is the set of all places in
 * the rules where the text so far can be, each place with the stack of rules that called it. States
 * are numbers. Equal numbers are equal sets, so a copy is a number that is held once more, and a
 * comparison is one of numbers. What was made stays for the next answer of the same form, within
 * bounds of memory.
 *
 * One thread. A form and a vocabulary may have several of these. */
#ifndef TEXT_FORM_MATCH_H
#define TEXT_FORM_MATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"
#include "text/form/form.h"
#include "text/form/form_tokens.h"

struct form_match;
typedef uint32_t form_state;

/* Bounds of what a form may be at once: rules that wait for others to end, and places in a text
 * that can be read in several ways. A token that leads beyond them is not let through. */
enum { FORM_DEPTH_MAX = 512, FORM_WAYS_MAX = 4096 };

/* Borrows form and tokens. −ENOMEM; −E2BIG: the form is beyond the bounds from the start. */
int form_match_new(struct form_match **ret, const struct form *form, const struct form_tokens *tokens,
                   struct err *err);
void form_match_free(struct form_match *match);

/* Before the first byte. The state is held, as every state that a function here returns: until
 * form_match_drop was called as often as it was returned and kept. */
form_state form_match_start(struct form_match *match);
void form_match_keep(struct form_match *match, form_state state);
void form_match_drop(struct form_match *match, form_state state);

/* May the text end here? */
bool form_match_may_end(const struct form_match *match, form_state state);

/* The state after bytes, or after a token: `state` is held as before, *ret in addition. −EPROTO:
 * they do not fit, with a sentence; −E2BIG: they lead beyond the bounds; −ENOMEM. A token that ends
 * answers fits where the text may end, and changes nothing. */
int form_match_bytes(struct form_match *match, form_state state, const char *text, size_t n, form_state *ret,
                     struct err *err);
int form_match_token(struct form_match *match, form_state state, uint32_t token, form_state *ret,
                     struct err *err);

/* Which tokens may come next: bit id % 64 of word id / 64, [(vocab + 63) / 64]; valid until the
 * next call of this function. A token may come if the text can still be brought to an end behind
 * it. At least one may: −E2BIG if what could come lies beyond the bounds; −ENOENT if the vocabulary
 * has no token for any byte that could, or none that ends a complete answer; −ENOMEM. */
int form_match_mask(struct form_match *match, form_state state, const uint64_t **ret, struct err *err);

#endif
