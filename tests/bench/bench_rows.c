/* SPDX-License-Identifier: MIT
 *
 * `bench_rows NAME MODEL …`, a MODEL perhaps with :int8 or :int4 behind it: many streams served in
 * one call (stage_rows), without daemons. Streams are held against the roofline: a call reads each
 * weight once, and multiplies it once for each stream. So it takes at least as long as the slower
 * of these two. Both limits are measured in between. One stream is held against stage_decode, and
 * pieces of a prompt against its chunks of as many tokens. Streams with long texts behind them are
 * held, with rounded keys and values, against the same with f32. Each row comes from a process
 * started as the daemon starts a stage. */
#include "tests/bench/bench.h"

#include "daemon/stage/plan/stage_machine.h"
#include "model/stage.h"
#include "num/quant.h"

enum {
    PROMPT = 64,
    STEPS = 8,    /* tokens of each stream in a repetition */
    STREAMS = 16, /* most of them */
    PIECE = 256,  /* most rows of a call */
    POSITIONS = 512,
    TABLE = POSITIONS / STAGE_KV_BLOCK,
    REPEATS = 5,
    FAR = 2048, /* positions behind each of so many streams, */
    FAR_STREAMS = 4,
    FAR_TABLE = FAR / STAGE_KV_BLOCK + 1, /* and blocks of each */
};

/* Elements of the matrices a token is multiplied with, experts as one token chooses them. */
static double weight_elements(const struct config *c)
{
    const double attention = 2.0 * (double)(c->heads + c->kv_heads) * (double)(c->head * c->dim);
    double layers = 0;
    for (size_t l = 0; l < c->layers; l++) {
        const size_t ffn = config_has_experts(c, l) ? c->moe.chosen * c->moe.ffn + c->moe.shared_ffn : c->ffn;
        layers += attention + 3.0 * (double)c->dim * (double)ffn;
    }
    return layers + (double)c->vocab * (double)c->dim;
}

struct bed {
    const char *name;
    int threads;
    struct num *num;
    struct stage *decode, *rows;
    struct machine *machine;
    struct bench_sgemm sgemm;
    double elements, bytes; /* of all matrices */
    uint32_t blocks[STREAMS][TABLE], far_blocks[FAR_STREAMS][FAR_TABLE], ids[PIECE];
};

/* One token of each stream, at position `at`. */
static void streams(struct bed *b, size_t n, size_t at)
{
    struct err err;
    struct stage_piece pieces[STREAMS];
    uint32_t rows[STREAMS];
    const float *logits;
    for (uint32_t i = 0; i < n; i++) {
        pieces[i] = (struct stage_piece){b->blocks[i], TABLE, at, 1, STAGE_NO_ADAPTER, 0, 0, 0, 0};
        rows[i] = i;
    }
    bench_must(stage_rows(b->rows, pieces, n, b->ids, NULL, NULL, &err), &err);
    bench_must(stage_rows_logits(b->rows, rows, n, &logits, &err), &err);
}

static void piece(struct bed *b, size_t n)
{
    struct err err;
    const struct stage_piece p = {b->blocks[0], TABLE, 0, n, STAGE_NO_ADAPTER, 0, 0, 0, 0};
    bench_must(stage_rows(b->rows, &p, 1, b->ids, NULL, NULL, &err), &err);
}

static void chunk(struct bed *b, size_t n)
{
    struct err err;
    bench_must(stage_decode(b->decode, b->ids, NULL, NULL, n, 0, &err), &err);
}

static double streams_per_second(struct bed *b, size_t n)
{
    const double begin = bench_now();
    for (size_t i = 0; i < STEPS; i++)
        streams(b, n, PROMPT + i);
    return (double)(n * STEPS) / (bench_now() - begin);
}

static double tokens_per_second(struct bed *b)
{
    struct err err;
    const double begin = bench_now();
    for (size_t i = 0; i < STEPS; i++) {
        bench_must(stage_decode(b->decode, b->ids, NULL, NULL, 1, PROMPT + i, &err), &err);
        stage_logits(b->decode);
    }
    return STEPS / (bench_now() - begin);
}

/* Tokens a second of n streams that memory and arithmetic allow. */
static double roofline(struct bed *b, size_t n)
{
    const double read = b->bytes / (1e9 * machine_read(b->machine));
    const double multiply = 2 * b->elements * (double)n / (1e9 * bench_sgemm_run(&b->sgemm, 0.05));
    return (double)n / (read > multiply ? read : multiply);
}

static double per_second(struct bed *b, void (*run)(struct bed *, size_t), size_t n)
{
    const double begin = bench_now();
    run(b, n);
    return (double)n / (bench_now() - begin);
}

static void print(const struct bed *b, const char *what, size_t n, const char *limit, double goal,
                  const struct bench_series *s)
{
    char text[64];
    snprintf(text, sizeof text, "%s %zu, %s, %d thread%s", what, n, b->name, b->threads,
             b->threads > 1 ? "s" : "");
    bench_print(&(struct bench_row){text, "tokens/s", limit, "tokens/s", 1, goal}, s);
}

static void run_all(struct bed *b)
{
    static const size_t pieces[] = {64, 128, PIECE};
    struct bench_series s = {.n = REPEATS};
    chunk(b, PROMPT);
    for (size_t i = 0; i < PROMPT; i++)
        streams(b, STREAMS, i);
    for (size_t i = 0; i < REPEATS; i++) {
        s.limit[i] = tokens_per_second(b);
        s.figure[i] = streams_per_second(b, 1);
    }
    print(b, "streams", 1, "stage_decode", 0.97, &s);
    for (size_t n = STREAMS / 2; n <= STREAMS; n *= 2) {
        for (size_t i = 0; i < REPEATS; i++) {
            const double before = roofline(b, n);
            s.figure[i] = streams_per_second(b, n);
            s.limit[i] = (before + roofline(b, n)) / 2;
        }
        print(b, "streams", n, "roofline", 0.85, &s);
    }
    for (size_t k = 0; k < sizeof pieces / sizeof *pieces; k++) {
        for (size_t i = 0; i < REPEATS; i++) {
            s.limit[i] = per_second(b, chunk, pieces[k]);
            s.figure[i] = per_second(b, piece, pieces[k]);
        }
        print(b, "piece of", pieces[k], "stage_decode", 0, &s);
    }
}

/* --- long texts ------------------------------------------------------------------------------- */

/* Each block for itself, as the beginning of a text: products alone, for time's sake. */
static void fill(struct bed *b, struct stage *s)
{
    struct err err;
    struct stage_piece pieces[PIECE / STAGE_KV_BLOCK];
    const uint32_t *blocks = &b->far_blocks[0][0];
    for (size_t at = 0, n; at < FAR_STREAMS * FAR_TABLE; at += n) {
        for (n = 0; n < PIECE / STAGE_KV_BLOCK && at + n < FAR_STREAMS * FAR_TABLE; n++)
            pieces[n] =
                (struct stage_piece){&blocks[at + n], 1, 0, STAGE_KV_BLOCK, STAGE_NO_ADAPTER, 0, 0, 0, 0};
        bench_must(stage_rows(s, pieces, n, b->ids, NULL, NULL, &err), &err);
    }
}

static double far_per_second(struct bed *b, struct stage *s)
{
    struct err err;
    struct stage_piece pieces[FAR_STREAMS];
    const double begin = bench_now();
    for (size_t step = 0; step < STEPS; step++) {
        for (size_t i = 0; i < FAR_STREAMS; i++)
            pieces[i] = (struct stage_piece){
                b->far_blocks[i], FAR_TABLE, FAR + step, 1, STAGE_NO_ADAPTER, 0, 0, 0, 0};
        bench_must(stage_rows(s, pieces, FAR_STREAMS, b->ids, NULL, NULL, &err), &err);
    }
    return FAR_STREAMS * STEPS / (bench_now() - begin);
}

static void run_far(struct bed *b, struct stage_spec spec)
{
    struct err err;
    struct stage *s[KV_TYPES];
    spec.positions = FAR_TABLE * STAGE_KV_BLOCK;
    spec.kv_blocks = FAR_STREAMS * FAR_TABLE;
    for (int type = 0; type < KV_TYPES; type++) {
        spec.kv_type = (enum kv_type)type;
        bench_must(stage_open(&s[type], b->num, &spec, &err), &err);
        fill(b, s[type]);
    }
    for (int type = KV_BF16; type < KV_TYPES; type++) {
        struct bench_series series = {.n = REPEATS};
        char what[64];
        for (size_t i = 0; i < REPEATS; i++) {
            series.limit[i] = far_per_second(b, s[KV_F32]);
            series.figure[i] = far_per_second(b, s[type]);
        }
        snprintf(what, sizeof what, "%s, %d far streams", kv_type_name((enum kv_type)type), FAR_STREAMS);
        print(b, what, FAR, "f32 keys and values", 1, &series);
    }
    for (int type = 0; type < KV_TYPES; type++)
        stage_close(s[type]);
}

/* "DIR:int8" is DIR with 8 bits, kept in a folder beside it. */
static size_t split_model(char *model, char *ret_kept, size_t size)
{
    char *form = strrchr(model, ':');
    const size_t bits = !form ? 0 : !strcmp(form, ":int8") ? 8 : !strcmp(form, ":int4") ? 4 : 0;
    if (bits)
        *form = 0;
    snprintf(ret_kept, size, "%s.quantized", model);
    return bits;
}

static int child(const char *name, char *model, int threads)
{
    char kept[512];
    const size_t bits = split_model(model, kept, sizeof kept);
    struct err err;
    struct bed b = {.name = name, .threads = threads};
    struct stage_spec spec = {.model_dir = model,
                              .embed = true,
                              .head = true,
                              .kv = true,
                              .slots = 1,
                              .tokens = PIECE,
                              .seqs = 1,
                              .positions = POSITIONS,
                              .weight_bits = bits,
                              .cache_dir = kept};
    bench_must(config_read(&spec.config, model, &err), &err);
    spec.end_layer = spec.config.layers;
    b.elements = weight_elements(&spec.config);
    b.bytes = b.elements *
              (bits ? (double)bits / 8 + 2.0 * 2 / QUANT_GROUP : (double)dtype_size(spec.config.dtype));
    for (uint32_t i = 0; i < STREAMS * TABLE; i++)
        b.blocks[i / TABLE][i % TABLE] = i * 7 % (STREAMS * TABLE);
    for (uint32_t i = 0; i < FAR_STREAMS * FAR_TABLE; i++)
        b.far_blocks[i / FAR_TABLE][i % FAR_TABLE] = i * 7 % (FAR_STREAMS * FAR_TABLE);
    for (uint32_t i = 0; i < PIECE; i++)
        b.ids[i] = i * 31 % 1000;
    bench_must(num_new(&b.num, threads, &err), &err);
    bench_must(stage_open(&b.decode, b.num, &spec, &err), &err);
    spec.kv_blocks = STREAMS * TABLE;
    spec.logit_rows = STREAMS;
    bench_must(stage_open(&b.rows, b.num, &spec, &err), &err);
    bench_must(machine_new(&b.machine, b.num, &err), &err);
    bench_sgemm_init(&b.sgemm, threads);
    run_all(&b);
    if (!bits)
        run_far(&b, spec);
    bench_sgemm_done(&b.sgemm);
    machine_free(b.machine);
    stage_close(b.rows);
    stage_close(b.decode);
    num_free(b.num);
    return 0;
}

int main(int argc, char **argv)
{
    return bench_pairs(argc, argv, "bench_rows NAME MODEL[:int8|:int4] …", child);
}
