/* SPDX-License-Identifier: MIT
 *
 * The roster: bytes, forgery, who is let in and who is out, names, full lists, two authorities at
 * once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net/auth.h"
#include "net/roster.h"
#include "tests/lib/protocol_doc.h"
#include "tests/lib/roster_count.h"

struct signer {
    uint8_t pub[CERT_CLUSTER_KEY], secret[CERT_SECRET];
};
struct signed_roster {
    struct roster r;
    uint8_t bytes[ROSTER_BYTES_MAX];
    size_t n;
};

static struct signer make_signer(uint8_t fill)
{
    uint8_t seed[CERT_SEED];
    struct signer s;

    memset(seed, fill, sizeof seed);
    cert_cluster_keys(s.pub, s.secret, seed);
    return s;
}

static void begin(struct roster *r, const struct signer *s)
{
    *r = (struct roster){.name = "home", .generation = 1};
    cert_cluster_id(r->cluster_id, s->pub);
}

static const uint8_t *pub_of(unsigned i)
{
    static uint8_t pub[32];

    memset(pub, 0, sizeof pub);
    memcpy(pub, &i, sizeof i);
    pub[31] = 1;
    return pub;
}

static const uint8_t *id_of(unsigned i)
{
    static uint8_t id[CERT_ID];

    auth_node_id(id, pub_of(i));
    return id;
}

static const struct roster_entry *admit(struct roster *r, unsigned i, const char *name)
{
    const struct roster_entry *e = NULL;

    assert_int_equal(roster_admit(r, pub_of(i), name, &e), 0);
    return e;
}

static struct cert cert_of(const struct roster_entry *e)
{
    struct cert c = {.serial = e->serial};

    memcpy(c.pub, e->pub, sizeof c.pub);
    memcpy(c.name, e->name, sizeof c.name);
    return c;
}

static void sign(struct signed_roster *s, const struct signer *by)
{
    int n = roster_sign(&s->r, by->secret, s->bytes, sizeof s->bytes);

    assert_true(n > 0);
    s->n = (size_t)n;
}

static void three_nodes(struct signed_roster *s, const struct signer *by)
{
    begin(&s->r, by);
    admit(&s->r, 1, "anna");
    admit(&s->r, 2, "bert");
    admit(&s->r, 3, "cleo");
    assert_int_equal(roster_promote(&s->r, id_of(1)), 0);
    assert_int_equal(roster_remove(&s->r, id_of(3)), 0);
    memset(s->r.at[0].net_key, 0x11, ROSTER_SEALED);
    memset(s->r.at[0].authority_key, 0x22, ROSTER_SEALED);
    memset(s->r.at[1].net_key, 0x33, ROSTER_SEALED);
    sign(s, by);
}

static void test_round_trip(void **state)
{
    static struct signed_roster s;
    static struct roster back;
    struct signer by = make_signer(1);
    uint8_t again[ROSTER_BYTES_MAX];

    (void)state;
    three_nodes(&s, &by);
    assert_int_equal(roster_open(s.bytes, s.n, by.pub, &back), 0);
    assert_true(back.version == 5 && back.last_serial == 3 && back.generation == 2 && back.n == 3);
    assert_string_equal(back.name, "home");
    assert_int_equal(roster_sign(&back, by.secret, again, sizeof again), s.n);
    assert_memory_equal(again, s.bytes, s.n);
    assert_true(protocol_doc_shows("roster", s.bytes, s.n));
}

static void test_any_change_is_seen(void **state)
{
    static struct signed_roster s;
    static struct roster back;
    struct signer by = make_signer(1), other = make_signer(2);

    (void)state;
    three_nodes(&s, &by);
    for (size_t bit = 0; bit < 8 * s.n; bit += 3) {
        s.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_int_equal(roster_open(s.bytes, s.n, by.pub, &back), -EBADMSG);
        s.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    for (size_t n = 0; n < s.n; n++)
        assert_true(roster_open(s.bytes, n, by.pub, &back) < 0);
    assert_int_equal(roster_open(s.bytes, s.n, other.pub, &back), -EBADMSG);
    sign(&s, &other); /* forged: our cluster's id under another key */
    assert_int_equal(roster_open(s.bytes, s.n, by.pub, &back), -EBADMSG);
    assert_int_equal(roster_open(s.bytes, s.n, other.pub, &back), -EBADMSG);
}

/* Signed with the right key, and nonsense all the same: an authority's mistake must not spread. */
static void test_signed_nonsense_is_refused(void **state)
{
    static struct signed_roster s;
    static struct roster back;
    struct signer by = make_signer(1);

    (void)state;
    three_nodes(&s, &by);
    s.r.at[1] = s.r.at[0]; /* twice the same node */
    sign(&s, &by);
    assert_int_equal(roster_open(s.bytes, s.n, by.pub, &back), -EPROTO);
    three_nodes(&s, &by);
    s.r.at[1].serial = 4; /* above the last given out */
    sign(&s, &by);
    assert_int_equal(roster_open(s.bytes, s.n, by.pub, &back), -EPROTO);
    three_nodes(&s, &by);
    s.r.at[1].status = 3;
    sign(&s, &by);
    assert_int_equal(roster_open(s.bytes, s.n, by.pub, &back), -EPROTO);
    three_nodes(&s, &by);
    s.r.version = 0;
    sign(&s, &by);
    assert_int_equal(roster_open(s.bytes, s.n, by.pub, &back), -EPROTO);
    three_nodes(&s, &by);
    s.r.at[1].name[0] = '\n';
    assert_int_equal(roster_sign(&s.r, by.secret, s.bytes, sizeof s.bytes), -EINVAL);
}

static void test_who_belongs(void **state)
{
    static struct roster r;
    struct signer by = make_signer(1);
    struct cert anna, bert, newer, stranger;

    (void)state;
    begin(&r, &by);
    anna = cert_of(admit(&r, 1, "anna"));
    bert = cert_of(admit(&r, 2, "bert"));
    assert_int_equal(roster_judge(&r, &anna), ROSTER_IS_MEMBER);
    assert_int_equal(roster_remove(&r, id_of(2)), 0);
    assert_int_equal(r.generation, 2);
    assert_int_equal(roster_judge(&r, &bert), ROSTER_WAS_REMOVED);
    assert_int_equal(roster_remove(&r, id_of(2)), -ENOENT);
    assert_int_equal(roster_promote(&r, id_of(2)), -ENOENT);
    newer = bert;
    newer.serial = r.last_serial + 1; /* let in again by a roster we have not seen */
    assert_int_equal(roster_judge(&r, &newer), ROSTER_IS_NEW);
    newer = cert_of(admit(&r, 2, "bert"));
    assert_int_equal(roster_judge(&r, &newer), ROSTER_IS_MEMBER);
    assert_int_equal(roster_judge(&r, &bert), ROSTER_OLD_CERT);
    stranger = bert;
    memcpy(stranger.pub, pub_of(9), sizeof stranger.pub);
    assert_int_equal(roster_judge(&r, &stranger), ROSTER_UNKNOWN);
}

static void test_names_are_made_unique(void **state)
{
    static struct roster r;
    struct signer by = make_signer(1);
    const struct roster_entry *e;
    char longest[CERT_NAME];

    (void)state;
    begin(&r, &by);
    admit(&r, 1, "pi");
    assert_string_equal(admit(&r, 2, "pi")->name, "pi-2");
    assert_string_equal(admit(&r, 3, "pi")->name, "pi-3");
    assert_string_equal(admit(&r, 2, "pi-2")->name, "pi-2"); /* its own */
    roster_remove(&r, id_of(1));
    assert_string_equal(admit(&r, 4, "pi")->name, "pi"); /* free again */
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    admit(&r, 5, longest);
    e = admit(&r, 6, longest);
    assert_int_equal(strlen(e->name), CERT_NAME - 1);
    assert_string_equal(e->name + CERT_NAME - 3, "-2");
    assert_int_equal(roster_admit(&r, pub_of(7), "", &e), -EINVAL);
    assert_int_equal(roster_admit(&r, pub_of(7), "a\tb", &e), -EINVAL);
    assert_ptr_equal(roster_named(&r, "pi-3"), roster_find(&r, id_of(3)));
    assert_null(roster_named(&r, "nobody"));
}

static void test_full_list_forgets_the_removed(void **state)
{
    static struct signed_roster s;
    static struct roster back;
    struct signer by = make_signer(1);
    const struct roster_entry *e;
    struct cert gone;
    char name[16];

    (void)state;
    begin(&s.r, &by);
    for (unsigned i = 0; i < ROSTER_MAX; i++) {
        snprintf(name, sizeof name, "n%u", i);
        admit(&s.r, i, name);
    }
    assert_int_equal(roster_active(&s.r), ROSTER_MAX);
    assert_int_equal(roster_admit(&s.r, pub_of(1000), "late", &e), -ENOSPC);
    gone = cert_of(roster_find(&s.r, id_of(5)));
    roster_remove(&s.r, id_of(9));
    roster_remove(&s.r, id_of(5));
    admit(&s.r, 1000, "late"); /* in the place of 5: the lowest serial */
    assert_int_equal(roster_judge(&s.r, &gone), ROSTER_UNKNOWN);
    assert_non_null(roster_find(&s.r, id_of(9)));
    sign(&s, &by);
    assert_int_equal(roster_open(s.bytes, s.n, by.pub, &back), 0);
}

/* --- versions --- */

static void test_the_newest_wins(void **state)
{
    static struct signed_roster a, b;
    struct signer by = make_signer(1);

    (void)state;
    three_nodes(&a, &by);
    b = a;
    assert_false(roster_replaces(&a.r, a.bytes, a.n, &b.r, b.bytes, b.n)); /* itself */
    admit(&b.r, 4, "dora");
    sign(&b, &by);
    assert_true(roster_replaces(&b.r, b.bytes, b.n, &a.r, a.bytes, a.n));
    assert_false(roster_replaces(&a.r, a.bytes, a.n, &b.r, b.bytes, b.n));
    admit(&a.r, 5, "emil"); /* the same number by another authority: all choose alike */
    sign(&a, &by);
    assert_int_equal(a.r.version, b.r.version);
    assert_true(roster_replaces(&a.r, a.bytes, a.n, &b.r, b.bytes, b.n) !=
                roster_replaces(&b.r, b.bytes, b.n, &a.r, a.bytes, a.n));
}

static void test_two_authorities_at_once(void **state)
{
    static struct roster base, mine, now;
    struct signer by = make_signer(1);

    (void)state;
    begin(&base, &by);
    admit(&base, 1, "anna");
    admit(&base, 2, "bert");
    admit(&base, 3, "cleo");
    mine = now = base;
    roster_remove(&mine, id_of(2));
    admit(&mine, 4, "dora");
    roster_promote(&mine, id_of(3));
    roster_remove(&now, id_of(1)); /* theirs */
    admit(&now, 5, "dora");
    now.version = mine.version;
    assert_true(roster_rebase(&now, &mine));
    assert_int_equal(now.version, mine.version + 1);
    assert_int_equal(roster_find(&now, id_of(1))->status, ROSTER_REMOVED);
    assert_int_equal(roster_find(&now, id_of(2))->status, ROSTER_REMOVED); /* not forgotten */
    assert_true(roster_find(&now, id_of(3))->authority);
    assert_int_equal(roster_find(&now, id_of(4))->status, ROSTER_ACTIVE);
    assert_int_equal(roster_find(&now, id_of(4))->serial, roster_find(&mine, id_of(4))->serial);
    assert_string_not_equal(roster_find(&now, id_of(4))->name, roster_find(&now, id_of(5))->name);
    assert_true(now.generation > 2);
    assert_false(roster_rebase(&now, &mine)); /* nothing left to take */
}

static void test_what_follows_is_not_undone(void **state)
{
    static struct roster mine, now;
    struct signer by = make_signer(1);

    (void)state;
    begin(&mine, &by);
    admit(&mine, 1, "anna");
    admit(&mine, 2, "bert");
    now = mine;
    roster_remove(&now, id_of(2)); /* by the other authority, after ours */
    assert_false(roster_rebase(&now, &mine));
    mine = now;
    admit(&now, 2, "bert"); /* and let in again */
    assert_false(roster_rebase(&now, &mine));
    assert_int_equal(roster_find(&now, id_of(2))->status, ROSTER_ACTIVE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_any_change_is_seen),
        cmocka_unit_test(test_signed_nonsense_is_refused),
        cmocka_unit_test(test_who_belongs),
        cmocka_unit_test(test_names_are_made_unique),
        cmocka_unit_test(test_full_list_forgets_the_removed),
        cmocka_unit_test(test_the_newest_wins),
        cmocka_unit_test(test_two_authorities_at_once),
        cmocka_unit_test(test_what_follows_is_not_undone),
    };

    if (sodium_init() < 0)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
