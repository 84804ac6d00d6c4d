/* SPDX-License-Identifier: MIT
 *
 * Who heads a job (docs/ARCHITECTURE.md, "A head that is lost for good"). Node 0 is its head. Its deputies keep dossiers,
 * and may take it over: by themselves with more than half of the nodes of the last attempt that they know of, or by
 * hand, with all others, when somebody says so who has seen that the head is off, and says it on one node. Nodes reach each other if they
 * are on the same side; sides change, and nodes are switched off and on, as often as TROUBLE says.
 *
 * The claim: no two nodes head the job at a time; once one has taken it over, the old head runs no attempt any more.
 * A ring takes all nodes that the head reaches, or all but one that is drained.
 *
 * BEFORE=1: the head goes on with however few nodes. BEFORE=2: who took part in a later attempt promises all the same.
 * BEFORE=3: a head that was started again does not ask. BEFORE=4: a promise does not shut the head out. */
#ifndef NODES
#define NODES 3
#endif
#ifndef TROUBLE
#define TROUBLE 4
#endif
#ifndef BEFORE
#define BEFORE 0
#endif
#ifndef ATTEMPTS
#define ATTEMPTS 2
#endif
#define NOBODY 15
#define BIT(i) (1 << (i))
#define HAS(set, i) ((set) >> (i) & 1)
#define REACHES(i, j) (up[i] && up[j] && side[i] == side[j])
#if NODES == 3
#define COUNT(set) (HAS(set, 0) + HAS(set, 1) + HAS(set, 2))
#else
#define COUNT(set) (HAS(set, 0) + HAS(set, 1) + HAS(set, 2) + HAS(set, 3))
#endif

bool up[NODES], side[NODES];
byte troubles, i;

/* What each node has written down: the latest attempt, who may begin one, its deputy. */
byte attempt[NODES], heads[NODES], deputy[NODES];
bool promised[NODES];

/* The old head. */
byte now, nodes, acked, ran, rank1; /* the attempt, its nodes and those that are ready; those of the last that ran */
byte deputies;                      /* that may have a dossier: on its disk */
bool opens, runs, asks, moved;

/* Dossiers, and claims to take over. */
byte known[NODES], its[NODES]; /* the attempt, 0: there is none; its nodes */
byte yes[NODES];               /* who has promised; 0: no claim */
bool by_hand[NODES];
byte said = NOBODY;            /* where somebody has said so */
byte taken = NOBODY;           /* who has taken the job over */

/* An attempt goes on only as long as all of its nodes are there. */
inline look() {
    i = 0;
    do
    :: i < NODES && HAS(nodes, i) && !REACHES(0, i) -> opens = false; runs = false; i++
    :: i < NODES && !(HAS(nodes, i) && !REACHES(0, i)) -> i++
    :: i == NODES -> break
    od;
    i = 0
}

/* A node that reaches the head does without its claim, and those that it reaches hear of that. */
inline void_claim(d) {
    yes[d] = 0;
    i = 0;
    do
    :: i < NODES -> if
                    :: promised[i] && heads[i] == d && (i == d || REACHES(d, i)) -> promised[i] = false; heads[i] = 0
                    :: else -> skip
                    fi;
                    i++
    :: i == NODES -> break
    od;
    i = 0
}

/* Which nodes the next attempt has; the one that is drained, or 0: none. */
inline choose(drained) {
    i = 0;
    nodes = 0;
    do
    :: i < NODES -> if
                    :: REACHES(0, i) && (i == 0 || i != drained) -> nodes = nodes | BIT(i)
                    :: else -> skip
                    fi;
                    i++
    :: i == NODES -> break
    od;
    i = 0
}

/* May the head go on with these? */
bool clear;
inline recall_is_done() {
    clear = true;
    i = 1;
    do
    :: i < NODES -> if
                    :: !HAS(deputies, i) -> skip
                    :: HAS(deputies, i) && !asks && HAS(nodes, i) -> skip
                    :: HAS(deputies, i) && (asks || !HAS(nodes, i)) ->
                        if
                        :: REACHES(0, i) -> clear = false /* it is asked first */
                        :: !REACHES(0, i) && asks && BEFORE != 3 -> clear = false
                        :: !REACHES(0, i) && (!asks || BEFORE == 3) ->
                            if
                            :: BEFORE == 1 || 2 * COUNT(nodes & ran) >= COUNT(ran) -> skip
                            :: else -> clear = false
                            fi
                        fi
                    fi;
                    i++
    :: i == NODES -> break
    od;
    i = 0
}

active proctype World() {
    byte d, x;
    i = 0;
    do
    :: i < NODES -> up[i] = true; i++
    :: i == NODES -> break
    od;
    i = 0;
    do
    /* --- trouble --- */
    :: atomic { troubles < TROUBLE -> select(x : 0 .. NODES - 1); troubles++;
        if
        :: up[x] -> side[x] = !side[x]
        :: up[x] -> up[x] = false;
            if
            :: x == 0 -> opens = false; runs = false
            :: else -> yes[x] = 0 /* what is on its disk stays */
            fi
        :: !up[x] -> up[x] = true;
            if
            :: x == 0 && deputies -> asks = true
            :: else -> skip
            fi
        fi;
        look() }
    /* --- the old head: another attempt --- */
    :: atomic { up[0] && !moved && !opens && !runs && now < ATTEMPTS -> select(x : 0 .. NODES - 1); choose(x);
        recall_is_done();
        if
        :: clear && nodes != 1 -> now++; opens = true; acked = 1;
            if
            :: HAS(nodes, 1) -> rank1 = 1
            :: HAS(nodes, 2) -> rank1 = 2
            :: NODES > 3 && HAS(nodes, 3) -> rank1 = 3
            fi
        :: clear && nodes == 1 -> now++; runs = true; ran = 1; rank1 = 0; asks = false; assert(taken == NOBODY)
        :: else -> nodes = 0
        fi }
    /* A node writes down that it takes part, and is ready; or it has promised the job. */
    :: atomic { opens -> select(x : 1 .. NODES - 1);
        if
        :: HAS(nodes, x) && !HAS(acked, x) ->
            if
            :: heads[x] == 0 || BEFORE == 4 -> heads[x] = 0; promised[x] = false; attempt[x] = now; deputy[x] = rank1;
                acked = acked | BIT(x)
            :: else -> opens = false
            fi
        :: else -> skip
        fi }
    :: atomic { opens && acked == nodes -> opens = false; runs = true; ran = nodes; asks = false;
        deputies = deputies | BIT(rank1); assert(taken == NOBODY) }
    :: atomic { runs && nodes != 1 && known[rank1] != now -> known[rank1] = now; its[rank1] = nodes }
    :: atomic { runs -> runs = false } /* a stage process ends */
    /* It asks a deputy that it reaches. */
    :: atomic { up[0] && !moved && deputies -> select(x : 1 .. NODES - 1);
        if
        :: HAS(deputies, x) && REACHES(0, x) && !(runs && x == rank1) ->
            if
            :: taken == x -> moved = true; opens = false; runs = false
            :: else -> void_claim(x); known[x] = 0; deputies = deputies & ~BIT(x)
            fi
        :: else -> skip
        fi }
    /* --- deputies --- */
    :: atomic { select(d : 1 .. NODES - 1);
        if
        :: up[d] && known[d] && !yes[d] && taken != d && !REACHES(d, 0) && (heads[d] == 0 || heads[d] == d) &&
           deputy[d] == d && attempt[d] <= known[d] && (COUNT(its[d]) > 2 || (!up[0] && (said == NOBODY || said == d))) ->
            if
            :: COUNT(its[d]) > 2 -> by_hand[d] = false
            :: !up[0] && (said == NOBODY || said == d) -> by_hand[d] = true; said = d
            fi;
            heads[d] = d; promised[d] = true; yes[d] = BIT(d)
        :: yes[d] && REACHES(d, 0) && taken != d -> void_claim(d)
        :: yes[d] && taken != d -> yes[d] = 0 /* too few have answered; some word of it is lost */
        :: else -> skip
        fi }
    :: atomic { select(d : 1 .. NODES - 1); select(x : 1 .. NODES - 1);
        if
        :: yes[d] && x != d && HAS(its[d], x) && REACHES(d, x) && !REACHES(x, 0) && deputy[x] == d &&
           (heads[x] == 0 || heads[x] == d) && (BEFORE == 2 || attempt[x] <= known[d]) ->
            heads[x] = d; promised[x] = true; yes[d] = yes[d] | BIT(x)
        :: else -> skip
        fi }
    :: atomic { select(d : 1 .. NODES - 1);
        if
        :: yes[d] && taken != d && !REACHES(d, 0) &&
           ((by_hand[d] && !up[0] && (yes[d] | 1) == (its[d] | 1)) || (!by_hand[d] && 2 * COUNT(yes[d]) > COUNT(its[d]))) ->
            assert(taken == NOBODY && !runs);
            taken = d; promised[d] = false
        :: else -> skip
        fi }
    od
}
