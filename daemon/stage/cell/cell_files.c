/* SPDX-License-Identifier: MIT
 *
 * Landlock: each file and folder of the job is opened as a mere place, its real path is compared
 * with the daemon's state directory, and it becomes a rule. What has no rule cannot be opened. */
#include "daemon/stage/cell/cell_impl.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/landlock.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "daemon/common/cache_dir.h"
#include "daemon/common/cell_kernel.h"
#include "daemon/common/folder_files.h"
#include "daemon/common/output_path.h"
#include "engine/file/gguf_path.h"
#include "engine/file/input.h"

/* Of later ABIs than Debian 12's header has; linux/landlock.h. */
#define TRUNCATE (UINT64_C(1) << 14)               /* ABI 3 */
#define BIND_CONNECT_TCP (UINT64_C(3))             /* ABI 4 */
#define IOCTL_DEV (UINT64_C(1) << 15)              /* ABI 5 */
#define SCOPE_ABSTRACT_SOCKET_SIGNAL (UINT64_C(3)) /* ABI 6 */
#define FILES_OF_ABI_1 ((UINT64_C(1) << 13) - 1)

#define READ_FILE ((uint64_t)LANDLOCK_ACCESS_FS_READ_FILE)
#define READ (READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define WRITE_FILE (READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE | TRUNCATE)
#define WRITE                                                                                                \
    (READ | WRITE_FILE | LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_DIR |                         \
     LANDLOCK_ACCESS_FS_REMOVE_FILE)

enum { ENTRIES_MOST = 65536 }; /* files of a folder */

/* struct landlock_ruleset_attr as ABI 6 has it. */
struct ruleset {
    uint64_t files, sockets, scopes;
};

struct files {
    const struct cell_rules *rules; /* borrowed */
    int ruleset;                    /* owned */
    uint64_t handled;
    char state[PATH_MAX]; /* its real path, or "" */
};

/* --- places ----------------------------------------------------------------------------------- */

static int open_place(int folder, const char *path)
{
    return openat(folder, path, O_PATH | O_CLOEXEC);
}

static int real_path(char ret[PATH_MAX], int place)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", place);
    ssize_t n = readlink(link, ret, PATH_MAX - 1);
    ret[n < 0 ? 0 : n] = '\0';
    return n < 0 || n == PATH_MAX - 1 || *ret != '/' ? -EINVAL : 0;
}

/* What of `path` comes behind `folder`: "" for itself, "/…" for what is in it, else NULL. */
static const char *behind(const char *path, const char *folder)
{
    const size_t n = strlen(folder);
    return !strncmp(path, folder, n) && (!path[n] || path[n] == '/') ? path + n : NULL;
}

static int refuse(const char *option, const char *path, const char *real, struct err *err)
{
    return err_set(err, -EPERM,
                   "%s %s leads to %s, which is ringd's own: what a job reads and writes lies elsewhere, or "
                   "among its results and models",
                   option, path, real);
}

/* −EPERM: nobody but the daemon has to do with it. Of a folder that is written, nothing of the
 * daemon's may lie in it either. */
static int check_place(const struct files *f, int place, bool writes, const char *option, const char *path,
                       struct err *err)
{
    char real[PATH_MAX];
    int r = real_path(real, place);
    if (r)
        return err_set(err, r, "%s %s has no path that can be named", option, path);
    return output_path_is_own(f->state, real) || (writes && *f->state && behind(f->state, real))
               ? refuse(option, path, real, err)
               : 0;
}

/* --- rules ------------------------------------------------------------------------------------ */

static int add_rule(const struct files *f, int place, uint64_t access, struct err *err)
{
    const struct landlock_path_beneath_attr rule = {.allowed_access = access & f->handled,
                                                    .parent_fd = place};
    return f->ruleset >= 0 && syscall(SYS_landlock_add_rule, f->ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0)
               ? err_set(err, -errno, "the stage process cannot be confined to its files: %s",
                         strerror(errno))
               : 0;
}

static bool is_folder(int place)
{
    struct stat st;
    return !fstat(place, &st) && S_ISDIR(st.st_mode);
}

/* A file in the folder whose real path is `folder`, or what a link there leads to. */
static int add_entry(const struct files *f, int entry, const char *option, const char *path,
                     const char *folder, struct err *err)
{
    char real[PATH_MAX];
    int r = real_path(real, entry);
    if (r)
        return 0; /* gone by now */
    if (output_path_is_own(f->state, real))
        return refuse(option, path, real, err);
    if (!folder_file_may_lie(real, folder))
        return err_set(err, -EPERM, "%s: %s leads to %s, which is in no model: put a copy in its place",
                       option, path, real);
    return add_rule(f, entry, READ_FILE, err);
}

/* Its files, and nothing of folders in it. */
static int add_entries(const struct files *f, int place, const char *option, const char *path,
                       struct err *err)
{
    char folder[PATH_MAX];
    int r = real_path(folder, place);
    int fd = r ? -1 : openat(place, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    size_t n = 0;
    if (!dir && fd >= 0)
        close(fd);
    for (struct dirent *e; dir && !r && (e = readdir(dir));) {
        int entry = folder_file_is_read(e->d_name) ? open_place(place, e->d_name) : -1;
        char name[PATH_MAX];
        if (entry < 0)
            continue;
        snprintf(name, sizeof name, "%s/%s", path, e->d_name);
        if (++n > ENTRIES_MOST)
            r = err_set(err, -E2BIG, "%s %s has more than %d files: a folder of its own helps", option, path,
                        ENTRIES_MOST);
        else if (!is_folder(entry))
            r = add_entry(f, entry, option, name, folder, err);
        close(entry);
    }
    if (dir)
        closedir(dir);
    return r ? r : add_rule(f, place, LANDLOCK_ACCESS_FS_READ_DIR, err);
}

static int add_one(const struct files *f, enum cell_use use, const char *option, const char *path,
                   struct err *err)
{
    int place = open_place(AT_FDCWD, path), r = 0;
    if (place < 0)
        return 0;
    const bool has_files = is_folder(place),
               is_wanted = use != CELL_MODEL || (!has_files && gguf_is_path(path)) ||
                           (has_files && !faccessat(place, "config.json", F_OK, 0));
    if (is_wanted)
        r = check_place(f, place, false, option, path, err);
    if (is_wanted && !r)
        r = has_files ? add_entries(f, place, option, path, err) : add_rule(f, place, READ_FILE, err);
    close(place);
    return r;
}

/* Of a GGUF file all of its parts. */
static int add_read(const struct files *f, enum cell_use use, const char *option, const char *path,
                    struct err *err)
{
    int r = 0;
    for (size_t i = 0; i < gguf_path_parts(path) && !r; i++) {
        char *part = gguf_path_part(path, i);
        r = part ? add_one(f, use, option, part, err) : err_set(err, -ENOMEM, "out of memory");
        free(part);
    }
    return r;
}

/* The folder that the last part of `path` lies in, that part behind `ret_name`. −1: there is none,
 * or its part is none to make. */
static int open_parent(const char *path, const char **ret_name)
{
    char parent[PATH_MAX];
    const char *slash = strrchr(path, '/');
    *ret_name = slash ? slash + 1 : path;
    snprintf(parent, sizeof parent, "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
    return strlen(path) < PATH_MAX && **ret_name && strcmp(*ret_name, ".") && strcmp(*ret_name, "..")
               ? open_place(AT_FDCWD, parent)
               : -1;
}

/* Whatever goes wrong here shows again when it is opened. */
static int make(const struct files *f, enum cell_use use, const char *option, const char *path,
                struct err *err)
{
    const char *name;
    char real[PATH_MAX];
    int parent = open_parent(path, &name), r = parent < 0 ? -ENOENT : real_path(real, parent);
    if (!r) { /* a name that may be one in results/ is made there */
        const size_t n = strlen(real);
        snprintf(real + n, sizeof real - n, "/%s", name);
        r = output_path_is_own(f->state, real) ? refuse(option, path, real, err) : 0;
        if (!r && use == CELL_WRITE)
            (void)mkdirat(parent, name, 0777);
        int file = !r && use == CELL_APPEND
                       ? openat(parent, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666)
                       : -1;
        if (file >= 0)
            close(file);
    }
    if (parent >= 0)
        close(parent);
    return r == -EPERM ? r : 0;
}

static int add_write(const struct files *f, enum cell_use use, const char *option, const char *path,
                     struct err *err)
{
    int r = f->rules->must_not_make ? 0 : make(f, use, option, path, err);
    int place = r ? -1 : open_place(AT_FDCWD, path);
    if (place < 0)
        return r;
    const bool has_files = is_folder(place);
    r = check_place(f, place, has_files, option, path, err);
    if (!r && has_files == (use == CELL_WRITE))
        r = add_rule(f, place, has_files ? WRITE : WRITE_FILE, err);
    close(place);
    return r;
}

static int add_job(const struct files *f, struct err *err)
{
    int r = 0;
    for (size_t i = 0; i < f->rules->n && !r; i++) {
        const enum cell_use use = f->rules->at[i].use;
        r = (use == CELL_MODEL || use == CELL_READ ? add_read : add_write)(f, use, f->rules->at[i].option,
                                                                           f->rules->at[i].path, err);
    }
    return r;
}

/* --- what every stage needs ------------------------------------------------------------------- */

/* Hashes of weights, quantized weights and times are kept there, from job to job. Where it lies is
 * the daemon's own setting, so it may lie in the state directory, but not around it. */
static int add_cache(const struct files *f, struct err *err)
{
    char path[PATH_MAX], real[PATH_MAX];
    struct err quiet;
    if (cache_dir(path, sizeof path, "", &quiet))
        return 0;
    path[strlen(path) - 1] = '\0'; /* the slash before "" */
    (void)input_make_dir(path);
    int place = open_place(AT_FDCWD, path), r = place < 0 ? -1 : real_path(real, place);
    if (!r && *f->state && behind(f->state, real))
        r = err_set(err, -EPERM, "the cache %s holds the state directory %s: start ringd with another %s",
                    path, f->state, "CACHE_DIRECTORY");
    else if (!r)
        r = add_rule(f, place, WRITE, err);
    if (place >= 0)
        close(place);
    return place < 0 ? 0 : r;
}

/* The files of /proc are made anew when nobody holds them, and a rule with them: these descriptors
 * stay open. */
static int add_system(const struct files *f, struct err *err)
{
    static const struct {
        const char *path;
        bool stays;
    } places[] = {{"/proc/self", true},
                  {"/proc/meminfo", true},
                  {"/proc/cpuinfo", true},
                  {"/proc/stat", true},
                  {"/proc/sys/kernel/random/boot_id", true}, /* boot_id.h */
                  {"/sys/devices/system/cpu", false},
                  {"/sys/devices/system/node", false},
                  {"/sys/fs/cgroup", false},
                  {"/etc/localtime", false},
                  {"/usr/share/zoneinfo", false}};
    int r = 0;
    for (size_t i = 0; i < sizeof places / sizeof *places && !r; i++) {
        int place = open_place(AT_FDCWD, places[i].path);
        if (place < 0)
            continue;
        r = add_rule(f, place, is_folder(place) ? READ : READ_FILE, err);
        if (r || !places[i].stays)
            close(place);
    }
    return r;
}

/* --- all of it -------------------------------------------------------------------------------- */

static int open_ruleset(struct files *f, struct err *err)
{
    unsigned abi = cell_kernel_landlock();
    if (f->rules->landlock_most && abi > f->rules->landlock_most)
        abi = f->rules->landlock_most;
    f->ruleset = -1;
    if (!abi)
        return 0;
    f->handled = FILES_OF_ABI_1 | (abi >= 2 ? LANDLOCK_ACCESS_FS_REFER : 0) | (abi >= 3 ? TRUNCATE : 0) |
                 (abi >= 5 ? IOCTL_DEV : 0);
    const struct ruleset all = {f->handled, abi >= 4 ? BIND_CONNECT_TCP : 0,
                                abi >= 6 ? SCOPE_ABSTRACT_SOCKET_SIGNAL : 0};
    const size_t size = abi >= 6 ? sizeof all : abi >= 4 ? 2 * sizeof(uint64_t) : sizeof(uint64_t);
    f->ruleset = (int)syscall(SYS_landlock_create_ruleset, &all, size, 0);
    return f->ruleset < 0 ? err_set(err, -errno, "the stage process cannot be confined to its files: %s",
                                    strerror(errno))
                          : 0;
}

static int find_state(struct files *f, struct err *err)
{
    if (!f->rules->state)
        return 0;
    int place = open_place(AT_FDCWD, f->rules->state), r = place < 0 ? -errno : real_path(f->state, place);
    if (place >= 0)
        close(place);
    return r ? err_set(err, r, "the state directory %s cannot be found: %s", f->rules->state, strerror(-r))
             : 0;
}

int cell_close_files(const struct cell_rules *rules, struct err *err)
{
    struct files f = {.rules = rules, .ruleset = -1};
    int r = find_state(&f, err);
    if (!r)
        r = open_ruleset(&f, err);
    if (!r)
        r = add_job(&f, err);
    if (!r)
        r = add_cache(&f, err);
    if (!r)
        r = add_system(&f, err);
    if (!r && f.ruleset >= 0 && syscall(SYS_landlock_restrict_self, f.ruleset, 0))
        r = err_set(err, -errno, "the stage process cannot be confined to its files: %s", strerror(errno));
    if (f.ruleset >= 0)
        close(f.ruleset);
    return r;
}
