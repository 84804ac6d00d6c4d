/* SPDX-License-Identifier: MIT
 *
 * What test_carry.c, test_carry_part.c and test_carry_hub.c look at: a world for each test, and
 * what nodes say. */
#ifndef TESTS_UNIT_CARRY_CHECKS_H
#define TESTS_UNIT_CARRY_CHECKS_H

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/common/model/models_dir.h"
#include "daemon/fetch/part_file.h"
#include "daemon/fetch/settle.h"
#include "daemon/fetch/verify.h"
#include "tests/lib/carry_world.h"

#define PATIENT (UINT64_C(60) * 1000000)
#define IMPATIENT UINT64_C(300000)
enum {
    WEIGHTS = (CARRY_WORLD_BLOCKS - 1) * BLOCK_BYTES + 12345,
    HEAD = CARRY_WORLD_BLOCKS + 1, /* the head of the weights: behind config.json, and the weights */
    BLOCKS,
    OUTLINE = 2 /* config.json and that head */
};

static inline int open_world(void **state)
{
    struct carry_world *w = malloc(sizeof *w);
    carry_world_open(w, WEIGHTS);
    *state = w;
    return 0;
}

static inline int close_world(void **state)
{
    carry_world_close(*state);
    free(*state);
    return 0;
}

static inline void no_progress(void *owner, uint64_t done, uint64_t total, const char *file)
{
    (void)owner, (void)done, (void)total, (void)file;
}

/* As `ringctl models verify` has it: every file, every block. */
static inline void assert_is_whole(const struct carry_world *w, int dir)
{
    struct err err = {""};
    if (verify_model(dir, CARRY_MODEL, no_progress, NULL, &err))
        fail_msg("%s", err.text);
    json_t *record = models_record_read(dir, CARRY_MODEL);
    assert_string_equal(json_string_value(json_object_get(record, "content")), w->content);
    json_decref(record);
    assert_int_not_equal(faccessat(dir, ".part/" CARRY_MODEL, F_OK, 0), 0);
}

static inline void hear(struct carry_node *n, const char *kind)
{
    json_decref(carry_node_hear(n, kind));
}

static inline void serve(struct carry_peer *peers, size_t n, struct carry_node *node, const char *kind)
{
    json_decref(carry_peers_serve(peers, n, node, kind));
}

/* Its peers leave, then it ends; its folder is closed. */
static inline void end_all(struct carry_peer *peers, size_t n, struct carry_node *node, int dir)
{
    for (size_t i = 0; i < n; i++)
        carry_peer_close(&peers[i]);
    carry_node_stop(node);
    close(dir);
}

/* That lane is lost with this sentence. */
static inline void assert_lost(json_t *event, uint32_t path, bool wrong, const char *sentence)
{
    assert_int_equal(json_integer_value(json_object_get(event, "path")), path);
    const char *error = json_string_value(json_object_get(event, "error"));
    if (!strstr(error, sentence))
        fail_msg("\"%s\" is not in \"%s\"", sentence, error);
    assert_int_equal(json_is_true(json_object_get(event, "wrong")), wrong);
    json_decref(event);
}

static inline void assert_failed(struct carry_node *n, int code, const char *sentence)
{
    json_t *event = carry_node_hear(n, "failed");
    assert_int_equal(json_integer_value(json_object_get(event, "code")), code);
    assert_non_null(strstr(json_string_value(json_object_get(event, "error")), sentence));
    json_decref(event);
}

/* The same of one that a source is served for until then. */
static inline void assert_failed_meanwhile(struct carry_peer *p, struct carry_node *n, int code,
                                           const char *sentence)
{
    json_t *event = carry_peers_serve(p, 1, n, "failed");
    assert_int_equal(json_integer_value(json_object_get(event, "code")), code);
    const char *error = json_string_value(json_object_get(event, "error"));
    if (!strstr(error, sentence))
        fail_msg("\"%s\" is not in \"%s\"", sentence, error);
    json_decref(event);
}

#endif
