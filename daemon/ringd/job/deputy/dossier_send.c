/* SPDX-License-Identifier: MIT
 *
 * Owns the dossier that is being sent: of the one job that runs. */
#include "daemon/ringd/job/deputy/dossier_send.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "daemon/common/xalloc.h"
#include "daemon/ringd/aside.h"
#include "daemon/ringd/cluster/members.h"
#include "daemon/ringd/cluster/unsent.h"
#include "daemon/ringd/job/deputy/file_set.h"
#include "daemon/ringd/job/job.h"
#include "daemon/ringd/job/loan.h"
#include "daemon/ringd/job/results.h"
#include "daemon/ringd/store/store.h"
#include "daemon/ringd/timer.h"

enum {
    MESSAGE_BYTES = 192 << 10, /* of lines in a message */
    LINE_BYTES = 512 << 10,    /* longer lines are left out: a message has room for less than 1 MiB */
    AGAIN_MS = 5000,           /* until a message that was not answered is sent again */
};
/* Of sets of best files, above all numbers of jobs and of offers: who fetches parts names any. They
 * begin at a random number above it: after a restart none is that of another set. */
#define FIRST_NUMBER (UINT64_C(1) << 53)

enum phase {
    OFF,
    BEGINNING, /* its deputy goes to the disk, and its inputs are opened */
    FOLLOWING,
};

/* What a question to the store leads back to: the store may outlive who asked. */
struct anchor {
    struct dossier_send *send; /* NULL: nobody waits for it any more */
};

/* Best files. */
struct best_set {
    struct file_set *files; /* NULL: none yet */
    uint64_t number;
    bool is_asked; /* the deputy has begun to fetch it */
};

struct dossier_send {
    struct dossier_send_setup setup;
    enum phase phase;
    struct job *job; /* borrowed: not looked at once it has ended */
    uint64_t id;
    uint8_t to[16];
    json_int_t number; /* of the last message */
    bool is_fresh;     /* the next is the first */
    json_t *out;       /* owned: not answered yet */
    struct timer *again;
    json_t *record, *life, *inputs, *best;  /* owned: not sent yet; NULL: nothing new */
    int64_t sent;                           /* the last line, as the store numbers them */
    bool has_lines;                         /* there may be more */
    struct anchor *asked;                   /* of the store; NULL: nothing is */
    struct file_set *files;                 /* NULL: none yet */
    struct best_set newest, older;          /* older: the deputy still fetches it, perhaps */
    struct opening *opening, *best_opening; /* NULL: none is under way */
    uint64_t best_number;                   /* of the last set */
    bool is_best_due;                       /* it was saved while the best was opened */
    bool is_best_told;                      /* the log says that it is not kept */
};

static void send_next(struct dossier_send *d);

/* NULL: what was asked is of no interest any more. */
static struct dossier_send *come_back(struct anchor *a)
{
    struct dossier_send *d = a->send;
    if (d)
        d->asked = NULL;
    free(a);
    return d;
}

static struct anchor *go(struct dossier_send *d)
{
    struct anchor *a = xmalloc(sizeof *a);
    a->send = d;
    d->asked = a;
    return a;
}

/* --- opening files, beside the loop ----------------------------------------------------------- */

struct opening {
    struct aside_work work;
    struct dossier_send *send; /* the loop's alone */
    json_t *spec;              /* owned: the inputs of such a job, */
    struct loan *loan;         /* held: which are lent; or, without a spec, */
    char *folder;              /* owned: the best that lies here, */
    uint64_t step;             /* as of that save */
    struct file_set *files;
    int r;
    struct err err;
};

static void open_files(struct aside_work *w)
{
    struct opening *o = (struct opening *)w;
    o->r = o->spec ? file_set_of_inputs(&o->files, o->spec, o->loan, &o->err)
                   : file_set_of_best(&o->files, o->folder, &o->err);
}

static void opening_free(struct aside_work *w)
{
    struct opening *o = (struct opening *)w;
    json_decref(o->spec);
    loan_drop(o->loan);
    free(o->folder);
    file_set_drop(o->files);
    free(o);
}

static void end_opening(struct opening **at)
{
    if (*at)
        (*at)->work.is_left = true;
    *at = NULL;
}

/* Takes over `o`. −errno: it is not begun. */
static int begin_opening(struct dossier_send *d, struct opening **at, struct opening *o)
{
    *at = o;
    if (!aside_run(d->setup.aside, &o->work))
        return 0;
    *at = NULL;
    opening_free(&o->work);
    return -EAGAIN;
}

/* --- the end ---------------------------------------------------------------------------------- */

static void drop_set(struct best_set *s)
{
    file_set_drop(s->files);
    *s = (struct best_set){0};
}

static void stop(struct dossier_send *d)
{
    end_opening(&d->opening);
    end_opening(&d->best_opening);
    timer_stop(d->again);
    if (d->asked)
        d->asked->send = NULL;
    d->asked = NULL;
    json_decref(d->out);
    json_decref(d->record);
    json_decref(d->life);
    json_decref(d->inputs);
    json_decref(d->best);
    file_set_drop(d->files);
    drop_set(&d->newest);
    drop_set(&d->older);
    d->out = d->record = d->life = d->inputs = d->best = NULL;
    d->files = NULL;
    d->is_best_due = d->is_best_told = false;
    d->phase = OFF;
    d->job = NULL;
}

static void give_up(struct dossier_send *d, const char *why)
{
    struct job *job = d->job;
    char text[700];
    const struct member *m = members_find(d->setup.members, d->to);
    snprintf(text, sizeof text, "node %s does not keep what it takes to go on without this node: %s",
             m ? m->name : "?", why);
    stop(d);
    d->setup.note(d->setup.owner, job, text);
}

/* --- sending ---------------------------------------------------------------------------------- */

static void post(struct dossier_send *d)
{
    const int r = d->setup.send(d->setup.owner, d->to, json_incref(d->out));
    if (r == -EMSGSIZE)
        give_up(d, unsent_why(r));
    else
        timer_set_ms(d->again, AGAIN_MS);
}

static void on_again(void *owner)
{
    struct dossier_send *d = owner;
    if (d->out && members_reachable(d->setup.members, d->to))
        post(d);
}

static json_t *take(json_t **value)
{
    json_t *taken = *value;
    *value = NULL;
    return taken;
}

static void send_news(struct dossier_send *d, json_t *lines)
{
    d->out = json_pack("{s:s s:I s:I s:b s:o* s:o* s:o s:o* s:o*}", "kind", "dossier-news", "job",
                       (json_int_t)d->id, "number", ++d->number, "fresh", (int)d->is_fresh, "record",
                       take(&d->record), "life", take(&d->life), "lines", lines, "inputs", take(&d->inputs),
                       "best", take(&d->best));
    d->is_fresh = false;
    if (d->out)
        post(d);
}

/* As many as go into a message. */
static json_t *pick_lines(struct dossier_send *d, const json_t *rows)
{
    json_t *lines = json_array(), *row;
    size_t i, bytes = 0;
    json_array_foreach (rows, i, row) {
        char *text = json_dumps(json_array_get(row, 2), JSON_COMPACT | JSON_REAL_PRECISION(17));
        const size_t n = text ? strlen(text) : LINE_BYTES;
        const bool has_room = n >= LINE_BYTES || bytes + n <= MESSAGE_BYTES || !bytes;
        if (has_room && n < LINE_BYTES)
            json_array_append_new(lines, json_pack("[O, s]", json_array_get(row, 1), text));
        free(text);
        if (!has_room)
            break;
        bytes += n < LINE_BYTES ? n : 0;
        d->sent = json_integer_value(json_array_get(row, 0));
    }
    d->has_lines = i < json_array_size(rows) || i == STORE_LINES;
    return lines;
}

static bool has_news(const struct dossier_send *d)
{
    return d->record || d->inputs || d->best;
}

static void on_lines(void *arg, const char *text)
{
    struct dossier_send *d = come_back(arg);
    if (!d)
        return;
    json_t *rows = text ? json_loads(text, 0, NULL) : NULL;
    const bool may_be_more = d->has_lines;
    json_t *lines = pick_lines(d, rows);
    d->has_lines = d->has_lines || may_be_more;
    json_decref(rows);
    if (has_news(d) || json_array_size(lines))
        send_news(d, lines);
    else
        json_decref(lines);
    send_next(d);
}

static void send_next(struct dossier_send *d)
{
    if (d->phase != FOLLOWING || d->out || d->asked || (!has_news(d) && !d->has_lines))
        return;
    d->has_lines = false;
    store_get_lines(d->setup.store, d->id, d->sent, on_lines, go(d));
}

/* --- the best so far -------------------------------------------------------------------------- */

static void open_best(struct dossier_send *d);

/* A deputy finishes what it has begun to fetch, or it would never have any of a job that saves
 * faster than that. What no save has changed stays the set that it was. */
static void take_set(struct dossier_send *d, struct file_set *files)
{
    if (d->newest.files && file_set_is_same(d->newest.files, files))
        return;
    if (d->newest.is_asked) {
        drop_set(&d->older);
        d->older = d->newest;
    } else {
        drop_set(&d->newest);
    }
    d->newest = (struct best_set){.files = file_set_hold(files), .number = ++d->best_number};
}

static void on_best_opened(struct aside_work *w)
{
    struct opening *o = (struct opening *)w;
    struct dossier_send *d = o->send;
    d->best_opening = NULL;
    if (!o->r) {
        take_set(d, o->files);
        json_decref(d->best);
        d->best = json_pack("{s:I s:I s:o}", "step", (json_int_t)o->step, "number",
                            (json_int_t)d->newest.number, "files", file_set_list(o->files));
    } else if (!d->is_best_told) {
        char text[700];
        snprintf(text, sizeof text, "the best so far is on this node alone: %s", o->err.text);
        d->setup.note(d->setup.owner, d->job, text);
        d->is_best_told = true;
    }
    opening_free(w);
    if (d->is_best_due)
        open_best(d);
    send_next(d);
}

/* What cannot be opened now is opened at the next save. */
static void open_best(struct dossier_send *d)
{
    const struct job *job = d->job;
    const char *out = job->asked.adapter_out;
    const uint64_t step = job_best_step(job);
    if (!job->asked.early_stop || !out || !step)
        return;
    d->is_best_due = d->best_opening;
    if (d->is_best_due) /* one thread at a time: a disk may hang */
        return;
    struct opening *o = xcalloc(1, sizeof *o);
    *o = (struct opening){.work = {.run = open_files, .done = on_best_opened, .drop = opening_free},
                          .send = d,
                          .folder =
                              job->asked.kept_in ? results_folder(d->setup.state_dir, out) : xstrdup(out),
                          .step = step};
    begin_opening(d, &d->best_opening, o);
}

/* --- beginning -------------------------------------------------------------------------------- */

static void on_opened(struct aside_work *w)
{
    struct opening *o = (struct opening *)w;
    struct dossier_send *d = o->send;
    const int r = o->r;
    const struct err err = o->err;
    d->opening = NULL;
    if (!r) {
        d->files = file_set_hold(o->files);
        d->inputs = file_set_list(o->files);
    }
    opening_free(w);
    if (r) {
        give_up(d, err.text);
        return;
    }
    d->phase = FOLLOWING;
    d->is_fresh = d->has_lines = true;
    d->sent = 0;
    open_best(d);
    send_next(d);
}

static void open_all(struct dossier_send *d)
{
    struct opening *o = xcalloc(1, sizeof *o);
    *o = (struct opening){.work = {.run = open_files, .done = on_opened, .drop = opening_free},
                          .send = d,
                          .spec = json_deep_copy(d->job->spec),
                          .loan = loan_hold(d->job->loan)};
    if (begin_opening(d, &d->opening, o))
        give_up(d, "too many files are opened on this node now");
}

/* Now that its name is on the disk. */
static void on_written(void *arg, const char *nothing)
{
    struct dossier_send *d = come_back(arg);
    (void)nothing;
    if (d && store_trouble(d->setup.store))
        give_up(d, "this node cannot write to its disk who keeps it");
    else if (d)
        open_all(d);
}

static bool has_deputy(const struct job *job)
{
    return job_nodes(job)->n > 1 && job->asked.on_loss != ON_LOSS_STOP && !job->asked.keep_alive;
}

void dossier_send_begin(struct dossier_send *d, struct job *job)
{
    const uint8_t *to = job_nodes(job)->id[1];
    if (d->phase != OFF && d->id == job->id && has_deputy(job) && !memcmp(d->to, to, sizeof d->to))
        return; /* it follows already */
    stop(d);
    if (!has_deputy(job))
        return;
    d->job = job;
    d->id = job->id;
    memcpy(d->to, to, sizeof d->to);
    d->phase = BEGINNING;
    job_nodes_add(&job->deputies, job_nodes(job), 1);
    d->setup.changed(d->setup.owner, job);
    store_sync(d->setup.store, on_written, go(d));
}

/* --- what happens to the job ------------------------------------------------------------------ */

static bool is_of(const struct dossier_send *d, uint64_t job)
{
    return d->phase != OFF && d->id == job;
}

static void replace(json_t **value, const char *text)
{
    json_decref(*value);
    *value = json_loads(text, 0, NULL);
}

void dossier_send_record(struct dossier_send *d, uint64_t job, const char *record, const char *life)
{
    if (!is_of(d, job) || !life)
        return;
    replace(&d->record, record);
    replace(&d->life, life);
    send_next(d);
}

void dossier_send_line(struct dossier_send *d, uint64_t job)
{
    if (!is_of(d, job))
        return;
    d->has_lines = true;
    send_next(d);
}

void dossier_send_best(struct dossier_send *d, const struct job *job)
{
    if (is_of(d, job->id) && d->phase == FOLLOWING)
        open_best(d);
}

void dossier_send_end(struct dossier_send *d, uint64_t job)
{
    if (is_of(d, job))
        stop(d);
}

void dossier_send_take_noted(struct dossier_send *d, const uint8_t from[16], const json_t *body)
{
    const char *error = json_string_value(json_object_get(body, "error"));
    if (!d->out || json_integer_value(json_object_get(body, "job")) != (json_int_t)d->id ||
        json_integer_value(json_object_get(body, "number")) != d->number ||
        memcmp(from, d->to, sizeof d->to) != 0)
        return;
    timer_stop(d->again);
    json_decref(d->out);
    d->out = NULL;
    if (error && *error)
        give_up(d, error);
    else
        send_next(d);
}

void dossier_send_changed(struct dossier_send *d)
{
    if (d->out && !timer_is_pending(d->again))
        on_again(d);
}

struct file_set *dossier_send_files(struct dossier_send *d, const uint8_t to[16], uint64_t number)
{
    if (d->phase == OFF || memcmp(to, d->to, sizeof d->to) != 0)
        return NULL;
    if (number == d->id)
        return d->files;
    if (number != d->newest.number)
        return number == d->older.number ? d->older.files : NULL;
    d->newest.is_asked = true;
    drop_set(&d->older);
    return d->newest.files;
}

/* --- opening, closing ------------------------------------------------------------------------- */

static uint64_t first_number(void)
{
    uint32_t any;
    if (getrandom(&any, sizeof any, 0) != (ssize_t)sizeof any)
        any = (uint32_t)time(NULL);
    return FIRST_NUMBER + ((uint64_t)any << 20);
}

struct dossier_send *dossier_send_new(const struct dossier_send_setup *setup)
{
    struct dossier_send *d = xcalloc(1, sizeof *d);
    d->setup = *setup;
    d->best_number = first_number();
    d->again = timer_new(setup->base, on_again, d);
    return d;
}

void dossier_send_free(struct dossier_send *d)
{
    if (!d)
        return;
    stop(d);
    timer_free(d->again);
    free(d);
}
