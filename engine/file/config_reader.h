/* SPDX-License-Identifier: MIT
 *
 * Inside of config.c, config_family.c and config_rope.c: typed access to a JSON object that
 * collects what is wrong instead of stopping at the first fault. Nobody else includes this. */
#ifndef FILE_CONFIG_READER_H
#define FILE_CONFIG_READER_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct config_reader {
    const json_t *root; /* borrowed: the whole config */
    char text[440];     /* complaints, separated by "; ", with room in struct err for a path before them */
    size_t used;
    size_t count;  /* of complaints */
    size_t hidden; /* of these, how many found no room */
};

void config_complain(struct config_reader *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* JSON null counts as absent everywhere, as in transformers. */
const json_t *config_lookup(const json_t *obj, const char *key);

/* A whole number of 1 … max. Absent: `fallback`, or a complaint where that is 0. After a complaint
 * 0 is returned. */
size_t config_size(struct config_reader *r, const json_t *obj, const char *key, size_t fallback, size_t max);
/* A number of low … high. Absent: `fallback`, or a complaint where that is NAN. After a complaint
 * NAN is returned. */
double config_real(struct config_reader *r, const json_t *obj, const char *key, double fallback, double low,
                   double high);
bool config_bool(struct config_reader *r, const json_t *obj, const char *key, bool fallback);
/* Absent: `fallback`, which may be NULL. After a complaint NULL is returned. */
const char *config_string(struct config_reader *r, const json_t *obj, const char *key, const char *fallback);

#endif
