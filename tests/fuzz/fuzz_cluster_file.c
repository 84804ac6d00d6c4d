/* SPDX-License-Identifier: MIT
 *
 * STATE/cluster, with signatures that are good: the bytes as they lie there, and the same with a
 * good certificate and roster put in, so that what lies between is reached. */
#include "tests/fuzz/lib/fuzz.h"
#include "tests/fuzz/lib/unsealed.h"
#include "tests/lib/own_keys.h"

#include "daemon/ringd/cluster/cluster_file.c" /* reads bytes only behind a path */

struct good {
    uint8_t key[CERT_CLUSTER_KEY], cert[CERT_BYTES], roster[ROSTER_BYTES_MAX];
    size_t roster_len;
};

static void make(struct good *g)
{
    static const uint8_t seed[CERT_SEED] = {1};
    static struct roster r;
    uint8_t secret[CERT_SECRET];
    struct auth_identity id;
    struct cert c = {.name = "a"};
    const struct roster_entry *entry;
    cert_cluster_keys(g->key, secret, seed);
    expect(own_identity(&id) == 0);
    memcpy(c.pub, id.pub, sizeof c.pub);
    cert_cluster_id(c.cluster_id, g->key);
    expect(cert_sign(&c, secret, g->cert) == 0);
    r = (struct roster){.name = "home", .version = 1, .generation = 1};
    memcpy(r.cluster_id, c.cluster_id, sizeof r.cluster_id);
    expect(roster_admit(&r, id.pub, "a", &entry) == 0);
    const int n = roster_sign(&r, secret, g->roster, sizeof g->roster);
    expect(n > 0);
    g->roster_len = (size_t)n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    enum { RIM = sizeof magic + CERT_CLUSTER_KEY + CERT_BYTES, MIDDLE = 256 };
    static struct cluster_trust t;
    static struct good g;
    static uint8_t file[RIM + MIDDLE + ROSTER_BYTES_MAX];
    if (!g.roster_len)
        make(&g);
    (void)parse(data, n, &t);
    n = n < MIDDLE ? n : MIDDLE;
    memcpy(file, magic, sizeof magic);
    memcpy(file + sizeof magic, g.key, sizeof g.key);
    memcpy(file + sizeof magic + sizeof g.key, g.cert, sizeof g.cert);
    memcpy(file + RIM, data, n);
    memcpy(file + RIM + n, g.roster, g.roster_len);
    if (parse(file, RIM + n + g.roster_len, &t) == 0)
        expect(t.n_keys >= 1 && t.n_keys <= CLUSTER_KEYS && t.roster_len == g.roster_len);
    return 0;
}
