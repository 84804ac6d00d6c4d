/* SPDX-License-Identifier: MIT
 *
 * The small files beside a model's weights, where the model is a GGUF file. Called by model_file.c;
 * any thread, no state. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "file/gguf_model_impl.h"

int gguf_model_file(char **ret, const struct gguf_model *m, const char *name, struct err *err)
{
    json_t *json = NULL;
    int r = -ENOENT;
    if (!strcmp(name, "config.json"))
        r = gguf_config(&json, m, err);
    else if (!strcmp(name, "tokenizer.json"))
        r = gguf_tokenizer(&json, gguf_model_head(m), err);
    else if (!strcmp(name, "tokenizer_config.json"))
        r = gguf_tokenizer_config(&json, gguf_model_head(m), err);
    if (r)
        return r == -ENOENT ? err_set(err, r, "%s has no %s", gguf_model_path(m, 0), name)
                            : err_prefix(err, r, "%s", gguf_model_path(m, 0));
    *ret = json_dumps(json, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
    json_decref(json);
    return *ret ? 0 : err_set(err, -ENOMEM, "%s: no memory for its %s", gguf_model_path(m, 0), name);
}
