/* SPDX-License-Identifier: MIT
 *
 * Who becomes a member, and who learns the next network key (docs/PROTOCOL.md, Enrolment). An authority has made one
 * token for an honest joiner. A member is hostile: it knows what members know of the token, sees every claim that comes
 * through it, makes keys of its own, and asks the authority for whatever it can put together. Later it is removed,
 * which makes a new network key.
 *
 * The claim: only the joiner's key is let in, under the joiner's name; the removed member learns no new key; and a node
 * that was removed does not come back with its old token. Signatures are perfect: without the token's secret a claim
 * can be repeated, and not changed.
 *
 * BEFORE: a member's word is enough, and nothing is signed with the token. */
#define JOINER 0
#define MADE 1    /* a key that the hostile member has made */
#define HOSTILE 2 /* its own */
#define NAME_OF_JOINER 0
#define OTHER_NAME 1

mtype = { STRANGER, ACTIVE, REMOVED };
mtype status[3] = STRANGER;
byte name[3];
bool spent, was_removed;
byte spent_by;
bool claim_seen; /* (JOINER, NAME_OF_JOINER), signed with the token: the only one that its holder ever makes */
byte generation;
bool intruder_knows[2];

/* The authority is asked for a certificate. */
inline ask(key, text, is_signed) {
    if
#ifndef BEFORE
    :: !(is_signed) -> skip
#endif
    :: spent && spent_by != key -> skip
    :: status[key] == REMOVED -> skip
    :: else ->
        spent = true; spent_by = key;
        status[key] = ACTIVE; name[key] = text;
        if
        :: key == MADE -> intruder_knows[generation] = true /* the roster has a box for each active key */
        :: else -> skip
        fi
    fi
}

active proctype Joiner() {
    do
    :: atomic { claim_seen = true }                     /* through the hostile member */
    :: atomic { ask(JOINER, NAME_OF_JOINER, true) }     /* through another */
    od
}

active proctype Intruder() {
    byte key, text;
    status[HOSTILE] = ACTIVE; intruder_knows[0] = true;
    do
    :: atomic {
        if :: key = JOINER :: key = MADE fi;
        if :: text = NAME_OF_JOINER :: text = OTHER_NAME fi;
        ask(key, text, claim_seen && key == JOINER && text == NAME_OF_JOINER);
        key = 0; text = 0 }
    od
}

/* The user. */
active proctype Remove() {
    if
    :: atomic { status[JOINER] == ACTIVE -> status[JOINER] = REMOVED; was_removed = true; generation = 1 }
    :: atomic { status[HOSTILE] == ACTIVE -> status[HOSTILE] = REMOVED; generation = 1 }
    fi;
    if
    :: generation == 1 && status[MADE] == ACTIVE -> intruder_knows[1] = true
    :: generation == 1 && status[HOSTILE] == ACTIVE -> intruder_knows[1] = true
    :: else -> skip
    fi
}

active proctype Claim() {
    assert(status[MADE] != ACTIVE);
    assert(status[JOINER] != ACTIVE || name[JOINER] == NAME_OF_JOINER);
    assert(!was_removed || status[JOINER] == REMOVED);
    assert(!intruder_knows[1] || status[HOSTILE] == ACTIVE)
}
