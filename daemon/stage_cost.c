/* SPDX-License-Identifier: MIT */
#include "daemon/stage_cost.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "daemon/stage_cache.h"
#include "daemon/stage_quota.h"

enum { TURNS = 5 };
static const double LONG_S = 1.0; /* what takes so long is timed once more at most */

/* --- measuring -------------------------------------------------------------------------------- */

struct trial {
    struct stage *stage;
    const struct stage_spec *spec; /* borrowed */
    size_t at;                     /* of a stage with a cache: positions that are behind it */
    double quota;                  /* CPUs in the long run */
    struct seqs seqs;
    uint32_t *start, *ids; /* owned */
    int32_t *labels;       /* owned */
    float *x, *y, *dy;     /* owned */
    bool trained;
};

static double seconds_of(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

struct moment {
    double wall, cpu;
};

static struct moment now(void)
{
    return (struct moment){seconds_of(CLOCK_MONOTONIC), seconds_of(CLOCK_PROCESS_CPUTIME_ID)};
}

/* A quota is felt once it is used up, which a short task may not live to see: counted is what it takes in the long run. */
static double took(const struct trial *t, struct moment from)
{
    const struct moment to = now();
    return fmax(to.wall - from.wall, (to.cpu - from.cpu) / t->quota);
}

static int trial_init(struct trial *t, const struct unit_trial *want, double quota, struct err *err)
{
    const struct stage_spec *spec = &want->spec;
    const size_t tokens = spec->tokens, each = (tokens + spec->seqs - 1) / spec->seqs,
                 floats = tokens * spec->config.dim;
    uint64_t noise = 88172645463325252;
    *t = (struct trial){.spec = spec,
                        .at = want->at,
                        .quota = quota,
                        .trained = want->trained,
                        .start = calloc(spec->seqs + 1, sizeof *t->start),
                        .ids = calloc(tokens, sizeof *t->ids),
                        .labels = calloc(tokens, sizeof *t->labels),
                        .x = calloc(floats, sizeof *t->x),
                        .y = calloc(floats, sizeof *t->y),
                        .dy = calloc(floats, sizeof *t->dy)};
    if (!t->start || !t->ids || !t->labels || !t->x || !t->y || !t->dy)
        return err_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i <= spec->seqs; i++)
        t->start[i] = (uint32_t)(i * each < tokens ? i * each : tokens);
    t->seqs = (struct seqs){spec->seqs, t->start};
    for (size_t i = 0; i < tokens; i++) {
        t->ids[i] = (uint32_t)(i * 7919 % spec->config.vocab);
        t->labels[i] = (int32_t)((i * 104729 + 1) % spec->config.vocab);
    }
    for (size_t i = 0; i < floats; i++) {
        noise ^= noise << 13;
        noise ^= noise >> 7;
        noise ^= noise << 17;
        t->x[i] = (float)(noise >> 40) / 8388608.0f - 1.0f;
        t->dy[i] = t->x[i] * 1e-3f;
    }
    return 0;
}

static void trial_done(struct trial *t)
{
    stage_close(t->stage);
    free(t->start);
    free(t->ids);
    free(t->labels);
    free(t->x);
    free(t->y);
    free(t->dy);
}

/* Of a generation: the next positions, of the head with the scores of the last. */
static int decode_once(struct trial *t, struct sched_cost *ret, struct err *err)
{
    const struct stage_spec *spec = t->spec;
    const struct moment from = now();
    int e = stage_decode(t->stage, spec->embed ? t->ids : NULL, spec->embed ? NULL : t->x,
                         spec->head ? NULL : t->y, spec->tokens, t->at, err);
    if (e)
        return e;
    if (spec->head)
        stage_logits(t->stage);
    *ret = (struct sched_cost){.f = took(t, from)};
    return 0;
}

static int trial_once(struct trial *t, struct sched_cost *ret, struct err *err)
{
    const struct stage_spec *spec = t->spec;
    struct sched_cost cost = {0};
    if (spec->kv)
        return decode_once(t, ret, err);
    struct moment from = now();
    int e = stage_begin(t->stage, 0, t->seqs, 0, err);
    if (!e && spec->embed)
        e = stage_input_ids(t->stage, 0, t->ids, err);
    if (e)
        return e;
    if (!spec->embed)
        stage_input(t->stage, 0, t->x);
    stage_forward(t->stage, 0, spec->head ? NULL : t->y);
    cost.r = took(t, from);
    if (spec->head) {
        struct xent xent = {.labels = t->labels, .dscale = spec->training ? 1.0f / (float)spec->tokens : 0};
        stage_loss(t->stage, 0, &xent);
    }
    cost.f = took(t, from);
    if (t->trained) {
        from = now();
        stage_backward_x(t->stage, 0, spec->head ? NULL : t->dy, spec->embed ? NULL : t->y);
        cost.i = took(t, from);
        from = now();
        stage_backward_w(t->stage, 0);
        cost.w = took(t, from);
    }
    *ret = cost;
    return 0;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The middle one: the least is what a task takes with the machine to itself, and a step is a sum of many that have not. */
static double middle(const struct sched_cost *turn, size_t n, size_t offset)
{
    double at[TURNS + 1] = {0};
    for (size_t i = 0; i < n; i++)
        memcpy(&at[i], (const char *)&turn[i] + offset, sizeof at[i]);
    qsort(at, n, sizeof *at, by_size);
    return at[(n - 1) / 2];
}

/* The first turn brings the weights into memory and does not count, unless it was so long that one more is out of the question. */
static int measure(struct sched_cost *ret, struct num *num, const struct unit_trial *want, double quota,
                   struct err *err)
{
    struct trial t = {0};
    struct sched_cost turn[TURNS + 1];
    double spent = 0;
    size_t n = 0;
    int e = trial_init(&t, want, quota, err);
    if (!e)
        e = stage_open(&t.stage, num, &want->spec, err);
    for (size_t k = 0; k <= TURNS && !e && (k < 2 || spent < LONG_S); k++) {
        e = trial_once(&t, &turn[n], err);
        if (e)
            break;
        const double one = turn[n].f + turn[n].i + turn[n].w;
        spent += one;
        n += k > 0 || one >= 10 * LONG_S;
        if (k == 0 && n)
            break;
    }
    trial_done(&t);
    if (!e)
        *ret = (struct sched_cost){
            middle(turn, n, offsetof(struct sched_cost, f)), middle(turn, n, offsetof(struct sched_cost, i)),
            middle(turn, n, offsetof(struct sched_cost, w)), middle(turn, n, offsetof(struct sched_cost, r))};
    return e;
}

/* --- keeping ---------------------------------------------------------------------------------- */

static void cpu_name(char *ret, size_t size)
{
    char line[512];
    FILE *f = fopen("/proc/cpuinfo", "re");
    snprintf(ret, size, "unknown");
    while (f && fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon)
            continue;
        colon[strcspn(colon, "\n")] = '\0';
        snprintf(ret, size, "%s", colon + 1 + strspn(colon + 1, " "));
        break;
    }
    if (f)
        fclose(f);
}

/* All that the time depends on. */
static json_t *make_key(const struct num *num, const struct unit_trial *want, const char *fingerprint,
                        double quota)
{
    const struct stage_spec *s = &want->spec;
    char cpu[256];
    const char *core = getenv("OPENBLAS_CORETYPE");
    cpu_name(cpu, sizeof cpu);
    json_t *targets = json_array();
    for (size_t i = 0; i < s->tune.ntargets; i++)
        json_array_append_new(targets, json_string(s->tune.targets[i]));
    return json_pack(
        "{s:s s:s s:s s:i s:f s:s s:b s:b s:b s:I s:I s:I s:I s:I s:i s:I s:o s:b s:b s:b s:I s:I}", "cpu",
        cpu, "isa", num_isa(num), "core", core ? core : "", "threads", num_threads(num), "cpus",
        isinf(quota) ? 0.0 : quota, "model", fingerprint, "by_layer", (int)s->by_layer, "embedding",
        (int)s->embed, "head", (int)s->head, "layer", (json_int_t)s->first_layer, "layers",
        (json_int_t)(s->end_layer - s->first_layer), "tokens", (json_int_t)s->tokens, "seqs",
        (json_int_t)s->seqs, "bits", (json_int_t)s->weight_bits, "tune", (int)s->tune.kind, "rank",
        (json_int_t)s->tune.rank, "targets", targets, "trained", (int)want->trained, "training",
        (int)s->training, "kv", (int)s->kv, "positions", (json_int_t)(s->kv ? s->positions : 0), "at",
        (json_int_t)want->at);
}

static int make_path(char *ret, size_t size, const json_t *key)
{
    struct err quiet;
    char dir[3900], parent[3900], *text = json_dumps(key, JSON_SORT_KEYS | JSON_COMPACT);
    uint64_t hash = 14695981039346656037u;
    for (const char *p = text ? text : ""; *p; p++)
        hash = (hash ^ (unsigned char)*p) * 1099511628211u;
    free(text);
    if (cache_dir(dir, sizeof dir, "costs", &quiet))
        return -ENOENT;
    snprintf(parent, sizeof parent, "%s", dir);
    for (char *p = strchr(parent + 1, '/'); p; p = strchr(p + 1, '/')) {
        *p = '\0';
        mkdir(parent, 0755);
        *p = '/';
    }
    mkdir(dir, 0755);
    snprintf(ret, size, "%s/%016" PRIx64 ".json", dir, hash);
    return 0;
}

static bool find(struct sched_cost *ret, const char *path, const json_t *key)
{
    json_t *kept = json_load_file(path, 0, NULL);
    struct sched_cost c;
    bool found = !json_unpack(kept, "{s:F s:F s:F s:F}", "f", &c.f, "i", &c.i, "w", &c.w, "r", &c.r) &&
                 json_equal(json_object_get(kept, "key"), key) && c.f >= 0 && c.i >= 0 && c.w >= 0 &&
                 c.r >= 0;
    json_decref(kept);
    if (found)
        *ret = c;
    return found;
}

/* Nothing depends on whether that works: it would be measured again. */
static void keep(const struct sched_cost *c, const char *path, const json_t *key)
{
    char name[4200];
    snprintf(name, sizeof name, "%s.%d", path, (int)getpid());
    json_t *o = json_pack("{s:O s:f s:f s:f s:f}", "key", key, "f", c->f, "i", c->i, "w", c->w, "r", c->r);
    if (json_dump_file(o, name, JSON_INDENT(1)) || rename(name, path))
        unlink(name);
    json_decref(o);
}

int unit_cost(struct sched_cost *ret, struct num *num, const struct unit_trial *want, const char *fingerprint,
              bool may_time, struct err *err)
{
    char path[4096];
    const double quota = quota_here();
    json_t *key = make_key(num, want, fingerprint, quota);
    const bool kept = *fingerprint && key && !make_path(path, sizeof path, key);
    int e = 0;
    if (!kept || !find(ret, path, key)) {
        e = may_time ? measure(ret, num, want, quota, err)
                     : err_set(err, -EBUSY,
                               "nothing was timed there before, and while a job runs or begins nothing is");
        if (!e && kept)
            keep(ret, path, key);
    }
    json_decref(key);
    return e;
}
