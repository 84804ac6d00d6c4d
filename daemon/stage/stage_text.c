/* SPDX-License-Identifier: MIT
 *
 * Texts as a model's tokenizer and chat template see them, by the code that jobs use. Owns what it
 * read; ends when it has printed. One thread. */
#include "daemon/stage/stage_text.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "daemon/stage/stage_chat.h"
#include "engine/file/gguf_path.h"
#include "engine/file/input.h"

enum { DONE = 0, FAILED = 1, WRONG_USE = 2, INPUT_MAX = 64 << 20 };

struct text_work {
    const json_t *spec; /* borrowed */
    const char *model;
    json_t *json;          /* owned: the answer, NULL = text is wanted */
    struct tokenizer *tok; /* owned */
    char *input;           /* owned: what is worked on */
    size_t n;
};

/* All of standard input. */
static int read_input(struct text_work *w, struct err *err)
{
    size_t room = 0;
    for (;;) {
        if (w->n + 65536 >= room) { /* one more for the NUL */
            char *more = realloc(w->input, room = 2 * room + 131072);
            if (!more)
                return err_set(err, -ENOMEM, "no memory for standard input");
            w->input = more;
        }
        ssize_t got = read(STDIN_FILENO, w->input + w->n, 65536);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return err_set(err, -errno, "standard input cannot be read: %s", strerror(errno));
        w->input[w->n += (size_t)got] = 0;
        if (!got)
            return 0;
        if (w->n > INPUT_MAX)
            return err_set(err, -EFBIG, "standard input has more than %d MiB: give it in parts",
                           INPUT_MAX >> 20);
    }
}

/* A text of the spec, or else standard input. */
static int take_input(struct text_work *w, const char *key, struct err *err)
{
    const json_t *text = json_object_get(w->spec, key);
    if (!text)
        return read_input(w, err);
    w->n = json_string_length(text);
    w->input = malloc(w->n + 1);
    if (!w->input)
        return err_set(err, -ENOMEM, "no memory for the text");
    memcpy(w->input, json_string_value(text), w->n + 1);
    return 0;
}

static json_t *id_list(const uint32_t *ids, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_integer(ids[i]));
    return list;
}

static void print_ids(const uint32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++)
        printf("%s%u", i ? "," : "", ids[i]);
    putchar('\n');
}

/* --- tokenize --- */

/* What each token adds to the text: a character of several tokens stands with the last of them. */
static json_t *pieces_of(const struct text_work *w, const uint32_t *ids, size_t n, struct err *err)
{
    struct tokenizer_stream *stream;
    if (tokenizer_stream_new(&stream, w->tok, false, err))
        return NULL;
    json_t *list = json_array();
    for (size_t i = 0; i < n && list; i++) {
        const char *text;
        size_t len;
        if (tokenizer_stream_push(stream, ids[i], &text, &len) ||
            json_array_append_new(list, json_stringn(text, len))) {
            json_decref(list);
            list = NULL;
        }
    }
    if (!list)
        err_set(err, -ENOMEM, "no memory for the tokens' texts");
    tokenizer_stream_free(stream);
    return list;
}

static int tokenize(struct text_work *w, struct err *err)
{
    uint32_t *ids = NULL;
    size_t n = 0;
    int r = take_input(w, "text", err);
    if (!r)
        r = tokenizer_encode(w->tok, w->input, w->n, json_is_true(json_object_get(w->spec, "special")), &ids,
                             &n, err);
    json_t *pieces = r ? NULL : pieces_of(w, ids, n, err);
    if (!r && !pieces)
        r = -ENOMEM;
    if (!r && w->json) {
        json_object_set_new(w->json, "ids", id_list(ids, n));
        json_object_set(w->json, "pieces", pieces);
    } else if (!r && json_is_true(json_object_get(w->spec, "ids"))) {
        print_ids(ids, n);
    } else if (!r) {
        for (size_t i = 0; i < n; i++) {
            char *piece = json_dumps(json_array_get(pieces, i), JSON_ENCODE_ANY);
            printf("%u\t%s\n", ids[i], piece ? piece : "");
            free(piece);
        }
    }
    json_decref(pieces);
    free(ids);
    return r;
}

/* --- detokenize --- */

/* Numbers between spaces, line ends, commas and brackets. */
static int read_ids(const struct text_work *w, uint32_t **ret, size_t *ret_n, struct err *err)
{
    static const char between[] = " \t\r\n,[]";
    size_t n = 0;
    if (strlen(w->input) != w->n)
        return err_set(err, -EINVAL, "the token ids are no text: numbers are needed, as 1 2 3");
    uint32_t *ids = malloc((w->n / 2 + 1) * sizeof *ids);
    if (!ids)
        return err_set(err, -ENOMEM, "no memory for the token ids");
    for (const char *p = w->input; *(p += strspn(p, between));) {
        const size_t len = strcspn(p, between);
        char *end, word[24];
        snprintf(word, sizeof word, "%.*s", (int)(len < 20 ? len : 20), p);
        errno = 0;
        const unsigned long id = strtoul(p, &end, 10);
        int r = end != p + len || *p == '-' || *p == '+'
                    ? err_set(err, -EINVAL, "entry %zu, \"%s\", is no token id: numbers are needed, as 1 2 3",
                              n + 1, input_quote(word).text)
                : errno || id > INT32_MAX || !tokenizer_has(w->tok, (uint32_t)id)
                    ? err_set(err, -ERANGE, "entry %zu: the tokenizer in %s has no token %s", n + 1, w->model,
                              word)
                    : 0;
        if (r) {
            free(ids);
            return r;
        }
        ids[n++] = (uint32_t)id;
        p += len;
    }
    *ret = ids;
    *ret_n = n;
    return 0;
}

static int detokenize(struct text_work *w, struct err *err)
{
    uint32_t *ids = NULL;
    size_t n = 0, length = 0;
    char *text = NULL;
    int r = take_input(w, "ids", err);
    if (!r)
        r = read_ids(w, &ids, &n, err);
    if (!r)
        r = tokenizer_decode(w->tok, ids, n, json_is_true(json_object_get(w->spec, "skip_special")), &text,
                             &length, err);
    if (!r && w->json) {
        json_object_set_new(w->json, "text", json_stringn(text, length));
    } else if (!r) {
        fwrite(text, 1, length, stdout);
        putchar('\n');
    }
    free(text);
    free(ids);
    return r;
}

/* --- render --- */

/* The messages, and the tools that stand beside them in a file; a new object. */
static int read_messages(struct text_work *w, json_t **ret, struct err *err)
{
    const json_t *given = json_object_get(w->spec, "messages");
    const char *file = json_string_value(json_object_get(w->spec, "file")),
               *name = file ? file : "standard input";
    json_error_t je;
    if (given) {
        *ret = json_pack("{s:O}", "messages", given);
        return 0;
    }
    int r = file ? input_read(file, INPUT_MAX, &w->input, &w->n, err) : read_input(w, err);
    json_t *all = r ? NULL : json_loadb(w->input, w->n, JSON_ALLOW_NUL, &je);
    if (!r && !all)
        r = err_set(err, -EINVAL, "%s, line %d, column %d: no JSON: %s", name, je.line, je.column, je.text);
    if (!r && json_is_array(all))
        all = json_pack("{s:o}", "messages", all);
    if (!r && !json_is_array(json_object_get(all, "messages"))) {
        r = err_set(err, -EINVAL,
                    "%s has no messages: a list is needed, as [{\"role\": \"user\", \"content\": \"…\"}], or "
                    "an object with "
                    "\"messages\" and perhaps \"tools\"",
                    name);
        json_decref(all);
    }
    if (!r)
        *ret = all;
    return r;
}

static int render(struct text_work *w, struct err *err)
{
    const bool only_checks = json_is_true(json_object_get(w->spec, "check"));
    struct chat_prompt prompt = {0};
    json_t *all = NULL;
    int r = read_messages(w, &all, err);
    struct chat_request req = {.messages = json_object_get(all, "messages"),
                               .tools = json_object_get(all, "tools"),
                               .add_generation_prompt = json_is_true(json_object_get(w->spec, "generation")),
                               .extra = json_object_get(w->spec, "template_args"),
                               .now = time(NULL)};
    if (!r) /* only the answer in JSON has tokens */
        r = chat_prompt_read(&prompt, w->model, w->json && !only_checks ? &w->tok : NULL, &req, err);
    if (!r && w->json) {
        json_object_set_new(w->json, "text", json_stringn(prompt.text.text, prompt.text.n));
        json_object_set_new(w->json, "ids", id_list(prompt.ids, prompt.n));
    } else if (!r && !only_checks) {
        fwrite(prompt.text.text, 1, prompt.text.n, stdout);
        if (isatty(STDOUT_FILENO) && prompt.text.n && prompt.text.text[prompt.text.n - 1] != '\n')
            putchar('\n'); /* a file holds the text as it is, to the byte */
    }
    chat_prompt_done(&prompt);
    json_decref(all);
    return r;
}

/* Else a directory that is not there would be one without a tokenizer or a template. */
static int check_folder(const char *model, struct err *err)
{
    struct stat st;
    if (stat(model, &st))
        return err_set(err, -errno, "%s cannot be opened: %s", model, strerror(errno));
    return S_ISDIR(st.st_mode) || gguf_is_path(model)
               ? 0
               : err_set(err, -ENOTDIR, "%s is no directory of a model, nor a GGUF file", model);
}

int stage_text_main(int argc, char **argv)
{
    struct err err = {""};
    json_t *spec = argc == 3 ? json_loads(argv[1], 0, NULL) : NULL;
    const char *what = json_string_value(json_object_get(spec, "do"));
    struct text_work w = {.spec = spec, .model = json_string_value(json_object_get(spec, "model"))};
    if (!what || !w.model) {
        json_decref(spec);
        return WRONG_USE;
    }
    w.json = strcmp(argv[2], "json") ? NULL : json_object();
    const bool only_checks = json_is_true(json_object_get(spec, "check")), renders = !strcmp(what, "render");
    int r = check_folder(w.model, &err);
    if (!r && !renders)
        r = tokenizer_open(&w.tok, w.model, &err);
    if (!r)
        r = renders                     ? render(&w, &err)
            : !strcmp(what, "tokenize") ? tokenize(&w, &err)
                                        : detokenize(&w, &err);
    const bool is_not_said = only_checks && (r == -EACCES || r == -EPERM);
    if (r && !is_not_said)
        fprintf(stderr, "ringctl: %s\n", err.text);
    else if (!r && w.json && !json_dumpf(w.json, stdout, JSON_COMPACT))
        putchar('\n');
    tokenizer_close(w.tok);
    json_decref(w.json);
    json_decref(spec);
    free(w.input);
    if (r)
        return is_not_said ? STAGE_TEXT_NOT_ALLOWED : FAILED;
    if (!fflush(stdout))
        return DONE;
    fputs("ringctl: the output could not be written\n", stderr);
    return FAILED;
}
