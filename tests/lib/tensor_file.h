/* SPDX-License-Identifier: MIT
 *
 * A safetensors file of any types, written without the engine's own writer. */
#ifndef TESTS_LIB_TENSOR_FILE_H
#define TESTS_LIB_TENSOR_FILE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* One file in the making. */
struct tensor_file {
    FILE *head, *data;
    char *head_text, *data_text;
    size_t head_n, data_n;
};

void tensor_file_begin(struct tensor_file *f);
/* Writes dir/model.safetensors. */
void tensor_file_end(struct tensor_file *f, const char *dir);
/* shape: "2,64" */
void tensor_file_put(struct tensor_file *f, const char *name, const char *dtype, const char *shape,
                     const void *data, size_t bytes);

#endif
