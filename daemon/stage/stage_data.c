/* SPDX-License-Identifier: MIT
 *
 * Owns nothing. Called by the head when it plans, and by stage_check.c; one thread. */
#include "daemon/stage/stage_data.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

static int open_rows(struct data **ret, const struct job_spec *spec, const struct config *config,
                     const struct tokenizer *tok, const char *path, const char *split, struct err *err)
{
    struct chat_template *tpl = NULL;
    struct err why;
    int none = chat_template_open(&tpl, spec->model, &why);
    struct data_request req = {.path = path,
                               .split = split,
                               .tok = tok,
                               .tpl = tpl,
                               .tpl_why = none && none != -ENOENT ? why.text : NULL,
                               .template_args = spec->template_args,
                               .fields = spec->fields,
                               .mask = spec->mask,
                               .overlong = spec->overlong,
                               .pairs = spec->loss != LOSS_NLL,
                               .seq_len = spec->seq_len,
                               .vocab = config->vocab,
                               .eos = config->neos ? config->eos[0] : -1};
    int r = data_open(ret, &req, err);
    chat_template_close(tpl);
    return r;
}

int stage_data_open(struct stage_data *ret, const struct job_spec *spec, const struct config *config,
                    const struct tokenizer *tok, const char *path, const char *split, struct err *err)
{
    struct stage_data d = {0};
    int r = open_rows(&d.data, spec, config, tok, path, split, err);
    if (!r)
        r = data_packs_new(&d.packs, d.data, spec->packing ? spec->seq_len : 0, err);
    if (r)
        stage_data_done(&d);
    else
        *ret = d;
    return r;
}

void stage_data_done(struct stage_data *d)
{
    data_close(d->data);
    data_packs_free(d->packs);
    *d = (struct stage_data){0};
}

static void add(char *line, size_t *at, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void add(char *line, size_t *at, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(line + *at, STAGE_DATA_LINE - *at, fmt, ap);
    va_end(ap);
    *at += n > 0 ? (size_t)n : 0;
    if (*at >= STAGE_DATA_LINE)
        *at = STAGE_DATA_LINE - 1;
}

void stage_data_describe(char ret[STAGE_DATA_LINE], const struct stage_data *d, const struct job_spec *spec)
{
    const struct data_counts c = data_counts(d->data);
    size_t at = 0;
    add(ret, &at, "%zu rows (%s), %zu used, %zu tokens, %zu trained", c.rows, data_kind(d->data), c.kept,
        c.tokens, c.supervised);
    if (c.unsupervised)
        add(ret, &at, "; %zu without a trained token dropped", c.unsupervised);
    if (c.truncated)
        add(ret, &at, "; %zu cut to %zu tokens", c.truncated, spec->seq_len);
    if (c.split)
        add(ret, &at, "; %zu longer than %zu tokens split", c.split, spec->seq_len);
    if (c.dropped)
        add(ret, &at, "; %zu longer than %zu tokens dropped", c.dropped, spec->seq_len);
    if (c.lost)
        add(ret, &at, "; %zu tokens lost by that", c.lost);
    if (spec->packing)
        add(ret, &at, "; %zu packs of at most %zu rows, %.1f%% full", data_packs_count(d->packs),
            data_packs_most_rows(d->packs),
            100 * (double)c.tokens / ((double)data_packs_count(d->packs) * (double)spec->seq_len));
}
