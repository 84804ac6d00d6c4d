/* SPDX-License-Identifier: MIT
 *
 * Inside of struct st, shared by the files that fill it (st_header.c, st_gguf.c), open and
 * search it (st.c) and hash its headers (fingerprint.c) and its data (weights*.c). Nobody else
 * includes this. */
#ifndef FILE_ST_IMPL_H
#define FILE_ST_IMPL_H

#include <jansson.h>
#include "file/maps.h"
#include "file/st.h"

struct st_shard {
    char *path;   /* owned */
    void *map;    /* of the set's maps: the whole file, or NULL where only headers were read */
    size_t bytes; /* of the file */
    struct maps_stamp stamp;
    size_t data_at; /* first byte after the header */
};

struct st_entry {
    struct st_tensor t; /* t.name is owned */
    size_t begin;       /* offset of its bytes in the file's data part */
};

struct st {
    struct maps *maps;       /* borrowed, or NULL: mappings are its own */
    struct st_shard *shards; /* owned */
    size_t nshards;
    struct st_entry *entries; /* owned; sorted by name once the set is complete */
    size_t count;
    char **names; /* owned, and each of them; sorted, no two alike */
    size_t nnames;
    char *
        *absent; /* owned, and each of them: paths of shards that were left out because they are not there */
    size_t nabsent;
    void **stand_ins; /* owned, and each of them: data of tensors that are away, or are other than stored */
    size_t nstand_ins;
    size_t
        listed_bytes; /* of all tensors, as an index says (metadata.total_size); 0: it does not, or there is none */
};

/* Adds the file at `path` to the set: opens it, checks its header, adds its tensors and, if `map`,
 * maps it.
 */
int st_set_add(struct st *st, const char *path, bool map, struct err *err);

/* The shard added last was opened: looks at the file. */
int st_set_stamp(struct st_shard *shard, int fd, struct err *err);
int st_set_map(struct maps *maps, struct st_shard *shard, int fd, struct st_entry *entries, size_t n,
               struct err *err);
/* A shard without anything but its path. */
int st_set_add_shard(struct st *st, const char *path, struct err *err);

/* st_open_dir, with or without mapping the data; `may_lack`: shards that are not there are left
 * out, and listed. */
struct st_how {
    bool map, may_lack;
    bool stands_in;    /* as st_map_stand_in */
    struct maps *maps; /* borrowed while it is open, or NULL */
};
int st_set_open_dir(struct st **ret, const char *dir, bool (*want)(void *arg, const char *name), void *arg,
                    struct st_how how, struct err *err);

/* st_gguf.c. Adds a model's parts: of those with a wanted tensor (want NULL: of all) the
 * tensors, and of all of them the names, as keys of `names`. */
int st_gguf_add(struct st *st, json_t *names, const char *path, bool (*want)(void *arg, const char *name),
                void *arg, bool map, struct err *err);

/* st_away.c. Marks which of the tensors of the shard added last are away, which has n of them. */
int st_away_mark(struct st *st, struct st_entry *entries, size_t n, struct err *err);
/* Of a mapped set: no wanted tensor is away; others have no data then. −ENODATA and a sentence. */
int st_away_check(struct st *st, const char *dir, bool (*want)(void *arg, const char *name), void *arg,
                  struct err *err);
/* Gives small ones that are away data of their own. */
int st_away_stand_in(struct st *st, struct err *err);

/* Where a name stands among `names`; SIZE_MAX: nowhere. */
size_t st_set_find_name(const struct st *st, const char *name);

#endif
