/* SPDX-License-Identifier: MIT
 *
 * Where a model's small files come from. Called by whoever reads one; any thread, no state. */
#include "file/model_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "file/gguf_model.h"
#include "file/gguf_path.h"
#include "file/input.h"

int model_file_read(const char *model, const char *name, size_t limit, char **ret, size_t *ret_n,
                    struct err *err)
{
    struct gguf_model *m = NULL;
    int r;
    if (gguf_is_path(model)) {
        r = gguf_model_open(&m, model, err);
        r = r == -ENOENT ? -ENXIO : r; /* it is the model that is missing, and not a file of it */
        r = r ? r : gguf_model_file(ret, m, name, err);
        if (!r)
            *ret_n = strlen(*ret);
        gguf_model_close(m);
        return r;
    }
    char *path = input_path(model, name);
    r = path ? input_read(path, limit, ret, ret_n, err)
             : err_set(err, -ENOMEM, "%s: no memory to read %s", model, name);
    free(path);
    return r;
}

const char *const *model_file_told(const char *model)
{
    static const char *const names[] = {"config.json", "tokenizer.json", "tokenizer_config.json", NULL};
    return gguf_is_path(model) ? names : NULL;
}

char *model_file_name(const char *model, const char *name)
{
    return gguf_is_path(model) ? strdup(model) : input_path(model, name);
}
