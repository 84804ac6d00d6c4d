/* SPDX-License-Identifier: MIT
 *
 * Which files of a folder that a job names are read: those named as models, adapters and data are.
 * A stage in its cell gets these, and ringctl opens these for it. Any thread. */
#ifndef DAEMON_FOLDER_FILES_H
#define DAEMON_FOLDER_FILES_H

#include <stdbool.h>

/* By its name: .json, .jsonl, .jinja or .safetensors, and not hidden. */
bool folder_file_is_read(const char *name);
/* `real`, where a file of the folder really lies: in it, or where a link in it may lead. Both are
 * real paths. Models are downloaded, and may bring links to all that lies on the disk. Those to
 * weights and rows are harmless, and those into another model, or from a snapshot of Hugging Face's
 * cache to its blobs, are usual. */
bool folder_file_may_lie(const char *real, const char *folder);

#endif
