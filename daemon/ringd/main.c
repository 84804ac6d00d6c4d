/* SPDX-License-Identifier: MIT
 *
 * ringd: options, one node, the loop. */
#include <jansson.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/conf.h"
#include "daemon/common/fds.h"
#include "daemon/ringd/log.h"
#include "daemon/ringd/node.h"

/* Messages hold what makes a token good, and answers tokens: nothing of them stays where it was. */
static void wipe_and_free(void *p)
{
    if (p)
        explicit_bzero(p, malloc_usable_size(p));
    free(p);
}

static int usage(void)
{
    puts("usage: ringd [OPTIONS]\n\n"
         "One node of a ring that fine-tunes and runs language models. Talk to it with ringctl(1).\n");
    opts_help(conf_table, stdout);
    return 0;
}

int main(int argc, char **argv)
{
    struct opts *opts = NULL;
    struct node *node = NULL;
    struct err err = {""};
    bool help = false;
    signal(SIGPIPE, SIG_IGN);
    json_set_alloc_funcs(malloc, wipe_and_free);
    mallopt(M_ARENA_MAX, 1); /* the threads mostly wait, and memory that one gives back serves all */
    /* Else the first large block that is freed raises this bound. The buffers of connections would
     * then lie in the heap, which gives little back after a job. */
    mallopt(M_MMAP_THRESHOLD, 128 << 10);
    int r = conf_load(&opts, argc, argv, &help, &err);
    if (!r && help) {
        opts_free(opts);
        return usage();
    }
    if (r) {
        log_error("ringd: %s", err.text);
        opts_free(opts);
        return 2;
    }
    log_set_level(opts_str(opts, "log-level"));
    char note[256];
    r = fds_raise(note, &err);
    if (!r && *note)
        log_warning("%s", note);
    r = r ? r : node_open(&node, opts, argc, argv, &err);
    if (r)
        log_error("ringd: %s", err.text);
    else
        r = node_run(node);
    node_close(node);
    opts_free(opts);
    return r < 0;
}
