/* SPDX-License-Identifier: MIT */
#include "model/family.h"

#include <string.h>

#include "model/llama.h"

const struct family *family_find(const char *model_type)
{
    static const struct family *const known[] = {&family_llama};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(known[i]->model_type, model_type))
            return known[i];
    return NULL;
}

int family_tensor_index(const struct family *f, const struct config *config, size_t unit, const char *name)
{
    struct tensor_def defs[UNIT_MAX_TENSORS];
    size_t n = f->tensors(config, unit, defs);
    for (size_t i = 0; i < n; i++)
        if (!strcmp(defs[i].name, name))
            return (int)i;
    return -1;
}
