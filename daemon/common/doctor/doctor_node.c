/* SPDX-License-Identifier: MIT
 *
 * PURE: the checks of the machine a node runs on, and of what all nodes must have alike: cluster,
 * version, clock, model. Called by doctor.c. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/doctor/doctor_impl.h"
#include "daemon/common/fds.h"
#include "daemon/common/xalloc.h"
#include "engine/file/weights.h"

static const double MIB = 1 << 20, GIB = 1 << 30;
enum { CLOCK_LIMIT_US = 1000000 };

static bool is(const char *a, const char *b)
{
    return !strcmp(a, b);
}

static const json_t *first(const struct judge *j)
{
    return json_array_get(j->nodes, 0);
}

/* --- cluster ---------------------------------------------------------------------------------- */

static bool has_cluster(const struct judge *j)
{
    return json_is_object(json_object_get(j->me, "cluster"));
}

static void look_cluster(struct judge *j)
{
    const json_t *mine = json_object_get(j->me, "cluster");
    const char *state = fact_text(mine, "state");
    double newest = 0;
    size_t i;
    json_t *node;
    json_array_foreach (j->nodes, i, node)
        newest = fmax(newest, fact_number(json_object_get(node, "cluster"), "roster_version"));
    if (is(state, "none"))
        doctor_say(j, DOCTOR_WARNING, "cluster", xstrdup("ringctl init"),
                   "this node is in no cluster yet: make one here, or enter one with `ringctl join TOKEN`");
    else if (is(state, "removed"))
        doctor_say(
            j, DOCTOR_ERROR, "cluster", NULL,
            "this node was removed from cluster %s: `ringctl join TOKEN` with a new token lets it in again",
            fact_text(mine, "name"));
    else if (fact_number(mine, "roster_version") < newest)
        doctor_say(j, DOCTOR_WARNING, "roster", xstrdup("systemctl restart ringd"),
                   "this node knows version %.0f of the roster and others %.0f: it should learn it within "
                   "seconds of a connection",
                   fact_number(mine, "roster_version"), newest);
}

/* --- version ---------------------------------------------------------------------------------- */

static bool has_version(const struct judge *j)
{
    return *fact_text(j->me, "version");
}

static void look_version(struct judge *j)
{
    const char *mine = fact_text(j->me, "version"), *newest = mine, *where = "";
    size_t i;
    json_t *node;
    json_array_foreach (j->nodes, i, node) {
        if (strverscmp(fact_text(node, "version"), newest) > 0) {
            newest = fact_text(node, "version");
            where = fact_text(node, "name");
        }
    }
    if (newest != mine)
        doctor_say(j, DOCTOR_WARNING, "ringd",
                   xstrdup("apt-get install --only-upgrade ringd && systemctl restart ringd"),
                   "ringd %s runs here and %s on %s: jobs need the same version on all nodes", mine, newest,
                   where);
}

/* --- clock ------------------------------------------------------------------------------------ */

static bool has_clock(const struct judge *j)
{
    return fact_known(j->me, "offset_us") && json_array_size(j->nodes) > 1;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* What the clocks of most nodes say, relative to the one that asks; of two, what it says itself. */
static double right_time(const struct judge *j)
{
    size_t n = 0, i, size = json_array_size(j->nodes);
    double *offsets = xcalloc(size + 1, sizeof *offsets);
    json_t *node;
    json_array_foreach (j->nodes, i, node) {
        if (fact_known(node, "offset_us"))
            offsets[n++] = fact_number(node, "offset_us");
    }
    qsort(offsets, n, sizeof *offsets, by_value);
    double middle = n > 2 ? offsets[(n - 1) / 2] : 0;
    free(offsets);
    return middle;
}

static void look_clock(struct judge *j)
{
    double off = fact_number(j->me, "offset_us") - right_time(j), unsure = fact_number(j->me, "rtt_us") / 2;
    bool many = json_array_size(j->nodes) > 2;
    if (fabs(off) <= CLOCK_LIMIT_US + unsure)
        return;
    doctor_say(j, DOCTOR_WARNING, "clock", xstrdup("timedatectl set-ntp true"),
               "the clock is %.1f s %s that of %s: tokens and logs depend on it", fabs(off) / 1e6,
               off > 0 ? "ahead of" : "behind", many ? "most nodes" : fact_text(first(j), "name"));
}

/* --- CPU -------------------------------------------------------------------------------------- */

static bool has_cpu(const struct judge *j)
{
    return json_is_object(json_object_get(j->me, "cpu"));
}

/* Where the driver scales by itself, powersave is the ordinary setting. */
static bool is_held_back(const json_t *cpu)
{
    const char *driver = fact_text(cpu, "driver");
    return is(fact_text(cpu, "governor"), "powersave") && !is(driver, "intel_pstate") &&
           !is(driver, "amd-pstate-epp");
}

static void look_cpu(struct judge *j)
{
    const json_t *cpu = json_object_get(j->me, "cpu"), *other = json_object_get(first(j), "cpu");
    const char *isa = fact_text(cpu, "isa");
    if (is_held_back(cpu))
        doctor_say(j, DOCTOR_NOTE, "governor",
                   xstrdup("echo performance | tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"),
                   "the CPU is held at its lowest frequency (governor powersave)");
    if (is(isa, "base"))
        doctor_say(j, DOCTOR_NOTE, "kernels", NULL,
                   "the CPU lacks AVX2, or this machine hides it: stages here are several times slower; give "
                   "a virtual machine the CPU type host");
    if (*isa && *fact_text(other, "isa") && !is(isa, fact_text(other, "isa")))
        doctor_say(j, DOCTOR_NOTE, "kernels", NULL,
                   "this CPU computes with %s and %s with %s: a loss differs in its last digits from that of "
                   "a ring of one kind",
                   isa, fact_text(first(j), "name"), fact_text(other, "isa"));
}

/* --- memory, disk, limits --------------------------------------------------------------------- */

static bool always(const struct judge *j)
{
    (void)j;
    return true;
}

static void look_memory(struct judge *j)
{
    const json_t *m = json_object_get(j->me, "memory");
    double total = fact_number(m, "total"), available = fact_number(m, "available");
    double swap = fact_number(m, "swap_total"), used = swap - fact_number(m, "swap_free");
    if (total > 0 && (available < total / 20 || available < 256 * MIB))
        doctor_say(j, DOCTOR_WARNING, "memory", xstrdup("ps -eo rss,pid,comm --sort=-rss | head"),
                   "only %.0f MiB of %.1f GiB memory are available: the command shows which programs use it",
                   available / MIB, total / GIB);
    if (used > total / 10 && used > GIB)
        doctor_say(j, DOCTOR_NOTE, "swap", xstrdup("swapoff -a && swapon -a"),
                   "%.1f GiB are swapped out: a stage whose layers are swapped waits for the disk",
                   used / GIB);
}

static bool has_disk(const struct judge *j)
{
    return fact_known(j->me, "disk");
}

static void look_disk(struct judge *j)
{
    const json_t *d = json_object_get(j->me, "disk"), *fds = json_object_get(j->me, "fds");
    const char *path = fact_text(d, "path"), *history = fact_text(j->me, "history_trouble");
    double space = fact_number(d, "free");
    if (*path && space < GIB)
        doctor_say(
            j, space < GIB / 16 ? DOCTOR_ERROR : DOCTOR_WARNING, path,
            xasprintf("du -xhd1 %s | sort -h", doctor_word(path).text),
            "only %.0f MiB are free where ringd keeps its state: job history and rescued results need more",
            space / MIB);
    if (*history)
        doctor_say(j, DOCTOR_ERROR, "history", NULL, "job history is not being written: %s", history);
    if (fact_number(fds, "soft") > 0 && fact_number(fds, "soft") < FDS_ENOUGH)
        doctor_say(j, DOCTOR_WARNING, "files", xstrdup("prlimit --nofile=65536 --pid $(pidof ringd)"),
                   "%.0f file descriptors are allowed, and a busy node needs up to %d: raise the limit with "
                   "`ulimit -n`, or of a service with LimitNOFILE=",
                   fact_number(fds, "soft"), FDS_ENOUGH);
}

/* --- programs --------------------------------------------------------------------------------- */

static bool has_stage(const struct judge *j)
{
    return fact_known(j->me, "stage_trouble");
}

static void look_stage(struct judge *j)
{
    const char *trouble = fact_text(j->me, "stage_trouble");
    if (*trouble)
        doctor_say(j, DOCTOR_ERROR, "ringd-stage", NULL, "%s", trouble);
}

/* --- the cell of stages ----------------------------------------------------------------------- */

static bool has_cell(const struct judge *j)
{
    return fact_known(j->me, "cell");
}

/* Old versions of Landlock are enough: what they cannot refuse, the filter does. */
static void look_cell(struct judge *j)
{
    const json_t *cell = json_object_get(j->me, "cell");
    if (fact_number(cell, "landlock") < 1)
        doctor_say(
            j, DOCTOR_WARNING, "landlock", xstrdup("cat /sys/kernel/security/lsm"),
            "this kernel has no Landlock: a hostile model or node that takes over ringd-stage can read "
            "ringd's keys; boot Linux 5.13 or later with landlock in lsm=");
    if (!fact_flag(cell, "filters"))
        doctor_say(j, DOCTOR_WARNING, "seccomp", NULL,
                   "this kernel does not filter system calls: a hostile model or node that takes over "
                   "ringd-stage can run other programs; boot one with CONFIG_SECCOMP_FILTER");
}

/* --- ringd-keys ------------------------------------------------------------------------------- */

static bool has_keys(const struct judge *j)
{
    return fact_known(j->me, "keys");
}

static void look_keys(struct judge *j)
{
    const json_t *keys = json_object_get(j->me, "keys");
    const char *file = fact_text(keys, "file");
    const unsigned mode = (unsigned)fact_number(keys, "mode");
    if (!fact_flag(keys, "running"))
        doctor_say(
            j, DOCTOR_ERROR, "ringd-keys", xstrdup("systemctl restart ringd"),
            "ringd-keys, which has the keys of this node, does not run: ringd cannot go on without it");
    else if (fact_known(keys, "filters") && !fact_flag(keys, "filters") &&
             fact_flag(json_object_get(j->me, "cell"), "filters"))
        doctor_say(
            j, DOCTOR_WARNING, "ringd-keys", xstrdup("systemctl restart ringd"),
            "ringd-keys is not in its cell: its system calls are not filtered, though this kernel can; "
            "is it the program of this ringd?");
    if (!fact_known(keys, "mode"))
        doctor_say(j, DOCTOR_ERROR, "identity", NULL,
                   "%s is gone: the keys of this node are in memory only; restore the file from a backup "
                   "before ringd ends",
                   file);
    else if (mode & 077)
        doctor_say(j, DOCTOR_ERROR, "identity", xasprintf("chmod 600 %s", doctor_word(file).text),
                   "%s, which holds the keys of this node, can be read or written by others (mode %03o): "
                   "ringd will not start with it",
                   file, mode);
}

static bool has_apparmor(const struct judge *j)
{
    return *fact_text(j->me, "apparmor") != '\0';
}

static void look_apparmor(struct judge *j)
{
    const char *mode = fact_text(j->me, "apparmor");
    if (!strcmp(mode, "complain"))
        doctor_say(j, DOCTOR_WARNING, "apparmor", xstrdup("aa-enforce /etc/apparmor.d/usr.sbin.ringd"),
                   "AppArmor notes what ringd does beyond its profile, and allows it");
    else if (strcmp(mode, "enforce"))
        doctor_say(j, DOCTOR_WARNING, "apparmor",
                   xstrdup("apparmor_parser -r /etc/apparmor.d/usr.sbin.ringd && systemctl restart ringd"),
                   "this kernel has AppArmor, and it does not confine ringd: its profile is not loaded");
}

/* --- model ------------------------------------------------------------------------------------ */

static bool has_model(const struct judge *j)
{
    return json_is_object(json_object_get(j->me, "model"));
}

/* A tensor, for people. */
struct named {
    char tensor[200], file[400];
};

/* The first node whose model could be read has the one meant. */
static const json_t *model_meant(const struct judge *j)
{
    size_t i;
    json_t *node;
    json_array_foreach (j->nodes, i, node) {
        if (*fact_text(json_object_get(node, "model"), "fingerprint"))
            return node;
    }
    return NULL;
}

static void look_fit(struct judge *j, const char *dir, double bytes)
{
    double available = 0;
    size_t i;
    json_t *node;
    json_array_foreach (j->nodes, i, node)
        available += fact_number(json_object_get(node, "memory"), "available");
    if (j->me == first(j) && bytes > 0 && available < bytes)
        doctor_say(j, DOCTOR_ERROR, "memory", NULL,
                   "%s has %.1f GiB of weights, and all nodes together %.1f GiB of free memory: add a node, "
                   "or free some",
                   dir, bytes / GIB, available / GIB);
}

/* "TENSOR\tFILE" of that line; false: no node named one. */
static bool find_name(const struct judge *j, size_t tensor, struct named *ret)
{
    const json_t *node = model_meant(j);
    const char *at = fact_text(json_object_get(node, "model"), "names");
    for (size_t i = 0; i < tensor && at; i++) {
        at = strchr(at, '\n');
        at = at ? at + 1 : NULL;
    }
    if (!at)
        return false;
    const size_t name = strcspn(at, "\t\n"), file = at[name] == '\t' ? strcspn(at + name + 1, "\n") : 0;
    snprintf(ret->tensor, sizeof ret->tensor, "%.*s", (int)name, at);
    snprintf(ret->file, sizeof ret->file, "%.*s", (int)file, at + name + 1);
    return name && at[name] == '\t';
}

static void say_differs(struct judge *j, const struct weights_difference *d, char *copy)
{
    const json_t *mine = json_object_get(j->me, "model"), *node = model_meant(j);
    const char *dir = fact_text(mine, "dir"), *there = fact_text(node, "name");
    struct named first;
    if (d->tensor == SIZE_MAX || !find_name(j, d->tensor, &first))
        doctor_say(
            j, DOCTOR_ERROR, "model", copy,
            "%zu of the %zu units (embedding, layers, head) of the model in %s have other values than on %s",
            d->units, d->all, dir, there);
    else if (d->tensors == 1)
        doctor_say(
            j, DOCTOR_ERROR, "model", copy,
            "tensor %s in %s has other values than on %s: one of the two files is damaged or of another "
            "model",
            first.tensor, *first.file ? first.file : dir, there);
    else
        doctor_say(j, DOCTOR_ERROR, "model", copy,
                   "%zu tensors have other values than on %s, the first is %s in %s: one of the two copies "
                   "is of a different model",
                   d->tensors, there, first.tensor, *first.file ? first.file : dir);
}

/* Is the model what the node has whose model is meant? Takes over `copy`. */
static void look_weights(struct judge *j, const json_t *theirs, char *copy)
{
    const json_t *mine = json_object_get(j->me, "model");
    const char *missing = fact_text(mine, "missing");
    struct weights_difference d;
    const bool is_text = !weights_text_compare(&d, fact_text(mine, "weights"), fact_text(theirs, "weights"));
    if (*missing)
        doctor_say(j, DOCTOR_NOTE, "model", NULL,
                   "the model in %s lacks %s on this node: this node cannot hold the layers in those files",
                   fact_text(mine, "dir"), missing);
    if (is_text && (d.units || d.tensors)) {
        say_differs(j, &d, copy);
        return;
    }
    free(copy);
    if (is_text && mine != theirs && d.compared < d.all)
        doctor_say(j, DOCTOR_NOTE, "model", NULL,
                   "%zu of the %zu units (embedding, layers, head) of the model in %s could be compared with "
                   "those on %s: `ringctl doctor --deep` reads all",
                   d.compared, d.all, fact_text(mine, "dir"), fact_text(model_meant(j), "name"));
}

static void look_model(struct judge *j)
{
    const json_t *mine = json_object_get(j->me, "model"), *node = model_meant(j);
    const json_t *theirs = json_object_get(node, "model");
    const char *dir = fact_text(mine, "dir"), *print = fact_text(mine, "fingerprint");
    char *copy = node && node != j->me
                     ? xasprintf("rsync -a --checksum %s:%s/ %s/", doctor_word(fact_text(node, "name")).text,
                                 doctor_word(dir).text, doctor_word(dir).text)
                     : NULL;
    if (!*print)
        doctor_say(j, DOCTOR_ERROR, "model", copy, "%s", fact_text(mine, "error"));
    else if (!is(print, fact_text(theirs, "fingerprint")))
        doctor_say(j, DOCTOR_ERROR, "model", copy,
                   "the model in %s differs from that on %s (fingerprint %.8s, there %.8s)", dir,
                   fact_text(node, "name"), print, fact_text(theirs, "fingerprint"));
    else
        look_weights(j, theirs, copy);
    look_fit(j, dir, fact_number(theirs, "bytes"));
}

const struct check doctor_node_checks[] = {
    {"cluster", "a member, with the newest roster", has_cluster, look_cluster},
    {"version", "no node has a newer ringd", has_version, look_version},
    {"clock", "within a second of the others", has_clock, look_clock},
    {"cpu", "fast kernels, full speed", has_cpu, look_cpu},
    {"memory", "enough is free", always, look_memory},
    {"disk", "space for state and history, and enough file descriptors", has_disk, look_disk},
    {"programs", "ringd-stage, which computes, is where ringd looks for it", has_stage, look_stage},
    {"cell", "the kernel can confine ringd-stage", has_cell, look_cell},
    {"keys", "ringd-keys runs in its cell, and no other user can read its file", has_keys, look_keys},
    {"apparmor", "ringd's profile is enforced", has_apparmor, look_apparmor},
    {"model", "the same model everywhere, and memory for it", has_model, look_model},
    {.name = NULL},
};
