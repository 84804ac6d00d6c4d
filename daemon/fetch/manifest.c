/* SPDX-License-Identifier: MIT */
#include "daemon/fetch/manifest.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/model/models_dir.h"
#include "daemon/common/xalloc.h"
#include "net/buf.h"

enum { LENGTH = 4 };

static const char damaged[] = "the list of the model's blocks";

/* --- its shape -------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct hub_file *)a)->name, ((const struct hub_file *)b)->name);
}

static uint64_t blocks_of(const struct hub_file *f)
{
    return (f->size + BLOCK_BYTES - 1) / BLOCK_BYTES;
}

bool manifest_is_weights(const struct hub_file *file)
{
    const char *ending = strrchr(file->name, '.');
    return file->size > BLOCK_BYTES && ending && !strcmp(ending, ".safetensors");
}

/* Files that are sorted, of which each size is at most HUB_BYTES_MAX. */
static int lay_out(struct manifest *m, struct err *err)
{
    bool has_config = false;
    uint64_t blocks = 0;
    uint32_t heads = 0;
    m->first = xcalloc(m->n + 1, sizeof *m->first);
    m->heads = xcalloc(m->n + 1, sizeof *m->heads);
    m->head_bytes = xcalloc(m->n + 1, sizeof *m->head_bytes);
    for (size_t i = 0; i < m->n; i++) {
        const struct hub_file *f = &m->files[i];
        if (!hub_file_is_wanted(f->name))
            return err_set(err, -EBADMSG, "%s names a file that no model here has", damaged);
        if (i && !strcmp(f->name, m->files[i - 1].name))
            return err_set(err, -EBADMSG, "%s names %s twice", damaged, f->name);
        m->first[i] = (uint32_t)blocks;
        blocks += blocks_of(f);
        m->bytes += f->size;
        if (manifest_is_weights(f))
            m->heads[heads++] = (uint32_t)i;
        has_config |= !strcmp(f->name, "config.json") || !strcmp(f->name, "adapter_config.json");
        if (m->bytes > HUB_BYTES_MAX)
            return err_set(err, -EBADMSG, "%s has more bytes than any model: at most 16 TiB can be carried",
                           damaged);
    }
    if (!has_config)
        return err_set(err, -EBADMSG, "%s has no config.json and no adapter_config.json", damaged);
    m->first[m->n] = (uint32_t)blocks;
    m->blocks = (uint32_t)blocks + heads;
    return 0;
}

int manifest_new(struct manifest **ret, const struct hub_file *files, size_t n, struct err *err)
{
    struct manifest *m = xcalloc(1, sizeof *m);
    m->n = n;
    m->files = n ? xmemdup(files, n * sizeof *files) : NULL;
    if (n)
        qsort(m->files, n, sizeof *m->files, by_name);
    const int r = lay_out(m, err);
    if (r) {
        manifest_free(m);
        return r;
    }
    m->hashes = xcalloc((size_t)m->blocks + 1, sizeof *m->hashes);
    *ret = m;
    return 0;
}

void manifest_free(struct manifest *m)
{
    if (!m)
        return;
    free(m->files);
    free(m->first);
    free(m->heads);
    free(m->head_bytes);
    free(m->hashes);
    free(m);
}

/* --- as bytes --------------------------------------------------------------------------------- */

static char *write_json(const struct hub_file *files, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_pack("{s:s s:s s:s s:I}", "name", files[i].name, "kind",
                                              files[i].kind == HUB_HASH_GIT ? "git" : "sha256", "hash",
                                              files[i].hash, "size", (json_int_t)files[i].size));
    json_t *all = json_pack("{s:o}", "files", list);
    char *text = json_dumps(all, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(all);
    return text ? text : xstrdup("");
}

uint8_t *manifest_encode(const struct manifest *m, size_t *ret_n)
{
    char *json = write_json(m->files, m->n);
    const size_t length = strlen(json), hashes = (size_t)m->blocks * DIGEST;
    uint8_t *bytes = xmalloc(LENGTH + length + hashes);
    struct buf_out out;
    buf_out_init(&out, bytes, LENGTH + length + hashes);
    buf_out_u32(&out, (uint32_t)length);
    buf_out_bytes(&out, json, length);
    buf_out_bytes(&out, m->hashes, hashes);
    *ret_n = LENGTH + length + hashes;
    free(json);
    return bytes;
}

static int read_file(struct hub_file *ret, const json_t *from, struct err *err)
{
    const json_t *name = json_object_get(from, "name");
    const char *kind = json_string_value(json_object_get(from, "kind")),
               *hash = json_string_value(json_object_get(from, "hash"));
    const json_int_t size = json_integer_value(json_object_get(from, "size"));
    *ret = (struct hub_file){.has_size = true};
    if (!json_is_string(name) || json_string_length(name) > HUB_FILE_NAME)
        return err_set(err, -EBADMSG, "%s has a file with no name, or one that is too long", damaged);
    memcpy(ret->name, json_string_value(name), json_string_length(name));
    if (!json_is_integer(json_object_get(from, "size")) || size < 0 || (uint64_t)size > HUB_BYTES_MAX)
        return err_set(err, -EBADMSG, "%s has a file with a size that no file has", damaged);
    ret->size = (uint64_t)size;
    if (!kind || !hash || !hub_hash_read(ret, hash) ||
        strcmp(kind, ret->kind == HUB_HASH_GIT ? "git" : "sha256") != 0)
        return err_set(err, -EBADMSG, "%s has a file whose hash is none", damaged);
    return 0;
}

static int read_files(const json_t *list, struct hub_file **ret, struct err *err)
{
    const size_t n = json_array_size(list);
    int r = 0;
    *ret = NULL;
    if (!n || n > HUB_FILES_MAX)
        return err_set(err, -EBADMSG, "%s has no files, or more than %d", damaged, HUB_FILES_MAX);
    struct hub_file *files = xcalloc(n, sizeof *files);
    for (size_t i = 0; i < n && !r; i++)
        r = read_file(&files[i], json_array_get(list, i), err);
    if (r)
        free(files);
    else
        *ret = files;
    return r;
}

/* One model has one manifest, to the byte: what says the same in another way is refused. */
static bool is_canonical(const struct manifest *m, const char *json, size_t n)
{
    char *text = write_json(m->files, m->n);
    const bool is = strlen(text) == n && !memcmp(text, json, n);
    free(text);
    return is;
}

static int decode_json(struct manifest **ret, const char *json, size_t n, struct err *err)
{
    json_t *all = json_loadb(json, n, JSON_REJECT_DUPLICATES, NULL);
    struct hub_file *files = NULL;
    int r = json_is_object(all) ? read_files(json_object_get(all, "files"), &files, err)
                                : err_set(err, -EBADMSG, "%s is not JSON", damaged);
    r = r ? r : manifest_new(ret, files, json_array_size(json_object_get(all, "files")), err);
    free(files);
    json_decref(all);
    if (!r && !is_canonical(*ret, json, n)) {
        manifest_free(*ret);
        r = err_set(err, -EBADMSG, "%s is not in its canonical form", damaged);
    }
    return r;
}

int manifest_decode(struct manifest **ret, const uint8_t *bytes, size_t n, struct err *err)
{
    struct buf_in in;
    struct manifest *m = NULL;
    buf_in_init(&in, bytes, n);
    const uint32_t length = buf_in_u32(&in);
    const uint8_t *json = length <= MANIFEST_JSON_MAX ? buf_in_view(&in, length) : NULL;
    if (n > MANIFEST_MAX || !json || in.bad)
        return err_set(err, -EBADMSG, "%s is cut, or longer than any", damaged);
    int r = decode_json(&m, (const char *)json, length, err);
    if (r)
        return r;
    if (in.left != (size_t)m->blocks * DIGEST) {
        r = err_set(err, -EBADMSG, "%s has %zu bytes of hashes for %u blocks", damaged, in.left, m->blocks);
        manifest_free(m);
        return r;
    }
    buf_in_bytes(&in, m->hashes, in.left);
    *ret = m;
    return 0;
}

static void hash(char ret[static DIGEST_HEX], const uint8_t *bytes, size_t n)
{
    struct digest *d = digest_new();
    digest_add(d, bytes, n);
    digest_end(d, ret);
}

void manifest_content(char ret[static DIGEST_HEX], const uint8_t *bytes, size_t n)
{
    struct buf_in in;
    buf_in_init(&in, bytes, n);
    const uint32_t length = buf_in_u32(&in);
    const uint8_t *json = buf_in_view(&in, length);
    hash(ret, in.bad ? bytes : json, in.bad ? n : length);
}

void manifest_list(char ret[static DIGEST_HEX], const uint8_t *bytes, size_t n)
{
    hash(ret, bytes, n);
}

bool manifest_knows(const struct manifest *m, uint32_t block)
{
    static const uint8_t unknown[DIGEST];
    return memcmp(m->hashes[block], unknown, DIGEST) != 0;
}

bool manifest_knows_all(const struct manifest *m)
{
    for (uint32_t b = 0; b < m->blocks; b++)
        if (!manifest_knows(m, b))
            return false;
    return true;
}

void manifest_forget(struct manifest *m)
{
    memset(m->hashes, 0, (size_t)m->blocks * DIGEST);
}

/* --- blocks ----------------------------------------------------------------------------------- */

uint8_t (*manifest_hashes_of(const struct manifest *m, const char *name))[DIGEST]
{
    for (size_t i = 0; i < m->n; i++)
        if (!strcmp(m->files[i].name, name))
            return m->hashes + m->first[i];
    return NULL;
}

size_t manifest_file_of(const struct manifest *m, uint32_t block)
{
    size_t low = 0, high = m->n;
    if (manifest_is_head(m, block))
        return m->heads[block - m->first[m->n]];
    while (high - low > 1) {
        const size_t middle = (low + high) / 2;
        if (m->first[middle] <= block)
            low = middle;
        else
            high = middle;
    }
    return low;
}

uint64_t manifest_offset(const struct manifest *m, uint32_t block)
{
    return manifest_is_head(m, block)
               ? 0
               : (uint64_t)(block - m->first[manifest_file_of(m, block)]) * BLOCK_BYTES;
}

uint32_t manifest_size(const struct manifest *m, uint32_t block)
{
    const uint64_t left = m->files[manifest_file_of(m, block)].size - manifest_offset(m, block);
    if (manifest_is_head(m, block)) {
        const uint32_t known = m->head_bytes[block - m->first[m->n]];
        return known ? known : HEAD_LENGTH;
    }
    return left < BLOCK_BYTES ? (uint32_t)left : BLOCK_BYTES;
}

/* --- heads ------------------------------------------------------------------------------------ */

bool manifest_is_head(const struct manifest *m, uint32_t block)
{
    return block >= m->first[m->n];
}

uint32_t manifest_head_of(const struct manifest *m, size_t file)
{
    for (uint32_t b = m->first[m->n]; b < m->blocks; b++)
        if (m->heads[b - m->first[m->n]] == file)
            return b;
    return UINT32_MAX;
}

/* Of what no such file can be no more is wanted: who opens it says so. */
void manifest_set_head(struct manifest *m, uint32_t head, const uint8_t length[HEAD_LENGTH])
{
    const uint64_t size = m->files[manifest_file_of(m, head)].size;
    uint64_t n = 0;
    for (size_t i = 0; i < HEAD_LENGTH; i++)
        n |= (uint64_t)length[i] << 8 * i;
    const bool is_possible = n <= HEAD_MOST - HEAD_LENGTH && n <= size - HEAD_LENGTH;
    m->head_bytes[head - m->first[m->n]] = HEAD_LENGTH + (is_possible ? (uint32_t)n : 0);
}

void manifest_forget_head(struct manifest *m, uint32_t head)
{
    m->head_bytes[head - m->first[m->n]] = 0;
}

static int read_at(int fd, uint8_t *to, size_t n, uint64_t at)
{
    const ssize_t got = pread(fd, to, n, (off_t)at);
    return got == (ssize_t)n ? 0 : got < 0 ? -errno : -EIO;
}

int manifest_read_head(struct manifest *m, uint32_t head, int fd, uint8_t ret[DIGEST])
{
    enum { PART = 64 << 10 };
    uint8_t part[PART];
    int r = read_at(fd, part, HEAD_LENGTH, 0);
    if (r)
        return r;
    manifest_set_head(m, head, part);
    struct digest *digest = digest_new();
    for (uint32_t at = 0, size = manifest_size(m, head), n; at < size && !r; at += n) {
        n = size - at < PART ? size - at : PART;
        r = read_at(fd, part, n, at);
        digest_add(digest, part, n);
    }
    digest_take(digest, ret);
    digest_free(digest);
    return r;
}

int manifest_note_heads(struct manifest *m, int folder, struct err *err)
{
    for (uint32_t b = m->first[m->n]; b < m->blocks; b++) {
        const char *name = m->files[manifest_file_of(m, b)].name;
        const int fd = openat(folder, name, O_RDONLY | O_CLOEXEC),
                  r = fd < 0 ? -errno : manifest_read_head(m, b, fd, m->hashes[b]);
        if (fd >= 0)
            close(fd);
        if (r)
            return err_set(err, r, "the head of %s cannot be read: %s", name, strerror(-r));
    }
    return 0;
}

/* --- on the disk ------------------------------------------------------------------------------ */

int manifest_store(int dir, const char *model, const uint8_t *bytes, size_t n, struct err *err)
{
    char path[MODELS_PATH];
    models_blocks_path(path, model);
    const int r = models_file_write(dir, path, bytes, n);
    return r ? err_set(err, r, "the list of blocks of %s cannot be written: %s", model, strerror(-r)) : 0;
}

int manifest_load(int dir, const char *model, uint8_t **ret, size_t *ret_n, struct err *err)
{
    char path[MODELS_PATH];
    models_blocks_path(path, model);
    *ret = models_file_read(dir, path, MANIFEST_MAX, ret_n);
    return *ret ? 0
                : err_set(err, -ENOENT, "there is no list of blocks of %s: remove it, and pull it again",
                          model);
}

int manifest_open(int dir, const char *model)
{
    char path[MODELS_PATH];
    models_blocks_path(path, model);
    const int fd = openat(dir, path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return -errno;
    return fd;
}

int manifest_note(int fd, const struct manifest *m, size_t list_n, uint32_t block)
{
    const size_t at = list_n - (size_t)(m->blocks - block) * DIGEST;
    const ssize_t put = pwrite(fd, m->hashes[block], DIGEST, (off_t)at);
    return put == DIGEST ? 0 : put < 0 ? -errno : -EIO;
}

/* --- while bytes come ------------------------------------------------------------------------- */

void block_hasher_begin(struct block_hasher *h, uint8_t (*to)[DIGEST], uint64_t size)
{
    *h = (struct block_hasher){.digest = to ? digest_new() : NULL, .to = to, .size = size};
}

void block_hasher_add(struct block_hasher *h, const void *bytes, size_t n)
{
    const uint8_t *from = bytes;
    if (!h->to || n > h->size - h->at)
        return;
    while (n) {
        const size_t room = BLOCK_BYTES - (size_t)(h->at % BLOCK_BYTES), part = n < room ? n : room;
        digest_add(h->digest, from, part);
        h->at += part;
        if (part == room || h->at == h->size)
            digest_take(h->digest, h->to[(h->at - 1) / BLOCK_BYTES]);
        from += part;
        n -= part;
    }
}

void block_hasher_done(struct block_hasher *h)
{
    digest_free(h->digest);
    *h = (struct block_hasher){.size = 0};
}
