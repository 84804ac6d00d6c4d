/* SPDX-License-Identifier: MIT
 *
 * Hashes as nodes tell them to each other, and the refusal of what differs. Called by weights.c's
 * callers. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file/input.h"
#include "file/murmur.h"
#include "file/weights_impl.h"

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/* --- writing ---------------------------------------------------------------------------------- */

static const struct weights_hash *hash_of(const struct weights *w, size_t name)
{
    const size_t at = w->entry[name];
    return at == SIZE_MAX || !w->is_listed[at] || !w->hash[at].is_known ? NULL : &w->hash[at];
}

/* Names and hashes of the unit's tensors, in the order of names. */
static void put_unit(FILE *f, const struct weights *w, const size_t *units, size_t unit)
{
    char *text = NULL;
    size_t n = 0, known = 0, all = 0;
    uint64_t is[2];
    FILE *to = open_memstream(&text, &n);
    for (size_t i = 0; to && i < w->st->nnames; i++) {
        const struct weights_hash *h = units[i] == unit ? hash_of(w, i) : NULL;
        all += units[i] == unit;
        known += h != NULL;
        if (h)
            fprintf(to, "%s %016" PRIx64 "%016" PRIx64 "\n", w->st->names[i], h->at[0], h->at[1]);
    }
    if (to && !fclose(to) && all && known == all) {
        murmur128(is, text, n, 0);
        fprintf(f, "%016" PRIx64 "%016" PRIx64, is[0], is[1]);
    } else {
        fputc('-', f);
    }
    free(text);
}

static void put_tensors(FILE *f, const struct weights *w)
{
    for (size_t i = 0; i < w->st->nnames; i++) {
        const struct weights_hash *h = hash_of(w, i);
        uint32_t bits = h ? (uint32_t)(h->at[1] & 0xffffff) : 0;
        bits = h && !bits ? 1 : bits;
        for (int shift = 18; shift >= 0; shift -= 6)
            fputc(alphabet[bits >> shift & 63], f);
    }
}

char *weights_text(const struct weights *w)
{
    char *text = NULL;
    size_t n = 0;
    const size_t last = w->layers + 1, units_bytes = (last + 1) * (WEIGHTS_UNIT_DIGITS + 1);
    size_t *units = calloc(w->st->nnames + 1, sizeof *units);
    FILE *f = units ? open_memstream(&text, &n) : NULL;
    for (size_t i = 0; units && i < w->st->nnames; i++)
        units[i] = weights_unit(w->st->names[i], w->layers);
    for (size_t u = 0; f && u <= last; u++) {
        if (u)
            fputc(',', f);
        put_unit(f, w, units, u);
    }
    if (f)
        fputc(';', f);
    if (f && units_bytes + WEIGHTS_LETTERS * w->st->nnames < WEIGHTS_TEXT_MAX)
        put_tensors(f, w);
    free(units);
    if (!f || fclose(f) || n > WEIGHTS_TEXT_MAX) {
        free(text);
        return NULL;
    }
    return text;
}

/* --- comparing -------------------------------------------------------------------------------- */

static const char *unit_name(char ret[32], size_t unit, size_t layers)
{
    if (unit == 0)
        return "the embedding";
    if (unit > layers)
        return "the norm and head";
    snprintf(ret, 32, "layer %zu", unit - 1);
    return ret;
}

int weights_check(const struct weights *w, const char *text, const char *whose, size_t *ret_compared,
                  struct err *err)
{
    struct weights_difference d;
    char *mine = weights_text(w), name[32];
    if (!mine)
        return err_set(err, -ENOMEM, "%s: no memory for its hashes", w->dir);
    int r = weights_text_compare(&d, mine, text);
    free(mine);
    if (r)
        return err_set(err, r, "%s sent a malformed list of weights: install the same ringd on all nodes",
                       whose);
    if (!d.units && !d.tensors) {
        *ret_compared = d.compared;
        return 0;
    }
    if (d.tensor == SIZE_MAX || !weights_file(w, d.tensor))
        return err_set(err, -ESTALE, "%s in %s has other values than on %s: copy the model again",
                       unit_name(name, d.unit, w->layers), w->dir, whose);
    if (d.tensors > 1)
        return err_set(
            err, -ESTALE,
            "%zu tensors have other values than on %s, the first is %s in %s: copy the model again",
            d.tensors, whose, input_quote(w->st->names[d.tensor]).text, weights_file(w, d.tensor));
    return err_set(err, -ESTALE, "tensor %s in %s has other values than on %s: copy the file again",
                   input_quote(w->st->names[d.tensor]).text, weights_file(w, d.tensor), whose);
}

/* --- a tied head ------------------------------------------------------------------------------ */

#define HEAD "lm_head."
#define EMBEDDING "model.embed_tokens."

bool weights_is_tied(void *unused, const char *name)
{
    (void)unused;
    return !strncmp(name, HEAD, strlen(HEAD)) || !strncmp(name, EMBEDDING, strlen(EMBEDDING));
}

int weights_check_tied(const struct weights *w, struct err *err)
{
    for (size_t i = 0; i < w->st->nnames; i++) {
        const char *name = w->st->names[i];
        char other[300];
        if (strncmp(name, HEAD, strlen(HEAD)) != 0)
            continue;
        snprintf(other, sizeof other, EMBEDDING "%s", name + strlen(HEAD));
        const size_t at = st_set_find_name(w->st, other);
        const struct weights_hash *a = hash_of(w, i), *b = at == SIZE_MAX ? NULL : hash_of(w, at);
        if (!a || !b || !memcmp(a->at, b->at, sizeof a->at))
            continue;
        return err_set(
            err, -EINVAL,
            "%s/config.json says tie_word_embeddings, but %s differs from %s: set "
            "\"tie_word_embeddings\": false there on every node to use both, or take %s out of the "
            "files to use the embedding alone",
            w->dir, input_quote(name).text, input_quote(other).text, input_quote(name).text);
    }
    return 0;
}
