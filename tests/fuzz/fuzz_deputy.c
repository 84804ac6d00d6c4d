/* SPDX-License-Identifier: MIT
 *
 * What other nodes may say about jobs that change hands: dossiers with any record, lines and
 * inputs, claims and answers to ours, parts of files, in any order. A job is taken over once at
 * most, and every user who asked for it is answered once. Input: (u8 who and which message ‖ its
 * fields)*. The store answers at once, and work beside the loop is done at once. */
#include "tests/fuzz/lib/message.h"

#include <event2/event.h>

#include "daemon/ringd/aside.h"
#include "daemon/ringd/job/deputy/deputy_impl.h"
#include "daemon/ringd/job/deputy/file_set.h"
#include "daemon/ringd/job/deputy/parts.h"
#include "daemon/ringd/job/job.h"
#include "daemon/ringd/job/loan.h"
#include "daemon/ringd/log.h"
#include "daemon/ringd/store/store.h"

enum { MESSAGES = 24, NODES = 4 };

static const char *const texts[] = {"01000000000000000000000000000000",
                                    "02000000000000000000000000000000",
                                    "03000000000000000000000000000000",
                                    "train",
                                    "generate",
                                    "/data/rows.jsonl",
                                    "bm90IGl0",
                                    "shrink",
                                    "{\"step\":1}",
                                    "",
                                    NULL};
static const char *const keys[] = {"node",   "job",      "from", "attempt", "spec",   "type",   "nodes",
                                   "origin", "model",    "data", "on_loss", "path",   "bytes",  "changed",
                                   "state",  "wait_for", "lent", "iters",   "prompt", "record", "result",
                                   "best",   "files",    "step", NULL};
static const struct input_words words = {keys, texts};

static size_t taken, asked, answered;

/* --- a store that answers at once ------------------------------------------------------------- */

void store_put_note(struct store *s, const char *key, const char *json)
{
    (void)s;
    expect(key && (!json || *json == '{'));
}
void store_sync(struct store *s, void (*done)(void *arg, const char *json), void *arg)
{
    (void)s;
    done(arg, NULL);
}
const char *store_trouble(const struct store *s)
{
    (void)s;
    return NULL;
}
void store_put_job(struct store *s, uint64_t job, const char *state, const char *json, const char *life)
{
    (void)s;
    expect(job >= STORE_FIRST_DOSSIER && !strcmp(state, "kept") && json && life);
}
void store_put_event(struct store *s, uint64_t job, const char *kind, const char *json)
{
    (void)s;
    expect(job >= STORE_FIRST_DOSSIER && strlen(kind) < 16 && *json);
}
void store_drop_job(struct store *s, uint64_t job)
{
    (void)s;
    expect(job >= STORE_FIRST_DOSSIER);
}
void store_move_job(struct store *s, uint64_t from, uint64_t to)
{
    (void)s;
    expect(from >= STORE_FIRST_DOSSIER && to < STORE_FIRST_DOSSIER);
}
uint64_t store_next_job(struct store *s)
{
    (void)s;
    return 1;
}
void store_get_unfinished(struct store *s, uint64_t job, void (*done)(void *arg, const char *json), void *arg)
{
    (void)s, (void)job;
    done(arg, "[{\"record\":{\"spec\":{}}}]");
}
void store_get_job(struct store *s, uint64_t job, void (*done)(void *arg, const char *json), void *arg)
{
    (void)s, (void)job;
    done(arg, "{\"state\":\"done\",\"type\":\"train\",\"spec\":{\"model\":\"/m\"}}");
}

/* Nothing is written to a disk. */
int aside_run(struct aside *a, struct aside_work *w)
{
    (void)a, (void)w;
    return -EAGAIN;
}

void log_line(enum log_level priority, const char *fmt, ...)
{
    (void)priority, (void)fmt;
}
void log_about(enum log_level priority, const struct log_about *about, const char *fmt, ...)
{
    (void)priority, (void)about, (void)fmt;
}

/* --- the node --------------------------------------------------------------------------------- */

static int send_message(void *owner, const uint8_t to[16], json_t *message)
{
    (void)owner;
    expect(message && to[0] <= NODES);
    json_decref(message);
    return 0;
}

static bool works(void *owner, const struct origin *of)
{
    (void)owner;
    return of->job == 9;
}

static bool on_taken(void *owner, uint64_t as, const json_t *entry, struct loan *loan,
                     const struct job_head *from)
{
    (void)owner, (void)as, (void)loan;
    expect(entry && from->job);
    taken++;
    return true;
}

static struct file_set *no_files(void *owner, const uint8_t to[16], uint64_t job)
{
    (void)owner, (void)to, (void)job;
    return NULL;
}

static void on_answer(void *arg, uint64_t as, const char *why)
{
    (void)arg;
    expect(!as == !!why);
    answered++;
}

/* A dossier that can be claimed: this node is rank 1 of three, and has taken part. */
static void complete(json_t *news, struct input *in)
{
    json_object_set_new(news, "fresh", json_true());
    json_object_set_new(news, "inputs", json_array());
    json_object_set_new(news, "record",
                        json_pack("{s:s s:{s:s s:s}}", "type", "train", "spec", "model", "/m", "data", "/d"));
    json_object_set_new(news, "life",
                        json_pack("{s:i s:[[s,s],[s,s],[s,s]]}", "attempt", input_u8(in) % 4, "nodes",
                                  texts[1], "b", texts[0], "self", texts[2], "c"));
}

static void tell(struct deputy *d, struct parts *p, struct input *in)
{
    static const enum message_kind kinds[] = {
        MESSAGE_DOSSIER_NEWS,  MESSAGE_DOSSIER_RECALL, MESSAGE_CLAIM_ASK, MESSAGE_CLAIM_ANSWER,
        MESSAGE_CLAIM_RELEASE, MESSAGE_JOB_LANDED,     MESSAGE_PART_ASK,  MESSAGE_PART_TOLD};
    const uint8_t what = input_u8(in), from[16] = {2 + what / 8 % 3};
    const enum message_kind kind = kinds[what % 8];
    json_t *body = message_of(in, kind, &words);
    uint64_t as;
    if (!body)
        return;
    if (what & 64)
        json_object_set_new(body, "job", json_integer(7));
    if (what & 128 && kind == MESSAGE_DOSSIER_NEWS)
        complete(body, in);
    switch (kind) {
    case MESSAGE_DOSSIER_NEWS: deputy_take_news(d, from, body); break;
    case MESSAGE_DOSSIER_RECALL: deputy_take_recall(d, from, body); break;
    case MESSAGE_CLAIM_ASK: deputy_take_claim_ask(d, from, body); break;
    case MESSAGE_CLAIM_ANSWER: deputy_take_claim_answer(d, from, body); break;
    case MESSAGE_CLAIM_RELEASE: deputy_take_claim_release(d, from, body); break;
    case MESSAGE_JOB_LANDED: deputy_take_landed(d, from, body, &as); break;
    case MESSAGE_PART_ASK: parts_take_ask(p, from, body); break;
    default: parts_take_told(p, from, body);
    }
    json_decref(body);
}

static void act(struct deputy *d, struct ballots *b, struct input *in)
{
    const uint8_t what = input_u8(in), self[16] = {1}, head[16] = {2 + what / 4 % 3};
    const struct origin of = {.head = {2}, .job = 7};
    char text[600];
    if (what % 4 == 0) {
        deputy_changed(d);
    } else if (what % 4 == 1) {
        ballots_open(b, &of, of.head, self, what / 16 % 4, 1);
    } else if (what % 4 == 2) {
        asked += !deputy_adopt(d, head, 7, what & 128, on_answer, NULL);
    } else {
        deputy_describe(d, head, 7, text, sizeof text);
        expect(memchr(text, '\0', sizeof text));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const struct member self = {.id = {1}, .name = "self", .version = "1", .boot = 1, .seq = 1};
    static struct event_base *base;
    static struct members *members;
    struct input in = {data, n};
    if (!base) {
        base = event_base_new();
        members = members_new(&self);
    }
    taken = asked = answered = 0;
    struct ballots *ballots = ballots_new(NULL, NULL, 0);
    struct parts *parts =
        parts_new(&(struct parts_setup){.base = base, .send = send_message, .files = no_files});
    struct deputy *d = deputy_new(&(struct deputy_setup){.base = base,
                                                         .state_dir = "/nowhere",
                                                         .members = members,
                                                         .ballots = ballots,
                                                         .parts = parts,
                                                         .send = send_message,
                                                         .works = works,
                                                         .taken = on_taken});
    for (int i = 0; i < MESSAGES && in.left; i++)
        if (input_u8(&in) & 3)
            tell(d, parts, &in);
        else
            act(d, ballots, &in);
    deputy_stop(d);
    deputy_free(d);
    parts_free(parts);
    ballots_free(ballots);
    expect(answered <= asked);
    return 0;
}
