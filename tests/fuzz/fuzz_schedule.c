/* SPDX-License-Identifier: MIT
 *
 * A schedule as its user wrote it: refused with a sentence, or one that can be written down and
 * read again as the same; and checked, simulated and compiled without harm, whatever it says. */
#include "tests/fuzz/lib/input.h"

#include "engine/pipe/plan.h"
#include "engine/pipe/sched_text.h"

static char *write_down(const struct sched *sched)
{
    char *text = NULL;
    size_t n;
    struct err err;
    FILE *to = open_memstream(&text, &n);
    expect(to && sched_write(to, sched, false, &err) == 0);
    fclose(to);
    return text;
}

static void run(const struct sched *sched)
{
    struct plan *plan = NULL;
    struct err err = {""};
    struct plan_request req = {.program = PROGRAM_TRAIN, .sched = sched};
    if (plan_compile(&plan, &req, &err) == 0)
        expect(plan->rank[0].credits >= 1 && plan->rank[0].credits_fast > plan->rank[0].credits);
    else
        expect(err.text[0] != '\0');
    plan_free(plan);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct err err = {""};
    struct sched *sched = NULL, *back = NULL;
    char *text = strndup((const char *)data, n);
    expect(text != NULL);
    if (sched_read(&sched, text, &err) == 0) {
        char *first = write_down(sched);
        expect(sched_read(&back, first, &err) == 0);
        expect(back->stages == sched->stages && back->ranks == sched->ranks &&
               back->microbatches == sched->microbatches);
        char *second = write_down(back);
        expect(!strcmp(first, second));
        run(sched);
        free(first);
        free(second);
        sched_free(back);
        sched_free(sched);
    } else {
        expect(err.text[0] != '\0');
    }
    free(text);
    return 0;
}
