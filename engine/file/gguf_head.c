/* SPDX-License-Identifier: MIT
 *
 * Reading the head of a GGUF file: a cursor over its bytes that never passes their end, and the
 * checks of what it finds. Called by gguf.c and by tests; pure, any thread. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "file/gguf_impl.h"
#include "file/input.h"

enum {
    KEY_MOST = 1 << 16,  /* bytes of a key; the format says so */
    ALIGN_DEFAULT = 32,  /* where general.alignment is missing */
    VALUE_LEAST = 8 + 4, /* bytes of the shortest key with its value's type */
    TENSOR_LEAST = 8 + 4 + 8 + 4 + 8,
    FORKS = 97, /* numbers of tensor types from here on are of llama.cpp's forks */
};

/* --- a cursor --------------------------------------------------------------------------------- */

struct gguf_cursor {
    struct gguf *g;
    size_t at; /* ≤ g->n */
    uint64_t file_bytes;
    struct err *err;
};

/* The bytes given end here: the file's do, or the caller has more of them. */
static int ends(const struct gguf_cursor *h, const char *what)
{
    return err_set(h->err, -ENODATA, "it is truncated: it ends inside %s after %zu bytes; copy it again",
                   what, h->g->n);
}

static int take(struct gguf_cursor *h, void *ret, size_t n, const char *what)
{
    if (n > h->g->n - h->at)
        return ends(h, what);
    memcpy(ret, h->g->bytes + h->at, n);
    h->at += n;
    return 0;
}

/* A length that no file could hold is a fault, also where there may be more of the file. */
static int check_room(const struct gguf_cursor *h, uint64_t n, size_t each, const char *what)
{
    if (n > (h->file_bytes - h->at) / each)
        return err_set(h->err, -EBADMSG,
                       "%s would have %llu parts, more than fit in a file of %llu bytes; copy it again", what,
                       (unsigned long long)n, (unsigned long long)h->file_bytes);
    return n > (h->g->n - h->at) / each ? ends(h, what) : 0;
}

static int take_text(struct gguf_cursor *h, struct gguf_text *ret, const char *what)
{
    uint64_t n = 0;
    int r = take(h, &n, sizeof n, what);
    if (!r)
        r = check_room(h, n, 1, what);
    if (r)
        return r;
    *ret = (struct gguf_text){(const char *)h->g->bytes + h->at, (size_t)n};
    h->at += (size_t)n;
    return 0;
}

/* Of a text in the file, for a sentence. */
static struct input_quote quote(struct gguf_text t)
{
    char text[GGUF_NAME + 1];
    const size_t n = t.n < GGUF_NAME ? t.n : GGUF_NAME;
    memcpy(text, t.at, n);
    text[n] = 0;
    return input_quote(text);
}

/* --- keys and values -------------------------------------------------------------------------- */

static int take_type(struct gguf_cursor *h, struct gguf_text key, enum gguf_type *ret)
{
    uint32_t type = 0;
    int r = take(h, &type, sizeof type, "the type of a value");
    if (r)
        return r;
    if (type >= GGUF_TYPES)
        return err_set(h->err, -EBADMSG, "the value of %s is of type %u, which GGUF does not have",
                       quote(key).text, type);
    *ret = (enum gguf_type)type;
    return 0;
}

static int skip_elements(struct gguf_cursor *h, const struct gguf_value *v)
{
    struct gguf_text unused;
    int r = 0;
    if (v->type != GGUF_STRING) {
        const size_t size = gguf_type_bytes(v->type);
        r = check_room(h, v->count, size, "an array");
        h->at += r ? 0 : v->count * size;
        return r;
    }
    for (size_t i = 0; i < v->count && !r; i++)
        r = take_text(h, &unused, "a string");
    return r;
}

static int take_array(struct gguf_cursor *h, struct gguf_value *v)
{
    uint64_t count = 0;
    int r = take_type(h, v->key, &v->type);
    if (!r && v->type == GGUF_ARRAY)
        return err_set(h->err, -ENOTSUP, "the value of %s is an array of arrays, which no model needs",
                       quote(v->key).text);
    if (!r)
        r = take(h, &count, sizeof count, "the length of an array");
    if (!r)
        r = check_room(h, count, v->type == GGUF_STRING ? sizeof count : gguf_type_bytes(v->type),
                       "an array");
    v->is_array = true;
    v->count = (size_t)count;
    return r;
}

static int take_value(struct gguf_cursor *h, struct gguf_value *v)
{
    *v = (struct gguf_value){.count = 1};
    int r = take_text(h, &v->key, "a key");
    if (!r && v->key.n > KEY_MOST)
        return err_set(h->err, -EBADMSG, "a key has %zu bytes; at most %d are possible", v->key.n, KEY_MOST);
    if (!r)
        r = take_type(h, v->key, &v->type);
    if (!r && v->type == GGUF_ARRAY)
        r = take_array(h, v);
    v->at = h->g->bytes + h->at;
    return r ? r : skip_elements(h, v);
}

static int by_key(const void *a, const void *b)
{
    const struct gguf_text x = (*(const struct gguf_value *const *)a)->key,
                           y = (*(const struct gguf_value *const *)b)->key;
    const int order = memcmp(x.at, y.at, x.n < y.n ? x.n : y.n);
    return order ? order : (x.n > y.n) - (x.n < y.n);
}

static int check_keys(const struct gguf_cursor *h)
{
    const struct gguf *g = h->g;
    const struct gguf_value **sorted = malloc((g->nvalues + 1) * sizeof *sorted);
    int r = sorted ? 0 : err_set(h->err, -ENOMEM, "no memory for its keys");
    for (size_t i = 0; sorted && i < g->nvalues; i++)
        sorted[i] = &g->values[i];
    if (sorted && g->nvalues)
        qsort(sorted, g->nvalues, sizeof *sorted, by_key);
    for (size_t i = 1; i < g->nvalues && !r; i++)
        if (!by_key(&sorted[i - 1], &sorted[i]))
            r = err_set(h->err, -EBADMSG, "the key %s is there twice", quote(sorted[i]->key).text);
    free(sorted);
    return r;
}

static int take_values(struct gguf_cursor *h, uint64_t n)
{
    int r = check_room(h, n, VALUE_LEAST, "its list of keys");
    if (!r && !(h->g->values = calloc((size_t)n + 1, sizeof *h->g->values)))
        r = err_set(h->err, -ENOMEM, "no memory for %llu keys", (unsigned long long)n);
    for (uint64_t i = 0; i < n && !r; i++) {
        r = take_value(h, &h->g->values[h->g->nvalues]);
        h->g->nvalues += !r;
    }
    return r ? r : check_keys(h);
}

/* --- tensors ---------------------------------------------------------------------------------- */

/* Types by their numbers in files; those without a layout are only named. */
static const struct tensor_kind {
    const char *name;
    bool is_read;
    enum dtype dtype;
    enum block_type block;
} tensor_kinds[] = {
    [0] = {"F32", true, DTYPE_F32, BLOCK_NONE},
    [1] = {"F16", true, DTYPE_F16, BLOCK_NONE},
    [2] = {"Q4_0", true, DTYPE_COUNT, BLOCK_Q4_0},
    [3] = {"Q4_1", true, DTYPE_COUNT, BLOCK_Q4_1},
    [4] = {.name = "Q4_2, which was given up"},
    [5] = {.name = "Q4_3, which was given up"},
    [6] = {"Q5_0", true, DTYPE_COUNT, BLOCK_Q5_0},
    [7] = {"Q5_1", true, DTYPE_COUNT, BLOCK_Q5_1},
    [8] = {"Q8_0", true, DTYPE_COUNT, BLOCK_Q8_0},
    [9] = {.name = "Q8_1"},
    [10] = {"Q2_K", true, DTYPE_COUNT, BLOCK_Q2_K},
    [11] = {"Q3_K", true, DTYPE_COUNT, BLOCK_Q3_K},
    [12] = {"Q4_K", true, DTYPE_COUNT, BLOCK_Q4_K},
    [13] = {"Q5_K", true, DTYPE_COUNT, BLOCK_Q5_K},
    [14] = {"Q6_K", true, DTYPE_COUNT, BLOCK_Q6_K},
    [15] = {.name = "Q8_K"},
    [16] = {.name = "IQ2_XXS"},
    [17] = {.name = "IQ2_XS"},
    [18] = {.name = "IQ3_XXS"},
    [19] = {.name = "IQ1_S"},
    [20] = {"IQ4_NL", true, DTYPE_COUNT, BLOCK_IQ4_NL},
    [21] = {.name = "IQ3_S"},
    [22] = {.name = "IQ2_S"},
    [23] = {"IQ4_XS", true, DTYPE_COUNT, BLOCK_IQ4_XS},
    [24] = {.name = "I8"},
    [25] = {.name = "I16"},
    [26] = {.name = "I32"},
    [27] = {.name = "I64"},
    [28] = {.name = "F64"},
    [29] = {.name = "IQ1_M"},
    [30] = {"BF16", true, DTYPE_BF16, BLOCK_NONE},
    [31] = {.name = "Q4_0_4_4, which was given up"},
    [32] = {.name = "Q4_0_4_8, which was given up"},
    [33] = {.name = "Q4_0_8_8, which was given up"},
    [34] = {.name = "TQ1_0"},
    [35] = {.name = "TQ2_0"},
    [36] = {.name = "IQ4_NL_4_4, which was given up"},
    [37] = {.name = "IQ4_NL_4_8, which was given up"},
    [38] = {.name = "IQ4_NL_8_8, which was given up"},
    [39] = {"MXFP4", true, DTYPE_COUNT, BLOCK_MXFP4},
};

static int take_tensor_type(const struct gguf_cursor *h, struct gguf_tensor *t, uint32_t type)
{
    const size_t n = sizeof tensor_kinds / sizeof *tensor_kinds;
    const struct tensor_kind *k = type < n ? &tensor_kinds[type] : &(struct tensor_kind){.name = NULL};
    t->dtype = k->dtype;
    t->block = k->block;
    if (k->is_read)
        return 0;
    return err_set(h->err, -ENOTSUP,
                   "tensor %s is stored as %s%s (type %u), which is not read here: take a file in F32, F16, "
                   "BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K to Q6_K, IQ4_NL, IQ4_XS or MXFP4",
                   input_quote(t->name).text, k->name ? k->name : "a type of ",
                   k->name         ? ""
                   : type >= FORKS ? "a fork"
                                   : "later",
                   type);
}

/* Its bytes, by multiplications that are checked. */
static int measure(const struct gguf_cursor *h, struct gguf_tensor *t)
{
    const struct input_quote name = input_quote(t->name);
    const size_t values = t->block ? block_values(t->block) : 1,
                 size = t->block ? block_bytes(t->block) : dtype_size(t->dtype);
    size_t n = size;
    if (t->extent[0] % values)
        return err_set(h->err, -EBADMSG,
                       "tensor %s has rows of %zu values, no multiple of %s's blocks of %zu", name.text,
                       t->extent[0], block_name(t->block), values);
    for (size_t d = 0; d < t->ndim; d++)
        if (__builtin_mul_overflow(n, d ? t->extent[d] : t->extent[0] / values, &n))
            return err_set(h->err, -EBADMSG, "tensor %s would have more bytes than any file", name.text);
    t->bytes = n;
    return 0;
}

static int take_tensor(struct gguf_cursor *h, struct gguf_tensor *t)
{
    struct gguf_text name;
    uint32_t ndim = 0, type = 0;
    uint64_t at = 0;
    int r = take_text(h, &name, "the list of tensors");
    if (r)
        return r;
    if (name.n > GGUF_NAME || !name.n || memchr(name.at, 0, name.n))
        return err_set(h->err, -EBADMSG,
                       "the name of tensor %s has %zu bytes: 1 to %d are possible, and no zero",
                       quote(name).text, name.n, GGUF_NAME);
    memcpy(t->name, name.at, name.n);
    r = take(h, &ndim, sizeof ndim, "the list of tensors");
    if (!r && (!ndim || ndim > GGUF_MAX_DIMS))
        return err_set(h->err, -EBADMSG, "tensor %s has %u dimensions: 1 to %d are possible",
                       input_quote(t->name).text, ndim, GGUF_MAX_DIMS);
    t->ndim = ndim;
    for (uint32_t d = 0; d < ndim && !r; d++) {
        uint64_t extent = 0;
        r = take(h, &extent, sizeof extent, "the list of tensors");
        if (!r && (!extent || extent > INT64_MAX))
            return err_set(h->err, -EBADMSG, "tensor %s has a dimension of %lld", input_quote(t->name).text,
                           (long long)extent);
        t->extent[d] = (size_t)extent;
    }
    if (!r)
        r = take(h, &type, sizeof type, "the list of tensors");
    if (!r)
        r = take(h, &at, sizeof at, "the list of tensors");
    t->at = (size_t)at;
    if (!r)
        r = take_tensor_type(h, t, type);
    return r ? r : measure(h, t);
}

static int take_tensors(struct gguf_cursor *h, uint64_t n)
{
    int r = check_room(h, n, TENSOR_LEAST, "its list of tensors");
    if (!r && !(h->g->tensors = calloc((size_t)n + 1, sizeof *h->g->tensors)))
        r = err_set(h->err, -ENOMEM, "no memory for %llu tensors", (unsigned long long)n);
    for (uint64_t i = 0; i < n && !r; i++) {
        r = take_tensor(h, &h->g->tensors[h->g->ntensors]);
        h->g->ntensors += !r;
    }
    return r;
}

/* --- places ----------------------------------------------------------------------------------- */

static int alignment(const struct gguf_cursor *h, size_t *ret)
{
    const struct gguf_value *v = gguf_value(h->g, "general.alignment");
    int64_t n = ALIGN_DEFAULT;
    if (v && (v->is_array || !gguf_whole(v, 0, &n)))
        return err_set(h->err, -EBADMSG, "general.alignment is of type %s, and must be a number",
                       gguf_type_name(v));
    if (n < 1 || n > (1 << 30) || (n & (n - 1)))
        return err_set(h->err, -EBADMSG, "general.alignment is %lld, and must be a power of two",
                       (long long)n);
    *ret = (size_t)n;
    return 0;
}

/* From offsets behind the head to places in the file, by subtraction: no sum can pass its end. */
static int place(const struct gguf_cursor *h, struct gguf_tensor *t, size_t align)
{
    const struct input_quote name = input_quote(t->name);
    const uint64_t begin = ((uint64_t)h->at + align - 1) / align * align;
    if (t->at % align)
        return err_set(h->err, -EBADMSG, "tensor %s begins at %zu, no multiple of the alignment %zu",
                       name.text, t->at, align);
    if (begin > h->file_bytes || t->at > h->file_bytes - begin || t->bytes > h->file_bytes - begin - t->at)
        return err_set(
            h->err, -EBADMSG,
            "it is truncated: tensor %s has %zu bytes, and ends behind the file's %llu; copy it again",
            name.text, t->bytes, (unsigned long long)h->file_bytes);
    t->at += (size_t)begin;
    return 0;
}

static int by_place(const void *a, const void *b)
{
    const struct gguf_tensor *x = *(const struct gguf_tensor *const *)a,
                             *y = *(const struct gguf_tensor *const *)b;
    return (x->at > y->at) - (x->at < y->at);
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const struct gguf_tensor *const *)a)->name,
                  (*(const struct gguf_tensor *const *)b)->name);
}

static int check_pairs(const struct gguf_cursor *h, const struct gguf_tensor **sorted)
{
    const size_t n = h->g->ntensors;
    qsort(sorted, n, sizeof *sorted, by_place);
    for (size_t i = 1; i < n; i++)
        if (sorted[i]->at - sorted[i - 1]->at < sorted[i - 1]->bytes)
            return err_set(h->err, -EBADMSG, "tensors %s and %s lie on the same bytes",
                           input_quote(sorted[i - 1]->name).text, input_quote(sorted[i]->name).text);
    qsort(sorted, n, sizeof *sorted, by_name);
    for (size_t i = 1; i < n; i++)
        if (!by_name(&sorted[i - 1], &sorted[i]))
            return err_set(h->err, -EBADMSG, "tensor %s is there twice", input_quote(sorted[i]->name).text);
    return 0;
}

static int check_tensors(const struct gguf_cursor *h)
{
    const struct gguf *g = h->g;
    size_t align = 0;
    int r = alignment(h, &align);
    for (size_t i = 0; i < g->ntensors && !r; i++)
        r = place(h, &g->tensors[i], align);
    if (r || !g->ntensors)
        return r;
    const struct gguf_tensor **sorted = malloc(g->ntensors * sizeof *sorted);
    for (size_t i = 0; sorted && i < g->ntensors; i++)
        sorted[i] = &g->tensors[i];
    r = sorted ? check_pairs(h, sorted) : err_set(h->err, -ENOMEM, "no memory for its tensors");
    free(sorted);
    return r;
}

/* --- all of it -------------------------------------------------------------------------------- */

static int take_version(struct gguf_cursor *h)
{
    char magic[4];
    uint32_t version = 0;
    int r = take(h, magic, sizeof magic, "its first four bytes");
    if (!r && memcmp(magic, "GGUF", sizeof magic) != 0)
        return err_set(h->err, -EBADMSG, "it is no GGUF file: it does not begin with \"GGUF\"");
    if (!r)
        r = take(h, &version, sizeof version, "its version");
    if (!r && version && !(version & 0xffff))
        return err_set(h->err, -ENOTSUP, "it is a big-endian GGUF file: take the little-endian one");
    if (!r && version != 2 && version != 3)
        return err_set(h->err, -ENOTSUP, "it is of GGUF version %u; read are 2 and 3: convert it again",
                       version);
    return r;
}

static int take_all(struct gguf_cursor *h)
{
    uint64_t tensors = 0, values = 0;
    int r = take_version(h);
    if (!r)
        r = take(h, &tensors, sizeof tensors, "its counts");
    if (!r)
        r = take(h, &values, sizeof values, "its counts");
    if (!r)
        r = take_values(h, values);
    if (!r)
        r = take_tensors(h, tensors);
    return r ? r : check_tensors(h);
}

int gguf_parse(struct gguf **ret, const void *bytes, size_t n, uint64_t file_bytes, struct err *err)
{
    struct gguf *g = calloc(1, sizeof *g);
    if (!g || !(g->bytes = malloc(n + 1))) {
        gguf_close(g);
        return err_set(err, -ENOMEM, "no memory for a head of %zu bytes", n);
    }
    memcpy(g->bytes, bytes, n);
    g->n = n;
    int r = take_all(&(struct gguf_cursor){.g = g, .file_bytes = file_bytes, .err = err});
    if (r)
        gguf_close(g);
    else
        *ret = g;
    return r;
}
