/* SPDX-License-Identifier: MIT */
#include "daemon/keys/keys_cell.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <seccomp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "daemon/common/cell_kernel.h"
#include "daemon/common/keys_proto.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define IS_INSTRUMENTED 1 /* the sanitizer has mappings and calls of its own */
#else
#define IS_INSTRUMENTED 0
#endif

void keys_cell_begin(void)
{
    const struct rlimit none = {0, 0};
    (void)setrlimit(RLIMIT_CORE, &none); /* lower is always allowed */
    (void)prctl(PR_SET_DUMPABLE, 0);
    for (int signal_number = 1; signal_number < NSIG; signal_number++)
        signal(signal_number, SIG_DFL);
    /* Only ringd ends it, by closing the socket; a signal to all of a terminal does not. */
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    close_range(KEYS_FD + 1, ~0U, 0);
}

/* Stacks and registers that were spilled hold parts of keys, too. */
static void keep_out_of_cores(void)
{
    char line[512];
    unsigned long from, to;
    FILE *f = fopen("/proc/self/maps", "re");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "%lx-%lx rw-p", &from, &to) == 2 && strstr(line, " rw-p "))
            (void)madvise((void *)from, to - from, MADV_DONTDUMP); /* NOLINT: an address as text */
    if (f)
        fclose(f);
}

/* A set of rules without a rule: of what is handled, nothing is left. */
static int close_files(void)
{
    const unsigned abi = cell_kernel_landlock();
    /* 13 rights of the first version; then links elsewhere (2), truncation (3), devices (5); and
     * of the network since version 4 */
    const struct {
        uint64_t files, net;
    } all = {((UINT64_C(1) << 13) - 1) | (abi >= 2 ? 1 << 13 : 0) | (abi >= 3 ? 1 << 14 : 0) |
                 (abi >= 5 ? 1 << 15 : 0),
             3};
    if (!abi)
        return 0;
    const int set = (int)syscall(SYS_landlock_create_ruleset, &all, abi >= 4 ? 16 : 8, 0);
    const long r = set < 0 ? -1 : syscall(SYS_landlock_restrict_self, set, 0);
    const int error = errno;
    if (set >= 0)
        close(set);
    return r ? -error : 0;
}

static int close_calls(void)
{
    static const int calls[] = {SCMP_SYS(recvfrom),      SCMP_SYS(sendto), SCMP_SYS(getrandom),
                                SCMP_SYS(brk),           SCMP_SYS(munmap), SCMP_SYS(rt_sigreturn),
                                SCMP_SYS(clock_gettime), SCMP_SYS(exit),   SCMP_SYS(exit_group),
                                SCMP_SYS(write),         SCMP_SYS(futex),  SCMP_SYS(restart_syscall)};
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(EPERM));
    int r = filter ? 0 : -ENOMEM;
    for (size_t i = 0; i < sizeof calls / sizeof *calls && !r; i++)
        r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, calls[i], 0);
    if (!r) /* memory never becomes code */
        r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 1,
                             SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
    if (!r)
        r = seccomp_load(filter);
    if (filter)
        seccomp_release(filter);
    return r;
}

int keys_cell_enter(struct err *err)
{
    keep_out_of_cores();
    int r = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ? -errno : 0;
    if (!r)
        r = close_files();
    if (!r && !IS_INSTRUMENTED && cell_kernel_filters())
        r = close_calls();
    return r ? err_set(err, r, "ringd-keys cannot enter its cell: %s", strerror(-r)) : 0;
}
