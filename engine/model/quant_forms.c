/* SPDX-License-Identifier: MIT
 *
 * config.json's "quantization" is kept as it is and asked by name: a list of its own for every copy
 * of a config would cost more than the few readings while a job is planned. config_read has checked
 * what is in it. */
#include "model/quant_forms.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "file/input.h"
#include "model/stored.h"

enum { CONFIG_MOST = 16 << 20 };

struct quant_forms {
    json_t *root; /* owned: config.json */
};

int quant_forms_open(struct quant_forms **ret, const char *dir, const struct config *c, struct err *err)
{
    char *text = NULL;
    size_t n = 0;
    *ret = NULL;
    if (!c->quant_bits || !dir)
        return 0;
    struct quant_forms *f = calloc(1, sizeof *f);
    char *path = input_path(dir, "config.json");
    int r =
        f && path ? input_read(path, CONFIG_MOST, &text, &n, err) : err_set(err, -ENOMEM, "out of memory");
    if (!r && !(f->root = json_loadb(text, n, 0, NULL)))
        r = err_set(err, -EBADMSG, "%s is no longer JSON: was it written to just now?", path);
    free(text);
    free(path);
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
    free(forms);
}

struct quant_form quant_form_of(const struct quant_forms *forms, const char *name, const struct config *c)
{
    struct quant_form form = {c->quant_bits, c->quant_group, false};
    char module[STORED_NAME];
    if (!forms)
        return form;
    stored_module_name(module, name);
    const json_t *own = json_object_get(json_object_get(forms->root, "quantization"), module);
    const json_t *bits = json_object_get(own, "bits"), *group = json_object_get(own, "group_size");
    form.is_own = json_is_object(own);
    if (json_is_false(own))
        form.bits = 0;
    if (json_is_integer(bits))
        form.bits = (size_t)json_integer_value(bits);
    if (json_is_integer(group))
        form.group = (size_t)json_integer_value(group);
    return form;
}
