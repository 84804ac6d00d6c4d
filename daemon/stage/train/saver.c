/* SPDX-License-Identifier: MIT
 *
 * Owns the queue of saves and the thread that writes them. The main thread adds at the end, the
 * thread takes from the front; only the newest save can be incomplete. */
#include "daemon/stage/train/saver.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "engine/model/param_piece.h"

/* How long the main thread waits for a disk that takes nothing. */
enum { STUCK_S = 300, LEAVE_S = 1 };
enum { PLACES = 2, STATES = 2, STATE_VALUES = 3 /* a parameter's value and its two moments */ };
static const size_t BYTES_MOST = (size_t)64 << 20;

/* What the thread does next for a save: it opens the files of an adapter, or writes a piece to
 * them. */
struct saver_item {
    struct saver_item *next;
    bool is_part;
    struct adapter_out_request out; /* of a part: record is owned */
    char *dir[PLACES], *spare;      /* of a part: owned, or NULL; dir[0] is the best's */
    struct param_piece piece;       /* else */
    size_t room;                    /* else: piece.n, also once it is spare */
    float values[];                 /* [room] */
};

struct save {
    struct save *next;
    uint64_t step, mark;
    bool must_keep, is_complete, is_dropped;
    struct saver_item *first, **last; /* owned */
};

struct saver {
    struct saver_setup setup;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* for the thread: there is more to do; for the main thread: something is done */
    /* All below under the lock. */
    struct save *front, **end; /* owned: the front is being written */
    struct save *filling;      /* in the list, or NULL: the main thread adds to it */
    size_t bytes;              /* of values that are handed over and not written yet */
    /* Items that were written. The next save has pieces of the same sizes, and memory that was
     * touched before costs no page faults between two steps. */
    struct saver_item *spare, **spare_end; /* owned: the oldest first */
    size_t spare_bytes;
    bool is_writing, must_stop, has_left;
    int result; /* of the last save that was written */
    struct err why;
};

/* --- the end of the process ------------------------------------------------------------------- */

/* A stage that is to end finishes a save whose values it has. A handler gets no argument, and any
 * thread may run it: so this belongs to the process, as its handlers do. */
enum { ENDING_ASKED = 1, ENDING_BUSY = 2 };
static atomic_uint ending;

static void on_term(int number)
{
    if (!(atomic_fetch_or(&ending, ENDING_ASKED) & ENDING_BUSY))
        raise(number); /* its default action is back: SA_RESETHAND */
}

static void be_busy(bool is_busy)
{
    if (is_busy)
        atomic_fetch_or(&ending, ENDING_BUSY);
    else if (atomic_fetch_and(&ending, ~(unsigned)ENDING_BUSY) & ENDING_ASKED)
        raise(SIGTERM);
}

static void watch_term(void)
{
    struct sigaction act = {.sa_handler = on_term, .sa_flags = SA_RESETHAND | SA_NODEFER | SA_RESTART};
    sigemptyset(&act.sa_mask);
    sigaction(SIGTERM, &act, NULL);
}

/* --- the queue, under the lock ---------------------------------------------------------------- */

static void item_free(struct saver_item *item)
{
    json_decref(item->out.record);
    free(item->dir[0]);
    free(item->dir[1]);
    free(item->spare);
    free(item);
}

static size_t item_bytes(const struct saver_item *item)
{
    return item->is_part ? 0 : item->piece.n * sizeof(float);
}

static struct saver_item *pop_item(struct save *save)
{
    struct saver_item *item = save->first;
    if (!item)
        return NULL;
    save->first = item->next;
    if (!save->first)
        save->last = &save->first;
    return item;
}

static struct saver_item *pop_spare(struct saver *s)
{
    struct saver_item *item = s->spare;
    s->spare = item->next;
    if (!s->spare)
        s->spare_end = &s->spare;
    s->spare_bytes -= item->room * sizeof(float);
    return item;
}

/* What waits and what is spare together stay below the cap. */
static void bound_spares(struct saver *s)
{
    while (s->spare && s->bytes + s->spare_bytes > s->setup.most_bytes)
        item_free(pop_spare(s));
}

static void release_item(struct saver *s, struct saver_item *item)
{
    if (!item)
        return;
    s->bytes -= item_bytes(item);
    if (item->is_part) {
        item_free(item);
        return;
    }
    item->next = NULL;
    *s->spare_end = item;
    s->spare_end = &item->next;
    s->spare_bytes += item->room * sizeof(float);
    bound_spares(s);
}

/* Pieces come in the same order each time, so the oldest one fits, or all have other sizes now. */
static struct saver_item *reuse_item(struct saver *s, size_t n)
{
    struct saver_item *item = NULL;
    pthread_mutex_lock(&s->lock);
    while (s->spare && !item) {
        item = pop_spare(s);
        if (item->room != n) {
            item_free(item);
            item = NULL;
        }
    }
    pthread_mutex_unlock(&s->lock);
    return item;
}

static void drop_items(struct saver *s, struct save *save)
{
    for (struct saver_item *item; (item = pop_item(save));)
        release_item(s, item);
}

static void unlink_save(struct saver *s, struct save *save)
{
    struct save **at = &s->front;
    while (*at != save)
        at = &(*at)->next;
    *at = save->next;
    if (!save->next)
        s->end = at;
    drop_items(s, save);
    free(save);
}

static bool has_complete(const struct saver *s)
{
    return s->front && s->front->is_complete && !s->front->is_dropped;
}

/* The one behind the front, or a front that is not begun. */
static struct save *waiting(const struct saver *s)
{
    return s->is_writing && s->front ? s->front->next : s->front;
}

static struct timespec in_seconds(unsigned seconds)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_sec += (time_t)seconds;
    return at;
}

/* --- the thread ------------------------------------------------------------------------------- */

struct saver_places {
    struct adapter_out *out[PLACES]; /* owned */
};

static void places_abort(struct saver_places *p)
{
    for (size_t i = 0; i < PLACES; i++)
        adapter_out_abort(p->out[i]);
    *p = (struct saver_places){0};
}

static int places_finish(struct saver_places *p, struct err *err)
{
    int r = 0;
    for (size_t i = 0; i < PLACES && !r; i++) {
        r = p->out[i] ? adapter_out_finish(p->out[i], err) : 0;
        p->out[i] = NULL;
    }
    return r;
}

static int open_place(struct adapter_out **ret, const struct saver_item *item, const char *dir,
                      struct err *err)
{
    struct adapter_out_request req = item->out;
    req.dir = dir;
    return dir ? adapter_out_open(ret, &req, err) : 0;
}

/* The parent of a folder that is the daemon's own choice may not be there yet. */
static void make_parent(const char *dir)
{
    char parent[4096];
    const char *slash = strrchr(dir, '/');
    if (slash && snprintf(parent, sizeof parent, "%.*s", (int)(slash - dir), dir) < (int)sizeof parent)
        (void)mkdir(parent, 0777); /* what is wrong shows when its child is made */
}

static int begin_part(struct saver_places *p, const struct saver_item *item, struct err *err)
{
    struct err first;
    int r = places_finish(p, err);
    int best = r ? r : open_place(&p->out[0], item, item->dir[0], &first);
    if (!r && best && item->spare) {
        make_parent(item->spare);
        best = open_place(&p->out[0], item, item->spare, err);
    }
    if (!r && best)
        *err = first;
    return best ? best : open_place(&p->out[1], item, item->dir[1], err);
}

static int write_item(struct saver_places *p, const struct saver_item *item, struct err *err)
{
    if (item->is_part)
        return begin_part(p, item, err);
    int r = 0;
    for (size_t i = 0; i < PLACES && !r; i++)
        if (p->out[i])
            r = adapter_out_piece(p->out[i], &item->piece, item->values, err);
    return r;
}

/* The item after `done`, which is freed, of a save that may still be filled; NULL: there will be
 * none. */
static struct saver_item *await_item(struct saver *s, struct save *save, struct saver_item *done)
{
    pthread_mutex_lock(&s->lock);
    release_item(s, done);
    if (done)
        pthread_cond_broadcast(&s->changed);
    while (!save->first && !save->is_complete && !save->is_dropped)
        pthread_cond_wait(&s->changed, &s->lock);
    struct saver_item *item = save->is_dropped ? NULL : pop_item(save);
    pthread_mutex_unlock(&s->lock);
    return item;
}

static int write_save(struct saver *s, struct save *save, struct err *err)
{
    struct saver_places places = {0};
    int r = s->setup.begins(s->setup.owner, save->step, save->mark, err);
    for (struct saver_item *item = NULL; (item = await_item(s, save, item));)
        if (!r)
            r = write_item(&places, item, err);
    pthread_mutex_lock(&s->lock);
    const bool is_dropped = save->is_dropped;
    pthread_mutex_unlock(&s->lock);
    if (!r && !is_dropped)
        r = places_finish(&places, err);
    places_abort(&places);
    return is_dropped ? -ECANCELED : r;
}

static void tell(const struct saver *s, uint64_t step, int r, const struct err *err)
{
    if (!r)
        s->setup.saved(s->setup.owner, step);
    else if (r != -ECANCELED)
        s->setup.failed(s->setup.owner, step, err->text);
}

static void write_front(struct saver *s)
{
    struct save *save = s->front;
    struct err err = {""};
    s->is_writing = true;
    pthread_mutex_unlock(&s->lock);
    const int r = write_save(s, save, &err);
    tell(s, save->step, r, &err);
    pthread_mutex_lock(&s->lock);
    s->is_writing = false;
    if (r != -ECANCELED) {
        s->result = r;
        s->why = err;
    }
    unlink_save(s, save);
    be_busy(has_complete(s));
    pthread_cond_broadcast(&s->changed);
}

static void *saver_main(void *arg)
{
    struct saver *s = arg;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (!s->front && !s->must_stop)
            pthread_cond_wait(&s->changed, &s->lock);
        if (!s->front)
            break;
        write_front(s);
    }
    s->has_left = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* --- start and end ---------------------------------------------------------------------------- */

size_t saver_bytes(const struct job_plan *plan, const struct config *config)
{
    size_t values = 0;
    for (size_t a = 0; a <= plan->nmore; a++)
        for (size_t u = 0; u < config->layers + 2; u++)
            values += STATE_VALUES *
                      tune_unit_elements(job_plan_tune(plan, a), family_find(config->family), config, u);
    const size_t bytes = STATES * values * sizeof(float);
    return bytes < BYTES_MOST ? bytes : BYTES_MOST;
}

int saver_new(struct saver **ret, const struct saver_setup *setup, struct err *err)
{
    pthread_condattr_t attr;
    struct saver *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(err, -ENOMEM, "out of memory");
    s->setup = *setup;
    s->end = &s->front;
    s->spare_end = &s->spare;
    pthread_mutex_init(&s->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&s->changed, &attr);
    pthread_condattr_destroy(&attr);
    int r = pthread_create(&s->thread, NULL, saver_main, s);
    if (r) {
        pthread_cond_destroy(&s->changed);
        pthread_mutex_destroy(&s->lock);
        free(s);
        return err_set(err, -r, "no thread can be started that saves: %s", strerror(r));
    }
    watch_term();
    *ret = s;
    return 0;
}

bool saver_free(struct saver *s)
{
    if (!s)
        return true;
    const struct timespec until = in_seconds(LEAVE_S);
    pthread_mutex_lock(&s->lock);
    s->must_stop = true;
    for (struct save *save; (save = waiting(s));)
        unlink_save(s, save);
    if (s->front)
        s->front->is_dropped = true;
    s->filling = NULL;
    pthread_cond_broadcast(&s->changed);
    int r = 0;
    while (!s->has_left && !r)
        r = pthread_cond_timedwait(&s->changed, &s->lock, &until);
    const bool has_left = s->has_left;
    pthread_mutex_unlock(&s->lock);
    if (!has_left) {
        pthread_detach(s->thread);
        return false;
    }
    pthread_join(s->thread, NULL);
    while (s->spare)
        item_free(pop_spare(s));
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s);
    return true;
}

/* --- the main thread's side ------------------------------------------------------------------- */

static int is_stuck(int r, const struct save *save, struct err *err)
{
    return r ? err_set(err, -ETIMEDOUT,
                       "the disk did not take the state of step %llu within %d s: is it a network share that "
                       "hangs?",
                       (unsigned long long)save->step, STUCK_S)
             : 0;
}

int saver_begin(struct saver *s, uint64_t step, uint64_t mark, bool must_keep, struct err *err)
{
    struct save *save = calloc(1, sizeof *save);
    if (!save)
        return err_set(err, -ENOMEM, "out of memory for a save");
    *save = (struct save){.step = step, .mark = mark, .must_keep = must_keep, .last = &save->first};
    const struct timespec until = in_seconds(STUCK_S);
    int r = 0;
    pthread_mutex_lock(&s->lock);
    while (waiting(s) && waiting(s)->must_keep && !r)
        r = pthread_cond_timedwait(&s->changed, &s->lock, &until);
    if (r) {
        r = is_stuck(r, s->front, err);
        free(save);
    } else {
        if (waiting(s))
            unlink_save(s, waiting(s));
        *s->end = save;
        s->end = &save->next;
        s->filling = save;
    }
    pthread_mutex_unlock(&s->lock);
    return r;
}

static int add_item(struct saver *s, struct saver_item *item, struct err *err)
{
    const struct timespec until = in_seconds(STUCK_S);
    const size_t n = item_bytes(item);
    int r = 0;
    pthread_mutex_lock(&s->lock);
    while (s->bytes && s->bytes + n > s->setup.most_bytes && !r)
        r = pthread_cond_timedwait(&s->changed, &s->lock, &until);
    if (r) {
        r = is_stuck(r, s->front, err);
        item_free(item);
    } else {
        s->bytes += n;
        bound_spares(s);
        *s->filling->last = item;
        s->filling->last = &item->next;
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
    return r;
}

int saver_part(struct saver *s, const struct adapter_out_request *out, const char *best, const char *spare,
               struct err *err)
{
    struct saver_item *item = calloc(1, sizeof *item);
    if (item) {
        *item = (struct saver_item){.is_part = true, .out = *out};
        item->out.record = json_deep_copy(out->record);
        item->dir[0] = best ? strdup(best) : NULL;
        item->dir[1] = strdup(out->dir);
        item->spare = spare ? strdup(spare) : NULL;
    }
    if (!item || !item->dir[1] || (best && !item->dir[0]) || (spare && !item->spare) ||
        (out->record && !item->out.record)) {
        if (item)
            item_free(item);
        return err_set(err, -ENOMEM, "out of memory for a save");
    }
    return add_item(s, item, err);
}

int saver_piece(struct saver *s, const struct param_piece *piece, const float *values, struct err *err)
{
    struct saver_item *item = reuse_item(s, piece->n);
    if (!item)
        item = malloc(sizeof *item + piece->n * sizeof *values);
    if (!item)
        return err_set(err, -ENOMEM, "out of memory for %zu values to be saved", piece->n);
    *item = (struct saver_item){.piece = *piece, .room = piece->n};
    memcpy(item->values, values, piece->n * sizeof *values);
    return add_item(s, item, err);
}

void saver_end(struct saver *s)
{
    pthread_mutex_lock(&s->lock);
    s->filling->is_complete = true;
    s->filling = NULL;
    be_busy(has_complete(s));
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

void saver_drop(struct saver *s)
{
    pthread_mutex_lock(&s->lock);
    if (s->filling == waiting(s))
        unlink_save(s, s->filling);
    else
        s->filling->is_dropped = true;
    s->filling = NULL;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

int saver_wait(struct saver *s, unsigned seconds, struct err *err)
{
    const struct timespec until = in_seconds(seconds);
    int r = 0;
    pthread_mutex_lock(&s->lock);
    while (s->front && !r)
        r = pthread_cond_timedwait(&s->changed, &s->lock, &until);
    if (r)
        err_set(err, -ETIMEDOUT, "the state of step %llu was not on the disk within %u s",
                (unsigned long long)s->front->step, seconds);
    else if (s->result)
        *err = s->why;
    r = r ? -ETIMEDOUT : s->result;
    pthread_mutex_unlock(&s->lock);
    return r;
}
