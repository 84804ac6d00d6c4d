/* SPDX-License-Identifier: MIT
 *
 * Owns the reading of JSON lines for data.c; one thread. Lines are bounded, so that a file without any (a
 * disk image, say) is refused before it fills the memory. */
#include "train/jsonl.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "file/input.h"

enum { LINE_LIMIT = 64 * 1024 * 1024, FIRST_BUFFER = 64 * 1024 };

struct jsonl {
    FILE *file;              /* owned */
    char *path;              /* owned */
    char *buf;               /* owned */
    size_t size, begin, end; /* of buf; unread bytes are [begin, end) */
    size_t line;
    bool at_eof;
};

void jsonl_close(struct jsonl *in)
{
    if (!in)
        return;
    if (in->file)
        fclose(in->file);
    free(in->path);
    free(in->buf);
    free(in);
}

static int open_file(struct jsonl *in, const char *path, struct err *err)
{
    in->file = fopen(path, "re");
    if (!in->file) {
        int code = -errno;
        return err_set(err, code, "%s cannot be opened: %s", path, strerror(-code));
    }
    struct stat sb;
    if (fstat(fileno(in->file), &sb) == 0 && !S_ISREG(sb.st_mode))
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
            return err_set(err, -EFBIG,
                           "%s:%zu: the line is longer than 64 MiB; a data set has one JSON object per line",
                           in->path, in->line);
        char *grown = realloc(in->buf, in->size * 2);
        if (!grown)
            return err_set(err, -ENOMEM, "%s:%zu: no memory for so long a line", in->path, in->line);
        in->buf = grown;
        in->size *= 2;
    }
    size_t got = fread(in->buf + in->end, 1, in->size - in->end, in->file);
    if (got == 0 && ferror(in->file))
        return err_set(err, -EIO, "%s:%zu: cannot be read further: %s", in->path, in->line, strerror(errno));
    in->at_eof = got == 0;
    in->end += got;
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
    if (i < n && line[i] == '[')
        return err_set(err, -EBADMSG,
                       "%s:%zu: a JSON array, where one object per line is wanted; convert it: jq -c '.[]' "
                       "old.json > new.jsonl",
                       in->path, in->line);
    if (i < n && line[i] == '{')
        return err_set(err, -EBADMSG, "%s:%zu: not a sound JSON object: %s", in->path, in->line,
                       input_quote(why).text);
    return err_set(
        err, -EBADMSG,
        "%s:%zu: not a JSON object; plain text must be given one object per line: {\"text\": \"…\"}",
        in->path, in->line);
}

int jsonl_next(struct jsonl *in, json_t **ret, struct err *err)
{
    const char *line;
    size_t n;
    do {
        int r = next_line(in, &line, &n, err);
        if (r <= 0)
            return r;
        if (in->line == 1 && n >= 3 && memcmp(line, "\xef\xbb\xbf", 3) == 0) { /* a byte order mark */
            line += 3;
            n -= 3;
        }
    } while (is_blank(line, n));
    json_error_t je;
    /* A text may hold the character U+0000. */
    json_t *row = json_loadb(line, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &je);
    if (!json_is_object(row)) {
        int r = refuse_line(in, line, n, row ? "" : je.text, err);
        json_decref(row);
        return r;
    }
    *ret = row;
    return 1;
}

size_t jsonl_line(const struct jsonl *in)
{
    return in->line;
}
