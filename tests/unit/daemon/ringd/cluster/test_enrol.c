/* SPDX-License-Identifier: MIT
 *
 * Joining, as it should go and as attackers would have it: wrong, expired and spent tokens, tokens
 * that somebody else tries, members of other clusters, replayed and relayed handshakes. */
#include "tests/unit/daemon/ringd/cluster/trust_world.h"

#include "net/wire.h"

enum { ATTEMPTS = 10 };

/* --- as it should go --- */

static void test_join(void **state)
{
    struct world *w = *state;
    struct end *anna = &w->ends[0], *bert = &w->ends[1];
    char token[TOKEN_TEXT];
    struct cluster_net_key a, b;

    init(anna);
    invite(anna, 60, token);
    assert_string_equal(join(bert, token, anna->port), "");
    assert_int_equal(cluster_state(bert->cluster), CLUSTER_MEMBER);
    assert_string_equal(cluster_cert(bert->cluster)->name, "bert");
    assert_false(cluster_is_authority(bert->cluster));
    assert_int_equal(roster_active(cluster_roster(bert->cluster)), 2);
    cluster_net_keys(anna->cluster, &a, 1);
    cluster_net_keys(bert->cluster, &b, 1);
    assert_memory_equal(&a, &b, sizeof a);
    assert_int_equal(bert->changes, 1);
    run_until_downs(anna, 1);
    assert_false(token_is_live(&cluster_tokens(anna->cluster)->at[0], w->now_s));
}

static void test_refused_before_anything_is_sent(void **state)
{
    struct world *w = *state;
    struct end *anna = &w->ends[0], *bert = &w->ends[1];
    char token[TOKEN_TEXT];
    struct err err;

    init(anna);
    invite(anna, 60, token);
    assert_int_equal(enrol_join(bert->enrol, "hello", "b", NULL, 0, on_joined, bert, &err), -EINVAL);
    expect_text(err.text, "68 characters");
    token[30] = token[30] == 'X' ? 'Y' : 'X';
    assert_int_equal(enrol_join(bert->enrol, token, "b", NULL, 0, on_joined, bert, &err), -EBADMSG);
    expect_text(err.text, "typing error");
    init(&w->ends[2]);
    invite(anna, 60, token);
    assert_int_equal(enrol_join(w->ends[2].enrol, token, "c", NULL, 0, on_joined, &w->ends[2], &err),
                     -EEXIST);
    expect_text(err.text, "in cluster home already");
    assert_int_equal(enrol_join(anna->enrol, token, "a", NULL, 0, on_joined, anna, &err), -EEXIST);
    expect_text(err.text, "this node made the token");
    assert_int_equal(enrol_join(bert->enrol, token, "b", NULL, 0, on_joined, bert, &err), 0);
    assert_int_equal(enrol_join(bert->enrol, token, "b", NULL, 0, on_joined, bert, &err), -EALREADY);
    assert_int_equal(anna->accepted, 0);
}

static void test_through_a_member_that_is_no_authority(void **state)
{
    struct world *w = *state;
    struct end *anna = &w->ends[0], *bert = &w->ends[1], *cleo = &w->ends[2];
    char token[TOKEN_TEXT];

    init(anna);
    admit(anna, bert);
    invite(anna, 60, token);
    assert_string_equal(join(cleo, token, bert->port), "");
    settle(w);
    assert_int_equal(roster_active(cluster_roster(anna->cluster)), 3);
    assert_int_equal(roster_active(cluster_roster(bert->cluster)), 3);
    expect_text(join(&w->ends[3], token, bert->port), "let a node in already");
}

static void test_the_authority_is_away(void **state)
{
    struct world *w = *state;
    struct end *anna = &w->ends[0], *bert = &w->ends[1], *cleo = &w->ends[2];
    char token[TOKEN_TEXT];

    init(anna);
    admit(anna, bert);
    invite(anna, 60, token);
    anna->deaf = true;
    expect_text(join(cleo, token, bert->port), "anna, which made this token, cannot be reached");
    anna->deaf = false;
    assert_string_equal(join(cleo, token, bert->port), "");
}

static void test_found_by_discovery(void **state)
{
    struct world *w = *state;
    struct end *anna = &w->ends[0], *bert = &w->ends[1], *cleo = &w->ends[2], *dora = &w->ends[3];
    uint8_t question[TOKEN_TAG], answer[TOKEN_TAG];
    char token[TOKEN_TEXT];
    struct err err;

    init(anna);
    init(dora);
    admit(anna, bert);
    assert_false(enrol_question(cleo->enrol, question));
    invite(anna, 60, token);
    must(enrol_join(cleo->enrol, token, "cleo", NULL, 0, on_joined, cleo, &err), &err);
    assert_true(enrol_question(cleo->enrol, question));
    assert_false(enrol_answers(dora->enrol, question, answer)); /* another cluster: silence */
    assert_true(enrol_answers(bert->enrol, question, answer));  /* any member, not the authority alone */
    assert_true(enrol_is_answer(cleo->enrol, answer));
    assert_false(enrol_is_answer(cleo->enrol, question)); /* whoever only heard the question */
    enrol_try(cleo->enrol, "127.0.0.1", dora->port);      /* a wrong address costs a handshake */
    run_until_downs(dora, 1);
    settle(w);
    enrol_try(cleo->enrol, "127.0.0.1", bert->port);
    run_until(w, &cleo->over);
    assert_true(cleo->joined);
    settle(w);
    assert_true(
        enrol_answers(bert->enrol, question, answer)); /* spent: whoever comes with it now is told so */
}

/* A newcomer that searches hears at once that its token is worth nothing; what another member may
 * do better ends no search. */
static void test_a_dead_token_ends_the_search(void **state)
{
    struct world *w = *state;
    struct end *anna = &w->ends[0], *bert = &w->ends[1], *cleo = &w->ends[2];
    uint8_t question[TOKEN_TAG], answer[TOKEN_TAG];
    char token[TOKEN_TEXT];
    struct err err;

    init(anna);
    admit(anna, bert);
    invite(anna, 60, token);
    must(enrol_join(cleo->enrol, token, "cleo", NULL, 0, on_joined, cleo, &err), &err);
    assert_true(enrol_question(cleo->enrol, question));
    anna->deaf = true; /* bert cannot ask her */
    enrol_try(cleo->enrol, "127.0.0.1", bert->port);
    run_until_downs(bert, bert->downs + 1);
    assert_false(cleo->over);
    anna->deaf = false;
    w->now_s += 60;
    settle(w);
    assert_true(enrol_answers(bert->enrol, question, answer));
    assert_true(enrol_is_answer(cleo->enrol, answer));
    enrol_try(cleo->enrol, "127.0.0.1", bert->port);
    run_until_downs(bert, bert->downs + 1);
    settle(w);
    assert_true(cleo->over && !cleo->joined);
    expect_text(cleo->error, "this token has expired");
}

static void test_nobody_answers(void **state)
{
    struct world *w = *state;
    char token[TOKEN_TEXT];

    init(&w->ends[0]);
    invite(&w->ends[0], 60, token);
    expect_text(join(&w->ends[1], token, 0), "no member that knows this token was found on any cable");
}

static void test_a_lost_answer_can_be_asked_for_again(void **state)
{
    struct world *w = *state;
    struct end *anna = &w->ends[0], *bert = &w->ends[1];
    char token[TOKEN_TEXT], path[128];

    init(anna);
    invite(anna, 60, token);
    assert_string_equal(join(bert, token, anna->port), "");
    end_shut(bert); /* as if the power had gone before it was on disk */
    snprintf(path, sizeof path, "%s/cluster", bert->dir);
    unlink(path);
    end_open(bert);
    assert_int_equal(cluster_state(bert->cluster), CLUSTER_NONE);
    assert_string_equal(join(bert, token, anna->port), "");
    assert_int_equal(roster_active(cluster_roster(anna->cluster)), 2);
}

/* --- tokens that do not count --- */

static void test_a_token_works_once(void **state)
{
    struct world *w = *state;
    struct end *anna = &w->ends[0];
    char token[TOKEN_TEXT];

    init(anna);
    invite(anna, 60, token);
    assert_string_equal(join(&w->ends[1], token, anna->port), "");
    expect_text(join(&w->ends[2], token, anna->port), "let a node in already");
    assert_int_equal(cluster_state(w->ends[2].cluster), CLUSTER_NONE);
    assert_int_equal(roster_active(cluster_roster(anna->cluster)), 2);
}

static void test_an_expired_token(void **state)
{
    struct world *w = *state;
    struct end *anna = &w->ends[0], *bert = &w->ends[1];
    char token[TOKEN_TEXT];

    init(anna);
    invite(anna, 60, token);
    w->now_s += 60;
    expect_text(join(bert, token, anna->port), "this token has expired");
    w->now_s += TOKEN_AFTERLIFE_S;
    invite(anna, 60, token);
    assert_int_equal(cluster_tokens(anna->cluster)->n, 1); /* the old one is forgotten */
    assert_string_equal(join(bert, token, anna->port), "");
}

static void test_a_wrong_secret_meets_silence(void **state)
{
    struct world *w = *state;
    struct end *anna = &w->ends[0], *bert = &w->ends[1];
    char text[TOKEN_TEXT];
    struct token t;

    init(anna);
    invite(anna, 60, text);
    assert_int_equal(token_read(text, &t), 0);
    t.secret[0] ^= 1;
    token_write(&t, text); /* with its checksum right */
    expect_text(join(bert, text, anna->port), "does not know this token");
    run_until_downs(anna, 1);
    assert_int_equal(anna->hellos, 0);
}

/* Whoever fits the token's handshake and turns away after message 2, here and at another member, as
 * often as he likes: the invite stays good. */
static void test_attempts_do_not_wear_a_token_out(void **state)
{
    struct world *w = *state;
    struct end *anna = &w->ends[0], *bert = &w->ends[1], *cleo = &w->ends[2];
    char text[TOKEN_TEXT], other[TOKEN_TEXT];
    struct token t;

    init(anna);
    admit(anna, bert);
    invite(anna, 60, text);
    assert_int_equal(token_read(text, &t), 0);
    t.cluster_id[0] ^= 1;
    token_write(&t, other);
    for (unsigned i = 0; i < 2 * ATTEMPTS; i++) {
        expect_text(join(cleo, other, i % 2 ? anna->port : bert->port), "not in the cluster of this token");
        settle(w);
    }
    run_until_downs(bert, ATTEMPTS);
    assert_string_equal(join(cleo, text, bert->port), "");
}

/* --- members that are none --- */

/* Somebody saw the token and plays the member with it, in a cluster of his own. */
static void lie_in_wait(struct end *liar, const char *token)
{
    struct token t;
    struct token_keys keys;
    char id[2 * TOKEN_ID + 1], psk[65], question[33], answer[33], claim[65];
    json_t *tokens;

    init(liar);
    assert_int_equal(token_read(token, &t), 0);
    token_derive(&t, &keys);
    sodium_bin2hex(id, sizeof id, t.id, sizeof t.id);
    sodium_bin2hex(psk, sizeof psk, keys.psk, sizeof keys.psk);
    sodium_bin2hex(question, sizeof question, keys.question, sizeof keys.question);
    sodium_bin2hex(answer, sizeof answer, keys.answer, sizeof keys.answer);
    sodium_bin2hex(claim, sizeof claim, keys.sign_pub, sizeof keys.sign_pub);
    tokens = json_pack("{s:[{s:s s:s s:s s:s s:s s:i}]}", "tokens", "id", id, "psk", psk, "question",
                       question, "answer", answer, "claim", claim, "ttl", 60);
    enrol_take_tokens(liar->enrol, liar->node_id, tokens);
    json_decref(tokens);
}

static void test_a_liar_with_the_token_learns_nothing(void **state)
{
    struct world *w = *state;
    struct end *anna = &w->ends[0], *liar = &w->ends[1], *cleo = &w->ends[2];
    char token[TOKEN_TEXT];

    init(anna);
    invite(anna, 60, token);
    lie_in_wait(liar, token);
    expect_text(join(cleo, token, liar->port), "this node sent no secret to it");
    run_until_downs(liar, 1);
    assert_int_equal(liar->accepted, 1);
    assert_int_equal(liar->hellos, 0); /* cleo's key and name are in message 3, which was never sent */
    assert_int_equal(cluster_state(cleo->cluster), CLUSTER_NONE);
    assert_string_equal(join(cleo, token, anna->port), "");
}

/* The same, who shows the right cluster's key and a member's certificate that he has seen. */
static void test_a_borrowed_certificate_does_not_help(void **state)
{
    struct world *w = *state;
    struct end *anna = &w->ends[0], *liar = &w->ends[1], *cleo = &w->ends[2];
    char token[TOKEN_TEXT];
    struct link_setup s = setup_of(liar);
    struct token_keys keys;
    struct link_key key = {.tag = UINT64_C(1) << 32};
    struct token t;
    int fd, listener;
    uint16_t port;
    struct err err;

    init(anna);
    invite(anna, 60, token);
    assert_int_equal(token_read(token, &t), 0);
    token_derive(&t, &keys);
    memcpy(key.psk, keys.psk, sizeof key.psk);
    memcpy(s.hello.cert, cluster_cert_bytes(anna->cluster), CERT_BYTES);
    memcpy(s.hello.cluster_key, cluster_key(anna->cluster), CERT_CLUSTER_KEY);
    s.ops = &in_ops;
    s.keys = &key;
    s.n_keys = 1;
    listener = bind_loopback(&port);
    must(enrol_join(cleo->enrol, token, "cleo", "127.0.0.1", port, on_joined, cleo, &err), &err);
    fd = accept(listener, NULL, NULL);
    assert_int_equal(link_accept(&liar->links[0], &s, fd), 0);
    run_until(w, &cleo->over);
    expect_text(cleo->error, "cannot prove that it is in the cluster");
    settle(w);
    assert_int_equal(liar->hellos, 0);
    close(listener);
}

static void test_two_clusters_that_meet(void **state)
{
    struct world *w = *state;
    struct end *anna = &w->ends[0], *bert = &w->ends[1];
    uint8_t psk[AUTH_PSK];

    init(anna);
    init(bert);
    cluster_psk(bert->cluster, 0, psk);
    expect_text(dial_member(bert, anna->port, psk), "belongs to another cluster");
    run_until_downs(anna, 1);
    assert_int_equal(anna->hellos, 0);
}

static void test_an_unenrolled_node_is_deaf_and_dumb(void **state)
{
    struct world *w = *state;
    struct end *anna = &w->ends[0], *bert = &w->ends[1];
    char token[TOKEN_TEXT];
    uint8_t question[TOKEN_TAG] = {0}, answer[TOKEN_TAG];
    struct link_key keys[4];

    init(anna);
    invite(anna, 60, token);
    expect_text(join(bert, token, bert->port), "does not know this token"); /* itself */
    assert_int_equal(bert->hellos, 0);
    assert_int_equal(cluster_link_keys(bert->cluster, keys, 4) + enrol_link_keys(bert->enrol, keys, 4), 0);
    assert_false(enrol_answers(bert->enrol, question, answer));
}

static void test_a_tokens_secret_makes_no_member(void **state)
{
    struct world *w = *state;
    struct end *anna = &w->ends[0], *bert = &w->ends[1];
    char text[TOKEN_TEXT];
    struct token_keys keys;
    struct token t;

    init(anna);
    invite(anna, 60, text);
    assert_int_equal(token_read(text, &t), 0);
    token_derive(&t, &keys);
    expect_text(dial_member(bert, anna->port, keys.psk), "only lets a node join");
}

/* --- on the wire --- */

/* A relay between a victim that joins and the member: what it hears, it keeps. */
struct relay {
    struct world *world;
    int listener;
    uint16_t port, member_port;
    int joiner, member;
    struct event *accepting, *up, *down;
    uint8_t said[4096];   /* by the joiner */
    size_t n_said, spoil; /* byte of it to change on its way, 0 = none */
};

static void pump(int from, int to, struct relay *keep, struct event *event)
{
    uint8_t bytes[65536];
    ssize_t n = read(from, bytes, sizeof bytes);

    if (n <= 0) {
        event_del(event);
        shutdown(to, SHUT_WR);
        return;
    }
    for (ssize_t i = 0; keep && i < n && keep->n_said < sizeof keep->said; i++) {
        if (keep->spoil && keep->n_said == keep->spoil)
            bytes[i] ^= 1;
        keep->said[keep->n_said++] = bytes[i];
    }
    assert_int_equal(write(to, bytes, (size_t)n), n);
}

static void on_joiner_says(evutil_socket_t fd, short what, void *arg)
{
    struct relay *r = arg;

    (void)what;
    pump(fd, r->member, r, r->up);
}

static void on_member_says(evutil_socket_t fd, short what, void *arg)
{
    struct relay *r = arg;

    (void)what;
    pump(fd, r->joiner, NULL, r->down);
}

static int connect_to(uint16_t port)
{
    struct sockaddr_in sin = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(connect(fd, (struct sockaddr *)&sin, sizeof sin), 0);
    return fd;
}

static void on_relay(evutil_socket_t listener, short what, void *arg)
{
    struct relay *r = arg;

    (void)what;
    r->joiner = accept(listener, NULL, NULL);
    r->member = connect_to(r->member_port);
    r->up = event_new(r->world->base, r->joiner, EV_READ | EV_PERSIST, on_joiner_says, r);
    r->down = event_new(r->world->base, r->member, EV_READ | EV_PERSIST, on_member_says, r);
    event_add(r->up, NULL);
    event_add(r->down, NULL);
}

static void relay_open(struct relay *r, struct world *w, uint16_t member_port, size_t spoil)
{
    *r = (struct relay){.world = w, .member_port = member_port, .spoil = spoil};
    r->listener = bind_loopback(&r->port);
    r->accepting = event_new(w->base, r->listener, EV_READ, on_relay, r);
    event_add(r->accepting, NULL);
}

static void relay_close(struct relay *r)
{
    event_free(r->accepting);
    event_free(r->up);
    event_free(r->down);
    close(r->listener);
    close(r->joiner);
    close(r->member);
}

/* Between two victims it can carry, and is no more than a cable: what it kept opens nothing. */
static void test_a_relay_gains_nothing(void **state)
{
    struct world *w = *state;
    struct end *anna = &w->ends[0], *bert = &w->ends[1];
    char token[TOKEN_TEXT];
    struct relay r;
    int fd;
    uint8_t byte;

    init(anna);
    invite(anna, 60, token);
    relay_open(&r, w, anna->port, 0);
    assert_string_equal(join(bert, token, r.port), "");
    run_until_downs(anna, 1);
    relay_close(&r);
    assert_int_equal(anna->ups, 1);
    fd = connect_to(anna->port); /* the whole conversation of the joiner, once more */
    assert_true(write(fd, r.said, r.n_said) == (ssize_t)r.n_said);
    run_until_downs(anna, 2);
    assert_int_equal(anna->ups, 1);
    assert_int_equal(anna->hellos, 1); /* message 3 does not answer to a fresh message 2 */
    assert_int_equal(roster_active(cluster_roster(anna->cluster)), 2);
    while (read(fd, &byte, 1) == 1) /* message 2, and then it is over */
        ;
    close(fd);
}

static void test_a_relay_that_meddles_is_noticed(void **state)
{
    static const size_t places[] = {2, 40, 54, 60, 100, 150};
    struct world *w = *state;
    struct end *anna = &w->ends[0], *bert = &w->ends[1];
    char token[TOKEN_TEXT];

    init(anna);
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        struct relay r;

        invite(anna, 60, token);
        relay_open(&r, w, anna->port, places[i]);
        assert_true(*join(bert, token, r.port));
        run_until_downs(anna, (unsigned)i + 1);
        relay_close(&r);
    }
    assert_int_equal(anna->hellos, 0);
    assert_int_equal(roster_active(cluster_roster(anna->cluster)), 1);
}

/* Whoever recorded message 1 gets no answer to it. */
static void test_replayed_openings_meet_silence(void **state)
{
    struct world *w = *state;
    struct end *anna = &w->ends[0], *bert = &w->ends[1];
    char token[TOKEN_TEXT];
    struct relay r;
    uint8_t head[WIRE_PREFIX];

    init(anna);
    invite(anna, 60, token);
    relay_open(&r, w, anna->port, 150); /* the victim's own attempt comes to nothing */
    assert_true(*join(bert, token, r.port));
    run_until_downs(anna, 1);
    relay_close(&r);
    for (unsigned i = 1; i <= ATTEMPTS; i++) {
        int fd = connect_to(anna->port);

        assert_int_equal(write(fd, r.said, 2 + 53), 2 + 53);
        run_until_downs(anna, i + 1);
        assert_true(recv(fd, head, sizeof head, 0) <= 0);
        expect_text(anna->last_down, "plays a recording");
        close(fd);
    }
    assert_int_equal(anna->hellos, 0);
    assert_string_equal(join(bert, token, anna->port), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_join),
        TEST(test_refused_before_anything_is_sent),
        TEST(test_through_a_member_that_is_no_authority),
        TEST(test_the_authority_is_away),
        TEST(test_found_by_discovery),
        TEST(test_a_dead_token_ends_the_search),
        TEST(test_nobody_answers),
        TEST(test_a_lost_answer_can_be_asked_for_again),
        TEST(test_a_token_works_once),
        TEST(test_an_expired_token),
        TEST(test_a_wrong_secret_meets_silence),
        TEST(test_attempts_do_not_wear_a_token_out),
        TEST(test_a_liar_with_the_token_learns_nothing),
        TEST(test_a_borrowed_certificate_does_not_help),
        TEST(test_two_clusters_that_meet),
        TEST(test_an_unenrolled_node_is_deaf_and_dumb),
        TEST(test_a_tokens_secret_makes_no_member),
        TEST(test_a_relay_gains_nothing),
        TEST(test_a_relay_that_meddles_is_noticed),
        TEST(test_replayed_openings_meet_silence),
    };

    if (sodium_init() < 0)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
