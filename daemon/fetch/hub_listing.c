/* SPDX-License-Identifier: MIT */
#include "daemon/fetch/hub_listing.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/xalloc.h"

static const char index_name[] = "model.safetensors.index.json", single_name[] = "model.safetensors";
static const char model_config[] = "config.json", adapter_config[] = "adapter_config.json";
/* PEFT's first: where both are, they hold the same values. */
static const char *const adapter_weights[] = {"adapter_model.safetensors", "adapters.safetensors"};

/* --- names ------------------------------------------------------------------------------------ */

static bool ends_with(const char *text, const char *ending)
{
    const size_t n = strlen(text), m = strlen(ending);
    return n > m && !strcmp(text + n - m, ending);
}

/* No honest repository has such a name: it leads out of its folder, or deceives who reads it. */
static bool is_hostile(const char *name)
{
    if (!*name || *name == '/' || strchr(name, '\\') || strstr(name, "//"))
        return true;
    for (const char *part = name; part; part = strchr(part, '/') ? strchr(part, '/') + 1 : NULL) {
        const size_t n = strcspn(part, "/");
        if (!n || (n == 1 && *part == '.') || (n == 2 && !strncmp(part, "..", 2)))
            return true;
    }
    for (const char *c = name; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            return true;
    return false;
}

static bool is_weights(const char *name)
{
    return ends_with(name, ".safetensors");
}

static bool is_pickle(const char *name)
{
    return ends_with(name, ".bin") || ends_with(name, ".pt") || ends_with(name, ".pth") ||
           ends_with(name, ".pkl");
}

/* Files of the model itself lie beside each other; folders hold other forms of it. */
static bool is_wanted(const char *name)
{
    static const char *const names[] = {model_config,
                                        adapter_config,
                                        "generation_config.json",
                                        "tokenizer.json",
                                        "tokenizer_config.json",
                                        "special_tokens_map.json",
                                        "added_tokens.json",
                                        "vocab.json",
                                        "merges.txt",
                                        "tokenizer.model",
                                        "tiktoken.model",
                                        "chat_template.json",
                                        "chat_template.jinja",
                                        index_name};
    if (strchr(name, '/') || *name == '.')
        return false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(name, names[i]))
            return true;
    return is_weights(name);
}

bool hub_file_is_wanted(const char *name)
{
    return strlen(name) <= HUB_FILE_NAME && !is_hostile(name) && is_wanted(name);
}

/* --- hashes ----------------------------------------------------------------------------------- */

static bool set_hash(struct hub_file *to, enum hub_hash kind, const char *hex)
{
    const size_t n = kind == HUB_HASH_SHA256 ? 64 : 40;
    if (!hex || strlen(hex) != n || strspn(hex, "0123456789abcdef") != n)
        return false;
    to->kind = kind;
    memcpy(to->hash, hex, n + 1);
    return true;
}

bool hub_hash_read(struct hub_file *to, const char *etag)
{
    char hex[65];
    if (!strncmp(etag, "W/", 2))
        etag += 2;
    etag += *etag == '"';
    const size_t n = strcspn(etag, "\"");
    if (n >= sizeof hex)
        return false;
    memcpy(hex, etag, n);
    hex[n] = '\0';
    return set_hash(to, HUB_HASH_SHA256, hex) || set_hash(to, HUB_HASH_GIT, hex);
}

/* --- the answer ------------------------------------------------------------------------------- */

static bool read_size(const json_t *from, uint64_t *ret)
{
    const json_int_t n = json_integer_value(from);
    *ret = n > 0 ? (uint64_t)n : 0;
    return json_is_integer(from) && n >= 0 && *ret <= HUB_BYTES_MAX;
}

static int add(struct hub_listing *l, const char *name, const json_t *sibling, struct err *err)
{
    const json_t *lfs = json_object_get(sibling, "lfs"), *size = json_object_get(sibling, "size");
    if (strlen(name) > HUB_FILE_NAME)
        return err_set(err, -EBADMSG, "the hub names a file with a name of %zu bytes", strlen(name));
    if (l->n == HUB_FILES_MAX)
        return err_set(err, -EBADMSG, "the hub names more than %d files of this model", HUB_FILES_MAX);
    if (hub_listing_find(l, name))
        return err_set(err, -EBADMSG, "the hub names %s twice", name);
    l->files = xreallocarray(l->files, l->n + 1, sizeof *l->files);
    struct hub_file *f = &l->files[l->n++];
    *f = (struct hub_file){.has_size = false};
    memcpy(f->name, name, strlen(name) + 1);
    if (json_is_object(lfs)) {
        size = json_object_get(lfs, "size");
        set_hash(f, HUB_HASH_SHA256, json_string_value(json_object_get(lfs, "sha256")));
    } else {
        set_hash(f, HUB_HASH_GIT, json_string_value(json_object_get(sibling, "blobId")));
    }
    if (size && !json_is_null(size) && !(f->has_size = read_size(size, &f->size)))
        return err_set(err, -EBADMSG, "the hub gives %s a size that no file has", name);
    return 0;
}

static int read_siblings(struct hub_listing *l, const json_t *siblings, struct err *err)
{
    size_t i;
    json_t *sibling;
    json_array_foreach (siblings, i, sibling) {
        const json_t *value = json_object_get(sibling, "rfilename");
        const char *name = json_string_value(value);
        if (!name || strlen(name) != json_string_length(value) || is_hostile(name))
            return err_set(
                err, -EBADMSG,
                "the hub names a file whose name leads out of its folder or cannot be read: nothing "
                "was taken from it");
        l->has_pickles |= is_pickle(name);
        const int r = is_wanted(name) ? add(l, name, sibling, err) : 0;
        if (r)
            return r;
    }
    return 0;
}

int hub_listing_read(struct hub_listing *ret, const char *text, size_t size, struct err *err)
{
    json_t *answer = json_loadb(text, size, 0, NULL);
    const char *commit = json_string_value(json_object_get(answer, "sha"));
    const json_t *siblings = json_object_get(answer, "siblings");
    struct hub_listing l = {.n = 0};
    int r = 0;
    if (!commit || !model_commit_is(commit) || !json_is_array(siblings))
        r = err_set(err, -EBADMSG,
                    "the hub's answer is no list of a model's files: does HF_ENDPOINT name a hub?");
    else
        memcpy(l.commit, commit, sizeof l.commit);
    if (!r)
        r = read_siblings(&l, siblings, err);
    json_decref(answer);
    if (r)
        hub_listing_done(&l);
    else
        *ret = l;
    return r;
}

void hub_listing_done(struct hub_listing *listing)
{
    free(listing->files);
    *listing = (struct hub_listing){.n = 0};
}

const struct hub_file *hub_listing_find(const struct hub_listing *listing, const char *name)
{
    for (size_t i = 0; i < listing->n; i++)
        if (!strcmp(listing->files[i].name, name))
            return &listing->files[i];
    return NULL;
}

/* --- which weights ---------------------------------------------------------------------------- */

/* Of each shard once, in a set: a large model has a hundred thousand tensors. */
static json_t *shards_of(const json_t *map)
{
    json_t *shards = json_object(), *shard;
    const char *tensor;
    json_object_foreach ((json_t *)(uintptr_t)map, tensor, shard)
        if (json_is_string(shard))
            json_object_set_new(shards, json_string_value(shard), json_true());
    return shards;
}

static int check_shards(const struct hub_listing *l, const json_t *shards, struct err *err)
{
    const char *name;
    json_t *yes;
    json_object_foreach ((json_t *)(uintptr_t)shards, name, yes)
        if (!is_weights(name) || !hub_listing_find(l, name))
            return err_set(err, -EBADMSG, "%s names %.100s, which the hub does not have", index_name, name);
    return json_object_size(shards) ? 0 : err_set(err, -EBADMSG, "%s names no file", index_name);
}

static void keep_weights(struct hub_listing *l, const json_t *shards)
{
    const bool has_single = hub_listing_find(l, single_name);
    size_t kept = 0;
    for (size_t i = 0; i < l->n; i++) {
        const char *name = l->files[i].name;
        if (!is_weights(name) || (shards       ? json_object_get(shards, name) != NULL
                                  : has_single ? !strcmp(name, single_name)
                                               : true))
            l->files[kept++] = l->files[i];
    }
    l->n = kept;
}

/* Of an adapter its configuration and one file of weights: what a training keeps beside them, to go
 * on, is of no use elsewhere. A model needs no adapter's configuration. */
static void keep_kind(struct hub_listing *l, bool is_adapter)
{
    const char *weights = NULL;
    size_t kept = 0;
    for (size_t i = 0; i < sizeof adapter_weights / sizeof *adapter_weights && !weights; i++)
        weights = hub_listing_find(l, adapter_weights[i]) ? adapter_weights[i] : NULL;
    for (size_t i = 0; i < l->n; i++) {
        const char *name = l->files[i].name;
        const bool is_config = !strcmp(name, adapter_config);
        if (is_adapter ? is_config || (weights && !strcmp(name, weights)) : !is_config)
            l->files[kept++] = l->files[i];
    }
    l->n = kept;
}

int hub_listing_choose(struct hub_listing *listing, const char *index, size_t size, struct err *err)
{
    const bool is_model = hub_listing_find(listing, model_config),
               is_adapter = !is_model && hub_listing_find(listing, adapter_config);
    json_t *json = index ? json_loadb(index, size, 0, NULL) : NULL;
    const json_t *map = json_object_get(json, "weight_map");
    json_t *shards = map ? shards_of(map) : NULL;
    int r = 0;
    if (index && !json_is_object(map))
        r = err_set(err, -EBADMSG, "%s cannot be read: it has no weight_map", index_name);
    else if (shards)
        r = check_shards(listing, shards, err);
    keep_kind(listing, is_adapter);
    if (!r && !is_adapter)
        keep_weights(listing, shards);
    json_decref(shards);
    json_decref(json);
    bool has_weights = false;
    for (size_t i = 0; i < listing->n; i++)
        has_weights |= is_weights(listing->files[i].name);
    if (!r && !has_weights)
        r = err_set(err, -ENOENT, "it has no weights as safetensors files%s",
                    listing->has_pickles
                        ? ", only as .bin or .pt files, which are programs that ringd does not run: "
                          "look for a copy of the model with safetensors"
                        : "");
    if (!r && !is_model && !is_adapter)
        r = err_set(err, -ENOENT,
                    "it has no config.json and no adapter_config.json: it is neither a model nor an adapter");
    return r;
}
