/* SPDX-License-Identifier: MIT
 *
 * Owns the reading of config.json and generation_config.json into struct config. Called when a job
 * is prepared and when a stage opens its model; any thread. What each family's keys mean is in
 * config_family.c. */
#include "file/config.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file/config_impl.h"
#include "file/input.h"
#include "file/model_file.h"
#include "file/text_part.h"

enum { CONFIG_LIMIT = 16 * 1024 * 1024 }; /* bytes: an embedded vocabulary is the largest seen */

/* --- texts and files -------------------------------------------------------------------------- */

static int load_object(json_t **ret, const char *json, size_t n, struct err *err)
{
    json_error_t je;
    json_t *root = json_loadb(json, n, JSON_REJECT_DUPLICATES, &je);
    if (!root)
        return err_set(err, -EBADMSG, "line %d is not sound JSON: %s", je.line, input_quote(je.text).text);
    if (!json_is_object(root)) {
        json_decref(root);
        return err_set(err, -EBADMSG, "holds no JSON object");
    }
    *ret = root;
    return 0;
}

static int conclude(const struct config_reader *r, struct err *err)
{
    if (r->count == 0)
        return 0;
    if (r->hidden)
        return err_set(err, -ENOTSUP, "%s; and %zu more", r->text, r->hidden);
    return err_set(err, -ENOTSUP, "%s", r->text);
}

int config_parse(struct config *ret, const char *json, size_t n, struct err *err)
{
    json_t *root;
    int code = load_object(&root, json, n, err);
    if (code < 0)
        return code;
    json_t *text = text_part_config(root, NULL);
    struct config_reader r = {.root = text ? text : root};
    struct config c;
    memset(&c, 0, sizeof c); /* padding too: equal configs are equal byte by byte */
    c.is_text_part = text != NULL;
    config_read_family(&r, &c);
    json_decref(text);
    json_decref(root);
    code = conclude(&r, err);
    if (code == 0)
        memcpy(ret, &c, sizeof c);
    return code;
}

bool config_ahead(struct config *ret, const struct config *c)
{
    if (!c->extra_layers || c->layers + 1 >= CONFIG_MAX_LAYERS)
        return false;
    *ret = *c;
    ret->layers++;
    ret->extra_layers--;
    ret->is_ahead = true;
    return true;
}

static int parse_generation(struct config *c, const char *json, size_t n, struct err *err)
{
    json_t *root;
    int code = load_object(&root, json, n, err);
    if (code < 0)
        return code;
    struct config_reader r = {.root = root};
    config_read_eos(&r, config_lookup(root, "eos_token_id"), c);
    json_decref(root);
    return conclude(&r, err);
}

static int read_with(int (*parse)(struct config *c, const char *json, size_t n, struct err *err),
                     struct config *c, const char *dir, const char *name, struct err *err)
{
    char *path = model_file_name(dir, name), *json = NULL;
    size_t n = 0;
    if (!path)
        return err_set(err, -ENOMEM, "%s: no memory to read %s", dir, name);
    int r = model_file_read(dir, name, CONFIG_LIMIT, &json, &n, err);
    if (r == 0 && (r = parse(c, json, n, err)) < 0)
        err_prefix(err, r, "%s", path);
    free(json);
    free(path);
    return r;
}

int config_read(struct config *ret, const char *dir, struct err *err)
{
    struct config c;
    int r = read_with(config_parse, &c, dir, "config.json", err);
    if (r == -ENOENT)
        return err_set(err, r, "%s has no config.json; name the directory of a downloaded Hugging Face model",
                       dir);
    if (r < 0)
        return r;
    struct err unread;
    struct config with = c;
    r = read_with(parse_generation, &with, dir, "generation_config.json", &unread);
    if (r < 0 && r != -ENOENT)
        return err_set(err, r, "%s", unread.text);
    if (r == 0) {
        c.neos = with.neos;
        memcpy(c.eos, with.eos, sizeof c.eos);
    }
    memcpy(ret, &c, sizeof c);
    return 0;
}
