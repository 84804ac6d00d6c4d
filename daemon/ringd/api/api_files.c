/* SPDX-License-Identifier: MIT
 *
 * Results that lie with the daemon: listed, and sent file by file. The job's record, which may be
 * on disk, says where. */
#include "daemon/ringd/api/api_files.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/ringd/api/api_jobs.h"
#include "daemon/ringd/api/api_reply.h"
#include "daemon/ringd/job/coord.h"
#include "daemon/ringd/http/http.h"
#include "daemon/ringd/job/job.h"
#include "daemon/ringd/api/api_impl.h"
#include "daemon/ringd/job/results.h"
#include "daemon/ringd/store/store.h"
#include "daemon/common/xalloc.h"

struct wanted_files {
    struct api *api;
    struct http_call *call;
    uint64_t id;
    char *name; /* owned; NULL = the list */
    bool is_part;
    uint64_t from; /* of a part: its first byte */
};

/* Another node passes a file on in such parts, and asks for the next when the client has one. */
enum { PART = 1 << 20 };

static void send_list(const struct wanted_files *w, const char *out, const char *folder)
{
    struct err err;
    json_t *files = results_list(folder, &err);
    if (files)
        api_reply(w->call, 200,
                  json_pack("{s:I s:s s:s s:o}", "id", (json_int_t)w->id, "adapter_out", out, "folder",
                            folder, "files", files));
    else
        http_fail(w->call, 404, "no-files", "job %" PRIu64 " has left no result here yet: %s", w->id,
                  err.text);
}

static void send_part(const struct wanted_files *w, int fd, uint64_t bytes)
{
    const uint64_t left = w->from < bytes ? bytes - w->from : 0;
    const size_t n = left < PART ? (size_t)left : PART;
    char *part = xmalloc(n + 1);
    const ssize_t got = pread(fd, part, n, (off_t)w->from);
    if (got < 0)
        http_fail(w->call, 500, "failed", "the file %s of job %" PRIu64 " cannot be read: %s", w->name, w->id,
                  strerror(errno));
    else
        http_reply(w->call, 200, "application/octet-stream", part, (size_t)got);
    free(part);
    close(fd);
}

static void send_file(const struct wanted_files *w, const char *folder)
{
    int fd;
    uint64_t bytes;
    int r = results_open(folder, w->name, &fd, &bytes);
    if (r)
        http_fail(w->call, 404, "no-files",
                  "the result of job %" PRIu64 " has no file %s that can be sent: %s", w->id, w->name,
                  strerror(-r));
    else if (w->is_part)
        send_part(w, fd, bytes);
    else
        http_reply_fd(w->call, "application/octet-stream", fd, bytes);
}

/* asked: what the job was asked for; NULL: there is no such job. */
static void send(const struct wanted_files *w, const struct job_spec *asked)
{
    const char *out = asked ? asked->adapter_out : NULL;
    char *folder = asked ? results_of(w->api->setup.state_dir, w->id, asked) : NULL;
    if (!asked)
        api_fail_unknown_job(w->api, w->call, w->id);
    else if (!out)
        http_fail(w->call, 404, "no-files", "job %" PRIu64 " does not train: it leaves no files", w->id);
    else if (!folder)
        http_fail(w->call, 404, "no-files",
                  "job %" PRIu64 " writes its result into %s itself: nothing is to be fetched", w->id, out);
    else if (w->name)
        send_file(w, folder);
    else
        send_list(w, out, folder);
    free(folder);
}

static void on_record(void *arg, const char *text)
{
    struct wanted_files *w = arg;
    json_t *record = text ? json_loads(text, 0, NULL) : NULL;
    const char *name = json_string_value(json_object_get(record, "type"));
    struct job_spec asked;
    enum job_type type;
    struct err err;
    const bool is_read = name && !job_type_read(&type, name, &err) &&
                         !job_spec_read(&asked, type, json_object_get(record, "spec"), &err);
    send(w, is_read ? &asked : NULL);
    json_decref(record);
    free(w->name);
    free(w);
}

static void get(struct api *api, struct http_call *call, bool is_list)
{
    /* The route matched: there is a word behind /v1/jobs/, and a name behind /files/ if one is
     * due. */
    const char *word = http_path(call) + sizeof "/v1/jobs/" - 1;
    char *end;
    uint64_t id = strtoull(word, &end, 10);
    if (*word < '0' || *word > '9' || *end != '/') {
        http_fail(call, 404, "no-such-job", "a job is named by its number");
        return;
    }
    const char *from = http_query(call, "from");
    struct wanted_files *w = xmalloc(sizeof *w);
    *w = (struct wanted_files){.api = api,
                               .call = call,
                               .id = id,
                               .name = is_list ? NULL : xstrdup(end + sizeof "/files/" - 1),
                               .is_part = from,
                               .from = from ? strtoull(from, NULL, 10) : 0};
    const struct job *job = coord_find(api->setup.coord, id);
    if (!job) {
        store_get_job(api->setup.store, id, on_record, w);
        return;
    }
    send(w, &job->asked);
    free(w->name);
    free(w);
}

void api_get_job_files(struct api *api, struct http_call *call)
{
    get(api, call, true);
}

void api_get_job_file(struct api *api, struct http_call *call)
{
    get(api, call, false);
}
