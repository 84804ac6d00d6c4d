/* SPDX-License-Identifier: MIT
 *
 * ringctl's side of the HTTP API: requests and event streams over the daemon's Unix socket. Every
 * function returns an exit status, and has said why when it is not CTL_OK. */
#ifndef DAEMON_CTL_CLIENT_H
#define DAEMON_CTL_CLIENT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/ctl/ctl.h"

/* body may be NULL. ret: what came back, owned by the caller. */
int ctl_request(const struct ctl *ctl, const char *method, const char *path, const json_t *body,
                json_t **ret);
/* The same, for an answer that takes the daemon longer to find. */
int ctl_request_within(const struct ctl *ctl, const char *method, const char *path, const json_t *body,
                       unsigned within_s, json_t **ret);
/* The same, and the answer printed: as JSON if that is wanted, else with `print`. Takes over
 * body. */
int ctl_request_print(const struct ctl *ctl, const char *method, const char *path, json_t *body,
                      void (*print)(const json_t *answer));

/* The same, of the job that is the only argument (ctl_job_arg): `suffix` follows its path.
 * ret_name: borrowed from the arguments. */
int ctl_request_job(const struct ctl *ctl, const char *method, const char *suffix, const char **ret_name,
                    json_t **ret);

/* A file of the API into `fd`, from where that stands. ret_bytes: how many came. */
int ctl_download(const struct ctl *ctl, const char *path, int fd, uint64_t *ret_bytes);

struct ctl_stream {
    const json_t *body; /* borrowed: what is posted; NULL: nothing is */
    const char *kept;   /* the member that has what a model wrote; NULL: "text" */
    /* One event; false ends the stream. data is NULL where it is not JSON. */
    bool (*event)(void *owner, const char *type, const json_t *data);
    /* One of `fds` can be read; false ends the stream. */
    bool (*readable)(void *owner, int index);
    void *owner;
    const int *fds; /* borrowed */
    int n_fds;
    unsigned deadline_ms; /* for the stream as a whole, 0 = none */
    uint64_t last_id;     /* in: go on after it; out: of the last event */
    bool is_late;         /* out: the deadline ended it */
};
/* CTL_OK when the stream ended in order, by a callback or by the deadline. CTL_NO_DAEMON when the
 * daemon went away; nothing is printed in that one case if `quiet`, for callers who look again. */
int ctl_follow(const struct ctl *ctl, const char *path, struct ctl_stream *stream, bool quiet);

/* What waits are measured with: a clock that nobody sets. */
int64_t ctl_now_ms(void);

#endif
