/* SPDX-License-Identifier: MIT
 *
 * Owns the parts of a split file. Called by st_gguf.c and model_file.c. */
#include "file/gguf_model.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file/gguf_model.h"
#include "file/gguf_path.h"
#include "file/input.h"

struct gguf_model {
    struct gguf **part; /* owned, and each of them */
    char **path;        /* owned, and each of them */
    size_t n;
};

/* --- parts ------------------------------------------------------------------------------------ */

static int add_part(struct gguf_model *m, const char *path, struct err *err)
{
    struct gguf **part = reallocarray(m->part, m->n + 1, sizeof *part);
    if (part)
        m->part = part;
    char **paths = part ? reallocarray(m->path, m->n + 1, sizeof *paths) : NULL;
    if (paths)
        m->path = paths;
    char *copy = paths ? strdup(path) : NULL;
    if (!copy)
        return err_set(err, -ENOMEM, "%s: no memory to open it", path);
    int r = gguf_open(&m->part[m->n], path, err);
    if (r) {
        free(copy);
        return r;
    }
    m->path[m->n++] = copy;
    return 0;
}

static bool whole_at(const struct gguf *g, const char *key, int64_t *ret)
{
    const struct gguf_value *v = gguf_value(g, key);
    return v && !v->is_array && gguf_whole(v, 0, ret);
}

static int check_part(const struct gguf_model *m, size_t no, size_t of, struct err *err)
{
    int64_t is = -1, count = -1;
    whole_at(m->part[no], "split.no", &is);
    whole_at(m->part[no], "split.count", &count);
    return is == (int64_t)no && count == (int64_t)of
               ? 0
               : err_set(err, -EBADMSG,
                         "%s says that it is part %lld of %lld, and is named as part %zu of %zu", m->path[no],
                         (long long)is + 1, (long long)count, no + 1, of);
}

static int add_others(struct gguf_model *m, const char *path, size_t of, struct err *err)
{
    if (gguf_path_parts(path) != of)
        return err_set(err, -EINVAL,
                       "%s is part of %zu, and is not named NAME-00001-of-%05zu.gguf: name it so", path, of,
                       of);
    char *first = gguf_path_part(path, 0);
    int r = first && gguf_path_number(path)
                ? err_set(err, -EINVAL, "%s is part %zu of %zu: name the first, %s", path,
                          gguf_path_number(path) + 1, of, first)
                : check_part(m, 0, of, err);
    free(first);
    for (size_t i = 1; i < of && !r; i++) {
        char *other = gguf_path_part(path, i);
        r = other ? add_part(m, other, err) : err_set(err, -ENOMEM, "%s: no memory to open its parts", path);
        if (r == -ENOENT)
            err_set(err, r, "%s is missing: put it beside %s", other, path);
        r = r ? r : check_part(m, i, of, err);
        free(other);
    }
    return r;
}

struct named_part {
    const char *name;
    size_t part;
};

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct named_part *)a)->name, ((const struct named_part *)b)->name);
}

/* A name that two parts hold would be chance. */
static int check_unique(const struct gguf_model *m, size_t all, struct err *err)
{
    struct named_part *sorted = calloc(all + 1, sizeof *sorted);
    size_t n = 0;
    int r = 0;
    if (!sorted)
        return err_set(err, -ENOMEM, "%s: no memory for its tensors", m->path[0]);
    for (size_t p = 0; p < m->n; p++)
        for (size_t i = 0; i < gguf_tensors(m->part[p]); i++)
            sorted[n++] = (struct named_part){gguf_tensor(m->part[p], i)->name, p};
    qsort(sorted, n, sizeof *sorted, by_name);
    for (size_t i = 1; i < n && !r; i++)
        if (!by_name(&sorted[i - 1], &sorted[i]))
            r = err_set(err, -EBADMSG, "%s and %s both hold tensor %s", m->path[sorted[i - 1].part],
                        m->path[sorted[i].part], input_quote(sorted[i].name).text);
    free(sorted);
    return r;
}

static int check_names(const struct gguf_model *m, struct err *err)
{
    size_t all = 0;
    int64_t promised = 0;
    if (m->n == 1) /* gguf_parse has looked */
        return 0;
    for (size_t p = 0; p < m->n; p++)
        all += gguf_tensors(m->part[p]);
    if (whole_at(m->part[0], "split.tensors.count", &promised) && promised != (int64_t)all)
        return err_set(err, -EBADMSG, "%s: its parts hold %zu tensors, and it says %lld: copy all again",
                       m->path[0], all, (long long)promised);
    return check_unique(m, all, err);
}

int gguf_model_open(struct gguf_model **ret, const char *path, struct err *err)
{
    struct gguf_model *m = calloc(1, sizeof *m);
    int64_t of = 1;
    int r = m ? add_part(m, path, err) : err_set(err, -ENOMEM, "%s: no memory to open it", path);
    if (!r && whole_at(m->part[0], "split.count", &of) && (of < 1 || of > GGUF_PARTS_MOST))
        r = err_set(err, -EBADMSG, "%s says that it is one of %lld parts; 1 to %d are possible", path,
                    (long long)of, GGUF_PARTS_MOST);
    if (!r && of > 1)
        r = add_others(m, path, (size_t)of, err);
    if (!r)
        r = check_names(m, err);
    if (r)
        gguf_model_close(m);
    else
        *ret = m;
    return r;
}

void gguf_model_close(struct gguf_model *m)
{
    if (!m)
        return;
    for (size_t i = 0; i < m->n; i++) {
        gguf_close(m->part[i]);
        free(m->path[i]);
    }
    free(m->part);
    free(m->path);
    free(m);
}

size_t gguf_model_parts(const struct gguf_model *m)
{
    return m->n;
}

const char *gguf_model_path(const struct gguf_model *m, size_t part)
{
    return m->path[part];
}

const struct gguf *gguf_model_part(const struct gguf_model *m, size_t part)
{
    return m->part[part];
}

const struct gguf *gguf_model_head(const struct gguf_model *m)
{
    return m->part[0];
}

const struct gguf_tensor *gguf_model_find(const struct gguf_model *m, const char *name)
{
    const struct gguf_tensor *t = NULL;
    for (size_t p = 0; p < m->n && !t; p++)
        t = gguf_find(m->part[p], name);
    return t;
}
