/* SPDX-License-Identifier: MIT */
#include "daemon/stage/cell/cell_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "daemon/common/ipc.h"
#include "engine/file/lent.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define IS_INSTRUMENTED true /* the sanitizer has threads, mappings and calls of its own */
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define IS_INSTRUMENTED true
#endif
#endif
#ifndef IS_INSTRUMENTED
#define IS_INSTRUMENTED false
#endif

enum {
    THREADS_BESIDE = 64, /* those of lanes, and what else is no thread of the pool */
};
/* Of a thread: its stack, and twice what malloc sets aside for an arena, which it aligns. */
static const uint64_t THREAD_BYTES = (UINT64_C(8) + 128) << 20, BESIDE_BYTES = UINT64_C(4) << 30;

int cell_add(struct cell_rules *rules, enum cell_use use, const char *option, const char *path,
             struct err *err)
{
    if (!path || !*path)
        return 0;
    if (rules->n == CELL_PATHS_MAX)
        return err_set(err, -E2BIG, "a job names more than %d paths", CELL_PATHS_MAX);
    char *copy = strdup(path);
    if (!copy)
        return err_set(err, -ENOMEM, "out of memory");
    rules->at[rules->n].use = use;
    snprintf(rules->at[rules->n].option, sizeof rules->at[rules->n].option, "%s", option);
    rules->at[rules->n++].path = copy;
    return 0;
}

void cell_rules_done(struct cell_rules *rules)
{
    for (size_t i = 0; i < rules->n; i++)
        free(rules->at[i].path);
    free(rules->state);
    *rules = (struct cell_rules){0};
}

/* --- what a process inherits ------------------------------------------------------------------ */

static void lower(int resource, rlim_t to)
{
    struct rlimit limit;
    if (getrlimit(resource, &limit))
        return;
    if (limit.rlim_max > to)
        limit.rlim_max = to;
    if (limit.rlim_cur > limit.rlim_max)
        limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(resource, &limit); /* lower is always allowed */
}

static void replace(int fd, const char *path, int flags)
{
    int new = open(path, flags | O_CLOEXEC | O_NOCTTY);
    if (new < 0)
        return;
    dup3(new, fd, 0);
    close(new);
}

/* What was lent stays. Nothing is read from a terminal, and what is written there is what libraries
 * complain of. */
static void close_descriptors(unsigned kept)
{
    unsigned from = IPC_PROGRESS_FD + 1 + kept;
    for (int lent; (lent = lent_next((int)from)) >= 0; from = (unsigned)lent + 1)
        if ((unsigned)lent > from)
            close_range(from, (unsigned)lent - 1, 0);
    close_range(from, ~0U, 0);
    replace(STDIN_FILENO, "/dev/null", O_RDONLY);
    replace(STDOUT_FILENO, "/dev/null", O_WRONLY);
    if (isatty(STDERR_FILENO))
        replace(STDERR_FILENO, "/proc/self/fd/2", O_WRONLY);
}

/* A daemon that is root's: what remains is that its stage opens what root may open. Which files
 * that can be, the rules say. */
static int drop_capabilities(struct err *err)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct has[2];
    const uint32_t keep = 1U << CAP_DAC_OVERRIDE | 1U << CAP_DAC_READ_SEARCH;
    if (syscall(SYS_capget, &header, has))
        return 0; /* a kernel without them has none to lose */
    if (!has[0].permitted && !has[1].permitted)
        return 0; /* a service may not even ask for fewer */
    for (int i = 0; i < 2; i++) {
        has[i].effective &= i ? 0 : keep;
        has[i].permitted &= i ? 0 : keep;
        has[i].inheritable = 0;
    }
    return syscall(SYS_capset, &header, has)
               ? err_set(err, -errno, "the stage process cannot give up its privileges: %s", strerror(errno))
               : 0;
}

/* There is to be no core. If somebody makes one all the same, no memory is in it: keys of lanes are
 * on stacks and in the contexts of ciphers, too. */
static void keep_out_of_cores(void)
{
    int fd = open("/proc/self/coredump_filter", O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    (void)!write(fd, "0", 1);
    close(fd);
}

static bool is_alone(void)
{
    struct stat st;
    return stat("/proc/self/task", &st) || st.st_nlink <= 3; /* itself, the parent, and one thread */
}

/* --- entering --------------------------------------------------------------------------------- */

int cell_enter(const struct cell_rules *rules, struct err *err)
{
    const bool binds_threads = getenv("OMP_PROC_BIND") || getenv("OMP_PLACES") || getenv("GOMP_CPU_AFFINITY");
    close_descriptors(rules->kept);
    keep_out_of_cores();
    lower(RLIMIT_CORE, 0);
    lower(RLIMIT_NOFILE, 1 << CELL_FILE_BITS);
    if (!IS_INSTRUMENTED && !is_alone())
        return err_set(err, -EBUSY, "the stage process began threads before it entered its cell");
    if (prctl(PR_SET_DUMPABLE, 0) || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        return err_set(err, -errno, "the stage process cannot enter its cell: %s", strerror(errno));
    int r = drop_capabilities(err);
    if (!r)
        r = cell_close_files(rules, err);
    if (!r && !IS_INSTRUMENTED)
        r = cell_close_calls(binds_threads, err);
    return r;
}

/* --- memory ----------------------------------------------------------------------------------- */

static uint64_t mapped_now(void)
{
    unsigned long long pages = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    if (f && fscanf(f, "%llu", &pages) != 1)
        pages = 0;
    if (f)
        fclose(f);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

void cell_limit_memory(uint64_t planned, uint64_t mapped, unsigned threads, uint64_t most)
{
    const uint64_t now = mapped_now(),
                   beside = now + mapped + BESIDE_BYTES + (threads + THREADS_BESIDE) * THREAD_BYTES;
    struct rlimit limit;
    if (!now || IS_INSTRUMENTED)
        return;
    lower(RLIMIT_AS, beside + (most > planned ? most : planned));
    if (getrlimit(RLIMIT_AS, &limit))
        return;
    limit.rlim_cur = beside + planned < limit.rlim_max ? beside + planned : limit.rlim_max;
    (void)setrlimit(RLIMIT_AS, &limit);
}
