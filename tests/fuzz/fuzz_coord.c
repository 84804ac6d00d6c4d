/* SPDX-License-Identifier: MIT
 *
 * What ranks may tell the head of a job, in every state of the job: messages as they pass the
 * checks of messages.c, and in them plans and events with any fields of any type. Input: u8 state ‖
 * (u8 who, which message ‖ its fields)*. Nothing is sent anywhere, and no store or stage is
 * there. */
#include "tests/fuzz/lib/message.h"

#include <event2/event.h>

#include "daemon/ringd/job/coord.c"
#include "daemon/ringd/job/job_life.c" /* for its states, without the way there */
#include "daemon/ringd/aside.h"
#include "daemon/ringd/event_log.h"
#include "tests/fuzz/lib/keys.h"
#include "tests/lib/small_plan.h"

enum { RANKS = 3, MESSAGES = 16 };

/* --- the rest of the daemon --- */

static int send_message(void *owner, const uint8_t to[16], json_t *message)
{
    (void)owner;
    json_decref(message);
    return to[0] == 2 ? -EHOSTUNREACH : 0;
}

static const char *no_words(void *owner, const uint8_t id[16])
{
    (void)owner, (void)id;
    return "";
}

static void begins(void *owner)
{
    (void)owner;
}

static void plan(void *owner, uint64_t job, uint32_t attempt, const struct origin *origin, enum job_type type,
                 json_t *spec, json_t *nodes, struct loan *loan)
{
    (void)owner, (void)job, (void)attempt, (void)origin, (void)type, (void)loan;
    json_decref(spec);
    json_decref(nodes);
}

static void published(void *owner, uint64_t job, const char *type)
{
    (void)owner, (void)job;
    expect(type);
}

struct job_ring *job_ring_new(const struct job_ring_setup *setup)
{
    (void)setup;
    return NULL;
}

void job_ring_free(struct job_ring *j)
{
    (void)j;
}

void job_ring_changed(struct job_ring *j)
{
    (void)j;
}

bool job_ring_now(struct job_ring *j, const struct job *job, struct members_ring *ret, char *why, size_t size)
{
    (void)j, (void)job;
    *ret = (struct members_ring){.n = 0};
    snprintf(why, size, "there is no ring here");
    return true;
}

uint64_t store_next_job(struct store *s)
{
    (void)s;
    return 1;
}

char *store_unfinished(struct store *s)
{
    (void)s;
    return NULL;
}

void store_put_job(struct store *s, uint64_t job, const char *state, const char *json, const char *life)
{
    (void)s, (void)job, (void)life;
    expect(state && json);
}

void store_put_event(struct store *s, uint64_t job, const char *kind, const char *json)
{
    (void)s, (void)job;
    expect(kind && json);
}

void store_sync(struct store *s, void (*done)(void *arg, const char *json), void *arg)
{
    (void)s;
    done(arg, NULL);
}

void store_get_lines(struct store *s, uint64_t job, int64_t after, void (*done)(void *arg, const char *json),
                     void *arg)
{
    (void)s, (void)job, (void)after;
    done(arg, NULL);
}

const char *store_trouble(const struct store *s)
{
    (void)s;
    return NULL;
}

int aside_run(struct aside *a, struct aside_work *w)
{
    (void)a, (void)w;
    return -EAGAIN;
}

void store_tidy_folder(struct store *s, const char *folder)
{
    (void)s;
    expect(folder != NULL);
}

void log_line(enum log_level priority, const char *fmt, ...)
{
    (void)priority, (void)fmt;
}

void log_about(enum log_level priority, const struct log_about *about, const char *fmt, ...)
{
    (void)priority, (void)about, (void)fmt;
}

void metrics_event(struct metrics *m, const char *kind, const json_t *event)
{
    (void)m, (void)event;
    expect(kind);
}

void metrics_job_ended(struct metrics *m, const char *state)
{
    (void)m;
    expect(state);
}

/* --- the job --- */

static struct job *begin(struct coord *c, enum job_state state)
{
    struct job *job = job_new(1, JOB_TRAIN, NULL, json_object());
    job->offered.n = RANKS;
    for (size_t r = 0; r < RANKS; r++) {
        memset(job->offered.id[r], (int)r + 1, 16);
        snprintf(job->offered.name[r], sizeof job->offered.name[r], "n%zu", r);
    }
    if (state > JOB_PLANNING) {
        struct placed_plan *plan = calloc(1, sizeof *plan);
        plan->shared = small_plan(JOB_TRAIN, RANKS);
        plan->nodes = job->offered;
        job_set_plan(job, plan);
    }
    job->state = state;
    job->outcome = JOB_FAILED;
    c->jobs = c->lives[0]->job = job;
    return job;
}

static const char *const *keys_of_a_job(void)
{
    static const char *const of_events[] = {"ev",    "end",    "step", "steps", "loss", "result",
                                            "tasks", "lowest", "text", "tied",  "time"};
    static const char *keys[KEYS_MAX + 1];
    if (!keys[0])
        keys_add(keys, job_plan_fields());
    for (size_t i = 0; i < sizeof of_events / sizeof *of_events; i++)
        keys_add_one(keys, of_events[i]);
    return keys;
}

/* Fields of the input stand in place of those of a plan that can be read. */
static void complete_plan(json_t *plan)
{
    const struct job_plan small = small_plan(JOB_TRAIN, RANKS);
    json_t *all = job_plan_encode(&small);
    json_object_update_missing(plan, all);
    json_decref(all);
}

/* How far the job is, only the head's own rank can say. */
static void tell(struct coord *c, const struct job *job, struct input *in)
{
    static const enum message_kind kinds[JOB_WORDS] = {
        [JOB_WORD_PLANNED] = MESSAGE_JOB_PLANNED,     [JOB_WORD_READY] = MESSAGE_JOB_READY,
        [JOB_WORD_CONNECTED] = MESSAGE_JOB_CONNECTED, [JOB_WORD_EVENT] = MESSAGE_JOB_EVENT,
        [JOB_WORD_RELAYED] = MESSAGE_JOB_RELAYED,     [JOB_WORD_FAILED] = MESSAGE_JOB_FAILED,
        [JOB_WORD_DONE] = MESSAGE_JOB_DONE,           [JOB_WORD_STOPPED] = MESSAGE_JOB_STOPPED};
    static const char *const texts[] = {"timeline", "log",  "step",  "valid", "token",
                                        "end",      "1f1b", "gpipe", "",      NULL};
    const struct input_words words = {keys_of_a_job(), texts};
    const uint8_t what = input_u8(in);
    const size_t rank = what / 8 % RANKS;
    const enum job_word word = what % JOB_WORDS;
    json_t *body = message_of(in, kinds[word], &words);
    if (!body)
        return;
    if (word == JOB_WORD_PLANNED)
        complete_plan(json_object_get(body, "plan"));
    json_object_set_new(body, "job", json_integer((json_int_t)job->id));
    json_object_set_new(body, "attempt", json_integer(job->attempt));
    json_object_set_new(body, "rank", json_integer((json_int_t)rank));
    const uint64_t step = job->step;
    if (rank >= job_nodes(job)->n) { /* the plan has fewer */
        json_decref(body);
        return;
    }
    expect(coord_is_rank(c, job_nodes(job)->id[rank], body));
    coord_take_word(c, word, body);
    expect(rank == 0 || job->step == step);
    json_decref(body);
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
    struct event_log *events = event_log_new(4, SIZE_MAX);
    struct coord *c = coord_new(&(struct coord_setup){.base = base,
                                                      .members = members,
                                                      .events = events,
                                                      .send = send_message,
                                                      .last_words = no_words,
                                                      .plan = plan,
                                                      .begins = begins,
                                                      .published = published});
    struct job *job =
        begin(c, (enum job_state)(JOB_PLANNING + input_u8(&in) % (JOB_STOPPING - JOB_PLANNING + 1)));
    for (int i = 0; i < MESSAGES && in.left && c->lives[0]->job == job; i++)
        tell(c, job, &in);
    json_t *all = job_encode(job);
    expect(all && job->state <= JOB_CANCELLED && memchr(job->error, '\0', sizeof job->error));
    json_decref(all);
    if (job->timeline)
        json_decref(timeline_encode(job->timeline, job->id, job_nodes(job)->name));
    coord_free(c);
    event_log_free(events);
    return 0;
}
