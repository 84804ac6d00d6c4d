/* SPDX-License-Identifier: MIT
 *
 * Any text as a config.json: either refused with a sentence, or one whose sizes hold together. */
#include "tests/fuzz/lib/fuzz.h"

#include <math.h>

#include "file/config.h"

static void check(const struct config *c)
{
    if (!c->layers || !c->dim || !c->ffn || !c->vocab || !c->heads || !c->kv_heads || !c->head)
        abort();
    if (c->heads % c->kv_heads || c->neos > CONFIG_MAX_EOS || c->dtype >= DTYPE_COUNT)
        abort();
    const size_t width = config_rope_width(c);
    if (!width || width % 2)
        abort();
    double *freq = malloc(width / 2 * sizeof *freq);
    if (!freq)
        abort();
    config_inv_freq(c, freq);
    for (size_t i = 0; i < width / 2; i++) {
        if (!isfinite(freq[i]) || freq[i] <= 0 || freq[i] > 1)
            abort();
    }
    if (!isfinite(config_rope_scale(c)) || !isfinite(config_attn_scale(c)))
        abort();
    free(freq);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct config c;
    struct err err = {""};
    if (config_parse(&c, (const char *)bytes, n, &err) == 0)
        check(&c);
    else if (!err.text[0])
        abort();
    return 0;
}
