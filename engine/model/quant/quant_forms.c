/* SPDX-License-Identifier: MIT
 *
 * config.json's "quantization" is kept as it is and asked by name: a list of its own for every copy
 * of a config would cost more than the few readings while a job is planned. config_read has checked
 * what is in it. */
#include "model/quant/quant_forms.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file/model_file.h"
#include "file/text_part.h"
#include "model/quant/quant_targets.h"
#include "model/stored.h"
#include "num/sizes.h"

enum { CONFIG_MOST = 16 << 20 };

struct quant_forms {
    json_t *root;                  /* owned: config.json, or NULL */
    struct st *st;                 /* owned: the tensors without their data, where they say it; or NULL */
    struct quant_targets *targets; /* owned: of compressed-tensors, or NULL */
};

static int read_config(struct quant_forms *f, const char *dir, struct err *err)
{
    char *text = NULL;
    size_t n = 0;
    int r = model_file_read(dir, "config.json", CONFIG_MOST, &text, &n, err);
    if (!r && !(f->root = json_loadb(text, n, 0, NULL)))
        r = err_set(err, -EBADMSG, "%s/config.json is no longer JSON: was it written to just now?", dir);
    free(text);
    json_t *part = r ? NULL : text_part_config(f->root, NULL);
    if (part) {
        json_decref(f->root);
        f->root = part;
    }
    return r;
}

int quant_forms_open(struct quant_forms **ret, const char *dir, const struct config *c, struct err *err)
{
    *ret = NULL;
    if ((!c->quant_bits && !c->mixed && !c->compressed) || !dir)
        return 0;
    struct quant_forms *f = calloc(1, sizeof *f);
    int r = f ? 0 : err_set(err, -ENOMEM, "out of memory");
    if (!r)
        r = c->mixed ? st_open_heads(&f->st, dir, err) : read_config(f, dir, err);
    if (!r && c->compressed)
        r = quant_targets_new(&f->targets, json_object_get(f->root, "quantization_config"), err);
    if (r)
        quant_forms_close(f);
    else
        *ret = f;
    return r;
}

void quant_forms_close(struct quant_forms *forms)
{
    if (!forms)
        return;
    json_decref(forms->root);
    st_close(forms->st);
    quant_targets_free(forms->targets);
    free(forms);
}

struct quant_form quant_form_of(const struct quant_forms *forms, const struct tensor_def *def,
                                const struct config *c)
{
    struct quant_form form = {.bits = c->quant_bits, .group = c->quant_group, .kind = c->quant_kind};
    char module[STORED_NAME];
    if (c->experts_fp4 && def->cold && def->linear)
        return (struct quant_form){.bits = 4, .group = QUANT_FP4_GROUP, .kind = QUANT_MXFP4, .is_own = true};
    if (!forms || !forms->root)
        return form;
    stored_module_name(module, def);
    const json_t *own = json_object_get(json_object_get(forms->root, "quantization"), module);
    const json_t *bits = json_object_get(own, "bits"), *group = json_object_get(own, "group_size");
    form.is_own = json_is_object(own);
    if (form.is_own)
        form.kind = config_quant_kind(json_string_value(json_object_get(own, "mode")));
    if (json_is_false(own))
        form.bits = 0;
    if (json_is_integer(bits))
        form.bits = (size_t)json_integer_value(bits);
    if (json_is_integer(group))
        form.group = (size_t)json_integer_value(group);
    return form;
}

static size_t packed_bytes(const struct tensor_def *def, const struct config_packing *p, enum dtype side)
{
    const size_t scales = quant_groups(p->wide ? p->wide : def->cols, def->cols);
    const size_t words = def->rows * quant_words(p->bits, def->cols) * sizeof(uint32_t);
    if (p->kind == QUANT_MXFP4)
        return words + def->rows * scales;
    const size_t zeros = p->has_zeros ? round_up(def->rows * p->bits, QUANT_WORD) / 8 : 0;
    return words + scales * (def->rows * dtype_size(side) + zeros);
}

int quant_form_compressed(size_t *ret, const struct quant_forms *forms, const struct tensor_def *def,
                          const struct config *c, struct err *err)
{
    struct config_packing p;
    char module[STORED_NAME];
    const size_t all = def->rows * def->cols;
    snprintf(module, sizeof module, "%.*s", (int)stored_stem(def->name), def->name);
    const bool is_linear = def->linear || !strcmp(module, "lm_head");
    const int r =
        forms && forms->targets ? quant_targets_find(forms->targets, module, is_linear, &p, err) : 0;
    if (r < 0)
        return r;
    *ret = !r       ? all * dtype_size(c->dtype)
           : p.bits ? packed_bytes(def, &p, c->dtype)
                    : all * dtype_size(DTYPE_F8_E4M3);
    return 0;
}

size_t quant_form_bytes(const struct quant_forms *forms, const struct tensor_def *def)
{
    struct stored s;
    char why[256];
    return stored_find(&s, forms->st, def, false, why, sizeof why) && def->cols ? s.bytes : 0;
}
