/* SPDX-License-Identifier: MIT */
#include "file/text_part.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PEFT "base_model.model."
#define MODEL "model."
#define LANGUAGE "language_model."

/* Models around a text part: their model_type, and that of a part which is a text model of another
 * name, with that name. */
static const struct whole {
    const char *type, *part, *family;
} wholes[] = {{.type = "gemma3"},
              {.type = "mistral3"},
              {.type = "qwen3_5"},
              {.type = "qwen3_5_moe"},
              {"qwen3_vl", "qwen3_vl_text", "qwen3"},
              {"kimi_k25", "deepseek_v3", "kimi_k2"}};

/* What counts where text_config does not say it. */
static const char *const outside[] = {
    "torch_dtype",  "dtype",        "tie_word_embeddings", "bos_token_id",        "eos_token_id",
    "pad_token_id", "quantization", "quantization_config", "transformers_version"};

/* NULL: it is none. */
static const struct whole *whole_of(const json_t *root)
{
    const char *type = json_string_value(json_object_get(root, "model_type"));
    for (size_t i = 0; type && i < sizeof wholes / sizeof *wholes; i++)
        if (!strcmp(type, wholes[i].type) && json_is_object(json_object_get(root, "text_config")))
            return &wholes[i];
    return NULL;
}

static void use_family(json_t *text, const struct whole *whole)
{
    const char *type = json_string_value(json_object_get(text, "model_type"));
    if (type && whole->part && !strcmp(type, whole->part))
        json_object_set_new(text, "model_type", json_string(whole->family));
}

/* mlx-lm names layers in it. */
static json_t *value_of(const char *key, json_t *value)
{
    return !strcmp(key, "quantization") && json_is_object(value) ? text_part_names(value)
                                                                 : json_incref(value);
}

json_t *text_part_config(const json_t *root, const char *architecture)
{
    const struct whole *whole = whole_of(root);
    json_t *text = whole ? json_deep_copy(json_object_get(root, "text_config")) : NULL;
    if (text)
        use_family(text, whole);
    if (text && architecture)
        json_object_set_new(text, "architectures", json_pack("[s]", architecture));
    for (size_t i = 0; text && i < sizeof outside / sizeof *outside; i++) {
        json_t *value = json_object_get(root, outside[i]), *own = json_object_get(text, outside[i]);
        if (value && (!own || json_is_null(own)))
            json_object_set_new(text, outside[i], value_of(outside[i], value));
    }
    return text;
}

char *text_part_file(const char *json, size_t n, const char *architecture)
{
    json_t *root = json_loadb(json, n, 0, NULL), *part = text_part_config(root, architecture);
    char *text = part ? json_dumps(part, JSON_INDENT(2) | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(part);
    json_decref(root);
    return text;
}

static bool begins(const char *name, const char *with)
{
    return !strncmp(name, with, strlen(with));
}

char *text_part_name(const char *name)
{
    size_t before = begins(name, PEFT) ? strlen(PEFT) : 0;
    before += begins(name + before, MODEL LANGUAGE) ? strlen(MODEL) : 0;
    char *ret = strdup(name);
    if (ret && begins(ret + before, LANGUAGE))
        memmove(ret + before, ret + before + strlen(LANGUAGE), strlen(ret + before + strlen(LANGUAGE)) + 1);
    return ret;
}

char *text_part_outer_name(const char *name, size_t way)
{
    char *ret = NULL;
    if (way == 0)
        return asprintf(&ret, LANGUAGE "%s", name) < 0 ? NULL : ret;
    if (!begins(name, MODEL))
        return strdup(name);
    return asprintf(&ret, MODEL LANGUAGE "%s", name + strlen(MODEL)) < 0 ? NULL : ret;
}

static bool is_renamed(const char *name)
{
    char *own = text_part_name(name);
    const bool is = !own || strcmp(own, name) != 0;
    free(own);
    return is;
}

json_t *text_part_names(const json_t *of)
{
    json_t *ret = NULL, *value;
    const char *name;
    bool is_any = false;
    json_object_foreach ((json_t *)of, name, value)
        is_any |= is_renamed(name);
    if (!is_any) /* of a large model there are many, and a copy takes as long as reading them */
        return json_incref((json_t *)of);
    ret = json_object();
    json_object_foreach ((json_t *)of, name, value) {
        char *own = text_part_name(name);
        if (!own || json_object_set(ret, own, value)) {
            json_decref(ret);
            ret = NULL;
        }
        free(own);
    }
    return ret;
}

bool text_part_is_other(const char *name)
{
    static const char *const others[] = {"vision_tower.", "multi_modal_projector.", "vision_model.",
                                         "visual.", "mm_projector."};
    const char *rest = begins(name, MODEL) ? name + strlen(MODEL) : name;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (begins(rest, others[i]))
            return true;
    return false;
}
