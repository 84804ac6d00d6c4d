/* SPDX-License-Identifier: MIT */
#include "daemon/stage/stage_log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/common/output_path.h"

static int fail(const struct stage_log *log, struct err *err)
{
    const int saved = errno;
    return err_set(err, -saved, "--log %s cannot be written: %s", log->path, strerror(saved));
}

/* --- what is there ---------------------------------------------------------------------------- */

static const char *kind_of(const json_t *line)
{
    return json_object_get(line, "loss")         ? "step"
           : json_object_get(line, "valid_loss") ? "valid"
           : json_object_get(line, "sample")     ? "sample"
                                                 : NULL;
}

/* False: it is no line of ours. */
static bool note(struct stage_log *log, const char *text, size_t n)
{
    json_t *line = n && text[n - 1] == '\n' ? json_loadb(text, n - 1, 0, NULL) : NULL;
    const char *kind = kind_of(line), *adapter = json_string_value(json_object_get(line, "adapter"));
    json_t *step = json_object_get(line, "step");
    const bool is_ours = kind && json_is_integer(step);
    if (is_ours && !json_object_get(log->there, kind))
        json_object_set_new(log->there, kind, json_object());
    if (is_ours)
        json_object_set(json_object_get(log->there, kind), adapter ? adapter : "", step);
    json_decref(line);
    return is_ours;
}

/* The machine may have stopped in the middle of a line. */
static int read_own_lines(struct stage_log *log, uint64_t from, uint64_t said, struct err *err)
{
    char *text = NULL;
    size_t room = 0;
    ssize_t n;
    struct stat st;
    if (fstat(fileno(log->file), &st))
        return fail(log, err);
    if ((uint64_t)st.st_size < from) /* somebody has begun another file */
        return 0;
    log->there = json_object();
    log->said = said;
    int r = fseeko(log->file, (off_t)from, SEEK_SET);
    off_t end = (off_t)from;
    while (!r && (n = getline(&text, &room, log->file)) > 0 && note(log, text, (size_t)n))
        end += n;
    free(text);
    if (r || ferror(log->file))
        return fail(log, err);
    /* Between reading and writing the stream wants to be placed. */
    return fseeko(log->file, 0, SEEK_END) || ftruncate(fileno(log->file), end) ? fail(log, err) : 0;
}

/* --- opening, writing ------------------------------------------------------------------------- */

int stage_log_open(struct stage_log *ret, const struct job_spec *spec, struct err *err)
{
    *ret = (struct stage_log){.path = spec->log};
    if (!spec->log)
        return 0;
    int r =
        output_path_open(spec->state_dir, "--log", spec->log, spec->resume || spec->said, &ret->file, err);
    return r || !spec->said ? r : read_own_lines(ret, spec->log_from, spec->log_step, err);
}

void stage_log_close(struct stage_log *log)
{
    if (log->file)
        fclose(log->file);
    json_decref(log->there);
    *log = (struct stage_log){0};
}

bool stage_log_has(const struct stage_log *log, const char *kind, const char *adapter, uint64_t step)
{
    const json_t *until = json_object_get(json_object_get(log->there, kind), adapter);
    return !log->file || (log->there && step <= log->said) ||
           (until && step <= (uint64_t)json_integer_value(until));
}

int stage_log_write(struct stage_log *log, const char *kind, const char *adapter, uint64_t step,
                    const json_t *line, struct err *err)
{
    if (stage_log_has(log, kind, adapter, step))
        return 0;
    char *text = json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(17));
    if (!text)
        return err_set(err, -ENOMEM, "out of memory");
    const bool ok = fprintf(log->file, "%s\n", text) > 0 && !fflush(log->file);
    const int saved = errno;
    free(text);
    errno = saved;
    return ok ? 0 : fail(log, err);
}

uint64_t stage_log_bytes(const struct stage_log *log)
{
    struct stat st = {0};
    return log->file && !fstat(fileno(log->file), &st) ? (uint64_t)st.st_size : 0;
}

int stage_log_sync(struct stage_log *log, uint64_t *ret, struct err *err)
{
    struct stat st = {0};
    if (log->file &&
        (fflush(log->file) || (fsync(fileno(log->file)) && errno != EINVAL) || fstat(fileno(log->file), &st)))
        return fail(log, err);
    *ret = (uint64_t)st.st_size;
    return 0;
}
