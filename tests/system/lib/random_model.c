/* SPDX-License-Identifier: MIT
 *
 * `random_model DIR`: writes random weights for the config.json that lies there, each expert by
 * itself, and a layer behind the last where the config has one: a model of which no recorded one
 * exists. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "tests/lib/near.h"
#include "tests/lib/tiny.h"

int main(int argc, char **argv)
{
    struct err err;
    struct config c;
    if (argc != 2 || config_read(&c, argv[1], &err)) {
        fprintf(stderr, "%s\n", argc == 2 ? err.text : "usage: random_model DIR");
        return 1;
    }
    model_write_ahead(argv[1], &c);
    return 0;
}
