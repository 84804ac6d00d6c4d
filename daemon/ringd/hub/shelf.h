/* SPDX-License-Identifier: MIT
 *
 * The folder of models of this node, looked at and changed beside the loop, for its disk may hang.
 * Loop thread. */
#ifndef DAEMON_SHELF_H
#define DAEMON_SHELF_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct aside;

enum shelf_do {
    SHELF_LIST,   /* all models, in `list` */
    SHELF_HAVE,   /* what is here of those in `asked`: in `list`, an object by name (models_have) */
    SHELF_REMOVE, /* one of them */
    SHELF_PIN,
    SHELF_UNPIN,
    SHELF_USED, /* it is used now */
    SHELF_NAME, /* what ORG/NAME means from now on; with `added` no hub is asked that. −EEXIST: it means
                   something else here */
    SHELF_ROOM, /* for so many bytes: models that nobody has used for longest go, but for the pinned and
                   those in `kept` */
};

struct shelf_order {
    enum shelf_do what;
    const char *dir;       /* borrowed, as all here */
    const char *model;     /* exact; NULL where there is none */
    uint64_t bytes, quota; /* of SHELF_ROOM; quota 0: none but the disk's */
    const json_t *kept;    /* names of models in use; borrowed */
    const json_t *asked;   /* of SHELF_HAVE: exact names */
    bool blocks;           /* and which blocks */
    bool added;            /* of SHELF_NAME: a user gave that name */
};

struct shelf_answer {
    int r;
    char why[512]; /* with r, a sentence */
    json_t *list;  /* owned by the answer: records, what is here, or names of models that went */
};

/* done: once, on the loop; not if the loop ends first. −EAGAIN: too much is under way. */
int shelf_ask(struct aside *aside, const struct shelf_order *order,
              void (*done)(void *owner, const struct shelf_answer *answer), void *owner);

#endif
