/* SPDX-License-Identifier: MIT */
#include "layer/kv_type.h"

static const char *const names[KV_TYPES] = {[KV_F32] = "f32", [KV_BF16] = "bf16", [KV_INT8] = "int8"};

const char *kv_type_name(enum kv_type type)
{
    return names[type];
}
