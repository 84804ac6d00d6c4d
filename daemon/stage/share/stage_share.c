/* SPDX-License-Identifier: MIT */
#include "daemon/stage/share/stage_share.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "daemon/common/model/model_name.h"
#include "daemon/common/xalloc.h"
#include "engine/file/have_map.h"
#include "engine/file/weights.h"

/* --- which tensors ---------------------------------------------------------------------------- */

int share_want_init(struct share_want *ret, const struct job_plan *plan, const struct config *config,
                    uint32_t rank, struct err *err)
{
    const size_t layers = config->layers;
    *ret = (struct share_want){config, calloc(layers + 3, sizeof *ret->units)};
    if (!ret->units)
        return err_set(err, -ENOMEM, "out of memory");
    for (size_t s = 0; s < plan->stages; s++) {
        if (plan->place[s] != rank)
            continue;
        for (size_t l = plan->first[s]; l < plan->first[s + 1]; l++)
            ret->units[l + 1] = true;
        if (s + 1 == plan->stages)
            ret->units[layers + 1] = true;
        if (s == 0 || (s + 1 == plan->stages && config->tied))
            ret->units[0] = true;
    }
    return 0;
}

void share_want_done(struct share_want *w)
{
    free(w->units);
}

bool share_wants(void *want, const char *name)
{
    const struct share_want *w = want;
    return w->units[weights_unit(name, w->config->layers)];
}

/* --- which blocks ----------------------------------------------------------------------------- */

struct share_run {
    const char *file; /* borrowed: the set */
    uint64_t first, end;
};

static int by_place(const void *a, const void *b)
{
    const struct share_run *x = a, *y = b;
    const int names = strcmp(x->file, y->file);
    return names ? names : (x->first > y->first) - (x->first < y->first);
}

/* A file in the folder of the model. */
static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static void add_run(json_t *list, const struct share_run *r)
{
    json_array_append_new(list,
                          json_pack("[s,I,I]", name_of(r->file), (json_int_t)r->first, (json_int_t)r->end));
}

static json_t *runs_of(const struct st *heads, bool (*want)(void *arg, const char *name), void *arg,
                       bool only_away)
{
    struct share_run *runs = xcalloc(st_count(heads) + 1, sizeof *runs), *last = NULL;
    json_t *list = json_array();
    size_t n = 0;
    for (size_t i = 0; i < st_count(heads); i++) {
        const struct st_tensor *t = st_at(heads, i);
        uint64_t at;
        const char *file = st_place(heads, t, &at);
        if ((t->is_away || !only_away) && t->bytes && (!want || want(arg, t->name)))
            runs[n++] = (struct share_run){file, at / HAVE_BLOCK, (at + t->bytes - 1) / HAVE_BLOCK + 1};
    }
    qsort(runs, n, sizeof *runs, by_place);
    for (size_t i = 0; i < n; i++) {
        if (last && !strcmp(last->file, runs[i].file) && runs[i].first <= last->end) {
            last->end = runs[i].end > last->end ? runs[i].end : last->end;
            continue;
        }
        if (last)
            add_run(list, last);
        last = &runs[i];
    }
    if (last)
        add_run(list, last);
    free(runs);
    return list;
}

json_t *share_blocks(const struct st *heads, bool (*want)(void *arg, const char *name), void *arg)
{
    return runs_of(heads, want, arg, true);
}

json_t *share_touched(const struct st *heads, bool (*want)(void *arg, const char *name), void *arg)
{
    return runs_of(heads, want, arg, false);
}

/* A file that is here in part has its whole length already. */
json_t *share_sizes(const struct st *heads)
{
    json_t *sizes = json_object();
    const char *last = NULL;
    for (size_t i = 0; i < st_count(heads); i++) {
        uint64_t at;
        struct stat st;
        const char *file = st_place(heads, st_at(heads, i), &at);
        if (file != last && !stat(file, &st))
            json_object_set_new(sizes, name_of(file), json_integer((json_int_t)st.st_size));
        last = file;
    }
    return sizes;
}

int share_lacks(json_t **ret, const char *model, bool (*want)(void *arg, const char *name), void *arg,
                struct err *err)
{
    struct st *heads = NULL;
    *ret = NULL;
    if (!model_name_is_exact(model)) {
        *ret = json_array();
        return 0;
    }
    const int r = st_open_heads(&heads, model, err);
    if (!r)
        *ret = share_blocks(heads, want, arg);
    st_close(heads);
    return r;
}
