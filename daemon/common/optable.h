/* SPDX-License-Identifier: MIT
 *
 * One table per program or subcommand: name, type, range, default, help. From it come the flag
 * parser, --help and the INI reader, and from --help the man page (docs/make-man), so they cannot
 * disagree. */
#ifndef DAEMON_OPTABLE_H
#define DAEMON_OPTABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "engine/err.h"

enum opt_type {
    OPT_FLAG,
    OPT_INT,
    OPT_FLOAT,
    OPT_STRING,
    OPT_PATH,
    OPT_CHOICE,
    OPT_LIST /* repeatable string */
};

struct opt_def {
    const char *name; /* "max-grad-norm": --max-grad-norm, INI key max-grad-norm, JSON key max_grad_norm */
    enum opt_type type;
    const char *placeholder; /* "N", "DIR", or the choices "naive|gpipe|1f1b"; FILE among them is any path */
    const char *def;         /* default as text, NULL = unset */
    double min, max;         /* INT, FLOAT; both 0 = no limit */
    const char *help;
    char short_name; /* 'k' for -k, 0 = none */
    bool required;
};

struct opts;                                       /* values for a table */
struct opts *opts_new(const struct opt_def *defs); /* table ends with name == NULL */
void opts_free(struct opts *o);
/* argv[0] is skipped; positional arguments (all after "--" too) come back in order. --help sets
 * *ret_help. Errors name the option, the value and what is allowed; an unknown option proposes the
 * nearest. */
int opts_parse(struct opts *o, int argc, char **argv, char ***ret_positional, int *ret_npositional,
               bool *ret_help, struct err *err);
int opts_read_ini(struct opts *o, const char *path,
                  struct err *err); /* [ringd] section or none; names file and line */
int opts_set(struct opts *o, const char *name, const char *value, struct err *err);
int opts_check(const struct opts *o, struct err *err); /* required ones present? all missing named */

/* Two sets of the same table: is that option the same in both, given or by default? */
bool opts_same(const struct opts *a, const struct opts *b, const char *name);
/* Exchanges the option's values; what came from `from` lives as long as `to` now. */
void opts_take(struct opts *to, struct opts *from, const char *name);

bool opts_is_set(const struct opts *o, const char *name); /* given by the user, not by default */
bool opts_flag(const struct opts *o, const char *name);
int64_t opts_int(const struct opts *o, const char *name);
double opts_float(const struct opts *o, const char *name);
const char *opts_str(const struct opts *o, const char *name); /* NULL if unset */
size_t opts_list(const struct opts *o, const char *name, const char *const **ret);

void opts_help(const struct opt_def *defs, FILE *to); /* aligned, wrapped at 100 columns */

/* Was `name` meant? Where one mistake is made for every three or four letters; of two letters no
 * one is near another. A mistake is a letter too many, too few or wrong, or two that changed places
 * (optimal string alignment). ret_distance: how many. */
bool opts_is_near(const char *wrong, const char *name, size_t *ret_distance);

#endif
