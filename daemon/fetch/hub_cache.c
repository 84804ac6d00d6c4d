/* SPDX-License-Identifier: MIT */
#include "daemon/fetch/hub_cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/common/xalloc.h"

char *hub_cache_folder(void)
{
    static const char *const places[][2] = {{"HF_HUB_CACHE", ""},
                                            {"HF_HOME", "/hub"},
                                            {"XDG_CACHE_HOME", "/huggingface/hub"},
                                            {"HOME", "/.cache/huggingface/hub"}};
    const char *root = NULL;
    size_t i = 0;
    for (; i < sizeof places / sizeof *places && !(root && *root); i++) /* the first that is set counts */
        root = getenv(places[i][0]);
    if (!root || *root != '/')
        return NULL;
    char *folder = xasprintf("%s%s", root, places[i - 1][1]);
    if (!access(folder, R_OK | X_OK))
        return folder;
    free(folder);
    return NULL;
}

bool hub_cache_ref(const char *folder, const struct model_name *name, char ret[MODEL_COMMIT + 1])
{
    char *path = xasprintf("%s/models--%s--%s/refs/%s", folder, name->org, name->name, name->revision);
    char commit[MODEL_COMMIT + 1] = "";
    FILE *f = fopen(path, "re");
    const bool is = f && fread(commit, 1, MODEL_COMMIT, f) == MODEL_COMMIT && model_commit_is(commit);
    if (f)
        fclose(f);
    free(path);
    if (is)
        memcpy(ret, commit, sizeof commit);
    return is;
}

static bool has(const char *snapshot, const char *file)
{
    char *path = xasprintf("%s/%s", snapshot, file);
    const bool is = !access(path, R_OK);
    free(path);
    return is;
}

/* Each shard that the index names. */
static bool has_shards(const char *snapshot)
{
    char *path = xasprintf("%s/model.safetensors.index.json", snapshot);
    json_t *index = json_load_file(path, 0, NULL), *shard;
    json_t *map = json_object_get(index, "weight_map");
    const char *tensor;
    bool is = json_object_size(map);
    free(path);
    json_object_foreach (map, tensor, shard) {
        const char *file = json_string_value(shard);
        is = is && file && !strchr(file, '/') && has(snapshot, file);
    }
    json_decref(index);
    return is;
}

char *hub_cache_snapshot(const char *folder, const struct model_name *name, const char *commit)
{
    char *snapshot = xasprintf("%s/models--%s--%s/snapshots/%s", folder, name->org, name->name, commit);
    const bool is_model = has(snapshot, "config.json"),
               has_tokenizer = has(snapshot, "tokenizer.json") || has(snapshot, "tiktoken.model"),
               is_whole =
                   is_model && has_tokenizer && (has(snapshot, "model.safetensors") || has_shards(snapshot)),
               is_adapter = !is_model && has(snapshot, "adapter_config.json") &&
                            has(snapshot, "adapter_model.safetensors");
    if (is_whole || is_adapter)
        return snapshot;
    free(snapshot);
    return NULL;
}

static void list_file(int snapshot, const char *name, struct hub_listing *to)
{
    char blob[512];
    struct stat st;
    if (fstatat(snapshot, name, &st, 0) || !S_ISREG(st.st_mode))
        return;
    to->files = xreallocarray(to->files, to->n + 1, sizeof *to->files);
    struct hub_file *f = &to->files[to->n++];
    *f = (struct hub_file){.has_size = true, .size = (uint64_t)st.st_size};
    snprintf(f->name, sizeof f->name, "%s", name);
    const ssize_t n = readlinkat(snapshot, name, blob, sizeof blob - 1);
    blob[n > 0 ? n : 0] = '\0';
    const char *slash = strrchr(blob, '/');
    if (slash)
        hub_hash_read(f, slash + 1);
}

int hub_cache_list(int snapshot, struct hub_listing *ret, struct err *err)
{
    const int fd = openat(snapshot, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d)
        return err_set(err, -errno, "it cannot be read: %s", strerror(errno));
    *ret = (struct hub_listing){.n = 0};
    for (struct dirent *e; (e = readdir(d)) && ret->n < HUB_FILES_MAX;)
        if (hub_file_is_wanted(e->d_name))
            list_file(snapshot, e->d_name, ret);
    closedir(d);
    return 0;
}
