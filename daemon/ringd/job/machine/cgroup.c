/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/job/machine/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "daemon/common/xalloc.h"
#include "daemon/ringd/log.h"
#include "engine/err.h"

struct cgroup {
    char *folder; /* owned */
    bool is_weighed;
};

static int write_file(const char *folder, const char *name, const char *text)
{
    char *path = xasprintf("%s/%s", folder, name);
    int fd = open(path, O_WRONLY | O_CLOEXEC), r = fd < 0 ? -errno : 0;
    if (!r && write(fd, text, strlen(text)) < 0)
        r = -errno;
    if (fd >= 0)
        close(fd);
    free(path);
    return r;
}

int cgroup_find_delegated(char *ret, size_t size)
{
    char line[4096], mark[8] = "";
    FILE *f = fopen("/proc/self/cgroup", "re");
    int r = -ENOENT;
    while (f && r && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, "0::/", 4) || (size_t)snprintf(ret, size, "/sys/fs/cgroup%s", line + 3) >= size)
            continue;
        /* systemd marks what it has given away; anything else is not ours to arrange. */
        ssize_t n = getxattr(ret, "user.delegate", mark, sizeof mark - 1);
        r = n > 0 && *mark == '1' ? 0 : -ENOENT;
    }
    if (f)
        fclose(f);
    return r;
}

static int add_process(const char *folder, int pid)
{
    char text[16];
    snprintf(text, sizeof text, "%d", pid);
    return write_file(folder, "cgroup.procs", text);
}

/* What this process has started before: ringd-keys. One that has ended meanwhile is no trouble. */
static void add_children(const char *own, const char *folder)
{
    char *path = xasprintf("%s/cgroup.procs", folder);
    int pid;
    FILE *f = fopen(path, "re");
    while (f && fscanf(f, "%d", &pid) == 1)
        if (pid > 0 && pid != (int)getpid())
            add_process(own, pid);
    if (f)
        fclose(f);
    free(path);
}

int cgroup_prepare(const char *folder)
{
    char *own = xasprintf("%s/daemon", folder);
    int r = mkdir(own, 0755) && errno != EEXIST ? -errno : 0;
    /* A group with children that are limited may hold no process itself. */
    if (!r)
        add_children(own, folder);
    if (!r)
        r = add_process(own, (int)getpid());
    if (!r) { /* without it stages run, and training gives way another way (yield_cpu.h) */
        write_file(folder, "cgroup.subtree_control", "+cpu");
        r = write_file(folder, "cgroup.subtree_control", "+memory");
    }
    free(own);
    return r;
}

char *cgroup_find_room(void)
{
    char folder[3072];
    if (cgroup_find_delegated(folder, sizeof folder))
        return NULL;
    int r = cgroup_prepare(folder);
    if (r)
        log_info("stage cgroups unavailable, no memory limit: %s: %s", folder, strerror(-r));
    return r ? NULL : xstrdup(folder);
}

int cgroup_new(struct cgroup **ret, const char *folder, uint64_t job, pid_t pid)
{
    struct cgroup *s = xcalloc(1, sizeof *s);
    s->folder = xasprintf("%s/job-%llu-%d", folder, (unsigned long long)job, (int)pid);
    if (mkdir(s->folder, 0755) && errno != EEXIST) {
        int r = -errno;
        free(s->folder);
        free(s);
        return r;
    }
    *ret = s;
    return 0;
}

int cgroup_add(struct cgroup *s, pid_t pid)
{
    return add_process(s->folder, (int)pid);
}

/* A hundred to one: in the time of one token of a server that has all to do, training gets a
 * hundredth, and all of it where the server waits. */
void cgroup_weigh(struct cgroup *s, enum job_class class)
{
    static const char *const weights[JOB_CLASSES] = {"10000", "1000", "10"};
    if (!s)
        return;
    s->is_weighed = !write_file(s->folder, "cpu.weight", weights[class]);
    /* From Linux 5.15 on, it also gives way at once, and not at the end of its slice. */
    if (s->is_weighed && class == JOB_CLASS_TRAIN)
        write_file(s->folder, "cpu.idle", "1");
}

bool cgroup_is_weighed(const struct cgroup *s)
{
    return s && s->is_weighed;
}

int cgroup_limit(struct cgroup *s, uint64_t bytes)
{
    char text[24];
    snprintf(text, sizeof text, "%llu", (unsigned long long)bytes);
    return write_file(s->folder, "memory.max", text);
}

uint64_t cgroup_memory(const struct cgroup *s)
{
    char *path = s ? xasprintf("%s/memory.stat", s->folder) : NULL, line[128];
    unsigned long long n, bytes = 0;
    FILE *f = s ? fopen(path, "re") : NULL;
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "anon %llu", &n) == 1 || sscanf(line, "file_mapped %llu", &n) == 1)
            bytes += n;
    if (f)
        fclose(f);
    free(path);
    return bytes;
}

/* Before Linux 5.14, one by one. 0 is a process that this one cannot see. */
static void kill_each(const struct cgroup *s)
{
    char *path = xasprintf("%s/cgroup.procs", s->folder);
    int pid;
    FILE *f = fopen(path, "re");
    while (f && fscanf(f, "%d", &pid) == 1)
        if (pid > 0 && pid != (int)getpid())
            kill(pid, SIGKILL);
    if (f)
        fclose(f);
    free(path);
}

void cgroup_kill(struct cgroup *s)
{
    if (write_file(s->folder, "cgroup.kill", "1"))
        kill_each(s);
}

int cgroup_remove(const struct cgroup *s)
{
    const bool is_busy = rmdir(s->folder) && (errno == EBUSY || errno == ENOTEMPTY);
    return is_busy ? -EBUSY : 0;
}

static uint64_t kills_in(const char *path)
{
    char line[128];
    unsigned long long n, kills = 0;
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "oom_kill %llu", &n) == 1)
            kills = n;
    if (f)
        fclose(f);
    return kills;
}

bool cgroup_ran_out(const struct cgroup *s)
{
    char *path = xasprintf("%s/memory.events", s->folder);
    const uint64_t kills = kills_in(path);
    free(path);
    return kills > 0;
}

uint64_t cgroup_machine_kills(void)
{
    return kills_in("/proc/vmstat");
}

/* The plan counts what is large; code, stacks and buffers of connections come on top. */
uint64_t cgroup_with_headroom(uint64_t planned)
{
    return planned + planned / 8 + (UINT64_C(256) << 20);
}

#define WAY_OUT "another split, a smaller --seq-len or --micro-batch-size, or --memory-limit helps"

void cgroup_why_ended(char *ret, size_t size, const struct cgroup *s, uint64_t planned, uint64_t peak,
                      const char *how)
{
    const struct err_amounts plan = err_amounts(planned, peak),
                             limit = err_amounts(cgroup_with_headroom(planned), peak);
    const bool is_killed = strstr(how, "SIGKILL") != NULL;
    if (s && cgroup_ran_out(s))
        snprintf(ret, size,
                 "the stage process was killed: out of memory, %s were planned and it had %s of at most "
                 "%s; " WAY_OUT,
                 plan.need, plan.have, limit.need);
    else if (is_killed && planned && peak)
        snprintf(ret, size,
                 "the stage process %s; %s were planned and it had %s; if memory ran out, " WAY_OUT, how,
                 plan.need, plan.have);
    else if (is_killed && peak)
        snprintf(ret, size, "the stage process %s; it had %s, and there was no plan yet", how, plan.have);
    else
        snprintf(ret, size, "the stage process %s", *how ? how : "ended before the job did");
}

void cgroup_free(struct cgroup *s)
{
    if (!s)
        return;
    free(s->folder);
    free(s);
}
