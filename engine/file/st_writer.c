/* SPDX-License-Identifier: MIT
 *
 * Owns the writing of safetensors files: layout first, space second, data last, and the final name
 * only when everything is on the disk. Called when a checkpoint or a result is saved; a writer
 * belongs to one thread.
 */
#include "file/st.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "file/checksum.h"
#include "file/input.h"

enum {
    HEADER_LIMIT = 100 * 1000 * 1000,
    /* Where the data begins. The format asks for 8; but quantized weights are multiplied where they
     * lie, faster if their rows begin a cache line, which they do as long as the tensors before
     * them are whole lines. */
    DATA_ALIGN = 64,
    CHUNK = 16384,
};

struct st_out {
    char *name; /* owned */
    enum dtype dtype;
    bool words;  /* U32, dtype does not count */
    size_t size; /* of an element */
    size_t ndim, shape[ST_MAX_DIMS];
    size_t elements, bytes;
    size_t begin;   /* from the start of the data part */
    size_t written; /* elements so far */
    uint64_t sum;   /* of them, where the file has checksums */
};

struct st_writer {
    char *path, *tmp, *dir; /* owned */
    int fd;                 /* owned; −1 = none. The temporary exists while it is open. */
    struct st_out *outs;    /* owned; in the order of the file */
    size_t n;
    char *header; /* owned; freed once written */
    size_t header_bytes, data_bytes;
    struct st_out *sums; /* in outs; NULL in a file without checksums */
};

static void writer_free(struct st_writer *w)
{
    if (!w)
        return;
    if (w->fd >= 0)
        close(w->fd);
    for (size_t i = 0; i < w->n; i++)
        free(w->outs[i].name);
    free(w->outs);
    free(w->header);
    free(w->path);
    free(w->tmp);
    free(w->dir);
    free(w);
}

void st_writer_abort(struct st_writer *w)
{
    if (w && w->fd >= 0)
        unlink(w->tmp);
    writer_free(w);
}

/* --- layout ----------------------------------------------------------------------------------- */

/* Wide types first, as other writers do: then every tensor is aligned to its element without any
 * gap. */
static int by_layout(const void *a, const void *b)
{
    const struct st_out *x = a, *y = b;
    return x->size != y->size ? (x->size > y->size ? -1 : 1) : strcmp(x->name, y->name);
}

static int measure(struct st_writer *w, struct err *err)
{
    for (size_t i = 0; i < w->n; i++) {
        struct st_out *o = &w->outs[i];
        bool over = false;
        o->elements = 1;
        for (size_t d = 0; d < o->ndim; d++)
            over |= __builtin_mul_overflow(o->elements, o->shape[d], &o->elements);
        over |= __builtin_mul_overflow(o->elements, o->size, &o->bytes);
        o->begin = w->data_bytes;
        over |= __builtin_add_overflow(w->data_bytes, o->bytes, &w->data_bytes);
        if (over || w->data_bytes > (size_t)INT64_MAX - HEADER_LIMIT - 2 * DATA_ALIGN)
            return err_set(err, -EOVERFLOW, "%s: tensor %s makes the file larger than any disk", w->path,
                           input_quote(o->name).text);
        if (i > 0 && strcmp(o->name, w->outs[i - 1].name) == 0)
            return err_set(err, -EEXIST, "%s: tensor %s is to be written twice", w->path,
                           input_quote(o->name).text);
    }
    return 0;
}

static json_t *describe(const struct st_out *o)
{
    json_t *shape = json_array();
    for (size_t d = 0; d < o->ndim; d++)
        json_array_append_new(shape, json_integer((json_int_t)o->shape[d]));
    return json_pack("{s:s, s:o, s:[I,I]}", "dtype", o->words ? "U32" : dtype_name(o->dtype), "shape", shape,
                     "data_offsets", (json_int_t)o->begin, (json_int_t)(o->begin + o->bytes));
}

static int make_header(struct st_writer *w, struct err *err)
{
    json_t *root = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
    int bad = root ? 0 : -1;
    for (size_t i = 0; i < w->n && bad == 0; i++)
        bad = json_object_set_new(root, w->outs[i].name, describe(&w->outs[i]));
    char *text = bad == 0 ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    const size_t n = text ? strlen(text) : 0;
    w->header_bytes = (sizeof(uint64_t) + n + DATA_ALIGN - 1) / DATA_ALIGN * DATA_ALIGN;
    const uint64_t padded = w->header_bytes - sizeof(uint64_t); /* without itself */
    w->header = text ? malloc(w->header_bytes) : NULL;
    if (!w->header) {
        free(text);
        return err_set(err, -ENOMEM, "%s: no memory for its header, or a tensor name is not UTF-8", w->path);
    }
    memcpy(w->header, &padded, sizeof padded);
    memcpy(w->header + sizeof padded, text, n);
    memset(w->header + sizeof padded + n, ' ', padded - n);
    free(text);
    return padded <= HEADER_LIMIT
               ? 0
               : err_set(err, -EFBIG, "%s: names and shapes need more than 100 MB", w->path);
}

static int copy_layout(struct st_writer *w, const struct st_out_tensor *tensors, size_t n, struct err *err)
{
    w->outs = calloc(n ? n : 1, sizeof *w->outs);
    if (!w->outs)
        return err_set(err, -ENOMEM, "%s: no memory to lay it out", w->path);
    for (; w->n < n; w->n++) {
        const struct st_out_tensor *t = &tensors[w->n];
        struct st_out *o = &w->outs[w->n];
        o->dtype = t->dtype;
        o->words = t->words;
        o->size = t->words ? sizeof(uint32_t) : dtype_size(t->dtype);
        o->ndim = t->ndim;
        memcpy(o->shape, t->shape, t->ndim * sizeof *o->shape);
        o->name = strdup(t->name);
        if (!o->name)
            return err_set(err, -ENOMEM, "%s: no memory to lay it out", w->path);
    }
    qsort(w->outs, n, sizeof *w->outs, by_layout);
    for (size_t i = 0; i < n; i++) {
        w->outs[i].sum = CHECKSUM_START;
        if (w->outs[i].words && !strcmp(w->outs[i].name, ST_CHECKSUMS))
            w->sums = &w->outs[i];
    }
    int r = measure(w, err);
    return r < 0 ? r : make_header(w, err);
}

/* --- the disk --------------------------------------------------------------------------------- */

static int write_failed(const struct st_writer *w, int code, struct err *err)
{
    struct statvfs vfs;
    size_t need = w->header_bytes + w->data_bytes;
    if (code == -ENOSPC && statvfs(w->dir, &vfs) == 0)
        return err_set(err, code,
                       "%s needs %zu bytes, but its disk has only %llu free; make room or save elsewhere",
                       w->path, need, (unsigned long long)vfs.f_bavail * vfs.f_frsize);
    return err_set(err, code, "%s (%zu bytes) cannot be written: %s", w->path, need, strerror(-code));
}

/* Asks before it takes: a reservation that fails halfway would have filled the disk for
 * everybody. */
static int reserve(struct st_writer *w, struct err *err)
{
    struct statvfs vfs;
    size_t need = w->header_bytes + w->data_bytes;
    if (statvfs(w->dir, &vfs) == 0 && vfs.f_blocks > 0 && need / vfs.f_frsize > vfs.f_bavail)
        return write_failed(w, -ENOSPC, err);
    int code;
    do
        code = posix_fallocate(w->fd, 0, (off_t)need);
    while (code == EINTR);
    return code == 0 ? 0 : write_failed(w, -code, err);
}

static int write_at(const struct st_writer *w, const void *data, size_t n, size_t at, struct err *err)
{
    for (size_t done = 0; done < n;) {
        ssize_t put = pwrite(w->fd, (const char *)data + done, n - done, (off_t)(at + done));
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return write_failed(w, put < 0 ? -errno : -EIO, err);
        done += (size_t)put;
    }
    return 0;
}

static int create(struct st_writer *w, struct err *err)
{
    const char *slash = strrchr(w->path, '/');
    w->dir = !slash             ? strdup(".")
             : slash == w->path ? strdup("/")
                                : strndup(w->path, (size_t)(slash - w->path));
    if (asprintf(&w->tmp, "%s.tmp", w->path) < 0)
        w->tmp = NULL;
    if (!w->dir || !w->tmp)
        return err_set(err, -ENOMEM, "%s: no memory to write it", w->path);
    w->fd = open(w->tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (w->fd < 0) {
        int code = -errno;
        return err_set(err, code, "%s cannot be created: %s", w->tmp, strerror(-code));
    }
    int r = reserve(w, err);
    if (r == 0)
        r = write_at(w, w->header, w->header_bytes, 0, err);
    free(w->header);
    w->header = NULL;
    return r;
}

int st_writer_open(struct st_writer **ret, const char *path, const struct st_out_tensor *tensors, size_t n,
                   struct err *err)
{
    struct st_writer *w = calloc(1, sizeof *w);
    if (!w)
        return err_set(err, -ENOMEM, "%s: no memory to write it", path);
    w->fd = -1;
    w->path = strdup(path);
    int r =
        w->path ? copy_layout(w, tensors, n, err) : err_set(err, -ENOMEM, "%s: no memory to write it", path);
    if (r == 0)
        r = create(w, err);
    if (r < 0) {
        st_writer_abort(w);
        return r;
    }
    *ret = w;
    return 0;
}

static struct st_out *find_out(struct st_writer *w, const char *name)
{
    for (size_t size = 4; size > 0; size /= 2) {
        struct st_out key = {.name = (char *)name, .size = size};
        struct st_out *o = w->n ? bsearch(&key, w->outs, w->n, sizeof *w->outs, by_layout) : NULL;
        if (o)
            return o;
    }
    return NULL;
}

/* The tensor that so many more elements of `words`, or of numbers, are for. */
static int find_room(struct st_writer *w, const char *name, size_t elements, bool words, struct st_out **ret,
                     struct err *err)
{
    struct st_out *o = find_out(w, name);
    if (!o || o->words != words)
        return err_set(err, -ENOENT, "%s: tensor %s was not announced", w->path, input_quote(name).text);
    if (elements > o->elements - o->written)
        return err_set(err, -EINVAL, "%s: tensor %s has %zu elements, %zu of them written; it was given %zu",
                       w->path, input_quote(name).text, o->elements, o->written, elements);
    *ret = o;
    return 0;
}

int st_writer_words(struct st_writer *w, const char *name, const uint32_t *data, size_t n, struct err *err)
{
    struct st_out *o;
    int r = find_room(w, name, n, true, &o, err);
    if (!r)
        r = write_at(w, data, n * sizeof *data, w->header_bytes + o->begin + o->written * sizeof *data, err);
    if (!r)
        o->written += n;
    if (!r && w->sums)
        o->sum = checksum_words(o->sum, data, n);
    return r;
}

int st_writer_append(struct st_writer *w, const char *name, const float *data, size_t elements,
                     struct err *err)
{
    struct st_out *o;
    int room = find_room(w, name, elements, false, &o, err);
    if (room)
        return room;
    size_t size = o->size, at = w->header_bytes + o->begin + o->written * size;
    char stored[CHUNK * sizeof(float)];
    for (size_t done = 0; done < elements;) {
        size_t now = elements - done < CHUNK ? elements - done : CHUNK;
        dtype_from_f32(stored, data + done, o->dtype, now);
        int r = write_at(w, stored, now * size, at + done * size, err);
        if (r < 0)
            return r;
        if (w->sums)
            o->sum = checksum_words(o->sum, stored, now * size / sizeof(uint32_t));
        done += now;
    }
    o->written += elements;
    return 0;
}

int st_writer_put(struct st_writer *w, const char *name, const float *data, size_t elements, struct err *err)
{
    const struct st_out *o = find_out(w, name);
    if (o && (o->elements != elements || o->written))
        return err_set(err, -EINVAL, "%s: tensor %s has %zu elements%s; it was given %zu", w->path,
                       input_quote(name).text, o->elements, o->written ? " and is written already" : "",
                       elements);
    return st_writer_append(w, name, data, elements, err);
}

/* The rename itself is only durable once its directory is. */
static int sync_dir(const struct st_writer *w)
{
    int fd = open(w->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    int r = fsync(fd) < 0 && errno != EINVAL ? -errno : 0; /* EINVAL: a file system that cannot */
    close(fd);
    return r;
}

/* Elements of one size lie in the order of their names, as readers see them. */
static int put_sums(struct st_writer *w, struct err *err)
{
    int r = 0;
    for (size_t i = 0; w->sums && i < w->n && !r; i++) {
        const struct st_out *o = &w->outs[i];
        const uint32_t words[2] = {(uint32_t)o->sum, (uint32_t)(o->sum >> 32)};
        if (o->size != sizeof *words)
            return err_set(err, -EINVAL, "%s: tensor %s cannot have a checksum: its elements have %zu bytes",
                           w->path, input_quote(o->name).text, o->size);
        if (o != w->sums)
            r = st_writer_words(w, ST_CHECKSUMS, words, 2, err);
    }
    return r;
}

static int finish(struct st_writer *w, struct err *err)
{
    int sums = put_sums(w, err);
    if (sums)
        return sums;
    for (size_t i = 0; i < w->n; i++) {
        if (w->outs[i].written < w->outs[i].elements)
            return err_set(err, -ENODATA, "%s: tensor %s was never written, or not to its end", w->path,
                           input_quote(w->outs[i].name).text);
    }
    if (fsync(w->fd) < 0)
        return write_failed(w, -errno, err);
    int closed = close(w->fd);
    int code = closed < 0 ? -errno : 0;
    w->fd = -1;
    if (closed < 0 || rename(w->tmp, w->path) < 0) {
        code = code ? code : -errno;
        unlink(w->tmp);
        return write_failed(w, code, err);
    }
    code = sync_dir(w);
    return code < 0 ? write_failed(w, code, err) : 0;
}

int st_writer_finish(struct st_writer *w, struct err *err)
{
    int r = finish(w, err);
    st_writer_abort(w);
    return r;
}
