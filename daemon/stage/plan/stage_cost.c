/* SPDX-License-Identifier: MIT */
#include "daemon/stage/plan/stage_cost.h"

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

#include "daemon/common/cache_dir.h"
#include "daemon/stage/plan/cache_evict.h"
#include "daemon/stage/plan/stage_quota.h"

enum {
    TURNS = 5,
    MOST_TURNS = 50,
    WAY = 5 /* of timing: what was kept by another is timed again */
};
static const double LONG_S = 1.0; /* what takes so long is timed once more at most */
static const double ENOUGH_S =
    0.3; /* what takes less is timed more often, as a CPU is not as fast in every moment */

/* --- measuring -------------------------------------------------------------------------------- */

struct trial {
    struct stage *stage;
    const struct stage_spec *spec; /* borrowed */
    size_t at;                     /* of a stage with a cache: positions that are behind it */
    struct seqs seqs;
    uint32_t *start, *ids;      /* owned */
    int32_t *labels;            /* owned */
    double *logp;               /* owned [seqs.n], of pairs */
    float *x, *y, *dy;          /* owned */
    struct stage_piece *pieces; /* owned [seqs.n], of serving, as the next two; else NULL */
    uint32_t *blocks, *last;    /* those of all pieces; the last row of each */
    bool trained;
    struct cache_evict cold; /* owned; without memory where a model stays in the caches */
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
/* What one turn took: of the clock, and of the CPUs. */
struct turn {
    struct sched_cost wall, cpu;
};

static struct moment now(void)
{
    return (struct moment){seconds_of(CLOCK_MONOTONIC), seconds_of(CLOCK_PROCESS_CPUTIME_ID)};
}

static void took(double *ret_wall, double *ret_cpu, struct moment from)
{
    const struct moment to = now();
    *ret_wall = to.wall - from.wall;
    *ret_cpu = to.cpu - from.cpu;
}

/* Every piece has blocks of its own, one behind the other. */
static int trial_pieces(struct trial *t, struct err *err)
{
    const size_t n = t->seqs.n, each = t->spec->kv_blocks / n;
    t->pieces = calloc(n, sizeof *t->pieces);
    t->blocks = calloc(t->spec->kv_blocks, sizeof *t->blocks);
    t->last = calloc(n, sizeof *t->last);
    if (!t->pieces || !t->blocks || !t->last)
        return err_set(err, -ENOMEM, "out of memory");
    for (size_t b = 0; b < t->spec->kv_blocks; b++)
        t->blocks[b] = (uint32_t)b;
    for (size_t i = 0; i < n; i++) {
        t->pieces[i] = (struct stage_piece){.blocks = t->blocks + i * each,
                                            .nblocks = each,
                                            .at = t->at,
                                            .n = t->start[i + 1] - t->start[i],
                                            .adapter = STAGE_NO_ADAPTER,
                                            .state = (uint32_t)i};
        t->last[i] = t->start[i + 1] - 1;
    }
    return 0;
}

static int trial_init(struct trial *t, const struct unit_trial *want, struct err *err)
{
    const struct stage_spec *spec = &want->spec;
    const size_t tokens = spec->tokens, each = (tokens + spec->seqs - 1) / spec->seqs,
                 floats = tokens * spec->config.dim;
    uint64_t noise = 88172645463325252;
    *t = (struct trial){.spec = spec,
                        .at = want->at,
                        .trained = want->trained,
                        .start = calloc(spec->seqs + 1, sizeof *t->start),
                        .ids = calloc(tokens, sizeof *t->ids),
                        .labels = calloc(tokens, sizeof *t->labels),
                        .logp = calloc(spec->seqs, sizeof *t->logp),
                        .x = calloc(floats, sizeof *t->x),
                        .y = calloc(floats, sizeof *t->y),
                        .dy = calloc(floats, sizeof *t->dy)};
    if (!t->start || !t->ids || !t->labels || !t->logp || !t->x || !t->y || !t->dy)
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
    return spec->kv_blocks ? trial_pieces(t, err) : 0;
}

/* One layer over and over would stay in the caches, which many in turn push each other out of. So
 * in between as much is read as the model has, or as pushes out everything. */
static int trial_cool(struct trial *t, struct err *err)
{
    const double most = 2 * (double)cache_evict_cache_bytes("/sys/devices/system/cpu/cpu0/cache");
    struct stage_bytes bytes;
    int e = stage_measure(&bytes, t->spec, err);
    if (e)
        return e;
    const double all = (double)(bytes.mapped + bytes.params) * (double)t->spec->config.layers;
    e = cache_evict_init(&t->cold, (size_t)fmin(all, most));
    return e ? err_set(err, e, "out of memory") : 0;
}

/* Between a layer's forward and its backward come those of other layers. What they push out of a
 * large cache is not known, and such a one takes long to empty. */
static void cool_between(const struct trial *t)
{
    static const size_t MOST = 64u << 20;
    if (t->cold.bytes <= MOST)
        cache_evict_read(&t->cold);
}

static void trial_done(struct trial *t)
{
    stage_close(t->stage);
    cache_evict_done(&t->cold);
    free(t->start);
    free(t->ids);
    free(t->labels);
    free(t->logp);
    free(t->x);
    free(t->y);
    free(t->dy);
    free(t->pieces);
    free(t->blocks);
    free(t->last);
}

/* Of a generation: the next positions, of the head with the scores of the last. */
static int decode_once(struct trial *t, struct turn *ret, struct err *err)
{
    const struct stage_spec *spec = t->spec;
    const struct moment from = now();
    int e = stage_decode(t->stage, spec->embed ? t->ids : NULL, spec->embed ? NULL : t->x,
                         spec->head ? NULL : t->y, spec->tokens, t->at, err);
    if (e)
        return e;
    if (spec->head)
        stage_logits(t->stage);
    took(&ret->wall.f, &ret->cpu.f, from);
    return 0;
}

/* Of serving: the next rows of each sequence, of the head with the scores of the last. */
static int rows_once(struct trial *t, struct turn *ret, struct err *err)
{
    const struct stage_spec *spec = t->spec;
    const struct moment from = now();
    const float *logits;
    int e = stage_rows(t->stage, t->pieces, t->seqs.n, spec->embed ? t->ids : NULL, spec->embed ? NULL : t->x,
                       spec->head ? NULL : t->y, err);
    if (!e && spec->head)
        e = stage_rows_logits(t->stage, t->last, t->seqs.n, &logits, err);
    took(&ret->wall.f, &ret->cpu.f, from);
    return e;
}

/* What follows once a step: the norm of the gradients, and the optimizer with values that hardly
 * change anything. */
static void end_step(struct trial *t, struct turn *ret)
{
    const struct adamw opt = {.lr = 1e-12f, .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f};
    size_t bad;
    const struct moment from = now();
    stage_sumsq(t->stage, 0, &bad);
    stage_update(t->stage, 1, &opt, 1);
    took(&ret->wall.u, &ret->cpu.u, from);
}

/* The loss of pairs takes a second look at the logits where the head is trained. */
static void lose(struct trial *t)
{
    const struct stage_spec *spec = t->spec;
    const double dscale = spec->training ? 1.0 / (double)spec->tokens : 0;
    if (spec->pairs)
        stage_loss_pairs(t->stage, 0,
                         &(struct stage_pairs){
                             .labels = t->labels, .how = {LOSS_DPO, 0.1}, .dscale = dscale, .logp = t->logp});
    else
        stage_loss(t->stage, 0, &(struct xent){.labels = t->labels, .dscale = (float)dscale});
}

static int trial_once(struct trial *t, struct turn *ret, struct err *err)
{
    const struct stage_spec *spec = t->spec;
    *ret = (struct turn){0};
    if (spec->kv_blocks)
        return rows_once(t, ret, err);
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
    took(&ret->wall.r, &ret->cpu.r, from);
    if (spec->head)
        lose(t);
    took(&ret->wall.f, &ret->cpu.f, from);
    if (t->trained) {
        cool_between(t);
        from = now();
        stage_backward_x(t->stage, 0, spec->head ? NULL : t->dy, spec->embed ? NULL : t->y);
        took(&ret->wall.i, &ret->cpu.i, from);
        from = now();
        stage_backward_w(t->stage, 0);
        took(&ret->wall.w, &ret->cpu.w, from);
    }
    if (t->trained)
        end_step(t, ret);
    return 0;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The middle one: the least is what a task takes with the machine to itself, and a step is a sum of
 * many that have not. */
static double middle(const struct turn *turn, size_t n, size_t offset)
{
    double at[MOST_TURNS] = {0};
    for (size_t i = 0; i < n; i++)
        memcpy(&at[i], (const char *)&turn[i] + offset, sizeof at[i]);
    qsort(at, n, sizeof *at, by_size);
    return at[(n - 1) / 2];
}

static double sum_of(const struct sched_cost *c)
{
    return c->f + c->i + c->w;
}

static struct sched_cost sum_up(const struct turn *turn, size_t n, double quota)
{
    double wall[MOST_TURNS], cpu[MOST_TURNS];
    const bool by_cpu = isfinite(quota);
    const size_t of = by_cpu ? offsetof(struct turn, cpu) : offsetof(struct turn, wall);
    for (size_t i = 0; i < n; i++) {
        wall[i] = sum_of(&turn[i].wall);
        cpu[i] = sum_of(&turn[i].cpu);
    }
    const double x = by_cpu ? quota_slows(wall, cpu, n, quota) : 1;
    return (struct sched_cost){x * middle(turn, n, of + offsetof(struct sched_cost, f)),
                               x * middle(turn, n, of + offsetof(struct sched_cost, i)),
                               x * middle(turn, n, of + offsetof(struct sched_cost, w)),
                               x * middle(turn, n, of + offsetof(struct sched_cost, r)),
                               x * middle(turn, n, of + offsetof(struct sched_cost, u))};
}

/* Of a generation, opened anew: what a job does first with weights that are in memory, but mapped
 * by nobody. In place of R, which it has not. */
static int measure_first(struct turn *turn, size_t n, struct trial *t, struct num *num, struct err *err)
{
    struct turn first;
    stage_close(t->stage);
    t->stage = NULL;
    int e = stage_open(&t->stage, num, t->spec, err);
    cache_evict_read(&t->cold);
    e = e ? e : trial_once(t, &first, err);
    for (size_t i = 0; i < n && !e; i++) {
        turn[i].wall.r = first.wall.f;
        turn[i].cpu.r = first.cpu.f;
    }
    return e;
}

/* The first turn brings the weights into memory and does not count, unless it was so long that one
 * more is out of the question. */
static int measure(struct sched_cost *ret, struct num *num, const struct unit_trial *want, double quota,
                   struct err *err)
{
    struct trial t = {0};
    struct turn turn[MOST_TURNS];
    double spent = 0;
    size_t n = 0;
    int e = trial_init(&t, want, err);
    if (!e)
        e = stage_open(&t.stage, num, &want->spec, err);
    if (!e)
        e = trial_cool(&t, err);
    while (!e && (!n || (n < MOST_TURNS && spent < (n < TURNS ? LONG_S : ENOUGH_S)))) {
        const struct moment from = now();
        cache_evict_read(&t.cold);
        e = trial_once(&t, &turn[n], err);
        const double one = now().wall - from.wall;
        n += spent > 0 || one >= 10 * LONG_S;
        spent += one;
    }
    if (!e && want->spec.kv && !want->spec.kv_blocks)
        e = measure_first(turn, n, &t, num, err);
    trial_done(&t);
    if (!e)
        *ret = sum_up(turn, n, quota);
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

/* Where ranks differ by layer, how many numbers are trained tells the layers apart. */
static json_int_t factors_of(const struct stage_spec *s)
{
    size_t n = 0;
    for (size_t l = s->first_layer; s->tune.kind == TUNE_LORA && l < s->end_layer; l++)
        n += tune_unit_elements(&s->tune, family_find(s->config.family), &s->config, l + 1);
    return (json_int_t)n;
}

/* What they are multiplied in, and with. */
static const char *products_of(const struct num *num)
{
    switch (num_compute(num)) {
    case NUM_BF16: return num_is_bf16_fast(num) ? num_isa_bf16(num) : "bf16 by f32";
    case NUM_INT8:
    case NUM_BYTES: return num_isa_bytes(num);
    default: return num_compute_name(num_compute(num));
    }
}

/* All that the time depends on. */
static json_t *make_key(const struct num *num, const struct unit_trial *want, const char *fingerprint,
                        double quota)
{
    const struct stage_spec *s = &want->spec;
    char cpu[256];
    cpu_name(cpu, sizeof cpu);
    json_t *targets = json_array();
    for (size_t i = 0; i < s->tune.ntargets; i++)
        json_array_append_new(targets, json_string(s->tune.targets[i]));
    json_t *key = json_pack(
        "{s:i s:s s:s s:s s:i s:f s:s s:b s:b s:b s:I s:I s:I s:I s:I s:i s:I s:I s:o s:b s:b s:b s:I s:I}",
        "way", WAY, "cpu", cpu, "isa", num_isa(num), "products", products_of(num), "threads",
        num_threads(num), "cpus", isinf(quota) ? 0.0 : quota, "model", fingerprint, "by_layer",
        (int)s->by_layer, "embedding", (int)s->embed, "head", (int)s->head, "layer",
        (json_int_t)s->first_layer, "layers", (json_int_t)(s->end_layer - s->first_layer), "tokens",
        (json_int_t)s->tokens, "seqs", (json_int_t)s->seqs, "bits", (json_int_t)s->weight_bits, "tune",
        (int)s->tune.kind, "rank", (json_int_t)s->tune.rank, "factors", factors_of(s), "targets", targets,
        "trained", (int)want->trained, "training", (int)s->training, "kv", (int)s->kv, "positions",
        (json_int_t)(s->kv ? s->positions : 0), "at", (json_int_t)want->at);
    if (key && s->kv_blocks)
        json_object_set_new(key, "kv_type", json_string(kv_type_name(s->kv_type)));
    if (key && s->pairs && s->head)
        json_object_set_new(key, "pairs", json_true());
    if (key && s->tune.dora)
        json_object_set_new(key, "dora", json_true());
    if (key && slice_is_part(s->slice))
        json_object_set_new(key, "slices", json_integer((json_int_t)s->slice.count));
    return key;
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
    bool found =
        !json_unpack(kept, "{s:F s:F s:F s:F s:F}", "f", &c.f, "i", &c.i, "w", &c.w, "r", &c.r, "u", &c.u) &&
        json_equal(json_object_get(kept, "key"), key) && c.f >= 0 && c.i >= 0 && c.w >= 0 && c.r >= 0 &&
        c.u >= 0;
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
    json_t *o = json_pack("{s:O s:f s:f s:f s:f s:f}", "key", key, "f", c->f, "i", c->i, "w", c->w, "r", c->r,
                          "u", c->u);
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
                               "it was not timed before, and cannot be timed while a job runs or begins");
        if (!e && kept)
            keep(ret, path, key);
    }
    json_decref(key);
    return e;
}
