/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/http/client_keys.h"

#include <errno.h>
#include <math.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/common/private_file.h"
#include "daemon/common/xalloc.h"

enum { FILE_MOST = 1 << 17, KEY_BYTES = 32 };
#define CHANGED_MOST (INT64_C(1) << 53)
#define KEY_BEGINS "ringd-"
_Static_assert(sizeof KEY_BEGINS + 2 * KEY_BYTES <= CLIENT_KEY_ROOM, "a key fits");

static bool is_name(const char *name)
{
    static const char signs[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    return name && *name && strlen(name) < CLIENT_NAME_ROOM && !name[strspn(name, signs)];
}

/* --- the file --------------------------------------------------------------------------------- */

static bool read_one(struct client_key *ret, const json_t *json)
{
    const char *name = json_string_value(json_object_get(json, "name")),
               *hash = json_string_value(json_object_get(json, "hash"));
    const json_int_t rate = json_integer_value(json_object_get(json, "rate")),
                     changed = json_integer_value(json_object_get(json, "changed"));
    size_t n = 0;
    *ret = (struct client_key){.rate = (unsigned)rate,
                               .left = (double)rate,
                               .changed = (uint64_t)changed,
                               .is_gone = json_is_true(json_object_get(json, "gone"))};
    if (!is_name(name) || rate < 0 || rate > RATE_MOST || changed < 0 || changed > CHANGED_MOST)
        return false;
    strcpy(ret->name, name);
    return ret->is_gone ||
           (hash && !sodium_hex2bin(ret->hash, sizeof ret->hash, hash, strlen(hash), NULL, &n, NULL) &&
            n == CLIENT_HASH);
}

int client_keys_open(struct client_keys *ret, char *path, struct err *err)
{
    *ret = (struct client_keys){.path = path, .all = xcalloc(CLIENTS_MAX, sizeof *ret->all)};
    uint8_t *text = path ? xmalloc(FILE_MOST) : NULL;
    const ssize_t n = path ? private_read(path, text, FILE_MOST, err) : -ENOENT;
    json_t *json = n > 0 ? json_loadb((char *)text, (size_t)n, 0, NULL) : NULL;
    const json_t *list = json_object_get(json, "clients");
    bool is_whole = json_is_array(list) && json_array_size(list) <= CLIENTS_MAX;
    for (size_t i = 0; i < json_array_size(list) && is_whole; i++)
        is_whole = read_one(&ret->all[ret->n++], json_array_get(list, i));
    json_decref(json);
    free(text);
    if (n == -ENOENT)
        return 0;
    if (n >= 0 && !is_whole)
        err_set(err, -EBADMSG, "%s is damaged: remove it, and give the clients new keys (ringctl key add)",
                path);
    if (is_whole)
        return 0;
    client_keys_done(ret);
    return n < 0 ? (int)n : -EBADMSG;
}

void client_keys_done(struct client_keys *k)
{
    free(k->path);
    free(k->all);
    *k = (struct client_keys){0};
}

struct client_keys client_keys_copy(const struct client_keys *k)
{
    struct client_keys copy = {xstrdup(k->path), xcalloc(CLIENTS_MAX, sizeof *k->all), k->n};
    memcpy(copy.all, k->all, k->n * sizeof *k->all);
    return copy;
}

json_t *client_keys_tell(const struct client_keys *k)
{
    json_t *list = json_array();
    for (size_t i = 0; i < k->n; i++) {
        const struct client_key *key = &k->all[i];
        char hash[2 * CLIENT_HASH + 1];
        sodium_bin2hex(hash, sizeof hash, key->hash, CLIENT_HASH);
        json_array_append_new(list, key->is_gone ? json_pack("{s:s s:I s:b}", "name", key->name, "changed",
                                                             (json_int_t)key->changed, "gone", 1)
                                                 : json_pack("{s:s s:I s:s s:I}", "name", key->name,
                                                             "changed", (json_int_t)key->changed, "hash",
                                                             hash, "rate", (json_int_t)key->rate));
    }
    return list;
}

static int write_all(const struct client_keys *k, struct err *err)
{
    json_t *json = json_pack("{s:o}", "clients", client_keys_tell(k));
    char *text = json_dumps(json, JSON_INDENT(1));
    const int r = !k->path ? 0
                  : text   ? private_write(k->path, (const uint8_t *)text, strlen(text), err)
                           : err_set(err, -ENOMEM, "no memory for the keys of clients");
    free(text);
    json_decref(json);
    return r;
}

/* --- changes ---------------------------------------------------------------------------------- */

/* Also one that is gone. */
static struct client_key *slot_of(const struct client_keys *k, const char *name)
{
    for (size_t i = 0; i < k->n; i++)
        if (!strcmp(k->all[i].name, name))
            return &k->all[i];
    return NULL;
}

static struct client_key *named(const struct client_keys *k, const char *name)
{
    struct client_key *key = slot_of(k, name);
    return key && !key->is_gone ? key : NULL;
}

/* Of that name, if there is none yet: the one that is gone for longest makes way. NULL: there is no
 * room. */
static struct client_key *make_slot(struct client_keys *k, const char *name)
{
    struct client_key *slot = slot_of(k, name);
    if (slot)
        return slot;
    if (k->n < CLIENTS_MAX)
        slot = &k->all[k->n++];
    else
        for (size_t i = 0; i < k->n; i++)
            if (k->all[i].is_gone && (!slot || k->all[i].changed < slot->changed))
                slot = &k->all[i];
    if (slot)
        *slot = (struct client_key){.changed = 0};
    return slot;
}

/* Newer than what stands there, whatever the clocks of other nodes say. */
static uint64_t newer(const struct client_key *than)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const uint64_t ms = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
    return ms > than->changed ? ms : than->changed + 1;
}

static void hash_of(uint8_t ret[CLIENT_HASH], const char *key)
{
    crypto_hash_sha256(ret, (const unsigned char *)key, strlen(key));
}

int client_keys_add(struct client_keys *k, const char *name, unsigned rate, char ret_key[CLIENT_KEY_ROOM],
                    struct err *err)
{
    uint8_t bytes[KEY_BYTES];
    if (!is_name(name))
        return err_set(err, -EINVAL,
                       "the name of a client is 1 to %d letters, digits, \".\", \"_\" and \"-\"",
                       CLIENT_NAME_ROOM - 1);
    if (named(k, name))
        return err_set(err, -EEXIST, "%s has a key already: ringctl key remove %s ends it", name, name);
    if (rate > RATE_MOST)
        return err_set(err, -EINVAL, "a rate is at most %d requests a minute", RATE_MOST);
    struct client_key *key = make_slot(k, name);
    if (!key)
        return err_set(err, -ENOSPC, "a cluster has at most %d keys of clients: remove one", CLIENTS_MAX);
    randombytes_buf(bytes, sizeof bytes);
    strcpy(ret_key, KEY_BEGINS);
    sodium_bin2hex(ret_key + sizeof KEY_BEGINS - 1, CLIENT_KEY_ROOM - sizeof KEY_BEGINS + 1, bytes,
                   sizeof bytes);
    *key = (struct client_key){.rate = rate, .left = rate, .changed = newer(key)};
    strcpy(key->name, name);
    hash_of(key->hash, ret_key);
    return write_all(k, err);
}

int client_keys_remove(struct client_keys *k, const char *name, struct err *err)
{
    struct client_key *key = named(k, name);
    if (!key)
        return err_set(err, -ENOENT, "no client \"%.64s\" has a key: ringctl key list shows them", name);
    const struct client_key gone = {.changed = newer(key), .is_gone = true};
    *key = gone;
    strcpy(key->name, name);
    return write_all(k, err);
}

/* Two nodes may have changed it in the same millisecond. */
static bool is_newer(const struct client_key *a, const struct client_key *than)
{
    if (a->changed != than->changed)
        return a->changed > than->changed;
    return a->is_gone > than->is_gone || memcmp(a->hash, than->hash, sizeof a->hash) > 0;
}

int client_keys_merge(struct client_keys *k, const json_t *list, bool *ret_news, struct err *err)
{
    size_t i;
    json_t *item;
    *ret_news = false;
    if (json_array_size(list) > CLIENTS_MAX)
        return err_set(err, -EBADMSG, "there are more keys of clients than a cluster can have");
    json_array_foreach (list, i, item) {
        struct client_key theirs;
        if (!read_one(&theirs, item))
            return err_set(err, -EBADMSG, "the key of a client cannot be read");
        struct client_key *ours = make_slot(k, theirs.name);
        if (!ours || (*ours->name && !is_newer(&theirs, ours)))
            continue;
        *ours = theirs;
        *ret_news = true;
    }
    return *ret_news ? write_all(k, err) : 0;
}

json_t *client_keys_show(const struct client_keys *k)
{
    json_t *list = json_array();
    for (size_t i = 0; i < k->n; i++)
        if (!k->all[i].is_gone)
            json_array_append_new(
                list, json_pack("{s:s s:I}", "name", k->all[i].name, "rate", (json_int_t)k->all[i].rate));
    return list;
}

/* --- use -------------------------------------------------------------------------------------- */

const struct client_key *client_keys_find(const struct client_keys *k, const char *given)
{
    uint8_t hash[CLIENT_HASH];
    const struct client_key *found = NULL;
    if (!k->n || strncmp(given, KEY_BEGINS, sizeof KEY_BEGINS - 1) != 0)
        return NULL;
    hash_of(hash, given);
    for (size_t i = 0; i < k->n; i++)
        if (!k->all[i].is_gone && !sodium_memcmp(hash, k->all[i].hash, sizeof hash))
            found = &k->all[i];
    return found;
}

/* A bucket that holds a minute's requests, and fills as time goes. */
unsigned client_keys_take(struct client_keys *k, const char *name, struct instant now)
{
    struct client_key *key = named(k, name);
    if (!key || !key->rate)
        return 0;
    const double a_second = key->rate / 60.0,
                 more = key->at.us ? 1e-6 * (double)clock_since_us(now, key->at) * a_second : key->rate;
    key->left = fmin(key->left + more, key->rate);
    key->at = now;
    if (key->left < 1)
        return (unsigned)ceil((1 - key->left) / a_second);
    key->left--;
    return 0;
}
