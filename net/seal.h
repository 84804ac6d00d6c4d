/* SPDX-License-Identifier: MIT
 *
 * The record layer of an authenticated connection, one struct per direction. A record is
 *     u32 length (of the ciphertext without tag, little-endian) ‖ ciphertext ‖ tag[16] with the
 *     length as associated data and a 64-bit counter as nonce. The cipher is the one of
 *     ChaCha20-Poly1305 and AES-256-GCM that costs both ends together less; never plaintext. No
 *     sockets here. */
#ifndef NET_SEAL_H
#define NET_SEAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SEAL_HEAD = 4, SEAL_TAG = 16, SEAL_MAX = 262144 + 64 }; /* most plaintext bytes in a record */
#define SEAL_REKEY_BYTES                                                                                     \
    (UINT64_C(64) << 30) /* records' bytes, heads and tags included, after which a key is ratcheted */

enum seal_suite { SEAL_CHACHA20_POLY1305 = 1, SEAL_AES256_GCM = 2 };
uint8_t seal_suites(void); /* bit mask of what this CPU does without tables: 1 << suite */

/* What an end says of its ciphers in the handshake. Costs are picoseconds of a core for a byte that
 * is sealed and opened again; both 0: not measured. */
struct seal_offer {
    uint8_t suites; /* as seal_suites gives them */
    uint16_t chacha_ps, aes_ps;
};
/* Times both ciphers, for a few milliseconds of this thread; up to some 30 on a slow CPU. AES that
 * does not work is not offered. Without memory nothing is measured. */
struct seal_offer seal_measure(void);
/* The same at both ends: of the ciphers that both have, the one with the least sum of costs, as
 * sealing and opening take time from cores that compute; AES-256-GCM at equal sums. Without AES in
 * common it is ChaCha20-Poly1305. */
enum seal_suite seal_choose(const struct seal_offer *mine, const struct seal_offer *theirs);
const char *seal_suite_name(enum seal_suite suite);

struct seal { /* may be copied to another process together with the socket: it is all the state there is */
    uint8_t key[32];
    uint64_t counter; /* of the next record */
    uint64_t bytes;   /* since the last rekey */
    uint32_t suite;
};
void seal_init(struct seal *s, const uint8_t key[static 32], enum seal_suite suite);
void seal_wipe(struct seal *s);

/* Seals n ≤ SEAL_MAX bytes: out gets SEAL_HEAD + n + SEAL_TAG bytes; plain may be at out +
 * SEAL_HEAD (in place). Keys are ratcheted on both sides every 64 GiB, by counting. */
int seal_seal(struct seal *s, uint8_t *out, const uint8_t *plain, size_t n);
/* Takes the turn of the next record, of n plaintext bytes: `ret` seals or opens that one, on any
 * thread and at any time, while `s` goes on with the one after it. To be wiped once used; whoever
 * finds a forgery then sees to it that no more turns are taken. */
int seal_turn(struct seal *s, size_t n, struct seal *ret);
/* The length in a record's head; −EMSGSIZE if it is more than SEAL_MAX. */
int seal_length(const uint8_t head[static SEAL_HEAD], size_t *ret);
/* The next record of this direction has another key; both ends call the same between the same two
 * records. seal_ratchet: one that follows from the present one, so that what was said before cannot
 * be read with a key that is stolen later. seal_mix: one that follows from both, so that nor can be
 * what is said after. −EIO: the state is wiped. */
int seal_ratchet(struct seal *s);
int seal_mix(struct seal *s, const uint8_t secret[static 32]);
/* Opens in place: `data` holds n ciphertext bytes, `tag` 16. −EBADMSG when forged; the connection
 * is then dead (the state is wiped, and a wiped state refuses everything) and the bytes are
 * gone. */
int seal_open(struct seal *s, const uint8_t head[static SEAL_HEAD], uint8_t *data, size_t n,
              const uint8_t *tag);

#endif
