/* SPDX-License-Identifier: MIT
 *
 * A shell script in place of ringd-stage. `say JSON` in it sends the daemon a message of at most
 * 255 bytes. */
#ifndef TESTS_UNIT_STAGE_SCRIPT_H
#define TESTS_UNIT_STAGE_SCRIPT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <sys/stat.h>

static inline void stage_script_write(const char *path, const char *lines)
{
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    fprintf(f,
            "#!/bin/sh\n"
            "say() { printf \"\\\\$(printf %%o ${#1})\\\\0\\\\0\\\\0%%s\" \"$1\" >&3; }\n"
            "%s\n",
            lines);
    fclose(f);
    assert_int_equal(chmod(path, 0755), 0);
}

#endif
