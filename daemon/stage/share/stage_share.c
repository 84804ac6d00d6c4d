/* SPDX-License-Identifier: MIT */
#include "daemon/stage/share/stage_share.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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

static void add_run(json_t *list, const struct share_run *r)
{
    const char *slash = strrchr(r->file, '/');
    json_array_append_new(
        list, json_pack("[s,I,I]", slash ? slash + 1 : r->file, (json_int_t)r->first, (json_int_t)r->end));
}

json_t *share_blocks(const struct st *heads, bool (*want)(void *arg, const char *name), void *arg)
{
    struct share_run *runs = xcalloc(st_count(heads) + 1, sizeof *runs), *last = NULL;
    json_t *list = json_array();
    size_t n = 0;
    for (size_t i = 0; i < st_count(heads); i++) {
        const struct st_tensor *t = st_at(heads, i);
        uint64_t at;
        const char *file = st_place(heads, t, &at);
        if (t->is_away && t->bytes && (!want || want(arg, t->name)))
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
