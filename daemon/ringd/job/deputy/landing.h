/* SPDX-License-Identifier: MIT
 *
 * The result of a job that another node has taken over comes home: its files are fetched, and put
 * where they were asked for when the job was submitted; or into another folder, if they find no
 * room there. Loop thread; disks are written beside it. */
#ifndef DAEMON_LANDING_H
#define DAEMON_LANDING_H

#include <jansson.h>
#include <stdint.h>

struct aside;
struct landing;
struct parts;

struct landing_request { /* borrowed until landing_start returns */
    struct parts *parts;
    struct aside *aside;
    const uint8_t *from; /* [16] the node, */
    uint64_t job;        /* and the job's number there */
    const json_t *files; /* checked (file_set_check), with at least one */
    const char *way;     /* a folder for what is under way, which goes */
    const char *to, *else_to;
    /* Once: where the files lie, and "" or why not in the first folder; or NULL and why not. */
    void (*done)(void *owner, const char *folder, const char *why);
    void *owner;
};
struct landing *landing_start(const struct landing_request *request);
void landing_stop(struct landing *l); /* NULL is fine */

#endif
