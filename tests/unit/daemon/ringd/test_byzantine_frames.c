/* SPDX-License-Identifier: MIT
 *
 * What else others say to a node: records, rosters, claims to join, handshakes, data connections,
 * frames that nobody knows. Forged, cut short, with each bit turned over, of former times, of other
 * clusters. Nothing of the node changes by any of it. A removed node is let go of at once, and what
 * members may say as much of as they like stays within its caps. */
#include "tests/unit/daemon/ringd/byzantine_world.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#include "net/token.h"
#include "tests/lib/roster_count.h"

/* --- records ---------------------------------------------------------------------------------- */

static size_t record_of(struct byz *w, enum byz_mate who, uint8_t body[RECORD_MAX])
{
    struct mate *m = &w->at[who];
    members_touch(m->members);
    records_sign_self(m->records, clock_now());
    return records_write(m->records, m->node_id, clock_now(), body, RECORD_MAX);
}

static void no_record_is_believed_that_its_node_did_not_sign(void **state)
{
    struct byz *w = byz_open(IDLE, JOB_QUEUED);
    static const enum byz_mate no_members[] = {REMOVED, STRANGER};
    uint8_t old[RECORD_MAX], body[RECORD_MAX], other[RECORD_MAX];
    (void)state;
    const size_t n_old = record_of(w, FAR, old);
    byz_say_record(w, FAR, PEER);
    json_t *before = byz_state(w);
    const size_t n = record_of(w, FAR, body);
    for (size_t len = 0; len < n; len++)
        byz_give(w, OTHER, FRAME_RECORD, body, len);
    for (size_t bit = 0; bit < 8 * n; bit++) {
        if (bit / 8 >= AUTH_SIGNATURE + AUTH_KEY && bit / 8 < RECORD_HEAD)
            continue; /* its age is said by who hands it on */
        body[bit / 8] ^= (uint8_t)(1 << bit % 8);
        byz_give(w, OTHER, FRAME_RECORD, body, n);
        body[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    byz_expect_same(json_incref(before), byz_state(w), "records that were changed");
    for (size_t i = 0; i < 2; i++) {
        const size_t size = record_of(w, no_members[i], other);
        byz_give(w, OTHER, FRAME_RECORD, other, size);
        memcpy(other + RECORD_HEAD, body + RECORD_HEAD, n - RECORD_HEAD);
        byz_give(w, OTHER, FRAME_RECORD, other, n);
    }
    const size_t size = record_of(w, OTHER, other);
    memcpy(other + RECORD_HEAD, body + RECORD_HEAD, n - RECORD_HEAD);
    byz_give(w, OTHER, FRAME_RECORD, other, n > size ? n : size);
    for (int i = 0; i < 3; i++)
        byz_give(w, OTHER, FRAME_RECORD, old, n_old);
    byz_expect_same(before, byz_state(w), "records of others, and of former times");
    print_message("records: %zu cases\n", w->cases);
    byz_close(w);
}

/* --- rosters ---------------------------------------------------------------------------------- */

static void no_roster_counts_that_no_authority_signed(void **state)
{
    struct byz *w = byz_open(WORKS, JOB_QUEUED), *others;
    static uint8_t old[ROSTER_BYTES_MAX], now[ROSTER_BYTES_MAX];
    size_t n_old, n, n_other;
    struct err err;
    (void)state;
    const uint8_t *bytes = cluster_roster_bytes(w->node->cluster, &n_old);
    memcpy(old, bytes, n_old);
    assert_int_equal(cluster_promote(w->node->cluster, w->at[FAR].node_id, &err), 0);
    byz_settle(w);
    bytes = cluster_roster_bytes(w->node->cluster, &n);
    memcpy(now, bytes, n);
    json_t *before = byz_state(w);
    for (size_t len = 0; len <= n; len++)
        byz_give(w, OTHER, FRAME_ROSTER, now, len);
    for (size_t bit = 0; bit < 8 * n; bit++) {
        now[bit / 8] ^= (uint8_t)(1 << bit % 8);
        byz_give(w, OTHER, FRAME_ROSTER, now, n);
        now[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    byz_give(w, OTHER, FRAME_ROSTER, old, n_old);
    byz_expect_same(json_incref(before), byz_state(w), "rosters that were changed, or of former times");
    struct spawn stage = the_stage;
    others = byz_open(IDLE, JOB_QUEUED);
    bytes = cluster_roster_bytes(others->node->cluster, &n_other);
    byz_give(w, OTHER, FRAME_ROSTER, bytes, n_other);
    byz_close(others);
    the_stage = stage;
    byz_expect_same(before, byz_state(w), "a roster of another cluster");
    print_message("rosters: %zu cases\n", w->cases);
    byz_close(w);
}

/* --- claims ----------------------------------------------------------------------------------- */

static json_t *hex_of(const uint8_t *data, size_t n)
{
    char text[2 * AUTH_HASH + 1];
    sodium_bin2hex(text, sizeof text, data, n);
    return json_string(text);
}

struct claim {
    uint8_t token[TOKEN_ID], pub[AUTH_KEY], hash[AUTH_HASH], proof[AUTH_SIGNATURE];
    char name[8];
};

static void ask_to_join(struct byz *w, const struct claim *c)
{
    byz_say(w, OTHER,
            json_pack("{s:s s:i s:o s:o s:o s:o s:s}", "kind", "join-ask", "number", 1, "token",
                      hex_of(c->token, sizeof c->token), "pub", hex_of(c->pub, sizeof c->pub), "hash",
                      hex_of(c->hash, sizeof c->hash), "proof", hex_of(c->proof, sizeof c->proof), "name",
                      c->name));
}

static void no_claim_lets_in_that_the_newcomer_did_not_sign(void **state)
{
    struct byz *w = byz_open(IDLE, JOB_QUEUED);
    struct claim c = {.hash = {7}, .name = "newnode"};
    char text[TOKEN_TEXT];
    struct token t;
    struct err err;
    (void)state;
    assert_int_equal(cluster_invite(w->node->cluster, 3600, (uint64_t)time(NULL), text, &err), 0);
    byz_settle(w);
    assert_int_equal(token_read(text, &t), 0);
    memcpy(c.token, t.id, sizeof c.token);
    memcpy(c.pub, w->at[STRANGER].id.pub, sizeof c.pub);
    assert_int_equal(token_prove(&t, &(struct token_claim){c.token, c.pub, c.hash, c.name}, c.proof), 0);
    json_t *before = byz_state(w);
    uint8_t *const bytes = (uint8_t *)&c;
    for (size_t bit = 0; bit < 8 * (sizeof c - 1); bit++) {
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        if (c.name[0] &&
            (uint8_t)c.name[bit / 8 < offsetof(struct claim, name) ? 0
                                                                   : bit / 8 - offsetof(struct claim, name)] <
                0x80)
            ask_to_join(w, &c);
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    byz_expect_same(before, byz_state(w), "claims that were changed");
    const size_t members = roster_active(cluster_roster(w->node->cluster));
    ask_to_join(w, &c);
    assert_int_equal(roster_active(cluster_roster(w->node->cluster)), members + 1);
    print_message("claims: %zu cases\n", w->cases);
    byz_close(w);
}

/* --- frames that mean nothing ----------------------------------------------------------------- */

static void other_frames_mean_nothing(void **state)
{
    struct byz *w = byz_open(WORKS, JOB_QUEUED);
    static uint8_t body[300];
    static const size_t sizes[] = {0, 1, 9, 64, 232, sizeof body};
    (void)state;
    json_t *before = byz_state(w);
    for (unsigned type = LINK_FRAME_USER; type < 256; type++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            randombytes_buf(body, sizeof body);
            byz_give(w, OTHER, (uint8_t)type, body, sizes[i]);
        }
    for (unsigned kind = 0; kind < 256; kind++) { /* of measuring, which nobody asked for */
        body[0] = (uint8_t)kind;
        byz_give(w, OTHER, FRAME_MEASURE, body, 9);
    }
    byz_expect_same(before, byz_state(w), "frames of other types");
    print_message("frames: %zu cases\n", w->cases);
    byz_close(w);
}

/* --- handshakes ------------------------------------------------------------------------------- */

static int listen_here(uint16_t *ret_port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &n), 0);
    *ret_port = ntohs(at.sin_port);
    return fd;
}

/* What a member begins a connection with. */
static void record_opening(struct byz *w, uint8_t *ret, size_t n)
{
    uint16_t port;
    const int listener = listen_here(&port);
    struct link *link;
    uint8_t psk[AUTH_PSK];
    struct link_setup s = byz_link_setup(w, OTHER, psk);
    assert_int_equal(link_dial(&link, &s, "127.0.0.1", port), 0);
    byz_turn(w);
    const int fd = accept(listener, NULL, NULL);
    byz_turn(w);
    assert_int_equal(recv(fd, ret, n, MSG_WAITALL), n);
    close(fd);
    close(listener);
    link_free(link);
}

static void call_with(struct byz *w, const uint8_t *data, size_t n)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons(peers_port(w->node->peers)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    assert_int_equal(send(fd, data, n, MSG_NOSIGNAL), n);
    byz_turn(w);
    close(fd);
    byz_turn(w);
    w->cases++;
}

/* As many calls as the listener takes from strangers at once. */
static void no_opening_leads_anywhere_that_was_changed(void **state)
{
    enum { OPENING = 55 };
    struct byz *w = byz_open(HEADS, JOB_RUNNING);
    uint8_t opening[OPENING];
    (void)state;
    record_opening(w, opening, sizeof opening);
    json_t *before = byz_state(w);
    for (size_t at = 0; at < OPENING; at++) {
        opening[at] ^= (uint8_t)(1 << at % 8);
        call_with(w, opening, sizeof opening);
        opening[at] ^= (uint8_t)(1 << at % 8);
    }
    for (size_t len = 0; len < OPENING; len += 3)
        call_with(w, opening, len);
    for (int i = 0; i < 3; i++)
        call_with(w, opening, sizeof opening);
    call_with(w, (const uint8_t *)"RNGR0123456789abcdef", 20);
    byz_expect_same(before, byz_state(w), "openings that were changed, or recorded");
    print_message("openings: %zu cases\n", w->cases);
    byz_close(w);
}

/* --- data connections ------------------------------------------------------------------------- */

static bool lane_comes_up(struct byz *w, enum byz_mate who, const struct link_hello *hello)
{
    uint8_t psk[AUTH_PSK];
    struct mate caller = w->at[who];
    struct link_setup s = byz_link_setup(w, who, psk);
    const size_t told = the_stage.told;
    s.kind = LINK_DATA;
    s.owner = &caller;
    s.hello.job = hello->job;
    s.hello.from_rank = hello->from_rank;
    s.hello.to_rank = hello->to_rank;
    s.hello.dim = hello->dim;
    memcpy(s.hello.head_id, hello->head_id, sizeof s.hello.head_id);
    memcpy(s.hello.fingerprint, hello->fingerprint, sizeof s.hello.fingerprint);
    caller.is_up = false;
    assert_int_equal(link_dial(&caller.link, &s, "127.0.0.1", peers_port(w->node->peers)), 0);
    for (int i = 0; i < 5000 && caller.link && !caller.is_up; i++)
        event_base_loop(w->node->base, EVLOOP_ONCE);
    byz_turn(w);
    link_free(caller.link);
    w->cases++;
    return the_stage.told > told;
}

static void no_data_connection_is_taken_that_the_job_does_not_have(void **state)
{
    struct byz *w = byz_open(WORKS, JOB_QUEUED);
    const struct job_plan plan = small_plan(JOB_TRAIN, RANKS);
    struct link_hello right = {.job = JOB, .from_rank = 0, .to_rank = 1, .dim = (uint32_t)plan.dim};
    (void)state;
    memcpy(right.head_id, w->at[PEER].node_id, 16);
    snprintf(right.fingerprint, sizeof right.fingerprint, "%s", plan.fingerprint);
    struct link_hello wrong[8];
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        wrong[i] = right;
    wrong[0].job++;
    wrong[1].from_rank = 2;
    wrong[2].from_rank = RANKS;
    wrong[3].to_rank = 0;
    wrong[4].dim++;
    wrong[5].head_id[0] ^= 1;
    wrong[6].fingerprint[0] ^= 1;
    wrong[7].fingerprint[0] = '\0';
    json_t *before = byz_state(w);
    assert_false(lane_comes_up(w, OTHER, &right));
    assert_false(lane_comes_up(w, AUTHOR, &right));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_false(lane_comes_up(w, PEER, &wrong[i]));
    byz_expect_same(before, byz_state(w), "data connections that are not of the job");
    assert_true(lane_comes_up(w, PEER, &right));
    print_message("data connections: %zu cases\n", w->cases);
    byz_close(w);
}

/* --- removal ---------------------------------------------------------------------------------- */

static void remove_mate(struct byz *w, enum byz_mate who)
{
    struct err err = {""};
    if (cluster_remove(w->node->cluster, w->at[who].node_id, &err))
        fail_msg("%s", err.text);
    node_membership_changed(w->node);
}

/* In the same turn of the loop: no connection, no message, no stage in a job with it. */
static void a_removed_node_is_let_go_of_at_once(void **state)
{
    struct byz *w = byz_open(WORKS, JOB_QUEUED);
    (void)state;
    struct session *s = byz_session(w, AUTHOR);
    assert_false(the_stage.is_ending);
    remove_mate(w, AUTHOR);
    assert_int_equal(link_state(s->link), LINK_DOWN);
    assert_true(the_stage.is_ending);
    byz_close(w);

    w = byz_open(WORKS, JOB_QUEUED);
    remove_mate(w, OTHER); /* which is in no job */
    assert_false(the_stage.is_ending);
    remove_mate(w, FAR);
    assert_true(the_stage.is_ending);
    byz_close(w);

    w = byz_open(HEADS, JOB_RUNNING);
    remove_mate(w, FAR);
    const struct job *job = coord_first(w->node->coord);
    assert_int_equal(job->state, JOB_STOPPING);
    assert_string_equal(job->error, "node m1 was removed from the cluster");
    byz_settle(w); /* the file of the cluster is written beside the loop */
    json_t *before = byz_state(w);
    uint8_t *data;
    size_t n;
    json_t *body = byz_of_job("job-stopped", 1, 2, json_object());
    char *text = json_dumps(body, 0);
    json_decref(body);
    assert_int_equal(envelopes_seal(w->at[FAR].envelopes, members_self(w->node->members)->id, text,
                                    strlen(text), &data, &n),
                     0);
    byz_give(w, PEER, FRAME_ROUTED, data, n);
    free(data);
    free(text);
    byz_expect_same(before, byz_state(w), "a word of a node that was just removed");
    byz_close(w);
}

/* --- too much of what may be said ------------------------------------------------------------- */

static size_t resident_kib(void)
{
    size_t kib = 0;
    char line[128];
    FILE *f = fopen("/proc/self/status", "re");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "VmRSS: %zu", &kib) == 1)
            break;
    if (f)
        fclose(f);
    return kib;
}

static json_t *long_line(struct byz *w, size_t i)
{
    json_t *event = json_pack("{s:s s:o}", "ev", "log", "text", json_sprintf("%0*zu", 16000, i));
    const struct job *job = coord_first(w->node->coord);
    return byz_of_job("job-event", 1, job_nodes_find(job_nodes(job), w->at[PEER].node_id),
                      json_pack("{s:o}", "event", event));
}

static json_t *question(size_t which, size_t i)
{
    char token[33];
    snprintf(token, sizeof token, "%032zx", i);
    switch (which) {
    case 0: return json_pack("{s:s s:I}", "kind", "doctor-ask", "round", (json_int_t)i);
    case 1:
        return json_pack("{s:s s:I s:s s:s}", "kind", "api-ask", "round", (json_int_t)i, "method", "GET",
                         "path", "/v1/jobs/1");
    case 2:
        return json_pack("{s:s s:I s:I}", "kind", "jobs-ask", "boot", (json_int_t)0, "since", (json_int_t)0);
    case 3: return json_pack("{s:s s:I s:{}}", "kind", "cost-ask", "round", (json_int_t)i, "question");
    case 4:
        return json_pack("{s:s s:s s:s s:s s:s s:I}", "kind", "relay-open", "token", token, "from", token,
                         "to", token, "head", token, "job", (json_int_t)1);
    default: return json_pack("{s:s s:s}", "kind", "lane-turn", "cable", "0000000000000000");
    }
}

/* A member in a job, and one in none, say as much as they can. */
static void what_is_said_has_a_cap(void **state)
{
    enum { LINES = 4000, QUESTIONS = 3000, MOST_KIB = 48 << 10 };
    struct byz *w = byz_open(HEADS, JOB_RUNNING);
    (void)state;
    const size_t before = resident_kib();
    for (size_t i = 0; i < LINES; i++) {
        byz_say(w, PEER, long_line(w, i));
        if (i % 64 == 0)
            byz_turn(w);
    }
    for (size_t which = 0; which < 6; which++)
        for (size_t i = 0; i < QUESTIONS; i++) {
            byz_say(w, i % 2 ? OTHER : PEER, question(which, i));
            if (i % 64 == 0)
                byz_turn(w);
        }
    for (const struct ledger_queue *q = ledger_first(w->node->ledger); q; q = q->next)
        if (q->bytes > q->cap)
            fail_msg("%s holds %zu bytes, its cap is %zu", q->name, (size_t)q->bytes, q->cap);
    json_decref(byz_ask(w, "/v1/status"));
    const size_t grown = resident_kib() > before ? resident_kib() - before : 0;
    print_message("floods: %zu messages, %zu KiB more\n", w->cases, grown);
#ifndef __SANITIZE_ADDRESS__ /* which holds what was freed for a while */
    assert_true(grown < MOST_KIB);
#endif
    assert_int_equal(coord_first(w->node->coord)->state, JOB_RUNNING);
    byz_close(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_record_is_believed_that_its_node_did_not_sign),
        cmocka_unit_test(no_roster_counts_that_no_authority_signed),
        cmocka_unit_test(no_claim_lets_in_that_the_newcomer_did_not_sign),
        cmocka_unit_test(other_frames_mean_nothing),
        cmocka_unit_test(no_opening_leads_anywhere_that_was_changed),
        cmocka_unit_test(no_data_connection_is_taken_that_the_job_does_not_have),
        cmocka_unit_test(a_removed_node_is_let_go_of_at_once),
        cmocka_unit_test(what_is_said_has_a_cap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
