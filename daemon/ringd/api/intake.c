/* SPDX-License-Identifier: MIT
 *
 * Owns the looking threads, detached: the one that comes last, thread or loop, frees what they
 * share. Loop thread, but for look_at_paths and what is under the lock. */
#include "daemon/ringd/api/intake.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/ringd/api/job_taken.h"
#include "daemon/ringd/job/coord.h"
#include "daemon/ringd/job/loan.h"
#include "daemon/ringd/http/http.h"
#include "daemon/ringd/ledger.h"
#include "daemon/ringd/mailbox.h"
#include "daemon/ringd/job/plan/plan_request.h"
#include "daemon/ringd/job/results.h"
#include "daemon/common/job_spec.h"
#include "daemon/common/json_weight.h"
#include "daemon/common/model/model_name.h"
#include "daemon/common/output_path.h"
#include "daemon/common/user_name.h"
#include "daemon/common/xalloc.h"
#include "daemon/ringd/timer.h"
#include "engine/file/gguf_path.h"

enum { LOOK_S = 10, MOST_AT_ONCE = 16, MOST_BYTES = 64 << 20 };

/* Of the intake and of every look, also one whose thread hangs; the last one frees it. */
struct looks {
    atomic_size_t n;           /* how many hold it */
    struct ledger_queue specs; /* what is being looked at, in memory */
};

/* What thread and loop share. The thread's alone until it is posted. */
struct path_look {
    pthread_mutex_t lock;
    bool abandoned, posted;    /* under lock */
    struct looks *looks;       /* shared */
    size_t bytes;              /* its share of them */
    struct intake_question *q; /* borrowed; the loop's alone */
    struct mailbox *mailbox;
    enum job_type type;
    char *state_dir;     /* owned */
    json_t *spec, *seen; /* owned; seen may be NULL */
    struct loan *loan;   /* held; NULL: none */
    int r;
    struct err err;
    struct err kept_why; /* why the result stays with the daemon */
};

struct intake_question {
    LIST_ENTRY(intake_question) next;
    struct intake *in;      /* borrowed */
    struct http_call *call; /* owned until it is answered */
    enum job_type type;
    bool is_plan; /* no job is wanted, only its plan */
    struct intake_adapters {
        void (*take)(void *owner, struct http_call *call, uint64_t job, const json_t *adapters,
                     struct loan *loan);
        void *owner;
        uint64_t job;
    } adapters; /* of a job that is there */
    struct path_look *look;
    struct timer *timer; /* owned */
};

struct intake {
    struct intake_setup setup;
    LIST_HEAD(, intake_question) questions;
    struct looks *looks; /* shared */
};

/* --- looking, on a thread --------------------------------------------------------------------- */

/* The first folder on the way that the daemon may not enter; "" if it is the file itself. The
 * caller frees. */
static char *closed_folder(const char *path)
{
    char *part = xstrdup(path);
    for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (access(part, X_OK) && errno == EACCES)
            return part;
        *slash = '/';
    }
    *part = '\0';
    return part;
}

/* A sentence that names the option and the path. What somebody else may read, he can hand over. */
static int refuse(struct path_look *l, const char *option, const char *path, int error)
{
    static const char way_out[] = "`ringctl` on this node hands over what its own user can read";
    char user[64], *closed = closed_folder(path);
    bool private_tmp = error == ENOENT && getenv("INVOCATION_ID") &&
                       (!strncmp(path, "/tmp/", 5) || !strncmp(path, "/var/tmp/", 9));
    user_name(user, sizeof user);
    if (error == EACCES)
        err_set(&l->err, -error, "%s %s cannot be opened by ringd's user %s: %s%s; %s", option, path, user,
                *closed ? closed : "it", *closed ? " is closed to it" : " is not readable for it", way_out);
    else if (private_tmp)
        err_set(&l->err, -error, "%s %s cannot be opened: the service ringd has a /tmp of its own; %s",
                option, path, way_out);
    else
        err_set(&l->err, -error, "%s %s cannot be opened: %s", option, path, strerror(error));
    free(closed);
    return -error;
}

/* 0, or the errno of reading this file, or of entering this folder. */
static int readable(const struct path_look *l, const char *path)
{
    struct stat st;
    if (loan_has(l->loan, path))
        return 0; /* the one who asks could read it */
    return stat(path, &st) || access(path, S_ISDIR(st.st_mode) ? R_OK | X_OK : R_OK) ? errno : 0;
}

/* The stage's cell would not let it read them either; here the one who asks hears at once. */
static int look_for_own(struct path_look *l, const struct field *f, const char *option, const char *path)
{
    const bool reads = f->path == FIELD_MODEL || f->path == FIELD_READS || f->path == FIELD_ADAPTER ||
                       (f->path == FIELD_MAY_READ && strchr(path, '/'));
    return reads ? output_path_check_input(l->state_dir, option, path, &l->err) : 0;
}

/* All parts of a GGUF file. */
static int look_at_parts(struct path_look *l, const char *option, const char *path)
{
    int r = 0;
    for (size_t i = 0; i < gguf_path_parts(path) && !r; i++) {
        char *part = gguf_path_part(path, i);
        r = part ? readable(l, part) : ENOMEM;
        if (r)
            refuse(l, option, part ? part : path, r);
        free(part);
    }
    return -r;
}

static int look_at_model(struct path_look *l, const char *option, const char *dir)
{
    if (gguf_is_path(dir))
        return look_at_parts(l, option, dir);
    struct stat st;
    const bool is_lent = loan_has(l->loan, dir);
    int r = readable(l, dir);
    if (r)
        return refuse(l, option, dir, r);
    if (!is_lent && (stat(dir, &st) || !S_ISDIR(st.st_mode)))
        return err_set(
            &l->err, -ENOTDIR,
            "%s %s is not a folder: name the folder that holds config.json, or a file that ends with .gguf",
            option, dir);
    char *config = xasprintf("%s/config.json", dir);
    r = !is_lent ? readable(l, config) : loan_has(l->loan, config) ? 0 : ENOENT;
    if (r == ENOENT)
        err_set(&l->err, -r, "%s %s has no config.json: it is not the folder of a model", option, dir);
    else if (r)
        refuse(l, option, config, r);
    free(config);
    return -r;
}

/* Puts another path where the spec has this one. */
static void put_path(json_t *spec, const struct field *f, const char *path, const char *other)
{
    json_t *given = json_object_get(spec, f->name), *value;
    const char *name;
    if (!json_is_object(given)) {
        json_object_set_new(spec, f->name, json_string(other));
        return;
    }
    json_object_foreach (given, name, value)
        if (json_string_value(value) == path) {
            json_object_set_new(given, name, json_string(other));
            return;
        }
}

/* An adapter that stayed with the daemon can be named by the path it was asked for. */
static bool use_kept(struct path_look *l, const struct field *f, const char *path)
{
    char *kept = results_folder(l->state_dir, path);
    bool there = !access(kept, R_OK | X_OK);
    if (there)
        put_path(l->spec, f, path, kept);
    free(kept);
    return there;
}

static int look_at_input(struct path_look *l, const struct field *f, const char *option, const char *path)
{
    const int r = readable(l, path);
    if (!r || (f->path == FIELD_ADAPTER && use_kept(l, f, path)))
        return 0;
    return refuse(l, option, path, r);
}

/* The folder `path` is, or would be made in. The caller frees. */
static char *folder_at(const char *path)
{
    char *folder = xstrdup(path), *slash = strrchr(folder, '/');
    if (!access(path, F_OK) || !slash)
        return folder;
    slash[slash == folder] = '\0';
    return folder;
}

/* 0, or the errno of writing into it. */
static int writable(const char *folder)
{
    struct stat st;
    if (stat(folder, &st))
        return errno;
    if (!S_ISDIR(st.st_mode))
        return ENOTDIR;
    return access(folder, W_OK | X_OK) ? errno : 0;
}

static void refuse_to_write(struct path_look *l, const char *option, const char *path, int error,
                            const char *folder)
{
    char user[64];
    user_name(user, sizeof user);
    err_set(&l->err, -error,
            "%s %s cannot be created or written by the daemon: %s: %s; choose a folder that ringd's user %s "
            "may write",
            option, path, folder, strerror(error), user);
}

/* The same folder for the one who asks: a service has a /tmp of its own. */
static bool is_seen(const struct path_look *l, const char *folder)
{
    struct stat st;
    const char *path = json_string_value(json_object_get(l->seen, "path"));
    return path && !stat(folder, &st) && !strcmp(path, folder) &&
           (json_int_t)st.st_dev == json_integer_value(json_object_get(l->seen, "dev")) &&
           (json_int_t)st.st_ino == json_integer_value(json_object_get(l->seen, "ino"));
}

static int look_at_out(struct path_look *l, const char *option, const char *out)
{
    int r = output_path_check(l->state_dir, option, out, &l->err);
    if (r)
        return r;
    char *folder = folder_at(out);
    r = writable(folder);
    const bool fetches = json_is_object(l->seen), is_other = !r && fetches && !is_seen(l, folder);
    if (fetches && (r || is_other)) {
        char *kept = results_folder(l->state_dir, out);
        json_object_set_new(l->spec, "kept_in", json_string(kept));
        if (r)
            err_set(&l->kept_why, -r, "ringd cannot write %s: %s", folder, strerror(r));
        else
            err_set(&l->kept_why, -EXDEV, "the service ringd sees another %s than you", folder);
        free(kept);
        r = 0;
    } else if (r) {
        refuse_to_write(l, option, out, r, folder);
    }
    free(folder);
    return -r;
}

static int look_at_file(struct path_look *l, const char *option, const char *path)
{
    int r = output_path_check(l->state_dir, option, path, &l->err);
    if (r)
        return r;
    char *folder = folder_at(path);
    r = !access(path, F_OK) ? (access(path, W_OK) ? errno : 0) : writable(folder);
    if (r)
        refuse_to_write(l, option, path, r, folder);
    free(folder);
    return -r;
}

static int look_at(struct path_look *l, const struct field *f, const char *path)
{
    char option[FIELD_OPTION];
    field_option(option, f);
    const bool is_name = (f->path == FIELD_MODEL || f->path == FIELD_ADAPTER) &&
                         model_name_is_exact(path); /* has no place yet */
    const int r = is_name ? 0 : look_for_own(l, f, option, path);
    if (r || is_name)
        return r;
    switch (f->path) {
    case FIELD_MODEL: return look_at_model(l, option, path);
    case FIELD_READS:
    case FIELD_ADAPTER: return look_at_input(l, f, option, path);
    case FIELD_WRITES: return look_at_out(l, option, path);
    case FIELD_APPENDS: return look_at_file(l, option, path);
    case FIELD_MAY_READ: /* the stage says what it finds there */
    case FIELD_NO_PATH: break;
    }
    return 0;
}

/* Every path that a job of its type has. What is missing, or no text, coord refuses. */
static int look_at_all(struct path_look *l)
{
    int r = 0;
    const char *path;
    for (const struct field *f = job_spec_fields(); f->name; f++)
        for (size_t i = 0;
             field_is_for(f, JOB_SPEC_OF(l->type)) && !r && (path = field_path_at(f, l->spec, i)); i++)
            r = look_at(l, f, path);
    return r;
}

static void let_go(struct looks *looks)
{
    if (atomic_fetch_sub(&looks->n, 1) == 1)
        free(looks);
}

static void look_free(struct path_look *l)
{
    pthread_mutex_destroy(&l->lock);
    ledger_give(&l->looks->specs, l->bytes);
    let_go(l->looks);
    free(l->state_dir);
    json_decref(l->spec);
    json_decref(l->seen);
    loan_drop(l->loan);
    free(l);
}

static void on_looked(void *arg);

static void *look_at_paths(void *arg)
{
    struct path_look *l = arg;
    results_make(l->state_dir);
    l->r = look_at_all(l);
    pthread_mutex_lock(&l->lock);
    bool abandoned = l->abandoned;
    if (!abandoned) {
        l->posted = true;
        mailbox_post(l->mailbox, on_looked, l);
    }
    pthread_mutex_unlock(&l->lock);
    if (abandoned)
        look_free(l);
    return NULL;
}

/* --- questions, on the loop ------------------------------------------------------------------- */

static void question_free(struct intake_question *q)
{
    LIST_REMOVE(q, next);
    timer_free(q->timer);
    free(q);
}

/* The thread, should it still look, frees what it has by itself. */
static void abandon(struct path_look *l)
{
    pthread_mutex_lock(&l->lock);
    l->abandoned = true;
    bool posted = l->posted;
    pthread_mutex_unlock(&l->lock);
    if (posted) {
        mailbox_forget(l->mailbox, l);
        look_free(l);
    }
}

/* As the job would be, and nothing of it stays. */
static void plan(struct intake_question *q, const struct path_look *l, const struct job_spec *asked)
{
    json_t *spec = results_stage_spec(l->state_dir, 0, asked);
    plan_request_ask(q->in->setup.plan_request, q->type, spec, l->loan, q->call);
    json_decref(spec);
}

static void submit(struct intake_question *q, struct path_look *l, const struct job_spec *asked)
{
    uint64_t id;
    struct err err;
    char *kept = asked->kept_in ? xstrdup(asked->kept_in) : NULL;
    int r = coord_submit(q->in->setup.coord, q->type, json_incref(l->spec), l->loan, &id, &err);
    if (r == -ENOBUFS || r == -EMSGSIZE)
        http_fail(q->call, r == -ENOBUFS ? 503 : 413, r == -ENOBUFS ? "busy" : "too-large", "%s", err.text);
    else if (r)
        http_fail(q->call, 400, "bad-request", "%s", err.text);
    else
        job_taken_answer(q->in->setup.base, q->in->setup.store, q->call,
                         json_pack("{s:I s:s* s:s*}", "id", (json_int_t)id, "kept_in", kept, "why",
                                   kept ? l->kept_why.text : NULL));
    free(kept);
}

static void on_looked(void *arg)
{
    struct path_look *l = arg;
    struct intake_question *q = l->q;
    struct job_spec asked;
    struct err err;
    pthread_mutex_lock(&l->lock); /* the thread has let go of it */
    pthread_mutex_unlock(&l->lock);
    if (l->r)
        http_fail(q->call, 400, "bad-path", "%s", l->err.text);
    else if (q->adapters.take)
        q->adapters.take(q->adapters.owner, q->call, q->adapters.job, json_object_get(l->spec, "adapters"),
                         l->loan);
    else if (job_spec_read(&asked, q->type, l->spec, &err))
        http_fail(q->call, 400, "bad-request", "%s", err.text);
    else if (q->is_plan)
        plan(q, l, &asked);
    else
        submit(q, l, &asked);
    question_free(q);
    look_free(l);
}

static void on_late(void *owner)
{
    struct intake_question *q = owner;
    http_fail(q->call, 504, "slow-path",
              "the paths of this job have not answered for %d s: is one on a network share that hangs?",
              LOOK_S);
    abandon(q->look);
    question_free(q);
}

void intake_take(struct intake *in, const struct intake_request *req, struct http_call *call)
{
    pthread_t thread;
    if (atomic_load(&in->looks->n) > MOST_AT_ONCE) {
        http_fail(call, 503, "busy",
                  "the paths of %d jobs are being looked at: submit it again in a moment, and see whether a "
                  "network share hangs",
                  MOST_AT_ONCE);
        return;
    }
    const size_t bytes = json_weight(req->spec) + json_weight(req->seen);
    if (!ledger_take(&in->looks->specs, bytes)) {
        http_fail(call, 503, "busy",
                  "the jobs whose paths are being looked at take all the memory there is for them, %d MiB: "
                  "submit it again in a moment, or put its text into a file",
                  MOST_BYTES >> 20);
        return;
    }
    struct path_look *l = xcalloc(1, sizeof *l);
    struct intake_question *q = xcalloc(1, sizeof *q);
    *q = (struct intake_question){.in = in,
                                  .call = call,
                                  .is_plan = req->is_plan,
                                  .adapters = {req->adapters, req->owner, req->job},
                                  .look = l};
    q->type = l->type = req->type;
    pthread_mutex_init(&l->lock, NULL);
    l->q = q;
    l->looks = in->looks;
    l->bytes = bytes;
    atomic_fetch_add(&l->looks->n, 1);
    l->mailbox = in->setup.mailbox;
    l->state_dir = xstrdup(in->setup.state_dir);
    l->spec = json_deep_copy(req->spec);
    for (const struct field *f = job_spec_fields(); f->name; f++)
        if (f->use == JOB_SPEC_OF_DAEMON) /* ours to say */
            json_object_del(l->spec, f->name);
    l->seen = req->seen ? json_deep_copy(req->seen) : NULL;
    l->loan = loan_hold(req->loan);
    int error = pthread_create(&thread, NULL, look_at_paths, l);
    if (error) {
        http_fail(call, 503, "busy", "the job's paths cannot be looked at: %s", strerror(error));
        look_free(l);
        free(q);
        return;
    }
    pthread_detach(thread);
    q->timer = timer_new(in->setup.base, on_late, q);
    timer_set_ms(q->timer, LOOK_S * UINT64_C(1000));
    LIST_INSERT_HEAD(&in->questions, q, next);
}

struct intake *intake_new(const struct intake_setup *setup)
{
    struct intake *in = xcalloc(1, sizeof *in);
    in->setup = *setup;
    in->looks = xcalloc(1, sizeof *in->looks);
    atomic_init(&in->looks->n, 1);
    ledger_register(setup->ledger, &in->looks->specs, "job_intake", MOST_BYTES);
    LIST_INIT(&in->questions);
    return in;
}

void intake_free(struct intake *in)
{
    while (in && LIST_FIRST(&in->questions)) {
        struct intake_question *q = LIST_FIRST(&in->questions);
        abandon(q->look);
        http_fail(q->call, 503, "stopping", "ringd is stopping");
        question_free(q);
    }
    if (in)
        let_go(in->looks);
    free(in);
}
