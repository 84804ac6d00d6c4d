/* SPDX-License-Identifier: MIT
 *
 * Owns the checks of one safetensors file: length, header, every tensor's type, shape and place,
 * and that the tensors tile the data without gap or overlap. Called by st.c while a set is
 * opened; one thread. After this no reader has to doubt an offset again (a file that shrinks while
 * mapped raises SIGBUS: models are not edited in place). */
#include "file/st_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file/input.h"
#include "file/text_part.h"

enum { HEADER_LIMIT = 100 * 1000 * 1000, LENGTH_BYTES = 8 };

/* Every type the format knows, so that a file's sums can be checked even where we do not compute
 * with its type. */
static const struct {
    const char *name;
    unsigned bits;
} known_types[] = {
    {"F32", 32}, {"BF16", 16},   {"F16", 16},        {"F64", 64},        {"I64", 64},    {"I32", 32},
    {"I16", 16}, {"I8", 8},      {"U8", 8},          {"U16", 16},        {"U32", 32},    {"U64", 64},
    {"BOOL", 8}, {"F8_E4M3", 8}, {"F8_E5M2", 8},     {"F8_E8M0", 8},     {"F6_E2M3", 6}, {"F6_E3M2", 6},
    {"F4", 4},   {"C64", 64},    {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8},
};

/* The header of one file while it is read. */
struct header {
    const char *path; /* borrowed */
    size_t data_bytes;
    size_t file; /* index of the shard */
    struct err *err;
};

static int parse_dtype(const struct header *h, const char *name, const json_t *v, struct st_tensor *t,
                       unsigned *bits)
{
    const char *type = json_string_value(v);
    if (!type)
        return err_set(h->err, -EBADMSG, "%s: tensor %s has no dtype; the file is damaged", h->path,
                       input_quote(name).text);
    for (size_t i = 0; i < sizeof known_types / sizeof known_types[0]; i++) {
        if (strcmp(type, known_types[i].name) != 0)
            continue;
        t->dtype_name = known_types[i].name;
        *bits = known_types[i].bits;
        if (dtype_from_name(type, &t->dtype) < 0)
            t->dtype = DTYPE_COUNT;
        return 0;
    }
    return err_set(h->err, -ENOTSUP, "%s: tensor %s has the dtype \"%s\", which this reader does not know",
                   h->path, input_quote(name).text, input_quote(type).text);
}

static int parse_shape(const struct header *h, const char *name, const json_t *v, struct st_tensor *t)
{
    if (!json_is_array(v) || json_array_size(v) > ST_MAX_DIMS)
        return err_set(h->err, -EBADMSG, "%s: the shape of tensor %s is not a list of at most %d sizes",
                       h->path, input_quote(name).text, ST_MAX_DIMS);
    t->ndim = json_array_size(v);
    t->elements = 1;
    for (size_t i = 0; i < t->ndim; i++) {
        const json_t *d = json_array_get(v, i);
        if (!json_is_integer(d) || json_integer_value(d) < 0)
            return err_set(h->err, -EBADMSG, "%s: the shape of tensor %s holds something that is no size",
                           h->path, input_quote(name).text);
        t->shape[i] = (size_t)json_integer_value(d);
        if (__builtin_mul_overflow(t->elements, t->shape[i], &t->elements))
            return err_set(h->err, -EOVERFLOW, "%s: the shape of tensor %s is larger than any memory",
                           h->path, input_quote(name).text);
    }
    return 0;
}

static int parse_offsets(const struct header *h, const char *name, const json_t *v, unsigned bits,
                         struct st_entry *e)
{
    const json_t *b = json_array_get(v, 0), *d = json_array_get(v, 1);
    if (json_array_size(v) != 2 || !json_is_integer(b) || !json_is_integer(d) || json_integer_value(b) < 0 ||
        json_integer_value(d) < json_integer_value(b))
        return err_set(h->err, -EBADMSG, "%s: the data_offsets of tensor %s are not a begin and an end",
                       h->path, input_quote(name).text);
    size_t total_bits;
    if (__builtin_mul_overflow(e->t.elements, (size_t)bits, &total_bits) || total_bits % 8 != 0)
        return err_set(h->err, -EOVERFLOW, "%s: tensor %s does not come to a possible number of bytes",
                       h->path, input_quote(name).text);
    e->begin = (size_t)json_integer_value(b);
    e->t.bytes = (size_t)json_integer_value(d) - e->begin;
    if (e->t.bytes != total_bits / 8)
        return err_set(h->err, -EBADMSG,
                       "%s: tensor %s has %zu bytes of data where its dtype and shape make %zu", h->path,
                       input_quote(name).text, e->t.bytes, total_bits / 8);
    return 0;
}

static int parse_tensor(const struct header *h, const char *name, const json_t *info, struct st_entry *e)
{
    if (!json_is_object(info))
        return err_set(h->err, -EBADMSG, "%s: the header entry of tensor %s is not an object", h->path,
                       input_quote(name).text);
    memset(e, 0, sizeof *e);
    e->t.file = h->file;
    unsigned bits = 0;
    int r = parse_dtype(h, name, json_object_get(info, "dtype"), &e->t, &bits);
    if (r == 0)
        r = parse_shape(h, name, json_object_get(info, "shape"), &e->t);
    if (r == 0)
        r = parse_offsets(h, name, json_object_get(info, "data_offsets"), bits, e);
    if (r < 0)
        return r;
    e->t.name = text_part_name(name);
    return e->t.name ? 0 : err_set(h->err, -ENOMEM, "%s: no memory for the names of its tensors", h->path);
}

static int by_place(const void *a, const void *b)
{
    const struct st_entry *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    /* An empty tensor lies before the one that begins at the same byte. */
    return (x->t.bytes > y->t.bytes) - (x->t.bytes < y->t.bytes);
}

/* The format allows no gap and no overlap: then every byte belongs to exactly one tensor. Sorts
 * entries by place. */
static int check_tiling(const struct header *h, struct st_entry *entries, size_t n)
{
    size_t end = 0;
    if (n > 0)
        qsort(entries, n, sizeof *entries, by_place);
    for (size_t i = 0; i < n; i++) {
        if (entries[i].begin < end)
            return err_set(h->err, -EBADMSG, "%s: tensors %s and %s overlap; the file is damaged", h->path,
                           input_quote(entries[i - 1].t.name).text, input_quote(entries[i].t.name).text);
        if (entries[i].begin > end)
            return err_set(h->err, -EBADMSG,
                           "%s: the %zu bytes before tensor %s belong to none; the file is damaged", h->path,
                           entries[i].begin - end, input_quote(entries[i].t.name).text);
        end += entries[i].t.bytes;
    }
    if (end < h->data_bytes)
        return err_set(h->err, -EBADMSG,
                       "%s: %zu bytes after the last tensor belong to none; the file is damaged", h->path,
                       h->data_bytes - end);
    return 0;
}

/* Before anything finer, since it is by far the likeliest fault: was the copy cut off? */
static int check_length(const struct header *h, const struct st_shard *shard, const struct st_entry *entries,
                        size_t n)
{
    size_t end = 0;
    for (size_t i = 0; i < n; i++) {
        /* Both were at most INT64_MAX. */
        if (entries[i].begin + entries[i].t.bytes > end)
            end = entries[i].begin + entries[i].t.bytes;
    }
    if (end > h->data_bytes)
        return err_set(h->err, -EBADMSG, "%s is truncated: it has %zu bytes and needs %zu; copy it again",
                       h->path, shard->bytes, shard->data_at + end);
    return 0;
}

static int check_metadata(const struct header *h, json_t *meta)
{
    if (!json_is_object(meta))
        return err_set(h->err, -EBADMSG, "%s: its __metadata__ is not an object", h->path);
    const char *key;
    json_t *v;
    json_object_foreach (meta, key, v) {
        if (!json_is_string(v))
            return err_set(h->err, -EBADMSG, "%s: its __metadata__ entry %s is not a string", h->path,
                           input_quote(key).text);
    }
    return 0;
}

static int parse_entries(struct st *st, const struct header *h, json_t *root)
{
    size_t n = json_object_size(root);
    struct st_entry *grown =
        realloc(st->entries, (st->count + n + 1) * sizeof *grown); /* never of no bytes */
    if (!grown)
        return err_set(h->err, -ENOMEM, "%s: no memory for its %zu tensors", h->path, n);
    st->entries = grown;
    size_t first = st->count;
    const char *name;
    json_t *info;
    json_object_foreach (root, name, info) {
        int r;
        if (strcmp(name, "__metadata__") == 0) {
            r = check_metadata(h, info);
        } else {
            r = parse_tensor(h, name, info, &st->entries[st->count]);
            st->count += r == 0;
        }
        if (r < 0)
            return r;
    }
    int r = check_length(h, &st->shards[h->file], st->entries + first, st->count - first);
    return r < 0 ? r : check_tiling(h, st->entries + first, st->count - first);
}

static int parse_header(struct st *st, const struct header *h, const char *text, size_t n)
{
    json_error_t je;
    json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &je);
    if (!root)
        return err_set(h->err, -EBADMSG, "%s: its header is not sound JSON: %s", h->path,
                       input_quote(je.text).text);
    int r = json_is_object(root) ? parse_entries(st, h, root)
                                 : err_set(h->err, -EBADMSG, "%s: its header is not a JSON object", h->path);
    json_decref(root);
    return r;
}

static int pread_fully(int fd, void *buf, size_t n, off_t at)
{
    for (size_t done = 0; done < n;) {
        ssize_t got = pread(fd, (char *)buf + done, n - done, at + (off_t)done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? -errno : -EIO;
        done += (size_t)got;
    }
    return 0;
}

/* The length before the header, checked against the file's size. */
static int read_length(int fd, struct st_shard *shard, size_t *ret, struct err *err)
{
    unsigned char raw[LENGTH_BYTES];
    if (shard->bytes < LENGTH_BYTES + 2)
        return err_set(err, -EBADMSG,
                       "%s is truncated: it has %zu bytes and needs at least %d; copy it again", shard->path,
                       shard->bytes, LENGTH_BYTES + 2);
    int r = pread_fully(fd, raw, sizeof raw, 0);
    if (r < 0)
        return err_set(err, r, "%s cannot be read: %s", shard->path, strerror(-r));
    if (memcmp(raw, "version ", sizeof raw) == 0)
        return err_set(err, -EBADMSG,
                       "%s is a Git LFS pointer, not the model; fetch the file itself (git lfs pull)",
                       shard->path);
    uint64_t n;
    memcpy(&n, raw, sizeof n);
    if (n < 2 || n > HEADER_LIMIT)
        return err_set(
            err, -EBADMSG,
            "%s is not a safetensors file: its header would have %llu bytes, where 2 to %d are allowed",
            shard->path, (unsigned long long)n, HEADER_LIMIT);
    if (n > shard->bytes - LENGTH_BYTES)
        return err_set(err, -EBADMSG,
                       "%s is truncated: it has %zu bytes and needs more than %zu; copy it again",
                       shard->path, shard->bytes, LENGTH_BYTES + (size_t)n);
    *ret = (size_t)n;
    return 0;
}

static int read_header(struct st *st, int fd, struct err *err)
{
    struct st_shard *shard = &st->shards[st->nshards - 1];
    size_t n = 0;
    int r = read_length(fd, shard, &n, err);
    if (r < 0)
        return r;
    char *text = malloc(n);
    if (!text)
        return err_set(err, -ENOMEM, "%s: no memory for its header of %zu bytes", shard->path, n);
    shard->data_at = LENGTH_BYTES + n;
    struct header h = {.path = shard->path,
                       .data_bytes = shard->bytes - shard->data_at,
                       .file = st->nshards - 1,
                       .err = err};
    r = pread_fully(fd, text, n, LENGTH_BYTES);
    if (r < 0)
        err_set(err, r, "%s cannot be read: %s", shard->path, strerror(-r));
    else if (text[0] != '{')
        r = err_set(err, -EBADMSG, "%s is not a safetensors file: its header does not start with '{'",
                    shard->path);
    else
        r = parse_header(st, &h, text, n);
    free(text);
    return r;
}

int st_set_map(struct maps *maps, struct st_shard *shard, int fd, struct st_entry *entries, size_t n,
               struct err *err)
{
    int r = maps_take(maps, &shard->map, fd, shard->bytes, &shard->stamp);
    if (r)
        return err_set(err, r, "%s: its %zu bytes cannot be mapped: %s", shard->path, shard->bytes,
                       strerror(-r));
    for (size_t i = 0; i < n; i++)
        entries[i].t.data = (const char *)shard->map + shard->data_at + entries[i].begin;
    return 0;
}

int st_set_stamp(struct st_shard *shard, int fd, struct err *err)
{
    struct stat sb;
    if (fstat(fd, &sb) < 0) {
        int code = -errno;
        return err_set(err, code, "%s cannot be examined: %s", shard->path, strerror(-code));
    }
    if (!S_ISREG(sb.st_mode))
        return err_set(err, -EINVAL, "%s is not a regular file", shard->path);
    shard->bytes = (size_t)sb.st_size;
    shard->stamp = (struct maps_stamp){sb.st_dev, sb.st_ino, sb.st_mtim, sb.st_ctim};
    return 0;
}

static int add_open(struct st *st, int fd, bool map, struct err *err)
{
    struct st_shard *shard = &st->shards[st->nshards - 1];
    int r = st_set_stamp(shard, fd, err);
    if (r)
        return r;
    size_t first = st->count;
    r = read_header(st, fd, err);
    if (r == 0)
        r = st_away_mark(st, st->entries + first, st->count - first, err);
    if (r == 0 && map)
        r = st_set_map(st->maps, shard, fd, st->entries + first, st->count - first, err);
    return r;
}

int st_set_add_shard(struct st *st, const char *path, struct err *err)
{
    struct st_shard *grown = realloc(st->shards, (st->nshards + 1) * sizeof *grown);
    char *copy = strdup(path);
    if (grown)
        st->shards = grown;
    if (!grown || !copy) {
        free(copy);
        return err_set(err, -ENOMEM, "%s: no memory to open it", path);
    }
    st->shards[st->nshards++] = (struct st_shard){.path = copy};
    return 0;
}

int st_set_add(struct st *st, const char *path, bool map, struct err *err)
{
    int r = st_set_add_shard(st, path, err);
    if (r)
        return r;
    int fd = input_open(path);
    if (fd < 0)
        return err_set(err, fd, "%s cannot be opened: %s", path, strerror(-fd));
    r = add_open(st, fd, map, err);
    close(fd);
    return r;
}
