/* SPDX-License-Identifier: MIT
 *
 * What clients of a server see that speaks OpenAI's API: so many streams of completions at once.
 * For bench_serve.sh, and for other servers beside ours. Says in one line: tokens a second, from
 * the first token of the last stream to begin until the first stream ends; the time to the first
 * token of the last request, in ms; and the gaps between tokens of one stream, median, 95th and
 * 99th percentile, in ms. With a late request all of it is about the time until its first token.
 * usage: bench_serve BASE MODEL [KEY=NUMBER …]; BASE is a socket's path or http://ADDRESS. Keys:
 * streams, tokens, prompt (tokens of each), same=1 (all prompts are alike), seed, bias (a token
 * that is always chosen), top_k (of so many tokens one is chosen), late (once all streams run, one
 * more request with a prompt of so many tokens) */
#include <curl/curl.h>
#include <math.h>
#include <stdbool.h>

#include "tests/bench/bench.h"

enum { STREAMS_MAX = 64, TOKENS_MAX = 4096, LINE_MAX_BYTES = 1 << 16 };

struct stream {
    CURL *curl;
    char *body, line[LINE_MAX_BYTES];
    size_t n_line, n; /* n: tokens so far */
    double asked, at[TOKENS_MAX];
    bool is_over;
};

struct load {
    const char *base, *model;
    size_t streams, tokens, prompt, late;
    bool is_same;
    int seed, bias, top_k;
    struct stream *all; /* [streams + 1]: the last one is the late one */
    CURLM *multi;
};

static void die(const char *what, const char *why)
{
    fprintf(stderr, "bench_serve: %s: %s\n", what, why);
    exit(1);
}

/* --- what comes ------------------------------------------------------------------------------- */

static void take_line(struct stream *s)
{
    s->line[s->n_line] = '\0';
    if (strstr(s->line, "\"error\""))
        die("the server says", s->line);
    /* A token whose text waits for its character's other bytes has an event as well. */
    if (!strncmp(s->line, "data: {", 7) && strstr(s->line, "\"choices\":[{") && strstr(s->line, "\"text\"") &&
        s->n < TOKENS_MAX)
        s->at[s->n++] = bench_now();
    s->n_line = 0;
}

static size_t take(char *data, size_t size, size_t n, void *owner)
{
    struct stream *s = owner;
    for (size_t i = 0; i < size * n; i++) {
        if (data[i] == '\n')
            take_line(s);
        else if (s->n_line + 1 < LINE_MAX_BYTES)
            s->line[s->n_line++] = data[i];
    }
    return size * n;
}

/* --- what is asked ---------------------------------------------------------------------------- */

static char *body_of(const struct load *l, size_t i, size_t prompt, size_t tokens)
{
    const size_t room = 512 + 8 * prompt;
    char *body = bench_alloc(room), *at = body;
    at += sprintf(at, "{\"model\":\"%s\",\"stream\":true,\"max_tokens\":%zu,\"temperature\":%s,\"seed\":%d,",
                  l->model, tokens, l->bias ? "0" : "1", l->seed + (int)i);
    at +=
        sprintf(at, "%s\"logit_bias\":{\"%d\":%d},\"prompt\":[",
                l->base[0] == '/' ? "" : "\"ignore_eos\":true,", l->bias ? l->bias : 2, l->bias ? 100 : -100);
    unsigned x = (unsigned)(l->seed * 7919) + (l->is_same ? 0 : (unsigned)i * 104729);
    for (size_t k = 0; k < prompt; k++) {
        x = x * 1664525 + 1013904223;
        at += sprintf(at, "%s%u", k ? "," : "", 300 + (x >> 16) % 20000);
    }
    at += sprintf(at, "]");
    if (l->top_k)
        at += sprintf(at, ",\"top_k\":%d", l->top_k);
    sprintf(at, "}");
    return body;
}

static void ask(struct load *l, struct stream *s, char *body)
{
    char url[512];
    const bool is_socket = l->base[0] == '/';
    s->curl = curl_easy_init();
    s->body = body;
    if (!s->curl)
        die("libcurl", "no memory");
    snprintf(url, sizeof url, "%s/v1/completions", is_socket ? "http://localhost" : l->base);
    if (is_socket)
        curl_easy_setopt(s->curl, CURLOPT_UNIX_SOCKET_PATH, l->base);
    curl_easy_setopt(s->curl, CURLOPT_URL, url);
    curl_easy_setopt(s->curl, CURLOPT_POSTFIELDS, s->body);
    curl_easy_setopt(s->curl, CURLOPT_HTTPHEADER, curl_slist_append(NULL, "Content-Type: application/json"));
    curl_easy_setopt(s->curl, CURLOPT_WRITEFUNCTION, take);
    curl_easy_setopt(s->curl, CURLOPT_WRITEDATA, s);
    curl_easy_setopt(s->curl, CURLOPT_TIMEOUT, 300L);
    s->asked = bench_now();
    curl_multi_add_handle(l->multi, s->curl);
}

static void take_ended(struct load *l)
{
    int queued;
    for (const CURLMsg *m; (m = curl_multi_info_read(l->multi, &queued));) {
        long status = 0;
        curl_easy_getinfo(m->easy_handle, CURLINFO_RESPONSE_CODE, &status);
        if (m->data.result != CURLE_OK || status != 200)
            die("a request", m->data.result ? curl_easy_strerror(m->data.result) : "it was refused");
        for (size_t i = 0; i <= l->streams; i++)
            if (l->all[i].curl == m->easy_handle)
                l->all[i].is_over = true;
    }
}

/* Every stream has a quarter of its tokens. */
static bool all_run(const struct load *l)
{
    for (size_t i = 0; i < l->streams; i++)
        if (l->all[i].n < l->tokens / 4)
            return false;
    return true;
}

static void run(struct load *l)
{
    int running = 1;
    struct stream *late = &l->all[l->streams];
    for (size_t i = 0; i < l->streams; i++)
        ask(l, &l->all[i], body_of(l, i, l->prompt, l->tokens));
    while (running) {
        if (curl_multi_perform(l->multi, &running) != CURLM_OK)
            die("libcurl", "it failed");
        take_ended(l);
        if (l->late && !late->curl && all_run(l)) {
            ask(l, late, body_of(l, l->streams, l->late, 2));
            running = 1;
            continue;
        }
        curl_multi_poll(l->multi, NULL, 0, 1000, NULL);
    }
}

/* --- what it comes to ------------------------------------------------------------------------- */

static double share_of(double *x, size_t n, double share)
{
    qsort(x, n, sizeof *x, bench_ascending);
    return n ? x[(size_t)fmin((double)n - 1, floor(share * (double)n))] : 0;
}

static void report(const struct load *l)
{
    const struct stream *last = l->late ? &l->all[l->streams] : &l->all[l->streams - 1];
    double *gaps = bench_alloc(l->streams * TOKENS_MAX * sizeof *gaps), from = 0, to = 1e300;
    size_t n = 0, tokens = 0;
    if (!last->n)
        die("the last request", "it had no token");
    for (size_t i = 0; i < l->streams; i++) {
        const struct stream *s = &l->all[i];
        if (s->n < 2)
            die("a stream", "it had no tokens");
        from = fmax(from, s->at[0]);
        to = fmin(to, s->at[s->n - 1]);
    }
    from = l->late ? last->asked : from;
    to = l->late ? fmin(to, last->at[0]) : to;
    for (size_t i = 0; i < l->streams; i++) {
        const struct stream *s = &l->all[i];
        for (size_t k = 1; k < s->n; k++)
            if (s->at[k - 1] >= from && s->at[k] <= to)
                gaps[n++] = s->at[k] - s->at[k - 1];
        for (size_t k = 0; k < s->n; k++)
            tokens += s->at[k] > from && s->at[k] <= to;
    }
    printf("%.2f %.2f %.2f %.2f %.2f\n", (double)tokens / (to - from), 1e3 * (last->at[0] - last->asked),
           1e3 * share_of(gaps, n, 0.5), 1e3 * share_of(gaps, n, 0.95), 1e3 * share_of(gaps, n, 0.99));
}

static void read_key(struct load *l, const char *arg)
{
    const char *eq = strchr(arg, '=');
    const size_t n = eq ? (size_t)(eq - arg) : 0, value = eq ? strtoul(eq + 1, NULL, 10) : 0;
    const struct {
        const char *key;
        size_t *to;
    } numbers[] = {
        {"streams", &l->streams}, {"tokens", &l->tokens}, {"prompt", &l->prompt}, {"late", &l->late}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (n == strlen(numbers[i].key) && !strncmp(arg, numbers[i].key, n)) {
            *numbers[i].to = value;
            return;
        }
    if (!strncmp(arg, "same=", 5))
        l->is_same = value;
    else if (!strncmp(arg, "seed=", 5))
        l->seed = (int)value;
    else if (!strncmp(arg, "top_k=", 6))
        l->top_k = (int)value;
    else if (!strncmp(arg, "bias=", 5))
        l->bias = (int)value;
    else
        die("there is no such key", arg);
}

int main(int argc, char **argv)
{
    if (argc < 3)
        die("usage", "bench_serve BASE MODEL [KEY=NUMBER ...]");
    struct load l = {.base = argv[1], .model = argv[2], .streams = 1, .tokens = 64, .prompt = 8, .seed = 1};
    for (int i = 3; i < argc; i++)
        read_key(&l, argv[i]);
    if (!l.streams || l.streams > STREAMS_MAX || l.tokens < 8 || l.tokens > TOKENS_MAX)
        die("streams or tokens", "out of range");
    l.all = bench_alloc((l.streams + 1) * sizeof *l.all);
    memset(l.all, 0, (l.streams + 1) * sizeof *l.all);
    l.multi = curl_multi_init();
    run(&l);
    report(&l);
    return 0;
}
