/* SPDX-License-Identifier: MIT
 *
 * The text part of a model that also sees pictures. Its config is the object "text_config" of
 * config.json, with a few keys that stand outside of it. Its tensors have the names of a text model
 * behind "language_model." or between "model." and the rest. All else belongs to other parts. Pure:
 * any thread. */
#ifndef FILE_TEXT_PART_H
#define FILE_TEXT_PART_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* The config that the text part has as a model of its own: a new object. architecture: what it
 * names then, or NULL. NULL: this is no model with such a part that we know, or there is no
 * memory. */
json_t *text_part_config(const json_t *root, const char *architecture);

/* The same as text, of text of JSON; the caller frees. */
char *text_part_file(const char *json, size_t n, const char *architecture);

/* What the text part calls a tensor that a file calls so, also a factor in an adapter of PEFT;
 * other names stay. A fresh string, or NULL without memory. */
char *text_part_name(const char *name);

/* The other way round, of a module or tensor of the text part: what a file may call it beside its
 * own name. Some names have no other of this way: then its own. way < TEXT_PART_WAYS. A fresh
 * string, or NULL without memory. */
enum { TEXT_PART_WAYS = 2 };
char *text_part_outer_name(const char *name, size_t way);

/* As text_part_name with the keys of an object: itself if all stay, else a new one. The caller owns
 * a reference, and changes nothing of it. NULL without memory. */
json_t *text_part_names(const json_t *of);

/* Does this name belong to another part, which sees? */
bool text_part_is_other(const char *name);

#endif
