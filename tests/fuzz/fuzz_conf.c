/* SPDX-License-Identifier: MIT
 *
 * Any bytes as ringd.conf, and any lines as arguments: refused with a sentence, or values within
 * their ranges. */
#include "tests/fuzz/lib/fuzz.h"

#include "daemon/common/conf.h"
#include "daemon/common/optable.h"

enum { ARGS = 16 };

static void check(struct opts *o)
{
    struct err err = {""};
    if (opts_check(o, &err)) {
        expect(err.text[0] != '\0');
        return;
    }
    for (const struct opt_def *d = conf_table; d->name; d++)
        if (d->type == OPT_INT && (d->min != 0 || d->max != 0) && (d->def || opts_is_set(o, d->name)))
            expect((double)opts_int(o, d->name) >= d->min && (double)opts_int(o, d->name) <= d->max);
}

static void arguments(const uint8_t *data, size_t n)
{
    struct opts *o = opts_new(conf_table);
    char *text = fuzz_text(data, n), *at = text, *argv[ARGS] = {text}, **positional = NULL;
    struct err err = {""};
    bool help = false;
    int argc = 1, npositional = 0;
    while (at && argc < ARGS - 1)
        argv[argc++] = strsep(&at, "\n");
    if (opts_parse(o, argc, argv, &positional, &npositional, &help, &err) == 0)
        check(o);
    else
        expect(err.text[0] != '\0');
    free(positional);
    free(text);
    opts_free(o);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct opts *o = opts_new(conf_table);
    struct err err = {""};
    if (opts_read_ini(o, fuzz_file(data, n), &err) == 0)
        check(o);
    else
        expect(err.text[0] != '\0');
    opts_free(o);
    arguments(data, n);
    return 0;
}
