/* SPDX-License-Identifier: MIT
 *
 * What a compiled form is made of: for the files of this folder. */
#ifndef TEXT_FORM_IMPL_H
#define TEXT_FORM_IMPL_H

#include <stdbool.h>
#include <stdint.h>

#include "text/form/form.h"

/* One step of a rule. Number 0 is the end of every rule. */
enum form_op_kind {
    FORM_END,   /* back to the caller */
    FORM_BYTES, /* other edges from number `next` on, in the order of their bytes: takes one byte */
    FORM_SPLIT, /* goes on at `next` and at `other` */
    FORM_CALL   /* the rule that begins at `other`; afterwards `next` */
};
struct form_op {
    uint32_t kind, next, other;
};

struct form_edge {
    uint8_t from, to; /* bytes; edges of one op do not overlap */
    uint32_t next;    /* op */
};

struct form {
    struct form_op *ops;     /* owned [nops] */
    struct form_edge *edges; /* owned [nedges] */
    bool *alive;             /* owned [nops]: from here some text leads to the end of the rule */
    size_t nops, nedges;
    uint32_t start;
    uint8_t class_of[256]; /* bytes that no edge tells apart are of one class, */
    uint8_t example[256];  /* such as this one, */
    size_t nclasses;       /* and there are so many */
};

#endif
