/* SPDX-License-Identifier: MIT */
#include "daemon/fetch/pull.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/common/model/models_dir.h"
#include "daemon/common/xalloc.h"
#include "daemon/fetch/hub_cache.h"
#include "daemon/fetch/hub_listing.h"
#include "daemon/fetch/part_file.h"
#include "daemon/fetch/manifest.h"
#include "daemon/fetch/pull_file.h"
#include "daemon/fetch/settle.h"

static const char index_name[] = "model.safetensors.index.json";

/* A model under way. */
struct model_pull {
    const struct hub_pull_setup *setup;
    struct model_name name; /* its revision is the commit */
    char model[MODEL_NAME]; /* the same as a text */
    struct hub_listing listing;
    struct pull_source source;
    int folder;                /* owned: .part/MODEL */
    struct manifest *manifest; /* owned; NULL until it is known which files are needed */
    const char *file;          /* under way */
    uint64_t done, total;
};

/* --- which commit ----------------------------------------------------------------------------- */

static int ask_listing(const struct hub_pull_setup *s, const struct model_name *name, struct hub_listing *ret,
                       struct err *err)
{
    struct hub_text answer;
    char what[MODEL_NAME], revision[3 * MODEL_REVISION + 1];
    size_t n = 0;
    /* "refs/pr/1" is one word in this path. */
    for (const char *c = name->revision; *c; c++)
        n += (size_t)sprintf(revision + n, *c == '/' ? "%%2F" : "%c", *c);
    model_name_write(what, name);
    char *path = xasprintf("/api/models/%s/%s/revision/%s?blobs=true", name->org, name->name, revision);
    int r = hub_get_text(s->hub, path, HUB_ANSWER_MAX, what, &answer, err);
    free(path);
    if (r)
        return r;
    r = hub_listing_read(ret, answer.bytes, answer.n, err);
    free(answer.bytes);
    if (!r && model_commit_is(name->revision) && strcmp(ret->commit, name->revision) != 0) {
        hub_listing_done(ret);
        r = err_set(err, -EPROTO, "%s: the hub answers with another commit, %s", what, ret->commit);
    }
    return r ? err_prefix(err, r, "%s/%s", name->org, name->name) : 0;
}

/* What was known when it was last asked for. */
static bool known_commit(const struct hub_pull_setup *s, const struct model_name *name,
                         char ret[MODEL_COMMIT + 1])
{
    return models_ref_read(s->dir, name, ret) || (s->cache && hub_cache_ref(s->cache, name, ret));
}

/* A folder that a user gave this name. A hub may have another model of that name, and should not
 * hear of this one. */
static bool is_added(const struct hub_pull_setup *s, const struct model_name *name,
                     char ret[MODEL_COMMIT + 1])
{
    struct model_name exact = *name;
    char model[MODEL_NAME];
    if (!models_ref_read(s->dir, name, exact.revision))
        return false;
    model_name_write(model, &exact);
    json_t *record = models_record_read(s->dir, model);
    const bool is = json_is_true(json_object_get(record, "added"));
    json_decref(record);
    if (is)
        memcpy(ret, exact.revision, MODEL_COMMIT + 1);
    return is;
}

/* listing: NULL, or what the hub said if it was asked; then its commit is "" where it was not. */
static int find_commit(const struct hub_pull_setup *s, const struct model_name *name,
                       struct hub_listing *listing, char ret[MODEL_COMMIT + 1], struct err *err)
{
    if (model_commit_is(name->revision)) {
        memcpy(ret, name->revision, MODEL_COMMIT + 1);
        return 0;
    }
    if (is_added(s, name, ret))
        return 0;
    if (s->is_offline)
        return known_commit(s, name, ret)
                   ? 0
                   : err_set(err, -ENOENT,
                             "%s/%s is not on this node, and HF_HUB_OFFLINE forbids to ask a hub: pull it "
                             "without that, or name a commit that is here",
                             name->org, name->name);
    const int r = ask_listing(s, name, listing, err);
    if (!r) {
        memcpy(ret, listing->commit, MODEL_COMMIT + 1);
        models_ref_write(s->dir, name, ret);
        return 0;
    }
    /* A hub that is out of reach says nothing against what it said before. */
    return (r == -EIO || r == -ETIMEDOUT) && known_commit(s, name, ret) ? 0 : r;
}

int hub_pull_resolve(const struct hub_pull_setup *setup, const struct model_name *name,
                     char ret[MODEL_COMMIT + 1], struct err *err)
{
    struct hub_listing listing = {.n = 0};
    const int r = find_commit(setup, name, &listing, ret, err);
    hub_listing_done(&listing);
    return r;
}

/* --- files ------------------------------------------------------------------------------------ */

static void on_come(void *owner, uint64_t bytes, uint64_t back)
{
    struct model_pull *p = owner;
    p->done += bytes;
    p->done -= back < p->done ? back : p->done;
    p->setup->progress(p->setup->owner, p->done, p->total, p->file);
}

static bool is_here(const struct model_pull *p, const struct hub_file *file)
{
    struct stat st;
    return !fstatat(p->folder, file->name, &st, AT_SYMLINK_NOFOLLOW) && S_ISREG(st.st_mode) &&
           (uint64_t)st.st_size == file->size;
}

/* The hashes of its blocks are wanted, so what an earlier pull has brought is read once more, and
 * its hash is compared again. */
static int read_here(struct model_pull *p, const struct hub_file *file, uint8_t (*blocks)[DIGEST],
                     struct err *err)
{
    struct hub_file copy = *file;
    const int r = blocks ? part_file_check(p->folder, &copy, blocks, err) : 0;
    if (!r)
        on_come(p, file->size, 0);
    return r;
}

/* Once more where the bytes were wrong: what stands between may have damaged them. */
static int get_file(struct model_pull *p, const struct hub_file *file, struct err *err)
{
    uint8_t(*blocks)[DIGEST] = p->manifest ? manifest_hashes_of(p->manifest, file->name) : NULL;
    p->file = file->name;
    if (is_here(p, file)) {
        const int here = read_here(p, file, blocks, err);
        if (here != -EBADMSG)
            return here;
        unlinkat(p->folder, file->name, 0);
    }
    int r = pull_file(&p->source, p->folder, file, blocks, on_come, p, err);
    if (r == -EBADMSG)
        r = pull_file(&p->source, p->folder, file, blocks, on_come, p, err);
    return r;
}

static int look_at_sizes(struct model_pull *p, struct err *err)
{
    int r = 0;
    for (size_t i = 0; i < p->listing.n && !r; i++) {
        struct hub_file *f = &p->listing.files[i];
        if (!f->has_size || f->kind == HUB_HASH_UNKNOWN)
            r = pull_file_look(&p->source, f, err);
    }
    return r;
}

static int read_index(const struct model_pull *p, char **ret, size_t *ret_n, struct err *err)
{
    struct stat st;
    const int fd = openat(p->folder, index_name, O_RDONLY | O_CLOEXEC);
    int r = fd < 0 || fstat(fd, &st) ? -errno : 0;
    char *text = NULL;
    if (!r && st.st_size > HUB_ANSWER_MAX)
        r = -E2BIG;
    if (!r) {
        text = xmalloc((size_t)st.st_size + 1);
        r = read(fd, text, (size_t)st.st_size) == st.st_size ? 0 : -EIO;
        *ret_n = (size_t)st.st_size;
    }
    if (fd >= 0)
        close(fd);
    if (r) {
        free(text);
        return err_set(err, r, "%s cannot be read: %s", index_name, strerror(-r));
    }
    *ret = text;
    return 0;
}

/* The index says which weights are needed, so it comes first. */
static int choose_files(struct model_pull *p, struct err *err)
{
    const struct hub_file *file = hub_listing_find(&p->listing, index_name);
    char *index = NULL;
    size_t n = 0;
    int r = 0;
    if (file) {
        struct hub_file known = *file;
        if (!known.has_size || known.kind == HUB_HASH_UNKNOWN)
            r = pull_file_look(&p->source, &known, err);
        if (!r && known.size > HUB_ANSWER_MAX)
            r = err_set(err, -E2BIG, "%s has more than %d MiB", index_name, HUB_ANSWER_MAX >> 20);
        r = r ? r : get_file(p, &known, err);
        r = r ? r : read_index(p, &index, &n, err);
    }
    r = r ? r : hub_listing_choose(&p->listing, index, n, err);
    free(index);
    return r ? r : look_at_sizes(p, err);
}

/* What of a file is on the disk already takes no more room. */
static uint64_t missing_of(const struct model_pull *p, const struct hub_file *f)
{
    char part[HUB_FILE_NAME + 8];
    struct stat st = {.st_size = 0};
    snprintf(part, sizeof part, "%s.part", f->name);
    if (is_here(p, f))
        return 0;
    uint64_t have = fstatat(p->folder, part, &st, AT_SYMLINK_NOFOLLOW) ? 0 : (uint64_t)st.st_size;
    if (have > (uint64_t)st.st_blocks * 512) /* with gaps: other nodes have brought some of it */
        have = (uint64_t)st.st_blocks * 512;
    return f->size > have ? f->size - have : 0;
}

static int find_room(struct model_pull *p, struct err *err)
{
    uint64_t missing = 0;
    p->total = p->done = 0;
    for (size_t i = 0; i < p->listing.n; i++) {
        p->total += p->listing.files[i].size;
        missing += missing_of(p, &p->listing.files[i]);
        if (p->total > HUB_BYTES_MAX)
            return err_set(err, -EFBIG, "the hub says that it has more bytes than any model");
    }
    return missing ? p->setup->room(p->setup->owner, missing, err) : 0;
}

/* Small ones first: a model that lacks one of them is refused before its weights come. */
static int get_all(struct model_pull *p, struct err *err)
{
    int r = 0;
    for (int turn = 0; turn < 2; turn++)
        for (size_t i = 0; i < p->listing.n && !r; i++)
            if (manifest_is_weights(&p->listing.files[i]) == (turn == 1))
                r = get_file(p, &p->listing.files[i], err);
    return r;
}

/* --- its name --------------------------------------------------------------------------------- */

static int settle(const struct model_pull *p, const char *in_place, bool added, struct err *err)
{
    const int r = manifest_note_heads(p->manifest, p->folder, err);
    if (r)
        return r;
    return settle_model(&(struct settle_setup){.dir = p->setup->dir,
                                               .model = p->model,
                                               .source = in_place ? NULL : p->setup->endpoint,
                                               .in_place = in_place,
                                               .is_added = added,
                                               .manifest = p->manifest},
                        err);
}

/* What a snapshot in Hugging Face's cache has of it, or a user's folder. Files are read for the
 * hashes of their blocks, and what they are is compared with what the cache calls them. */
static int read_snapshot(struct model_pull *p, const char *snapshot, struct err *err)
{
    char *index = NULL;
    size_t n = 0;
    hub_listing_done(&p->listing);
    p->folder = open(snapshot, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int r = p->folder < 0 ? err_set(err, -errno, "it cannot be opened: %s", strerror(errno))
                          : hub_cache_list(p->folder, &p->listing, err);
    if (!r && hub_listing_find(&p->listing, index_name))
        r = read_index(p, &index, &n, err);
    r = r ? r : hub_listing_choose(&p->listing, index, n, err);
    free(index);
    r = r ? r : manifest_new(&p->manifest, p->listing.files, p->listing.n, err);
    for (size_t i = 0; !r && i < p->manifest->n; i++) {
        struct hub_file *f = &p->manifest->files[i];
        p->total = p->manifest->bytes;
        r = part_file_check(p->folder, f, manifest_hashes_of(p->manifest, f->name), err);
        p->file = f->name;
        if (!r)
            on_come(p, f->size, 0);
    }
    return r ? err_prefix(err, r, "%s", snapshot) : 0;
}

/* A link that stands where a model's folder would, once its files have been read. */
static int link_in_place(struct model_pull *p, const char *snapshot, bool added, struct err *err)
{
    char part[MODELS_PATH];
    models_part_path(part, p->model);
    int r = models_remove(p->setup->dir, p->model); /* of an earlier pull, which is needed no more */
    r = r && r != -ENOENT ? r : models_make_parents(p->setup->dir, part);
    if (!r && symlinkat(snapshot, p->setup->dir, part))
        r = -errno;
    if (r)
        return err_set(err, r, "a link to %s cannot be made: %s", snapshot, strerror(-r));
    return settle(p, snapshot, added, err);
}

/* The folder, and which files it is. */
static int list_files(struct model_pull *p, struct err *err)
{
    int r = 0;
    if (!*p->listing.commit)
        r = p->setup->is_offline
                ? err_set(err, -ENOENT, "%s is not on this node, and HF_HUB_OFFLINE forbids to ask a hub",
                          p->model)
                : ask_listing(p->setup, &p->name, &p->listing, err);
    if (!r && models_has_name(p->setup->dir, p->model)) /* in part */
        r = settle_take_name(p->setup->dir, p->model, err);
    if (!r && (p->folder = settle_open_part(p->setup->dir, p->model, err)) < 0)
        r = p->folder;
    r = r ? r : choose_files(p, err);
    return r ? r : manifest_new(&p->manifest, p->listing.files, p->listing.n, err);
}

static int download(struct model_pull *p, struct err *err)
{
    int r = list_files(p, err);
    r = r ? r : find_room(p, err);
    r = r ? r : get_all(p, err);
    return r ? r : settle(p, NULL, false, err);
}

static void pull_done(struct model_pull *p)
{
    hub_listing_done(&p->listing);
    manifest_free(p->manifest);
    if (p->folder >= 0)
        close(p->folder);
}

static int store_list(struct model_pull *p, struct err *err)
{
    char content[DIGEST_HEX];
    size_t n;
    int r = models_has_name(p->setup->dir, p->model) ? 1 : list_files(p, err);
    if (r)
        return r < 0 ? r : 0;
    uint8_t *bytes = manifest_encode(p->manifest, &n);
    r = manifest_store(p->setup->dir, p->model, bytes, n, err);
    manifest_content(content, bytes, n);
    free(bytes);
    if (!r)
        p->setup->listed(p->setup->owner, content);
    return r;
}

static int bring(const struct hub_pull_setup *setup, const struct model_name *name,
                 int (*get)(struct model_pull *p, struct err *err), struct err *err)
{
    struct model_pull p = {.setup = setup, .name = *name, .folder = -1};
    int r = find_commit(setup, name, &p.listing, p.name.revision, err);
    if (r)
        return r;
    model_name_write(p.model, &p.name);
    setup->resolved(setup->owner, p.model);
    p.source = (struct pull_source){setup->hub, p.name.org, p.name.name, p.name.revision};
    char *snapshot = setup->cache ? hub_cache_snapshot(setup->cache, &p.name, p.name.revision) : NULL;
    if (models_is_whole(setup->dir, p.model))
        r = 0;
    else if (snapshot)
        r = (r = read_snapshot(&p, snapshot, err)) ? r : link_in_place(&p, snapshot, false, err);
    else
        r = get(&p, err);
    free(snapshot);
    pull_done(&p);
    return r;
}

/* --- folders of users ------------------------------------------------------------------------- */

static int read_folder(struct model_pull *p, const char *folder, struct err *err)
{
    int r = read_snapshot(p, folder, err);
    if (r == -EACCES || r == -ENOENT)
        err_prefix(
            err, r,
            "ringd's user of id %d must be able to read the folder: let it, or put a copy where it can",
            (int)getuid());
    return r;
}

/* What the name meant until now, if it was the same folder: its files are others now. */
static void forget_former(const struct model_pull *p, const char *folder)
{
    struct model_name former = p->name;
    char model[MODEL_NAME];
    snprintf(former.revision, sizeof former.revision, "main");
    if (!models_ref_read(p->setup->dir, &former, former.revision))
        return;
    model_name_write(model, &former);
    json_t *record = models_record_read(p->setup->dir, model);
    const char *place = json_string_value(json_object_get(record, "in_place"));
    if (strcmp(model, p->model) != 0 && place && !strcmp(place, folder))
        models_remove(p->setup->dir, model);
    json_decref(record);
}

static int name_it(struct model_pull *p, const char *folder, struct err *err)
{
    struct model_name ref = p->name;
    char content[DIGEST_HEX];
    size_t n;
    uint8_t *bytes = manifest_encode(p->manifest, &n);
    manifest_content(content, bytes, n);
    free(bytes);
    snprintf(p->name.revision, sizeof p->name.revision, "%.*s", MODEL_COMMIT, content);
    model_name_write(p->model, &p->name);
    p->setup->resolved(p->setup->owner, p->model);
    forget_former(p, folder);
    int r = link_in_place(p, folder, true, err);
    snprintf(ref.revision, sizeof ref.revision, "main");
    if (!r && (r = models_ref_write(p->setup->dir, &ref, p->name.revision)))
        err_set(err, r, "what %s/%s means cannot be kept: %s", ref.org, ref.name, strerror(-r));
    return r;
}

int hub_add(const struct hub_pull_setup *setup, const struct model_name *name, const char *folder,
            struct err *err)
{
    struct model_pull p = {.setup = setup, .name = *name, .folder = -1};
    int r = read_folder(&p, folder, err);
    r = r ? r : name_it(&p, folder, err);
    pull_done(&p);
    return r;
}

int hub_pull(const struct hub_pull_setup *setup, const struct model_name *name, struct err *err)
{
    return bring(setup, name, download, err);
}

int hub_pull_list(const struct hub_pull_setup *setup, const struct model_name *name, struct err *err)
{
    return bring(setup, name, store_list, err);
}
