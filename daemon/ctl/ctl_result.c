/* SPDX-License-Identifier: MIT
 *
 * The command result, and what train does by itself at the end: files of a result, each fetched
 * under another name, written through to the disk, and only then given its own. */
#include "daemon/ctl/ctl_result.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "daemon/ctl/ctl_client.h"
#include "daemon/ctl/terminal/ctl_print.h"
#include "daemon/ctl/ctl_path.h"
#include "daemon/common/xalloc.h"

/* --- at the start ----------------------------------------------------------------------------- */

json_t *result_seen(const json_t *spec)
{
    struct stat st;
    const char *out = json_string_value(json_object_get(spec, "adapter_out"));
    char *folder = out ? xstrdup(out) : NULL, *slash = out ? strrchr(folder, '/') : NULL;
    if (slash && access(folder, F_OK))
        slash[slash == folder] = '\0';
    json_t *seen = NULL;
    if (folder && !stat(folder, &st) && S_ISDIR(st.st_mode) && !access(folder, W_OK | X_OK))
        seen = json_pack("{s:s s:I s:I}", "path", folder, "dev", (json_int_t)st.st_dev, "ino",
                         (json_int_t)st.st_ino);
    free(folder);
    return seen;
}

void result_announce(const json_t *reply)
{
    const char *kept = field_text(reply, "kept_in", NULL);
    double id = field_number(reply, "id");
    if (kept)
        fprintf(
            stderr,
            "%s. The result of job %.0f is kept in %s and fetched from there at its end, by this command, "
            "`ringctl attach %.0f` or `ringctl result %.0f`.\n",
            field_text(reply, "why", ""), id, kept, id, id);
}

/* --- fetching --------------------------------------------------------------------------------- */

struct fetch {
    const struct ctl *ctl;
    const char *id;  /* borrowed: the job's name */
    const char *dir; /* borrowed */
    uint64_t bytes;  /* so far */
};

static int fail_at(const struct fetch *f, const char *path, int error)
{
    return ctl_fail(CTL_FAILED,
                    "%s: %s; the daemon still has the result of job %s: `ringctl result %s DIR` fetches it "
                    "into another folder",
                    path, strerror(error), f->id, f->id);
}

/* A name that stays below the folder, as the daemon's should: parts that are no "", "." or "..". */
static bool is_below(const char *name)
{
    for (const char *part = name;; part++) {
        size_t n = strcspn(part, "/");
        if (!n || !strncmp(part, ".", n) || !strncmp(part, "..", n))
            return false;
        part += n;
        if (!*part)
            return true;
    }
}

static char *url_of(const struct fetch *f, const char *name)
{
    char *url = xmalloc(3 * strlen(name) + CTL_JOB_PATH),
         *to = url + sprintf(url, "/v1/jobs/%s/files/", f->id);
    for (const char *c = name; *c; c++)
        to += *c == '/' ? sprintf(to, "/") : sprintf(to, "%%%02X", (unsigned)(unsigned char)*c);
    return url;
}

static int sync_folder(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int r = fd < 0 || fsync(fd) ? errno : 0;
    if (fd >= 0)
        close(fd);
    return r == EINVAL ? 0 : r; /* file systems that keep no folders */
}

/* The job of another node: this one passes it on. */
static bool lies_elsewhere(const char *name)
{
    return strchr(name, '@');
}

/* A file of another node comes part by part: nobody has to hold the whole of it. */
static int fetch_parts(const struct fetch *f, const char *url, uint64_t bytes, int fd, uint64_t *ret_got)
{
    uint64_t got = 0, more = 1;
    int rc = CTL_OK;
    while (!rc && more && got < bytes) {
        char *part = xasprintf("%s?from=%" PRIu64, url, got);
        rc = ctl_download(f->ctl, part, fd, &more);
        got += more;
        free(part);
    }
    *ret_got = got;
    return rc;
}

/* The file under its temporary name, whole and on the disk. */
static int fetch_part(struct fetch *f, const char *name, uint64_t bytes, const char *part)
{
    uint64_t got = 0;
    char *url = url_of(f, name);
    int fd = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
    int rc = fd < 0                  ? fail_at(f, part, errno)
             : lies_elsewhere(f->id) ? fetch_parts(f, url, bytes, fd, &got)
                                     : ctl_download(f->ctl, url, fd, &got);
    if (!rc && got != bytes)
        rc = ctl_fail(CTL_FAILED, "%s has changed while it was fetched: fetch it again when no job writes it",
                      name);
    if (!rc && fsync(fd))
        rc = fail_at(f, part, errno);
    if (fd >= 0 && close(fd) && !rc)
        rc = fail_at(f, part, errno);
    free(url);
    return rc;
}

static int fetch_file(struct fetch *f, const json_t *file)
{
    const char *name = field_text(file, "name", "");
    uint64_t bytes = (uint64_t)json_integer_value(json_object_get(file, "bytes"));
    if (!is_below(name))
        return ctl_fail(CTL_FAILED, "the daemon names a file \"%s\", which no result has: is it a ringd?",
                        name);
    char *path = xasprintf("%s/%s", f->dir, name), *slash = strrchr(path, '/');
    char *folder = xstrndup(path, (size_t)(slash - path)),
         *part = xasprintf("%s/.%s.part", folder, slash + 1);
    int rc =
        mkdir(folder, 0777) && errno != EEXIST ? fail_at(f, folder, errno) : fetch_part(f, name, bytes, part);
    int error = rc ? 0 : rename(part, path) ? errno : sync_folder(folder);
    if (error)
        rc = fail_at(f, path, error);
    if (rc)
        unlink(part);
    f->bytes += bytes;
    free(part);
    free(folder);
    free(path);
    return rc;
}

/* Before the first byte: all of it has to fit beside what is there. */
static int check_room(const struct fetch *f, const json_t *files)
{
    struct statvfs fs;
    double need = 0;
    size_t i;
    json_t *file;
    json_array_foreach (files, i, file)
        need += field_number(file, "bytes");
    double room = statvfs(f->dir, &fs) ? need : (double)fs.f_bavail * (double)fs.f_frsize;
    if (need <= room)
        return CTL_OK;
    return ctl_fail(
        CTL_FAILED,
        "%s: the result of job %s needs %.1f MiB, and the disk has %.1f MiB free; the daemon still has "
        "it: `ringctl result %s DIR` fetches it into another folder",
        f->dir, f->id, need / (1 << 20), room / (1 << 20), f->id);
}

static int ask(const struct ctl *ctl, const char *id, json_t **ret)
{
    char path[CTL_JOB_PATH];
    snprintf(path, sizeof path, "/v1/jobs/%s/files", id);
    return ctl_request(ctl, "GET", path, NULL, ret);
}

/* All files into the folder; those that lie there under other names stay. */
static int fetch_all(struct fetch *f, const json_t *answer)
{
    const json_t *files = json_object_get(answer, "files");
    size_t i;
    json_t *file;
    if (!json_array_size(files))
        return ctl_fail(CTL_FAILED, "job %s has left no result yet: `ringctl job %s` shows its state", f->id,
                        f->id);
    if (mkdir(f->dir, 0777) && errno != EEXIST)
        return fail_at(f, f->dir, errno);
    int rc = check_room(f, files);
    json_array_foreach (files, i, file)
        rc = rc ? rc : fetch_file(f, file);
    json_t *again = NULL;
    rc = rc ? rc : ask(f->ctl, f->id, &again);
    if (!rc && !json_equal(files, json_object_get(again, "files")))
        rc = ctl_fail(CTL_FAILED,
                      "the result of job %s has changed while it was fetched: fetch it again when no "
                      "job writes it",
                      f->id);
    json_decref(again);
    return rc;
}

/* Whoever follows the job of another user has nothing to write where that one asked for it. */
static bool is_ours(const char *out)
{
    struct stat st;
    char *folder = xstrdup(out), *slash = strrchr(folder, '/');
    if (slash && access(folder, F_OK))
        slash[slash == folder] = '\0';
    const bool is = stat(folder, &st) || st.st_uid == geteuid();
    free(folder);
    return is;
}

int result_deliver(const struct ctl *ctl, const json_t *job, bool is_attached)
{
    const json_t *spec = json_object_get(job, "spec");
    const char *out = field_text(spec, "adapter_out", NULL);
    json_t *answer = NULL;
    if (!out || !json_object_get(spec, "kept_in"))
        return CTL_OK;
    if (lies_elsewhere(field_text(job, "name", "?"))) {
        ctl_fail(
            CTL_OK,
            "the daemon of the job's head keeps the result of job %s: `ringctl result %s DIR` fetches it",
            field_text(job, "name", "?"), field_text(job, "name", "?"));
        return CTL_OK;
    }
    if (is_attached && !is_ours(out)) {
        ctl_fail(CTL_OK,
                 "%s belongs to another user, so the result of job %s stays in %s: `ringctl result %s DIR` "
                 "fetches it",
                 out, field_text(job, "name", "?"), field_text(spec, "kept_in", "?"),
                 field_text(job, "name", "?"));
        return CTL_OK;
    }
    struct fetch f = {.ctl = ctl, .id = field_text(job, "name", "?"), .dir = out};
    int rc = ask(ctl, f.id, &answer);
    rc = rc ? rc : fetch_all(&f, answer);
    json_decref(answer);
    return rc;
}

/* --- the command ------------------------------------------------------------------------------ */

static int print_fetched(const struct ctl *ctl, const struct fetch *f, const json_t *answer)
{
    size_t n = json_array_size(json_object_get(answer, "files"));
    if (ctl->json) {
        json_t *said = json_pack("{s:O s:s s:O}", "id", json_object_get(answer, "id"), "folder", f->dir,
                                 "files", json_object_get(answer, "files"));
        print_json(said);
        json_decref(said);
    } else {
        printf("job %s: %zu files, %.1f MiB, now in %s; the daemon's own copy is in %s\n", f->id, n,
               (double)f->bytes / (1 << 20), f->dir, field_text(answer, "folder", "?"));
    }
    return CTL_OK;
}

int ctl_result_main(struct ctl *ctl)
{
    struct ctl first = *ctl;
    struct fetch f = {.ctl = ctl};
    json_t *answer = NULL;
    if (ctl->n_args > 2)
        return ctl_usage(ctl, "result takes a job number and a folder only");
    first.n_args = ctl->n_args ? 1 : 0;
    int rc = ctl_job_arg(&first, &f.id);
    if (!rc && lies_elsewhere(f.id) && ctl->n_args < 2)
        rc =
            ctl_fail(CTL_USAGE,
                     "job %s was submitted on another node, with a folder of that node: say where its result "
                     "goes here, as in `ringctl result %s DIR`",
                     f.id, f.id);
    rc = rc ? rc : ask(ctl, f.id, &answer);
    if (rc)
        return rc;
    char *dir = ctl_absolute_path(ctl->n_args > 1 ? ctl->args[1] : field_text(answer, "adapter_out", "."));
    f.dir = dir;
    rc = fetch_all(&f, answer);
    rc = rc ? rc : print_fetched(ctl, &f, answer);
    json_decref(answer);
    free(dir);
    return rc;
}
