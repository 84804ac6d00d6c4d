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

static void add_units(bool *units, const struct job_plan *plan, size_t s, const struct config *config)
{
    for (size_t l = plan->first[s]; l < plan->first[s + 1]; l++)
        units[l + 1] = true;
    if (s + 1 == plan->stages)
        units[config->layers + 1] = true;
    if (s == 0 || (s + 1 == plan->stages && config->tied))
        units[0] = true;
}

int share_want_init(struct share_want *ret, const struct job_plan *plan, const struct config *config,
                    uint32_t rank, struct err *err)
{
    const size_t n = config->layers + 3;
    *ret = (struct share_want){config, calloc(n, sizeof *ret->units), calloc(n, sizeof *ret->lower)};
    if (!ret->units || !ret->lower) {
        share_want_done(ret);
        return err_set(err, -ENOMEM, "out of memory");
    }
    for (size_t s = 0; s < plan->stages; s++) {
        if (job_plan_is_at(plan, s, rank))
            add_units(ret->units, plan, s, config);
        if (plan->place[s] < rank)
            add_units(ret->lower, plan, s, config);
    }
    return 0;
}

void share_want_done(struct share_want *w)
{
    free(w->units);
    free(w->lower);
}

bool share_wants(void *want, const char *name)
{
    const struct share_want *w = want;
    return w->units[weights_unit(name, w->config->layers)];
}

bool share_wants_lower(void *want, const char *name)
{
    const struct share_want *w = want;
    return w->lower[weights_unit(name, w->config->layers)];
}

/* --- which blocks ----------------------------------------------------------------------------- */

struct share_run {
    const char *file; /* borrowed: the set */
    uint64_t first, end;
    size_t unit; /* of one that is looked at by unit; else 0 */
};

static int by_place(const void *a, const void *b)
{
    const struct share_run *x = a, *y = b;
    const int names = x->file == y->file ? 0 : strcmp(x->file, y->file); /* of 100,000 most are alike */
    if (x->unit != y->unit)
        return x->unit > y->unit ? 1 : -1;
    return names ? names : (x->first > y->first) - (x->first < y->first);
}

/* A file in the folder of the model. */
static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static void add_run(json_t *list, const struct share_run *r, bool is_lower)
{
    json_t *row = json_pack("[s,I,I]", name_of(r->file), (json_int_t)r->first, (json_int_t)r->end);
    if (is_lower)
        json_array_append_new(row, json_true());
    json_array_append_new(list, row);
}

/* Sorted, and each block once. Returns how many are left. */
static size_t merge(struct share_run *runs, size_t n)
{
    size_t kept = 0;
    qsort(runs, n, sizeof *runs, by_place);
    for (size_t i = 0; i < n; i++) {
        struct share_run *last = kept ? &runs[kept - 1] : NULL;
        if (last && last->unit == runs[i].unit && !strcmp(last->file, runs[i].file) &&
            runs[i].first <= last->end)
            last->end = runs[i].end > last->end ? runs[i].end : last->end;
        else
            runs[kept++] = runs[i];
    }
    return kept;
}

static struct share_run run_of(const char *file, uint64_t at, uint64_t bytes)
{
    return (struct share_run){
        .file = file, .first = at / HAVE_BLOCK, .end = (at + bytes - 1) / HAVE_BLOCK + 1};
}

/* Only those that are away; all of them where ranks before are meant, for what these have is not
 * known. */
static size_t find_runs(const struct st *heads, bool (*want)(void *arg, const char *name), void *arg,
                        bool only_away, struct share_run *ret)
{
    size_t n = 0;
    for (size_t i = 0; i < st_count(heads); i++) {
        const struct st_tensor *t = st_at(heads, i);
        uint64_t at;
        const char *file = st_place(heads, t, &at);
        if ((t->is_away || !only_away) && t->bytes && (!want || want(arg, t->name)))
            ret[n++] = run_of(file, at, t->bytes);
    }
    return merge(ret, n);
}

/* Cut where those of ranks before begin and end. Both are sorted. */
static void add_cut(json_t *list, struct share_run r, const struct share_run *lower, size_t n)
{
    for (size_t i = 0; i < n && r.first < r.end; i++) {
        const struct share_run *l = &lower[i];
        if (strcmp(l->file, r.file) != 0 || l->end <= r.first || l->first >= r.end)
            continue;
        if (l->first > r.first)
            add_run(list, &(struct share_run){.file = r.file, .first = r.first, .end = l->first}, false);
        const struct share_run both = {.file = r.file,
                                       .first = l->first > r.first ? l->first : r.first,
                                       .end = l->end < r.end ? l->end : r.end};
        add_run(list, &both, true);
        r.first = both.end;
    }
    if (r.first < r.end)
        add_run(list, &r, false);
}

json_t *share_blocks(const struct st *heads, const struct share_ask *ask)
{
    struct share_run *runs = xcalloc(st_count(heads) + 1, sizeof *runs),
                     *lower = xcalloc(st_count(heads) + 1, sizeof *lower);
    json_t *list = json_array();
    const size_t n = find_runs(heads, ask->want, ask->arg, true, runs),
                 nlower = ask->lower ? find_runs(heads, ask->lower, ask->arg, false, lower) : 0;
    for (size_t i = 0; i < n; i++)
        add_cut(list, runs[i], lower, nlower);
    free(runs);
    free(lower);
    return list;
}

json_t *share_touched(const struct st *heads, bool (*want)(void *arg, const char *name), void *arg)
{
    struct share_run *runs = xcalloc(st_count(heads) + 1, sizeof *runs);
    json_t *list = json_array();
    const size_t n = find_runs(heads, want, arg, false, runs);
    for (size_t i = 0; i < n; i++)
        add_run(list, &runs[i], false);
    free(runs);
    return list;
}

json_t *share_units(const struct st *heads, size_t layers)
{
    struct share_run *runs = xcalloc(st_count(heads) + 1, sizeof *runs);
    json_t *units = json_array();
    size_t n = 0;
    for (size_t u = 0; u < layers + 2; u++)
        json_array_append_new(units, json_array());
    for (size_t i = 0; i < st_count(heads); i++) {
        const struct st_tensor *t = st_at(heads, i);
        uint64_t at;
        const char *file = st_place(heads, t, &at);
        const size_t unit = t->bytes ? weights_unit(t->name, layers) : layers + 2;
        if (unit >= layers + 2)
            continue;
        runs[n] = run_of(file, at, t->bytes);
        runs[n++].unit = unit;
    }
    n = merge(runs, n);
    for (size_t i = 0; i < n; i++)
        add_run(json_array_get(units, runs[i].unit), &runs[i], false);
    free(runs);
    return units;
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

int share_lacks(json_t **ret, const char *model, const struct share_ask *ask, struct err *err)
{
    struct st *heads = NULL;
    *ret = NULL;
    if (!model_name_is_exact(model)) {
        *ret = json_array();
        return 0;
    }
    const int r = st_open_heads(&heads, model, err);
    if (!r)
        *ret = share_blocks(heads, ask);
    st_close(heads);
    return r;
}
