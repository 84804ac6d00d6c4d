/* SPDX-License-Identifier: MIT
 *
 * Adapters on their way from a training to a deployment: what was offered comes, whatever was saved
 * meanwhile; what a deployment reads no more goes, and nothing else does. Two nodes in one
 * process. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/common/xalloc.h"
#include "daemon/ringd/aside.h"
#include "daemon/ringd/job/deputy/parts.h"
#include "daemon/ringd/job/offers/arrivals.h"
#include "daemon/ringd/job/offers/offers.h"
#include "daemon/ringd/mailbox.h"
#include "daemon/ringd/timer.h"

enum { GUARD_MS = 60000, DEPLOYMENT = 4, TRAINING = 9 };
static const uint8_t trains[16] = {1}, serves[16] = {2};

struct world {
    struct event_base *base;
    struct mailbox *mailbox;
    struct aside *aside;
    struct parts *parts;
    struct offers *offers;
    struct arrivals *arrivals;
    struct timer *guard;
    char dir[64];
    bool is_busy, is_away, is_spoiled; /* the deployment is; its node; the list of files */
    unsigned placed, told;
    char name[80], folder[300], why[400];
    uint64_t step;
};

static int send_message(void *owner, const uint8_t to[16], json_t *message)
{
    struct world *w = owner;
    const char *kind = json_string_value(json_object_get(message, "kind"));
    const uint8_t *from = to[0] == trains[0] ? serves : trains;
    if (w->is_away) {
        json_decref(message);
        return -ENOTCONN;
    }
    if (w->is_spoiled)
        json_object_set_new(json_array_get(json_object_get(message, "files"), 0), "path",
                            json_string("other.json"));
    if (!strcmp(kind, "adapter-offered"))
        arrivals_take_offer(w->arrivals, w->parts, from, message);
    else if (!strcmp(kind, "adapter-answer"))
        offers_take_answer(w->offers, from, message);
    else if (!strcmp(kind, "part-ask"))
        parts_take_ask(w->parts, from, message);
    else
        parts_take_told(w->parts, from, message);
    json_decref(message);
    return 0;
}

static struct file_set *files_for(void *owner, const uint8_t to[16], uint64_t number)
{
    const struct world *w = owner;
    assert_null(offers_files(w->offers, trains, number)); /* it was offered to another node */
    return offers_files(w->offers, to, number);
}

static void on_told(void *owner, uint64_t job, uint64_t step, const char *why)
{
    struct world *w = owner;
    assert_int_equal(job, TRAINING);
    w->told++;
    w->step = step;
    snprintf(w->why, sizeof w->why, "%s", why ? why : "");
}

static int place(void *owner, uint64_t job, const char *name, const char *folder, struct err *err)
{
    struct world *w = owner;
    if (w->is_busy)
        return -EAGAIN;
    if (job != DEPLOYMENT)
        return err_set(err, -ENOENT, "there is no such job");
    w->placed++;
    snprintf(w->name, sizeof w->name, "%s", name);
    snprintf(w->folder, sizeof w->folder, "%s", folder);
    return 0;
}

static void on_guard(void *owner)
{
    (void)owner;
    fail_msg("what was waited for does not come");
}

static int set_up(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    strcpy(w->dir, "/tmp/ringd-offers-XXXXXX");
    assert_non_null(mkdtemp(w->dir));
    w->base = event_base_new();
    assert_int_equal(mailbox_new(&w->mailbox, w->base), 0);
    w->aside = aside_new(w->mailbox);
    w->guard = timer_new(w->base, on_guard, w);
    timer_set_ms(w->guard, GUARD_MS);
    w->parts = parts_new(&(struct parts_setup){
        .base = w->base, .aside = w->aside, .send = send_message, .files = files_for, .owner = w});
    w->offers = offers_new(&(struct offers_setup){
        .base = w->base, .aside = w->aside, .send = send_message, .done = on_told, .owner = w});
    w->arrivals = arrivals_new(&(struct arrivals_setup){.base = w->base,
                                                        .aside = w->aside,
                                                        .state_dir = w->dir,
                                                        .send = send_message,
                                                        .place = place,
                                                        .owner = w});
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    char command[100];
    offers_free(w->offers);
    arrivals_free(w->arrivals);
    parts_free(w->parts);
    aside_free(w->aside);
    timer_free(w->guard);
    mailbox_free(w->mailbox);
    event_base_free(w->base);
    snprintf(command, sizeof command, "rm -rf %s", w->dir);
    assert_int_equal(system(command), 0);
    free(w);
    return 0;
}

static void put(const char *folder, const char *name, const char *text)
{
    char *path = xasprintf("%s/%s", folder, name), *tmp = xasprintf("%s.tmp", path);
    mkdir(folder, 0777);
    FILE *f = fopen(tmp, "w");
    assert_true(f && fputs(text, f) >= 0 && !fclose(f) && !rename(tmp, path));
    free(path);
    free(tmp);
}

/* As a training saves it: each file is another one. */
static char *save(const struct world *w, const char *values)
{
    char *folder = xasprintf("%s/out", w->dir);
    put(folder, "adapter_config.json", "{}");
    put(folder, "adapter_model.safetensors", values);
    put(folder, "state.safetensors", "it is not served");
    return folder;
}

static bool holds(const char *folder, const char *name, const char *wanted)
{
    char *path = xasprintf("%s/%s", folder, name), text[100] = "";
    FILE *f = fopen(path, "r");
    free(path);
    if (!f)
        return false;
    assert_true(fgets(text, sizeof text, f) && !fclose(f));
    return !strcmp(text, wanted);
}

static void give(struct world *w, const char *folder, uint64_t step)
{
    offers_give(w->offers, &(struct offer_request){.to = serves,
                                                   .deployment = DEPLOYMENT,
                                                   .name = "bird",
                                                   .folder = folder,
                                                   .job = TRAINING,
                                                   .step = step});
}

static void wait_told(struct world *w, unsigned n)
{
    while (w->told < n)
        event_base_loop(w->base, EVLOOP_ONCE);
}

static void what_was_offered_comes(void **state)
{
    struct world *w = *state;
    char *out = save(w, "one");
    give(w, out, 20);
    wait_told(w, 1);
    assert_string_equal(w->why, "");
    assert_int_equal(w->step, 20);
    assert_string_equal(w->name, "bird");
    assert_true(arrivals_own(w->arrivals, w->folder) && !arrivals_own(w->arrivals, out));
    free(save(w, "two"));
    assert_true(holds(w->folder, "adapter_model.safetensors", "one"));
    assert_true(holds(w->folder, "adapter_config.json", "{}"));
    assert_false(holds(w->folder, "state.safetensors", "it is not served"));
    free(out);
}

static void it_waits_until_the_deployment_takes_it(void **state)
{
    struct world *w = *state;
    char *out = save(w, "one"), *coming = xasprintf("%s/results/.served-coming-%d-bird", w->dir, DEPLOYMENT);
    w->is_busy = true;
    give(w, out, 20);
    while (access(coming, F_OK))
        event_base_loop(w->base, EVLOOP_ONCE);
    while (!access(coming, F_OK)) /* it goes when all is here */
        event_base_loop(w->base, EVLOOP_ONCE | EVLOOP_NONBLOCK);
    free(save(w, "two"));
    give(w, out, 40); /* a newer one, while the first one waits */
    w->is_busy = false;
    arrivals_again(w->arrivals);
    wait_told(w, 1);
    while (w->step != 40)
        wait_told(w, w->told + 1);
    assert_true(holds(w->folder, "adapter_model.safetensors", "two"));
    free(out);
    free(coming);
}

static void what_cannot_be_served_is_said(void **state)
{
    struct world *w = *state;
    char *out = save(w, "one");
    give(w, "/nowhere", 1);
    wait_told(w, 1);
    assert_non_null(strstr(w->why, "/nowhere/adapter_config.json cannot be opened"));
    w->is_away = true;
    give(w, out, 2);
    wait_told(w, 2);
    assert_non_null(strstr(w->why, "cannot be reached"));
    w->is_away = false;
    w->is_spoiled = true;
    give(w, out, 3);
    wait_told(w, 3);
    assert_non_null(strstr(w->why, "not those of an adapter"));
    w->is_spoiled = false;
    offers_give(w->offers,
                &(struct offer_request){
                    .to = serves, .deployment = 77, .name = "x", .folder = out, .job = TRAINING, .step = 4});
    wait_told(w, 4);
    assert_string_equal(w->why, "there is no such job");
    assert_int_equal(w->placed, 0);
    free(out);
}

static void what_is_read_no_more_goes(void **state)
{
    struct world *w = *state;
    char *out = save(w, "one"), *first, *second;
    give(w, out, 20);
    wait_told(w, 1);
    first = xstrdup(w->folder);
    give(w, out, 40);
    wait_told(w, 2);
    second = xstrdup(w->folder);
    assert_string_not_equal(first, second);
    json_t *had = json_pack("{s:s s:s s:s}", "bird", first, "owl", out, "fox", second),
           *still = json_pack("{s:s}", "fox", second);
    arrivals_leave(w->arrivals, had, NULL, still);
    while (!access(first, F_OK))
        event_base_loop(w->base, EVLOOP_ONCE | EVLOOP_NONBLOCK);
    assert_true(holds(second, "adapter_model.safetensors", "one"));
    assert_true(holds(out, "adapter_model.safetensors", "one")); /* somebody else's */
    json_decref(had);
    json_decref(still);
    free(first);
    free(second);
    free(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_was_offered_comes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(it_waits_until_the_deployment_takes_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_cannot_be_served_is_said, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_read_no_more_goes, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
