/* SPDX-License-Identifier: MIT
 *
 * Inside enrolment: shared by enrol.c (the member's end), enrol_join.c (the joiner's) and
 * enrol_rejoin.c (a member's that was away), and by nobody else. Loop thread. */
#ifndef DAEMON_ENROL_IMPL_H
#define DAEMON_ENROL_IMPL_H

#include <sys/queue.h>

#include "daemon/ringd/cluster/enrol.h"
#include "net/clock.h"

enum {
    ENROL_FRAME_GRANT = LINK_FRAME_USER + 8,  /* member → joiner: certificate, cluster key, roster */
    ENROL_FRAME_ROSTER = LINK_FRAME_USER + 9, /* between members, one of which was away */
    ENROL_FRAME_PROOF = LINK_FRAME_USER + 10, /* joiner → member: that it has the token's secret */
};
/* A link key's tag is the first and the token's id, or the second; generations are below. */
#define ENROL_TAG_TOKEN (UINT64_C(1) << 32)
#define ENROL_TAG_RETURN (UINT64_C(1) << 33)
enum {
    ENROL_GRANT_HEAD = CERT_BYTES + CERT_CLUSTER_KEY,
    ENROL_GRANT_MAX = ENROL_GRANT_HEAD + ROSTER_BYTES_MAX
};
enum { ENROL_SEARCH_MS = 30000, ENROL_ANSWER_MS = 10000, ENROL_FOREIGN_MAX = TOKENS_MAX };

/* A join link being served: from its being up to its end. */
struct serving {
    LIST_ENTRY(serving) next;
    struct enrol *e;     /* borrowed: owner */
    struct link *link;   /* borrowed: peers */
    struct timer *timer; /* owned */
    uint64_t number;     /* of the question to the authority */
    bool asked, granted; /* the joiner has proved that it has the token; it was let in */
};
/* An authority has let a node in: the answer goes out once that is on the disk. */
struct granting {
    LIST_ENTRY(granting) next;
    struct enrol *e;       /* borrowed: owner */
    struct serving *s;     /* borrowed: who asked here; NULL: a member asked for another node */
    uint8_t from[CERT_ID]; /* that member */
    json_t *number;        /* owned: of its question */
    uint8_t *frame;        /* owned: the answer, with the roster that lets the node in: */
    size_t n;              /* when it goes out, a newer one may be in force that is not on the disk */
};
/* A token made by another authority. */
struct foreign {
    uint8_t issuer[16];
    struct token_entry token;
};
struct joining {
    struct enrol *e; /* borrowed: owner */
    bool active, searching;
    bool is_in; /* and this node's disk is waited for */
    struct token token;
    struct token_keys keys;
    char name[CERT_NAME], why[512];
    struct link *link; /* owned */
    bool is_proved;    /* the member at its other end is in the token's cluster */
    void (*done)(void *arg, const char *error);
    void *arg;
};
struct returning {
    struct link *link;      /* owned */
    struct timer *deadline; /* owned */
    bool asked;
    uint8_t nonce[8];                    /* of the last question */
    struct instant ask_again, try_again; /* not before */
    uint64_t pause_us;
    char words[256]; /* why it was refused */
};
struct enrol {
    struct enrol_setup setup;
    LIST_HEAD(, serving) servings;
    LIST_HEAD(, granting) grantings;
    uint64_t last_number;
    size_t n_foreign;
    struct foreign foreign[ENROL_FOREIGN_MAX];
    struct joining joining;
    struct timer *deadline; /* owned: of the join under way */
    struct returning returning;
};

/* What a joiner signs: the whole decision follows from it. */
struct application {
    uint8_t token[TOKEN_ID], pub[AUTH_KEY], hash[AUTH_HASH], proof[AUTH_SIGNATURE];
    char name[CERT_NAME];
};
static inline struct token_claim enrol_claim(const struct application *a)
{
    return (struct token_claim){.token = a->token, .pub = a->pub, .hash = a->hash, .name = a->name};
}

/* A hello whose sender was vetted before. */
static inline int enrol_hello_vetted(void *owner, struct link *link, const struct link_hello *peer, char *why,
                                     size_t size)
{
    (void)owner;
    (void)link;
    (void)peer;
    (void)why;
    (void)size;
    return 0;
}

/* enrol_join.c */
void enrol_join_init(struct enrol *e);
void enrol_join_done(struct enrol *e);

/* enrol_rejoin.c */
void enrol_return_init(struct enrol *e);
void enrol_return_done(struct enrol *e);
bool enrol_is_return(uint64_t tag);
void enrol_return_key(const struct enrol *e, struct link_key *ret); /* of a member */
bool enrol_return_answers(const struct enrol *e, const uint8_t question[static TOKEN_TAG],
                          uint8_t ret[static TOKEN_TAG]);
bool enrol_return_is_answer(const struct enrol *e, const uint8_t answer[static TOKEN_TAG]);
void enrol_return_serve(struct enrol *e, struct link *link);
void enrol_return_frame(struct enrol *e, struct link *link, const uint8_t *body, size_t n);

#endif
