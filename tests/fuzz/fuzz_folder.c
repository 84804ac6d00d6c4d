/* SPDX-License-Identifier: MIT
 *
 * Files that lie beside a model's weights and are read by name: generation_config.json, the index
 * of shards, and an adapter's adapter_config.json. First byte: which (mod 3); the rest is the
 * file. */
#include "tests/fuzz/lib/fuzz.h"

#include "engine/file/config.h"
#include "engine/file/st.h"
#include "engine/model/adapter.h"

static const char *const names[] = {"generation_config.json", "model.safetensors.index.json",
                                    "adapter_config.json"};
static const char model[] =
    "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\",\"hidden_size\":16,"
    "\"intermediate_size\":32,\"num_hidden_layers\":3,\"num_attention_heads\":2,\"num_key_value_heads\":1,"
    "\"vocab_size\":64,\"max_position_embeddings\":64,\"rms_norm_eps\":1e-5,\"rope_theta\":10000.0,"
    "\"eos_token_id\":2,\"torch_dtype\":\"float32\",\"tie_word_embeddings\":false,\"hidden_act\":\"silu\"}";

static void generation(const struct config *c, int r)
{
    expect(r != 0 || c->neos <= CONFIG_MAX_EOS);
}

static void adapter(const struct config *c)
{
    struct tune tune = {.kind = TUNE_NONE};
    struct err err = {""};
    if (adapter_read_config(&tune, fuzz_dir(), family_find(c->family), c, &err)) {
        expect(err.text[0] != '\0');
        return;
    }
    expect(tune.kind == TUNE_LORA && tune.rank >= 1 && tune.ntargets <= TUNE_MAX_TARGETS &&
           tune.first_layer <= tune.end_layer && tune.end_layer <= c->layers);
    for (size_t unit = 0; unit < c->layers + 2; unit++)
        expect(tune_param_count(&tune, family_find(c->family), c, unit) <=
               2 * family_tensor_count(family_find(c->family), c, unit));
}

static void index_of_shards(void)
{
    struct st *st = NULL;
    struct err err = {""};
    if (st_open_dir(&st, fuzz_dir(), NULL, NULL, &err))
        expect(err.text[0] && !st);
    st_close(st);
}

static void forget(void)
{
    static const char *const all[] = {"config.json", "generation_config.json", "model.safetensors.index.json",
                                      "adapter_config.json"};
    fuzz_dir_drop(all, sizeof all / sizeof *all);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static bool prepared;
    const size_t which = n > 0 ? data[0] % 3 : 0;
    struct config c;
    struct err err = {""};
    if (n < 1)
        return 0;
    if (!prepared) {
        fuzz_dir_put("config.json", model, sizeof model - 1);
        prepared = atexit(forget) == 0;
    }
    fuzz_dir_put(names[which], data + 1, n - 1);
    const int r = config_read(&c, fuzz_dir(), &err);
    expect(which == 0 || r == 0);
    generation(&c, r);
    if (which == 1)
        index_of_shards();
    if (which == 2)
        adapter(&c);
    fuzz_dir_remove(names[which]);
    return 0;
}
