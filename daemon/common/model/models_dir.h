/* SPDX-License-Identifier: MIT
 *
 * A node's folder of models and adapters. Below it: ORG/NAME@COMMIT, the folder of one, which is
 * there only when at least its outline is: all small files, and the heads of its weights. Files of
 * weights that are here in part have a map beside them (engine/file/have_map.h). Or it is a link to
 * one in Hugging Face's cache. .part/…, a model whose outline is not here, or that is being pulled;
 * .records/….json, what is known of it, and .records/….blocks, the hashes of its blocks
 * (daemon/fetch/manifest.h); .refs/ORG/NAME@REVISION, the commit that a revision was last.
 * ringd-fetch writes all of it, ringd reads, marks and removes. Every file is written by another
 * name, synced and renamed. Any thread; may wait for the disk. */
#ifndef DAEMON_MODELS_DIR_H
#define DAEMON_MODELS_DIR_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/common/model/model_name.h"
#include "engine/err.h"

enum { MODELS_PATH = MODEL_NAME + 32 };

/* Opens the folder, and makes it if need be. The descriptor, or −errno and a sentence. */
int models_dir_open(const char *path, struct err *err);

/* The path below it of a model under way. model: an exact name. */
void models_part_path(char ret[MODELS_PATH], const char *model);
/* Makes the folders on the way to a path. 0 or −errno. */
int models_make_parents(int dir, const char *path);

/* Of the hashes of its blocks. */
void models_blocks_path(char ret[MODELS_PATH], const char *model);
/* A file below the folder, whole or not at all: of two who write it the last one wins. 0 or
 * −errno. */
int models_file_write(int dir, const char *path, const void *bytes, size_t n);
/* With a NUL behind it; the caller frees. NULL: there is none, or it has more than `most` bytes. */
void *models_file_read(int dir, const char *path, size_t most, size_t *ret_n);

/* The commit of a revision, as it was when it was last asked for. */
bool models_ref_read(int dir, const struct model_name *name, char ret[MODEL_COMMIT + 1]);
int models_ref_write(int dir, const struct model_name *name, const char *commit);

bool models_has_name(int dir, const char *model);   /* its outline is here */
bool models_is_adapter(int dir, const char *model); /* the outline of an adapter, not of a model */
bool models_is_whole(int dir, const char *model);
/* NULL: there is none. The caller owns it. */
json_t *models_record_read(int dir, const char *model);
int models_record_write(int dir, const char *model, const json_t *record);

/* All that is there, whole or in part: an array of records, each with "model", "whole", "named"
 * (its outline is here), "meant" (by its name without a commit), "adapter" (it is no model), "here"
 * (bytes of its files that are), and "on_disk", bytes that removing it would free. The caller owns
 * it. */
json_t *models_list(int dir);
/* What is here of one model whose outline is: {"content", "whole", "here", "bytes" of all files,
 * "blocks"}; NULL: not even that. blocks: of a model that is here in part, also the blocks that are
 * here, as [file, first, the one after the last], …; of so many runs at most that they fit into a
 * message: what is left out counts as not here. The caller owns it. */
json_t *models_have(int dir, const char *model, bool blocks);
/* A model, and what there is of it. 0, −ENOENT or −errno. */
int models_remove(int dir, const char *model);

#endif
