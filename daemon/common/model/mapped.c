/* SPDX-License-Identifier: MIT */
#include "daemon/common/model/mapped.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/file/murmur.h"

static void add(uint64_t hash[2], const void *data, size_t n)
{
    uint64_t both[4] = {hash[0], hash[1]};
    murmur128(both + 2, data, n, 0);
    murmur128(hash, both, sizeof both, 0);
}

uint64_t mapped_key(const struct job_plan *p)
{
    const uint64_t form[] = {p->weight_bits, p->tied};
    uint64_t hash[2] = {0};
    if (!p->nmapped)
        return 0;
    add(hash, p->model, strlen(p->model));
    add(hash, p->fingerprint, strlen(p->fingerprint));
    add(hash, form, sizeof form);
    add(hash, p->mapped, p->nmapped * sizeof *p->mapped);
    return hash[0] ? hash[0] : 1;
}

void mapped_key_text(char ret[MAPPED_KEY_TEXT], uint64_t key)
{
    snprintf(ret, MAPPED_KEY_TEXT, "%016" PRIx64, key);
}

int mapped_key_parse(uint64_t *ret, const char *text)
{
    if (!text || strlen(text) != MAPPED_KEY_TEXT - 1 ||
        strspn(text, "0123456789abcdef") != MAPPED_KEY_TEXT - 1)
        return -EBADMSG;
    *ret = strtoull(text, NULL, 16);
    return 0;
}

int mapped_of_plan(struct mapped *ret, const struct job_plan *p, size_t rank)
{
    struct mapped m = {.key = mapped_key(p), .n = p->nmapped};
    m.bytes = m.n ? calloc(m.n, sizeof *m.bytes) : NULL;
    if (m.n && !m.bytes)
        return -ENOMEM;
    for (size_t u = 0; u < m.n; u++)
        m.bytes[u] = job_plan_maps(p, rank, u) ? p->mapped[u] : 0;
    *ret = m;
    return 0;
}

void mapped_done(struct mapped *m)
{
    free(m->bytes);
    *m = (struct mapped){0};
}

uint64_t mapped_sum(const struct mapped *m)
{
    uint64_t sum = 0;
    for (size_t u = 0; u < m->n; u++)
        sum += m->bytes[u];
    return sum;
}

/* One of the first i has it. */
static bool is_counted(const struct mapped *const *at, size_t i, size_t unit)
{
    bool found = false;
    for (size_t k = 0; k < i && !found; k++)
        found = at[k]->key == at[i]->key && unit < at[k]->n && at[k]->bytes[unit];
    return found;
}

uint64_t mapped_union(const struct mapped *const *at, size_t n)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        for (size_t u = 0; u < at[i]->n; u++)
            sum += is_counted(at, i, u) ? 0 : at[i]->bytes[u];
    return sum;
}
