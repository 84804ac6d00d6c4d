/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/job/loan.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/common/json_list.h"
#include "daemon/common/fds.h"
#include "daemon/common/json_weight.h"
#include "daemon/common/output_path.h"
#include "daemon/common/xalloc.h"
#include "daemon/ringd/ledger.h"

enum { FDS_SHARE = 4 /* all loans together have at most this part of the daemon's descriptors */ };

/* A loan that outlives its daemon's loop, on a thread that hangs, keeps it. */
struct loan_book {
    struct ledger_queue queue;
    atomic_size_t fds, holders;
    char *state_dir; /* owned: without links; NULL: there is none */
};

struct loan {
    struct loan_book *book; /* held */
    atomic_size_t holders;
    json_t *about; /* owned; never changed, so that threads may read it */
    size_t bytes, n;
    int fds[]; /* owned */
};

/* --- the end ---------------------------------------------------------------------------------- */

struct loan_closing {
    size_t n;
    int fds[];
};

static void *close_all(void *arg)
{
    struct loan_closing *c = arg;
    for (size_t i = 0; i < c->n; i++)
        close(c->fds[i]);
    free(c);
    return NULL;
}

/* The file system is the client's choice. One that hangs may hold a thread, and not the loop. */
static void close_aside(const int *fds, size_t n)
{
    pthread_t thread;
    struct loan_closing *c = xmalloc(sizeof *c + n * sizeof *fds);
    c->n = n;
    memcpy(c->fds, fds, n * sizeof *fds);
    if (pthread_create(&thread, NULL, close_all, c))
        close_all(c);
    else
        pthread_detach(thread);
}

void loan_book_free(struct loan_book *book)
{
    if (!book || atomic_fetch_sub(&book->holders, 1) > 1)
        return;
    free(book->state_dir);
    free(book);
}

struct loan *loan_hold(struct loan *loan)
{
    if (loan)
        atomic_fetch_add(&loan->holders, 1);
    return loan;
}

void loan_drop(struct loan *loan)
{
    if (!loan || atomic_fetch_sub(&loan->holders, 1) > 1)
        return;
    close_aside(loan->fds, loan->n);
    atomic_fetch_sub(&loan->book->fds, loan->n);
    ledger_give(&loan->book->queue, loan->bytes);
    loan_book_free(loan->book);
    json_decref(loan->about);
    free(loan);
}

/* --- the beginning ---------------------------------------------------------------------------- */

static bool are_paths(const json_t *list, size_t n)
{
    size_t i;
    json_t *path;
    if (json_array_size(list) != n)
        return false;
    json_array_foreach (list, i, path)
        if (!json_is_string(path) || *json_string_value(path) != '/')
            return false;
    return true;
}

/* What the kernel knows by itself: no file system is asked, which may hang. */
static bool is_file_to_read(int fd)
{
    struct statx st;
    const int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && (flags & (O_ACCMODE | O_PATH)) == O_RDONLY &&
           !statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &st) && S_ISREG(st.stx_mode);
}

/* As the kernel knows it, without links; "": it says none. */
static void real_path(int fd, char ret[PATH_MAX])
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t n = readlink(link, ret, PATH_MAX - 1);
    ret[n < 0 ? 0 : n] = '\0';
}

/* Keys and tokens are for no job, also when a client that is the daemon's user can read them. */
static bool is_own(const struct loan_book *book, int fd)
{
    char real[PATH_MAX];
    real_path(fd, real);
    return !*real || output_path_is_own(book->state_dir, real);
}

static int check_files(const struct loan_book *book, const json_t *files, const int *fds, bool may_be_own,
                       struct err *err)
{
    size_t i;
    json_t *path;
    json_array_foreach (files, i, path)
        if (!is_file_to_read(fds[i]))
            return err_set(err, -EINVAL, "%s is no regular file that is open for reading alone",
                           json_string_value(path));
        else if (!may_be_own && is_own(book, fds[i]))
            return err_set(err, -EPERM, "%s lies in ringd's own folder %s", json_string_value(path),
                           book->state_dir);
    return 0;
}

static int check(const struct loan_book *book, const json_t *about, const int *fds, size_t n, bool may_be_own,
                 struct err *err)
{
    const json_t *folders = json_object_get(about, "folders");
    if (!n || n > LOAN_FILES_MAX || !are_paths(json_object_get(about, "files"), n) ||
        json_array_size(folders) > LOAN_FOLDERS_MAX || !are_paths(folders, json_array_size(folders)))
        return err_set(err, -EINVAL,
                       "{\"files\": […], \"folders\": […]} is needed: an absolute path for each of 1 to %d "
                       "descriptors, and at most %d folders",
                       LOAN_FILES_MAX, LOAN_FOLDERS_MAX);
    return check_files(book, json_object_get(about, "files"), fds, may_be_own, err);
}

static int take_room(struct loan_book *book, size_t bytes, size_t n, struct err *err)
{
    if (atomic_fetch_add(&book->fds, n) + n <= fds_allowed() / FDS_SHARE && ledger_take(&book->queue, bytes))
        return 0;
    atomic_fetch_sub(&book->fds, n);
    return err_set(err, -ENOBUFS,
                   "the jobs that wait hold as many open files as the daemon keeps for them: submit this one "
                   "again when some have ended");
}

/* A path that is not UTF-8 is left out: nothing more is known of that file. */
static json_t *about_of(const json_t *asked, const int *fds, size_t n)
{
    const json_t *folders = json_object_get(asked, "folders");
    json_t *real = json_array();
    for (size_t i = 0; i < n; i++) {
        char path[PATH_MAX];
        real_path(fds[i], path);
        json_t *text = json_string(path);
        json_array_append_new(real, text ? text : json_string(""));
    }
    return json_pack("{s:o s:o s:o}", "files", json_deep_copy(json_object_get(asked, "files")), "folders",
                     folders ? json_deep_copy(folders) : json_array(), "real", real);
}

static int take(struct loan **ret, struct loan_book *book, const json_t *about, const int *fds, size_t n,
                bool may_be_own, struct err *err)
{
    /* The kernel's own paths are within what a descriptor counts. */
    const size_t bytes = sizeof(struct loan) + json_weight(about) + n * LOAN_FD_BYTES;
    int r = check(book, about, fds, n, may_be_own, err);
    if (!r)
        r = take_room(book, bytes, n, err);
    if (r) {
        if (n)
            close_aside(fds, n);
        return r;
    }
    struct loan *loan = xmalloc(sizeof *loan + n * sizeof *fds);
    *loan = (struct loan){.book = book, .about = about_of(about, fds, n), .bytes = bytes, .n = n};
    atomic_init(&loan->holders, 1);
    atomic_fetch_add(&book->holders, 1);
    memcpy(loan->fds, fds, n * sizeof *fds);
    *ret = loan;
    return 0;
}

int loan_new(struct loan **ret, struct loan_book *book, const json_t *about, const int *fds, size_t n,
             struct err *err)
{
    return take(ret, book, about, fds, n, false, err);
}

int loan_new_kept(struct loan **ret, struct loan_book *book, const json_t *about, const int *fds, size_t n,
                  struct err *err)
{
    return take(ret, book, about, fds, n, true, err);
}

/* Is it in the list, or the folder that it lies in? */
static bool has_or_holds(const json_t *list, const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder = xstrndup(path, slash ? (size_t)(slash - path) : 0);
    const bool is_in = json_list_has(list, path) || json_list_has(list, folder);
    free(folder);
    return is_in;
}

static bool covers(const struct loan *loan, const char *path)
{
    return loan && (json_list_has(json_object_get(loan->about, "files"), path) ||
                    has_or_holds(json_object_get(loan->about, "folders"), path));
}

/* What is being put together: about and fds as loan_new has them. */
struct loan_joining {
    json_t *files, *folders;
    const json_t *paths; /* borrowed: nothing else is wanted */
    int fds[LOAN_FILES_MAX];
    size_t n;
};

/* Of a loan what `but` (NULL: nothing) does not cover. −E2BIG or −errno. */
static int join(struct loan_joining *to, const struct loan *loan, const struct loan *but)
{
    size_t i;
    json_t *path;
    json_array_foreach (json_object_get(loan->about, "folders"), i, path)
        if (json_list_has(to->paths, json_string_value(path)) &&
            !json_list_has(to->folders, json_string_value(path)))
            json_array_append(to->folders, path);
    json_array_foreach (json_object_get(loan->about, "files"), i, path) {
        if (covers(but, json_string_value(path)) || !has_or_holds(to->paths, json_string_value(path)))
            continue;
        if (to->n == LOAN_FILES_MAX)
            return -E2BIG;
        to->fds[to->n] = fcntl(loan->fds[i], F_DUPFD_CLOEXEC, 3);
        if (to->fds[to->n] < 0)
            return -errno;
        to->n++;
        json_array_append(to->files, path);
    }
    return 0;
}

static int refuse_to_join(const struct loan_joining *to, int r, struct err *err)
{
    close_aside(to->fds, to->n);
    return r == -E2BIG
               ? err_set(err, r, "the job would hold more than %d files of its users open", LOAN_FILES_MAX)
               : err_set(err, -ENOBUFS, "the files that were opened for this job cannot be kept: %s",
                         strerror(-r));
}

int loan_join(struct loan **ret, const struct loan *had, const struct loan *more, const json_t *paths,
              struct err *err)
{
    struct loan_joining to = {.files = json_array(), .folders = json_array(), .paths = paths};
    json_t *about = json_pack("{s:o s:o}", "files", to.files, "folders", to.folders);
    int r = had ? join(&to, had, more) : 0;
    if (!r && more)
        r = join(&to, more, NULL);
    *ret = NULL;
    if (r)
        r = refuse_to_join(&to, r, err);
    else if (to.n)
        r = take(ret, (more ? more : had)->book, about, to.fds, to.n, true, err);
    json_decref(about);
    return r;
}

struct loan_book *loan_book_new(struct ledger *ledger, const char *state_dir)
{
    struct loan_book *book = xcalloc(1, sizeof *book);
    atomic_init(&book->holders, 1);
    book->state_dir = realpath(state_dir, NULL);
    ledger_register(ledger, &book->queue, "loans", LOAN_BYTES);
    return book;
}

/* --- what is in it ---------------------------------------------------------------------------- */

bool loan_has(const struct loan *loan, const char *path)
{
    return loan && (json_list_has(json_object_get(loan->about, "files"), path) ||
                    json_list_has(json_object_get(loan->about, "folders"), path));
}

json_t *loan_message(const struct loan *loan)
{
    return json_pack("{s:s s:o s:o}", "do", "lend", "files",
                     json_deep_copy(json_object_get(loan->about, "files")), "folders",
                     json_deep_copy(json_object_get(loan->about, "folders")));
}

const json_t *loan_about(const struct loan *loan)
{
    return loan->about;
}

bool loan_about_is_whole(const json_t *about)
{
    const json_t *files = json_object_get(about, "files"), *folders = json_object_get(about, "folders"),
                 *real = json_object_get(about, "real");
    const size_t n = json_array_size(files);
    size_t i;
    json_t *path;
    if (!n || n > LOAN_FILES_MAX || !are_paths(files, n) || !json_is_array(folders) ||
        json_array_size(folders) > LOAN_FOLDERS_MAX || !are_paths(folders, json_array_size(folders)) ||
        json_array_size(real) != n)
        return false;
    json_array_foreach (real, i, path)
        if (!json_is_string(path))
            return false;
    return true;
}

int loan_match(const struct loan *loan, const json_t *about, struct err *err)
{
    const json_t *files = json_object_get(about, "files"), *real = json_object_get(about, "real");
    if (!json_equal(json_object_get(loan->about, "files"), files) ||
        !json_equal(json_object_get(loan->about, "folders"), json_object_get(about, "folders")))
        return err_set(err, -EINVAL,
                       "these are not the files that were opened for this job: the %zu files that its "
                       "\"wanted_files\" lists are needed, in that order",
                       json_array_size(files));
    for (size_t i = 0; i < loan->n; i++) {
        const char *was = json_string_value(json_array_get(real, i)),
                   *is = json_string_value(json_array_get(json_object_get(loan->about, "real"), i));
        if (strcmp(was, is) != 0)
            return err_set(err, -EINVAL, "%s leads to other data now: it was %s and is %s",
                           json_string_value(json_array_get(files, i)), was, is);
    }
    return 0;
}

const int *loan_fds(const struct loan *loan, size_t *ret_n)
{
    *ret_n = loan->n;
    return loan->fds;
}
