/* SPDX-License-Identifier: MIT
 *
 * Any text as an address with a length, and as the pool of IPv4 subnets. What is read is written to
 * a text that means the same. */
#include "tests/fuzz/lib/fuzz.h"

#include "net/subnet.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char *text = fuzz_text(data, n), again[PREFIX_TEXT], why[256] = "";
    struct prefix p, back;
    if (prefix_parse(&p, text) == 0) {
        expect(prefix_is_valid(&p));
        prefix_format(&p, again);
        expect(prefix_parse(&back, again) == 0 && prefix_equal(&p, &back));
    }
    if (subnet_pool_parse(&p, text, why, sizeof why) == 0) {
        const struct subnet_end a = {{1}, 1}, b = {{2}, 2};
        struct subnet_cable cable;
        expect(prefix_is_private_network(&p));
        if (subnet_cable4(&cable, &p, &a, &b, n > 0 ? data[n - 1] : 0) == 0)
            expect(prefix_contains(&p, &cable.mine) && prefix_contains(&p, &cable.theirs));
    } else {
        expect(why[0] != '\0');
    }
    free(text);
    return 0;
}
