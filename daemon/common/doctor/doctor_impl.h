/* SPDX-License-Identifier: MIT
 *
 * Inside the judge: shared by doctor.c (order, words), doctor_net.c (ports, cables, connections)
 * and doctor_node.c (the machine), and by nobody else. */
#ifndef DAEMON_DOCTOR_IMPL_H
#define DAEMON_DOCTOR_IMPL_H

#include <stddef.h>

#include "daemon/common/doctor/doctor.h"

struct judge {
    const json_t *world, *nodes; /* borrowed */
    const json_t *me;            /* the node looked at; borrowed */
    const char *check;           /* its name */
    json_t *findings;            /* owned */
    bool found;                  /* the check has said something */
};

enum severity { DOCTOR_OK, DOCTOR_NOTE, DOCTOR_WARNING, DOCTOR_ERROR };

/* A finding about `me`. `fix` (NULL = none) is taken over and freed. */
void doctor_say(struct judge *j, enum severity severity, const char *thing, char *fix, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

/* A word for a command line: as it is, or in quotes where a shell would read more than a word. */
struct word {
    char text[300];
};
struct word doctor_word(const char *text);

/* Fields of facts; "" or 0 or false where there is none of that type. */
const char *fact_text(const json_t *object, const char *key);
double fact_number(const json_t *object, const char *key);
bool fact_flag(const json_t *object, const char *key);
bool fact_known(const json_t *object, const char *key);

/* One of many: each a function of the node alone, or of the node among the others. */
struct check {
    const char *name;
    const char *ok; /* the sentence when nothing was found */
    bool (*applies)(const struct judge *j);
    void (*look)(struct judge *j);
};
extern const struct check doctor_net_checks[], doctor_node_checks[]; /* end with name == NULL */

#endif
