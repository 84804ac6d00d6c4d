/* SPDX-License-Identifier: MIT */
#include "daemon/common/cores.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* The lowest CPU of the core it belongs to; itself if the kernel does not say. */
static int first_sibling(const char *root, int cpu)
{
    static const char *const names[] = {"core_cpus_list",
                                        "thread_siblings_list"}; /* the latter before Linux 5.3 */
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[300];
        int first;
        snprintf(path, sizeof path, "%s/cpu%d/topology/%s", root, cpu, names[i]);
        FILE *f = fopen(path, "re");
        const int n = f ? fscanf(f, "%d", &first) : 0;
        if (f)
            fclose(f);
        if (n == 1 && first >= 0 && first < CPU_SETSIZE)
            return first;
    }
    return cpu;
}

unsigned cores_of(const char *root, const cpu_set_t *allowed)
{
    cpu_set_t cores;
    CPU_ZERO(&cores);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, allowed))
            CPU_SET(first_sibling(root, cpu), &cores);
    return CPU_COUNT(&cores) ? (unsigned)CPU_COUNT(&cores) : 1;
}

unsigned cores_here(void)
{
    cpu_set_t allowed;
    if (!sched_getaffinity(0, sizeof allowed, &allowed))
        return cores_of("/sys/devices/system/cpu", &allowed);
    const long online = sysconf(_SC_NPROCESSORS_ONLN); /* more than a set of them holds */
    return online > 0 ? (unsigned)online : 1;
}

unsigned cores_threads(unsigned asked)
{
    return asked ? asked : getenv("OMP_NUM_THREADS") ? 0 : cores_here();
}
