/* SPDX-License-Identifier: MIT
 *
 * Owns nothing. Folders are read when they are asked for: those of the service alone, which lie on
 * this machine's own disk. A path that a job named is told as it was, and not looked at: it may be
 * on a disk that does not answer. */
#include "daemon/ringd/api/api_models.h"

#include <dirent.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/ringd/api/api_reply.h"
#include "daemon/ringd/job/coord.h"
#include "daemon/ringd/api/elsewhere.h"
#include "daemon/common/installed.h"
#include "daemon/ringd/job/job.h"
#include "daemon/ringd/api/job_row.h"
#include "daemon/ringd/api/api_impl.h"
#include "engine/file/gguf_path.h"

enum { MOST = 200 };

static bool is_listed(const json_t *list, const char *path)
{
    size_t i;
    json_t *model;
    json_array_foreach (list, i, model) {
        if (!strcmp(json_string_value(json_object_get(model, "path")), path))
            return true;
    }
    return false;
}

static void add(json_t *list, const char *path)
{
    const char *slash = strrchr(path, '/');
    json_t *model = *path == '/' && slash[1] && json_array_size(list) < MOST && !is_listed(list, path)
                        ? json_pack("{s:s s:s}", "name", slash + 1, "path", path)
                        : NULL; /* a path that is not UTF-8 cannot be told */
    if (model)
        json_array_append_new(list, model);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static void add_folder(json_t *list, const char *folder)
{
    struct dirent **entries = NULL;
    int n = scandir(folder, &entries, NULL, by_name);
    for (int i = 0; i < n; i++) {
        char path[4096], config[4200];
        snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
        snprintf(config, sizeof config, "%s/config.json", path);
        const bool is_model =
            gguf_is_path(path) && !gguf_path_number(path) ? !access(path, R_OK) : !access(config, R_OK);
        if (*entries[i]->d_name != '.' && is_model)
            add(list, path);
        free(entries[i]);
    }
    free(entries);
}

/* What jobs were asked for, here and at other heads: a job's paths are the same on every node. One
 * that failed may have named no model. */
static void add_rows(json_t *list, const json_t *rows)
{
    size_t i;
    json_t *row;
    json_array_foreach (rows, i, row) {
        const char *model = json_string_value(json_object_get(row, "model")),
                   *state = json_string_value(json_object_get(row, "state"));
        if (model && state && strcmp(state, "failed") &&
            strlen(model) < JOB_ROW_TEXT - 4) /* else it may be cut */
            add(list, model);
    }
}

void api_get_models(struct api *api, struct http_call *call)
{
    json_t *list = json_array(), *rows = json_array();
    char folder[3200];
    for (const struct job *job = coord_first(api->setup.coord); job; job = job->next)
        json_array_append_new(rows, job_encode_short(job));
    elsewhere_add_remembered(api->setup.elsewhere, rows);
    elsewhere_add_rows(api->setup.elsewhere, rows);
    add_rows(list, rows);
    json_decref(rows);
    snprintf(folder, sizeof folder, "%s/models", api->setup.state_dir);
    char *whole = realpath(folder, NULL);
    if (whole)
        add_folder(list, whole);
    free(whole);
    char *shipped = installed_file("share/ringd");
    if (shipped)
        add_folder(list, shipped);
    free(shipped);
    api_reply(call, 200, json_pack("{s:o}", "models", list));
}
