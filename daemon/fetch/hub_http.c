/* SPDX-License-Identifier: MIT
 *
 * Owns the connections, libcurl's. The only file of ringd-fetch that waits for the network. */
#include "daemon/fetch/hub_http.h"

#include <curl/curl.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/xalloc.h"

enum {
    CONNECT_S = 15,
    STALL_S = 30,   /* a connection over which nothing comes for so long is given up */
    HOPS_MAX = 6,   /* redirects of one request */
    POLL_MS = 1000, /* libcurl knows its own deadlines; this bounds the wait for them */
    FIRST_WAIT_MS = 500,
    LAST_WAIT_MS = 30000,
};
/* A hub that has answered before is waited for. One that never has is out of reach or misspelt, and
 * somebody waits for that sentence. */
#define PATIENCE_US (UINT64_C(300) * 1000000)
#define FIRST_PATIENCE_US (UINT64_C(15) * 1000000)

struct hub {
    struct hub_setup setup;
    char *endpoint, *token;    /* owned; without a slash at its end */
    CURLM *multi;              /* owned */
    CURL *easy;                /* owned */
    struct curl_slist *bearer; /* owned; NULL: there is no token, or it must not travel in the clear */
    bool has_answered;         /* with whatever status */
    struct instant ticked;
};

/* One answer. */
struct hub_answer {
    const struct hub_request *q;
    struct hub_headers *headers;
    bool has_begun, is_refused, is_flooded;
};

/* --- places ----------------------------------------------------------------------------------- */

static char *part_of(const char *url, CURLUPart part)
{
    CURLU *u = curl_url();
    char *text = NULL;
    if (u && !curl_url_set(u, CURLUPART_URL, url, 0))
        curl_url_get(u, part, &text, part == CURLUPART_PORT ? CURLU_DEFAULT_PORT : 0);
    curl_url_cleanup(u);
    return text;
}

static bool same_part(const char *a, const char *b, CURLUPart part)
{
    char *x = part_of(a, part), *y = part_of(b, part);
    const bool same = x && y && !strcmp(x, y);
    curl_free(x);
    curl_free(y);
    return same;
}

static bool is_same_host(const char *a, const char *b)
{
    return same_part(a, b, CURLUPART_SCHEME) && same_part(a, b, CURLUPART_HOST) &&
           same_part(a, b, CURLUPART_PORT);
}

static bool is_secret(const char *url)
{
    char *scheme = part_of(url, CURLUPART_SCHEME), *host = part_of(url, CURLUPART_HOST);
    const bool is = scheme && host &&
                    (!strcmp(scheme, "https") || !strcmp(host, "127.0.0.1") || !strcmp(host, "[::1]") ||
                     !strcmp(host, "localhost"));
    curl_free(scheme);
    curl_free(host);
    return is;
}

/* Where `location` leads from `url`; NULL: nowhere, or to less than TLS. The caller frees it with
 * curl_free. */
static char *next_url(const char *url, const char *location)
{
    CURLU *u = curl_url();
    char *next = NULL;
    if (u && *location && !curl_url_set(u, CURLUPART_URL, url, 0) &&
        !curl_url_set(u, CURLUPART_URL, location, 0))
        curl_url_get(u, CURLUPART_URL, &next, 0);
    curl_url_cleanup(u);
    if (next && !strncmp(url, "https:", 6) && strncmp(next, "https:", 6) != 0) {
        curl_free(next);
        next = NULL;
    }
    return next;
}

/* --- one answer ------------------------------------------------------------------------------- */

static size_t on_header(char *line, size_t one, size_t n, void *arg)
{
    struct hub_answer *a = arg;
    if (hub_headers_take(a->headers, line, one * n))
        return one * n;
    a->is_flooded = true;
    return 0;
}

static bool is_success(const struct hub_headers *h)
{
    return h->status == 200 || h->status == 206;
}

static size_t on_body(char *bytes, size_t one, size_t n, void *arg)
{
    struct hub_answer *a = arg;
    if (!is_success(a->headers))
        return one * n; /* its headers have said it */
    if (!a->has_begun && a->q->begin && !a->q->begin(a->q->owner, a->headers))
        a->is_refused = true;
    a->has_begun = true;
    if (!a->is_refused && !a->q->take(a->q->owner, bytes, one * n))
        a->is_refused = true;
    return a->is_refused ? 0 : one * n;
}

static void prepare(const struct hub *h, const char *url, struct hub_answer *a, char why[CURL_ERROR_SIZE])
{
    CURL *c = h->easy;
    char range[64], end[24] = "";
    curl_easy_reset(c);
    curl_easy_setopt(c, CURLOPT_URL, url);
    curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c, CURLOPT_USERAGENT, "ringd/" RINGD_VERSION);
    curl_easy_setopt(c, CURLOPT_NOBODY, a->q->is_head ? 1L : 0L);
    curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_S);
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_TIME, (long)STALL_S);
    if (a->q->is_head)
        curl_easy_setopt(c, CURLOPT_TIMEOUT, (long)STALL_S);
    curl_easy_setopt(c, CURLOPT_BUFFERSIZE, 256L << 10);
    curl_easy_setopt(c, CURLOPT_ERRORBUFFER, why);
    curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(c, CURLOPT_HEADERDATA, a);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, a);
    if (getenv("SSL_CERT_FILE"))
        curl_easy_setopt(c, CURLOPT_CAINFO, getenv("SSL_CERT_FILE"));
    if (a->q->to)
        snprintf(end, sizeof end, "%" PRIu64, a->q->to - 1);
    if (a->q->from || a->q->to) { /* libcurl's own way to resume refuses hosts that send the whole file */
        snprintf(range, sizeof range, "%" PRIu64 "-%s", a->q->from, end);
        curl_easy_setopt(c, CURLOPT_RANGE, range);
    }
    if (h->bearer && is_same_host(url, h->endpoint))
        curl_easy_setopt(c, CURLOPT_HTTPHEADER, h->bearer);
}

/* True: ringd has said stop, or has ended, or nobody wants it any more. */
static bool is_let_go(struct hub *h)
{
    struct pollfd fd = {.fd = h->setup.watch, .events = POLLIN};
    const struct instant now = clock_now();
    if (h->setup.watch >= 0 && poll(&fd, 1, 0) > 0)
        return true;
    if (!h->setup.tick || clock_since_us(now, h->ticked) < POLL_MS * UINT64_C(1000))
        return false;
    h->ticked = now;
    return !h->setup.tick(h->setup.owner);
}

/* −ECANCELED, or libcurl's code. */
static int run(struct hub *h)
{
    struct curl_waitfd watch = {.fd = h->setup.watch, .events = CURL_WAIT_POLLIN};
    int running = 1, left, code = CURLE_OK;
    bool is_over = false;
    if (curl_multi_add_handle(h->multi, h->easy))
        return CURLE_OUT_OF_MEMORY;
    while (!is_over && !curl_multi_perform(h->multi, &running) && running) {
        curl_multi_poll(h->multi, &watch, h->setup.watch >= 0, POLL_MS, NULL);
        is_over = is_let_go(h);
    }
    for (CURLMsg *m; (m = curl_multi_info_read(h->multi, &left));)
        if (m->msg == CURLMSG_DONE)
            code = (int)m->data.result;
    curl_multi_remove_handle(h->multi, h->easy);
    return is_over ? -ECANCELED : code;
}

static int ask_once(struct hub *h, const char *url, const struct hub_request *q, struct hub_headers *ret,
                    struct err *err)
{
    char why[CURL_ERROR_SIZE] = "";
    struct hub_answer a = {.q = q, .headers = ret};
    *ret = (struct hub_headers){.status = 0};
    prepare(h, url, &a, why);
    const int code = run(h);
    if (code < 0 || a.is_refused)
        return -ECANCELED;
    if (a.is_flooded)
        return err_set(err, -EPROTO, "the hub sends headers without end");
    if (code == CURLE_OK)
        return 0;
    char *host = part_of(url, CURLUPART_HOST);
    const int r =
        err_set(err, code == CURLE_OPERATION_TIMEDOUT ? -ETIMEDOUT : -EIO, "%s %s: %s",
                host ? host : "the hub", ret->status ? "broke off in the middle" : "cannot be reached",
                *why ? why : curl_easy_strerror((CURLcode)code));
    curl_free(host);
    return r;
}

static bool is_redirect(unsigned status)
{
    return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

int hub_ask(struct hub *h, const struct hub_request *q, struct hub_headers *ret, struct err *err)
{
    char *url = xasprintf("%s%s", h->endpoint, q->path);
    int r = 0;
    for (int hops = 0;; hops++) {
        r = ask_once(h, url, q, ret, err);
        h->has_answered |= !r;
        ret->is_elsewhere = !is_same_host(url, h->endpoint);
        if (r || !is_redirect(ret->status))
            break;
        char *next = next_url(url, ret->location);
        if (!next || hops == HOPS_MAX) {
            curl_free(next);
            r = err_set(err, -EPROTO,
                        next ? "the hub sends from one place to the next without end"
                             : "the hub sends to a place that is none, or that is less safe");
            break;
        }
        const bool stays = is_same_host(next, h->endpoint);
        free(url);
        url = xstrdup(next);
        curl_free(next);
        if (q->is_head && !stays)
            break;
    }
    free(url);
    return r;
}

/* --- tries ------------------------------------------------------------------------------------ */

void hub_patience_begin(struct hub_patience *p)
{
    *p = (struct hub_patience){.since = clock_now()};
}

bool hub_is_passing(int r, const struct hub_headers *headers)
{
    const unsigned s = headers->status;
    return r ? r == -EIO || r == -ETIMEDOUT
             : s == 408 || s == 425 || s == 429 || s == 500 || s == 502 || s == 503 || s == 504;
}

int hub_wait(struct hub *h, struct hub_patience *p, const struct hub_headers *headers)
{
    const uint64_t gone = clock_since_us(clock_now(), p->since);
    uint64_t ms = (uint64_t)FIRST_WAIT_MS << (p->tries < 6 ? p->tries : 6);
    p->tries++;
    if (ms > LAST_WAIT_MS)
        ms = LAST_WAIT_MS;
    if (headers->retry_after_s)
        ms = headers->retry_after_s * UINT64_C(1000);
    if (gone + ms * 1000 > (h->has_answered ? PATIENCE_US : FIRST_PATIENCE_US))
        return -ETIMEDOUT;
    const struct instant until = {clock_now().us + ms * 1000};
    for (struct instant now = clock_now(); now.us < until.us; now = clock_now()) {
        struct pollfd fd = {.fd = h->setup.watch, .events = POLLIN};
        const uint64_t left = (until.us - now.us) / 1000 + 1, most = h->setup.tick ? POLL_MS : left;
        if (poll(&fd, h->setup.watch >= 0, (int)(left < most ? left : most)) > 0 || is_let_go(h))
            return -ECANCELED;
    }
    return 0;
}

int hub_refusal(const struct hub *h, const struct hub_headers *headers, const char *what, struct err *err)
{
    const char *said = headers->message;
    const unsigned s = headers->status;
    if (s == 401 && !h->token)
        return err_set(
            err, -EACCES,
            "%s: the hub lets nobody see it without a token, or does not have it%s%s: give ringd a "
            "token (HF_TOKEN), and look whether the name is right",
            what, *said ? ": " : "", said);
    if (s == 401 || s == 403)
        return err_set(err, -EACCES, "%s: the hub refuses it%s%s%s", what, *said ? ": " : "", said,
                       strcmp(headers->code, "GatedRepo") ? "" : ": ask for access on its page first");
    if (s == 404)
        return err_set(err, -ENOENT, "%s: the hub does not have it%s%s", what, *said ? ": " : "", said);
    if (s == 429 || s == 503)
        return err_set(err, -EBUSY, "%s: the hub is asked too often and answers %u%s%s: try again later",
                       what, s, *said ? ": " : "", said);
    return err_set(err, -EPROTO, "%s: the hub answers %u%s%s", what, s, *said ? ": " : "", said);
}

struct text_sink {
    struct hub_text *to;
    size_t most;
    bool is_too_long;
};

static bool take_text(void *owner, const void *bytes, size_t n)
{
    struct text_sink *s = owner;
    if (s->to->n + n > s->most) {
        s->is_too_long = true;
        return false;
    }
    s->to->bytes = xrealloc(s->to->bytes, s->to->n + n + 1);
    memcpy(s->to->bytes + s->to->n, bytes, n);
    s->to->n += n;
    s->to->bytes[s->to->n] = '\0';
    return true;
}

int hub_get_text(struct hub *h, const char *path, size_t most, const char *what, struct hub_text *ret,
                 struct err *err)
{
    struct hub_headers headers;
    struct hub_patience patience;
    hub_patience_begin(&patience);
    for (;;) {
        struct text_sink sink = {.to = ret, .most = most};
        *ret = (struct hub_text){.bytes = xstrdup("")};
        int r =
            hub_ask(h, &(struct hub_request){.path = path, .take = take_text, .owner = &sink}, &headers, err);
        if (!r && is_success(&headers))
            return 0;
        if (sink.is_too_long)
            r = err_set(err, -E2BIG, "%s: the hub's answer has more than %zu MiB", what, most >> 20);
        const bool again = hub_is_passing(r, &headers);
        if (!r)
            r = hub_refusal(h, &headers, what, err);
        free(ret->bytes);
        *ret = (struct hub_text){.n = 0};
        const int waited = again ? hub_wait(h, &patience, &headers) : -ETIMEDOUT;
        if (waited)
            return waited == -ECANCELED ? waited : r;
    }
}

/* --- start and end ---------------------------------------------------------------------------- */

int hub_open(struct hub **ret, const struct hub_setup *setup, struct err *err)
{
    char *host = part_of(setup->endpoint, CURLUPART_HOST),
         *scheme = part_of(setup->endpoint, CURLUPART_SCHEME);
    const bool is_place = host && scheme && (!strcmp(scheme, "https") || !strcmp(scheme, "http"));
    curl_free(host);
    curl_free(scheme);
    if (!is_place)
        return err_set(err, -EINVAL, "HF_ENDPOINT \"%s\" is no address of a hub, as https://huggingface.co",
                       setup->endpoint);
    struct hub *h = xcalloc(1, sizeof *h);
    h->setup = *setup;
    h->endpoint = xstrdup(setup->endpoint);
    for (size_t n = strlen(h->endpoint); n && h->endpoint[n - 1] == '/';)
        h->endpoint[--n] = '\0';
    h->token = setup->token && *setup->token ? xstrdup(setup->token) : NULL;
    h->multi = curl_multi_init();
    h->easy = curl_easy_init();
    if (h->token && is_secret(h->endpoint)) {
        char *line = xasprintf("Authorization: Bearer %s", h->token);
        h->bearer = curl_slist_append(NULL, line);
        explicit_bzero(line, strlen(line));
        free(line);
    }
    if (!h->multi || !h->easy || (h->token && is_secret(h->endpoint) && !h->bearer)) {
        hub_close(h);
        return err_set(err, -ENOMEM, "out of memory");
    }
    *ret = h;
    return 0;
}

void hub_close(struct hub *h)
{
    if (!h)
        return;
    curl_easy_cleanup(h->easy);
    curl_multi_cleanup(h->multi);
    curl_slist_free_all(h->bearer);
    free(h->endpoint);
    free(h->token);
    free(h);
}
