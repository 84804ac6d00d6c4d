/* SPDX-License-Identifier: MIT
 *
 * Plans for tests: compiled, and a rank's tasks in one line. */
#ifndef TESTS_PLAN_TEXT_H
#define TESTS_PLAN_TEXT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "pipe/plan.h"

static inline struct plan *compile(const struct plan_request *req)
{
    struct plan *plan = NULL;
    struct err err = {0};
    if (plan_compile(&plan, req, &err) < 0)
        fail_msg("%s", err.text);
    return plan;
}

/* A rank's tasks in one line: slot after the name, "<" needs with the sender, ">" emits with the
 * receiver. */
static inline void describe(char *text, size_t n, const struct plan *plan, uint32_t rank)
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t k = 0; k < plan->rank[rank].n; k++) {
        const struct task *task = &plan->rank[rank].tasks[k];
        char name[24];
        used += (size_t)snprintf(text + used, n - used, "%s%s", k ? "; " : "",
                                 task_name(name, sizeof name, task));
        if (task->slot != SLOT_NONE)
            used += (size_t)snprintf(text + used, n - used, "%s%u%s", task->first_use ? "[" : "|", task->slot,
                                     task->last_use ? "]" : "|");
        for (uint32_t i = 0; i < task->nneeds; i++)
            used +=
                (size_t)snprintf(text + used, n - used, " <%s@%u.%u", msg_kind_name(task->needs[i].key.kind),
                                 task->needs[i].from, task->needs[i].key.mb);
        for (uint32_t i = 0; i < task->nemits; i++)
            used +=
                (size_t)snprintf(text + used, n - used, " >%s@%u.%u", msg_kind_name(task->emits[i].key.kind),
                                 task->emits[i].to, task->emits[i].key.mb);
        assert_true(used < n);
    }
}

static inline void assert_rank(const struct plan *plan, uint32_t rank, const char *wanted)
{
    char text[4096];
    describe(text, sizeof text, plan, rank);
    assert_string_equal(text, wanted);
}

#endif
