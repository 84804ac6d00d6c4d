/* SPDX-License-Identifier: MIT
 *
 * Records as a stranger on the cable would have them: any bytes are refused and end the session;
 * what was sealed opens, unless a bit of it was changed. First byte: cipher; second and third:
 * which bit. */
#include "tests/fuzz/lib/fuzz.h"

#include <errno.h>

#include "net/seal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const uint8_t key[32] = {7};
    static uint8_t record[SEAL_HEAD + SEAL_MAX + SEAL_TAG];
    struct seal tx, rx;
    size_t length;
    if (n < 3 || n - 3 > SEAL_MAX)
        return 0;
    const bool aes = data[0] & 1 && seal_suites() & 1 << SEAL_AES256_GCM;
    const size_t bit = data[1] + 256u * data[2];
    seal_init(&tx, key, aes ? SEAL_AES256_GCM : SEAL_CHACHA20_POLY1305);
    data += 3, n -= 3;
    rx = tx;
    if (n >= SEAL_HEAD + SEAL_TAG && seal_length(data, &length) == 0) {
        memcpy(record, data, n);
        length = length < n - SEAL_HEAD - SEAL_TAG ? length : n - SEAL_HEAD - SEAL_TAG;
        expect(seal_open(&rx, record, record + SEAL_HEAD, length, record + SEAL_HEAD + length) == -EBADMSG);
        expect(seal_seal(&rx, record, data, 0) < 0); /* it is over */
        rx = tx;
    }
    expect(seal_seal(&tx, record, data, n) == 0);
    if (bit < 8 * (SEAL_HEAD + n + SEAL_TAG)) {
        record[bit / 8] ^= (uint8_t)(1 << bit % 8);
        expect(seal_open(&rx, record, record + SEAL_HEAD, n, record + SEAL_HEAD + n) == -EBADMSG);
        return 0;
    }
    expect(seal_length(record, &length) == 0 && length == n);
    expect(seal_open(&rx, record, record + SEAL_HEAD, n, record + SEAL_HEAD + n) == 0);
    expect(n == 0 || memcmp(record + SEAL_HEAD, data, n) == 0);
    return 0;
}
