/* SPDX-License-Identifier: MIT */
#include "tests/lib/tiny.h"

#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "file/input.h"
#include "file/st.h"
#include "num/rng.h"
#include "tests/lib/near.h"

enum { SEED = 20250607 };

struct temp_dir temp_dir_new(void)
{
    struct temp_dir d = {"/tmp/ringd-test.XXXXXX"};
    assert_non_null(mkdtemp(d.path));
    return d;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

void temp_dir_free(const struct temp_dir *dir)
{
    nftw(dir->path, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

void write_file(const char *dir, const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
    assert_int_equal(fclose(f), 0);
}

char *read_file(const char *dir, const char *name, size_t *ret_n)
{
    char path[512], *text = NULL;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return input_read(path, 1 << 24, &text, ret_n, NULL) ? NULL : text;
}

bool has_file(const char *dir, const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return access(path, F_OK) == 0;
}

static void write_config(const char *dir, const struct tiny_spec *spec)
{
    char text[1024];
    snprintf(
        text, sizeof text,
        "{\"model_type\": \"llama\", \"hidden_size\": 20, \"intermediate_size\": 28, \"num_hidden_layers\": "
        "%zu,\n"
        " \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 6, \"vocab_size\": 37,\n"
        " \"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-5, \"rope_theta\": 100.0, \"hidden_act\": "
        "\"silu\",\n"
        " \"attention_bias\": %s, \"mlp_bias\": %s, \"tie_word_embeddings\": %s, \"torch_dtype\": \"%s\",\n"
        " \"initializer_range\": 0.25, \"bos_token_id\": 1, \"eos_token_id\": 2}\n",
        spec->layers, spec->biases ? "true" : "false", spec->biases ? "true" : "false",
        spec->tied ? "true" : "false", spec->dtype == DTYPE_BF16 ? "bfloat16" : "float32");
    write_file(dir, "config.json", text);
}

/* The tensors of a whole model. */
struct listing {
    struct st_out_tensor *at; /* owned */
    struct tensor_def *defs;  /* owned; at[].name points into it */
    size_t n;
    enum dtype dtype;
};

static int list_one(void *arg, const struct tensor_def *def)
{
    struct listing *l = arg;
    l->defs[l->n] = *def;
    l->at[l->n] =
        (struct st_out_tensor){.name = l->defs[l->n].name, .dtype = def->fixed ? DTYPE_F32 : l->dtype};
    l->at[l->n].ndim = tensor_shape(def->rows, def->cols, def->taps, l->at[l->n].shape);
    l->n++;
    return 0;
}

static void put_tensor(struct st_writer *w, const struct tensor_def *def)
{
    struct err err;
    size_t elements = def->rows * (def->cols ? def->cols : 1);
    float *x = calloc(elements, sizeof *x);
    assert_non_null(x);
    struct rng rng = rng_for(SEED, def->name);
    bool norm = !def->cols && !strstr(def->name, "bias");
    rng_fill_normal(&rng, x, elements, norm ? 1 : 0, 0.25f);
    must(st_writer_put(w, def->name, x, elements, &err), &err);
    free(x);
}

/* Room for those of so many units. */
static struct listing listing_new(const struct family *f, const struct config *c)
{
    struct listing l = {.dtype = c->dtype};
    size_t n = 0;
    for (size_t u = 0; u < c->layers + 2; u++)
        n += family_tensor_count(f, c, u);
    l.at = calloc(n, sizeof *l.at);
    l.defs = calloc(n, sizeof *l.defs);
    assert_non_null(l.at);
    assert_non_null(l.defs);
    return l;
}

static int list_new(void *arg, const struct tensor_def *def)
{
    const struct listing *l = arg;
    for (size_t i = 0; i < l->n; i++)
        if (!strcmp(l->defs[i].name, def->name))
            return 0;
    return list_one(arg, def);
}

static void list_all(struct listing *l, const struct family *f, const struct config *c,
                     int (*list)(void *arg, const struct tensor_def *def))
{
    for (size_t u = 0; u < c->layers + 2; u++)
        family_tensors(f, c, u, list, l);
}

static void listing_write(struct listing *l, const char *dir)
{
    struct err err;
    struct st_writer *w;
    char path[512];
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    must(st_writer_open(&w, path, l->at, l->n, &err), &err);
    for (size_t i = 0; i < l->n; i++)
        put_tensor(w, &l->defs[i]);
    must(st_writer_finish(w, &err), &err);
    free(l->at);
    free(l->defs);
}

void model_write(const char *dir, const struct config *c)
{
    const struct family *f = family_find(c->family);
    struct listing l = listing_new(f, c);
    list_all(&l, f, c, list_one);
    listing_write(&l, dir);
}

void model_write_ahead(const char *dir, const struct config *c)
{
    const struct family *f = family_find(c->family);
    struct config ahead;
    if (!config_ahead(&ahead, c)) {
        model_write(dir, c);
        return;
    }
    struct config more = ahead; /* its norm before the head, and the model's */
    more.layers++;
    struct listing l = listing_new(f, &more);
    list_all(&l, f, c, list_one);
    list_all(&l, f, &ahead, list_new);
    listing_write(&l, dir);
}

struct config tiny_write(const char *dir, const struct tiny_spec *spec)
{
    struct err err;
    struct config c;
    write_config(dir, spec);
    must(config_read(&c, dir, &err), &err);
    model_write(dir, &c);
    return c;
}

void tiny_batch_init(struct tiny_batch *b, const struct config *c, uint64_t seed)
{
    struct rng rng = rng_for(seed, "batch");
    *b = (struct tiny_batch){.start = {0, 7, 8, TINY_TOKENS}}; /* one of them a single token */
    for (size_t t = 0; t < TINY_TOKENS; t++) {
        b->ids[t] = (uint32_t)rng_below(&rng, c->vocab);
        b->labels[t] = t % 5 == 3 ? -100 : (int32_t)rng_below(&rng, c->vocab);
    }
    b->ids[10] = b->ids[0]; /* an id that comes twice: its row's gradient is a sum */
    b->mb =
        (struct microbatch){.seqs = {TINY_SEQS, b->start}, .ids = b->ids, .labels = b->labels, .drop = seed};
}

struct chain_spec tiny_chain(const char *dir, const struct config *c, const struct tune *tune,
                             struct chain_cut cut)
{
    return (struct chain_spec){.model_dir = dir,
                               .config = *c,
                               .tune = *tune,
                               .cut = cut,
                               .training = true,
                               .slots = 2,
                               .tokens = TINY_TOKENS,
                               .seqs = TINY_SEQS,
                               .positions = TINY_TOKENS};
}

struct search {
    const char *name;
    int at;
};

static int search_one(void *arg, const struct tensor_def *def)
{
    struct search *s = arg;
    if (!strcmp(def->name, s->name))
        return 1;
    s->at++;
    return 0;
}

struct stage_spec tiny_whole(const char *dir, const struct config *c, size_t tokens)
{
    return (struct stage_spec){.model_dir = dir,
                               .config = *c,
                               .tune = {.end_layer = c->layers},
                               .end_layer = c->layers,
                               .embed = true,
                               .head = true,
                               .slots = 1,
                               .tokens = tokens,
                               .seqs = 1,
                               .positions = tokens};
}

int tiny_tensor_index(const struct family *f, const struct config *c, size_t unit, const char *name)
{
    struct search s = {name, 0};
    return family_tensors(f, c, unit, search_one, &s) ? s.at : -1;
}

struct tiny_trained tiny_train(const struct chain_spec *spec, const struct adamw *opt, size_t steps,
                               bool state)
{
    struct tiny_trained ret = {.loss = 0};
    struct tiny_batch b;
    struct chain chain;
    tiny_batch_init(&b, &spec->config, 5);
    chain_open(&chain, spec);
    for (uint64_t step = 1; step <= steps; step++) {
        ret.loss = chain_forward(&chain, 0, &b.mb, 1.0f / TINY_TOKENS, NULL);
        chain_backward(&chain, 0);
        chain_update(&chain, opt, step);
    }
    ret.values = chain_pack(&chain, state);
    ret.n = chain_elements(&chain, state);
    chain_close(&chain);
    return ret;
}
