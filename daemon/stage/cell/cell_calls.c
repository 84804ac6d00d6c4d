/* SPDX-License-Identifier: MIT
 *
 * The system calls that computing, reading files and talking over open sockets take. All others
 * fail with EPERM: a library that tries one and can do without goes on. Arguments are looked at
 * where a call could reach another process, make one, or make code. */
#include "daemon/stage/cell/cell_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <seccomp.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/common/ipc.h"

enum { PID_BITS = 22 };                           /* the most that Linux gives a process */
enum { REQ_XCOMP_PERM = 0x1023, XTILEDATA = 18 }; /* as asm/prctl.h has it since Linux 5.16 */

static const int plain[] = {
    /* files, which Landlock decides on */
    SCMP_SYS(open),
    SCMP_SYS(openat),
    SCMP_SYS(close),
    SCMP_SYS(read),
    SCMP_SYS(readv),
    SCMP_SYS(pread64),
    SCMP_SYS(preadv),
    SCMP_SYS(write),
    SCMP_SYS(writev),
    SCMP_SYS(pwrite64),
    SCMP_SYS(pwritev),
    SCMP_SYS(lseek),
    SCMP_SYS(fsync),
    SCMP_SYS(fdatasync),
    SCMP_SYS(fadvise64),
    SCMP_SYS(readahead),
    SCMP_SYS(getdents64),
    SCMP_SYS(stat),
    SCMP_SYS(lstat),
    SCMP_SYS(fstat),
    SCMP_SYS(newfstatat),
    SCMP_SYS(statx),
    SCMP_SYS(statfs),
    SCMP_SYS(fstatfs),
    SCMP_SYS(access),
    SCMP_SYS(faccessat),
    SCMP_SYS(faccessat2),
    SCMP_SYS(readlink),
    SCMP_SYS(readlinkat),
    SCMP_SYS(getcwd),
    SCMP_SYS(mkdir),
    SCMP_SYS(mkdirat),
    SCMP_SYS(rename),
    SCMP_SYS(renameat),
    SCMP_SYS(renameat2),
    SCMP_SYS(unlink),
    SCMP_SYS(unlinkat),
    SCMP_SYS(rmdir),
    SCMP_SYS(utimensat),
    /* memory, of its own */
    SCMP_SYS(brk),
    SCMP_SYS(munmap),
    SCMP_SYS(mremap),
    SCMP_SYS(madvise),
    SCMP_SYS(mbind),
    SCMP_SYS(get_mempolicy),
    SCMP_SYS(set_mempolicy),
    /* threads and signals, of its own */
    SCMP_SYS(futex),
    SCMP_SYS(set_robust_list),
    SCMP_SYS(rseq),
    SCMP_SYS(gettid),
    SCMP_SYS(getpid),
    SCMP_SYS(sched_yield),
    SCMP_SYS(sched_getaffinity),
    SCMP_SYS(getcpu),
    SCMP_SYS(rt_sigaction),
    SCMP_SYS(rt_sigprocmask),
    SCMP_SYS(rt_sigreturn),
    SCMP_SYS(sigaltstack),
    SCMP_SYS(pause),
    SCMP_SYS(restart_syscall),
    SCMP_SYS(exit),
    SCMP_SYS(exit_group),
    /* time, chance, and who it is */
    SCMP_SYS(clock_gettime),
    SCMP_SYS(clock_getres),
    SCMP_SYS(clock_nanosleep),
    SCMP_SYS(nanosleep),
    SCMP_SYS(gettimeofday),
    SCMP_SYS(time),
    SCMP_SYS(times),
    SCMP_SYS(getrandom),
    SCMP_SYS(getuid),
    SCMP_SYS(geteuid),
    SCMP_SYS(getgid),
    SCMP_SYS(getegid),
    SCMP_SYS(uname),
    SCMP_SYS(sysinfo),
    SCMP_SYS(getrusage),
    /* sockets that it was given */
    SCMP_SYS(sendmsg),
    SCMP_SYS(recvmsg),
    SCMP_SYS(recvfrom),
    SCMP_SYS(shutdown),
    SCMP_SYS(poll),
    SCMP_SYS(ppoll),
    /* by which threads of a data connection make room for one another */
    SCMP_SYS(eventfd2),
};

struct rule {
    int call;
    unsigned n;
    struct scmp_arg_cmp args[2];
};

#define ONE(call, ...)                                                                                       \
    {                                                                                                        \
        SCMP_SYS(call), 1,                                                                                   \
        {                                                                                                    \
            __VA_ARGS__                                                                                      \
        }                                                                                                    \
    }
#define TWO(call, ...)                                                                                       \
    {                                                                                                        \
        SCMP_SYS(call), 2,                                                                                   \
        {                                                                                                    \
            __VA_ARGS__                                                                                      \
        }                                                                                                    \
    }

static int add_all(scmp_filter_ctx filter, const struct rule *rules, size_t n)
{
    int r = 0;
    for (size_t i = 0; i < n && !r; i++)
        r = seccomp_rule_add_array(filter, SCMP_ACT_ALLOW, rules[i].call, rules[i].n, rules[i].args);
    return r;
}

static int add_plain(scmp_filter_ctx filter)
{
    int r = 0;
    for (size_t i = 0; i < sizeof plain / sizeof *plain && !r; i++)
        r = seccomp_rule_add_array(filter, SCMP_ACT_ALLOW, plain[i], 0, NULL);
    return r;
}

static int add_with_arguments(scmp_filter_ctx filter)
{
    const scmp_datum_t self = (scmp_datum_t)getpid();
    const struct rule rules[] = {
        /* Memory never becomes code: what an intruder brings along cannot run. */
        ONE(mmap, SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0)),
        ONE(mprotect, SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0)),
        /* Threads, no processes. Of clone3 the flags cannot be seen: without it the C library takes
         * clone. */
        ONE(clone, SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, CLONE_THREAD)),
        ONE(tgkill, SCMP_A0(SCMP_CMP_EQ, self)),
        ONE(prlimit64, SCMP_A0(SCMP_CMP_EQ, 0)),
        ONE(prlimit64, SCMP_A0(SCMP_CMP_EQ, self)),
        ONE(sched_getattr, SCMP_A0(SCMP_CMP_EQ, 0)),
        ONE(sched_setattr, SCMP_A0(SCMP_CMP_EQ, 0)),
        ONE(sched_setaffinity, SCMP_A0(SCMP_CMP_EQ, 0)),
        ONE(sched_setaffinity, SCMP_A0(SCMP_CMP_EQ, self)),
        /* F_SETOWN with F_SETSIG sends signals to whom it names. */
        ONE(fcntl, SCMP_A1(SCMP_CMP_EQ, F_GETFD)),
        ONE(fcntl, SCMP_A1(SCMP_CMP_EQ, F_SETFD)),
        ONE(fcntl, SCMP_A1(SCMP_CMP_EQ, F_GETFL)),
        ONE(fcntl, SCMP_A1(SCMP_CMP_EQ, F_SETFL)),
        ONE(fcntl, SCMP_A1(SCMP_CMP_EQ, F_DUPFD_CLOEXEC)), /* of a file that was lent */
        ONE(ioctl, SCMP_A1(SCMP_CMP_EQ, TCGETS)),          /* as stdio asks whether it writes to a terminal */
        ONE(sendto, SCMP_A4(SCMP_CMP_EQ, 0)),
        TWO(getsockopt, SCMP_A1(SCMP_CMP_EQ, IPPROTO_TCP), SCMP_A2(SCMP_CMP_EQ, TCP_INFO)),
        /* Room for the registers of AMX, which kernels ask for when they are chosen (isa.c). */
        TWO(arch_prctl, SCMP_A0(SCMP_CMP_EQ, REQ_XCOMP_PERM), SCMP_A1(SCMP_CMP_EQ, XTILEDATA)),
        TWO(setsockopt, SCMP_A1(SCMP_CMP_EQ, IPPROTO_TCP), SCMP_A2(SCMP_CMP_EQ, TCP_NOTSENT_LOWAT)),
    };
    int r = add_all(filter, rules, sizeof rules / sizeof *rules);
    return r ? r : seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
}

/* Any first argument of up to `bits` bits but that one. A comparison would look at 64 bits, of
 * which the kernel takes 32. */
static int add_all_but(scmp_filter_ctx filter, int call, unsigned value, unsigned bits)
{
    int r = 0;
    for (unsigned b = 0; b < bits && !r; b++)
        r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, call, 1,
                             SCMP_A0(SCMP_CMP_MASKED_EQ, 1U << b, ~value & 1U << b));
    return r;
}

/* The page of progress is the daemon's too, and keeps its size. */
static int add_sizes(scmp_filter_ctx filter)
{
    int r = add_all_but(filter, SCMP_SYS(ftruncate), IPC_PROGRESS_FD, CELL_FILE_BITS);
    return r ? r : add_all_but(filter, SCMP_SYS(fallocate), IPC_PROGRESS_FD, CELL_FILE_BITS);
}

/* OpenMP's own settings bind threads by their numbers, which nobody knows before they are there.
 * The daemon's is the number that must not be reached. */
static int add_binding(scmp_filter_ctx filter)
{
    return add_all_but(filter, SCMP_SYS(sched_setaffinity), (unsigned)getppid(), PID_BITS);
}

/* A tree, so that a call costs few comparisons. Kernels before 5.16 would take a filter as a wish
 * for a slower processor (SSB), which computing does not have. Calls of another ABI are refused
 * like others. */
static int set_attributes(scmp_filter_ctx filter)
{
    int r = seccomp_attr_set(filter, SCMP_FLTATR_CTL_OPTIMIZE, 2);
    if (!r)
        r = seccomp_attr_set(filter, SCMP_FLTATR_CTL_SSB, 1);
    return r ? r : seccomp_attr_set(filter, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_ERRNO(EPERM));
}

int cell_close_calls(bool binds_threads, struct err *err)
{
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(EPERM));
    int r = filter ? set_attributes(filter) : -ENOMEM;
    if (!r)
        r = add_plain(filter);
    if (!r)
        r = add_with_arguments(filter);
    if (!r)
        r = add_sizes(filter);
    if (!r && binds_threads)
        r = add_binding(filter);
    if (!r)
        r = seccomp_load(filter);
    if (r == -EINVAL) /* a kernel without it */
        r = 0;
    seccomp_release(filter);
    return r ? err_set(err, r, "the stage process cannot limit its system calls: %s", strerror(-r)) : 0;
}
