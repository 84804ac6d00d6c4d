/* SPDX-License-Identifier: MIT
 *
 * Owns config_fingerprint: what a model directory looks like, as one short string that nodes
 * compare before a job. Called when a job is prepared; any thread. Independent of how the config is
 * spelled and how the tensors are spread over files. */
#include "file/config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "file/murmur.h"
#include "file/st_impl.h"

static void print_layers(FILE *f, const char *what, const struct config_layers *set, size_t layers)
{
    for (size_t l = 0; l < layers; l++)
        if (config_layers_have(set, l))
            fprintf(f, " %s %zu", what, l);
}

/* What most models have nothing of. */
static void print_more(FILE *f, const struct config *c)
{
    if (c->norms || c->norm_plus_one || c->qk_norm_whole || c->fused || c->sinks || c->glu.kind)
        fprintf(f, " block %d %d %d %d %d %d %a", (int)c->norms, c->norm_plus_one, c->qk_norm_whole, c->fused,
                c->sinks, (int)c->glu.kind, (double)c->glu.limit);
    if (c->embed_scale > 0 || c->residual_scale > 0 || c->logit_scale > 0 || c->attn_scale > 0)
        fprintf(f, " scales %a %a %a %a", c->embed_scale, c->residual_scale, c->logit_scale, c->attn_scale);
    if (c->attn_softcap > 0 || c->logit_softcap > 0)
        fprintf(f, " softcaps %a %a", c->attn_softcap, c->logit_softcap);
    if (c->rope_width || c->rope_window_theta > 0 || c->rope_query_beta > 0 || c->rope_untruncated)
        fprintf(f, " rope %zu %a %a %d", c->rope_width, c->rope_window_theta, c->rope_query_beta,
                c->rope_untruncated);
    if (c->delta.value_heads || c->attn_gate || c->moe.shared_gate)
        fprintf(f, " delta %zu %zu %zu %zu %zu %d %d %d", c->delta.key_heads, c->delta.value_heads,
                c->delta.key, c->delta.value, c->delta.taps, c->delta.fused, c->attn_gate,
                c->moe.shared_gate);
    for (size_t i = 0; c->rope == ROPE_LONG && i < config_rope_width(c) / 2; i++)
        fprintf(f, " long %a %a", c->rope_factors[0][i], c->rope_factors[1][i]);
    if (c->mla.index_top)
        fprintf(f, " indexer %zu %zu %zu", c->mla.index_heads, c->mla.index_head, c->mla.index_top);
    if (c->window)
        fprintf(f, " window %zu", c->window);
    print_layers(f, "windowed", &c->windowed, c->layers);
    print_layers(f, "unrotated", &c->unrotated, c->layers);
    print_layers(f, "linear", &c->linear, c->layers);
}

static void print_config(FILE *f, const struct config *c)
{
    fprintf(f, "%s %zu %zu %zu %zu %zu %zu %zu %zu\n", c->family, c->layers, c->dim, c->ffn, c->heads,
            c->kv_heads, c->head, c->vocab, c->max_positions);
    fprintf(f, "%a %a %d %d %d %d %d %d %d %zu\n", (double)c->norm_eps, (double)c->init_std, c->tied,
            c->attn_bias, c->attn_out_bias, c->qk_norm, c->mlp_bias, c->fp8, (int)c->dtype, c->extra_layers);
    fprintf(f, "%zu %zu %zu %zu %zu\n", c->mla.kv_rank, c->mla.q_rank, c->mla.nope, c->mla.rope,
            c->mla.value);
    fprintf(f, "%zu %zu %zu %zu %zu %zu %zu %d %d %d %a\n", c->moe.experts, c->moe.chosen, c->moe.groups,
            c->moe.groups_chosen, c->moe.ffn, c->moe.shared_ffn, c->moe.first, c->moe.sigmoid, c->moe.bias,
            c->moe.norm, c->moe.scale);
    fprintf(f, "%d %d %a %a %a %a %a %a %a %zu\n%" PRId32, (int)c->rope, c->rope_pairs, c->rope_theta,
            c->rope_factor, c->rope_low, c->rope_high, c->rope_mscale, c->rope_mscale_all, c->rope_attention,
            c->rope_original, c->bos);
    for (size_t i = 0; i < c->neos; i++)
        fprintf(f, " %" PRId32, c->eos[i]);
    for (size_t l = c->moe.first; c->moe.experts && l < c->layers; l++)
        if (!config_has_experts(c, l))
            fprintf(f, " dense %zu", l);
    if (c->mixed)
        fprintf(f, " mixed %d", c->mla.kv_b_parts);
    if (c->experts_fp4)
        fprintf(f, " experts fp4");
    if (c->compressed)
        fprintf(f, " compressed %d", c->fp8_rows);
    if (c->quant_bits)
        fprintf(f, " quantized %zu %zu %d", c->quant_bits, c->quant_group, c->quant_kind);
    print_more(f, c);
    fputc('\n', f);
}

static bool want_none(void *arg, const char *name)
{
    (void)arg, (void)name;
    return false;
}

/* The names of all tensors and the bytes they take. An index says both, so that a node need not
 * have the shards of others; where it does not say the bytes, all headers are read. */
static int open_names(struct st **ret, size_t *ret_bytes, const char *dir, struct err *err)
{
    struct st *st;
    int r = st_set_open_dir(&st, dir, want_none, NULL, (struct st_how){.map = false}, err);
    if (r == 0 && st->nshards == 0 && st->listed_bytes == 0) {
        st_close(st);
        r = st_set_open_dir(&st, dir, NULL, NULL, (struct st_how){.map = false}, err);
    }
    if (r < 0)
        return r;
    *ret_bytes = st->nshards ? 0 : st->listed_bytes;
    for (size_t i = 0; i < st_count(st); i++)
        *ret_bytes += st_at(st, i)->bytes;
    *ret = st;
    return 0;
}

static void print_tensors(FILE *f, const struct st *st, size_t bytes)
{
    const char *const *names;
    const size_t n = st_names(st, &names);
    for (size_t i = 0; i < n; i++)
        fprintf(f, "%s\n", names[i]);
    fprintf(f, "%zu\n", bytes);
}

int config_fingerprint(char ret[33], const char *dir, struct err *err)
{
    struct config c;
    int r = config_read(&c, dir, err);
    return r ? r : config_fingerprint_of(ret, &c, dir, err);
}

int config_fingerprint_of(char ret[33], const struct config *c, const char *dir, struct err *err)
{
    struct st *st = NULL;
    char *text = NULL;
    size_t n = 0, bytes = 0;
    int r = open_names(&st, &bytes, dir, err);
    if (r < 0)
        return r;
    FILE *f = open_memstream(&text, &n);
    if (f) {
        print_config(f, c);
        print_tensors(f, st, bytes);
    }
    if (!f || fclose(f) != 0) {
        r = err_set(err, -ENOMEM, "%s: no memory for its fingerprint", dir);
    } else {
        uint64_t hash[2];
        murmur128(hash, text, n, 0);
        snprintf(ret, 33, "%016" PRIx64 "%016" PRIx64, hash[0], hash[1]);
    }
    free(text);
    st_close(st);
    return r;
}
