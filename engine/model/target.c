/* SPDX-License-Identifier: MIT
 *
 * Targets of LoRA: from what users and adapters write to a few patterns, one for each kind of linear, and back.
 * Called when a job is planned or an adapter opened; pure. */
#include "model/target.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/pattern.h"

/* A linear's module name without its layer, numbers as *: "mlp.experts.*.up_proj". */
struct kind {
    char text[TUNE_TARGET];
};

static struct kind kind_of(const char *tensor)
{
    struct kind k = {""};
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
static bool names(const char *target, const struct kind *k)
{
    const size_t n = strlen(k->text), want = strlen(target);
    return want && want <= n && !strcmp(k->text + n - want, target) &&
           (want == n || k->text[n - want - 1] == '.');
}

bool target_any(const struct tune *tune, const char *tensor)
{
    const struct kind k = kind_of(tensor);
    for (size_t i = 0; i < tune->ntargets; i++)
        if (names(tune->targets[i], &k))
            return true;
    return false;
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
    struct kind at[TUNE_MAX_TARGETS];
    size_t n;
};

static int kinds_one(void *arg, const struct tensor_def *def)
{
    struct kinds *ks = arg;
    if (!def->linear)
        return 0;
    const struct kind k = kind_of(def->name);
    for (size_t i = 0; i < ks->n; i++)
        if (!strcmp(ks->at[i].text, k.text))
            return 0;
    if (ks->n < TUNE_MAX_TARGETS)
        ks->at[ks->n++] = k;
    return 0;
}

/* Layers are of two sorts at most: the first and the last show both. */
static struct kinds kinds_of(const struct family *f, const struct config *c)
{
    struct kinds ks = {.n = 0};
    family_tensors(f, c, 1, kinds_one, &ks);
    family_tensors(f, c, c->layers, kinds_one, &ks);
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
        for (size_t i = 0; i < ks.n; i++)
            found = found || names(want, &ks.at[i]);
        int r = found ? target_add(tune, want, err) : target_unknown(want, &ks, err);
        if (r)
            return r;
        if (!at[len])
            break;
        at += len + 1;
    }
    return tune->ntargets ? 0 : err_set(err, -EINVAL, "no target modules given");
}

/* In latent attention the values come out of kv_b_proj. */
const char *tune_default_targets(const struct config *c)
{
    if (!c->mla.kv_rank)
        return "q_proj,v_proj";
    return c->mla.q_rank ? "q_b_proj,kv_b_proj" : "q_proj,kv_b_proj";
}

/* --- regular expressions ---------------------------------------------------------------------- */

/* What of the model matches: how many linears of each kind there are and match, in the layers that match at
 * all. */
struct match {
    struct pattern *pattern;         /* owned; of whole names */
    struct pattern_scratch *scratch; /* owned */
    struct kinds kinds;
    size_t here[TUNE_MAX_TARGETS], matched[TUNE_MAX_TARGETS];
    struct err *err;
};

static int match_one(void *arg, const struct tensor_def *def)
{
    struct match *m = arg;
    char module[TENSOR_NAME];
    if (!def->linear)
        return 0;
    snprintf(module, sizeof module, "%.*s", (int)(strrchr(def->name, '.') - def->name), def->name);
    struct pattern_walk walk = PATTERN_WALK;
    struct pattern_hit hit;
    const int r = pattern_next(m->pattern, m->scratch, module, strlen(module), &walk, &hit, m->err);
    const struct kind k = kind_of(def->name);
    for (size_t i = 0; i < m->kinds.n; i++)
        if (!strcmp(k.text, m->kinds.at[i].text)) {
            m->here[i]++;
            m->matched[i] += r > 0;
        }
    return r < 0 ? r : 0;
}

/* Layer by layer: which kinds match, whole or not at all, and the same in every layer that matches. */
static int match_layers(struct tune *tune, struct match *m, const struct family *f, const struct config *c,
                        struct err *err)
{
    bool wanted[TUNE_MAX_TARGETS] = {false}, refused[TUNE_MAX_TARGETS] = {false};
    size_t first = c->layers, end = 0;
    for (size_t l = 0; l < c->layers; l++) {
        memset(m->here, 0, sizeof m->here);
        memset(m->matched, 0, sizeof m->matched);
        int r = family_tensors(f, c, l + 1, match_one, m);
        if (r)
            return r;
        size_t any = 0;
        for (size_t i = 0; i < m->kinds.n; i++)
            any += m->matched[i];
        if (!any)
            continue;
        if (end && end != l)
            return err_set(err, -ENOTSUP,
                           "it leaves out layer %zu between others; one run of layers is "
                           "possible",
                           end);
        first = first < l ? first : l;
        end = l + 1;
        for (size_t i = 0; i < m->kinds.n; i++) {
            if (m->matched[i] && m->matched[i] != m->here[i])
                return err_set(err, -ENOTSUP,
                               "it takes some of %s in layer %zu and not all, which is not "
                               "done here",
                               m->kinds.at[i].text, l);
            wanted[i] = wanted[i] || m->matched[i];
            refused[i] = refused[i] || (m->here[i] && !m->matched[i]);
        }
    }
    tune->ntargets = 0;
    tune->first_layer = end ? first : 0;
    tune->end_layer = end;
    for (size_t i = 0; i < m->kinds.n; i++) {
        if (wanted[i] && refused[i])
            return err_set(err, -ENOTSUP,
                           "it takes %s in some layers and not in others, which is not done "
                           "here",
                           m->kinds.at[i].text);
        const int r = wanted[i] ? target_add(tune, m->kinds.at[i].text, err) : 0;
        if (r)
            return r;
    }
    return tune->ntargets ? 0 : err_set(err, -EINVAL, "it matches no linear layer of this model");
}

int tune_targets_regex(struct tune *tune, const struct family *f, const struct config *c, const char *regex,
                       struct err *err)
{
    struct match m = {.kinds = kinds_of(f, c), .err = err};
    struct tune read = *tune;
    const size_t size = strlen(regex) + 16;
    char *whole = malloc(size);
    int r = whole ? pattern_scratch_new(&m.scratch, err) : err_set(err, -ENOMEM, "out of memory");
    if (!r) {
        snprintf(whole, size, "\\A(?:%s)\\z", regex);
        r = pattern_new_regex(&m.pattern, whole, err);
    }
    if (!r)
        r = match_layers(&read, &m, f, c, err);
    if (!r)
        *tune = read;
    pattern_free(m.pattern);
    pattern_scratch_free(m.scratch);
    free(whole);
    return r;
}

/* "(2|3)", or any number where that is all of them. */
static size_t put_layers(const struct tune *tune, const struct config *c, char *ret, size_t size)
{
    size_t n = (size_t)snprintf(ret, size, ".*\\.");
    if (tune->first_layer == 0 && tune->end_layer == c->layers)
        return n;
    for (size_t l = tune->first_layer; l < tune->end_layer && n < size; l++)
        n += (size_t)snprintf(ret + n, size - n, l == tune->first_layer ? "layers\\.(%zu" : "|%zu", l);
    return n < size ? n + (size_t)snprintf(ret + n, size - n, ")\\.(.*\\.)?") : n;
}

bool tune_regex(const struct tune *tune, const struct config *c, char *ret, size_t size)
{
    bool needed = false;
    for (size_t i = 0; i < tune->ntargets; i++)
        needed = needed || strchr(tune->targets[i], '*');
    if (!needed)
        return false;
    size_t n = put_layers(tune, c, ret, size);
    for (size_t i = 0; i < tune->ntargets && n + 4 < size; i++) {
        ret[n++] = i ? '|' : '(';
        for (const char *at = tune->targets[i]; *at && n + 4 < size; at++)
            n += (size_t)snprintf(ret + n, size - n, *at == '*' ? "\\d+" : *at == '.' ? "\\." : "%c", *at);
    }
    if (n + 4 < size)
        snprintf(ret + n, size - n, ")");
    return true;
}
