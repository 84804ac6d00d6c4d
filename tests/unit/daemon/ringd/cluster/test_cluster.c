/* SPDX-License-Identifier: MIT
 *
 * What a node keeps of its cluster: made, found again after a restart, never going backwards, keys
 * turned over when a node goes, the authority's key handed on. */
#include "tests/unit/daemon/ringd/cluster/trust_world.h"

#include <fcntl.h>
#include <sys/stat.h>

static void restart(struct end *end)
{
    end_shut(end);
    end_open(end);
}

static void test_init(void **state)
{
    struct world *w = *state;
    struct end *anna = &w->ends[0];
    struct cluster_net_key keys[2];
    uint8_t psk[AUTH_PSK], id[16];
    struct err err;

    assert_int_equal(cluster_state(anna->cluster), CLUSTER_NONE);
    assert_int_equal(cluster_net_keys(anna->cluster, keys, 2), 0);
    assert_int_equal(cluster_psk(anna->cluster, 0, psk), -ENOTCONN);
    init(anna);
    assert_int_equal(cluster_state(anna->cluster), CLUSTER_MEMBER);
    assert_true(cluster_is_authority(anna->cluster));
    assert_int_equal(cluster_net_keys(anna->cluster, keys, 2), 1);
    assert_int_equal(keys[0].generation, 1);
    cert_cluster_id(id, cluster_key(anna->cluster));
    assert_memory_equal(id, cluster_roster(anna->cluster)->cluster_id, sizeof id);
    assert_string_equal(cluster_cert(anna->cluster)->name, "anna");
    assert_int_equal(cluster_cert(anna->cluster)->flags, CERT_AUTHORITY);
    assert_int_equal(cluster_init(anna->cluster, "other", "anna", 1, &err), -EEXIST);
    expect_text(err.text, "in cluster home already");
}

static void test_a_restart_changes_nothing(void **state)
{
    struct world *w = *state;
    struct end *anna = &w->ends[0], *bert = &w->ends[1];
    uint8_t before[AUTH_PSK], after[AUTH_PSK];
    char token[TOKEN_TEXT], path[128];
    struct stat st;

    init(anna);
    admit(anna, bert);
    invite(anna, 60, token);
    cluster_psk(anna->cluster, 0, before);
    restart(anna);
    restart(bert);
    cluster_psk(bert->cluster, 0, after);
    assert_memory_equal(before, after, sizeof before);
    assert_true(cluster_is_authority(anna->cluster) && !cluster_is_authority(bert->cluster));
    assert_int_equal(cluster_state(bert->cluster), CLUSTER_MEMBER);
    assert_string_equal(join(&w->ends[2], token, anna->port), ""); /* tokens survive, too */
    snprintf(path, sizeof path, "%s/cluster", anna->dir);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    snprintf(path, sizeof path, "%s/tokens", anna->dir);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
}

static void test_damaged_or_open_files_are_refused(void **state)
{
    struct world *w = *state;
    struct end *anna = &w->ends[0];
    struct cluster *c;
    struct err err;
    char path[128];
    uint8_t byte;
    int fd;

    init(anna);
    snprintf(path, sizeof path, "%s/cluster", anna->dir);
    chmod(path, 0644);
    assert_true(cluster_open(&c, anna->dir, anna->keys, &err) < 0);
    expect_text(err.text, "can be read by others");
    chmod(path, 0600);
    assert_true(cluster_open(&c, anna->dir, w->ends[1].keys, &err) < 0);
    expect_text(err.text, "belongs to another identity");
    fd = open(path, O_RDWR);
    assert_int_equal(pread(fd, &byte, 1, 400), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, 400), 1);
    close(fd);
    assert_true(cluster_open(&c, anna->dir, anna->keys, &err) < 0);
    expect_text(err.text, "is damaged");
}

static void test_removal_turns_the_key_over(void **state)
{
    struct world *w = *state;
    struct end *anna = &w->ends[0], *bert = &w->ends[1], *cleo = &w->ends[2];
    struct cluster_net_key a[3], b[3];
    uint8_t old[AUTH_PSK], now[AUTH_PSK];
    struct err err;

    init(anna);
    admit(anna, bert);
    admit(anna, cleo);
    cluster_psk(cleo->cluster, 0, old);
    must(cluster_remove(anna->cluster, cleo->node_id, &err), &err);
    spread(anna);
    assert_int_equal(cluster_net_keys(anna->cluster, a, 3), 2);
    assert_int_equal(cluster_net_keys(bert->cluster, b, 3), 2);
    assert_memory_equal(a, b, 2 * sizeof a[0]);
    assert_int_equal(a[0].generation, 2);
    assert_memory_not_equal(a[0].beacon, a[1].beacon, 32);
    assert_int_equal(cluster_state(cleo->cluster), CLUSTER_REMOVED); /* it was told */
    assert_int_equal(cluster_net_keys(cleo->cluster, a, 3), 0);
    cluster_psk(bert->cluster, 0, now);
    assert_memory_not_equal(old, now, sizeof now);
    cluster_psk(bert->cluster, 1, now);
    assert_memory_equal(old, now, sizeof now);
    restart(bert);
    assert_int_equal(cluster_net_keys(bert->cluster, b, 3), 2);
    restart(cleo);
    assert_int_equal(cluster_state(cleo->cluster), CLUSTER_REMOVED);
    assert_int_equal(cluster_remove(anna->cluster, cleo->node_id, &err), -ENOENT);
    assert_int_equal(cluster_remove(anna->cluster, anna->node_id, &err), -EPERM);
    assert_int_equal(cluster_remove(bert->cluster, anna->node_id, &err), -EPERM);
    expect_text(err.text, "run it on anna");
}

/* A node may use its token twice, for it may have lost the answer; but not to undo its removal. */
static void test_a_removed_node_needs_a_new_token(void **state)
{
    struct world *w = *state;
    struct end *anna = &w->ends[0], *bert = &w->ends[1], *cleo = &w->ends[2];
    char token[TOKEN_TEXT];
    struct err err;

    init(anna);
    admit(anna, bert);
    invite(anna, 60, token);
    assert_string_equal(join(cleo, token, anna->port), "");
    assert_string_equal(join(cleo, token, anna->port), "");
    settle(w);
    must(cluster_remove(anna->cluster, cleo->node_id, &err), &err);
    spread(anna);
    expect_text(join(cleo, token, anna->port), "has let a node in already");
    assert_int_equal(roster_find(cluster_roster(anna->cluster), cleo->node_id)->status, ROSTER_REMOVED);
    restart(anna);
    expect_text(join(cleo, token, anna->port), "has let a node in already");
    admit(anna, cleo);
    assert_int_equal(cluster_state(cleo->cluster), CLUSTER_MEMBER);
}

static void test_the_roster_does_not_go_back(void **state)
{
    static uint8_t old[ROSTER_BYTES_MAX];
    struct world *w = *state;
    struct end *anna = &w->ends[0], *bert = &w->ends[1], *cleo = &w->ends[2];
    struct err err;
    size_t n;

    init(anna);
    admit(anna, bert);
    admit(anna, cleo);
    memcpy(old, cluster_roster_bytes(bert->cluster, &n), sizeof old);
    must(cluster_remove(anna->cluster, cleo->node_id, &err), &err);
    spread(anna);
    assert_int_equal(cluster_learn(bert->cluster, old, n, &err), 0);
    restart(bert);
    assert_int_equal(cluster_learn(bert->cluster, old, n, &err), 0);
    assert_int_equal(roster_find(cluster_roster(bert->cluster), cleo->node_id)->status, ROSTER_REMOVED);
    old[40] ^= 1;
    assert_int_equal(cluster_learn(bert->cluster, old, n, &err), -EBADMSG);
    expect_text(err.text, "not signed");
}

static void test_rosters_of_other_clusters_are_nothing(void **state)
{
    struct world *w = *state;
    struct end *anna = &w->ends[0], *bert = &w->ends[1];
    const uint8_t *theirs;
    struct err err;
    size_t n;

    init(anna);
    init(bert);
    theirs = cluster_roster_bytes(bert->cluster, &n);
    assert_int_equal(cluster_learn(anna->cluster, theirs, n, &err), -EBADMSG);
    assert_int_equal(cluster_learn(w->ends[2].cluster, theirs, n, &err),
                     0); /* in no cluster: no ear for it */
}

static void test_promote_hands_the_key_on(void **state)
{
    struct world *w = *state;
    struct end *anna = &w->ends[0], *bert = &w->ends[1], *cleo = &w->ends[2];
    char token[TOKEN_TEXT];
    struct err err;

    init(anna);
    admit(anna, bert);
    assert_int_equal(cluster_invite(bert->cluster, 60, 0, token, &err), -EPERM);
    must(cluster_promote(anna->cluster, bert->node_id, &err), &err);
    spread(anna);
    assert_true(cluster_is_authority(bert->cluster));
    restart(bert);
    assert_true(cluster_is_authority(bert->cluster));
    admit(bert, cleo);
    assert_int_equal(roster_active(cluster_roster(anna->cluster)), 3);
    must(cluster_remove(bert->cluster, anna->node_id, &err), &err); /* the first may go, too */
    spread(bert);
    assert_int_equal(cluster_state(anna->cluster), CLUSTER_REMOVED);
    assert_false(cluster_is_authority(anna->cluster));
    assert_int_equal(cluster_net_keys(cleo->cluster, (struct cluster_net_key[2]){{0}}, 2), 2);
}

static void test_two_authorities_apart(void **state)
{
    struct world *w = *state;
    struct end *anna = &w->ends[0], *bert = &w->ends[1], *cleo = &w->ends[2], *dora = &w->ends[3];
    struct err err;

    init(anna);
    admit(anna, bert);
    admit(anna, cleo);
    admit(anna, dora);
    must(cluster_promote(anna->cluster, bert->node_id, &err), &err);
    spread(anna);
    must(cluster_remove(anna->cluster, cleo->node_id, &err), &err); /* both, without hearing of each other */
    must(cluster_remove(bert->cluster, dora->node_id, &err), &err);
    spread(anna);
    spread(bert);
    for (size_t i = 0; i < 2; i++) {
        const struct roster *r = cluster_roster(w->ends[i].cluster);

        assert_int_equal(roster_find(r, cleo->node_id)->status, ROSTER_REMOVED);
        assert_int_equal(roster_find(r, dora->node_id)->status, ROSTER_REMOVED);
    }
    assert_true(cluster_roster(anna->cluster)->version == cluster_roster(bert->cluster)->version);
}

static void test_keys_of_long_ago_are_kept_in_bounds(void **state)
{
    struct world *w = *state;
    struct end *anna = &w->ends[0], *bert = &w->ends[1];
    struct cluster_net_key keys[CLUSTER_KEYS + 4];
    struct err err;

    init(anna);
    for (int i = 0; i < CLUSTER_KEYS + 3; i++) {
        admit(anna, bert);
        must(cluster_remove(anna->cluster, bert->node_id, &err), &err);
        spread(anna);
    }
    assert_int_equal(cluster_net_keys(anna->cluster, keys, CLUSTER_KEYS + 4), CLUSTER_KEYS);
    assert_int_equal(keys[0].generation, CLUSTER_KEYS + 4);
    assert_int_equal(keys[CLUSTER_KEYS - 1].generation, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_init),
        TEST(test_a_restart_changes_nothing),
        TEST(test_damaged_or_open_files_are_refused),
        TEST(test_removal_turns_the_key_over),
        TEST(test_a_removed_node_needs_a_new_token),
        TEST(test_the_roster_does_not_go_back),
        TEST(test_rosters_of_other_clusters_are_nothing),
        TEST(test_promote_hands_the_key_on),
        TEST(test_two_authorities_apart),
        TEST(test_keys_of_long_ago_are_kept_in_bounds),
    };

    if (sodium_init() < 0)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
