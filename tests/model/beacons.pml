/* SPDX-License-Identifier: MIT
 *
 * What a cable between two honest nodes has to fear from beacons (docs/PROTOCOL.md, Beacons). Somebody on the same
 * switch has a network key: a removed member the one before, with MEMBER a hostile member the present one. It hears
 * everything, opens what its key opens, and sends what it likes in anybody's name.
 *
 * A node believes what a beacon says of a boot if that names a late beacon of its own: this proves that its sender
 * opens our beacons. The claim: the cable of two nodes that are well stays up.
 *
 * BEFORE: a beacon of the former generation is opened, and answered in the former generation for the sake of a member
 * that was away; and beacons alone replace a boot. */
#define PRESENT 1
#define FORMER 0
#ifdef MEMBER
#define THEIRS PRESENT
#else
#define THEIRS FORMER
#endif
#define LIFE 1    /* the boot of the other node */
#define FALSE_LIFE 2

byte our_seq = 1;
bool someone_is_behind;   /* beacons go out under the former key too */
byte believed_boot = LIFE;
bool link_up = true;      /* the control connection of the cable: its handshake has proved who is there */
bool cable_up = true;
byte seq_seen;            /* by the intruder: 0 = none that it could open */

chan heard = [2] of { byte, byte, byte }; /* generation, boot, seq of ours that it names */

inline take(generation, boot, named) {
    if
#ifndef BEFORE
    :: generation != PRESENT -> skip /* opened by no key that counts */
#else
    :: generation == FORMER && named == 0 -> someone_is_behind = true
#endif
    :: else ->
        if
        :: named != our_seq -> skip /* proves nothing */
#ifndef BEFORE
        :: named == our_seq && link_up -> skip /* a connection knows better than a beacon */
#endif
        :: else ->
            if
            :: boot != believed_boot -> cable_up = false /* the cables of the old life end */
            :: else -> skip
            fi
        fi
    fi
}

active proctype Node() {
    byte generation, boot, named;
    do
    :: atomic { our_seq < 6 -> our_seq++; /* a beacon goes out */
        if
        :: THEIRS == PRESENT -> seq_seen = our_seq
        :: someone_is_behind -> seq_seen = our_seq
        :: else -> skip
        fi }
    :: atomic { heard ? generation, boot, named -> take(generation, boot, named); generation = 0; boot = 0; named = 0 }
    od
}

active proctype Other() {
    do
    :: atomic { nfull(heard) -> heard ! PRESENT, LIFE, our_seq }
    od
}

active proctype Intruder() {
    byte boot, named;
    do
    :: atomic { nfull(heard) ->
        if :: boot = LIFE :: boot = FALSE_LIFE fi;
        if :: named = 0 :: named = seq_seen fi;
        heard ! THEIRS, boot, named;
        boot = 0; named = 0 }
    od
}

active proctype Claim() {
    assert(cable_up)
}
