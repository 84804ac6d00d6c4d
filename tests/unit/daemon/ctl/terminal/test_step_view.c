/* SPDX-License-Identifier: MIT
 *
 * A step as ringctl trace and gantt show it: read from the daemon's answer, as a trace, as text and
 * as SVG. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ctl/terminal/step_chart.h"
#include "daemon/ctl/terminal/step_trace.h"

/* Two nodes with a stage each, one microbatch: forward, forward, backward, backward; the second
 * node stands still before each. */
static const char two[] =
    "{'id':7,'step':12,'schedule':'1f1b','microbatches':1,'begin_us':5000000,'seconds':0.1,'bubble':0.5,'"
    "planned_seconds':0.08,"
    "'planned_bubble':0.4,'ranks':[{'rank':0,'node':'a<&>','offset_us':0,'offset_error_us':0,'tasks':"
    "[['F',0,0.0,0.02,0.0,'',-1,0,4096],['B',0,0.07,0.1,0.02,'gradient',1,0,0]],"
    "'planned':[['F',0,0.0,0.02],['B',0,0.05,0.08]]},"
    "{'rank':1,'node':'b','offset_us':null,'offset_error_us':null,'tasks':"
    "[['F',0,0.03,0.05,0.03,'activations',0,1,0],['B',0,0.05,0.06,0.0,'',-1,1,4096],"
    "['norm',-1,0.06,0.065,0.002,'',-1,1,16]],"
    "'planned':[['F',0,0.02,0.04],['B',0,0.04,0.05],['norm',-1,0.05,0.055]]}]}";

/* Without a plan, and from a daemon that tells neither stages nor bytes. */
static const char bare[] =
    "{'id':7,'step':12,'schedule':'1f1b','microbatches':1,'begin_us':5000000,'seconds':0.1,'bubble':0.5,'"
    "planned_seconds':null,"
    "'planned_bubble':null,'ranks':[{'rank':0,'node':'a','offset_us':0,'offset_error_us':0,'tasks':"
    "[['F',0,0.0,0.02,0.0,'',-1],['B',0,0.07,0.1,0.05,'gradient',1]],'planned':[]}]}";

static json_t *parse(const char *text)
{
    char *copy = strdup(text);
    for (char *c = copy; *c; c++)
        *c = *c == '\'' ? '"' : *c;
    json_t *json = json_loads(copy, 0, NULL);
    free(copy);
    assert_non_null(json);
    return json;
}

static struct step_view *view_of(const char *text)
{
    struct step_view *v = NULL;
    struct err err;
    json_t *json = parse(text);
    int rc = step_view_read(&v, json, &err);
    json_decref(json);
    if (rc)
        fail_msg("%s", err.text);
    return v;
}

/* Events of that phase, in that thread (0 = any). */
static size_t count(const json_t *trace, const char *phase, int thread)
{
    size_t i, n = 0;
    json_t *e;
    json_array_foreach (json_object_get(trace, "traceEvents"), i, e)
        n += !strcmp(json_string_value(json_object_get(e, "ph")), phase) &&
             (!thread || json_integer_value(json_object_get(e, "tid")) == thread);
    return n;
}

static void a_trace_has_every_task_wait_and_message(void **state)
{
    (void)state;
    struct step_view *v = view_of(two);
    json_t *trace = step_trace(v);
    assert_non_null(trace);
    assert_int_equal(count(trace, "X", 1), 5 + 3); /* tasks, waits */
    assert_int_equal(count(trace, "X", 2), 5);
    assert_int_equal(count(trace, "s", 0), 2);
    assert_int_equal(count(trace, "f", 0), 2);
    assert_int_equal(count(trace, "C", 0), 3);
    assert_int_equal(count(trace, "M", 0), 2 * 4);
    size_t i, seen = 0;
    json_t *e;
    json_array_foreach (json_object_get(trace, "traceEvents"), i, e) {
        const char *name = json_string_value(json_object_get(e, "name"));
        if (!strcmp(name, "waits for activations of a<&>")) {
            seen++;
            assert_int_equal(json_integer_value(json_object_get(e, "pid")), 1);
            assert_true(json_real_value(json_object_get(e, "ts")) == 0);
            assert_float_equal(json_real_value(json_object_get(e, "dur")), 30000, 1e-6);
        }
        seen += !strcmp(name, "1B0") && json_integer_value(json_object_get(e, "tid")) == 1;
    }
    assert_int_equal(seen, 2);
    const json_t *clocks = json_object_get(json_object_get(trace, "otherData"), "clock_error_seconds");
    assert_true(json_is_null(json_object_get(clocks, "b")));
    json_decref(trace);
    step_view_free(v);
}

static void waits_are_summed_and_sorted(void **state)
{
    (void)state;
    struct step_view *v = view_of(two);
    struct step_wait waits[8];
    assert_int_equal(step_view_waits(v, waits, 8), 3);
    assert_string_equal(waits[0].message, "activations");
    assert_int_equal(waits[0].rank, 1);
    assert_float_equal(waits[1].seconds, 0.02, 1e-12);
    assert_int_equal(waits[2].from, -1);
    assert_int_equal(step_view_waits(v, waits, 1), 1);
    step_view_free(v);
}

static char *chart(const char *text, size_t width)
{
    char *out = NULL;
    size_t size;
    struct step_view *v = view_of(text);
    FILE *to = open_memstream(&out, &size);
    if (width)
        step_chart_text(to, v, width, false);
    else
        step_chart_svg(to, v);
    fclose(to);
    step_view_free(v);
    return out;
}

static void has(const char *out, const char *part)
{
    if (!strstr(out, part))
        fail_msg("nothing like \"%s\" in:\n%s", part, out);
}

static void a_chart_has_planned_over_done(void **state)
{
    (void)state;
    char *out = chart(two, 4 + 9 + 20); /* a column is 5 ms */
    has(out,
        "job 7, step 12, 1f1b, 1 microbatches: took 100 ms, bubble 50.0 %; planned 80 ms, bubble 40.0 %\n");
    has(out, "a<&> planned F0--......B0----....\n");
    has(out, "     done    F0--..........B0----\n");
    has(out, "b    planned ....F0--B0n.........\n");
    has(out, "     done    ......F0--B0n.......\n");
    has(out, "a<&> stood still for 20 ms, waiting for gradient of b\n");
    has(out, "b stood still for 2 ms\n");
    has(out, "the clock of b is not known");
    free(out);
    out = chart(bare, 40);
    has(out, "no plan of this step can be shown\n");
    assert_null(strstr(out, "planned "));
    free(out);
}

static void an_svg_is_closed_and_escaped(void **state)
{
    (void)state;
    char *out = chart(two, 0);
    has(out, "a&lt;&amp;&gt;");
    assert_null(strstr(out, "a<&>"));
    has(out, "B of microbatch 0, stage 1: 10 ms at 50 ms");
    has(out, "waits 30 ms for activations of a&lt;&amp;&gt;");
    assert_string_equal(out + strlen(out) - strlen("</svg>\n"), "</svg>\n");
    free(out);
}

/* Two stages on one node, the first and the last of four. */
static const char chunks[] =
    "{'id':7,'step':1,'schedule':'v-1f1b','microbatches':1,'begin_us':5000000,'seconds':0.04,'bubble':0.0,'"
    "planned_seconds':0."
    "04,"
    "'planned_bubble':0.0,'ranks':[{'rank':0,'node':'a','offset_us':0,'offset_error_us':0,'tasks':"
    "[['F',0,0.0,0.01,0.0,'',-1,0,0],['F',0,0.01,0.02,0.0,'',-1,3,0],['B',0,0.02,0.03,0.0,'',-1,3,0],"
    "['B',0,0.03,0.04,0.0,'',-1,0,0]],'planned':[['F',0,0.0,0.01],['F',0,0.01,0.02],['B',0,0.02,0.03],"
    "['B',0,0.03,0.04]]}]}";

static void stages_of_a_node_are_told_apart(void **state)
{
    (void)state;
    char *out = chart(chunks, 4 + 9 + 20);
    has(out, "     done    F0---f0---b0---B0---\n");
    has(out, "stages: a 0 and 3; every second stage of a node is in lower case\n");
    free(out);
    out = chart(chunks, 0);
    has(out, ">0F0</text>");
    has(out, ">3B0</text>");
    has(out, "fill=\"#4e79a7\"><title>F of microbatch 0, stage 0");
    has(out, "fill=\"#2f4964\"><title>F of microbatch 0, stage 3");
    has(out, "stages: a 0 and 3; the later one of a node is the darker");
    free(out);
    out = chart(two, 0);
    assert_null(strstr(out, "stages: "));
    has(out, ">F0</text>");
    free(out);
}

static void nonsense_is_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "{}",
        "{'id':7,'step':1,'microbatches':1,'begin_us':5000000,'seconds':1,'bubble':0,'ranks':[]}",
        "{'id':7,'step':1,'microbatches':1,'begin_us':5000000,'seconds':1,'bubble':0,'ranks':[{'tasks':[]}]}",
        "{'id':7,'step':1,'microbatches':1,'begin_us':5000000,'seconds':1,'bubble':0,'ranks':[{'tasks':[['F',"
        "0,2,1,0,'',-1]]}]}",
        "{'id':7,'step':1,'microbatches':1,'begin_us':5000000,'seconds':1,'bubble':0,'ranks':[{'tasks':[[1,0,"
        "1,2,0,'',-1]]}]}",
        "{'id':7,'step':'1','microbatches':1,'begin_us':5000000,'seconds':1,'bubble':0,'ranks':[{'tasks':[['"
        "F',0,1,2,0,'',-1]]}]"
        "}",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct step_view *v = NULL;
        struct err err;
        json_t *json = parse(wrong[i]);
        if (step_view_read(&v, json, &err) != -EBADMSG)
            fail_msg("taken: %s", wrong[i]);
        json_decref(json);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_trace_has_every_task_wait_and_message),
        cmocka_unit_test(waits_are_summed_and_sorted),
        cmocka_unit_test(a_chart_has_planned_over_done),
        cmocka_unit_test(an_svg_is_closed_and_escaped),
        cmocka_unit_test(stages_of_a_node_are_told_apart),
        cmocka_unit_test(nonsense_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
