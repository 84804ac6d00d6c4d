/* SPDX-License-Identifier: MIT */
#include "daemon/stage/plan/stage_alike.h"

#include <stdio.h>
#include <string.h>

#include "daemon/stage/stage_nodes.h"

/* --- ranks that hold the same values ---------------------------------------------------------- */

static bool has_pissa(const struct head *h)
{
    bool has = false;
    for (size_t a = 0; a < h->nadapters && !has; a++)
        has = job_plan_tune(&h->plan, a)->init == LORA_INIT_PISSA;
    return has;
}

uint32_t alike_left_out(const struct head *h, size_t copies)
{
    const struct job_spec *s = &h->spec;
    if (copies < 2 || !h->plan.training || (s->zero && s->slices < 2))
        return 0;
    return stage_nodes_apart(h->planning.nodes, !s->slices && !has_pissa(h));
}

uint32_t alike_left_out_of_slices(const struct head *h)
{
    return h->plan.training ? stage_nodes_apart(h->planning.nodes, false) : 0;
}

size_t alike_nodes(const struct head *h, size_t copies)
{
    return h->plan.ranks - (size_t)__builtin_popcount(alike_left_out(h, copies));
}

int alike_explain(const struct head *h, size_t copies, int code, struct err *err)
{
    char kernels[256];
    const struct err before = *err;
    if (!alike_left_out(h, copies))
        return code;
    stage_nodes_kernels_text(kernels, sizeof kernels, h->planning.nodes);
    return err_set(err, code,
                   "%s. Nodes that train the same values must round alike, and these do not: %s. %s",
                   before.text, kernels,
                   h->spec.full && !h->spec.slices ? "With --zero 1, or with --parallel pp=N, they need not"
                                                   : "With --parallel pp=N they need not");
}

/* --- what is said of them --------------------------------------------------------------------- */

/* A state that an earlier version saved does not say it. */
static void note_resumed(struct head *h, const char *kernels)
{
    const json_t *record = h->spec.resume ? adapter_in_record(h->adapters[0].in) : NULL;
    const char *was = json_string_value(json_object_get(record, HEAD_KERNELS));
    if (was && *was && *kernels && strcmp(was, kernels) != 0)
        stage_say(h->events,
                  "the run in %s was computed with %s so far, and goes on with %s: from here on its numbers "
                  "differ from those of a run on the same CPUs by rounding",
                  h->spec.adapter_out, was, kernels);
}

void alike_note(struct head *h)
{
    char text[512];
    struct head_planning *p = &h->planning;
    stage_nodes_kernels(p->kernels, sizeof p->kernels, p->nodes);
    note_resumed(h, p->kernels);
    if (!stage_nodes_apart(p->nodes, false))
        return;
    stage_nodes_kernels_text(text, sizeof text, p->nodes);
    stage_say(
        h->events,
        "CPUs round in unlike ways (%s): results differ by rounding from those of nodes of one kind, and "
        "the bits depend on which node has which layers",
        text);
}
