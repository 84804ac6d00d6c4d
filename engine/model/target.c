/* SPDX-License-Identifier: MIT
 *
 * Targets of LoRA: from what users and adapters write to a few patterns, one for each kind of
 * linear, and back. Called when a job is planned or an adapter opened; pure. */
#include "model/tune_impl.h"
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A linear's module name without its layer, numbers as *: "mlp.experts.*.up_proj". */
struct target_kind {
    char text[TUNE_TARGET];
};

static struct target_kind kind_of(const char *tensor)
{
    struct target_kind k = {""};
    size_t n = 0, skip = 0;
    int layer_end = 0;
    if (sscanf(tensor, "model.layers.%*u.%n", &layer_end) == 0)
        skip = (size_t)layer_end;
    const char *end = strrchr(tensor, '.'); /* ".weight" */
    for (const char *at = tensor + skip; at < end && n + 1 < sizeof k.text;) {
        if (at > tensor && at[-1] == '.' && isdigit((unsigned char)*at)) {
            k.text[n++] = '*';
            at += strspn(at, "0123456789");
        } else {
            k.text[n++] = *at++;
        }
    }
    return k;
}

/* Is `target` the last words of the kind? */
static bool names(const char *target, const struct target_kind *k)
{
    const size_t n = strlen(k->text), want = strlen(target);
    return want && want <= n && !strcmp(k->text + n - want, target) &&
           (want == n || k->text[n - want - 1] == '.');
}

/* The number in "model.layers.3."; SIZE_MAX where there is none. */
static size_t layer_of(const char *tensor)
{
    size_t layer;
    return sscanf(tensor, "model.layers.%9zu.", &layer) == 1 ? layer : SIZE_MAX;
}

bool target_form(const struct tune *tune, const char *tensor, struct tune_form *ret)
{
    const struct target_kind k = kind_of(tensor);
    const size_t layer = tune->nforms ? layer_of(tensor) : 0;
    for (size_t i = 0; i < tune->ntargets; i++) {
        if (!names(tune->targets[i], &k))
            continue;
        const size_t form = tune->nforms && layer < TUNE_FORM_LAYERS ? tune->form[i][layer] : 0;
        *ret = form ? tune->forms[form - 1] : (struct tune_form){tune->rank, tune->alpha};
        return !tune->nforms || form;
    }
    return false;
}

bool tune_same_place(const struct tune *a, const struct tune *b)
{
    return a->first_layer == b->first_layer && a->end_layer == b->end_layer && a->ntargets == b->ntargets &&
           !memcmp(a->targets, b->targets, sizeof a->targets) && a->nforms == b->nforms &&
           !memcmp(a->forms, b->forms, a->nforms * sizeof *a->forms) &&
           !memcmp(a->form, b->form, sizeof a->form);
}

static int target_add(struct tune *tune, const char *target, struct err *err)
{
    for (size_t i = 0; i < tune->ntargets; i++)
        if (!strcmp(tune->targets[i], target))
            return 0;
    if (tune->ntargets == TUNE_MAX_TARGETS)
        return err_set(err, -E2BIG, "more than %d target modules", TUNE_MAX_TARGETS);
    snprintf(tune->targets[tune->ntargets++], TUNE_TARGET, "%s", target);
    return 0;
}

/* --- the kinds a model has -------------------------------------------------------------------- */

struct kinds {
    struct target_kind at[TUNE_MAX_TARGETS];
    size_t n;
};

static int kinds_one(void *arg, const struct tensor_def *def)
{
    struct kinds *ks = arg;
    if (!def->linear || def->fixed)
        return 0;
    const struct target_kind k = kind_of(def->name);
    for (size_t i = 0; i < ks->n; i++)
        if (!strcmp(ks->at[i].text, k.text))
            return 0;
    if (ks->n < TUNE_MAX_TARGETS)
        ks->at[ks->n++] = k;
    return 0;
}

/* Layers are of a few sorts, with experts and without, linear and not: the first of each shows
 * all. */
static struct kinds kinds_of(const struct family *f, const struct config *c)
{
    struct kinds ks = {.n = 0};
    bool seen[2][2] = {{false}};
    for (size_t l = 0; l < c->layers; l++) {
        const struct config_layer is = config_layer(c, l);
        if (!seen[is.has_experts][is.is_linear])
            family_tensors(f, c, l + 1, kinds_one, &ks);
        seen[is.has_experts][is.is_linear] = true;
    }
    return ks;
}

/* The last word of a kind where that is enough to tell it from all others. */
static const char *shortest(const struct kinds *ks, size_t i)
{
    const char *word = strrchr(ks->at[i].text, '.') + 1;
    size_t alike = 0;
    for (size_t j = 0; j < ks->n; j++)
        alike += names(word, &ks->at[j]);
    return alike == 1 ? word : ks->at[i].text;
}

static int target_unknown(const char *name, const struct kinds *ks, struct err *err)
{
    char known[400] = "";
    for (size_t i = 0; i < ks->n; i++) {
        size_t len = strlen(known);
        snprintf(known + len, sizeof known - len, "%s%s", len ? ", " : "", shortest(ks, i));
    }
    return err_set(err, -EINVAL,
                   "no linear layer of this model is called \"%s\"; there are %s, or all-linear", name,
                   known);
}

/* --- as users write them ---------------------------------------------------------------------- */

int tune_targets(struct tune *tune, const struct family *f, const struct config *c, const char *list,
                 struct err *err)
{
    const struct kinds ks = kinds_of(f, c);
    const bool all = !strcmp(list, "all-linear");
    tune->ntargets = 0;
    for (size_t i = 0; all && i < ks.n; i++) {
        const char *word = strrchr(ks.at[i].text, '.') + 1;
        int r = target_add(tune, word, err);
        if (r)
            return r;
    }
    for (const char *at = list; !all && *at;) {
        char want[TUNE_TARGET];
        const size_t len = strcspn(at, ",");
        snprintf(want, sizeof want, "%.*s", (int)(len < sizeof want ? len : sizeof want), at);
        bool found = false;
        int r = 0;
        for (size_t i = 0; i < ks.n && !r; i++) {
            if (!names(want, &ks.at[i]))
                continue;
            found = true;
            r = target_add(tune, *want == '*' ? ks.at[i].text : want, err);
        }
        if (!found)
            r = target_unknown(want, &ks, err);
        if (r)
            return r;
        if (!at[len])
            break;
        at += len + 1;
    }
    return tune->ntargets ? 0 : err_set(err, -EINVAL, "no target modules given");
}

bool tune_has_target(const struct family *f, const struct config *c, const char *target)
{
    const struct kinds ks = kinds_of(f, c);
    for (size_t i = 0; i < ks.n; i++)
        if (names(target, &ks.at[i]))
            return true;
    return false;
}

/* In latent attention the values come out of kv_b_proj. mlx-lm's DeepSeek-V3 has two other matrices
 * in its place, on which it puts no factors: there the latent that both keys and values come from
 * is trained. */
const char *tune_default_targets(const struct config *c)
{
    if (c->delta.value_heads)
        return c->delta.fused ? "q_proj,v_proj,in_proj_qkvz" : "q_proj,v_proj,in_proj_qkv";
    if (!c->mla.kv_rank)
        return c->fused ? "qkv_proj" : "q_proj,v_proj";
    if (strcmp(c->family, "deepseek_v2") != 0)
        return c->mla.q_rank ? "q_b_proj,kv_a_proj_with_mqa" : "q_proj,kv_a_proj_with_mqa";
    return c->mla.q_rank ? "q_b_proj,kv_b_proj" : "q_proj,kv_b_proj";
}

/* --- named one by one ------------------------------------------------------------------------- */

enum { ABSENT = 0xffff, NO_FACTORS = 0 }; /* else the number of a form, from 1 */

/* Every kind of linear in every layer. */
struct target_table {
    struct kinds kinds;
    struct tune_form forms[TUNE_MAX_FORMS];
    size_t nforms, layers;
    uint16_t *at; /* owned; [kinds.n][layers] */
};

/* One layer, while it is asked about. */
struct asking {
    const struct tune_ask *ask;
    struct target_table *table;
    size_t layer, here[TUNE_MAX_TARGETS], matched[TUNE_MAX_TARGETS];
    struct tune_form form[TUNE_MAX_TARGETS];
    struct err *err;
};

static int ask_one(void *arg, const struct tensor_def *def)
{
    struct asking *a = arg;
    char module[TENSOR_NAME];
    struct tune_form form = {0};
    size_t i = 0;
    if (!def->linear || def->fixed)
        return 0;
    const struct target_kind k = kind_of(def->name);
    while (i < a->table->kinds.n && strcmp(k.text, a->table->kinds.at[i].text))
        i++;
    if (i == a->table->kinds.n)
        return 0;
    snprintf(module, sizeof module, "%.*s", (int)(strrchr(def->name, '.') - def->name), def->name);
    const int r = a->ask->ask(a->ask->arg, module, a->layer, &form, a->err);
    a->here[i]++;
    if (r <= 0)
        return r;
    if (a->matched[i] && (a->form[i].rank != form.rank || a->form[i].alpha != form.alpha))
        return err_set(a->err, -ENOTSUP,
                       "it gives %s in layer %zu factors of several ranks or alphas, which is not supported",
                       k.text, a->layer);
    a->matched[i]++;
    a->form[i] = form;
    return 0;
}

static int table_form(struct target_table *t, const struct tune_form *form, uint16_t *ret, struct err *err)
{
    size_t i = 0;
    while (i < t->nforms && (t->forms[i].rank != form->rank || t->forms[i].alpha != form->alpha))
        i++;
    if (i == TUNE_MAX_FORMS)
        return err_set(err, -ENOTSUP, "it has more than %d different ranks or alphas", TUNE_MAX_FORMS);
    if (i == t->nforms)
        t->forms[t->nforms++] = *form;
    *ret = (uint16_t)(i + 1);
    return 0;
}

static int table_layer(struct target_table *t, const struct tune_ask *ask, const struct family *f,
                       const struct config *c, size_t layer, struct err *err)
{
    struct asking a = {.ask = ask, .table = t, .layer = layer, .err = err};
    int r = family_tensors(f, c, layer + 1, ask_one, &a);
    for (size_t i = 0; i < t->kinds.n && !r; i++) {
        uint16_t *at = &t->at[i * t->layers + layer];
        if (a.matched[i] && a.matched[i] != a.here[i])
            return err_set(err, -ENOTSUP,
                           "it takes some of %s in layer %zu and not all, which is not supported",
                           t->kinds.at[i].text, layer);
        *at = a.here[i] ? NO_FACTORS : ABSENT;
        if (a.matched[i])
            r = table_form(t, &a.form[i], at, err);
    }
    return r;
}

static bool row_used(const struct target_table *t, size_t kind)
{
    for (size_t l = 0; l < t->layers; l++)
        if (t->at[kind * t->layers + l] != ABSENT && t->at[kind * t->layers + l] != NO_FACTORS)
            return true;
    return false;
}

/* Do targets, a range of layers and one rank say all of it? */
static bool table_is_plain(const struct target_table *t, size_t first, size_t end)
{
    bool plain = t->nforms == 1;
    for (size_t i = 0; i < t->kinds.n; i++)
        for (size_t l = first; l < end && row_used(t, i); l++)
            plain = plain && t->at[i * t->layers + l] != NO_FACTORS;
    return plain;
}

static int table_tell(const struct target_table *t, struct tune *tune, struct err *err)
{
    size_t first = t->layers, end = 0;
    for (size_t i = 0; i < t->kinds.n * t->layers; i++)
        if (t->at[i] != ABSENT && t->at[i] != NO_FACTORS) {
            first = i % t->layers < first ? i % t->layers : first;
            end = i % t->layers + 1 > end ? i % t->layers + 1 : end;
        }
    const bool plain = table_is_plain(t, first, end);
    if (!plain && t->layers > TUNE_FORM_LAYERS)
        return err_set(err, -ENOTSUP, "it differs by layer, which is possible in models of up to %d layers",
                       TUNE_FORM_LAYERS);
    tune->ntargets = 0;
    tune->first_layer = end ? first : 0;
    tune->end_layer = end;
    tune->nforms = plain ? 0 : t->nforms;
    memset(tune->forms, 0, sizeof tune->forms);
    memset(tune->form, 0, sizeof tune->form);
    if (t->nforms == 1) {
        tune->rank = t->forms[0].rank;
        tune->alpha = t->forms[0].alpha;
    }
    for (size_t i = 0; i < t->nforms && !plain; i++)
        tune->forms[i] = t->forms[i];
    for (size_t i = 0; i < t->kinds.n; i++) {
        if (!row_used(t, i))
            continue;
        for (size_t l = 0; l < t->layers && !plain; l++) {
            const uint16_t at = t->at[i * t->layers + l];
            tune->form[tune->ntargets][l] = at == ABSENT ? NO_FACTORS : (uint8_t)at;
        }
        snprintf(tune->targets[tune->ntargets++], TUNE_TARGET, "%s",
                 plain ? shortest(&t->kinds, i) : t->kinds.at[i].text);
    }
    return tune->ntargets ? 0 : -ENOENT;
}

int tune_ask_all(struct tune *tune, const struct family *f, const struct config *c,
                 const struct tune_ask *ask, struct err *err)
{
    struct target_table t = {.kinds = kinds_of(f, c), .layers = c->layers};
    t.at = calloc(t.kinds.n * t.layers + 1, sizeof *t.at);
    int r = t.at ? 0 : err_set(err, -ENOMEM, "out of memory");
    for (size_t l = 0; l < t.layers && !r; l++)
        r = table_layer(&t, ask, f, c, l, err);
    if (!r)
        r = table_tell(&t, tune, err);
    free(t.at);
    return r;
}
