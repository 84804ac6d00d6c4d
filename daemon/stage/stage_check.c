/* SPDX-License-Identifier: MIT
 *
 * ringd-stage, started by ringctl data check and not by a daemon: reads a data set as training
 * would, and shows what it would learn from. One thread. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/stage/stage_data.h"

enum { DONE = 0, FAILED = 1, WRONG_USE = 2 }; /* as those of ringctl, whose process this was */
enum { BINS = 10, BAR = 40, SHOWN = 3, SHOWN_MAX = 1000000 };

struct data_check {
    struct job_spec spec;
    struct config config;
    struct tokenizer *tok; /* owned, or NULL */
    const char *path;      /* borrowed: of the spec */
    bool is_dir, colors;
    size_t shown; /* rows to print */
    json_t *json; /* owned: what --json prints, or NULL */
};

/* --- a table of lengths ----------------------------------------------------------------------- */

struct lengths {
    size_t *n; /* owned, sorted */
    size_t count, bins[BINS], width;
};

static int by_size(const void *a, const void *b)
{
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return x < y ? -1 : x > y;
}

static int lengths_of(struct lengths *l, const struct data *data)
{
    l->count = data_rows(data);
    l->width = (data_longest(data) + BINS - 1) / BINS;
    l->n = calloc(l->count, sizeof *l->n);
    if (!l->n)
        return -1;
    for (size_t i = 0; i < l->count; i++) {
        l->n[i] = data_row(data, i).n;
        l->bins[(l->n[i] - 1) / l->width]++;
    }
    qsort(l->n, l->count, sizeof *l->n, by_size);
    return 0;
}

static size_t quantile(const struct lengths *l, size_t percent)
{
    return l->n[(l->count - 1) * percent / 100];
}

static void print_lengths(const struct lengths *l)
{
    size_t most = 1;
    printf("tokens per row: least %zu, half have %zu or fewer, nine of ten %zu, most %zu\n", l->n[0],
           quantile(l, 50), quantile(l, 90), l->n[l->count - 1]);
    for (size_t i = 0; i < BINS; i++)
        most = l->bins[i] > most ? l->bins[i] : most;
    for (size_t i = 0; i < BINS && i * l->width < l->n[l->count - 1]; i++) {
        printf("%6zu to %6zu %8zu ", i * l->width + 1, (i + 1) * l->width, l->bins[i]);
        for (size_t k = 0; k < (l->bins[i] * BAR + most - 1) / most; k++)
            putchar('#');
        putchar('\n');
    }
}

static json_t *lengths_json(const struct lengths *l)
{
    json_t *bins = json_array();
    for (size_t i = 0; i < BINS; i++)
        json_array_append_new(bins, json_integer((json_int_t)l->bins[i]));
    return json_pack("{s:I s:I s:I s:I s:I s:o}", "least", (json_int_t)l->n[0], "median",
                     (json_int_t)quantile(l, 50), "p90", (json_int_t)quantile(l, 90), "most",
                     (json_int_t)l->n[l->count - 1], "bin_width", (json_int_t)l->width, "bins", bins);
}

/* --- rows ------------------------------------------------------------------------------------- */

/* Whether the token at t is learnt: whether the one before it should predict it. */
static bool is_trained(struct data_row row, size_t t)
{
    return t > 0 && row.labels[t - 1] != LABEL_NONE;
}

/* What a terminal would obey is shown instead. */
static void print_piece(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f)
            printf("\\x%02x", c);
        else
            putchar(c);
    }
}

static void print_tokens(const struct data_check *c, struct data_row row, struct tokenizer_stream *stream)
{
    bool inside = false;
    for (size_t t = 0; t < row.n; t++) {
        const char *text = "";
        size_t n = 0;
        char id[16];
        if (is_trained(row, t) != inside) {
            inside = !inside;
            fputs(c->colors ? (inside ? "\033[30;42m" : "\033[0m") : (inside ? "[[" : "]]"), stdout);
        }
        if (!stream || tokenizer_stream_push(stream, row.ids[t], &text, &n))
            n = (size_t)snprintf(id, sizeof id, "%s%u", t ? " " : "", row.ids[t]), text = id;
        print_piece(text, n);
    }
    if (inside)
        fputs(c->colors ? "\033[0m" : "]]", stdout);
    putchar('\n');
}

static int print_rows(const struct data_check *c, const struct data *data, struct err *err)
{
    size_t n = data_rows(data) < c->shown ? data_rows(data) : c->shown;
    for (size_t i = 0; i < n; i++) {
        struct tokenizer_stream *stream = NULL;
        struct data_row row = data_row(data, i);
        int r = c->tok ? tokenizer_stream_new(&stream, c->tok, false, err) : 0;
        if (r)
            return r;
        printf("\nrow %zu, line %zu: %zu tokens, %zu trained%s\n", i + 1, row.line, row.n, row.supervised,
               i > 0       ? ""
               : c->colors ? ", on green"
                           : ", those in [[ ]]");
        print_tokens(c, row, stream);
        tokenizer_stream_free(stream);
    }
    return 0;
}

static json_t *rows_json(const struct data_check *c, const struct data *data)
{
    json_t *list = json_array();
    for (size_t i = 0; i < data_rows(data) && i < c->shown; i++) {
        struct data_row row = data_row(data, i);
        json_t *ids = json_array(), *trained = json_array();
        for (size_t t = 0; t < row.n; t++) {
            json_array_append_new(ids, json_integer(row.ids[t]));
            json_array_append_new(trained, json_boolean(is_trained(row, t)));
        }
        json_array_append_new(
            list, json_pack("{s:I s:o s:o}", "line", (json_int_t)row.line, "ids", ids, "trained", trained));
    }
    return list;
}

/* --- one set ---------------------------------------------------------------------------------- */

static json_t *counts_json(const struct data *data)
{
    const struct data_counts n = data_counts(data);
    return json_pack("{s:s s:I s:I s:I s:I s:I s:I s:I s:I s:I}", "kind", data_kind(data), "rows",
                     (json_int_t)n.rows, "used", (json_int_t)n.kept, "untrained", (json_int_t)n.unsupervised,
                     "truncated", (json_int_t)n.truncated, "split", (json_int_t)n.split, "dropped",
                     (json_int_t)n.dropped, "tokens_lost", (json_int_t)n.lost, "tokens", (json_int_t)n.tokens,
                     "trained", (json_int_t)n.supervised);
}

static int show(struct data_check *c, const struct stage_data *d, const char *split, bool with_rows,
                struct err *err)
{
    struct lengths lengths = {0};
    char line[STAGE_DATA_LINE];
    if (lengths_of(&lengths, d->data))
        return err_set(err, -1, "out of memory");
    int r = 0;
    if (c->json) {
        json_t *set = counts_json(d->data);
        json_object_set_new(set, "lengths", lengths_json(&lengths));
        json_object_set_new(set, "packs", json_integer((json_int_t)data_packs_count(d->packs)));
        if (with_rows)
            json_object_set_new(set, "first_rows", rows_json(c, d->data));
        json_object_set_new(c->json, split, set);
    } else {
        stage_data_describe(line, d, &c->spec);
        printf("%s%s%s: %s\n", c->path, c->is_dir ? ", " : "", c->is_dir ? split : "", line);
        print_lengths(&lengths);
        r = with_rows ? print_rows(c, d->data, err) : 0;
    }
    free(lengths.n);
    return r;
}

static bool has_split(const struct data_check *c, const char *split)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/%s.jsonl", c->path, split);
    if (!access(path, F_OK))
        return true;
    path[strlen(path) - 1] = '\0';
    return !access(path, F_OK);
}

static int check_split(struct data_check *c, const char *split, const struct err *why, struct err *err)
{
    struct stage_data d = {0};
    int r = stage_data_open(&d, &c->spec, &c->config, c->tok, c->path, split, err);
    if (r && !c->tok)
        err_prefix(err, r, "(and no tokenizer: %.200s)", why->text);
    if (!r)
        r = show(c, &d, split, !strcmp(split, "train"), err);
    stage_data_done(&d);
    return r;
}

static int check(struct data_check *c, struct err *err)
{
    static const char *const others[] = {"valid", "test"};
    struct err why;
    struct stat sb;
    int r = config_read(&c->config, c->spec.model, err);
    if (r)
        return r;
    if (tokenizer_open(&c->tok, c->spec.model, &why))
        c->tok = NULL;
    c->is_dir = !stat(c->path, &sb) && S_ISDIR(sb.st_mode);
    r = check_split(c, "train", &why, err);
    for (size_t i = 0; i < 2 && !r && c->is_dir; i++) {
        if (!has_split(c, others[i]))
            continue;
        if (!c->json)
            putchar('\n');
        r = check_split(c, others[i], &why, err);
    }
    return r;
}

int stage_data_main(int argc, char **argv)
{
    if (argc != 4)
        return WRONG_USE;
    struct err err;
    json_t *spec = json_loads(argv[1], 0, NULL);
    struct data_check c = {.json = strcmp(argv[2], "json") ? NULL : json_object(),
                           .colors = !strcmp(argv[3], "color"),
                           .shown = SHOWN};
    json_int_t shown = json_integer_value(json_object_get(spec, "rows"));
    if (json_object_get(spec, "rows") && shown >= 0 && shown <= SHOWN_MAX)
        c.shown = (size_t)shown;
    int r = job_spec_read_data(&c.spec, spec, &err);
    c.path = c.spec.data;
    if (!r)
        r = check(&c, &err);
    if (r) {
        fflush(stdout);
        fprintf(stderr, "ringctl: %s\n", err.text);
    } else if (c.json) {
        json_dumpf(c.json, stdout, JSON_COMPACT);
        putchar('\n');
    }
    tokenizer_close(c.tok);
    json_decref(c.json);
    json_decref(spec);
    return r || fflush(stdout) ? FAILED : DONE;
}
