/* SPDX-License-Identifier: MIT
 *
 * The disk of the state directory hangs: nothing here waits for it but who asked to hear of it. A
 * named pipe without a reader is the disk: opening it to write hangs until there is one, and then
 * the write fails, because pipes cannot be made to last. */
#include "tests/unit/daemon/ringd/cluster/trust_world.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "daemon/ringd/cluster/cluster_disk.h"
#include "daemon/ringd/mailbox.h"

enum { WAIT_MS = 50, LONG_MS = 20000 };

/* A disk alone. */
struct disk_world {
    struct event_base *base;
    struct mailbox *mailbox;
    char dir[64];
    struct cluster_disk *disk;
    unsigned written, heard;
    char error[600];
};

static void on_written(void *owner)
{
    struct disk_world *w = owner;
    w->written++;
    event_base_loopbreak(w->base);
}

static void on_kept(void *arg, const char *error)
{
    struct disk_world *w = arg;
    w->heard++;
    snprintf(w->error, sizeof w->error, "%s", error ? error : "");
    event_base_loopbreak(w->base);
}

static int disk_setup(void **state)
{
    struct disk_world *w = calloc(1, sizeof *w);
    w->base = event_base_new();
    assert_int_equal(mailbox_new(&w->mailbox, w->base), 0);
    strcpy(w->dir, "/tmp/ringd-disk-XXXXXX");
    assert_non_null(mkdtemp(w->dir));
    w->disk = cluster_disk_new(w->dir, on_written, w);
    *state = w;
    return 0;
}

static int disk_teardown(void **state)
{
    static const char *const names[] = {"tokens", "cluster"};
    struct disk_world *w = *state;
    char path[128];
    cluster_disk_free(w->disk);
    mailbox_free(w->mailbox);
    event_base_free(w->base);
    for (size_t i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", w->dir, names[i]);
        unlink(path);
    }
    rmdir(w->dir);
    free(w);
    return 0;
}

static void pipe_path(const char *dir, const char *name, char ret[128])
{
    snprintf(ret, 128, "%s/%s.tmp", dir, name);
}

static void hang(const char *dir, const char *name)
{
    char path[128];
    pipe_path(dir, name, path);
    assert_int_equal(mkfifo(path, 0600), 0);
}

/* A reader, until the writer has seen it: what it writes fits into the pipe. */
static int let_go(const char *dir, const char *name)
{
    char path[128];
    pipe_path(dir, name, path);
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

static void put(struct disk_world *w, enum trust_file file, const char *text)
{
    struct err err;
    assert_int_equal(cluster_disk_put(w->disk, file, (const uint8_t *)text, strlen(text), &err), 0);
}

static void expect_file(const struct disk_world *w, const char *name, const char *text)
{
    char path[128], is[64] = "";
    snprintf(path, sizeof path, "%s/%s", w->dir, name);
    FILE *f = fopen(path, "re");
    if (f) {
        is[fread(is, 1, sizeof is - 1, f)] = 0;
        fclose(f);
    }
    assert_string_equal(is, text);
}

static void hear(struct disk_world *w, unsigned times)
{
    while (w->heard < times)
        assert_int_equal(event_base_loop(w->base, EVLOOP_ONCE), 0);
}

static void without_a_thread_it_is_written_at_once(void **state)
{
    struct disk_world *w = *state;
    struct err err = {""};
    put(w, TRUST_CLUSTER, "one");
    expect_file(w, "cluster", "one");
    assert_int_equal(w->written, 1);
    cluster_disk_when(w->disk, on_kept, w);
    assert_int_equal(w->heard, 1);
    assert_string_equal(w->error, "");
    rename(w->dir, "/tmp/ringd-disk-away");
    assert_true(cluster_disk_put(w->disk, TRUST_CLUSTER, (const uint8_t *)"two", 3, &err) < 0);
    rename("/tmp/ringd-disk-away", w->dir);
    expect_text(err.text, "cannot be written");
}

static void who_waits_hears_when_all_is_written(void **state)
{
    struct disk_world *w = *state;
    assert_int_equal(cluster_disk_start(w->disk, w->base, w->mailbox, LONG_MS), 0);
    cluster_disk_when(w->disk, on_kept, w); /* there is nothing to wait for */
    assert_int_equal(w->heard, 1);
    put(w, TRUST_TOKENS, "t");
    put(w, TRUST_CLUSTER, "c");
    cluster_disk_when(w->disk, on_kept, w);
    assert_int_equal(w->heard, 1);
    hear(w, 2);
    assert_string_equal(w->error, "");
    expect_file(w, "tokens", "t");
    expect_file(w, "cluster", "c");
    assert_true(cluster_disk_has(w->disk, TRUST_CLUSTER));
}

static void a_disk_that_hangs_is_named_in_time(void **state)
{
    struct disk_world *w = *state;
    assert_int_equal(cluster_disk_start(w->disk, w->base, w->mailbox, WAIT_MS), 0);
    hang(w->dir, "cluster");
    put(w, TRUST_CLUSTER, "one");
    assert_false(cluster_disk_has(w->disk, TRUST_CLUSTER));
    cluster_disk_when(w->disk, on_kept, w);
    hear(w, 1);
    expect_text(w->error, "/cluster was not written within");
    assert_int_equal(w->written, 0);
    const int fd = let_go(w->dir, "cluster");
    while (!w->written)
        event_base_loop(w->base, EVLOOP_ONCE);
    close(fd);
    assert_int_equal(w->heard, 1); /* once */
}

/* While the first hangs, the others wait: the newest of the cluster, behind the tokens. */
static void what_is_newer_takes_the_place_of_what_waits(void **state)
{
    struct disk_world *w = *state;
    assert_int_equal(cluster_disk_start(w->disk, w->base, w->mailbox, LONG_MS), 0);
    hang(w->dir, "cluster");
    hang(w->dir, "tokens");
    put(w, TRUST_CLUSTER, "c1");
    cluster_disk_when(w->disk, on_kept, w);
    struct stat st;
    char path[128];
    const int one = let_go(w->dir, "cluster"); /* waits for the thread's open, if it is not there yet */
    hear(w, 1);
    close(one);
    expect_text(w->error, "cannot be written");
    put(w, TRUST_TOKENS, "t1"); /* hangs, with all that follows */
    put(w, TRUST_CLUSTER, "c2");
    put(w, TRUST_CLUSTER, "c3");
    cluster_disk_when(w->disk, on_kept, w);
    pipe_path(w->dir, "cluster", path);
    assert_int_not_equal(stat(path, &st), 0);
    expect_file(w, "cluster", "");
    const int two = let_go(w->dir, "tokens");
    hear(w, 2);
    close(two);
    expect_text(w->error, "/tokens cannot be written");
    assert_true(cluster_disk_lacks(w->disk, TRUST_TOKENS));
    expect_file(w, "cluster", "c3");
    assert_int_equal(w->written, 3); /* c2 is not among them */
}

static void too_many_do_not_wait(void **state)
{
    struct disk_world *w = *state;
    assert_int_equal(cluster_disk_start(w->disk, w->base, w->mailbox, LONG_MS), 0);
    hang(w->dir, "tokens");
    put(w, TRUST_TOKENS, "t1");
    for (int i = 0; i < CLUSTER_WAITING_MAX; i++)
        cluster_disk_when(w->disk, on_kept, w);
    assert_int_equal(w->heard, 0);
    cluster_disk_when(w->disk, on_kept, w);
    assert_int_equal(w->heard, 1);
    expect_text(w->error, "too many changes");
    cluster_disk_forget(w->disk, w);
    const int fd = let_go(w->dir, "tokens");
    while (!w->written)
        event_base_loop(w->base, EVLOOP_ONCE);
    close(fd);
    assert_int_equal(w->heard, 1); /* those were forgotten */
}

/* What is made here counts here at once. Others hear of it when it is on the disk. */
static void others_hear_what_is_on_the_disk(void **state)
{
    struct world *w = *state;
    struct end *anna = &w->ends[0], *bert = &w->ends[1];
    struct disk_world heard = {.base = w->base};
    struct mailbox *mailbox;
    struct err err;
    size_t n, n_then;
    init(anna);
    admit(anna, bert);
    cluster_roster_bytes(anna->cluster, &n);
    const uint64_t version = cluster_roster(anna->cluster)->version;
    assert_int_equal(mailbox_new(&mailbox, w->base), 0);
    assert_int_equal(cluster_start_writing(anna->cluster, w->base, mailbox, LONG_MS), 0);
    hang(anna->dir, "cluster");
    const unsigned changes = anna->changes;
    must(cluster_remove(anna->cluster, bert->node_id, &err), &err);
    assert_true(cluster_has_removed(anna->cluster, bert->node_id));
    cluster_when_kept(anna->cluster, on_kept, &heard);
    cluster_roster_bytes(anna->cluster, &n_then);
    assert_int_equal(n_then, n); /* with both keys still: a removed node has none */
    assert_int_equal(anna->changes, changes);
    const int fd = let_go(anna->dir, "cluster");
    hear(&heard, 1);
    close(fd);
    expect_text(heard.error, "cannot be written");
    assert_int_equal(anna->changes, changes);
    assert_int_equal(cluster_state(bert->cluster), CLUSTER_MEMBER);

    must(cluster_promote(anna->cluster, anna->node_id, &err),
         &err); /* another change, and the disk is back */
    cluster_when_kept(anna->cluster, on_kept, &heard);
    hear(&heard, 2);
    assert_string_equal(heard.error, "");
    assert_int_equal(anna->changes, changes + 1);
    assert_true(cluster_roster(anna->cluster)->version > version);
    assert_int_equal(cluster_state(bert->cluster), CLUSTER_REMOVED);
    cluster_stop_writing(anna->cluster);
    mailbox_free(mailbox);
}

/* Nobody is let in before it is on the authority's disk, and who joined waits for its own. */
static void a_grant_waits_for_both_disks(void **state)
{
    struct world *w = *state;
    struct end *anna = &w->ends[0], *bert = &w->ends[1];
    struct mailbox *mailbox;
    char token[TOKEN_TEXT];
    init(anna);
    invite(anna, 60, token);
    assert_int_equal(mailbox_new(&mailbox, w->base), 0);
    assert_int_equal(cluster_start_writing(anna->cluster, w->base, mailbox, WAIT_MS), 0);
    assert_int_equal(cluster_start_writing(bert->cluster, w->base, mailbox, WAIT_MS), 0);
    hang(anna->dir, "tokens");
    expect_text(join(bert, token, anna->port), "/tokens was not written within");
    assert_int_equal(cluster_state(bert->cluster), CLUSTER_NONE);
    close(let_go(anna->dir, "tokens"));
    cluster_stop_writing(anna->cluster); /* what waited is tried */
    assert_int_equal(cluster_start_writing(anna->cluster, w->base, mailbox, LONG_MS), 0);
    hang(bert->dir, "cluster");
    expect_text(join(bert, token, anna->port), "/cluster was not written within");
    assert_int_equal(cluster_state(bert->cluster), CLUSTER_MEMBER);
    close(let_go(bert->dir, "cluster"));
    cluster_stop_writing(bert->cluster);
    cluster_stop_writing(anna->cluster);
    mailbox_free(mailbox);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(without_a_thread_it_is_written_at_once, disk_setup, disk_teardown),
        cmocka_unit_test_setup_teardown(who_waits_hears_when_all_is_written, disk_setup, disk_teardown),
        cmocka_unit_test_setup_teardown(a_disk_that_hangs_is_named_in_time, disk_setup, disk_teardown),
        cmocka_unit_test_setup_teardown(what_is_newer_takes_the_place_of_what_waits, disk_setup,
                                        disk_teardown),
        cmocka_unit_test_setup_teardown(too_many_do_not_wait, disk_setup, disk_teardown),
        cmocka_unit_test_setup_teardown(others_hear_what_is_on_the_disk, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(a_grant_waits_for_both_disks, world_setup, world_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
