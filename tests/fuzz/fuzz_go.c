/* SPDX-License-Identifier: MIT
 *
 * The message that starts a round: refused, or one whose sequences are in order and which encodes
 * to the same. */
#include "tests/fuzz/lib/fuzz.h"

#include "daemon/stage/stage_go.h"

enum { MAX_TOKENS = 1000, FLAGS_AT = 8 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct go go;
    if (go_decode(&go, data, n, MAX_TOKENS))
        return 0;
    for (size_t m = 0; m < go.microbatches; m++)
        for (size_t i = 0; i < go.mb[m].n; i++)
            expect(go.mb[m].start[i] <= go.mb[m].start[i + 1] && go.mb[m].start[i + 1] <= MAX_TOKENS);
    uint8_t *again = malloc(n);
    expect(again && go_encode(again, &go) == n);
    memcpy(again + FLAGS_AT, data + FLAGS_AT, 4); /* flags that this version does not have are let through */
    expect(memcmp(again, data, n) == 0);
    free(again);
    go_done(&go);
    return 0;
}
