/* SPDX-License-Identifier: MIT */
#include "model/write/convert.h"

#include <errno.h>

int convert_run(const struct convert_request *req, struct rewrite_result *ret, struct err *err)
{
    struct config config;
    int r = config_read(&config, req->model, err);
    if (r)
        return r;
    const struct rewrite_how how = {.model = req->model,
                                    .out = req->out,
                                    .config = &config,
                                    .family = family_find(config.family),
                                    .dtype = req->dtype,
                                    .bits = req->bits,
                                    .group = req->group,
                                    .shard_bytes = req->shard_bytes,
                                    .stop = req->stop,
                                    .arg = req->arg};
    if (!how.family)
        return err_set(err, -ENOTSUP, "%s: models of the family \"%s\" are not supported", req->model,
                       config.family);
    if (req->bits && config.quant_bits)
        return err_set(
            err, -ENOTSUP,
            "%s is quantized to %zu bits already, and rounding twice loses more: quantize the model "
            "it was made from, or what `ringctl convert --dtype f32` makes of this one",
            req->model, config.quant_bits);
    return rewrite_run(&how, ret, err);
}
