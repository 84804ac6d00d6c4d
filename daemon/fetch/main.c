/* SPDX-License-Identifier: MIT
 *
 * ringd-fetch: brings one model from a hub into the folder of models, or looks one up, or carries
 * one between nodes, or gives a folder a name, and ends. ringd starts it, says what it wants, and
 * hears how far it is. It alone of all programs talks to the outside. */
#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/common/fds.h"
#include "daemon/common/ipc.h"
#include "daemon/common/model/models_dir.h"
#include "daemon/common/xalloc.h"
#include "daemon/fetch/carry/carry.h"
#include "daemon/fetch/fetch_cell.h"
#include "daemon/fetch/hub_cache.h"
#include "daemon/fetch/lend.h"
#include "daemon/fetch/pull.h"
#include "daemon/fetch/verify.h"

enum { PROGRESS_US = 250000, TOKEN_MAX = 1024 };

struct fetch_task {
    struct hub *hub;
    struct lend *lend;
    char *cache, *token;     /* owned */
    struct instant reported; /* the last progress */
};

static int usage(void)
{
    puts("usage: ringd-fetch\n\n"
         "Brings models from a hub, and carries them between nodes. ringd(8) starts it and says which.");
    return 0;
}

static bool has_socket(void)
{
    int type = 0;
    socklen_t size = sizeof type;
    return !getsockopt(IPC_FD, SOL_SOCKET, SO_TYPE, &type, &size) && type == SOCK_STREAM;
}

/* --- what it says ----------------------------------------------------------------------------- */

static void on_resolved(void *owner, const char *model)
{
    (void)owner;
    ipc_send(IPC_FD, json_pack("{s:s s:s}", "ev", "resolved", "model", model));
}

static void on_waits(const char *why)
{
    ipc_send(IPC_FD, json_pack("{s:s s:s}", "ev", "waits", "error", why));
}

static void on_listed(void *owner, const char *content)
{
    (void)owner;
    ipc_send(IPC_FD, json_pack("{s:s s:s}", "ev", "listed", "content", content));
}

static void on_progress(void *owner, uint64_t done, uint64_t total, const char *file)
{
    struct fetch_task *f = owner;
    const struct instant now = clock_now();
    if (!total || (clock_since_us(now, f->reported) < PROGRESS_US && done < total))
        return;
    f->reported = now;
    ipc_send(IPC_FD, json_pack("{s:s s:I s:I s:s}", "ev", "progress", "done", (json_int_t)done, "total",
                               (json_int_t)total, "file", file));
}

/* ringd knows what else lies there and what may go. */
static int ask_room(void *owner, uint64_t bytes, struct err *err)
{
    json_t *answer = NULL;
    int fd, r;
    (void)owner;
    r = ipc_send(IPC_FD, json_pack("{s:s s:I}", "ev", "room", "bytes", (json_int_t)bytes));
    r = r ? r : ipc_receive(IPC_FD, &answer, NULL, &fd);
    if (r)
        return -ECANCELED;
    const char *why = json_string_value(json_object_get(answer, "why"));
    r = why ? err_set(err, -ENOSPC, "%s", why) : 0;
    json_decref(answer);
    return r;
}

static void say_failed(const struct err *err, int r)
{
    if (r != -ECANCELED)
        ipc_send(IPC_FD, json_pack("{s:s s:s s:b s:b}", "ev", "failed", "error", err->text, "passing",
                                   r == -EIO || r == -ETIMEDOUT || r == -EBUSY, "full", r == -ENOSPC));
}

/* --- what it is to do ------------------------------------------------------------------------- */

/* As huggingface_hub finds it. The caller frees; NULL: there is none. */
static char *find_token(void)
{
    const char *given = getenv("HF_TOKEN"), *path = getenv("HF_TOKEN_PATH"), *home = getenv("HF_HOME");
    if (given && *given)
        return xstrdup(given);
    char *file = path ? xstrdup(path) : home ? xasprintf("%s/token", home) : NULL;
    char token[TOKEN_MAX] = "";
    FILE *f = file ? fopen(file, "re") : NULL;
    if (f && !fgets(token, sizeof token, f))
        *token = '\0';
    if (f)
        fclose(f);
    free(file);
    token[strcspn(token, " \r\n")] = '\0';
    char *ret = *token ? xstrdup(token) : NULL;
    explicit_bzero(token, sizeof token);
    return ret;
}

static const char *endpoint_of(void)
{
    const char *endpoint = getenv("HF_ENDPOINT");
    return endpoint && *endpoint ? endpoint : "https://huggingface.co";
}

static bool is_offline(void)
{
    const char *v = getenv("HF_HUB_OFFLINE");
    return v && *v && strcmp(v, "0") != 0 && strcasecmp(v, "no") != 0 && strcasecmp(v, "false") != 0;
}

static int obey(const struct hub_pull_setup *setup, const char *what, const char *model, const char *folder,
                struct err *err)
{
    struct model_name name;
    int r = model_name_read(&name, model, err);
    if (r)
        return r;
    if (!strcmp(what, "verify"))
        return verify_model(setup->dir, model, on_progress, setup->owner, err);
    if (!strcmp(what, "pull"))
        return hub_pull(setup, &name, err);
    if (!strcmp(what, "list"))
        return hub_pull_list(setup, &name, err);
    if (!strcmp(what, "add"))
        return hub_add(setup, &name, folder, err);
    r = hub_pull_resolve(setup, &name, name.revision, err);
    if (!r) {
        char exact[MODEL_NAME];
        model_name_write(exact, &name);
        on_resolved(NULL, exact);
    }
    return r;
}

/* What is to be read of a folder in place: of Hugging Face's cache also the blobs, two folders up,
 * to which a snapshot links. The caller frees. */
static char *readable_of(const char *folder)
{
    const char *slash = strrchr(folder, '/');
    static const char parent[] = "/snapshots";
    const size_t n = sizeof parent - 1;
    const bool is_snapshot = slash && (size_t)(slash - folder) > n && !strncmp(slash - n, parent, n);
    return is_snapshot ? xasprintf("%s/../..", folder) : xstrdup(folder);
}

/* The caller frees; NULL: the model's files do not lie in another folder. */
static char *blobs_of(int dir, const char *model)
{
    char folder[PATH_MAX];
    const ssize_t n = readlinkat(dir, model, folder, sizeof folder - 1);
    folder[n > 0 ? n : 0] = '\0';
    return n > 0 ? readable_of(folder) : NULL;
}

static int carry(const json_t *order, const char *model, const char *dir, struct err *err)
{
    const char *content = json_string_value(json_object_get(order, "content")),
               *list = json_string_value(json_object_get(order, "list"));
    const bool is_of_hub = json_is_true(json_object_get(order, "hub"));
    const json_t *want = json_object_get(order, "want");
    const json_int_t rate = json_integer_value(json_object_get(order, "rate"));
    char note[256];
    if (!content || !model_name_is_exact(model) || rate < 0)
        return err_set(err, -EBADMSG, "ringd does not say which model it wants: same version of both?");
    const int models = models_dir_open(dir, err);
    if (models < 0)
        return models;
    fetch_cell_step_back();
    (void)fds_raise(note, err); /* with few of them it goes on until one is missing */
    char *blobs = blobs_of(models, model);
    int r = fetch_cell_enter(models, blobs, false, err);
    r = r ? r
          : carry_run(&(struct carry_setup){.ipc = IPC_FD,
                                            .dir = models,
                                            .model = model,
                                            .content = content,
                                            .list = list ? list : "",
                                            .source = is_of_hub ? endpoint_of() : "other nodes",
                                            .want = json_is_object(want) ? want : NULL,
                                            .rate = (uint64_t)rate,
                                            .patience_us = CARRY_PATIENCE_US,
                                            .idle_us = CARRY_IDLE_US},
                      err);
    free(blobs);
    close(models);
    return r;
}

/* --- the hub as a source ---------------------------------------------------------------------- */

static int receive_line(struct carry_line *ret, struct err *err)
{
    struct ipc_lane lane;
    json_t *other = NULL;
    int fd = -1;
    const int got = ipc_receive(IPC_FD, &other, &lane, &fd);
    int r = got == 1 && fd >= 0 ? carry_line_open(ret, &lane, fd, clock_now()) : -EBADMSG;
    json_decref(other);
    return r ? err_set(err, r, "ringd gives no connection: %s", strerror(-r)) : 0;
}

/* What the taker knows already, so that both mean the same blocks. */
static int load_list(const char *content, int dir, const char *model, uint8_t **ret, size_t *ret_n,
                     struct manifest **ret_manifest, struct err *err)
{
    char found[DIGEST_HEX];
    int r = manifest_load(dir, model, ret, ret_n, err);
    if (r)
        return r;
    manifest_content(found, *ret, *ret_n);
    return strcmp(found, content) ? err_set(err, -EEXIST, "%s has other files here", model)
                                  : manifest_decode(ret_manifest, *ret, *ret_n, err);
}

static int lend_to(struct fetch_task *f, struct lend_setup *lend, const struct hub_pull_setup *setup,
                   struct err *err)
{
    if (setup->is_offline)
        return err_set(err, -ENOENT, "HF_HUB_OFFLINE forbids to ask a hub");
    f->lend = lend_new(lend);
    const struct hub_setup hub = {
        .endpoint = setup->endpoint, .token = f->token, .watch = IPC_FD, .tick = lend_tick, .owner = f->lend};
    const int r = hub_open(&f->hub, &hub, err);
    if (r)
        return r;
    return lend_run(f->lend, f->hub, err);
}

static int lend(struct fetch_task *f, const struct hub_pull_setup *setup, const char *model,
                const char *content, struct err *err)
{
    struct model_name name;
    struct carry_line line;
    struct manifest *manifest = NULL;
    uint8_t *list = NULL;
    struct lend_setup lend = {.content = content, .line = &line, .watch = IPC_FD, .waits = on_waits};
    int r = receive_line(&line, err);
    if (r)
        return r;
    r = content ? model_name_read(&name, model, err)
                : err_set(err, -EBADMSG, "ringd does not say which model it wants: same version of both?");
    r = r ? r : load_list(content, setup->dir, model, &list, &lend.list_n, &manifest, err);
    lend.manifest = manifest;
    lend.list = list;
    lend.org = name.org;
    lend.name = name.name;
    lend.commit = name.revision;
    r = r ? r : lend_to(f, &lend, setup, err);
    if (r && r != -ECANCELED)
        lend_say_gone(&line, err->text);
    carry_line_close(&line);
    manifest_free(manifest);
    free(list);
    return r;
}

/* Of "add": the folder, or where ringd keeps the result that was meant for it. Else NULL. */
static const char *folder_of(const json_t *order)
{
    const char *folder = json_string_value(json_object_get(order, "folder")),
               *kept = json_string_value(json_object_get(order, "kept"));
    const bool is_closed = folder && access(folder, R_OK | X_OK);
    return is_closed && kept && !access(kept, R_OK | X_OK) ? kept : folder;
}

static int work(struct fetch_task *f, const json_t *order, struct err *err)
{
    const char *what = json_string_value(json_object_get(order, "do")),
               *model = json_string_value(json_object_get(order, "model")),
               *dir = json_string_value(json_object_get(order, "dir")), *folder = folder_of(order);
    struct hub_pull_setup setup = {.endpoint = endpoint_of(),
                                   .is_offline = is_offline(),
                                   .owner = f,
                                   .resolved = on_resolved,
                                   .room = ask_room,
                                   .listed = on_listed,
                                   .progress = on_progress};
    const bool is_add = what && !strcmp(what, "add");
    if (!what || !model || !dir || is_add != (folder != NULL))
        return err_set(err, -EBADMSG, "ringd does not say what it wants: same version of both?");
    if (!strcmp(what, "carry"))
        return carry(order, model, dir, err);
    setup.dir = models_dir_open(dir, err);
    if (setup.dir < 0)
        return setup.dir;
    f->cache = is_add ? readable_of(folder) : !strcmp(what, "verify") ? blobs_of(setup.dir, model) : NULL;
    setup.cache = f->cache = f->cache ? f->cache : hub_cache_folder();
    f->token = is_add ? NULL : find_token();
    int r = fetch_cell_enter(setup.dir, f->cache, !is_add, err);
    if (!r && !strcmp(what, "lend")) {
        r = lend(f, &setup, model, json_string_value(json_object_get(order, "content")), err);
        close(setup.dir);
        return r;
    }
    if (!r && !is_add)
        r = hub_open(&f->hub,
                     &(struct hub_setup){.endpoint = setup.endpoint, .token = f->token, .watch = IPC_FD},
                     err);
    setup.hub = f->hub;
    r = r ? r : obey(&setup, what, model, folder, err);
    close(setup.dir);
    return r;
}

int main(int argc, char **argv)
{
    struct fetch_task f = {.hub = NULL};
    struct err err = {""};
    json_t *order = NULL;
    int fd;
    if (argc > 1 && !strcmp(argv[1], "--help"))
        return usage();
    if (argc > 1 || !has_socket()) {
        fprintf(stderr, "ringd-fetch: no socket at descriptor %d: ringd starts this program\n", IPC_FD);
        return 2;
    }
    fetch_cell_begin();
    curl_global_init(CURL_GLOBAL_DEFAULT);
    int r = ipc_receive(IPC_FD, &order, NULL, &fd);
    r = r ? -ECANCELED : work(&f, order, &err);
    if (r)
        say_failed(&err, r);
    else if (strcmp(json_string_value(json_object_get(order, "do")), "carry") != 0)
        ipc_send(IPC_FD, json_pack("{s:s}", "ev", "ready"));
    json_decref(order);
    hub_close(f.hub);
    lend_free(f.lend);
    curl_global_cleanup();
    if (f.token)
        explicit_bzero(f.token, strlen(f.token));
    free(f.token);
    free(f.cache);
    return 0;
}
