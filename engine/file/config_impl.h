/* SPDX-License-Identifier: MIT
 *
 * Inside of config.c: what config_family.c and config_rope.c read for it. Nobody else includes
 * this. */
#ifndef FILE_CONFIG_IMPL_H
#define FILE_CONFIG_IMPL_H

#include "file/config.h"
#include "file/config_reader.h"

/* config_family.c: everything but eos ids from a second file. */
void config_read_family(struct config_reader *r, struct config *c);
/* One id, a list of them, or nothing: JSON null, or an absent key, leave the list as it is. */
void config_read_eos(struct config_reader *r, const json_t *v, struct config *c);

/* config_rope.c: fills in the rope_ fields from rope_parameters, rope_scaling and rope_theta. */
void config_read_rope(struct config_reader *r, struct config *c);

#endif
