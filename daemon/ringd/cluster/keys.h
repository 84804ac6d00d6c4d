/* SPDX-License-Identifier: MIT
 *
 * What ringd asks of the keeper of its secret keys (daemon/keys): a function for each request of
 * keys_proto.h. Answers come before a call returns; what takes them there and back is given.
 * Loop thread, and main's before there is a loop. */
#ifndef DAEMON_KEYS_H
#define DAEMON_KEYS_H

#include <sys/types.h>

#include "daemon/common/keys_proto.h"
#include "engine/err.h"

struct keys;

struct keys_setup {
    /* The answer's size, or −errno: the keeper is gone, and will not answer any more. */
    ssize_t (*ask)(void *owner, const uint8_t *request, size_t n, uint8_t *answer, size_t cap);
    void *owner; /* borrowed */
};

/* Asks who the node is. −errno and the sentence of the keeper, as that its file is damaged. */
int keys_open(struct keys **ret, const struct keys_setup *setup, struct err *err);
void keys_close(struct keys *k);

/* Lasts as long as the keys. */
const struct auth_identity *keys_identity(const struct keys *k);

/* These answer with what is in force from then on; its roster lasts until the next call. −EPERM:
 * not while this node is a member of another cluster, or not without the authority's key;
 * −ESTALE: an older roster; −EBADMSG, −EPROTO: forged, or nothing this version knows. */
int keys_take(struct keys *k, const uint8_t cluster[static CERT_CLUSTER_KEY], const uint8_t *roster, size_t n,
              struct keys_trust *ret);
/* −EINVAL: a name. */
int keys_found(struct keys *k, const char *cluster, const char *node, uint64_t now_s, struct keys_trust *ret);
/* −ENOSPC: ROSTER_MAX active nodes; −EINVAL: the name; −EIO: the public key is no key. */
int keys_admit(struct keys *k, const uint8_t pub[static AUTH_KEY], const char *name, uint64_t now_s,
               struct keys_trust *ret);
/* −ENOENT: no active node of that id. Of these the first changes nothing. */
int keys_certify(struct keys *k, const uint8_t id[static CERT_ID], uint64_t now_s, struct keys_trust *ret);
int keys_remove(struct keys *k, const uint8_t id[static CERT_ID], struct keys_trust *ret);
int keys_promote(struct keys *k, const uint8_t id[static CERT_ID], struct keys_trust *ret);

#endif
