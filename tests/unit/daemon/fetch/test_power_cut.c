/* SPDX-License-Identifier: MIT
 *
 * A power cut while nodes bring a model. The store is opened on what it leaves (recorded_disk.h):
 * nothing that it believes is wrong, no more is lost than what came during a sync, and the rest
 * comes. */
#include "tests/unit/daemon/fetch/recorded_disk.h"

#include "daemon/fetch/carry/carry_disk.h"
#include "engine/file/have_map.h"

enum { PIECE = 1 << 20 };

/* --- the store -------------------------------------------------------------------------------- */

static void work(struct carry_disk *d)
{
    struct err err = {""};
    int r;
    while ((r = carry_disk_work(d, &err)) > 0)
        ;
    if (r)
        fail_msg("%s", err.text);
}

static struct carry_disk *open_store(const struct carry_world *w, int dir, bool knows_list)
{
    struct carry_disk *d;
    struct manifest *m;
    struct err err = {""};
    char list[DIGEST_HEX] = "";
    if (knows_list)
        manifest_list(list, w->list, w->list_n);
    if (carry_disk_open(&d, dir, CARRY_MODEL, w->content, list, &err))
        fail_msg("%s", err.text);
    if (!carry_disk_manifest(d)) {
        uint8_t *bytes = malloc(w->list_n);
        assert_non_null(bytes);
        memcpy(bytes, w->list, w->list_n);
        assert_int_equal(manifest_decode(&m, bytes, w->list_n, &err), 0);
        if (!knows_list) {
            manifest_forget(m);
            memset(bytes + w->list_n - (size_t)m->blocks * DIGEST, 0, (size_t)m->blocks * DIGEST);
        }
        carry_disk_plan(d, m, bytes, w->list_n);
    }
    assert_int_equal(carry_disk_want_all(d, &err), 0);
    while (!carry_disk_is_checked(d))
        assert_int_equal(carry_disk_work(d, &err), 1);
    return d;
}

static const uint8_t *right_bytes(const struct carry_world *w, uint32_t block)
{
    static const uint8_t config[] = "{\"model_type\":\"llama\"}";
    return manifest_file_of(w->manifest, block) ? w->weights + manifest_offset(w->manifest, block) : config;
}

/* False: none is missing. */
static bool bring_one(const struct carry_world *w, struct carry_disk *d)
{
    uint8_t all[64];
    uint32_t block;
    struct err err = {""};
    memset(all, 0xff, sizeof all);
    if (!carry_disk_next(d, all, &block))
        return false;
    const uint8_t *bytes = right_bytes(w, block);
    if (manifest_is_head(w->manifest, block))
        carry_disk_size_head(d, block, bytes);
    for (uint32_t at = 0, size = manifest_size(w->manifest, block); at < size; at += PIECE)
        assert_int_equal(
            carry_disk_write(d, block, at, bytes + at, size - at < PIECE ? size - at : PIECE, &err), 0);
    assert_int_equal(carry_disk_keep(d, block, w->manifest->hashes[block], &err), 0);
    return true;
}

/* So many of those that are missing come. Returns how many they are. */
static size_t bring(const struct carry_world *w, struct carry_disk *d, size_t most)
{
    size_t n = 0;
    for (work(d); n < most && bring_one(w, d); work(d))
        end_sync(++n);
    return n;
}

static size_t bring_rest(const struct carry_world *w, struct carry_disk *d)
{
    const size_t n = bring(w, d, SIZE_MAX);
    assert_true(carry_disk_is_whole(d));
    return n;
}

static bool is_right(const struct carry_world *w, int fd, uint32_t block)
{
    const uint32_t size = manifest_size(w->manifest, block);
    uint8_t *found = malloc(size);
    assert_non_null(found);
    const bool is = pread(fd, found, size, (off_t)manifest_offset(w->manifest, block)) == (ssize_t)size &&
                    !memcmp(found, right_bytes(w, block), size);
    free(found);
    return is;
}

/* As a stage sees it: what has its name, and is in its map or has none; and the head in any
 * case. */
static void look_as_a_stage(const struct carry_world *w, int dir, size_t cut)
{
    const struct manifest *m = w->manifest;
    if (!models_has_name(dir, CARRY_MODEL))
        return;
    for (uint32_t b = 0; b < m->blocks; b++) {
        char path[PATH];
        const size_t file = manifest_file_of(m, b);
        struct have_map *have = NULL;
        snprintf(path, sizeof path, CARRY_MODEL "/%s", m->files[file].name);
        const int fd = openat(dir, path, O_RDONLY | O_CLOEXEC);
        assert_true(fd >= 0);
        const bool is_whole = have_map_read(&have, dir, path, m->files[file].size) == -ENOENT,
                   is_here = is_whole || manifest_is_head(m, b) || have_map_has(have, b - m->first[file]);
        if (is_here && !is_right(w, fd, b))
            fail_msg("after a cut behind %zu things of %zu, a stage reads wrong bytes of block %u of %s", cut,
                     n_ops, b, path);
        have_map_close(have);
        close(fd);
    }
}

static void look_as_a_giver(const struct carry_world *w, struct carry_disk *d, size_t cut)
{
    uint8_t *found = malloc(HEAD_MOST);
    struct err err = {""};
    assert_non_null(found);
    for (uint32_t b = 0; b < w->manifest->blocks; b++) {
        const uint32_t size = manifest_size(w->manifest, b);
        if (!carry_disk_has(d, b))
            continue;
        if (manifest_size(carry_disk_manifest(d), b) != size || carry_disk_read(d, b, 0, found, size, &err) ||
            memcmp(found, right_bytes(w, b), size) != 0)
            fail_msg("after a cut behind %zu things of %zu, block %u is believed, and is wrong", cut, n_ops,
                     b);
    }
    free(found);
}

/* Returns how many blocks had to come again. */
static size_t cut_power(struct carry_world *w, size_t cut, bool knows_list, bool to_the_end, uint64_t *draws)
{
    char path[PATH];
    size_t missing = 0;
    const int dir = carry_world_folder(w, 'c');
    snprintf(path, sizeof path, "%s/c", w->root);
    leave(cut, path, draws);
    boot++;
    look_as_a_stage(w, dir, cut);
    struct carry_disk *d = open_store(w, dir, knows_list);
    look_as_a_giver(w, d, cut);
    for (uint32_t b = 0; b < w->manifest->blocks; b++)
        missing += !carry_disk_has(d, b);
    if (cut && missing > w->manifest->blocks - ops[cut - 1].safe)
        fail_msg("after a cut behind %zu things of %zu, %zu blocks of %u are missing, and %zu were safe", cut,
                 n_ops, missing, w->manifest->blocks, ops[cut - 1].safe);
    if (to_the_end)
        assert_int_equal(bring_rest(w, d), missing);
    carry_disk_close(d);
    if (to_the_end)
        assert_is_whole(w, dir);
    close(dir);
    remove_folder(path);
    return missing;
}

/* blocks: that come; SIZE_MAX: all of them. Ends at the moment after the last. */
static void record(struct carry_world *w, bool knows_list, size_t blocks)
{
    const int dir = begin_record(w);
    struct carry_disk *d = open_store(w, dir, knows_list);
    if (blocks == SIZE_MAX)
        bring_rest(w, d);
    else
        assert_int_equal(bring(w, d, blocks), blocks);
    end_record();
    carry_disk_close(d);
    close(dir);
    remove_folder(root);
}

/* At each thing that is no write, where order decides, and at some writes. */
static void nothing_wrong_is_believed(bool knows_list)
{
    struct carry_world w;
    uint64_t draws = knows_list ? 1 : 2;
    size_t looked = 0, least = SIZE_MAX;
    carry_world_open(&w, MANY);
    record(&w, knows_list, SIZE_MAX);
    for (size_t cut = 0; cut <= n_ops; cut++) {
        const bool is_write = cut < n_ops && ops[cut].kind == OP_WRITE;
        if (!is_write || draw_below(&draws, 8) == 0) {
            const size_t missing = cut_power(&w, cut, knows_list, looked++ % 16 == 0, &draws);
            least = missing < least ? missing : least;
        }
    }
    assert_int_equal(least, 0); /* what has come to its end stays */
    forget_ops();
    print_message("%zu cuts, of %zu moments\n", looked, n_ops + 1);
    carry_world_close(&w);
}

static void of_a_model_whose_list_is_known(void **state)
{
    (void)state;
    nothing_wrong_is_believed(true);
}

static void of_a_model_whose_list_is_made_of_what_comes(void **state)
{
    (void)state;
    nothing_wrong_is_believed(false);
}

/* What no sync has ended for is on the disk all the same: it is not fetched again. */
static void what_the_disk_got_by_itself_is_found(void **state)
{
    (void)state;
    struct carry_world w;
    enum { SOME = HELD };
    carry_world_open(&w, MANY);
    record(&w, true, 2 + SOME); /* what the model's name needs, and these */
    assert_int_equal(ops[n_ops - 1].safe, HELD);
    assert_int_equal(cut_power(&w, n_ops, true, true, NULL), w.manifest->blocks - 2 - SOME);
    forget_ops();
    carry_world_close(&w);
}

static void a_model_of_which_the_disk_lost_bytes_is_not_whole(void **state)
{
    (void)state;
    struct carry_world w;
    struct err err = {""};
    int r;
    carry_world_open(&w, MANY);
    const int dir = carry_world_folder(&w, 'b');
    struct carry_disk *d = open_store(&w, dir, true);
    bring(&w, d, w.manifest->blocks - 1);
    loses = true;
    bring_one(&w, d);
    syncer_wait(asked);
    while ((r = carry_disk_work(d, &err)) > 0)
        ;
    assert_int_equal(r, -EIO);
    assert_false(carry_disk_is_whole(d));
    carry_disk_close(d);
    close(dir);
    carry_world_close(&w);
}

int main(void)
{
    main_thread = pthread_self();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_a_model_whose_list_is_known),
        cmocka_unit_test(of_a_model_whose_list_is_made_of_what_comes),
        cmocka_unit_test(what_the_disk_got_by_itself_is_found),
        cmocka_unit_test(a_model_of_which_the_disk_lost_bytes_is_not_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
