/* SPDX-License-Identifier: MIT
 *
 * Files from one node to another, part by part: "part-ask" and "part-told" (PROTOCOL.md §6). Who
 * fetches asks for the next part when it has put the last on its disk, so one part of a file is
 * under way at a time, and control connections stay free for others. Disks are read and written
 * beside the loop. Loop thread. */
#ifndef DAEMON_PARTS_H
#define DAEMON_PARTS_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

struct aside;
struct event_base;
struct file_set;
struct parts;

struct parts_setup { /* the pointers are borrowed */
    struct event_base *base;
    struct aside *aside;
    /* Takes the reference. Not 0: it was not sent. */
    int (*send)(void *owner, const uint8_t to[16], json_t *message);
    /* The files that this node hands to that one for the job of this number here; borrowed; NULL:
     * none. */
    struct file_set *(*files)(void *owner, const uint8_t to[16], uint64_t job);
    void *owner;
};
struct parts *parts_new(const struct parts_setup *setup);
void parts_free(struct parts *p); /* before aside_free; nobody is called back any more */

/* Messages, whose fields have been checked. */
void parts_take_ask(struct parts *p, const uint8_t from[16], const json_t *body);
void parts_take_told(struct parts *p, const uint8_t from[16], const json_t *body);

/* Fetches all files of a checked list (file_set_check), which has some, from that node, for its
 * job of that number, into a folder that is made: file i gets the name i, and the time it was
 * changed. `done` comes once, NULL or with why not: a sentence; not after fetch_stop. */
struct part_fetch;
struct part_fetch *fetch_start(struct parts *p, const uint8_t from[16], uint64_t job, const json_t *list,
                               const char *folder, void (*done)(void *owner, const char *why), void *owner);
void fetch_stop(struct part_fetch *f); /* NULL is fine */

#endif
