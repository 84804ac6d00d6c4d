/* SPDX-License-Identifier: MIT
 *
 * UTF-8 and the few Unicode classes the tokenizer asks for. Pure functions. */
#ifndef TEXT_UTF8_H
#define TEXT_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define UTF8_REPLACEMENT "\xEF\xBF\xBD" /* U+FFFD */

struct utf8_char {
    uint32_t cp;  /* U+FFFD when not valid */
    uint32_t len; /* bytes to step over, at least 1: of bad text, the longest start of a character (Unicode
                     15, §3.9) */
    bool valid;
};
struct utf8_char utf8_next(const char *s, size_t n); /* n > 0 */
size_t utf8_encode(uint32_t cp, char out[4]);

bool utf8_is_valid(const char *s, size_t n);
/* Where the last character of valid text begins; n > 0. */
size_t utf8_last(const char *s, size_t n);

bool utf8_is_space(uint32_t cp); /* Unicode White_Space */
bool utf8_is_word(uint32_t cp);  /* regular expressions' \w: letters, marks, digits, connectors */

#endif
