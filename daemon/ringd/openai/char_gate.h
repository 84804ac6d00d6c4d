/* SPDX-License-Identifier: MIT
 *
 * Bytes of tokens → whole characters of UTF-8. A token may end inside a character; its bytes wait
 * here for the rest. What cannot become a character is replaced by U+FFFD, one for each maximal
 * ill-formed part (Unicode 15, section 3.9). The engine has a decoder too, but it brings the tables
 * of Unicode with it, which ringd does not link. Pure: any thread. */
#ifndef DAEMON_OPENAI_CHAR_GATE_H
#define DAEMON_OPENAI_CHAR_GATE_H

#include <jansson.h>
#include <stddef.h>

/* All zero at the beginning. */
struct char_gate {
    unsigned char bytes[4]; /* of a character that is not whole */
    size_t n, need;         /* how many of them there are, and how many it has */
};

enum { CHAR_GATE_OUT = 8 }; /* bytes that one byte can release at most, rounded up */

/* Takes a byte. Returns how many bytes of `out` are ready now: whole characters, or none. */
size_t char_gate_push(struct char_gate *gate, unsigned char byte, char out[CHAR_GATE_OUT]);
/* The text is at its end: what was incomplete becomes U+FFFD. */
size_t char_gate_end(struct char_gate *gate, char out[CHAR_GATE_OUT]);

/* A text with all ill-formed parts replaced, as a new JSON string. */
json_t *text_lossy_json(const char *text, size_t n);

#endif
