/* SPDX-License-Identifier: MIT
 *
 * Results and disks: whatever goes wrong while a result is written, the older one stays as it was
 * and nothing half-written remains. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/lib/near.h"
#include "tests/lib/place.h"

enum { MOST = 8 };

/* Every file of a directory with its bytes. */
struct snapshot {
    size_t n;
    struct {
        char name[64];
        char *data; /* owned */
        size_t bytes;
    } file[MOST];
};

static int by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

static void snapshot_take(struct snapshot *s, const char *dir)
{
    *s = (struct snapshot){0};
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        if (e->d_name[0] == '.')
            continue;
        assert_in_range(s->n, 0, MOST - 1);
        snprintf(s->file[s->n].name, sizeof s->file[s->n].name, "%s", e->d_name);
        s->file[s->n].data = read_file(dir, e->d_name, &s->file[s->n].bytes);
        assert_non_null(s->file[s->n].data);
        s->n++;
    }
    closedir(d);
    qsort(s->file, s->n, sizeof *s->file, by_name);
}

static void snapshot_free(struct snapshot *s)
{
    for (size_t i = 0; i < s->n; i++)
        free(s->file[i].data);
}

/* The directory still holds these files, those bytes, and nothing else. */
static void assert_untouched(const struct snapshot *before, const char *dir)
{
    struct snapshot now;
    snapshot_take(&now, dir);
    for (size_t i = 0; i < now.n || i < before->n; i++) {
        if (i >= now.n || i >= before->n || strcmp(now.file[i].name, before->file[i].name))
            fail_msg("%s is new or gone", i < now.n ? now.file[i].name : before->file[i].name);
        assert_int_equal(now.file[i].bytes, before->file[i].bytes);
        assert_memory_equal(now.file[i].data, before->file[i].data, now.file[i].bytes);
    }
    snapshot_free(&now);
}

static void abandoned_results_leave_no_trace(void **state)
{
    struct place p;
    struct err err;
    struct adapter_out *out;
    struct snapshot before;
    size_t n;
    (void)state;
    place_make(&p, DTYPE_F32);
    struct tune tunes[] = {place_lora(&p, "q_proj", 0, PLACE_LAYERS),
                           {.kind = TUNE_FULL, .end_layer = PLACE_LAYERS}};
    for (size_t i = 0; i < 2; i++) {
        float *values = place_random(&p, &tunes[i], &n);
        struct adapter_out_request req = place_request(&p, &tunes[i], 1);
        must(place_write(&req, values, &err), &err);
        snapshot_take(&before, p.out);
        must(adapter_out_open(&out, &req, &err), &err);
        must(adapter_out_piece(out, &(struct param_piece){0, 0, 3 * place_elements(&p, &tunes[i], 0)}, values,
                               &err),
             &err);
        adapter_out_abort(out);
        assert_untouched(&before, p.out);
        must(adapter_out_open(&out, &req, &err), &err); /* finished before all units came */
        must_refuse(adapter_out_finish(out, &err), -ENODATA, &err, "was never written");
        assert_untouched(&before, p.out);
        snapshot_free(&before);
        free(values);
    }
    adapter_out_abort(NULL);
    place_free(&p);
}

static void bad_directories_are_refused(void **state)
{
    struct place p;
    struct err err;
    struct adapter_out *out = NULL;
    (void)state;
    place_make(&p, DTYPE_F32);
    struct tune tune = place_lora(&p, "q_proj", 0, PLACE_LAYERS);
    struct adapter_out_request req = place_request(&p, &tune, 1);
    req.dir = "/nonexistent/parent/out";
    must_refuse(adapter_out_open(&out, &req, &err), -ENOENT, &err,
                "/nonexistent/parent/out cannot be created: No such file or directory");
    write_file(p.dir.path, "out", "a file");
    req.dir = p.out;
    assert_int_equal(adapter_out_open(&out, &req, &err), -ENOTDIR);
    assert_non_null(strstr(err.text, p.out));
    assert_null(out);
    place_free(&p);
}

/* --- a small disk ----------------------------------------------------------------------------- */

/* Mounts a tmpfs of `kib` on DIR/out, for this process alone; the test is skipped where that is not
 * allowed.
 */
static void mount_small(struct place *p, unsigned kib)
{
    char options[64];
    snprintf(options, sizeof options, "size=%uk", kib);
    assert_int_equal(mkdir(p->out, 0777), 0);
    if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        mount("tmpfs", p->out, "tmpfs", 0, options)) {
        print_message("a small tmpfs cannot be mounted (%s): only root may\n", strerror(errno));
        place_free(p);
        skip();
    }
}

/* Fills the disk until `kib` are left. */
static void leave(const struct place *p, unsigned kib)
{
    struct statvfs vfs;
    char path[256];
    assert_int_equal(statvfs(p->out, &vfs), 0);
    size_t room = vfs.f_bavail * vfs.f_frsize;
    assert_true(room > kib * 1024UL);
    snprintf(path, sizeof path, "%s/ballast", p->out);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    assert_true(fd >= 0);
    assert_int_equal(posix_fallocate(fd, 0, (off_t)(room - kib * 1024UL)), 0);
    assert_int_equal(close(fd), 0);
}

/* With so much room a result cannot be begun; with more it can. */
static void check_full_disk(const struct tune *tune, unsigned kib, const char *says)
{
    struct place p;
    struct err err;
    struct adapter_out *out = NULL;
    struct snapshot before;
    struct tune mine = *tune;
    size_t n;
    char path[256], *big = malloc(200001);
    assert_non_null(big);
    memset(big, ' ', 200000);
    big[200000] = 0;
    place_make(&p, DTYPE_F32);
    write_file(p.model, "tokenizer.json", big);
    free(big);
    mount_small(&p, 4096);
    float *values = place_random(&p, &mine, &n);
    struct adapter_out_request req = place_request(&p, &mine, 1);
    must(place_write(&req, values, &err), &err);
    leave(&p, kib);
    snapshot_take(&before, p.out);
    must_refuse(adapter_out_open(&out, &req, &err), -ENOSPC, &err, says);
    must_refuse(-ENOSPC, -ENOSPC, &err, p.out);
    assert_null(out);
    assert_untouched(&before, p.out);
    snapshot_free(&before);
    snprintf(path, sizeof path, "%s/ballast", p.out);
    assert_int_equal(unlink(path), 0);
    must(place_write(&req, values, &err), &err);
    free(values);
    assert_int_equal(umount(p.out), 0);
    place_free(&p);
}

static void a_full_disk_is_found_at_once(void **state)
{
    struct place p;
    (void)state;
    place_make(&p, DTYPE_F32);
    struct tune adapter = place_lora(&p, "all-linear", 0, PLACE_LAYERS),
                full = {.kind = TUNE_FULL, .end_layer = PLACE_LAYERS};
    place_free(&p);
    check_full_disk(&adapter, 4, "adapter_model.safetensors needs");
    check_full_disk(&adapter, 28, "adapters.safetensors needs");
    check_full_disk(&adapter, 52, "training_state.safetensors needs");
    check_full_disk(&full, 16, "model.safetensors needs");
    check_full_disk(&full, 300, "tokenizer.json cannot be written: No space left on device");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(abandoned_results_leave_no_trace),
        cmocka_unit_test(bad_directories_are_refused),
        cmocka_unit_test(a_full_disk_is_found_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
