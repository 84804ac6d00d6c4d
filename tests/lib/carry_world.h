/* SPDX-License-Identifier: MIT
 *
 * Nodes that carry a model, each a process with a folder of its own, and peers of theirs that a
 * test plays by hand: one that gives what it is asked for, or does what it should not. */
#ifndef TESTS_LIB_CARRY_WORLD_H
#define TESTS_LIB_CARRY_WORLD_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/fetch/carry/carry_line.h"
#include "daemon/fetch/manifest.h"

#define CARRY_MODEL "org/name@0123456789abcdef0123456789abcdef01234567"

enum { CARRY_WORLD_BLOCKS = 11 /* of the weights, in all tests */ };

struct carry_world {
    char root[64];
    int dir; /* the folder of models of the node that pulled it */
    char content[DIGEST_HEX];
    struct manifest *manifest;
    uint8_t *list;
    size_t list_n;
    uint8_t *weights; /* the bytes of model.safetensors */
    size_t bytes;
    uint32_t paths;
};
/* A whole model with weights of so many bytes, whose head is longer than a block. */
void carry_world_open(struct carry_world *w, size_t bytes);
void carry_world_close(struct carry_world *w);
/* Nodes that are started from now on do not know which list of its blocks is right. */
void carry_world_forget_list(void);
/* An empty folder of models, of a node with that letter; a descriptor. */
int carry_world_folder(struct carry_world *w, char letter);

struct carry_node {
    pid_t pid;
    int ipc;
};
/* One that wants all of the model. The rate may be 0. dir stays the caller's. */
void carry_node_start(struct carry_node *n, int dir, const char *content, uint64_t patience_us,
                      uint64_t rate);
/* One that wants its outline, and blocks [first, end) of its weights; of none it is the outline
 * alone. */
void carry_node_start_for(struct carry_node *n, int dir, const char *content, uint32_t first, uint32_t end);
/* One that wants what these rows say (carry.h). Takes the reference. */
void carry_node_start_rows(struct carry_node *n, int dir, const char *content, json_t *rows,
                           uint64_t patience_us);
/* It wants these as well, from now on. */
void carry_node_want(struct carry_node *n, uint32_t first, uint32_t end);
/* By SIGKILL. */
void carry_node_kill(struct carry_node *n);
/* Waits for its end, after it was let go. */
void carry_node_stop(struct carry_node *n);
/* The next event of that kind; what else it says goes by. Fails after a minute. The caller owns
 * it. */
json_t *carry_node_hear(struct carry_node *n, const char *kind);
void carry_node_say_room(struct carry_node *n, const char *why);
/* One gives to the other. Returns the number of the lane. */
uint32_t carry_world_connect(struct carry_world *w, struct carry_node *giver, struct carry_node *taker);

/* The other end of a lane of that node. */
struct carry_peer {
    struct carry_line line;
    struct carry_world *world;
    uint32_t path;
    uint32_t give;   /* blocks that it gives before it keeps the rest; UINT32_MAX: all */
    uint32_t given;  /* blocks that have left */
    uint32_t wanted; /* blocks that it was asked for */
    bool is_hub;
    uint32_t runs;         /* of the hub: how often something was wanted */
    uint32_t said;         /* of this block it says a hash that it has not; UINT32_MAX: of none it says one */
    uint8_t *asked;        /* of each block, how often */
    uint8_t has[64];       /* a bit for each block that it says it has; all, unless its test says else */
    const uint8_t *length; /* how long it says that the head is; NULL: the truth */
    uint32_t flipped;      /* the block of which one byte is wrong; UINT32_MAX: none */
    uint32_t kept[64];     /* what it was asked for, and has not given */
    unsigned n_kept;
    bool is_over; /* the node has closed it */
};
void carry_peer_open(struct carry_peer *p, struct carry_world *w, struct carry_node *n, bool is_source);
/* The hub, of which a run is wanted. */
void carry_peer_open_hub(struct carry_peer *p, struct carry_world *w, struct carry_node *n);
void carry_peer_close(struct carry_peer *p);
/* Serves what is wanted of these sources until the node says something of that kind. */
json_t *carry_peers_serve(struct carry_peer *peers, size_t n, struct carry_node *node, const char *kind);
/* Serves until that source was asked for so many blocks. */
void carry_peer_serve_wants(struct carry_peer *p, uint32_t wanted);
/* A frame, as a taker. */
void carry_peer_say(struct carry_peer *p, enum carry_kind kind, uint32_t a, uint32_t b, const void *bytes,
                    size_t n);
/* Waits for a frame: false: the node has closed it. */
bool carry_peer_hear(struct carry_peer *p, struct carry_frame *ret);

#endif
