/* SPDX-License-Identifier: MIT
 *
 * Owns the handler of SIGBUS. It runs on the thread that touched the page, wherever that was, so it
 * calls nothing but what POSIX allows there. */
#include "daemon/stage/stage_faults.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/common/progress.h"

enum { LINE_BYTES = 4400, READ_BYTES = 4096 };

static struct progress *last_page; /* borrowed: the only way for a handler to have it */

/* --- words ------------------------------------------------------------------------------------ */

static bool take_hex(uint64_t *ret, const char **at)
{
    const char *from = *at;
    for (*ret = 0;; ++*at) {
        const char c = **at;
        const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (digit < 0)
            return *at > from;
        *ret = *ret << 4 | (uint64_t)digit;
    }
}

/* Past what is not a space, and the spaces behind it. */
static void skip_field(const char **at)
{
    while (**at && **at != ' ')
        ++*at;
    while (**at == ' ')
        ++*at;
}

bool fault_parse(struct fault_mapping *ret, const char *line)
{
    uint64_t begin, end, offset;
    if (!take_hex(&begin, &line) || *line++ != '-' || !take_hex(&end, &line) || *line++ != ' ')
        return false;
    skip_field(&line); /* what is allowed */
    if (!take_hex(&offset, &line) || *line++ != ' ')
        return false;
    skip_field(&line); /* device */
    skip_field(&line); /* inode */
    *ret = (struct fault_mapping){(uintptr_t)begin, (uintptr_t)end, offset, *line == '/' ? line : NULL};
    return true;
}

static void add(char *to, size_t size, const char *text)
{
    size_t n = strlen(to);
    while (*text && n + 1 < size)
        to[n++] = *text++;
    to[n] = 0;
}

void fault_describe(char *ret, size_t size, const char *path, bool is_shorter)
{
    *ret = 0;
    add(ret, size, "had to end: ");
    add(ret, size, path);
    add(ret, size,
        is_shorter ? " became shorter while it was in use: copy it again, and start the job again"
                   : " could not be read any more: its disk fails, or its share is gone (see journalctl -k)");
}

/* --- the handler ------------------------------------------------------------------------------ */

static void leave_words(const struct fault_mapping *m, uintptr_t at)
{
    struct stat sb;
    const uint64_t place = m->offset + (at - m->begin);
    const bool is_shorter = !stat(m->path, &sb) && (uint64_t)sb.st_size <= place;
    fault_describe(last_page->last_words, sizeof last_page->last_words, m->path, is_shorter);
    atomic_store_explicit(&last_page->has_last_words, 1, memory_order_release);
}

/* The line of the mapping that has the address; others are passed over. */
static void look_up(uintptr_t at)
{
    char line[LINE_BYTES], in[READ_BYTES];
    size_t used = 0;
    ssize_t n;
    int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && (n = read(fd, in, sizeof in)) > 0)
        for (ssize_t i = 0; i < n; i++) {
            struct fault_mapping m;
            if (in[i] != '\n') {
                used += used + 1 < sizeof line;
                line[used - 1] = in[i];
                continue;
            }
            line[used] = 0;
            used = 0;
            if (fault_parse(&m, line) && at >= m.begin && at < m.end && m.path)
                leave_words(&m, at);
        }
    if (fd >= 0)
        close(fd);
}

static void on_fault(int number, siginfo_t *info, void *context)
{
    static atomic_flag is_busy = ATOMIC_FLAG_INIT;
    (void)context;
    while (atomic_flag_test_and_set(&is_busy))
        pause(); /* another thread tells, and ends the process */
    look_up((uintptr_t)info->si_addr);
    signal(number, SIG_DFL); /* the same page again ends it */
}

void faults_watch(struct progress *page)
{
    struct sigaction how = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    last_page = page;
    sigemptyset(&how.sa_mask);
    sigaction(SIGBUS, &how, NULL);
}
