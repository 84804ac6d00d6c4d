/* SPDX-License-Identifier: MIT
 *
 * The bytes of ringd protocol 1 above Noise and records: what is inside handshake payloads, and the
 * frames a link speaks for itself. PROTOCOL.md has the tables. Decoders consume exactly all bytes,
 * allocate nothing, and leave outputs untouched on failure; encoders return bytes or −errno. */
#ifndef NET_WIRE_H
#define NET_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "link.h"

#define WIRE_PROLOGUE "ringd/1" /* hashed into every handshake, without the NUL */

enum wire_limits {
    WIRE_PREFIX = 2,                   /* u16 before each handshake message */
    WIRE_OPENING = 5,                  /* payload of message 1 */
    WIRE_HELLO_MAX = AUTH_MAX_PAYLOAD, /* room for the TLVs of later versions */
    WIRE_FRAME_HEAD = 8,
    WIRE_FRAGMENT_MAX = 262144, /* frame bytes in one record: SEAL_MAX less the head, rounded to 256 KiB */
    WIRE_BEAT_HEAD = 24,
    WIRE_BEAT_MAX =
        4096, /* the owner's part of a heartbeat: it is sent every second, over the slowest cable */
    WIRE_TEXT_MAX = 512, /* bytes of a goodbye's sentence */
};

/* Payload of message 1. A future version whose message 2 differs can choose by it. */
struct wire_opening {
    uint8_t kind; /* enum link_kind */
    uint16_t proto_min, proto_max;
};
int wire_opening_encode(const struct wire_opening *o, uint8_t *out, size_t cap);
int wire_opening_decode(const uint8_t *data, size_t n, struct wire_opening *ret);

/* UTF-8 without control characters, as all names and texts must be: they end up on terminals. */
bool wire_is_text(const void *text, size_t n);
/* As much of a text of any kind as fits, cut at a character's edge, with '?' for each byte that is
 * not of a printable character: what others say of themselves. `to` has size ≥ 1 bytes. */
void wire_copy_text(char *to, size_t size, const char *from);

/* Payload of messages 2 and 3: TLVs of u16 type, u16 length, value. On −EPROTO *ret_what names the
 * field at fault. */
int wire_hello_encode(const struct link_hello *h, enum link_kind kind, uint8_t *out, size_t cap);
int wire_hello_decode(const uint8_t *data, size_t n, enum link_kind kind, struct link_hello *ret,
                      const char **ret_what);

/* First bytes of every record's plaintext. */
enum wire_type { WIRE_ACCEPT = 2, WIRE_BEAT = 3, WIRE_REKEY = 4, WIRE_BYE = 25 };
struct wire_frame {
    uint8_t type;
    bool last;       /* fragment of its frame */
    uint32_t length; /* of the whole frame, the same in all its fragments */
};
void wire_frame_encode(const struct wire_frame *f, uint8_t out[static WIRE_FRAME_HEAD]);
int wire_frame_decode(const uint8_t *data, size_t n, struct wire_frame *ret);

/* What a frame of a type may look like, and when; NULL for types protocol 1 does not have. */
struct wire_message {
    uint8_t type; /* LINK_FRAME_USER stands for all above it */
    const char *name;
    size_t min, max;
    uint8_t states; /* mask of 1 << enum link_state */
};
const struct wire_message *wire_message_find(uint8_t type);

struct wire_beat {
    uint64_t sent_us;    /* sender's clock */
    uint64_t echo_us;    /* sent_us of the last heartbeat it got, 0 = none */
    uint64_t hold_us;    /* since it got that one */
    const uint8_t *body; /* borrowed: the encoded bytes */
    size_t n;
};
int wire_beat_encode(const struct wire_beat *b, uint8_t *out, size_t cap);
int wire_beat_decode(const uint8_t *data, size_t n, struct wire_beat *ret);

/* One of the three words of a change of keys: see link_rekey.c. */
enum wire_rekey_step { WIRE_REKEY_ASK = 1, WIRE_REKEY_ANSWER = 2, WIRE_REKEY_DONE = 3 };
enum { WIRE_REKEY_MAX = 1 + AUTH_KEY };
struct wire_rekey {
    uint8_t step;
    uint8_t key[AUTH_KEY]; /* X25519, for this change alone; DONE: none */
};
int wire_rekey_encode(const struct wire_rekey *r, uint8_t out[static WIRE_REKEY_MAX]); /* bytes */
int wire_rekey_decode(const uint8_t *data, size_t n, struct wire_rekey *ret);

enum wire_bye_code { /* numbers are never reused */
                     WIRE_BYE_LEFT = 1,
                     WIRE_BYE_REFUSED = 2,
                     WIRE_BYE_VERSION = 3,
                     WIRE_BYE_PROTOCOL = 4,
                     WIRE_BYE_ENDED = 5, /* the sender's daemon ends */
};
struct wire_bye {
    uint8_t code;                 /* enum wire_bye_code; others count as LEFT */
    char text[WIRE_TEXT_MAX + 1]; /* cut to fit on a character's edge; unprintable bytes arrive as '?' */
};
int wire_bye_encode(uint8_t code, const char *text, uint8_t *out, size_t cap);
int wire_bye_decode(const uint8_t *data, size_t n, struct wire_bye *ret);

#endif
