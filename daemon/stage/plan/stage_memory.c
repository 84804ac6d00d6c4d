/* SPDX-License-Identifier: MIT */
#include "daemon/stage/plan/stage_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum memory_limits {
    EVERY_US = 1000000,
    STATUS_MAX = 8192,    /* the kernel's text has about 1500 bytes */
    SEEN_SHARE = 64,      /* a change by this part of it … */
    SEEN_BYTES = 1 << 20, /* … or by this much is seen, whichever is more */
};

static int field(uint64_t *ret, const char *status, const char *name)
{
    uint64_t kib;
    const char *at = strstr(status, name);
    if (!at || sscanf(at + strlen(name), " %" SCNu64, &kib) != 1 || kib > UINT64_MAX / 2048)
        return -EBADMSG;
    *ret = kib * 1024;
    return 0;
}

int memory_parse(struct memory_use *ret, const char *status)
{
    struct memory_use use;
    if (field(&use.rss, status, "\nVmRSS:") || field(&use.anon, status, "\nRssAnon:") ||
        field(&use.peak, status, "\nVmHWM:"))
        return -EBADMSG;
    if (use.peak < use.rss) /* the kernel counts it a little late */
        use.peak = use.rss;
    *ret = use;
    return 0;
}

int memory_read(struct memory_use *ret)
{
    char status[STATUS_MAX];
    int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    ssize_t n = read(fd, status, sizeof status - 1);
    int saved = errno;
    close(fd);
    if (n < 0)
        return -saved;
    status[n] = '\0';
    return memory_parse(ret, status);
}

/* In bytes; 0: the machine does not tell. */
static size_t meminfo(const char *name)
{
    unsigned long long kib = 0;
    char line[128];
    FILE *f = fopen("/proc/meminfo", "re");
    while (f && !kib && fgets(line, sizeof line, f))
        if (!strncmp(line, name, strlen(name)))
            kib = strtoull(line + strlen(name), NULL, 10);
    if (f)
        fclose(f);
    return (size_t)kib * 1024;
}

size_t memory_of_machine(void)
{
    return meminfo("MemTotal:");
}

const char *memory_way_out(enum job_type type)
{
    static const char *const ways[JOB_TYPES] = {[JOB_TRAIN] = "a smaller --seq-len or --micro-batch-size",
                                                [JOB_GENERATE] = "a shorter prompt or a smaller --max-tokens",
                                                [JOB_SCORE] = "shorter texts or a smaller --seq-len",
                                                [JOB_EVAL] = "a smaller --seq-len",
                                                [JOB_SERVE] = "a smaller --max-kv-size or --max-context"};
    return ways[type];
}

void memory_explain(struct err *err, enum job_type type, size_t planned)
{
    char why[sizeof err->text], plan[80] = "nothing was planned yet";
    struct memory_use use = {0};
    memory_read(&use);
    const struct err_amounts had = err_amounts(planned, use.rss),
                             left = err_amounts(meminfo("MemAvailable:"), use.rss);
    if (planned)
        snprintf(plan, sizeof plan, "%s were planned for this stage", had.need);
    snprintf(why, sizeof why, "%s", err->text);
    err_set(err, -ENOMEM, "%.250s: %s, it has %s, and this node has %s available: use another split, or %s",
            why, plan, had.have, left.need, memory_way_out(type));
}

bool memory_due(struct memory_watch *w, struct instant now)
{
    if (w->looked.us && clock_since_us(now, w->looked) < EVERY_US)
        return false;
    w->looked = now;
    return true;
}

static bool is_seen(uint64_t now, uint64_t before)
{
    uint64_t change = now > before ? now - before : before - now;
    uint64_t least = before / SEEN_SHARE > SEEN_BYTES ? before / SEEN_SHARE : SEEN_BYTES;
    return change >= least;
}

bool memory_changed(struct memory_watch *w, const struct memory_use *use)
{
    bool tell = is_seen(use->rss, w->told.rss) || is_seen(use->anon, w->told.anon) ||
                is_seen(use->peak, w->told.peak);
    if (tell)
        w->told = *use;
    return tell;
}
