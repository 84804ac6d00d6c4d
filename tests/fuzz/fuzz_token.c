/* SPDX-License-Identifier: MIT
 *
 * Tokens as text and the list of them as a file. What is read must write to the same again. */
#include "tests/fuzz/lib/fuzz.h"

#include "net/token.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static uint8_t again[TOKEN_BOOK_BYTES];
    static struct token_book book;
    char *text = malloc(n + 1), written[TOKEN_TEXT];
    struct token t, back;

    expect(text);
    memcpy(text, data, n);
    text[n] = '\0';
    if (token_read(text, &t) == 0) {
        token_write(&t, written);
        expect(token_read(written, &back) == 0 && memcmp(&t, &back, sizeof t) == 0);
    }
    free(text);
    if (token_book_decode(data, n, &book) == 0) {
        expect(token_book_encode(&book, again, sizeof again) == (int)n && memcmp(again, data, n) == 0);
        token_book_purge(&book, 1);
    }
    if (n >= TOKEN_BYTES - 2) { /* any bytes make a token that reads back */
        memcpy(&t, data, sizeof t);
        token_write(&t, written);
        expect(token_read(written, &back) == 0 && memcmp(&t, &back, sizeof t) == 0);
    }
    return 0;
}
