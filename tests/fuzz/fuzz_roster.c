/* SPDX-License-Identifier: MIT
 *
 * Rosters behind a signature that is good: the bytes as they come, and with the right mark and
 * cluster, so that the entries are reached. What opens must sign to the same again, and stand
 * changes. */
#include "tests/fuzz/lib/fuzz.h"
#include "tests/fuzz/lib/unsealed.h"

#include "net/roster.h"

static void change(struct roster *r, const uint8_t *pub)
{
    static struct roster before;
    const struct roster_entry *e;

    before = *r;
    (void)roster_remove(r, r->at[0].id);
    if (roster_admit(r, pub, "fuzz", &e) == 0)
        expect(roster_find(r, e->id) == e && e->status == ROSTER_ACTIVE);
    (void)roster_promote(r, r->at[0].id);
    (void)roster_rebase(r, &before);
    (void)roster_rebase(&before, r);
    expect(r->n <= ROSTER_MAX && before.n <= ROSTER_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const uint8_t pub[CERT_CLUSTER_KEY] = {1}, secret[CERT_SECRET];
    static uint8_t bytes[ROSTER_BYTES_MAX], again[ROSTER_BYTES_MAX], id[CERT_ID];
    static struct roster r;

    if (!id[0])
        cert_cluster_id(id, pub);
    if (n < 20 || n + CERT_SIGNATURE > sizeof bytes) {
        expect(roster_open(data, n, pub, &r) < 0);
        return 0;
    }
    memcpy(bytes, data, n);
    memcpy(bytes, "RGR1", 4); /* past the checks that chance does not pass */
    memcpy(bytes + 4, id, sizeof id);
    memset(bytes + n, 0, CERT_SIGNATURE);
    if (roster_open(bytes, n + CERT_SIGNATURE, pub, &r) < 0)
        return 0;
    expect(roster_sign(&r, secret, again, sizeof again) == (int)(n + CERT_SIGNATURE));
    expect(memcmp(again, bytes, n) == 0);
    if (r.n > 0)
        change(&r, pub);
    return 0;
}
