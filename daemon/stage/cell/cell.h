/* SPDX-License-Identifier: MIT
 *
 * The cell of a stage process: what is left to it once it parses what comes from outside. Landlock
 * lets it read and write the files of its job and no other, and a filter of system calls leaves it
 * what computing takes: no new process, no new socket, no signal to anybody. It cannot be left
 * again. Called by stage_cell.c after the daemon's first messages, on the only thread there is
 * then.
 *
 * Files: a folder that is read gives its files that are named as models, adapters and data are
 * (.json, .jsonl, .jinja, .safetensors), and nothing of folders in it. Its links may lead into
 * another model, to weights and rows, and to the blobs of Hugging Face's cache. Nothing in the
 * daemon's state directory is given, but for its results and models. */
#ifndef DAEMON_CELL_H
#define DAEMON_CELL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/err.h"

enum cell_use {
    CELL_MODEL,  /* a folder with a config.json: what another node names is a model or nothing */
    CELL_READ,   /* a file, or a folder */
    CELL_WRITE,  /* a folder, made if it is not there, and all in it */
    CELL_APPEND, /* a file, made if it is not there */
};

enum { CELL_PATHS_MAX = 16 };

struct cell_rules {
    char *state; /* owned: the daemon's state directory, or NULL */
    struct {
        enum cell_use use;
        char option[24]; /* for sentences: "--data" */
        char *path;      /* owned */
    } at[CELL_PATHS_MAX];
    size_t n;
    unsigned kept;          /* so many descriptors behind IPC_PROGRESS_FD stay open, beside what was lent */
    bool must_not_make;     /* only a plan is wanted: nothing is made for CELL_WRITE and CELL_APPEND */
    unsigned landlock_most; /* the newest ABI of Landlock that is used; 0: whichever there is */
};

/* Both texts are copied; a path of NULL is nothing. −ENOMEM, −E2BIG. */
int cell_add(struct cell_rules *rules, enum cell_use use, const char *option, const char *path,
             struct err *err);
void cell_rules_done(struct cell_rules *rules);

/* From here on the process has what the rules say. What a kernel lacks is left out; `ringctl
 * doctor` names it (cell_kernel.h). A path that cannot be opened gets no rule: the code that wants
 * it says why. −EPERM and a sentence for one that leads to what is the daemon's own. After a
 * failure the process has to end. */
int cell_enter(const struct cell_rules *rules, struct err *err);

/* Caps the address space at what is mapped now, what the plan takes, the files of the model that
 * may be mapped, and room for stacks and arenas of the threads. Another plan of the same process
 * may raise that, to the first cap with `most` in place of `planned`. */
void cell_limit_memory(uint64_t planned, uint64_t mapped, unsigned threads, uint64_t most);

#endif
