/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/job/deputy/deputy_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "daemon/common/job_spec.h"
#include "daemon/common/text_clean.h"
#include "daemon/common/xalloc.h"
#include "daemon/ringd/aside.h"
#include "daemon/ringd/cluster/identity.h"
#include "daemon/ringd/cluster/members.h"
#include "daemon/ringd/job/deputy/file_set.h"
#include "daemon/ringd/job/deputy/note.h"
#include "daemon/ringd/job/deputy/parts.h"
#include "daemon/ringd/job/survive/interruption.h"
#include "daemon/ringd/log.h"
#include "daemon/ringd/store/store.h"
#include "daemon/ringd/timer.h"

enum { FETCH_AGAIN_US = 30000000, ASK_AFTER_US = 60000000, LINES_MOST = 4096, KIND_BYTES = 16 };
static const char word[] = "dossier";

/* --- small things ----------------------------------------------------------------------------- */

const uint8_t *deputy_self(const struct deputy *d)
{
    return members_self(d->setup.members)->id;
}

bool deputy_reaches(const struct deputy *d, const uint8_t id[16])
{
    return members_reachable(d->setup.members, id);
}

void deputy_send(const struct deputy *d, const uint8_t to[16], json_t *message)
{
    if (d->is_stopped)
        json_decref(message);
    else
        d->setup.send(d->setup.owner, to, message);
}

struct dossier *deputy_find(const struct deputy *d, const uint8_t head[16], uint64_t job)
{
    struct dossier *x = d->dossiers;
    while (x && (x->job != job || memcmp(x->head, head, sizeof x->head) != 0))
        x = x->next;
    return x;
}

char *deputy_folder(const struct deputy *d, uint64_t id)
{
    return xasprintf("%s/dossiers/%llu", d->setup.state_dir, (unsigned long long)(id - STORE_FIRST_DOSSIER));
}

struct removing {
    struct aside_work work;
    char *folder; /* owned */
};

void deputy_remove_folder(const char *folder)
{
    for (size_t i = 0; i < FILE_SET_MOST; i++) {
        char *path = xasprintf("%s/%zu", folder, i), *temporary = xasprintf("%s.tmp", path);
        unlink(path);
        unlink(temporary);
        free(path);
        free(temporary);
    }
    rmdir(folder);
}

static void remove_aside(struct aside_work *w)
{
    deputy_remove_folder(((struct removing *)w)->folder);
}

static void removing_free(struct aside_work *w)
{
    struct removing *r = (struct removing *)w;
    free(r->folder);
    free(r);
}

void deputy_drop_folder(const struct deputy *d, char *folder)
{
    struct removing *r = xcalloc(1, sizeof *r);
    *r = (struct removing){.work = {.run = remove_aside, .done = removing_free, .drop = removing_free},
                           .folder = folder};
    if (aside_run(d->setup.aside, &r->work))
        removing_free(&r->work); /* it stays: until the number is used again, or best_sweep */
}

/* --- notes ------------------------------------------------------------------------------------ */

struct origin deputy_at_head(const uint8_t head[16], uint64_t job)
{
    struct origin at = {.job = job};
    memcpy(at.head, head, sizeof at.head);
    return at;
}

void deputy_put_note(const struct deputy *d, const struct dossier *x)
{
    const struct origin at = deputy_at_head(x->head, x->job);
    json_t *note = json_pack(
        "{s:I s:o s:s s:I s:o s:I s:o s:b s:I s:O* s:b s:I s:o* s:o*}", "id", (json_int_t)x->id, "head",
        id_json(x->head), "name", x->name, "job", (json_int_t)x->job, "origin", origin_encode(&x->of),
        "attempt", (json_int_t)x->attempt, "nodes", job_nodes_encode(&x->nodes), "shrinks",
        (int)x->may_shrink, "wait_for", (json_int_t)x->wait_for, "inputs", x->inputs, "has_inputs",
        (int)x->has_inputs, "seen", (json_int_t)x->seen, "best", best_encode(&x->best), "coming",
        best_encode(x->coming.files ? &x->coming : &x->fetched));
    note_put(d->setup.store, word, &at, note);
}

static bool note_read(struct dossier *ret, const json_t *note)
{
    const char *head = json_string_value(json_object_get(note, "head")),
               *name = json_string_value(json_object_get(note, "name"));
    struct err err;
    *ret = (struct dossier){.id = (uint64_t)json_integer_value(json_object_get(note, "id")),
                            .job = (uint64_t)json_integer_value(json_object_get(note, "job")),
                            .attempt = (uint32_t)json_integer_value(json_object_get(note, "attempt")),
                            .may_shrink = json_is_true(json_object_get(note, "shrinks")),
                            .wait_for = (uint64_t)json_integer_value(json_object_get(note, "wait_for")),
                            .inputs = json_incref(json_object_get(note, "inputs")),
                            .has_inputs = json_is_true(json_object_get(note, "has_inputs")),
                            .seen = json_integer_value(json_object_get(note, "seen"))};
    snprintf(ret->name, sizeof ret->name, "%s", name ? name : "?");
    return ret->id >= STORE_FIRST_DOSSIER && ret->job && head && !id_parse(ret->head, head) &&
           origin_read(&ret->of, json_object_get(note, "origin")) &&
           job_nodes_read(&ret->nodes, json_object_get(note, "nodes")) &&
           !file_set_check(ret->inputs, false, &err) &&
           best_read(&ret->best, json_object_get(note, "best")) &&
           best_read(&ret->coming, json_object_get(note, "coming"));
}

static void dossier_free(struct dossier *x)
{
    fetch_stop(x->fetch);
    best_done(x);
    claim_free(x->claim);
    json_decref(x->inputs);
    free(x);
}

void deputy_forget(struct deputy *d, struct dossier *x, bool drops)
{
    struct dossier **at = &d->dossiers;
    const struct origin here = deputy_at_head(x->head, x->job);
    note_put(d->setup.store, word, &here, NULL);
    best_stop(x);
    if (drops) {
        store_drop_job(d->setup.store, x->id);
        deputy_drop_folder(d, deputy_folder(d, x->id));
        best_drop(d, x->id, &x->best);
    }
    while (*at != x)
        at = &(*at)->next;
    *at = x->next;
    dossier_free(x);
}

static void read_notes(struct deputy *d)
{
    const int64_t oldest = (int64_t)time(NULL) - DEPUTY_DAYS * INT64_C(86400);
    size_t i;
    json_t *row;
    json_array_foreach (d->setup.notes, i, row) {
        const json_t *note = note_of_row(row, word);
        if (!note)
            continue;
        struct dossier *x = xcalloc(1, sizeof *x);
        if (!note_read(x, note)) {
            note_drop_row(d->setup.store, row);
            dossier_free(x);
            continue;
        }
        x->deputy = d;
        d->next_id = x->id >= d->next_id ? x->id + 1 : d->next_id;
        x->next = d->dossiers;
        d->dossiers = x;
        if (x->seen < oldest)
            deputy_forget(d, x, true);
    }
}

/* --- inputs ----------------------------------------------------------------------------------- */

static void on_fetched(void *owner, const char *why);

static void say_kept(const struct dossier *x)
{
    log_job(LOG_LEVEL_INFO, x->job, "this node keeps what it takes to go on with this job of %s", x->name);
}

static void fetch_inputs(struct deputy *d, struct dossier *x)
{
    if (x->has_inputs || x->fetch || !x->inputs || !deputy_reaches(d, x->head))
        return;
    if (!json_array_size(x->inputs)) {
        x->has_inputs = true;
        deputy_put_note(d, x);
        say_kept(x);
        return;
    }
    char *folder = deputy_folder(d, x->id);
    x->fetch = fetch_start(d->setup.parts, x->head, x->job, x->inputs, folder, on_fetched, x);
    free(folder);
}

static void on_fetched(void *owner, const char *why)
{
    struct dossier *x = owner;
    x->fetch = NULL;
    x->has_inputs = !why;
    text_clean(x->why_none, sizeof x->why_none, why ? why : "", true);
    if (!why) {
        say_kept(x);
    } else {
        x->retry.us = clock_now().us + FETCH_AGAIN_US;
        log_job(LOG_LEVEL_INFO, x->job, "the inputs of this job of %s were not fetched: %s", x->name,
                x->why_none);
    }
    deputy_put_note(x->deputy, x);
    deputy_arm(x->deputy);
}

/* --- news ------------------------------------------------------------------------------------- */

static void answer(struct deputy *d, const uint8_t to[16], const json_t *news, const char *error)
{
    deputy_send(d, to,
                json_pack("{s:s s:O s:O s:s*}", "kind", "dossier-noted", "job", json_object_get(news, "job"),
                          "number", json_object_get(news, "number"), "error", error));
}

static size_t count(const struct deputy *d)
{
    size_t n = 0;
    for (const struct dossier *x = d->dossiers; x; x = x->next)
        n++;
    return n;
}

static struct dossier *add(struct deputy *d, const uint8_t head[16], uint64_t job)
{
    struct dossier *x = xcalloc(1, sizeof *x);
    const struct member *m = members_find(d->setup.members, head);
    *x = (struct dossier){
        .deputy = d, .next = d->dossiers, .id = d->next_id++, .job = job, .was_reachable = true};
    memcpy(x->head, head, sizeof x->head);
    snprintf(x->name, sizeof x->name, "%s", m ? m->name : "?");
    d->dossiers = x;
    return x;
}

/* What it takes to know when and how it may be taken over. */
static int read_life(struct dossier *x, const json_t *record, const json_t *life, struct err *err)
{
    struct job_nodes nodes;
    const json_t *spec = json_object_get(record, "spec"), *origin = json_object_get(life, "origin");
    const char *type = json_string_value(json_object_get(record, "type"));
    const json_int_t attempt = json_integer_value(json_object_get(life, "attempt"));
    enum job_type kind;
    struct job_spec asked;
    struct origin of = deputy_at_head(x->head, x->job);
    if (!type || job_type_read(&kind, type, err) || job_spec_read(&asked, kind, spec, err) || attempt < 0 ||
        attempt >= BALLOT_ENDED || !job_nodes_read(&nodes, json_object_get(life, "nodes")) ||
        (origin && !origin_read(&of, origin)))
        return err_set(err, -EBADMSG, "the record of the job cannot be read: same version on all nodes?");
    x->of = of;
    x->may_shrink = asked.on_loss == ON_LOSS_SHRINK;
    x->wait_for = asked.wait_for;
    if (nodes.n > 1) { /* between two attempts it has none */
        x->nodes = nodes;
        x->attempt = (uint32_t)attempt;
    }
    return 0;
}

static int take_record(struct deputy *d, struct dossier *x, const json_t *body, struct err *err)
{
    const json_t *record = json_object_get(body, "record"), *life = json_object_get(body, "life");
    if (!record || json_is_null(record))
        return 0;
    const int r = read_life(x, record, life, err);
    char *text = json_dumps(record, JSON_COMPACT | JSON_REAL_PRECISION(17)),
         *life_text = json_dumps(life, JSON_COMPACT | JSON_REAL_PRECISION(17));
    if (!r && text && life_text)
        store_put_job(d->setup.store, x->id, "kept", text, life_text);
    free(text);
    free(life_text);
    return r;
}

static int take_inputs(struct dossier *x, const json_t *body, struct err *err)
{
    json_t *inputs = json_object_get(body, "inputs");
    if (!inputs || json_is_null(inputs))
        return 0;
    const int r = file_set_check(inputs, false, err);
    if (r || (x->inputs && json_equal(x->inputs, inputs)))
        return r;
    fetch_stop(x->fetch);
    x->fetch = NULL;
    json_decref(x->inputs);
    x->inputs = json_incref(inputs);
    x->has_inputs = false;
    return 0;
}

static void take_lines(struct deputy *d, const struct dossier *x, const json_t *lines)
{
    size_t i;
    json_t *line;
    json_array_foreach (lines, i, line) {
        const char *kind = json_string_value(json_array_get(line, 0)),
                   *text = json_string_value(json_array_get(line, 1));
        json_t *parsed =
            kind && text && strlen(kind) < KIND_BYTES && i < LINES_MOST ? json_loads(text, 0, NULL) : NULL;
        if (json_is_object(parsed)) /* what is none would be none in the store either */
            store_put_event(d->setup.store, x->id, kind, text);
        json_decref(parsed);
    }
}

/* Only what it has taken part in as rank 1: else any member could fill the disk. */
static bool is_deputy_of(const struct deputy *d, const uint8_t head[16], uint64_t job, const json_t *life)
{
    const json_t *origin = json_object_get(life, "origin");
    struct origin of = deputy_at_head(head, job);
    if (origin && !origin_read(&of, origin))
        return false;
    const struct ballot *b = ballots_find(d->setup.ballots, &of);
    return b && !memcmp(b->head, head, sizeof b->head) &&
           !memcmp(b->deputy, deputy_self(d), sizeof b->deputy);
}

static int take_news(struct deputy *d, struct dossier *x, const json_t *body, struct err *err)
{
    int r = take_record(d, x, body, err);
    if (!r)
        r = take_inputs(x, body, err);
    if (!r)
        r = best_take(x, body, err);
    if (r)
        return r;
    take_lines(d, x, json_object_get(body, "lines"));
    x->number = json_integer_value(json_object_get(body, "number"));
    if (json_object_get(body, "record") || json_object_get(body, "inputs") || json_object_get(body, "best")) {
        x->seen = time(NULL);
        deputy_put_note(d, x);
    }
    fetch_inputs(d, x);
    best_fetch(d, x);
    return 0;
}

void deputy_take_news(struct deputy *d, const uint8_t from[16], const json_t *body)
{
    const uint64_t job = (uint64_t)json_integer_value(json_object_get(body, "job"));
    struct dossier *x = deputy_find(d, from, job);
    struct err err;
    if (x)
        claim_end(d, x, "its head is back"); /* votes are counted by rank of its nodes */
    if (x && json_is_true(json_object_get(body, "fresh"))) {
        store_drop_job(d->setup.store, x->id);
        x->number = 0;
    } else if (!x && !json_is_true(json_object_get(body, "fresh"))) {
        answer(d, from, body, "it has lost what it kept before");
        return;
    } else if (!x && !is_deputy_of(d, from, job, json_object_get(body, "life"))) {
        answer(d, from, body, "it is not rank 1 of the job");
        return;
    } else if (!x && count(d) == DEPUTY_MOST) {
        answer(d, from, body, "it keeps those of as many jobs as it may already");
        return;
    }
    if (!x)
        x = add(d, from, job);
    x->heard = clock_now();
    deputy_arm(d);
    if (x->number >= json_integer_value(json_object_get(body, "number"))) { /* the answer was lost */
        answer(d, from, body, NULL);
    } else if (take_news(d, x, body, &err)) {
        deputy_forget(d, x, true);
        answer(d, from, body, err.text);
    } else {
        answer(d, from, body, NULL);
    }
}

void deputy_take_recall(struct deputy *d, const uint8_t from[16], const json_t *body)
{
    const uint64_t job = (uint64_t)json_integer_value(json_object_get(body, "job"));
    struct dossier *x = deputy_find(d, from, job);
    struct taken_job *t = taken_find(d, from, job);
    if (t) {
        taken_tell(d, t);
        return;
    }
    if (x) {
        claim_void(d, x);
        deputy_forget(d, x, true);
    }
    deputy_send(d, from,
                json_pack("{s:s s:I s:b}", "kind", "dossier-held", "job", (json_int_t)job, "kept", 0));
}

/* --- time ------------------------------------------------------------------------------------- */

static struct instant claim_due(const struct dossier *x)
{
    const uint64_t us = x->lost.us + x->wait_for * 1000000;
    return (struct instant){us > x->retry.us ? us : x->retry.us};
}

/* Its answer may be lost, and so may be what it says of itself: it is asked again. */
static void ask_head(const struct deputy *d, struct dossier *x, struct instant now)
{
    x->heard = now;
    deputy_send(d, x->head,
                json_pack("{s:s s:I s:b}", "kind", "dossier-held", "job", (json_int_t)x->job, "kept", 1));
}

static void look_at(struct deputy *d, struct dossier *x, struct instant now)
{
    const bool is_reachable = deputy_reaches(d, x->head), is_back = !x->was_reachable || x->lost.us;
    if (is_reachable && is_back)
        claim_void(d, x);
    if (is_reachable && (is_back || clock_since_us(now, x->heard) >= ASK_AFTER_US))
        ask_head(d, x, now);
    if (is_reachable && x->retry.us <= now.us)
        fetch_inputs(d, x);
    if (is_reachable && x->best_retry.us <= now.us)
        best_fetch(d, x);
    x->was_reachable = is_reachable;
    if (is_reachable)
        x->lost = (struct instant){0};
    else if (!x->lost.us)
        x->lost = now;
    if (!is_reachable && claim_may_begin(x) && claim_due(x).us <= now.us)
        claim_begin(d, x, false, false, NULL, NULL);
}

static uint64_t next_word(const struct dossier *x)
{
    const uint64_t asks = x->heard.us + ASK_AFTER_US, inputs = x->has_inputs || x->fetch ? asks : x->retry.us,
                   best = best_waits(x) ? x->best_retry.us : asks, first = inputs < best ? inputs : best;
    return first < asks ? first : asks;
}

void deputy_arm(struct deputy *d)
{
    const struct instant now = clock_now();
    uint64_t due = UINT64_MAX;
    for (const struct dossier *x = d->dossiers; x; x = x->next) {
        const uint64_t us = x->was_reachable     ? next_word(x)
                            : claim_may_begin(x) ? claim_due(x).us
                                                 : UINT64_MAX;
        due = us > now.us && us < due ? us : due;
    }
    timer_stop(d->timer);
    if (due != UINT64_MAX && !d->is_stopped)
        timer_set_us(d->timer, due - now.us);
}

void deputy_changed(struct deputy *d)
{
    const struct instant now = clock_now();
    if (d->is_stopped)
        return;
    for (struct dossier *x = d->dossiers, *next; x; x = next) {
        next = x->next;
        look_at(d, x, now);
    }
    taken_changed(d);
    deputy_arm(d);
}

static void on_timer(void *owner)
{
    deputy_changed(owner);
}

/* --- what users ask for ----------------------------------------------------------------------- */

int deputy_adopt(struct deputy *d, const uint8_t head[16], uint64_t job, bool must_ask,
                 void (*done)(void *arg, uint64_t as, const char *why), void *arg)
{
    struct dossier *x = deputy_find(d, head, job);
    if (!x)
        return -ENOENT;
    if (x->claim)
        done(arg, 0, "this node asks the other nodes already: see `ringctl jobs` in a moment");
    else
        claim_begin(d, x, true, must_ask, done, arg);
    return 0;
}

void deputy_describe(const struct deputy *d, const uint8_t head[16], uint64_t job, char *text, size_t size)
{
    const struct dossier *x = deputy_find(d, head, job);
    const struct instant now = clock_now();
    char clock[INTERRUPTION_CLOCK];
    *text = '\0';
    if (!x || x->was_reachable)
        return;
    if (!x->nodes.n || !x->has_inputs) {
        snprintf(text, size,
                 "its head is out of reach, and this node has not got all that it takes to go on");
    } else if (x->claim) {
        snprintf(text, size, "this node asks the other nodes of the job whether it may take the job over");
    } else if (claim_may_begin(x)) {
        const uint64_t left = claim_due(x).us > now.us ? claim_due(x).us - now.us : 0;
        interruption_clock(clock, time(NULL) + (int64_t)(left / 1000000));
        snprintf(
            text, size,
            "its head is out of reach: this node takes the job over at %s, if most nodes of the job agree",
            clock);
    } else {
        snprintf(
            text, size,
            "its head is out of reach: if it is off for good, `ringctl adopt %llu@%s` on this node goes on "
            "with the job",
            (unsigned long long)job, x->name);
    }
}

/* --- opening, closing ------------------------------------------------------------------------- */

struct deputy *deputy_new(const struct deputy_setup *setup)
{
    struct deputy *d = xcalloc(1, sizeof *d);
    d->setup = *setup;
    d->next_id = STORE_FIRST_DOSSIER + 1;
    d->timer = timer_new(setup->base, on_timer, d);
    read_notes(d);
    taken_read_notes(d);
    best_sweep(d);
    d->setup.notes = NULL;
    return d;
}

void deputy_stop(struct deputy *d)
{
    if (!d)
        return;
    d->is_stopped = true;
    timer_stop(d->timer);
    for (struct dossier *x = d->dossiers; x; x = x->next)
        claim_end(d, x, "ringd on this node ends");
}

void deputy_free(struct deputy *d)
{
    if (!d)
        return;
    for (struct dossier *x = d->dossiers, *next; x; x = next) {
        next = x->next;
        dossier_free(x);
    }
    taken_free_all(d);
    timer_free(d->timer);
    free(d);
}
