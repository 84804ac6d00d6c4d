/* SPDX-License-Identifier: MIT
 *
 * Reads files of control groups; owns nothing. */
#include "daemon/stage/plan/stage_quota.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void read_line(char *ret, size_t size, const char *root, const char *group, const char *file)
{
    char name[8300];
    *ret = '\0';
    snprintf(name, sizeof name, "%s%s/%s", root, group, file);
    FILE *f = fopen(name, "re");
    if (f && !fgets(ret, (int)size, f))
        *ret = '\0';
    if (f)
        fclose(f);
}

static double quota_at(const char *root, const char *group)
{
    char quota_us[40], period_us[40], text[100];
    double quota, period;
    read_line(text, sizeof text, root, group, "cpu.max");
    if (!*text) {
        read_line(quota_us, sizeof quota_us, root, group, "cpu.cfs_quota_us");
        read_line(period_us, sizeof period_us, root, group, "cpu.cfs_period_us");
        snprintf(text, sizeof text, "%s %s", quota_us, period_us);
    }
    return sscanf(text, "%lf %lf", &quota, &period) == 2 && quota > 0 && period > 0 ? quota / period
                                                                                    : INFINITY;
}

double quota_of(const char *root, const char *path)
{
    char at[4096];
    double least = INFINITY;
    snprintf(at, sizeof at, "%s", path);
    for (char *end = at + strlen(at); end; end = strrchr(at, '/')) {
        *end = '\0';
        least = fmin(least, quota_at(root, at));
    }
    return least;
}

/* "cpu,cpuacct" has "cpu". */
static int has_cpu(const char *controllers)
{
    for (const char *p = controllers; p; p = strchr(p, ','), p = p ? p + 1 : NULL)
        if (strcspn(p, ",:") == 3 && !strncmp(p, "cpu", 3))
            return 1;
    return 0;
}

double quota_here(void)
{
    char line[4096];
    double quota = INFINITY;
    FILE *f = fopen("/proc/self/cgroup", "re");
    while (f && fgets(line, sizeof line, f)) {
        char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path)
            continue;
        line[strcspn(line, "\n")] = '\0';
        if (path == controllers + 1)
            quota = fmin(quota, quota_of("/sys/fs/cgroup", path + 1));
        else if (has_cpu(controllers + 1))
            quota = fmin(quota, quota_of("/sys/fs/cgroup/cpu", path + 1));
    }
    if (f)
        fclose(f);
    return quota;
}

double quota_slows(const double *wall, const double *cpu, size_t n, double quota)
{
    double alone = INFINITY;
    for (size_t i = 0; i < n; i++)
        if (cpu[i] > 0)
            alone = fmin(alone, wall[i] / cpu[i]);
    return isfinite(alone) ? fmax(alone, 1 / quota) : 1 / quota;
}
