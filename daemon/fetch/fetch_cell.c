/* SPDX-License-Identifier: MIT */
#include "daemon/fetch/fetch_cell.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/ioprio.h>
#include <linux/landlock.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "daemon/common/cell_kernel.h"
#include "daemon/common/ipc.h"

#define READS (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)

enum { NICE = 10 };

void fetch_cell_begin(void)
{
    const struct rlimit none = {0, 0};
    (void)setrlimit(RLIMIT_CORE, &none); /* it has the token of its user */
    (void)prctl(PR_SET_DUMPABLE, 0);
    for (int signal_number = 1; signal_number < NSIG; signal_number++)
        signal(signal_number, SIG_DFL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGINT, SIG_IGN); /* of a terminal: ringd ends it */
    close_range(IPC_FD + 1, ~0U, 0);
}

/* Takes `place` over; −1: there is no such place, so there is nothing to allow. */
static int allow(int set, int place, uint64_t access)
{
    const struct landlock_path_beneath_attr rule = {.allowed_access = access, .parent_fd = place};
    int r = 0;
    if (place < 0)
        return 0;
    if (syscall(SYS_landlock_add_rule, set, LANDLOCK_RULE_PATH_BENEATH, &rule, 0))
        r = -errno;
    close(place);
    return r;
}

static int allow_network(int set)
{
    /* Names are looked up through /etc and what it leads to; libraries of NSS come from /usr. */
    static const char *const folders[] = {"/etc", "/usr",  "/lib", "/lib64",
                                          "/run", "/proc", "/dev", "/var/lib/ca-certificates"};
    const char *certificates = getenv("SSL_CERT_FILE");
    int r = 0;
    for (size_t i = 0; i < sizeof folders / sizeof *folders && !r; i++)
        r = allow(set, open(folders[i], O_PATH | O_DIRECTORY | O_CLOEXEC),
                  READS | LANDLOCK_ACCESS_FS_EXECUTE);
    if (!r && certificates)
        r = allow(set, open(certificates, O_PATH | O_CLOEXEC), LANDLOCK_ACCESS_FS_READ_FILE);
    return r;
}

static int allow_all(int set, uint64_t handled, int models, const char *cache, bool has_network)
{
    int r = allow(set, fcntl(models, F_DUPFD_CLOEXEC, 0), handled & ~(uint64_t)LANDLOCK_ACCESS_FS_EXECUTE);
    if (!r && cache)
        r = allow(set, open(cache, O_PATH | O_DIRECTORY | O_CLOEXEC), READS);
    if (r)
        return r;
    /* boot_id.h */
    return has_network ? allow_network(set)
                       : allow(set, open("/proc/sys/kernel/random/boot_id", O_PATH | O_CLOEXEC),
                               LANDLOCK_ACCESS_FS_READ_FILE);
}

void fetch_cell_step_back(void)
{
    const int idle = IOPRIO_PRIO_VALUE(IOPRIO_CLASS_IDLE, 0);
    (void)setpriority(PRIO_PROCESS, 0, NICE);
    (void)syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, idle);
}

int fetch_cell_enter(int models, const char *cache, bool has_network, struct err *err)
{
    const unsigned abi = cell_kernel_landlock();
    /* 13 rights of the first version; then links elsewhere (2) and truncation (3) */
    const uint64_t handled = ((UINT64_C(1) << 13) - 1) | (abi >= 2 ? 1 << 13 : 0) | (abi >= 3 ? 1 << 14 : 0);
    int r = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ? -errno : 0;
    if (!abi)
        return r;
    const int set = (int)syscall(SYS_landlock_create_ruleset, &handled, sizeof handled, 0);
    if (set < 0)
        r = -errno;
    r = r ? r : allow_all(set, handled, models, cache, has_network);
    if (!r && syscall(SYS_landlock_restrict_self, set, 0))
        r = -errno;
    if (set >= 0)
        close(set);
    return r ? err_set(err, r, "ringd-fetch cannot enter its cell: %s", strerror(-r)) : 0;
}
