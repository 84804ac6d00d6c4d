/* SPDX-License-Identifier: MIT
 *
 * What a node may be sent by one that carries a model: a frame, and a list of blocks. What is taken
 * of either keeps its bounds, and a list that is taken is written again to the same byte. Input: u8
 * odd: a list, else a frame. */
#include "tests/fuzz/lib/fuzz.h"

#include "daemon/fetch/carry/carry_frame.h"

static void check_list(const uint8_t *bytes, size_t n)
{
    struct manifest *m;
    struct err err = {""};
    size_t size;
    if (manifest_decode(&m, bytes, n, &err)) {
        expect(*err.text != '\0');
        return;
    }
    for (size_t i = 0; i < m->n; i++)
        expect(hub_file_is_wanted(m->files[i].name) && !strchr(m->files[i].name, '/') &&
               m->first[i] <= m->first[i + 1]);
    for (uint32_t b = 0; b < m->blocks; b++) {
        const struct hub_file *f = &m->files[manifest_file_of(m, b)];
        if (manifest_is_head(m, b)) /* of a file that begins with the hash of its block */
            manifest_set_head(m, b, m->hashes[b]);
        const uint32_t length = manifest_size(m, b), most = manifest_is_head(m, b) ? HEAD_MOST : BLOCK_BYTES;
        expect(length > 0 && length <= most && manifest_offset(m, b) + length <= f->size);
    }
    uint8_t *again = manifest_encode(m, &size);
    expect(size == n && !memcmp(again, bytes, n));
    free(again);
    manifest_free(m);
}

static void check_frame(const uint8_t *bytes, size_t n)
{
    struct carry_frame f;
    if (!carry_frame_read(&f, bytes, n))
        return;
    expect(f.n <= CARRY_BYTES);
    if (f.kind == CARRY_PIECE)
        expect((uint64_t)f.b + f.n <= HEAD_MOST);
    if (f.kind == CARRY_LIST)
        expect((uint64_t)f.b + f.n <= f.a && f.a <= MANIFEST_MAX);
    if (f.kind == CARRY_HAVE)
        expect(f.a < f.b && f.a + ((uint64_t)f.n - 1) * 8 < f.b);
    if (f.kind == CARRY_WANT)
        expect(f.b > 0 && !f.n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n && data[0] & 1)
        check_list(data + 1, n - 1);
    else if (n)
        check_frame(data + 1, n - 1);
    return 0;
}
