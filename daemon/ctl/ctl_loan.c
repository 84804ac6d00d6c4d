/* SPDX-License-Identifier: MIT
 *
 * Owns the descriptors from opening to sending, and the connection that they go over. Called by
 * ctl_spec.c; one thread. */
#include "daemon/ctl/ctl_loan.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/common/json_list.h"
#include "daemon/common/folder_files.h"
#include "daemon/common/ipc.h"
#include "daemon/common/job_spec.h"
#include "daemon/common/xalloc.h"
#include "daemon/ctl/ctl_client.h"
#include "engine/file/gguf_path.h"

enum { SEND_S = 10, ANSWER_MAX = 4096 };

struct opened {
    json_t *files, *folders; /* owned */
    int fds[IPC_FDS_MAX];    /* owned */
    size_t n;
    char *why; /* borrowed: of struct ctl_loan */
    size_t why_size;
};

/* --- opening ---------------------------------------------------------------------------------- */

static void leave(struct opened *o, const char *path, const char *why)
{
    if (!*o->why)
        snprintf(o->why, o->why_size, "%s was left to the daemon: %s", path, why);
}

/* Takes over fd. 0, or why it cannot be lent. */
static const char *add_file(struct opened *o, const char *path, int fd)
{
    const char *why = json_list_has(o->files, path) ? ""
                      : o->n == IPC_FDS_MAX         ? "it has more files than can be handed over, at most 253"
                                                    : NULL;
    if (!why && json_array_append_new(o->files, json_string(path)))
        why = "its name is not UTF-8";
    if (why) {
        close(fd);
        return *why ? why : NULL;
    }
    o->fds[o->n++] = fd;
    return NULL;
}

/* Of a folder, all files or none: a job that reads the folder must not miss a file. */
static void drop_to(struct opened *o, size_t n)
{
    while (o->n > n) {
        close(o->fds[--o->n]);
        json_array_remove(o->files, o->n);
    }
}

/* A hostile model has links to the keys of its user: they lead nowhere. */
static bool leads_astray(int fd, const char *folder)
{
    char link[64], real[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t n = readlink(link, real, sizeof real - 1);
    real[n < 0 ? 0 : n] = '\0';
    return !folder_file_may_lie(real, folder);
}

/* path: without links, as all that a spec names. */
static const char *add_entry(struct opened *o, DIR *dir, const char *path, const char *name)
{
    struct stat st;
    if (!folder_file_is_read(name))
        return NULL;
    const int fd = openat(dirfd(dir), name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return strerror(errno);
    if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
        close(fd);
        return NULL;
    }
    if (leads_astray(fd, path)) {
        close(fd);
        return "it is a link that leads into no model";
    }
    char *file = xasprintf("%s/%s", path, name);
    const char *why = add_file(o, file, fd);
    free(file);
    return why;
}

/* Takes over fd. */
static void add_folder(struct opened *o, const char *path, int fd)
{
    const size_t before = o->n;
    const char *why = NULL;
    DIR *dir = fdopendir(fd);
    if (!dir)
        close(fd);
    for (struct dirent *e; dir && !why && (e = readdir(dir));)
        if ((why = add_entry(o, dir, path, e->d_name))) {
            char *file = xasprintf("%s/%s", path, e->d_name);
            leave(o, file, why);
            free(file);
        }
    if (why)
        drop_to(o, before);
    else if (o->n > before)
        json_array_append_new(o->folders, json_string(path));
    if (dir)
        closedir(dir);
}

/* A file where a folder is wanted is left to the daemon, which says so. */
static void open_path(struct opened *o, const char *path, bool wants_folder)
{
    struct stat st;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        if (errno != ENOENT) /* the daemon says so, too */
            leave(o, path, strerror(errno));
        return;
    }
    const bool is_known = !fstat(fd, &st);
    if (is_known && S_ISDIR(st.st_mode)) {
        add_folder(o, path, fd);
    } else if (is_known && S_ISREG(st.st_mode) && !wants_folder) {
        const char *why = add_file(o, path, fd);
        if (why)
            leave(o, path, why);
    } else {
        close(fd);
    }
}

/* A model is a folder, or all parts of a GGUF file. */
static void open_input(struct opened *o, const char *path, bool is_model)
{
    const bool is_gguf = is_model && gguf_is_path(path);
    for (size_t i = 0; is_gguf && i < gguf_path_parts(path); i++) {
        char *part = gguf_path_part(path, i);
        if (part)
            open_path(o, part, false);
        free(part);
    }
    if (!is_gguf)
        open_path(o, path, is_model);
}

/* A folder that the job also writes is read as it is then, not as it is now. */
static void open_all(struct opened *o, const json_t *spec)
{
    const char *out = json_string_value(json_object_get(spec, "adapter_out"));
    const char *path;
    for (const struct field *f = job_spec_fields(); f->name; f++)
        for (size_t i = 0; (path = field_path_at(f, spec, i)); i++)
            if (*path == '/' && (!out || strcmp(path, out) != 0) &&
                (f->path == FIELD_MODEL || f->path == FIELD_READS || f->path == FIELD_ADAPTER ||
                 f->path == FIELD_MAY_READ))
                open_input(o, path, f->path == FIELD_MODEL);
}

/* Just those that the job had, in that order. NULL, or the first that cannot be opened, and why. */
static const char *open_listed(struct opened *o, const json_t *wanted, const char **ret_why)
{
    size_t i;
    json_t *file, *folder;
    json_array_foreach (json_object_get(wanted, "folders"), i, folder)
        json_array_append(o->folders, folder);
    json_array_foreach (json_object_get(wanted, "files"), i, file) {
        const char *path = json_string_value(file), *slash = path ? strrchr(path, '/') : NULL;
        char *parent = slash ? xstrndup(path, (size_t)(slash - path)) : NULL;
        const int fd = path ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
        *ret_why = fd < 0 ? strerror(errno) : NULL;
        if (fd >= 0 && json_list_has(o->folders, parent ? parent : "") && leads_astray(fd, parent)) {
            close(fd);
            *ret_why = "it is a link that leads into no model";
        }
        free(parent);
        if (!*ret_why)
            *ret_why = add_file(o, path, fd);
        if (*ret_why)
            return path ? path : "?";
    }
    return NULL;
}

/* --- handing in ------------------------------------------------------------------------------- */

static int connect_to(const char *path)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    const struct timeval wait = {.tv_sec = SEND_S};
    if (strlen(path) >= sizeof to.sun_path)
        return -ENAMETOOLONG;
    strcpy(to.sun_path, path);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait) ||
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait) ||
        connect(fd, (struct sockaddr *)&to, sizeof to)) {
        const int r = -errno;
        close(fd);
        return r;
    }
    return fd;
}

/* Until `end` is there; nothing is read behind a head. False: it did not come in time. */
static bool receive(int fd, char ret[ANSWER_MAX], const char *end)
{
    size_t n = 0;
    ret[0] = '\0';
    while (!strstr(ret, end)) {
        const size_t room = ANSWER_MAX - 1 - n;
        const ssize_t got = recv(fd, ret + n, *end == '\r' && room ? 1 : room, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) /* also when there is no room left */
            return false;
        n += (size_t)got;
        ret[n] = '\0';
    }
    return true;
}

static bool send_text(int fd, const char *text, size_t n)
{
    while (n) {
        const ssize_t sent = send(fd, text, n, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            return false;
        text += sent;
        n -= (size_t)sent;
    }
    return true;
}

static void lent_nothing(void *owner)
{
    (void)owner;
}

/* The descriptors with a blank, which JSON passes over, and then the line that names them. */
static bool send_files(int fd, const struct opened *o)
{
    struct ipc_frame *frame;
    json_t *about = json_pack("{s:O s:O}", "files", o->files, "folders", o->folders);
    char *text = json_dumps(about, JSON_COMPACT);
    bool ok = text && !ipc_frame_new_fds(&frame, o->fds, o->n, lent_nothing, NULL);
    if (ok) {
        ok = !ipc_frame_push(frame, fd);
        ipc_frame_free(frame);
    }
    ok = ok && send_text(fd, text, strlen(text)) && send_text(fd, "\n", 1);
    free(text);
    json_decref(about);
    return ok;
}

static void take_answer(struct ctl_loan *ret, const char *answer)
{
    json_t *json = json_loads(answer, 0, NULL);
    const json_t *error = json_object_get(json, "error");
    const char *ticket = json_string_value(json_object_get(json, "loan")),
               *code = json_string_value(json_object_get(error, "code")),
               *why = json_string_value(json_object_get(error, "message"));
    if (ticket)
        snprintf(ret->ticket, sizeof ret->ticket, "%s", ticket);
    else if (!code || strcmp(code, "bad-request") != 0) /* what is wrong with a path is said again */
        snprintf(ret->why, sizeof ret->why, "the daemon did not take the files: %s", why ? why : "no reason");
    json_decref(json);
}

static void hand_over(struct ctl_loan *ret, int fd, const struct opened *o)
{
    static const char request[] = "POST /v1/loans HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n"
                                  "Upgrade: ringd-loan\r\nContent-Length: 0\r\n\r\n";
    char answer[ANSWER_MAX];
    if (!send_text(fd, request, sizeof request - 1) || !receive(fd, answer, "\r\n\r\n"))
        return; /* the request that follows says what is wrong with the daemon */
    const bool is_heard = !strncmp(answer, "HTTP/1.1 101 ", 13);
    if (is_heard && !send_files(fd, o))
        return;
    if (receive(fd, answer, is_heard ? "}\n" : "}}"))
        take_answer(ret, answer);
}

static void hand_in(struct ctl_loan *ret, const struct ctl *ctl, const struct opened *o)
{
    const int fd = o->n ? connect_to(ctl->socket) : -1;
    if (fd < 0)
        return;
    hand_over(ret, fd, o);
    close(fd);
}

static void opened_init(struct opened *o, struct ctl_loan *loan)
{
    *loan = (struct ctl_loan){0};
    *o = (struct opened){
        .files = json_array(), .folders = json_array(), .why = loan->why, .why_size = sizeof loan->why};
}

static void opened_done(struct opened *o)
{
    drop_to(o, 0);
    json_decref(o->files);
    json_decref(o->folders);
}

void ctl_loan_hand_in(struct ctl_loan *ret, const struct ctl *ctl, const json_t *spec)
{
    struct opened o;
    opened_init(&o, ret);
    open_all(&o, spec);
    hand_in(ret, ctl, &o);
    opened_done(&o);
}

/* --- a job that waits for its files ----------------------------------------------------------- */

/* The ticket goes to the job. */
static void give_to(const struct ctl *ctl, const char *job, struct ctl_loan *loan)
{
    char path[CTL_JOB_PATH];
    struct ctl quiet = *ctl;
    json_t *reply = NULL;
    snprintf(path, sizeof path, "/v1/jobs/%s/loan", job);
    quiet.complaint = loan->why;
    quiet.complaint_size = sizeof loan->why;
    json_t *body = json_pack("{s:s}", "loan", loan->ticket);
    if (ctl_request(&quiet, "POST", path, body, &reply) == CTL_OK)
        json_decref(reply);
    json_decref(body);
}

static enum ctl_loan_end hand_in_listed(const struct ctl *ctl, const char *job, const json_t *wanted,
                                        char *text, size_t size)
{
    struct ctl_loan loan;
    struct opened o;
    const char *why;
    opened_init(&o, &loan);
    const char *closed = open_listed(&o, wanted, &why);
    enum ctl_loan_end end = CTL_LOAN_FAILED;
    if (!closed)
        hand_in(&loan, ctl, &o);
    if (*loan.ticket)
        give_to(ctl, job, &loan);
    if (*loan.ticket && !*loan.why)
        end = CTL_LOAN_DONE;
    if (closed)
        snprintf(text, size, "job %s waits for %s, which cannot be opened here either: %s", job, closed, why);
    else if (end == CTL_LOAN_FAILED)
        snprintf(text, size, "job %s waits for files, and ringd does not take them: %s", job,
                 *loan.why ? loan.why : "one is no regular file, or ringd went away");
    else if (o.n == 1)
        snprintf(text, size, "%s was opened again for job %s", json_string_value(json_array_get(o.files, 0)),
                 job);
    else
        snprintf(text, size, "%s and %zu more files were opened again for job %s",
                 json_string_value(json_array_get(o.files, 0)), o.n - 1, job);
    opened_done(&o);
    return end;
}

enum ctl_loan_end ctl_loan_again(const struct ctl *ctl, const char *job, char *text, size_t size)
{
    char path[CTL_JOB_PATH], why[512];
    struct ctl quiet = *ctl;
    json_t *reply = NULL;
    quiet.complaint = why;
    quiet.complaint_size = sizeof why;
    snprintf(path, sizeof path, "/v1/jobs/%s", job);
    if (ctl_request(&quiet, "GET", path, NULL, &reply))
        return CTL_LOAN_NONE; /* who follows the job says so */
    const json_t *wanted = json_object_get(reply, "wanted_files");
    const enum ctl_loan_end end = json_array_size(json_object_get(wanted, "files"))
                                      ? hand_in_listed(ctl, job, wanted, text, size)
                                      : CTL_LOAN_NONE;
    json_decref(reply);
    return end;
}
