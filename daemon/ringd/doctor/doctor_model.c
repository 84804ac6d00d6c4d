/* SPDX-License-Identifier: MIT
 *
 * Owns the reading thread, detached: whoever of thread and loop comes last frees what they share.
 * Loop thread, but for read_model and what is under the lock. */
#include "daemon/ringd/doctor/doctor_model.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ringd/mailbox.h"
#include "daemon/common/model_facts.h"
#include "daemon/common/xalloc.h"

struct model_reading {
    pthread_mutex_t lock;
    bool abandoned, posted; /* under lock */
    struct doctor_model *m; /* borrowed; not by the thread */
    struct mailbox *mailbox;
    char *dir;     /* owned */
    json_t *model; /* owned: what was found */
};

struct doctor_model {
    struct mailbox *mailbox; /* borrowed */
    void (*done)(void *owner, const json_t *model);
    void *owner;
    struct model_reading *now; /* NULL: idle */
};

static void reading_free(struct model_reading *r)
{
    pthread_mutex_destroy(&r->lock);
    json_decref(r->model);
    free(r->dir);
    free(r);
}

static void on_read(void *arg)
{
    struct model_reading *r = arg;
    struct doctor_model *m = r->m;
    json_t *model = json_incref(r->model);
    m->now = NULL;
    pthread_mutex_lock(&r->lock); /* the thread has let go of it */
    pthread_mutex_unlock(&r->lock);
    reading_free(r);
    m->done(m->owner, model);
    json_decref(model);
}

static void *read_model(void *arg)
{
    struct model_reading *r = arg;
    r->model = model_facts(r->dir, NULL);
    pthread_mutex_lock(&r->lock);
    bool abandoned = r->abandoned;
    if (!abandoned) {
        r->posted = true;
        mailbox_post(r->mailbox, on_read, r);
    }
    pthread_mutex_unlock(&r->lock);
    if (abandoned)
        reading_free(r);
    return NULL;
}

int doctor_model_read(struct doctor_model *m, const char *dir)
{
    pthread_t thread;
    if (m->now)
        return strcmp(m->now->dir, dir) ? -EBUSY : 0;
    struct model_reading *r = xcalloc(1, sizeof *r);
    pthread_mutex_init(&r->lock, NULL);
    r->m = m;
    r->mailbox = m->mailbox;
    r->dir = xstrdup(dir);
    int error = pthread_create(&thread, NULL, read_model, r);
    if (error) {
        reading_free(r);
        return -error;
    }
    pthread_detach(thread);
    m->now = r;
    return 0;
}

struct doctor_model *doctor_model_new(struct mailbox *mailbox, void (*done)(void *owner, const json_t *model),
                                      void *owner)
{
    struct doctor_model *m = xcalloc(1, sizeof *m);
    *m = (struct doctor_model){.mailbox = mailbox, .done = done, .owner = owner};
    return m;
}

void doctor_model_free(struct doctor_model *m)
{
    struct model_reading *r = m ? m->now : NULL;
    if (r) {
        pthread_mutex_lock(&r->lock);
        r->abandoned = true;
        bool posted = r->posted;
        pthread_mutex_unlock(&r->lock);
        if (posted) {
            mailbox_forget(m->mailbox, r);
            reading_free(r);
        }
    }
    free(m);
}
