/* SPDX-License-Identifier: MIT
 *
 * Owns the reading of JSON lines, and of objects in one JSON array, for data.c; one thread. Lines
 * and objects are bounded, so that a file without any (a disk image, say) is refused before it
 * fills the memory. */
#include "train/jsonl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file/input.h"

enum { LINE_LIMIT = 64 * 1024 * 1024, FIRST_BUFFER = 64 * 1024 };

/* Known from the first bytes: '[' begins an array, a line that is nothing but '{' an object on many
 * lines. */
enum shape { SHAPE_UNKNOWN, SHAPE_LINES, SHAPE_OBJECTS };

struct jsonl {
    int fd;                  /* owned */
    off_t at;                /* read of it so far */
    char *path;              /* owned */
    char *buf;               /* owned */
    size_t size, begin, end; /* of buf; unread bytes are [begin, end) */
    size_t line;
    bool at_eof;
    enum shape shape;
    bool in_array, array_ended; /* SHAPE_OBJECTS */
    size_t lines_inside;        /* of the object returned last */
};

void jsonl_close(struct jsonl *in)
{
    if (!in)
        return;
    if (in->fd >= 0)
        close(in->fd);
    free(in->path);
    free(in->buf);
    free(in);
}

static int open_file(struct jsonl *in, const char *path, struct err *err)
{
    in->fd = input_open(path);
    if (in->fd < 0)
        return err_set(err, in->fd, "%s cannot be opened: %s", path, strerror(-in->fd));
    struct stat sb;
    if (fstat(in->fd, &sb) == 0 && !S_ISREG(sb.st_mode))
        return err_set(err, -EINVAL, "%s is not a regular file", path);
    in->path = strdup(path);
    in->buf = malloc(FIRST_BUFFER);
    in->size = FIRST_BUFFER;
    return in->path && in->buf ? 0 : err_set(err, -ENOMEM, "%s: no memory to read it", path);
}

int jsonl_open(struct jsonl **ret, const char *path, struct err *err)
{
    struct jsonl *in = calloc(1, sizeof *in);
    if (!in)
        return err_set(err, -ENOMEM, "%s: no memory to read it", path);
    int r = open_file(in, path, err);
    if (r < 0) {
        jsonl_close(in);
        return r;
    }
    *ret = in;
    return 0;
}

/* Makes room after the unread bytes and reads more of them. */
static int fill(struct jsonl *in, struct err *err)
{
    memmove(in->buf, in->buf + in->begin, in->end - in->begin);
    in->end -= in->begin;
    in->begin = 0;
    if (in->end == in->size) {
        if (in->size >= LINE_LIMIT)
            return err_set(
                err, -EFBIG,
                "%s:%zu: longer than 64 MiB; a data set has a JSON object per line, or an array of such",
                in->path, in->line);
        char *grown = realloc(in->buf, in->size * 2);
        if (!grown)
            return err_set(err, -ENOMEM, "%s:%zu: no memory for so long a line", in->path, in->line);
        in->buf = grown;
        in->size *= 2;
    }
    ssize_t got;
    do
        got = pread(in->fd, in->buf + in->end, in->size - in->end, in->at);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return err_set(err, -EIO, "%s:%zu: cannot be read further: %s", in->path, in->line, strerror(errno));
    in->at_eof = got == 0;
    in->end += (size_t)got;
    in->at += got;
    return 0;
}

/* The next line without its newline, valid until the next call; 1, or 0 at the end. */
static int next_line(struct jsonl *in, const char **ret, size_t *ret_n, struct err *err)
{
    size_t searched = 0;
    in->line++;
    for (;;) {
        char *from = in->buf + in->begin;
        size_t have = in->end - in->begin;
        char *newline = memchr(from + searched, '\n', have - searched);
        if (!newline && in->at_eof && have == 0)
            return 0;
        if (newline || in->at_eof) {
            *ret = from;
            *ret_n = newline ? (size_t)(newline - from) : have;
            in->begin += *ret_n + (newline != NULL);
            return 1;
        }
        searched = have;
        int r = fill(in, err);
        if (r < 0)
            return r;
    }
}

static bool is_blank(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!memchr(" \t\r", s[i], 3))
            return false;
    }
    return true;
}

/* The commonest wrong files get the way out that fits them. */
static int refuse_line(const struct jsonl *in, const char *line, size_t n, const char *why, struct err *err)
{
    size_t i = 0;
    while (i < n && (line[i] == ' ' || line[i] == '\t'))
        i++;
    if (i < n && line[i] == '{')
        return err_set(err, -EBADMSG, "%s:%zu: not a sound JSON object: %s", in->path, in->line,
                       input_quote(why).text);
    return err_set(
        err, -EBADMSG,
        "%s:%zu: not a JSON object; plain text must be given one object per line: {\"text\": \"…\"}",
        in->path, in->line);
}

static int parse(struct jsonl *in, const char *text, size_t n, json_t **ret, struct err *err)
{
    json_error_t je;
    /* A text may hold the character U+0000. */
    json_t *row = json_loadb(text, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &je);
    if (!json_is_object(row)) {
        int r = refuse_line(in, text, n, row ? "" : je.text, err);
        json_decref(row);
        return r;
    }
    *ret = row;
    return 1;
}

static int next_of_lines(struct jsonl *in, json_t **ret, struct err *err)
{
    const char *line;
    size_t n;
    do {
        int r = next_line(in, &line, &n, err);
        if (r <= 0)
            return r;
    } while (is_blank(line, n));
    return parse(in, line, n, ret, err);
}

/* --- an array, or objects on many lines ------------------------------------------------------- */

/* The next byte that is not white space, still unread; 1, or 0 at the end. Counts the lines it
 * passes. */
static int peek(struct jsonl *in, char *ret, struct err *err)
{
    for (;;) {
        for (; in->begin < in->end; in->begin++) {
            *ret = in->buf[in->begin];
            if (!memchr(" \t\r\n", *ret, 4))
                return 1;
            in->line += *ret == '\n';
        }
        if (in->at_eof)
            return 0;
        int r = fill(in, err);
        if (r < 0)
            return r;
    }
}

/* Where the object that begins the unread bytes ends: its bytes, 0 if the file does before it. */
static int object_size(struct jsonl *in, size_t *ret_n, struct err *err)
{
    size_t depth = 0;
    bool in_text = false, escaped = false;
    in->lines_inside = 0;
    for (size_t i = 0;; i++) {
        while (in->begin + i == in->end) {
            int r = in->at_eof ? 0 : fill(in, err);
            *ret_n = 0;
            if (r < 0 || in->at_eof)
                return r;
        }
        char c = in->buf[in->begin + i];
        in->lines_inside += c == '\n';
        if (in_text) {
            in_text = escaped || c != '"';
            escaped = !escaped && c == '\\';
            continue;
        }
        in_text = c == '"';
        depth += c == '{' || c == '[';
        if ((c == '}' || c == ']') && --depth == 0) {
            *ret_n = i + 1;
            return 1;
        }
    }
}

/* What stands between two objects; 1 if another follows. */
static int pass_between(struct jsonl *in, bool is_first, struct err *err)
{
    char c;
    int r = peek(in, &c, err);
    if (r > 0 && is_first && c == '[') {
        in->in_array = true;
        in->begin++;
        r = peek(in, &c, err);
    } else if (r > 0 && in->in_array && !is_first && c == ',') {
        in->begin++;
        r = peek(in, &c, err);
        if (r > 0 && c == ']')
            return err_set(err, -EBADMSG, "%s:%zu: a comma before the end of the array", in->path, in->line);
    } else if (r > 0 && in->in_array && !is_first && c != ']') {
        return err_set(err, -EBADMSG, "%s:%zu: no comma between two objects of the array", in->path,
                       in->line);
    }
    if (r > 0 && in->in_array && c == ']') {
        in->array_ended = true;
        in->begin++;
        r = peek(in, &c, err);
        return r <= 0 ? r
                      : err_set(err, -EBADMSG, "%s:%zu: there is more after the end of the array", in->path,
                                in->line);
    }
    if (r == 0 && in->in_array)
        return err_set(err, -EBADMSG, "%s:%zu: the file ends before its array does: it was cut off", in->path,
                       in->line);
    return r > 0 && c != '{' ? refuse_line(in, in->buf + in->begin, 1, "", err) : r;
}

static int next_of_objects(struct jsonl *in, bool is_first, json_t **ret, struct err *err)
{
    size_t n;
    in->line += in->lines_inside;
    in->lines_inside = 0;
    if (in->array_ended)
        return 0;
    int r = pass_between(in, is_first, err);
    if (r > 0)
        r = object_size(in, &n, err);
    else
        return r;
    if (r == 0)
        return err_set(err, -EBADMSG, "%s:%zu: not a sound JSON object: the file ends within it", in->path,
                       in->line);
    if (r > 0) {
        r = parse(in, in->buf + in->begin, n, ret, err);
        in->begin += n;
    }
    return r;
}

static int find_shape(struct jsonl *in, struct err *err)
{
    char c;
    while (!in->at_eof && in->end < 4 && !memchr(in->buf, '\n', in->end)) {
        int r = fill(in, err);
        if (r < 0)
            return r;
    }
    if (in->end >= 3 && memcmp(in->buf, "\xef\xbb\xbf", 3) == 0) /* a byte order mark */
        in->begin = 3;
    in->line = 1;
    int r = peek(in, &c, err);
    if (r < 0)
        return r;
    /* What was read may have been moved, but blank lines before the first object do not matter. */
    in->shape = SHAPE_LINES;
    if (r > 0 && c == '[')
        in->shape = SHAPE_OBJECTS;
    if (r > 0 && c == '{') {
        const char *line = in->buf + in->begin, *eol = memchr(line, '\n', in->end - in->begin);
        if (eol && is_blank(line + 1, (size_t)(eol - line - 1)))
            in->shape = SHAPE_OBJECTS;
    }
    if (in->shape == SHAPE_LINES)
        in->line--; /* next_line counts the one it begins */
    return 0;
}

int jsonl_next(struct jsonl *in, json_t **ret, struct err *err)
{
    bool is_first = in->shape == SHAPE_UNKNOWN;
    int r = is_first ? find_shape(in, err) : 0;
    if (r < 0)
        return r;
    return in->shape == SHAPE_LINES ? next_of_lines(in, ret, err) : next_of_objects(in, is_first, ret, err);
}

size_t jsonl_line(const struct jsonl *in)
{
    return in->line;
}
