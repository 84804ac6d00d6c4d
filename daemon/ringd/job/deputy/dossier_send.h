/* SPDX-License-Identifier: MIT
 *
 * A head's part of a job lies with one more node: its deputy, rank 1. While the job runs, the
 * deputy gets its record, its history and its inputs ("dossier-news", PROTOCOL.md §6), lines as
 * soon as they are in the store here, and can go on with the job if this node is lost for good.
 * Who may have a dossier is on the disk here before anything is sent: a head that is started again
 * asks all of them (recall.h). Loop thread. */
#ifndef DAEMON_DOSSIER_SEND_H
#define DAEMON_DOSSIER_SEND_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct aside;
struct dossier_send;
struct event_base;
struct file_set;
struct job;
struct job_log;
struct members;
struct store;

struct dossier_send_setup { /* the pointers are borrowed */
    struct event_base *base;
    const char *state_dir;
    struct aside *aside;
    const struct members *members;
    struct store *store;
    /* Takes the reference. Not 0: it was not sent. */
    int (*send)(void *owner, const uint8_t to[16], json_t *message);
    /* The job's deputies are others: its record is to be saved. */
    void (*changed)(void *owner, struct job *job);
    /* For the log of the job. */
    void (*note)(void *owner, struct job *job, const char *text);
    void *owner;
};
struct dossier_send *dossier_send_new(const struct dossier_send_setup *setup);
void dossier_send_free(struct dossier_send *d); /* before aside_free */

/* The job runs on its nodes: its deputy begins to get its dossier, or goes on. */
void dossier_send_begin(struct dossier_send *d, struct job *job);
/* The store got a record of a job, copied here; life NULL: the job has ended. Or a line. */
void dossier_send_record(struct dossier_send *d, uint64_t job, const char *record, const char *life);
void dossier_send_line(struct dossier_send *d, uint64_t job);
/* It has saved: its best so far, of --early-stop, may be another. */
void dossier_send_best(struct dossier_send *d, const struct job *job);
/* No dossier of that job is sent any more. */
void dossier_send_end(struct dossier_send *d, uint64_t job);

/* Messages and what else happens. */
void dossier_send_take_noted(struct dossier_send *d, const uint8_t from[16], const json_t *body);
void dossier_send_changed(struct dossier_send *d); /* nodes came or went */
/* What that node may fetch (parts.h): for the job of that number, or of its best so far. */
struct file_set *dossier_send_files(struct dossier_send *d, const uint8_t to[16], uint64_t number);

#endif
