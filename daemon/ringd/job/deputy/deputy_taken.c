/* SPDX-License-Identifier: MIT
 *
 * Jobs that this node has taken over: their inputs are lent to them, and their old heads hear of
 * them until they have the result. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "daemon/common/xalloc.h"
#include "daemon/ringd/aside.h"
#include "daemon/ringd/cluster/identity.h"
#include "daemon/ringd/job/deputy/deputy_impl.h"
#include "daemon/ringd/job/deputy/file_set.h"
#include "daemon/ringd/job/deputy/note.h"
#include "daemon/ringd/job/job.h"
#include "daemon/ringd/job/job_state.h"
#include "daemon/ringd/job/loan.h"
#include "daemon/ringd/job/results.h"
#include "daemon/ringd/log.h"
#include "daemon/ringd/store/store.h"

static const char word[] = "taken";

/* --- notes ------------------------------------------------------------------------------------ */

static void put_note(const struct deputy *d, const struct taken_job *t)
{
    const struct origin at = deputy_at_head(t->head, t->job);
    json_t *note = json_pack("{s:o s:s s:I s:I s:I s:O s:o*}", "head", id_json(t->head), "name", t->name,
                             "job", (json_int_t)t->job, "as", (json_int_t)t->as, "id", (json_int_t)t->id,
                             "inputs", t->inputs, "best", best_encode(&t->best));
    note_put(d->setup.store, word, &at, note);
}

static void taken_free(struct taken_job *t)
{
    json_decref(t->inputs);
    best_free(&t->best);
    file_set_drop(t->files);
    free(t);
}

void taken_free_all(struct deputy *d)
{
    for (struct taken_job *t = d->taken, *next; t; t = next) {
        next = t->next;
        taken_free(t);
    }
}

struct taken_job *taken_find(const struct deputy *d, const uint8_t head[16], uint64_t job)
{
    struct taken_job *t = d->taken;
    while (t && (t->job != job || memcmp(t->head, head, sizeof t->head) != 0))
        t = t->next;
    return t;
}

/* --- inputs, as a loan ------------------------------------------------------------------------ */

/* {"files", "folders"} as loan_new has it: each file stands for its path at the head. */
static json_t *about_of(const json_t *inputs)
{
    json_t *files = json_array(), *folders = json_array(), *input;
    size_t i, k;
    json_array_foreach (inputs, i, input) {
        const char *path = json_string_value(json_object_get(input, "path")), *slash = strrchr(path, '/');
        json_t *folder = json_stringn(path, slash > path ? (size_t)(slash - path) : 1), *known;
        bool is_known = false;
        json_array_append_new(files, json_string(path));
        json_array_foreach (folders, k, known)
            is_known = is_known || json_equal(known, folder);
        if (!is_known && json_array_size(folders) < LOAN_FOLDERS_MAX)
            json_array_append(folders, folder);
        json_decref(folder);
    }
    return json_pack("{s:o s:o}", "files", files, "folders", folders);
}

/* NULL: there is nothing to lend, or the log says what is wrong. May wait for this node's disk. */
static struct loan *lend(struct deputy *d, const char *folder, const json_t *inputs)
{
    const size_t n = json_array_size(inputs);
    int fds[FILE_SET_MOST];
    size_t got = 0;
    struct loan *loan = NULL;
    struct err err = {""};
    for (; got < n; got++) {
        char *path = xasprintf("%s/%zu", folder, got);
        fds[got] = open(path, O_RDONLY | O_CLOEXEC);
        if (fds[got] < 0)
            err_set(&err, -errno, "%s cannot be opened: %s", path, strerror(errno));
        free(path);
        if (*err.text)
            break;
    }
    json_t *about = about_of(inputs);
    if (n && got == n)
        loan_new_kept(&loan, d->setup.loans, about, fds, n, &err);
    else
        while (got > 0)
            close(fds[--got]);
    json_decref(about);
    if (n && !loan)
        log_warning("the inputs of a job that this node has taken over are not here: %s", err.text);
    return loan;
}

static bool has_ended(const json_t *record)
{
    const char *state = json_string_value(json_object_get(record, "state"));
    for (enum job_state s = 0; state && s < JOB_STATES; s++)
        if (job_state_ended(s) && !strcmp(state, job_state_name(s)))
            return true;
    return false;
}

/* Its note goes, and its inputs. */
static void taken_drop(struct deputy *d, struct taken_job *t)
{
    const struct origin there = deputy_at_head(t->head, t->job);
    struct taken_job **at = &d->taken;
    while (*at != t)
        at = &(*at)->next;
    *at = t->next;
    note_put(d->setup.store, word, &there, NULL);
    deputy_drop_folder(d, deputy_folder(d, t->id));
    best_drop(d, t->id, &t->best);
    taken_free(t);
}

/* --- taking over ------------------------------------------------------------------------------ */

/* A job on its way from the dossiers to the coord. */
struct passage {
    struct deputy *deputy;
    struct job_head from;
    uint64_t as, id;
    json_t *inputs;    /* owned */
    struct loan *loan; /* held: these inputs; NULL: there are none */
    struct best_files best;
    struct origin of;
    struct job_nodes nodes; /* that promised it */
    void (*done)(void *arg, uint64_t as, const char *why);
    void *arg;
};

static void end_passage(struct passage *p, const char *why)
{
    if (p->done)
        p->done(p->arg, why ? 0 : p->as, why);
    json_decref(p->inputs);
    best_free(&p->best);
    loan_drop(p->loan);
    free(p);
}

/* The state that the job resumes is looked for where its result goes: that is a folder of this
 * daemon's now (coord_take_over). */
static void bring_state(const struct deputy *d, const struct passage *p, const json_t *spec)
{
    const char *out = json_string_value(json_object_get(spec, "adapter_out"));
    size_t i;
    json_t *input;
    if (!out || !json_is_true(json_object_get(spec, "resume")))
        return;
    char *from = deputy_folder(d, p->id), *to = results_folder(d->setup.state_dir, out);
    results_make(d->setup.state_dir);
    mkdir(to, 0777);
    json_array_foreach (p->inputs, i, input) {
        const char *path = json_string_value(json_object_get(input, "path")), *slash = strrchr(path, '/');
        if (strncmp(path, out, strlen(out)) != 0 || slash != path + strlen(out))
            continue;
        char *kept = xasprintf("%s/%zu", from, i), *state = xasprintf("%s%s", to, slash);
        if (link(kept, state) && errno != EEXIST)
            log_job(LOG_LEVEL_WARNING, p->as, "%s cannot be made: %s", state, strerror(errno));
        free(kept);
        free(state);
    }
    free(from);
    free(to);
}

/* The same of its best so far; the job is to know as of which step. What its life says of that, if
 * anything, is true of the disk of its old head. */
static void bring_best(const struct deputy *d, const struct passage *p, json_t *entry)
{
    const json_t *spec = json_object_get(json_object_get(entry, "record"), "spec");
    const uint64_t step =
        best_bring(d, p->id, &p->best, json_string_value(json_object_get(spec, "adapter_out")));
    json_object_set_new(json_object_get(entry, "life"), "best", json_integer((json_int_t)step));
}

/* It cannot be read: the old head may go on with it. */
static void undo(struct passage *p)
{
    struct deputy *d = p->deputy;
    struct taken_job *t = taken_find(d, p->from.id, p->from.job);
    store_drop_job(d->setup.store, p->as);
    claim_release(d, &p->of, &p->nodes);
    if (t)
        taken_drop(d, t);
}

static void on_entry(void *arg, const char *text)
{
    struct passage *p = arg;
    struct deputy *d = p->deputy;
    json_t *list = text ? json_loads(text, 0, NULL) : NULL;
    json_t *entry = json_array_get(list, 0), *record = json_object_get(entry, "record");
    if (d->is_stopped) {
        end_passage(p, "ringd on this node ends");
    } else if (has_ended(record)) { /* in an earlier life of this daemon */
        end_passage(p, NULL);
    } else {
        bring_state(d, p, json_object_get(record, "spec"));
        bring_best(d, p, entry);
        const bool is_taken = entry && d->setup.taken(d->setup.owner, p->as, entry, p->loan, &p->from);
        if (!is_taken)
            undo(p);
        end_passage(p, is_taken ? NULL : "what this node keeps of the job cannot be read: see its log");
    }
    json_decref(list);
}

static struct passage *passage_new(struct deputy *d, const struct taken_job *t, struct loan *loan)
{
    struct passage *p = xcalloc(1, sizeof *p);
    *p = (struct passage){.deputy = d,
                          .from = {.job = t->job},
                          .as = t->as,
                          .id = t->id,
                          .inputs = json_deep_copy(t->inputs),
                          .loan = loan_hold(loan),
                          .best = best_copy(&t->best)};
    memcpy(p->from.id, t->head, sizeof p->from.id);
    snprintf(p->from.name, sizeof p->from.name, "%s", t->name);
    return p;
}

static struct taken_job *add(struct deputy *d, const struct dossier *x)
{
    struct taken_job *t = xcalloc(1, sizeof *t);
    *t = (struct taken_job){.next = d->taken,
                            .job = x->job,
                            .as = store_next_job(d->setup.store),
                            .id = x->id,
                            .inputs = json_deep_copy(x->inputs),
                            .best = best_copy(&x->best)};
    memcpy(t->head, x->head, sizeof t->head);
    snprintf(t->name, sizeof t->name, "%s", x->name);
    d->taken = t;
    put_note(d, t);
    return t;
}

void taken_begin(struct deputy *d, struct dossier *x, void (*done)(void *arg, uint64_t as, const char *why),
                 void *arg)
{
    char *folder = deputy_folder(d, x->id);
    struct loan *loan = lend(d, folder, x->inputs);
    free(folder);
    if (!loan && json_array_size(x->inputs)) {
        claim_release(d, &x->of, &x->nodes);
        if (done)
            done(arg, 0, "what this node has fetched of its inputs cannot be opened: see its log");
        return;
    }
    const struct taken_job *t = add(d, x);
    struct passage *p = passage_new(d, t, loan);
    p->of = x->of;
    p->nodes = x->nodes;
    p->done = done;
    p->arg = arg;
    loan_drop(loan);
    log_job(LOG_LEVEL_INFO, x->job, "this job of %s is job %llu of this node from now on", x->name,
            (unsigned long long)p->as);
    store_move_job(d->setup.store, x->id, p->as);
    deputy_forget(d, x, false);
    store_get_unfinished(d->setup.store, p->as, on_entry, p);
}

/* --- what old heads hear ---------------------------------------------------------------------- */

/* A result whose files are opened, beside the loop. */
struct showing {
    struct aside_work work;
    struct deputy *deputy; /* the loop's alone, as the next two */
    uint8_t head[16];
    uint64_t job;
    json_t *record; /* owned */
    char *folder;   /* owned; NULL: there is none */
    struct file_set *files;
    struct err err;
};

static void open_result(struct aside_work *w)
{
    struct showing *s = (struct showing *)w;
    if (s->folder)
        file_set_of_folder(&s->files, s->folder, &s->err);
}

static void showing_free(struct aside_work *w)
{
    struct showing *s = (struct showing *)w;
    json_decref(s->record);
    free(s->folder);
    file_set_drop(s->files);
    free(s);
}

/* why: the files of its result cannot be fetched; NULL: they can, or there are none. */
static void say(struct deputy *d, struct taken_job *t, const json_t *record, const char *why)
{
    const json_t *result = json_object_get(record, "result"), *error = json_object_get(record, "error");
    deputy_send(d, t->head,
                json_pack("{s:s s:I s:I s:O s:O* s:O* s:o* s:s*}", "kind", "job-adopted", "job",
                          (json_int_t)t->job, "as", (json_int_t)t->as, "state",
                          json_object_get(record, "state"), "error", json_is_string(error) ? error : NULL,
                          "result", json_is_object(result) ? result : NULL, "files",
                          t->files ? file_set_list(t->files) : NULL, "unsent", why));
}

static void on_opened(struct aside_work *w)
{
    struct showing *s = (struct showing *)w;
    struct deputy *d = s->deputy;
    struct taken_job *t = taken_find(d, s->head, s->job);
    if (t) {
        t->is_opening = false;
        t->files = t->files ? t->files : file_set_hold(s->files);
        say(d, t, s->record, !s->files && s->folder ? s->err.text : NULL);
    }
    showing_free(w);
}

static char *result_folder(const struct deputy *d, uint64_t as, const json_t *record)
{
    const char *type = json_string_value(json_object_get(record, "type"));
    enum job_type kind;
    struct job_spec asked;
    struct err err;
    if (!type || job_type_read(&kind, type, &err) ||
        job_spec_read(&asked, kind, json_object_get(record, "spec"), &err))
        return NULL;
    return results_of(d->setup.state_dir, as, &asked);
}

/* The context of a question to the store. */
struct telling {
    struct deputy *deputy;
    uint8_t head[16];
    uint64_t job;
};

static void on_record(void *arg, const char *text)
{
    const struct telling g = *(struct telling *)arg;
    struct deputy *d = g.deputy;
    struct taken_job *t = taken_find(d, g.head, g.job);
    json_t *record = text ? json_loads(text, 0, NULL) : NULL;
    free(arg);
    if (t && record && !d->is_stopped && !t->is_opening && has_ended(record)) {
        struct showing *s = xcalloc(1, sizeof *s);
        *s = (struct showing){.work = {.run = open_result, .done = on_opened, .drop = showing_free},
                              .deputy = d,
                              .job = g.job,
                              .record = json_incref(record),
                              .folder = result_folder(d, t->as, record)};
        memcpy(s->head, g.head, sizeof s->head);
        t->is_opening = true;
        if (aside_run(d->setup.aside, &s->work)) {
            t->is_opening = false;
            showing_free(&s->work);
        }
    } else if (t && record && !d->is_stopped && !has_ended(record)) {
        say(d, t, record, NULL);
    }
    json_decref(record);
}

void taken_tell(struct deputy *d, struct taken_job *t)
{
    struct telling *g = xmalloc(sizeof *g);
    *g = (struct telling){.deputy = d, .job = t->job};
    memcpy(g->head, t->head, sizeof g->head);
    t->is_told = true;
    store_get_job(d->setup.store, t->as, on_record, g);
}

void taken_changed(struct deputy *d)
{
    for (struct taken_job *t = d->taken; t; t = t->next) {
        const bool is_reachable = deputy_reaches(d, t->head);
        if (is_reachable && !t->is_told)
            taken_tell(d, t);
        t->is_told = t->is_told && is_reachable;
    }
}

void deputy_ended(struct deputy *d, uint64_t as)
{
    for (struct taken_job *t = d->taken; t; t = t->next)
        if (t->as == as && deputy_reaches(d, t->head))
            taken_tell(d, t);
}

bool deputy_take_landed(struct deputy *d, const uint8_t from[16], const json_t *body, uint64_t *ret_as)
{
    const uint64_t job = (uint64_t)json_integer_value(json_object_get(body, "job")),
                   as = (uint64_t)json_integer_value(json_object_get(body, "as"));
    struct taken_job *t = taken_find(d, from, job);
    if (!t || t->as != as)
        return false;
    *ret_as = as;
    taken_drop(d, t);
    return json_is_true(json_object_get(body, "over"));
}

struct file_set *deputy_files(struct deputy *d, const uint8_t to[16], uint64_t as)
{
    struct taken_job *t = d->taken;
    while (t && (t->as != as || memcmp(t->head, to, sizeof t->head) != 0))
        t = t->next;
    return t ? t->files : NULL;
}

void deputy_lend(struct deputy *d, bool (*lend_to)(void *owner, uint64_t job, struct loan *loan), void *owner)
{
    for (struct taken_job *t = d->taken; t; t = t->next) {
        char *folder = deputy_folder(d, t->id);
        struct loan *loan = lend(d, folder, t->inputs);
        if (!lend_to(owner, t->as, loan)) /* it has ended, or the daemon did while it took the job over */
            store_get_unfinished(d->setup.store, t->as, on_entry, passage_new(d, t, loan));
        loan_drop(loan);
        free(folder);
    }
}

/* --- opening ---------------------------------------------------------------------------------- */

void taken_read_notes(struct deputy *d)
{
    size_t i;
    json_t *row;
    json_array_foreach (d->setup.notes, i, row) {
        const json_t *note = note_of_row(row, word);
        const char *head = json_string_value(json_object_get(note, "head"));
        struct err err;
        if (!note)
            continue;
        struct taken_job *t = xcalloc(1, sizeof *t);
        *t = (struct taken_job){.next = d->taken,
                                .job = (uint64_t)json_integer_value(json_object_get(note, "job")),
                                .as = (uint64_t)json_integer_value(json_object_get(note, "as")),
                                .id = (uint64_t)json_integer_value(json_object_get(note, "id")),
                                .inputs = json_incref(json_object_get(note, "inputs"))};
        const char *name = json_string_value(json_object_get(note, "name"));
        snprintf(t->name, sizeof t->name, "%s", name ? name : "?");
        if (!head || id_parse(t->head, head) || !t->job || !t->as || t->id < STORE_FIRST_DOSSIER ||
            file_set_check(t->inputs, false, &err) || !best_read(&t->best, json_object_get(note, "best"))) {
            note_drop_row(d->setup.store, row);
            taken_free(t);
            continue;
        }
        d->next_id = t->id >= d->next_id ? t->id + 1 : d->next_id;
        d->taken = t;
    }
}
