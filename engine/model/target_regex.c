/* SPDX-License-Identifier: MIT
 *
 * Targets as regular expressions, for PEFT, which matches whole names of modules with them. Called
 * when an adapter is written; pure. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "model/tune.h"

struct regex_text {
    char *at;
    size_t n, size;
};

__attribute__((format(printf, 2, 3))) static void put(struct regex_text *t, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    const int n = vsnprintf(t->at + t->n, t->size - t->n, fmt, args);
    va_end(args);
    t->n = n > 0 && (size_t)n < t->size - t->n ? t->n + (size_t)n : t->size - 1;
}

/* A target whose numbers may be missing, as in the names of fused experts. */
static void put_target(struct regex_text *t, const char *target)
{
    for (const char *at = target; *at; at++) {
        if (!strncmp(at, ".*", 2)) {
            put(t, "(\\.\\d+)?");
            at++;
        } else {
            put(t, *at == '.' ? "\\." : "%c", *at);
        }
    }
}

/* "layers\.(2|3)\.mlp\.up_proj": one target in the layers where it has form i, or any where i is 0.
 * False where there are none. */
static bool put_in_layers(struct regex_text *t, const struct tune *tune, const struct config *c,
                          size_t target, size_t i)
{
    bool any = false;
    for (size_t l = 0; l < c->layers && l < TUNE_FORM_LAYERS; l++) {
        const size_t form = tune->form[target][l];
        if (!form || (i && form != i))
            continue;
        put(t, any ? "|%zu" : "layers\\.(%zu", l);
        any = true;
    }
    if (any)
        put(t, ")\\.");
    if (any)
        put_target(t, tune->targets[target]);
    return any;
}

static void put_forms(struct regex_text *t, const struct tune *tune, const struct config *c, size_t i)
{
    bool more = false;
    for (size_t k = 0; k < tune->ntargets; k++) {
        const size_t before = t->n;
        if (more)
            put(t, "|");
        const size_t after = t->n;
        if (put_in_layers(t, tune, c, k, i))
            more = true;
        else if (after != before)
            t->at[t->n = before] = '\0';
    }
}

void tune_form_regex(const struct tune *tune, const struct config *c, size_t i, char *ret, size_t size)
{
    struct regex_text t = {.at = ret, .size = size};
    *ret = '\0';
    put_forms(&t, tune, c, i + 1);
}

/* "(2|3)", or any number where that is all of them. */
static void put_layers(struct regex_text *t, const struct tune *tune, const struct config *c)
{
    put(t, ".*\\.");
    if (tune->first_layer == 0 && tune->end_layer == c->layers)
        return;
    for (size_t l = tune->first_layer; l < tune->end_layer; l++)
        put(t, l == tune->first_layer ? "layers\\.(%zu" : "|%zu", l);
    put(t, ")\\.(.*\\.)?");
}

bool tune_regex(const struct tune *tune, const struct config *c, char *ret, size_t size)
{
    struct regex_text t = {.at = ret, .size = size};
    bool needed = tune->nforms > 0;
    *ret = '\0';
    for (size_t i = 0; i < tune->ntargets; i++)
        needed = needed || strchr(tune->targets[i], '*');
    if (!needed)
        return false;
    if (tune->nforms) {
        put(&t, ".*\\.(");
        put_forms(&t, tune, c, 0);
    } else {
        put_layers(&t, tune, c);
        for (size_t i = 0; i < tune->ntargets; i++) {
            put(&t, i ? "|" : "(");
            put_target(&t, tune->targets[i]);
        }
    }
    put(&t, ")");
    return true;
}
