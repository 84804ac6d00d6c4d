/* SPDX-License-Identifier: MIT
 *
 * The commands about this node and the others that ask once and print: status, nodes. */
#include <stdio.h>
#include <string.h>

#include "daemon/ctl/ctl.h"
#include "daemon/ctl/ctl_client.h"
#include "daemon/ctl/terminal/ctl_print.h"
#include "daemon/ctl/terminal/ctl_table.h"

/* --- status --- */

/* The jobs of this node by their numbers, then those of other heads by their names. */
static void print_jobs_in_hand(const char *what, const json_t *jobs, const char *key, bool if_any)
{
    const json_t *numbers = json_object_get(jobs, key),
                 *names = json_object_get(json_object_get(jobs, "elsewhere"), key);
    const size_t n = json_array_size(numbers) + json_array_size(names);
    size_t i;
    json_t *job;
    if (if_any && !n)
        return;
    printf("%s%zu%s", what, n, n ? " (" : "");
    json_array_foreach (numbers, i, job)
        printf("%s%" JSON_INTEGER_FORMAT, i ? ", " : "", json_integer_value(job));
    json_array_foreach (names, i, job)
        printf("%s%s", i || json_array_size(numbers) ? ", " : "", json_string_value(job));
    if (n)
        putchar(')');
}

static void print_status(const json_t *s)
{
    const json_t *node = json_object_get(s, "node"), *ring = json_object_get(s, "ring"),
                 *jobs = json_object_get(s, "jobs");
    const json_t *trouble = json_object_get(s, "trouble");
    size_t i;
    json_t *sentence;
    printf("node   %s, ringd %s, threads %.0f, kernels %s, %s of %s memory free\n",
           field_text(node, "name", "?"), field_text(s, "version", "?"), field_number(node, "threads"),
           field_text(node, "kernels", "?"), print_bytes(field_number(node, "memory_available")).text,
           print_bytes(field_number(node, "memory_total")).text);
    printf("ring   %s\n", field_text(ring, "text", field_text(ring, "state", "?")));
    print_jobs_in_hand("jobs   running ", jobs, "running", false);
    print_jobs_in_hand(", waiting ", jobs, "queued", false);
    print_jobs_in_hand(", paused ", jobs, "paused", true);
    putchar('\n');
    json_array_foreach (trouble, i, sentence)
        print_trouble(stdout, "TROUBLE", json_string_value(sentence));
}

int ctl_status_main(struct ctl *ctl)
{
    int rc = ctl_no_args(ctl);
    return rc ? rc : ctl_request_print(ctl, "GET", "/v1/status", NULL, print_status);
}

/* --- nodes --- */

/* A node that holds several stages has a line for each. */
static void print_nodes(const json_t *answer)
{
    struct table *t = table_new("NODE\tSTATE\tADDRESS\tTHREADS\tMEMORY FREE\tJOB\tRANK\tDOING");
    size_t i, k;
    json_t *n, *more;
    json_array_foreach (json_object_get(answer, "nodes"), i, n) {
        char work[600];
        const json_t *stages = json_object_get(n, "stages");
        const bool is_drained = *field_text(n, "drained", "") && !strcmp(field_text(n, "state", ""), "up");
        print_work(work, sizeof work, json_array_get(stages, 0), n);
        table_add(t, "%s%s\t%s\t%s\t%.0f\t%s of %s\t%s", field_text(n, "name", "?"),
                  json_is_true(json_object_get(n, "self")) ? " (this)" : "",
                  is_drained ? "drained" : field_text(n, "state", "?"), field_text(n, "address", "-"),
                  field_number(n, "threads"), print_bytes(field_number(n, "memory_available")).text,
                  print_bytes(field_number(n, "memory_total")).text, work);
        json_array_foreach (stages, k, more) {
            print_work(work, sizeof work, more, more);
            if (k)
                table_add(t, "\t\t\t\t\t%s", work);
        }
    }
    table_print_free(t, stdout);
}

int ctl_nodes_main(struct ctl *ctl)
{
    int rc = ctl_no_args(ctl);
    return rc ? rc : ctl_request_print(ctl, "GET", "/v1/nodes", NULL, print_nodes);
}
