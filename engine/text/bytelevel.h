/* SPDX-License-Identifier: MIT
 *
 * GPT-2's alphabet: every byte as one printable character, so that a vocabulary of text can hold
 * any bytes (Radford et al. 2019). */
#ifndef TEXT_BYTELEVEL_H
#define TEXT_BYTELEVEL_H

#include <stddef.h>
#include <stdint.h>

struct textbuf;

uint32_t bytelevel_char(unsigned char byte); /* the character's code point */
int bytelevel_byte(uint32_t cp);             /* −1: not a character of the alphabet */

/* Appends one character for each byte. */
void bytelevel_encode(struct textbuf *out, const char *s, size_t n);
/* Appends the bytes of a token; one with a character from outside the alphabet is taken as it
 * is. */
void bytelevel_decode(struct textbuf *out, const char *token, size_t n);

#endif
