/* SPDX-License-Identifier: MIT
 *
 * Every kind of message, by everybody who may not send it, at every moment of a node. In another's
 * name, for another job, out of turn, unasked, repeated, cut short, with a bit turned over. Nothing
 * of the node changes by any of it, and it answers. A new row of message_table.c is tried by
 * itself; whether it answers a question is said below. */
#include "tests/unit/daemon/ringd/byzantine_try.h"

/* Which kinds are answers: nobody has asked here, so they mean nothing even of a neighbour. */
static const enum {
    UNSAID,
    ASKS,
    ANSWERS
} nature[MESSAGE_KINDS] = {
    [MESSAGE_TOKENS] = ASKS,           [MESSAGE_JOIN_ASK] = ASKS,          [MESSAGE_JOIN_ANSWER] = ANSWERS,
    [MESSAGE_DOCTOR_ASK] = ASKS,       [MESSAGE_DOCTOR_FACTS] = ANSWERS,   [MESSAGE_DOCTOR_READING] = ANSWERS,
    [MESSAGE_JOBS_ASK] = ASKS,         [MESSAGE_JOBS_TOLD] = ANSWERS,      [MESSAGE_API_ASK] = ASKS,
    [MESSAGE_API_MORE] = ANSWERS,      [MESSAGE_API_TOLD] = ANSWERS,       [MESSAGE_JOB_WANTED] = ASKS,
    [MESSAGE_JOB_PLANNED] = ASKS,      [MESSAGE_JOB_OPEN] = ASKS,          [MESSAGE_JOB_READY] = ASKS,
    [MESSAGE_JOB_CONNECT] = ASKS,      [MESSAGE_JOB_CONNECTED] = ASKS,     [MESSAGE_JOB_RUN] = ASKS,
    [MESSAGE_JOB_TURN] = ASKS,         [MESSAGE_JOB_EVENT] = ASKS,         [MESSAGE_JOB_RELAYED] = ASKS,
    [MESSAGE_JOB_DONE] = ASKS,         [MESSAGE_JOB_FAILED] = ASKS,        [MESSAGE_JOB_STOP] = ASKS,
    [MESSAGE_JOB_STOPPED] = ASKS,      [MESSAGE_LANE_TURN] = ASKS,         [MESSAGE_MODEL_WANT] = ASKS,
    [MESSAGE_MODEL_TOLD] = ANSWERS,    [MESSAGE_MODEL_GIVE] = ASKS,        [MESSAGE_MODEL_DENIED] = ANSWERS,
    [MESSAGE_COST_ASK] = ASKS,         [MESSAGE_COST_HEARD] = ANSWERS,     [MESSAGE_COST_TOLD] = ANSWERS,
    [MESSAGE_RELAY_OPEN] = ASKS,       [MESSAGE_RELAY_READY] = ANSWERS,    [MESSAGE_RELAY_REFUSED] = ANSWERS,
    [MESSAGE_JOB_LEAVE] = ASKS,        [MESSAGE_JOB_LEFT] = ASKS,          [MESSAGE_DRAIN] = ASKS,
    [MESSAGE_CLIENT_KEYS] = ASKS,      [MESSAGE_DOSSIER_NEWS] = ASKS,      [MESSAGE_DOSSIER_NOTED] = ANSWERS,
    [MESSAGE_DOSSIER_RECALL] = ASKS,   [MESSAGE_DOSSIER_HELD] = ANSWERS,   [MESSAGE_HEAD_ASK] = ASKS,
    [MESSAGE_HEAD_ANSWER] = ANSWERS,   [MESSAGE_CLAIM_ASK] = ASKS,         [MESSAGE_CLAIM_ANSWER] = ANSWERS,
    [MESSAGE_CLAIM_RELEASE] = ANSWERS, [MESSAGE_JOB_ADOPTED] = ASKS,       [MESSAGE_JOB_LANDED] = ANSWERS,
    [MESSAGE_ADAPTER_OFFERED] = ASKS,  [MESSAGE_ADAPTER_ANSWER] = ANSWERS, [MESSAGE_PART_ASK] = ASKS,
    [MESSAGE_PART_TOLD] = ANSWERS,     [MESSAGE_JOB_KEPT] = ASKS,          [MESSAGE_MODEL_CENSUS] = ASKS,
    [MESSAGE_MODEL_COUNTED] = ANSWERS, [MESSAGE_MODEL_PUSH] = ASKS,        [MESSAGE_MODEL_PUSHED] = ANSWERS,
};

/* --- messages --------------------------------------------------------------------------------- */

static size_t seal(struct envelopes *e, const struct byz *w, json_t *body, uint8_t **ret)
{
    char *text = json_dumps(body, JSON_COMPACT);
    size_t n;
    assert_int_equal(envelopes_seal(e, members_self(w->node->members)->id, text, strlen(text), ret, &n), 0);
    free(text);
    json_decref(body);
    return n;
}

/* An envelope through a neighbour; takes over `body`. */
static void say_sealed(struct byz *w, enum byz_mate author, enum byz_mate by, json_t *body)
{
    uint8_t *data;
    const size_t n = seal(w->at[author].envelopes, w, body, &data);
    byz_give(w, by, FRAME_ROUTED, data, n);
    free(data);
}

/* The same, straight where there is a connection. */
static void say(struct byz *w, enum byz_mate who, json_t *body)
{
    if (byz_session(w, who))
        byz_say(w, who, json_incref(body));
    say_sealed(w, who, PEER, body);
}

/* --- origins ---------------------------------------------------------------------------------- */

/* Signed by one in the name of another, with whose key in it. */
static void forge(struct byz *w, const struct member *as, enum byz_mate signer, const uint8_t *shown,
                  enum message_kind kind)
{
    json_t *record = member_encode(members_self(w->node->members));
    struct members *mask = members_new(as);
    uint8_t *data;
    members_learn(mask, record, (struct instant){1});
    struct envelopes *e = envelopes_new(&w->at[signer].id, mask);
    if (memcmp(as->id, members_self(w->node->members)->id, 16) != 0) {
        const size_t n = seal(e, w, byz_body(w, kind, byz_rank(w, PEER)), &data);
        memcpy(data + 1 + AUTH_SIGNATURE, shown, AUTH_KEY);
        byz_give(w, OTHER, FRAME_ROUTED, data, n);
        byz_give(w, PEER, FRAME_ROUTED, data, n);
        free(data);
    }
    envelopes_free(e);
    members_free(mask);
    json_decref(record);
}

/* The node's own envelope to PEER, sent back to it; and one that claims to come from it. */
static void speak_as_itself(struct byz *w, enum message_kind kind)
{
    uint8_t *data;
    size_t n;
    json_t *body = byz_body(w, kind, 0);
    char *text = json_dumps(body, JSON_COMPACT);
    json_decref(body);
    assert_int_equal(envelopes_seal(w->at[OTHER].envelopes, members_self(w->node->members)->id, text,
                                    strlen(text), &data, &n),
                     0);
    memcpy(data + 121, members_self(w->node->members)->id, 16);
    byz_give(w, OTHER, FRAME_ROUTED, data, n);
    memcpy(data + 1 + AUTH_SIGNATURE, keys_identity(w->node->keys)->sign_pub, AUTH_KEY);
    byz_give(w, OTHER, FRAME_ROUTED, data, n);
    free(data);
    free(text);
}

static void try_forgeries(struct byz *w, enum message_kind kind)
{
    const struct member *peer = members_self(w->at[PEER].members),
                        *other = members_self(w->at[OTHER].members),
                        *removed = members_self(w->at[REMOVED].members),
                        *stranger = members_self(w->at[STRANGER].members);
    const struct {
        const struct member *as;
        enum byz_mate signer, shows;
    } all[] = {{peer, OTHER, OTHER},     {peer, OTHER, PEER},
               {peer, REMOVED, REMOVED}, {peer, STRANGER, STRANGER},
               {peer, STRANGER, PEER},   {removed, REMOVED, REMOVED},
               {removed, OTHER, OTHER},  {stranger, STRANGER, STRANGER},
               {stranger, OTHER, OTHER}, {other, REMOVED, OTHER}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        forge(w, all[i].as, all[i].signer, w->at[all[i].shows].id.sign_pub, kind);
    speak_as_itself(w, kind);
}

/* Signed by PEER, but for another life of the node, or in an earlier one of its own. */
static void live(struct byz *w, enum message_kind kind, int64_t to_boot, int64_t from_boot)
{
    struct member self = *members_self(w->at[PEER].members), to = *members_self(w->node->members);
    uint8_t *data;
    self.boot += (uint64_t)from_boot;
    to.boot += (uint64_t)to_boot;
    struct members *mask = members_new(&self);
    json_t *record = member_encode(&to);
    members_learn(mask, record, (struct instant){1});
    struct envelopes *e = envelopes_new(&w->at[PEER].id, mask);
    const size_t n = seal(e, w, byz_body(w, kind, byz_rank(w, PEER)), &data);
    byz_give(w, OTHER, FRAME_ROUTED, data, n);
    byz_give(w, PEER, FRAME_ROUTED, data, n);
    free(data);
    envelopes_free(e);
    members_free(mask);
    json_decref(record);
}

static void try_other_lives(struct byz *w, enum message_kind kind)
{
    live(w, kind, -1, 1);
    live(w, kind, 1, 1);
    live(w, kind, 0, -1);
}

/* Members who are not what the row asks for. */
static void try_wrong_members(struct byz *w, enum message_kind kind)
{
    const enum message_sender sender = message_row(kind)->sender;
    if (sender == MESSAGE_FROM_AUTHORITY) {
        say(w, PEER, byz_body(w, kind, 0));
        say(w, FAR, byz_body(w, kind, 0));
        say(w, OTHER, byz_body(w, kind, 0));
    } else if (sender == MESSAGE_FROM_HEAD) {
        for (enum byz_mate m = w->role == WORKS ? FAR : PEER; m <= OTHER; m++)
            say(w, m, byz_body(w, kind, 1));
    } else if (sender == MESSAGE_FROM_RANK) {
        for (enum byz_mate m = PEER; m <= OTHER; m++)
            for (size_t rank = 0; rank < RANKS; rank++)
                if (w->role != HEADS || rank != byz_rank(w, m))
                    say(w, m, byz_body(w, kind, rank));
    } else if (nature[kind] == ANSWERS) {
        for (enum byz_mate m = PEER; m <= OTHER; m++)
            say(w, m, byz_body(w, kind, 0));
    }
}

static void try_wrong_jobs(struct byz *w, enum message_kind kind)
{
    const enum message_sender sender = message_row(kind)->sender;
    const json_int_t own = w->role == WORKS ? JOB : 1, others[] = {0, own - 1, own + 1, INT64_MAX};
    for (size_t i = 0; (sender == MESSAGE_FROM_HEAD || sender == MESSAGE_FROM_RANK) && i < 4; i++) {
        json_t *body = byz_body(w, kind, byz_rank(w, PEER));
        json_object_set_new(body, "job", json_integer(others[i] == own ? 99 : others[i]));
        say(w, PEER, body);
    }
}

/* A rank's word in a state of the job that has no use for it. */
static void try_out_of_turn(struct byz *w, enum message_kind kind)
{
    static const enum message_kind kinds[JOB_WORDS] = {
        [JOB_WORD_PLANNED] = MESSAGE_JOB_PLANNED,     [JOB_WORD_READY] = MESSAGE_JOB_READY,
        [JOB_WORD_CONNECTED] = MESSAGE_JOB_CONNECTED, [JOB_WORD_EVENT] = MESSAGE_JOB_EVENT,
        [JOB_WORD_RELAYED] = MESSAGE_JOB_RELAYED,     [JOB_WORD_FAILED] = MESSAGE_JOB_FAILED,
        [JOB_WORD_DONE] = MESSAGE_JOB_DONE,           [JOB_WORD_STOPPED] = MESSAGE_JOB_STOPPED};
    const struct job *job = coord_first(w->node->coord);
    for (enum job_word word = 0; job && word < JOB_WORDS; word++)
        if (kinds[word] == kind && !job_phase_hears(job->state, word))
            say(w, PEER, byz_body(w, kind, byz_rank(w, PEER)));
    if (job && kind == MESSAGE_JOB_PLANNED) /* which only rank 0 says */
        say(w, PEER, byz_body(w, kind, byz_rank(w, PEER)));
}

static void try_always(const char *name, byz_attempt *try)
{
    size_t cases = 0;
    for (size_t m = 0; m < BYZ_MOMENTS; m++)
        cases += byz_try_at(&byz_moments[m], name, try);
    print_message("%s: %zu cases\n", name, cases);
}

static void nobody_speaks_for_another(void **state)
{
    (void)state;
    try_always("in another's name", try_forgeries);
}

static void no_other_life_counts(void **state)
{
    (void)state;
    try_always("of another life", try_other_lives);
}

static void members_say_what_is_theirs_to_say(void **state)
{
    (void)state;
    try_always("of a member who may not", try_wrong_members);
}

static void no_other_job_is_meant(void **state)
{
    (void)state;
    try_always("of another job", try_wrong_jobs);
}

static void words_come_in_their_turn(void **state)
{
    (void)state;
    try_always("out of turn", try_out_of_turn);
}

/* --- what is changed on the way --------------------------------------------------------------- */

/* Of an envelope that would count, and of the frame of a neighbour that would not. */
static void try_changed(struct byz *w, enum message_kind kind)
{
    const bool counts = message_row(kind)->sender < MESSAGE_FROM_AUTHORITY && nature[kind] == ASKS;
    uint8_t *data;
    const size_t n = seal(w->at[PEER].envelopes, w, byz_body(w, kind, byz_rank(w, PEER)), &data);
    json_t *body = byz_body(w, kind, byz_rank(w, OTHER));
    char *text = json_dumps(body, JSON_COMPACT);
    json_decref(body);
    for (size_t len = 0; len < n; len++)
        byz_give(w, OTHER, FRAME_ROUTED, data, len);
    for (size_t bit = 8; bit < 8 * n; bit++) { /* of the first byte nodes between take one off */
        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        byz_give(w, OTHER, FRAME_ROUTED, data, n);
        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    for (size_t bit = 0; !counts && bit < 8 * strlen(text); bit++) {
        byz_give(w, OTHER, FRAME_MESSAGE, text, bit / 8);
        text[bit / 8] ^= (char)(1 << bit % 8);
        byz_give(w, OTHER, FRAME_MESSAGE, text, strlen(text));
        text[bit / 8] ^= (char)(1 << bit % 8);
    }
    free(text);
    free(data);
}

static void no_bit_may_be_another(void **state)
{
    (void)state;
    const size_t cases = byz_try_at(&byz_moments[1], "changed", try_changed) +
                         byz_try_at(&byz_moments[5], "changed", try_changed);
    print_message("changed: %zu cases\n", cases);
}

/* --- what was said before --------------------------------------------------------------------- */

struct recording {
    uint8_t *data[MESSAGE_KINDS]; /* owned */
    size_t n[MESSAGE_KINDS];
};

static void play(struct byz *w, const struct recording *r, const char *what)
{
    static const enum byz_mate through[] = {PEER, OTHER, AUTHOR};
    json_t *before = byz_state(w);
    for (enum message_kind kind = 0; kind < MESSAGE_KINDS; kind++) {
        for (size_t i = 0; i < sizeof through / sizeof *through; i++)
            byz_give(w, through[i], FRAME_ROUTED, r->data[kind], r->n[kind]);
        char text[120];
        snprintf(text, sizeof text, "%s said again %s", message_row(kind)->name, what);
        byz_expect_same(json_incref(before), byz_state(w), text);
    }
    json_decref(before);
}

static void come_back(struct byz *w)
{
    for (enum byz_mate m = PEER; m <= OTHER; m++) {
        link_free(w->at[m].link);
        w->at[m].link = NULL;
    }
    for (int i = 0; i < 1000 && (byz_session(w, PEER) || byz_session(w, OTHER) || byz_session(w, AUTHOR));
         i++)
        event_base_loop(w->node->base, EVLOOP_ONCE);
    byz_connect(w, PEER);
    byz_connect(w, AUTHOR);
    byz_connect(w, OTHER);
    byz_turn(w);
}

/* Each kind once by who may say it, and something may come of it; then again and again, by anybody,
 * over new connections, and to the next life of the node. */
static void nothing_counts_twice(void **state)
{
    size_t cases = 0;
    (void)state;
    for (size_t m = 0; m < BYZ_MOMENTS - 1; m++) {
        struct byz *w = byz_open(byz_moments[m].role, byz_moments[m].state);
        struct recording r;
        for (enum message_kind kind = 0; kind < MESSAGE_KINDS; kind++) {
            const enum byz_mate who = message_row(kind)->sender == MESSAGE_FROM_AUTHORITY ? AUTHOR : PEER;
            r.n[kind] = seal(w->at[who].envelopes, w, byz_body(w, kind, byz_rank(w, PEER)), &r.data[kind]);
            byz_give(w, who, FRAME_ROUTED, r.data[kind], r.n[kind]);
        }
        byz_turn(w);
        play(w, &r, "over the same connection");
        come_back(w);
        play(w, &r, "over a new connection");
        byz_close_node(w);
        the_stage = (struct spawn){.ops = NULL};
        byz_open_node(w);
        byz_connect(w, PEER);
        byz_connect(w, AUTHOR);
        byz_connect(w, OTHER);
        json_decref(byz_state(w)); /* the jobs of the former life are closed by now */
        play(w, &r, "to a later life");
        for (enum message_kind kind = 0; kind < MESSAGE_KINDS; kind++)
            free(r.data[kind]);
        cases += w->cases;
        byz_close(w);
    }
    print_message("repeated: %zu cases\n", cases);
}

static void each_kind_is_known_here(void **state)
{
    (void)state;
    for (enum message_kind kind = 0; kind < MESSAGE_KINDS; kind++)
        if (!nature[kind])
            fail_msg("%s is a new kind: say above whether it answers a question", message_row(kind)->name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_kind_is_known_here), cmocka_unit_test(nobody_speaks_for_another),
        cmocka_unit_test(no_other_life_counts),    cmocka_unit_test(members_say_what_is_theirs_to_say),
        cmocka_unit_test(no_other_job_is_meant),   cmocka_unit_test(words_come_in_their_turn),
        cmocka_unit_test(no_bit_may_be_another),   cmocka_unit_test(nothing_counts_twice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
