/* SPDX-License-Identifier: MIT
 *
 * A plan, rounds and messages, run: a stage is opened on a small model as the daemon would have it
 * opened, and obeys what its neighbours send, whatever that is. All of it is refused with a
 * sentence, or computed within the memory that was carved (slabs have poisoned gaps). Frames and
 * seals are the business of fuzz_lane.c: here a neighbour's messages come out of the input.
 *
 * Input: u8 type of job · u8 place in the ring · u8 number of edits of the plan, and these · then,
 * as they are wanted, GO after GO and the bytes of all other messages. What is missing reads as
 * zeros, and no further GO comes. If something is left, it is the same for another attempt. */
#include <sys/mman.h>

#include "tests/fuzz/lib/input.h"

#include "engine/file/config.h"
#include "engine/num/num.h"

int stage_main(int argc, char **argv);
#define main stage_main
#define weights_of_rank no_weights /* hashes of files: the same in every run */
#define num_new shared_num_new     /* its block takes longer to make than a round takes */
#define num_free shared_num_free
int shared_num_new(struct num **ret, int threads, struct err *err);
void shared_num_free(struct num *num);
#include "daemon/stage/attempt.c"
#include "daemon/stage/main.c" /* how a plan is opened is not for others */
#undef num_new
#undef num_free
#undef main

#include "engine/file/st.h"
#include "engine/num/rng.h"
#include "tests/fuzz/lib/neighbours.h"

enum { TOKENS = 8, SEQS = 2, LAYERS = 3, MICROBATCHES = 3, SAMPLE = 6 };

static const char *const schedules[] = {"gpipe", "1f1b",  "zb-h1", "zb-h2", "interleaved-1f1b",
                                        "zbv",   "naive", ""};
static const char *const orders[] = {
    "", "0F0,0F1,0F2,0B0,0B1,0B2\n1F0,1F1,1F2,1B0,1B1,1B2\n", "0F0,3F0,3B0,0B0\n1F0,2F0,2B0,1B0\n",
    "0F0,0F1,0I0,0I1,0W0,0W1\n1F0,1I0,1W0,1F1,1I1,1W1\n", "0F0,0B0\n1F0,1R0,1B0\n"};

/* --- the daemon's side ------------------------------------------------------------------------ */

void stage_events_init(struct stage_events *e, int sock)
{
    e->sock = sock;
}

void stage_events_done(struct stage_events *e)
{
    (void)e;
}

void stage_event(struct stage_events *e, const char *kind, json_t *fields)
{
    (void)e, (void)kind;
    json_decref(fields);
}

void stage_say(struct stage_events *e, const char *fmt, ...)
{
    (void)e, (void)fmt;
}

int no_weights(struct stage_events *tell, const struct job_plan *plan, const struct config *config,
               uint32_t rank, struct err *err)
{
    (void)tell, (void)plan, (void)config, (void)rank, (void)err;
    return 0;
}

static struct num *shared;

int shared_num_new(struct num **ret, int threads, struct err *err)
{
    (void)threads;
    int r = shared ? 0 : num_new(&shared, 1, err);
    *ret = shared;
    return r;
}

void shared_num_free(struct num *num)
{
    (void)num;
}

/* --- what neighbours send --------------------------------------------------------------------- */

/* Near what would be right, or a number at which something might overflow. */
static json_int_t number(struct input *in, json_int_t was)
{
    json_int_t v = 0;
    switch (input_u8(in) % 8) {
    case 0: return was;
    case 1: return input_u8(in);
    case 2: return was + 1;
    case 3: return was - 1;
    case 4: return INT64_C(1) << input_u8(in) % 63;
    case 5: return (INT64_C(1) << input_u8(in) % 63) - 1;
    case 6: input_bytes(in, &v, sizeof v); return v;
    default: return 0;
    }
}

/* As long as the buffer that waits for it allows. */
static size_t put_go(struct exchange *x, uint8_t *to, size_t room)
{
    static const uint32_t special[] = {GO_STOP, 5, 255, UINT32_MAX};
    struct input *in = x->in;
    struct go_step steps[8] = {{0}};
    struct seqs mb[8];
    uint32_t start[8][5] = {{0}};
    uint8_t bytes[4096];
    const uint8_t program = input_u8(in), flags = input_u8(in);
    if (program == 0xff)
        return input_bytes(in, to, room < 64 ? room : 64);
    struct go go = {
        .program = program < 0xf0 ? program % 5 : special[program % 4],
        .round = (uint32_t)x->rounds,
        .state = flags & 1,
        .logprobs = flags & 2,
        .want_token = flags & 4,
        .trace = flags & 8,
        .step = 1,
        .top = flags & 16 ? input_u8(in) : 0,
        .adapter = flags & 32 ? (uint32_t)number(in, 0) : 0,
        .at = flags & 64 ? (uint64_t)number(in, TOKENS) : 0,
        .choice = {.temperature = flags & 128 ? 1 : 0, .top_p = 0.5f, .top_k = flags & 64 ? 3 : 0},
        .steps = steps,
        .mb = mb};
    go.nsteps = go.program == PROGRAM_TRAIN ? 1 + input_u8(in) % 4 : 0;
    go.microbatches = program_moves(go.program) ? 0 : input_u8(in) % 9;
    for (size_t i = 0; i < go.nsteps; i++)
        steps[i] = (struct go_step){flags & 32 ? (uint32_t)number(in, 0) : i % 2, 1 + i, 0.5, 0};
    for (size_t m = 0; m < go.microbatches && m < 8; m++) {
        const uint8_t shape = input_u8(in);
        mb[m] = (struct seqs){shape % 4, start[m]};
        for (size_t i = 0; i < shape % 4; i++)
            start[m][i + 1] = start[m][i] + (shape >> 2) % (TOKENS + 2);
    }
    go.microbatches = go.microbatches > 8 ? 8 : go.microbatches;
    const uint8_t copies = input_u8(in);
    uint32_t held_by[8] = {0};
    go.hold = copies & 1;
    go.nheld = go.program != PROGRAM_RESTORE ? 0 : copies & 2 ? input_u8(in) % 9 : LAYERS + 2;
    go.held_by = held_by;
    for (size_t u = 0; u < go.nheld && u < 8; u++)
        held_by[u] = (uint32_t)number(in, 0);
    go.nheld = go.nheld > 8 ? 8 : go.nheld;
    struct sample_adjust adjust = {0, copies & 8 ? 0.0f : 1.5f, -1};
    go.choice.adjust = &adjust;
    go.choice.nadjust = copies & 4 ? 1 : 0;
    if (go.choice.nadjust)
        adjust.id = (uint32_t)number(in, (json_int_t)x->vocab - 1);
    double refs[32] = {0};
    for (size_t m = 0; m < go.microbatches && copies & 16; m++)
        go.nrefs += mb[m].n / PAIR_ANSWERS;
    go.refs = refs;
    for (size_t i = 0; i < go.nsteps && copies & 32; i++)
        steps[i].beta = 0.1;
    const size_t n = go_encode(bytes, &go);
    memcpy(to, bytes, n < room ? n : room);
    return n < room ? n : room;
}

/* Tokens of the model, but for one, or none: what lies behind one row of logits is the next, and
 * behind the last is nothing. */
static void put_numbers(struct exchange *x, uint8_t *to, size_t n)
{
    const uint8_t which = input_u8(x->in);
    const json_int_t all = which & 128 ? number(x->in, (json_int_t)x->vocab - 1) : -1;
    for (size_t t = 0; t < n / 4; t++) {
        const bool is_odd = !(which & 128) && t == which % TOKENS;
        const int32_t v = (int32_t)(is_odd        ? number(x->in, (json_int_t)x->vocab - 1)
                                    : which & 128 ? all
                                                  : (json_int_t)t);
        memcpy(to + 4 * t, &v, 4);
    }
}

/* Values that a model might have made, and one that is another. */
static void put_floats(struct exchange *x, uint8_t *to, size_t n)
{
    static const float values[] = {
        0, 0.25f, -1, 1, 1e30f, -1e30f, 1e-40f, __builtin_inff(), __builtin_nanf("")};
    enum { VALUES = sizeof values / sizeof *values };
    const float most = values[input_u8(x->in) % VALUES], other = values[input_u8(x->in) % VALUES];
    const size_t odd = input_u8(x->in);
    for (size_t i = 0; i < n / 4; i++)
        memcpy(to + 4 * i, i == odd ? &other : &most, 4);
    memset(to + n / 4 * 4, 0, n % 4);
}

void *exchange_take(struct exchange *x, uint32_t from, const struct msg_key *key, size_t *ret_size)
{
    struct posted *p = neighbours_find(x, from, key);
    uint8_t *buffer = p ? exchange_buffer(x, p->size) : NULL;
    if (!buffer)
        return NULL;
    *ret_size = p->size;
    if (key->kind == MSG_GO) {
        x->rounds++;
        *ret_size = put_go(x, buffer, p->size);
    } else if (key->kind == MSG_TARGET || key->kind == MSG_TOKEN) {
        put_numbers(x, buffer, p->size);
    } else {
        put_floats(x, buffer, p->size);
    }
    *p = x->posted[--x->n];
    return buffer;
}

/* --- the model and its plan ------------------------------------------------------------------- */

static const char model_json[] =
    "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\",\"hidden_size\":16,"
    "\"intermediate_size\":24,\"num_hidden_layers\":3,\"num_attention_heads\":2,\"num_key_value_heads\":1,"
    "\"vocab_size\":40,\"max_position_embeddings\":64,\"rms_norm_eps\":1e-5,\"rope_theta\":10000.0,"
    "\"eos_token_id\":2,\"torch_dtype\":\"float32\",\"tie_word_embeddings\":true,\"hidden_act\":\"silu\"}";
static struct config model;

int config_fingerprint_of(char ret[33], const struct config *c, const char *dir, struct err *err)
{
    (void)c, (void)dir, (void)err;
    ret[0] = '\0';
    return 0;
}

int config_fingerprint(char ret[33], const char *dir, struct err *err)
{
    return config_fingerprint_of(ret, &model, dir, err);
}

struct listing {
    struct tensor_def defs[64];
    struct st_out_tensor at[64];
    size_t n;
};

static int list_one(void *arg, const struct tensor_def *def)
{
    struct listing *l = arg;
    l->defs[l->n] = *def;
    l->at[l->n] = (struct st_out_tensor){.name = l->defs[l->n].name,
                                         .dtype = DTYPE_F32,
                                         .ndim = def->cols ? 2 : 1,
                                         .shape = {def->rows, def->cols}};
    l->n++;
    return 0;
}

static void forget_model(void)
{
    static const char *const names[] = {"config.json", "model.safetensors"};
    fuzz_dir_drop(names, 2);
}

static void make_model(void)
{
    static struct listing l;
    struct err err;
    struct st_writer *w;
    char path[2 * FUZZ_PATH];
    fuzz_dir_put("config.json", model_json, strlen(model_json));
    atexit(forget_model);
    expect(config_read(&model, fuzz_dir(), &err) == 0);
    for (size_t u = 0; u < model.layers + 2; u++)
        family_tensors(family_find(model.family), &model, u, list_one, &l);
    snprintf(path, sizeof path, "%s/model.safetensors", fuzz_dir());
    expect(st_writer_open(&w, path, l.at, l.n, &err) == 0);
    for (size_t i = 0; i < l.n; i++) {
        const size_t n = l.defs[i].rows * (l.defs[i].cols ? l.defs[i].cols : 1);
        float *x = calloc(n, sizeof *x);
        struct rng rng = rng_for(1, l.defs[i].name);
        expect(x != NULL);
        rng_fill_normal(&rng, x, n, l.defs[i].cols ? 0 : 1, 0.25f);
        expect(st_writer_put(w, l.defs[i].name, x, n, &err) == 0);
        free(x);
    }
    expect(st_writer_finish(w, &err) == 0);
}

static struct job_plan plan_of(enum job_type type, size_t ranks, uint8_t how)
{
    struct job_plan p = {.type = type,
                         .ranks = ranks,
                         .stages = ranks,
                         .place = {0, 1, 2},
                         .first = {0, 1, ranks == 3 ? 2 : LAYERS, LAYERS},
                         .microbatches = MICROBATCHES,
                         .round_steps = 4,
                         .training = type == JOB_TRAIN,
                         .kv = type == JOB_GENERATE,
                         .by_layer = how & 4,
                         .tokens = TOKENS,
                         .seqs = SEQS,
                         .positions = TOKENS,
                         .vocab = model.vocab,
                         .dim = model.dim,
                         .tune = {.end_layer = LAYERS}};
    snprintf(p.model, sizeof p.model, "%s", fuzz_dir());
    snprintf(p.schedule, sizeof p.schedule, "%s", schedules[how & 3]);
    for (size_t s = 0; s < ranks; s++) {
        p.slots[s] = p.bwd_x_only[s] = p.training ? MICROBATCHES * p.round_steps : 1;
        p.bwd_w_only[s] = p.training && (how & 2) ? p.slots[s] : 0;
        p.activations[s] = p.training && (how & 8) ? p.slots[s] : 0;
    }
    if (p.training || how & 16)
        p.tune = (struct tune){.kind = how & 32 && p.training ? TUNE_FULL : TUNE_LORA,
                               .rank = 2,
                               .alpha = 4,
                               .dropout = how & 64 ? 0.5f : 0,
                               .ntargets = 2,
                               .targets = {"q_proj", "up_proj"},
                               .end_layer = LAYERS};
    p.copies = p.training;
    p.sample = p.training && how & 128 ? SAMPLE : 0;
    p.nmore = p.tune.kind == TUNE_LORA && p.training;
    p.more[0] = p.tune;
    p.more[0].rank = 3;
    return p;
}

/* One member takes another value of its type, of a list one entry. */
static void edit(json_t *object, struct input *in, int deep)
{
    size_t n = input_u8(in) % json_object_size(object);
    void *at = json_object_iter(object);
    while (n--)
        at = json_object_iter_next(object, at);
    const char *key = json_object_iter_key(at);
    json_t *was = json_object_iter_value(at);
    if (json_is_object(was) && deep) {
        edit(was, in, 0);
    } else if (json_is_boolean(was)) {
        json_object_iter_set_new(object, at, json_boolean(json_is_false(was)));
    } else if (json_is_integer(was)) {
        json_integer_set(was, number(in, json_integer_value(was)));
    } else if (json_is_real(was)) {
        json_real_set(was, (double)number(in, 1));
    } else if (json_is_array(was)) {
        const size_t many = json_array_size(was), which = many ? input_u8(in) % (many + 1) : 0;
        json_t *one = json_array_get(was, which);
        if (json_is_object(one))
            edit(one, in, 0);
        else if (json_is_integer(one))
            json_integer_set(one, number(in, json_integer_value(one)));
        else if (which == many)
            json_array_append_new(was, json_integer(number(in, 1)));
    } else if (!strcmp(key, "schedule")) {
        json_string_set(was, schedules[input_u8(in) % 8]);
    } else if (!strcmp(key, "order")) {
        json_string_set(was, orders[input_u8(in) % 5]);
    } else if (!strcmp(key, "loss")) {
        json_string_set(was, job_losses[input_u8(in) % 3].name);
    } else if (!strcmp(key, "type")) {
        json_string_set(was, job_type_name((enum job_type)(input_u8(in) % JOB_TYPES)));
    }
}

/* Plans that fit, and that no test has the memory and the time for. */
static bool is_large(const json_t *object)
{
    static const char *const keys[] = {"tokens", "positions", "sample", "rank"};
    const json_t *tune;
    size_t at;
    bool large = json_object_get(object, "tune") && is_large(json_object_get(object, "tune"));
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const json_int_t n = json_integer_value(json_object_get(object, keys[i]));
        large = large || (n > 256 && n <= INT32_MAX);
    }
    json_array_foreach (json_object_get(object, "more"), at, tune)
        large = large || is_large(tune);
    return large;
}

/* --- rank 0 asks for rounds that are meant ---------------------------------------------------- */

static int ignore_piece(void *owner, const struct param_piece *piece, float *values, struct err *err)
{
    (void)owner, (void)err;
    memset(values, 0, piece->n * sizeof *values);
    return 0;
}

static int apply(void *owner, size_t step, struct err *err)
{
    struct head_step *steps = owner;
    (void)err;
    steps[step].update = 1;
    return 0;
}

static int lead(struct process *p, struct err *err)
{
    static const uint32_t ids[TOKENS] = {1, 5, 9, 39, 0, 2, 2, 7};
    static const int32_t labels[TOKENS] = {5, 9, 39, 0, -100, 2, 7, -100};
    static uint32_t start[] = {0, 5, TOKENS}, row[] = {0, TOKENS};
    const bool decodes = p->attempt.plan.kv, trains = p->attempt.plan.training;
    const enum loss_kind loss = p->attempt.plan.loss;
    double logp[2] = {0}, ref = 0.25;
    struct head_mb mb = {.ids = ids, .labels = labels, .logp = logp};
    struct head_step step = {.opt = {1e-3f, 0.9f, 0.999f, 1e-8f, 0}, .max_norm = 1};
    struct go_step number = {0, 1, 0.2, loss == LOSS_NLL ? 0 : 0.1};
    struct seqs seqs = decodes ? (struct seqs){1, row} : (struct seqs){2, start};
    struct head_round round = {
        .mb = &mb, .steps = &step, .stepped = apply, .piece = ignore_piece, .owner = &step};
    struct go go = {.program = decodes  ? PROGRAM_DECODE
                               : trains ? PROGRAM_TRAIN
                                        : PROGRAM_FORWARD,
                    .want_token = decodes,
                    .nsteps = trains,
                    .steps = &number,
                    .microbatches = 1,
                    .mb = &seqs,
                    .nrefs = trains && loss == LOSS_DPO,
                    .refs = &ref},
              save = {.program = trains ? PROGRAM_SAVE : PROGRAM_LOAD, .state = trains};
    int r = runner_round(p->attempt.runner, &go, &round, err);
    expect(r || !decodes || round.token < model.vocab);
    return r || p->attempt.plan.tune.kind == TUNE_NONE ? r
                                                       : runner_round(p->attempt.runner, &save, &round, err);
}

static int begin(struct process *p, bool is_head, struct input *in, const json_t *msg, struct err *err)
{
    p->attempt.is_head = is_head;
    for (p->attempt.nheld = 0; p->attempt.nheld < 2; p->attempt.nheld++)
        p->attempt.held[p->attempt.nheld] = memfd_create("copies", MFD_CLOEXEC);
    neighbours = (struct exchange){.in = in, .vocab = model.vocab};
    const bool large = is_large(json_object_get(msg, "plan"));
    int r = large ? err_set(err, -ENOMEM, "out of memory") : do_open(p, msg, err);
    return r ? r : p->attempt.rank ? runner_follow(p->attempt.runner, err) : lead(p, err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct progress progress;
    if (!model.vocab)
        make_model();
    struct input in = {data, n};
    struct err err = {""};
    const enum job_type type = (enum job_type)(input_u8(&in) % JOB_TYPES);
    const uint8_t where = input_u8(&in) % 4, how = input_u8(&in);
    const struct job_plan honest = plan_of(type, where & 2 ? 3 : 2, how);
    const int rank = where == 3 ? 2 : where > 0;
    json_t *plan = job_plan_encode(&honest),
           *msg = json_pack("{s:o s:i s:i}", "plan", plan, "rank", rank, "threads", 1);
    for (size_t edits = input_u8(&in) % 4; edits; edits--)
        edit(input_u8(&in) % 16 ? plan : msg, &in, 1);
    static struct process p;
    p = (struct process){.progress = &progress, .attempt = {.events = &p.events, .progress = &progress}};
    head_init(&p.head, &p.events);
    int r = begin(&p, where == 0, &in, msg, &err);
    if (!r && in.left) { /* once more, in the same process, and of another plan */
        rest(&p);
        edit(plan, &in, 1);
        r = begin(&p, where == 0, &in, msg, &err);
    }
    expect(!r || err.text[0]);
    p.progress = NULL;
    process_done(&p);
    json_decref(msg);
    return 0;
}
