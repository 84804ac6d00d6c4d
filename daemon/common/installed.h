/* SPDX-License-Identifier: MIT
 *
 * Where the files of this installation lie, found from the running program (/proc/self/exe), so
 * that no path is compiled in: the same programs work in a build folder, below /usr, /usr/local or
 * any other prefix. Called at start by ringd and by ringctl. Any thread. */
#ifndef DAEMON_INSTALLED_H
#define DAEMON_INSTALLED_H

#include "engine/err.h"

/* The program `name` that belongs to the running one: beside it (a build folder), else in `folder`
 * of the prefix ("libexec/ringd", "sbin"). Where there is none, the path it should have. The caller
 * frees. */
char *installed_program(const char *name, const char *folder);

/* A file of the prefix, as "etc/ringd/ringd.conf": NULL if the running program is not installed, or
 * if the prefix has no such file. The caller frees. */
char *installed_file(const char *path);

/* 0, or −errno with a sentence that names the path and the way out: ringd-stage cannot be started
 * from there. */
int installed_check_stage(const char *path, struct err *err);

#endif
