/* SPDX-License-Identifier: MIT
 *
 * ringd-stage, started by ringctl merge and not by a daemon: puts an adapter into its model and
 * ends. One thread. */
#include "daemon/stage/stage_merge.h"

#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "engine/model/merge.h"

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

static void say_json(const struct merge_request *req, const struct merge_result *done)
{
    json_t *json = json_pack("{s:s s:I s:I s:I}", "out", req->out, "linears", (json_int_t)done->linears,
                             "files", (json_int_t)done->files, "bytes", (json_int_t)done->bytes);
    json_dumpf(json, stdout, JSON_COMPACT);
    putchar('\n');
    json_decref(json);
}

int stage_merge_main(int argc, char **argv)
{
    if (argc != 6)
        return WRONG_USE;
    struct merge_request req = {
        .model = argv[1], .adapter = argv[2], .out = argv[3], .dtype = DTYPE_COUNT, .stop = is_interrupted};
    const char *dtype = argv[4];
    struct merge_result done;
    struct err err;
    sigset_t mask;
    if (strcmp(dtype, "stored"))
        req.dtype = !strcmp(dtype, "f32") ? DTYPE_F32 : !strcmp(dtype, "f16") ? DTYPE_F16 : DTYPE_BF16;
    sigemptyset(&mask);
    sigaddset(&mask, SIGINT);
    sigaddset(&mask, SIGTERM);
    sigprocmask(SIG_BLOCK, &mask, NULL);
    int r = merge_run(&req, &done, &err);
    if (r) {
        fprintf(stderr, "ringctl: %s\n", err.text);
        return r == -ECANCELED ? INTERRUPTED : FAILED;
    }
    if (!strcmp(argv[5], "json"))
        say_json(&req, &done);
    else
        printf("%s: %zu linears changed, %zu file%s of weights, %.1f MiB\n", req.out, done.linears,
               done.files, done.files == 1 ? "" : "s", (double)done.bytes / (1 << 20));
    return fflush(stdout) ? FAILED : DONE;
}
