/* SPDX-License-Identifier: MIT
 *
 * ringd-stage, started by ringctl merge or convert and not by a daemon: writes a model in another
 * form, and ends. One thread calls. */
#include "daemon/stage/stage_merge.h"

#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/model/write/convert.h"
#include "engine/model/write/merge.h"

enum {
    DONE = 0,
    FAILED = 1,
    WRONG_USE = 2,
    INTERRUPTED = 130
}; /* as those of ringctl, whose process this was */

/* SIGINT and SIGTERM wait until they are asked for, so that nothing half-written remains. */
static bool is_interrupted(void *arg)
{
    sigset_t waiting;
    (void)arg;
    return !sigpending(&waiting) && (sigismember(&waiting, SIGINT) > 0 || sigismember(&waiting, SIGTERM) > 0);
}

static void hold_signals(void)
{
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGINT);
    sigaddset(&mask, SIGTERM);
    sigprocmask(SIG_BLOCK, &mask, NULL);
}

static enum dtype dtype_of(const char *text)
{
    return !strcmp(text, "f32")    ? DTYPE_F32
           : !strcmp(text, "f16")  ? DTYPE_F16
           : !strcmp(text, "bf16") ? DTYPE_BF16
                                   : DTYPE_COUNT;
}

static int fail(int r, const struct err *err)
{
    fprintf(stderr, "ringctl: %s\n", err->text);
    return r == -ECANCELED ? INTERRUPTED : FAILED;
}

/* What was done to `matrices` of them. */
static int say(const char *out, const char *key, size_t matrices, const char *text,
               const struct rewrite_result *done, bool as_json)
{
    if (as_json) {
        json_t *json = json_pack("{s:s s:I s:I s:I}", "out", out, key, (json_int_t)matrices, "files",
                                 (json_int_t)done->files, "bytes", (json_int_t)done->bytes);
        json_dumpf(json, stdout, JSON_COMPACT);
        putchar('\n');
        json_decref(json);
    } else {
        printf("%s: %s%zu file%s of weights, %.1f MiB\n", out, text, done->files, done->files == 1 ? "" : "s",
               (double)done->bytes / (1 << 20));
    }
    return fflush(stdout) ? FAILED : DONE;
}

int stage_merge_main(int argc, char **argv)
{
    if (argc != 6)
        return WRONG_USE;
    const struct merge_request req = {.model = argv[1],
                                      .adapter = argv[2],
                                      .out = argv[3],
                                      .dtype = dtype_of(argv[4]),
                                      .stop = is_interrupted};
    struct rewrite_result done;
    struct err err;
    char text[64];
    hold_signals();
    const int r = merge_run(&req, &done, &err);
    if (r)
        return fail(r, &err);
    snprintf(text, sizeof text, "%zu linears changed, ", done.changed);
    return say(req.out, "linears", done.changed, text, &done, !strcmp(argv[5], "json"));
}

int stage_convert_main(int argc, char **argv)
{
    if (argc != 8)
        return WRONG_USE;
    const struct convert_request req = {.model = argv[1],
                                        .out = argv[2],
                                        .dtype = dtype_of(argv[3]),
                                        .bits = strtoull(argv[4], NULL, 10),
                                        .group = strtoull(argv[5], NULL, 10),
                                        .shard_bytes = strtoull(argv[6], NULL, 10),
                                        .stop = is_interrupted};
    struct rewrite_result done;
    struct err err;
    char text[64] = "";
    hold_signals();
    const int r = convert_run(&req, &done, &err);
    if (r)
        return fail(r, &err);
    if (req.bits)
        snprintf(text, sizeof text, "%zu matrices of %zu bits, ", done.quantized, req.bits);
    return say(req.out, "quantized", done.quantized, text, &done, !strcmp(argv[7], "json"));
}
