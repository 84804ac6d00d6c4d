/* SPDX-License-Identifier: MIT
 *
 * Any bytes as tokenizer.json: refused with a sentence, or a tokenizer that encodes and decodes a
 * short text.
 */
#include "tests/fuzz/lib/fuzz.h"

#include <assert.h>

#include "text/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char text[] = "It's 12 \xc3\xa9\xcc\x81 a<s> b\n\xff\xe4\xbd\xa0 ab_abc  ";
    struct tokenizer *tok;
    struct err err = {""};
    if (tokenizer_parse(&tok, (const char *)data, size, &err)) {
        assert(err.text[0] && memchr(err.text, '\0', sizeof err.text));
        return 0;
    }
    uint32_t *ids;
    size_t n, len;
    if (tokenizer_encode(tok, text, sizeof text - 1, true, &ids, &n, &err) == 0) {
        char *back;
        if (tokenizer_decode(tok, ids, n, false, &back, &len, &err) == 0) {
            assert(back[len] == '\0');
            free(back);
        }
        free(ids);
    }
    tokenizer_close(tok);
    return 0;
}
