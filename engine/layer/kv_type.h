/* SPDX-License-Identifier: MIT
 *
 * How the pool of a served model keeps keys and values. */
#ifndef LAYER_KV_TYPE_H
#define LAYER_KV_TYPE_H

/* INT8: the key and the value of each head are rows of row8.h. */
enum kv_type { KV_F32, KV_BF16, KV_INT8, KV_TYPES };

const char *kv_type_name(enum kv_type type); /* "f32", "bf16", "int8" */

#endif
