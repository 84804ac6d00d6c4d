/* SPDX-License-Identifier: MIT
 *
 * All that a store asks of the disk is recorded. Then the disk is made again as a power cut at some
 * moment may leave it.
 *
 * What a cut leaves: bytes of a file that were synced; of later writes to it any, each for
 * itself. Names that were made, changed or removed before a folder was synced; of later ones as
 * many as there may be, in their order, as file systems with a journal have it.
 *
 * A program that includes this is linked with --wrap of all the functions below (Makefile), and
 * sets main_thread. */
#ifndef TESTS_UNIT_RECORDED_DISK_H
#define TESTS_UNIT_RECORDED_DISK_H

#include "tests/unit/daemon/fetch/carry_checks.h"

#include <pthread.h>

#include "daemon/fetch/syncer.h"
#include "engine/file/boot_id.h"

enum {
    MANY_BLOCKS = 17,
    MANY = MANY_BLOCKS * BLOCK_BYTES + 100,
    HELD = 3, /* blocks that come while the disk syncs */
    OPS = 4000,
    FILES = 200,
    PATH = 400
};

/* --- what is recorded ------------------------------------------------------------------------- */

enum op_kind { OP_CREATE, OP_WRITE, OP_TRUNCATE, OP_SYNC, OP_SYNC_NAMES, OP_RENAME, OP_UNLINK, OP_MKDIR };
struct op {
    enum op_kind kind;
    size_t file;
    char path[PATH], other[PATH]; /* below the folder of models */
    uint8_t *bytes;               /* owned */
    uint64_t at, n;
    size_t safe; /* blocks that a cut from here on leaves */
};
static struct op ops[OPS];
static size_t n_ops;
static struct {
    ino_t inode;
    bool is_gone;
} files[FILES];
static size_t n_files;
static bool records;
static char root[PATH];
static int boot; /* the number of this start of the machine */
static size_t safe;
/* Of what is recorded, for the thread that syncs too. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t opened = PTHREAD_COND_INITIALIZER;
static bool holds; /* the disk does not end a sync of that thread, */
static bool loses; /* or loses what the next one is of, and says so once */
static pthread_t main_thread;
static struct syncer *asked;

static inline struct op *add_op(enum op_kind kind)
{
    assert_true(n_ops < OPS);
    ops[n_ops] = (struct op){.kind = kind, .safe = safe};
    return &ops[n_ops++];
}

static inline void path_of(int dir, const char *name, char ret[PATH])
{
    char link[64], folder[PATH];
    snprintf(link, sizeof link, "/proc/self/fd/%d", dir);
    const ssize_t n = readlink(link, folder, sizeof folder - 1);
    const size_t start = strlen(root);
    assert_true(n > 0 && (size_t)n >= start && !memcmp(folder, root, start));
    folder[n] = '\0';
    assert_true(snprintf(ret, PATH, "%s/%s", folder + start, name) < PATH);
}

static inline size_t file_of(int fd)
{
    struct stat st;
    assert_int_equal(fstat(fd, &st), 0);
    for (size_t i = n_files; i-- > 0;)
        if (files[i].inode == st.st_ino)
            return i;
    fail_msg("a file that nobody has made");
    return 0;
}

int __real_openat(int dir, const char *name, int flags, ...);
ssize_t __real_pwrite(int fd, const void *bytes, size_t n, off_t at);
ssize_t __real_write(int fd, const void *bytes, size_t n);
int __real_ftruncate(int fd, off_t n);
int __real_fsync(int fd);
int __real_fdatasync(int fd);
int __real_renameat(int from, const char *a, int to, const char *b);
int __real_unlinkat(int dir, const char *name, int flags);
int __real_mkdirat(int dir, const char *name, mode_t mode);
int __wrap_openat(int dir, const char *name, int flags, ...);
ssize_t __wrap_pwrite(int fd, const void *bytes, size_t n, off_t at);
ssize_t __wrap_write(int fd, const void *bytes, size_t n);
int __wrap_ftruncate(int fd, off_t n);
int __wrap_fsync(int fd);
int __wrap_fdatasync(int fd);
int __wrap_renameat(int from, const char *a, int to, const char *b);
int __wrap_unlinkat(int dir, const char *name, int flags);
int __wrap_mkdirat(int dir, const char *name, mode_t mode);
void __wrap_boot_id(char ret[BOOT_ID]);

int __wrap_openat(int dir, const char *name, int flags, ...)
{
    const bool is_new = records && flags & O_CREAT && faccessat(dir, name, F_OK, AT_SYMLINK_NOFOLLOW);
    const int fd = __real_openat(dir, name, flags, 0640);
    struct stat st;
    if (!is_new || fd < 0)
        return fd;
    pthread_mutex_lock(&lock);
    assert_true(n_files < FILES && !fstat(fd, &st));
    files[n_files].inode = st.st_ino;
    struct op *op = add_op(OP_CREATE);
    op->file = n_files++;
    path_of(dir, name, op->path);
    pthread_mutex_unlock(&lock);
    return fd;
}

static inline void note_write(int fd, const void *bytes, size_t n, uint64_t at)
{
    struct op *op = add_op(OP_WRITE);
    op->file = file_of(fd);
    op->at = at;
    op->n = n;
    op->bytes = malloc(n);
    assert_non_null(op->bytes);
    memcpy(op->bytes, bytes, n);
}

ssize_t __wrap_pwrite(int fd, const void *bytes, size_t n, off_t at)
{
    pthread_mutex_lock(&lock);
    if (records)
        note_write(fd, bytes, n, (uint64_t)at);
    pthread_mutex_unlock(&lock);
    return __real_pwrite(fd, bytes, n, at);
}

ssize_t __wrap_write(int fd, const void *bytes, size_t n)
{
    if (records)
        note_write(fd, bytes, n, (uint64_t)lseek(fd, 0, SEEK_CUR));
    return __real_write(fd, bytes, n);
}

int __wrap_ftruncate(int fd, off_t n)
{
    pthread_mutex_lock(&lock);
    if (records) {
        struct op *op = add_op(OP_TRUNCATE);
        op->file = file_of(fd);
        op->n = (uint64_t)n;
    }
    pthread_mutex_unlock(&lock);
    return __real_ftruncate(fd, n);
}

/* begun: what was asked before it began is safe. */
static inline void note_sync(int fd, size_t begun)
{
    struct stat st;
    assert_int_equal(fstat(fd, &st), 0);
    struct op *op = add_op(S_ISDIR(st.st_mode) ? OP_SYNC_NAMES : OP_SYNC);
    op->file = S_ISDIR(st.st_mode) ? 0 : file_of(fd);
    op->at = begun;
}

static inline int sync_it(int fd)
{
    pthread_mutex_lock(&lock);
    const size_t begun = n_ops;
    while (records && holds && !pthread_equal(pthread_self(), main_thread))
        pthread_cond_wait(&opened, &lock);
    if (records)
        note_sync(fd, begun);
    const bool is_lost = loses && !pthread_equal(pthread_self(), main_thread);
    loses &= !is_lost;
    pthread_mutex_unlock(&lock);
    errno = EIO;
    return is_lost ? -1 : 0;
}

int __wrap_fsync(int fd)
{
    return sync_it(fd);
}

int __wrap_fdatasync(int fd)
{
    return sync_it(fd);
}

int __wrap_renameat(int from, const char *a, int to, const char *b)
{
    char path[PATH], other[PATH];
    if (records) {
        path_of(from, a, path);
        path_of(to, b, other);
    }
    const int r = __real_renameat(from, a, to, b);
    pthread_mutex_lock(&lock);
    if (records && !r) {
        struct op *op = add_op(OP_RENAME);
        memcpy(op->path, path, PATH);
        memcpy(op->other, other, PATH);
    }
    pthread_mutex_unlock(&lock);
    return r;
}

static inline void note_name(enum op_kind kind, int dir, const char *name, int r)
{
    pthread_mutex_lock(&lock);
    if (records && !r)
        path_of(dir, name, add_op(kind)->path);
    pthread_mutex_unlock(&lock);
}

int __wrap_unlinkat(int dir, const char *name, int flags)
{
    const int r = __real_unlinkat(dir, name, flags);
    note_name(OP_UNLINK, dir, name, r);
    return r;
}

int __wrap_mkdirat(int dir, const char *name, mode_t mode)
{
    const int r = __real_mkdirat(dir, name, mode);
    note_name(OP_MKDIR, dir, name, r);
    return r;
}

void __wrap_boot_id(char ret[BOOT_ID])
{
    snprintf(ret, BOOT_ID, "start-%d", boot);
}

static inline void hold(bool on)
{
    pthread_mutex_lock(&lock);
    holds = on;
    pthread_cond_broadcast(&opened);
    pthread_mutex_unlock(&lock);
}

int __real_syncer_ask(struct syncer *s, const struct sync_order *o);
int __wrap_syncer_ask(struct syncer *s, const struct sync_order *o);
int __wrap_syncer_ask(struct syncer *s, const struct sync_order *o)
{
    asked = s;
    return __real_syncer_ask(s, o);
}

/* The store waits for the thread there. */
int __real_syncer_forget(struct syncer *s, int file);
int __wrap_syncer_forget(struct syncer *s, int file);
int __wrap_syncer_forget(struct syncer *s, int file)
{
    const bool held = holds;
    hold(false);
    const int r = __real_syncer_forget(s, file);
    hold(held);
    return r;
}

/* A sync ends after so many blocks, before others come. */
static inline void end_sync(size_t kept)
{
    if (!records || kept % HELD != 0)
        return;
    hold(false);
    syncer_wait(asked);
    hold(true);
    safe = kept;
}

/* What comes from now on is recorded, in the folder b of the world. Returns the folder, which
 * end_record closes. */
static inline int begin_record(struct carry_world *w)
{
    const int dir = carry_world_folder(w, 'b');
    snprintf(root, sizeof root, "%s/b", w->root);
    n_ops = n_files = safe = 0;
    hold(true);
    records = true;
    return dir;
}

/* What comes from now on is not. */
static inline void end_record(void)
{
    pthread_mutex_lock(&lock);
    records = false;
    pthread_mutex_unlock(&lock);
    hold(false);
}

/* --- what a cut leaves ------------------------------------------------------------------------ */

/* One of 0 … n − 1, the same in every run. */
static inline size_t draw_below(uint64_t *draws, size_t n)
{
    *draws = *draws * 6364136223846793005 + 1442695040888963407;
    return (size_t)(*draws >> 33) % n;
}

static inline bool is_of_names(const struct op *op)
{
    return op->kind == OP_CREATE || op->kind == OP_RENAME || op->kind == OP_UNLINK || op->kind == OP_MKDIR;
}

static inline size_t last_sync(size_t cut, bool of_names, size_t file)
{
    for (size_t i = cut; i-- > 0;)
        if (of_names ? ops[i].kind == OP_SYNC_NAMES : ops[i].kind == OP_SYNC && ops[i].file == file)
            return of_names ? i : ops[i].at;
    return 0;
}

static inline void redo(const struct op *op, const char *to, int fds[FILES])
{
    char path[2 * PATH], other[2 * PATH];
    snprintf(path, sizeof path, "%s%s", to, op->path);
    snprintf(other, sizeof other, "%s%s", to, op->other);
    if (op->kind == OP_CREATE)
        fds[op->file] = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0640);
    else if (op->kind == OP_RENAME)
        assert_int_equal(rename(path, other), 0);
    else if (op->kind == OP_UNLINK)
        assert_int_equal(remove(path), 0);
    else if (op->kind == OP_MKDIR)
        assert_int_equal(mkdir(path, 0770), 0);
    else if (op->kind == OP_WRITE && fds[op->file] >= 0)
        assert_int_equal(__real_pwrite(fds[op->file], op->bytes, op->n, (off_t)op->at), op->n);
    else if (op->kind == OP_TRUNCATE && fds[op->file] >= 0)
        assert_int_equal(__real_ftruncate(fds[op->file], (off_t)op->n), 0);
}

/* The first `cut` things were asked of the disk. draws: NULL: it got all of them by itself. */
static inline void leave(size_t cut, const char *to, uint64_t *draws)
{
    int fds[FILES];
    const size_t named = last_sync(cut, true, 0),
                 names = draws ? named + draw_below(draws, cut - named + 1) : cut; /* so many survive */
    memset(fds, -1, sizeof fds);
    for (size_t i = 0; i < cut; i++) {
        const bool survives = is_of_names(&ops[i])
                                  ? i < names
                                  : i < last_sync(cut, false, ops[i].file) || !draws || draw_below(draws, 2);
        if (survives)
            redo(&ops[i], to, fds);
    }
    for (size_t i = 0; i < FILES; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

static inline void remove_folder(const char *path)
{
    char command[2 * PATH];
    snprintf(command, sizeof command, "rm -r %s", path);
    assert_int_equal(system(command), 0);
}

static inline void forget_ops(void)
{
    for (size_t i = 0; i < n_ops; i++)
        free(ops[i].bytes);
}

#endif
