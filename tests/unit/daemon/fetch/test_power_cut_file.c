/* SPDX-License-Identifier: MIT
 *
 * A power cut while a hub sends a file. It is gone on with on what that leaves (recorded_disk.h):
 * what was safe is there, and the whole has its hash. */
#include "tests/unit/daemon/fetch/recorded_disk.h"

static struct part_file *open_file(const struct carry_world *w, int dir, uint64_t *ret_at)
{
    struct part_file *p;
    struct err err = {""};
    if (part_file_open(&p, dir, &w->manifest->files[1], NULL, ret_at, &err))
        fail_msg("%s", err.text);
    return p;
}

static void record_file(struct carry_world *w)
{
    const int dir = begin_record(w);
    uint64_t at;
    struct err err = {""};
    struct part_file *p = open_file(w, dir, &at);
    for (; at < MANY; at = part_file_at(p)) {
        assert_int_equal(
            part_file_write(p, w->weights + at, MANY - at < BLOCK_BYTES ? MANY - at : BLOCK_BYTES, &err), 0);
        end_sync((size_t)(part_file_at(p) / BLOCK_BYTES));
    }
    end_record();
    assert_int_equal(part_file_finish(p, &err), 0);
    close(dir);
    remove_folder(root);
}

static void look_at_file(struct carry_world *w, size_t cut, uint64_t *draws)
{
    char path[PATH];
    uint64_t at;
    struct err err = {""};
    const int dir = carry_world_folder(w, 'c');
    snprintf(path, sizeof path, "%s/c", w->root);
    leave(cut, path, draws);
    boot++;
    struct part_file *p = open_file(w, dir, &at);
    if (cut && at < (uint64_t)ops[cut - 1].safe * BLOCK_BYTES)
        fail_msg("after a cut behind %zu things of %zu, %zu MiB are there, and %zu blocks were safe", cut,
                 n_ops, (size_t)(at >> 20), ops[cut - 1].safe);
    assert_int_equal(part_file_write(p, w->weights + at, MANY - at, &err), 0);
    if (part_file_finish(p, &err)) /* which compares the hash of all of it */
        fail_msg("after a cut behind %zu things of %zu: %s", cut, n_ops, err.text);
    close(dir);
    remove_folder(path);
}

static void of_a_file_that_a_hub_sends(void **state)
{
    (void)state;
    struct carry_world w;
    uint64_t draws = 3;
    carry_world_open(&w, MANY);
    record_file(&w);
    assert_int_equal(ops[n_ops - 1].safe, MANY_BLOCKS / HELD * HELD);
    for (size_t cut = 0; cut <= n_ops; cut++)
        look_at_file(&w, cut, &draws);
    forget_ops();
    carry_world_close(&w);
}

/* The last block is what the thread syncs when the disk loses it; all that comes then goes well. */
static void a_file_of_which_the_disk_lost_bytes_gets_no_name(void **state)
{
    (void)state;
    struct carry_world w;
    struct stat st;
    uint64_t at;
    struct err err = {""};
    carry_world_open(&w, MANY);
    const int dir = carry_world_folder(&w, 'b');
    struct part_file *p = open_file(&w, dir, &at);
    assert_int_equal(part_file_write(p, w.weights, MANY / 2, &err), 0);
    syncer_wait(asked);
    loses = true;
    assert_int_equal(part_file_write(p, w.weights + MANY / 2, MANY - MANY / 2, &err), 0);
    syncer_wait(asked);
    assert_int_equal(part_file_finish(p, &err), -EIO);
    assert_non_null(strstr(err.text, w.manifest->files[1].name));
    assert_int_equal(fstatat(dir, w.manifest->files[1].name, &st, 0), -1);
    close(dir);
    carry_world_close(&w);
}

int main(void)
{
    main_thread = pthread_self();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_a_file_that_a_hub_sends),
        cmocka_unit_test(a_file_of_which_the_disk_lost_bytes_gets_no_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
