/* SPDX-License-Identifier: MIT
 *
 * Owns the libcurl handles of ringctl and the reader of server-sent events. Main thread. */
#include "daemon/ctl/ctl_client.h"
#include "daemon/common/text_clean.h"

#include <curl/curl.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "daemon/ctl/terminal/ctl_print.h"
#include "daemon/common/xalloc.h"

enum {
    CONNECT_MS = 5000,
    REQUEST_S = 60,   /* a daemon that takes longer for a plain answer is stuck */
    PROBE_MS = 2500,  /* without a byte: is the daemon alive? */
    SILENT_MS = 5000, /* without a byte and without a sign of life: it is not */
    EVENT_MAX = 64 << 20,
    FDS_MAX = 72,
};

struct text {
    char *data; /* owned, NUL-terminated once there is something */
    size_t n, room;
};

static void text_add(struct text *t, const char *data, size_t n)
{
    if (t->n + n + 1 > t->room) {
        t->room = 2 * (t->n + n) + 256;
        t->data = xrealloc(t->data, t->room);
    }
    memcpy(t->data + t->n, data, n);
    t->n += n;
    t->data[t->n] = '\0';
}

static CURL *new_handle(const struct ctl *ctl, const char *path)
{
    CURL *curl = curl_easy_init();
    if (!curl)
        return NULL;
    char *url = xasprintf("http://localhost%s", path);
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, ctl->socket);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_PROXY, "");
    free(url);
    return curl;
}

static int no_daemon(const struct ctl *ctl, const char *why)
{
    return ctl_complain(
        ctl, CTL_NO_DAEMON,
        "no ringd answers on %s: %s; start ringd, or name its socket with --socket or $RINGD_SOCKET "
        "(`ringctl local 1 status` needs none)",
        ctl->socket, why);
}

/* libcurl says no more than "could not connect"; errno knows. */
static const char *connect_reason(CURL *curl)
{
    long code = 0;
    curl_easy_getinfo(curl, CURLINFO_OS_ERRNO, &code);
    if (code == EACCES)
        return "you may not use this socket (are you in the group ringd?)";
    return code ? strerror((int)code) : "it does not accept connections";
}

/* A reply that is not 2xx, in its own words. */
static int refused(const struct ctl *ctl, long status, const char *body)
{
    json_t *json = body ? json_loads(body, 0, NULL) : NULL;
    const char *message = json_string_value(json_object_get(json_object_get(json, "error"), "message"));
    int rc = message ? ctl_complain(ctl, CTL_FAILED, "%s", message)
                     : ctl_complain(ctl, CTL_FAILED, "the daemon answered with HTTP status %ld and no reason",
                                    status);
    json_decref(json);
    return rc;
}

/* What a model writes goes to a file or a program as it is; all else is cleaned before it is
 * shown. */
static const char *kept_text(const char *member)
{
    return isatty(STDOUT_FILENO) ? NULL : member ? member : "text";
}

static size_t take_body(char *data, size_t size, size_t n, void *owner)
{
    text_add(owner, data, size * n);
    return size * n;
}

int64_t ctl_now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* --- requests --- */

static size_t drop_body(char *data, size_t size, size_t n, void *owner)
{
    (void)data;
    (void)owner;
    return size * n;
}

/* A question that a daemon whose loop goes on answers at once, whatever else it is busy with. */
static CURL *start_probe(const struct ctl *ctl, CURLM *multi)
{
    CURL *probe = new_handle(ctl, "/healthz");
    if (!probe)
        return NULL;
    curl_easy_setopt(probe, CURLOPT_WRITEFUNCTION, drop_body);
    curl_multi_add_handle(multi, probe);
    return probe;
}

static void end_probe(CURLM *multi, CURL **probe)
{
    if (*probe)
        curl_multi_remove_handle(multi, *probe);
    curl_easy_cleanup(*probe);
    *probe = NULL;
}

/* What has ended by now: the request (true), or the probe, whose answer is a sign of life. */
static bool take_ended(CURLM *multi, CURL *curl, CURL **probe, CURLcode *ret, int64_t *heard_ms)
{
    int queued;
    for (const CURLMsg *m; (m = curl_multi_info_read(multi, &queued));) {
        if (m->easy_handle == curl) {
            *ret = m->data.result;
            return true;
        }
        if (m->data.result == CURLE_OK)
            *heard_ms = ctl_now_ms();
        end_probe(multi, probe);
    }
    return false;
}

/* Until there is an answer. A daemon that is stopped or hangs still accepts connections, so one
 * that says nothing is asked for a sign of life; without it the wait ends with CURLE_AGAIN, which
 * stands for nothing else here. */
static CURLcode perform(const struct ctl *ctl, CURL *curl, const struct text *reply)
{
    CURLM *multi = curl_multi_init();
    CURL *probe = NULL;
    CURLcode code = CURLE_OUT_OF_MEMORY;
    int64_t heard_ms = ctl_now_ms();
    size_t n = 0;
    int running = 1;
    if (!multi || curl_multi_add_handle(multi, curl) != CURLM_OK) {
        curl_multi_cleanup(multi);
        return code;
    }
    for (;;) {
        if (curl_multi_perform(multi, &running) != CURLM_OK ||
            take_ended(multi, curl, &probe, &code, &heard_ms))
            break;
        if (reply->n != n)
            heard_ms = ctl_now_ms();
        n = reply->n;
        int64_t silent_ms = ctl_now_ms() - heard_ms;
        code = silent_ms >= SILENT_MS ? CURLE_AGAIN : code;
        if (code == CURLE_AGAIN)
            break;
        if (!probe && silent_ms >= PROBE_MS)
            probe = start_probe(ctl, multi);
        curl_multi_poll(multi, NULL, 0, (int)((silent_ms < PROBE_MS ? PROBE_MS : SILENT_MS) - silent_ms),
                        NULL);
    }
    end_probe(multi, &probe);
    curl_multi_remove_handle(multi, curl);
    curl_multi_cleanup(multi);
    return code;
}

static int settle(const struct ctl *ctl, CURL *curl, CURLcode code, const struct text *reply, json_t **ret)
{
    long status = 0;
    json_error_t where;
    if (code == CURLE_COULDNT_CONNECT)
        return no_daemon(ctl, connect_reason(curl));
    if (code == CURLE_AGAIN)
        return ctl_complain(
            ctl, CTL_NO_DAEMON,
            "ringd on %s accepted the connection and has not answered for %d s: it is stopped "
            "or hangs; see its log, and start it again",
            ctl->socket, SILENT_MS / 1000);
    if (code == CURLE_OPERATION_TIMEDOUT)
        return ctl_complain(ctl, CTL_NO_DAEMON, "ringd on %s does not answer: read its log", ctl->socket);
    if (code != CURLE_OK)
        return ctl_complain(ctl, CTL_NO_DAEMON, "ringd on %s went away without an answer: %s", ctl->socket,
                            curl_easy_strerror(code));
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    if (status < 200 || status > 299)
        return refused(ctl, status, reply->data);
    json_t *json = json_loads(reply->n ? reply->data : "{}", 0, &where);
    if (!json)
        return ctl_complain(ctl, CTL_FAILED,
                            "the daemon's answer is not JSON (%s): is it a ringd of another version?",
                            where.text);
    if (!ctl->json)
        text_clean_json(json, kept_text(NULL));
    *ret = json;
    return CTL_OK;
}

int ctl_request_within(const struct ctl *ctl, const char *method, const char *path, const json_t *body,
                       unsigned within_s, json_t **ret)
{
    CURL *curl = new_handle(ctl, path);
    if (!curl)
        return ctl_complain(ctl, CTL_FAILED, "no memory for a request");
    struct text reply = {0};
    char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    struct curl_slist *headers = curl_slist_append(NULL, "Content-Type: application/json");
    curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, method);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT, (long)within_s);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_body);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, &reply);
    if (text)
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, text);
    int rc = settle(ctl, curl, perform(ctl, curl, &reply), &reply, ret);
    curl_slist_free_all(headers);
    curl_easy_cleanup(curl);
    free(text);
    free(reply.data);
    return rc;
}

int ctl_request(const struct ctl *ctl, const char *method, const char *path, const json_t *body, json_t **ret)
{
    return ctl_request_within(ctl, method, path, body, REQUEST_S, ret);
}

int ctl_request_print(const struct ctl *ctl, const char *method, const char *path, json_t *body,
                      void (*print)(const json_t *answer))
{
    json_t *answer = NULL;
    int rc = ctl_request(ctl, method, path, body, &answer);
    json_decref(body);
    if (rc)
        return rc;
    if (ctl->json)
        print_json(answer);
    else
        print(answer);
    json_decref(answer);
    return CTL_OK;
}

int ctl_request_job(const struct ctl *ctl, const char *method, const char *suffix, const char **ret_name,
                    json_t **ret)
{
    char path[CTL_JOB_PATH];
    int rc = ctl_job_arg(ctl, ret_name);
    if (rc)
        return rc;
    snprintf(path, sizeof path, "/v1/jobs/%s%s", *ret_name, suffix);
    return ctl_request(ctl, method, path, NULL, ret);
}

/* --- files --- */

struct download {
    CURL *curl; /* borrowed */
    int fd, error;
    uint64_t bytes;
    struct text refusal; /* the body of an answer that is not 200 */
};

/* The body of an answer that is not 200 is kept, to be said. */
static bool is_refusal(CURL *curl, struct text *refusal, const char *data, size_t n)
{
    long status = 0;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    if (status != 200)
        text_add(refusal, data, n);
    return status != 200;
}

static size_t take_file(char *data, size_t size, size_t n, void *owner)
{
    struct download *d = owner;
    size_t total = size * n;
    if (is_refusal(d->curl, &d->refusal, data, total))
        return total;
    for (size_t at = 0; at < total;) {
        ssize_t wrote = write(d->fd, data + at, total - at);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote < 0) {
            d->error = errno;
            return CURL_WRITEFUNC_ERROR;
        }
        at += (size_t)wrote;
    }
    d->bytes += total;
    return total;
}

int ctl_download(const struct ctl *ctl, const char *path, int fd, uint64_t *ret_bytes)
{
    CURL *curl = new_handle(ctl, path);
    if (!curl)
        return ctl_complain(ctl, CTL_FAILED, "no memory for a request");
    struct download d = {.curl = curl, .fd = fd};
    long status = 0;
    int rc = CTL_OK;
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_file);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, &d);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, (long)REQUEST_S);
    CURLcode code = curl_easy_perform(curl);
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    if (d.error)
        rc = ctl_complain(ctl, CTL_FAILED, "it cannot be written: %s", strerror(d.error));
    else if (code == CURLE_COULDNT_CONNECT)
        rc = no_daemon(ctl, connect_reason(curl));
    else if (code != CURLE_OK)
        rc = ctl_complain(ctl, CTL_NO_DAEMON, "ringd on %s stopped in the middle of a file: %s", ctl->socket,
                          curl_easy_strerror(code));
    else if (status != 200)
        rc = refused(ctl, status, d.refusal.data);
    curl_easy_cleanup(curl);
    free(d.refusal.data);
    *ret_bytes = d.bytes;
    return rc;
}

/* --- event streams --- */

struct reader {
    CURL *curl; /* borrowed */
    struct ctl_stream *stream;
    struct text line, data;
    char type[32];
    uint64_t id;
    bool has_id, stopped;
    struct text refusal; /* the body of an answer that is not 200 */
    bool is_raw;         /* texts are passed on as they came: what prints them is JSON */
};

static void end_event(struct reader *r)
{
    if (r->has_id)
        r->stream->last_id = r->id;
    if (r->data.n) {
        json_t *json = json_loads(r->data.data, JSON_DECODE_ANY, NULL);
        if (!r->is_raw)
            text_clean_json(json, strcmp(r->type, "log") != 0 ? kept_text(r->stream->kept) : NULL);
        r->stopped = !r->stream->event(r->stream->owner, r->type, json);
        json_decref(json);
    }
    r->data.n = 0;
    r->type[0] = '\0';
    r->has_id = false;
}

static void take_line(struct reader *r)
{
    const char *line = r->line.data;
    if (!r->line.n)
        end_event(r);
    else if (!strncmp(line, "data: ", 6))
        text_add(&r->data, line + 6, strlen(line + 6));
    else if (!strncmp(line, "event: ", 7))
        snprintf(r->type, sizeof r->type, "%s", line + 7);
    else if (!strncmp(line, "id: ", 4)) {
        r->id = strtoull(line + 4, NULL, 10);
        r->has_id = true;
    }
}

static size_t take_stream(char *data, size_t size, size_t n, void *owner)
{
    struct reader *r = owner;
    size_t total = size * n;
    if (is_refusal(r->curl, &r->refusal, data, total))
        return total;
    for (size_t at = 0; at < total && !r->stopped;) {
        const char *eol = memchr(data + at, '\n', total - at);
        size_t len = eol ? (size_t)(eol - data) - at : total - at;
        if (r->line.n + len > EVENT_MAX || r->data.n > EVENT_MAX)
            return CURL_WRITEFUNC_ERROR;
        text_add(&r->line, data + at, len);
        at += len;
        if (eol) {
            take_line(r);
            r->line.n = 0;
            at++;
        }
    }
    return r->stopped ? CURL_WRITEFUNC_ERROR : total;
}

/* n: how many were waited for; a callback may change how many there are. */
static void look_at_fds(struct reader *r, const struct curl_waitfd *waits, int n)
{
    for (int i = 0; i < n && i < r->stream->n_fds && !r->stopped; i++) {
        if (waits[i].revents)
            r->stopped = !r->stream->readable(r->stream->owner, i);
    }
}

/* Until the transfer is over or somebody has had enough. */
static CURLcode pump(CURLM *multi, struct reader *r)
{
    struct ctl_stream *s = r->stream;
    struct curl_waitfd waits[FDS_MAX];
    int64_t deadline = s->deadline_ms ? ctl_now_ms() + s->deadline_ms : INT64_MAX;
    int running = 1, queued;
    while (!r->stopped) {
        if (curl_multi_perform(multi, &running) != CURLM_OK || !running)
            break;
        int64_t left = deadline - ctl_now_ms();
        if (left <= 0) {
            s->is_late = true;
            return CURLE_OK;
        }
        int n_fds = s->n_fds;
        for (int i = 0; i < n_fds; i++)
            waits[i] = (struct curl_waitfd){.fd = s->fds[i], .events = CURL_WAIT_POLLIN};
        curl_multi_poll(multi, waits, (unsigned)n_fds, left > 60000 ? 60000 : (int)left, NULL);
        look_at_fds(r, waits, n_fds);
    }
    const CURLMsg *message = curl_multi_info_read(multi, &queued);
    return message && !r->stopped ? message->data.result : CURLE_OK;
}

static int judge(const struct ctl *ctl, struct reader *r, CURLcode code, bool quiet)
{
    long status = 0;
    curl_easy_getinfo(r->curl, CURLINFO_RESPONSE_CODE, &status);
    if (r->stopped || r->stream->is_late)
        return CTL_OK;
    if (code == CURLE_OK && status != 200)
        return refused(ctl, status, r->refusal.data);
    if (code == CURLE_OK)
        return CTL_OK;
    if (quiet)
        return CTL_NO_DAEMON;
    if (code == CURLE_COULDNT_CONNECT)
        return no_daemon(ctl, connect_reason(r->curl));
    return ctl_fail(CTL_NO_DAEMON, "ringd on %s went away: %s", ctl->socket, curl_easy_strerror(code));
}

int ctl_follow(const struct ctl *ctl, const char *path, struct ctl_stream *stream, bool quiet)
{
    char last_id[64];
    CURL *curl = new_handle(ctl, path);
    CURLM *multi = curl_multi_init();
    struct reader r = {.curl = curl, .stream = stream, .is_raw = ctl->json};
    struct curl_slist *headers = curl_slist_append(NULL, "Accept: text/event-stream");
    if (!curl || !multi || stream->n_fds > FDS_MAX)
        abort();
    if (stream->last_id) {
        snprintf(last_id, sizeof last_id, "Last-Event-ID: %" PRIu64, stream->last_id);
        headers = curl_slist_append(headers, last_id);
    }
    char *body = stream->body ? json_dumps(stream->body, JSON_COMPACT) : NULL;
    if (body) {
        headers = curl_slist_append(headers, "Content-Type: application/json");
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body);
    }
    stream->is_late = false;
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_stream);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, &r);
    curl_multi_add_handle(multi, curl);
    CURLcode code = pump(multi, &r);
    int rc = judge(ctl, &r, code, quiet);
    curl_multi_remove_handle(multi, curl);
    curl_easy_cleanup(curl);
    curl_multi_cleanup(multi);
    curl_slist_free_all(headers);
    free(body);
    free(r.line.data);
    free(r.data.data);
    free(r.refusal.data);
    return rc;
}
