/* SPDX-License-Identifier: MIT */
#include "daemon/common/model_facts.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "daemon/common/cache_dir.h"
#include "daemon/common/xalloc.h"
#include "engine/file/config.h"
#include "engine/file/gguf_path.h"
#include "engine/file/input.h"
#include "engine/file/lent.h"

static bool is_weights(const char *name)
{
    const size_t n = strlen(name);
    return n > 12 && !strcmp(name + n - 12, ".safetensors");
}

static void add_lent(void *arg, const char *name, int fd)
{
    double *bytes = arg;
    struct stat st;
    if (is_weights(name) && !fstat(fd, &st))
        *bytes += (double)st.st_size;
}

static double part_bytes(const char *path)
{
    double bytes = 0;
    for (size_t i = 0; i < gguf_path_parts(path); i++) {
        struct stat st;
        char *part = gguf_path_part(path, i);
        if (part && !input_stat(part, &st))
            bytes += (double)st.st_size;
        free(part);
    }
    return bytes;
}

double model_file_bytes(const char *dir)
{
    double bytes = 0;
    if (gguf_is_path(dir))
        return part_bytes(dir);
    if (lent_each(dir, add_lent, &bytes))
        return bytes;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        struct stat st;
        char *path = xasprintf("%s/%s", dir, e->d_name);
        if (is_weights(e->d_name) && !stat(path, &st))
            bytes += (double)st.st_size;
        free(path);
    }
    if (d)
        closedir(d);
    return bytes;
}

static json_t *names(const struct weights *w)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    for (size_t i = 0; f && i < weights_count(w); i++) {
        const char *file = weights_file(w, i);
        fprintf(f, "%s\t%s\n", weights_name(w, i), file ? file : "");
    }
    json_t *all = f && !fclose(f) ? json_stringn(text, n) : NULL;
    free(text);
    return all;
}

static int describe(json_t *model, const char *dir, const struct weights_reading *how, struct err *err)
{
    struct config config = {0};
    struct weights *w = NULL;
    struct err none;
    char fingerprint[33], cache[4096], missing[240];
    uint64_t read;
    int r = config_fingerprint(fingerprint, dir, err);
    if (!r)
        r = config_read(&config, dir, err);
    const bool is_kept = !cache_dir(cache, sizeof cache, "hashes", &none);
    if (!r)
        r = weights_open(&w, dir, config.layers, is_kept ? cache : NULL, NULL, NULL, err);
    if (!r && how)
        r = weights_read(w, how, &read, err);
    if (!r && config.tied)
        r = weights_check_tied(w, err);
    if (!r) {
        char *text = weights_text(w);
        weights_missing(w, missing, sizeof missing);
        json_object_set_new(model, "fingerprint", json_string(fingerprint));
        json_object_set_new(model, "bytes", json_real(model_file_bytes(dir)));
        json_object_set_new(model, "weights", json_string(text ? text : ""));
        json_object_set_new(model, "missing", json_string(missing));
        json_object_set_new(model, "names", names(w));
        free(text);
    }
    weights_close(w);
    return r;
}

json_t *model_facts(const char *dir, const struct weights_reading *how)
{
    struct err err;
    json_t *model = json_pack("{s:s}", "dir", dir);
    if (model && describe(model, dir, how, &err))
        json_object_set_new(model, "error", json_string(err.text));
    return model;
}
