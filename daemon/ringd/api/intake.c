/* SPDX-License-Identifier: MIT
 *
 * Owns the looking threads, detached: the one that comes last, thread or loop, frees what they
 * share. Loop thread, but for look_at_paths and what is under the lock. */
#include "daemon/ringd/api/intake.h"

#include <errno.h>
#include <pthread.h>
#include <pwd.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/ringd/api/api_reply.h"
#include "daemon/ringd/job/coord.h"
#include "daemon/ringd/http/http.h"
#include "daemon/ringd/mailbox.h"
#include "daemon/ringd/job/plan_request.h"
#include "daemon/ringd/job/results.h"
#include "daemon/common/output_path.h"
#include "daemon/common/xalloc.h"
#include "daemon/ringd/timer.h"

enum { LOOK_S = 10, MOST_AT_ONCE = 16 };

/* What thread and loop share. The thread's alone until it is posted. */
struct path_look {
    pthread_mutex_t lock;
    bool abandoned, posted;    /* under lock */
    atomic_size_t *looks;      /* shared by all looks and the intake, see struct intake */
    struct intake_question *q; /* borrowed; the loop's alone */
    struct mailbox *mailbox;
    char *state_dir;     /* owned */
    json_t *spec, *seen; /* owned; seen may be NULL */
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
    struct path_look *look;
    struct timer *timer; /* owned */
};

struct intake {
    struct intake_setup setup;
    LIST_HEAD(, intake_question) questions;
    atomic_size_t *
        looks; /* how many hold it: this, and every look, also one whose thread hangs; the last one frees it */
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

static void name_user(char *ret, size_t size)
{
    struct passwd entry, *found = NULL;
    char room[4096];
    if (!getpwuid_r(geteuid(), &entry, room, sizeof room, &found) && found)
        snprintf(ret, size, "%s", entry.pw_name);
    else
        snprintf(ret, size, "of id %u", geteuid());
}

/* A sentence that names the option, the path, and where else the file may lie. */
static int refuse(struct path_look *l, const char *option, const char *path, int error, const char *folder)
{
    char user[64], *closed = closed_folder(path), *place = xasprintf("%s/%s", l->state_dir, folder);
    bool private_tmp = error == ENOENT && getenv("INVOCATION_ID") &&
                       (!strncmp(path, "/tmp/", 5) || !strncmp(path, "/var/tmp/", 9));
    name_user(user, sizeof user);
    const char *way = access(place, F_OK) ? "" : place;
    if (error == EACCES)
        err_set(&l->err, -error,
                "%s %s cannot be opened by ringd's user %s: %s%s%s%s; SERVICE in `man ringd` has more ways",
                option, path, user, *closed ? closed : "it",
                *closed ? " is closed to it" : " is not readable for it", *way ? "; put it into " : "", way);
    else if (private_tmp)
        err_set(&l->err, -error, "%s %s cannot be opened: the service ringd has a /tmp of its own%s%s",
                option, path, *way ? "; put it into " : "", way);
    else
        err_set(&l->err, -error, "%s %s cannot be opened: %s", option, path, strerror(error));
    free(closed);
    free(place);
    return -error;
}

static const char *path_of(const struct path_look *l, const char *key)
{
    return json_string_value(json_object_get(l->spec, key));
}

/* 0, or the errno of reading this file, or of entering this folder. */
static int readable(const char *path)
{
    struct stat st;
    return stat(path, &st) || access(path, S_ISDIR(st.st_mode) ? R_OK | X_OK : R_OK) ? errno : 0;
}

static int look_at_model(struct path_look *l)
{
    const char *dir = path_of(l, "model");
    struct stat st;
    int r = dir ? readable(dir) : 0;
    if (!dir)
        return 0; /* coord and stage say what is missing */
    if (r)
        return refuse(l, "--model", dir, r, "models");
    if (stat(dir, &st) || !S_ISDIR(st.st_mode))
        return err_set(&l->err, -ENOTDIR,
                       "--model %s is not a folder: name the folder that holds config.json", dir);
    char *config = xasprintf("%s/config.json", dir);
    r = readable(config);
    if (r == ENOENT)
        err_set(&l->err, -r, "--model %s has no config.json: it is not the folder of a model", dir);
    else if (r)
        refuse(l, "--model", config, r, "models");
    free(config);
    return -r;
}

/* An adapter that stayed with the daemon can be named by the path it was asked for. */
static bool use_kept(struct path_look *l, const char *key, const char *path)
{
    char *kept = results_folder(l->state_dir, path);
    bool there = !access(kept, R_OK | X_OK);
    if (there)
        json_object_set_new(l->spec, key, json_string(kept));
    free(kept);
    return there;
}

static int look_at_inputs(struct path_look *l)
{
    static const struct {
        const char *key, *option;
        bool is_adapter;
    } inputs[] = {{"data", "--data", false},
                  {"valid", "--valid", false},
                  {"adapter", "--adapter", true},
                  {"init_adapter", "--init-adapter", true}};
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++) {
        const char *path = path_of(l, inputs[i].key);
        int r = path ? readable(path) : 0;
        if (r && !(inputs[i].is_adapter && use_kept(l, inputs[i].key, path)))
            return refuse(l, inputs[i].option, path, r, inputs[i].is_adapter ? "results" : "models");
    }
    return 0;
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
    name_user(user, sizeof user);
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

static int look_at_out(struct path_look *l)
{
    const char *out = path_of(l, "adapter_out");
    char *folder = out ? folder_at(out) : NULL;
    int r = out ? output_path_check(l->state_dir, "--adapter-out", out, &l->err) : 0;
    if (r) {
        free(folder);
        return r;
    }
    r = out ? writable(folder) : 0;
    bool fetches = json_is_object(l->seen), is_other = out && !r && fetches && !is_seen(l, folder);
    if (out && fetches && (r || is_other)) {
        char *kept = results_folder(l->state_dir, out);
        json_object_set_new(l->spec, "kept_in", json_string(kept));
        if (r)
            err_set(&l->kept_why, -r, "ringd cannot write %s: %s", folder, strerror(r));
        else
            err_set(&l->kept_why, -EXDEV, "the service ringd sees another %s than you", folder);
        free(kept);
        r = 0;
    } else if (r) {
        refuse_to_write(l, "--adapter-out", out, r, folder);
    }
    free(folder);
    return -r;
}

static int look_at_log(struct path_look *l)
{
    const char *log = path_of(l, "log");
    if (!log)
        return 0;
    int r = output_path_check(l->state_dir, "--log", log, &l->err);
    if (r)
        return r;
    char *folder = folder_at(log);
    r = !access(log, F_OK) ? (access(log, W_OK) ? errno : 0) : writable(folder);
    if (r)
        refuse_to_write(l, "--log", log, r, folder);
    free(folder);
    return -r;
}

static void let_go(atomic_size_t *looks)
{
    if (atomic_fetch_sub(looks, 1) == 1)
        free(looks);
}

static void look_free(struct path_look *l)
{
    pthread_mutex_destroy(&l->lock);
    let_go(l->looks);
    free(l->state_dir);
    json_decref(l->spec);
    json_decref(l->seen);
    free(l);
}

static void on_looked(void *arg);

static void *look_at_paths(void *arg)
{
    struct path_look *l = arg;
    l->r = look_at_model(l);
    l->r = l->r ? l->r : look_at_inputs(l);
    l->r = l->r ? l->r : look_at_out(l);
    l->r = l->r ? l->r : look_at_log(l);
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
static void plan(struct intake_question *q, const struct path_look *l)
{
    json_t *spec = results_stage_spec(l->state_dir, 0, l->spec);
    plan_request_ask(q->in->setup.plan_request, q->type, spec, q->call);
    json_decref(spec);
}

static void submit(struct intake_question *q, struct path_look *l)
{
    uint64_t id;
    struct err err;
    json_t *spec = json_incref(l->spec), *kept = json_incref(json_object_get(spec, "kept_in"));
    int r = coord_submit(q->in->setup.coord, q->type, spec, &id, &err);
    if (r == -ENOBUFS || r == -EMSGSIZE)
        http_fail(q->call, r == -ENOBUFS ? 503 : 413, r == -ENOBUFS ? "busy" : "too-large", "%s", err.text);
    else if (r)
        http_fail(q->call, 400, "bad-request", "%s", err.text);
    else if (kept)
        api_reply(q->call, 201,
                  json_pack("{s:I s:O s:s}", "id", (json_int_t)id, "kept_in", kept, "why", l->kept_why.text));
    else
        api_reply(q->call, 201, json_pack("{s:I}", "id", (json_int_t)id));
    json_decref(kept);
}

static void on_looked(void *arg)
{
    struct path_look *l = arg;
    struct intake_question *q = l->q;
    pthread_mutex_lock(&l->lock); /* the thread has let go of it */
    pthread_mutex_unlock(&l->lock);
    if (l->r)
        http_fail(q->call, 400, "bad-path", "%s", l->err.text);
    else if (q->is_plan)
        plan(q, l);
    else
        submit(q, l);
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
    if (atomic_load(in->looks) > MOST_AT_ONCE) {
        http_fail(call, 503, "busy",
                  "the paths of %d jobs are being looked at: submit it again in a moment, and see whether a "
                  "network share hangs",
                  MOST_AT_ONCE);
        return;
    }
    struct path_look *l = xcalloc(1, sizeof *l);
    struct intake_question *q = xcalloc(1, sizeof *q);
    *q = (struct intake_question){.in = in, .call = call, .is_plan = req->is_plan, .look = l};
    q->type = req->type;
    pthread_mutex_init(&l->lock, NULL);
    l->q = q;
    l->looks = in->looks;
    atomic_fetch_add(l->looks, 1);
    l->mailbox = in->setup.mailbox;
    l->state_dir = xstrdup(in->setup.state_dir);
    l->spec = json_deep_copy(req->spec);
    json_object_del(l->spec, "kept_in"); /* ours to say */
    l->seen = req->seen ? json_deep_copy(req->seen) : NULL;
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
    atomic_init(in->looks, 1);
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
