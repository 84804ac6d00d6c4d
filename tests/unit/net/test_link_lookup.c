/* SPDX-License-Identifier: MIT
 *
 * Names are looked up beside the loop: what becomes of answers, of errors, and of questions nobody
 * waits for any more. This program brings its own getaddrinfo, which answers when the test lets
 * it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <event2/event.h>
#include <netdb.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "net/link_lookup.h"

enum { DEADLINE_S = 60 };

static struct {
    sem_t may_answer, has_answered;
    pthread_t asked_by;
} resolver;

int getaddrinfo(const char *host, const char *service, const struct addrinfo *hints, struct addrinfo **ret)
{
    static const struct addrinfo one = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
    (void)hints;
    resolver.asked_by = pthread_self();
    sem_wait(&resolver.may_answer);
    int r = strcmp(host, "known.example") || strcmp(service, "17464") ? EAI_NONAME : 0;
    if (!r) {
        *ret = malloc(sizeof **ret);
        **ret = one;
    }
    sem_post(&resolver.has_answered);
    return r;
}

void freeaddrinfo(struct addrinfo *found)
{
    free(found);
}

struct asker {
    struct event_base *base;
    struct lookup *lookup;
    struct addrinfo *found;
    int dones, error;
};

static void on_done(void *owner, int error, struct addrinfo *found)
{
    struct asker *a = owner;
    a->dones++;
    a->error = error;
    a->found = found;
    lookup_free(a->lookup); /* from inside, as links do */
    a->lookup = NULL;
    event_base_loopbreak(a->base);
}

static void on_turn(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    event_base_loopbreak(arg);
}

/* One turn of the loop, or until somebody breaks it. */
static void run(struct asker *a, long seconds)
{
    struct timeval in = {seconds, 0};
    assert_int_equal(event_base_once(a->base, -1, EV_TIMEOUT, on_turn, a->base, &in), 0);
    event_base_dispatch(a->base);
}

static void ask(struct asker *a, const char *host)
{
    sem_init(&resolver.may_answer, 0, 0);
    sem_init(&resolver.has_answered, 0, 0);
    *a = (struct asker){.base = event_base_new()};
    assert_int_equal(lookup_start(&a->lookup, a->base, host, 17464, on_done, a), 0);
}

static void what_is_found_is_told_from_the_loop(void **state)
{
    struct asker a;
    (void)state;
    ask(&a, "known.example");
    run(&a, 0); /* the resolver is silent, and the loop turns all the same */
    assert_int_equal(a.dones, 0);
    sem_post(&resolver.may_answer);
    run(&a, DEADLINE_S);
    assert_int_equal(a.dones, 1);
    assert_int_equal(a.error, 0);
    assert_int_equal(a.found->ai_family, AF_INET);
    assert_false(pthread_equal(resolver.asked_by, pthread_self()));
    freeaddrinfo(a.found);
    event_base_free(a.base);
}

static void a_name_nobody_knows_is_an_error(void **state)
{
    struct asker a;
    (void)state;
    ask(&a, "nobody.example");
    sem_post(&resolver.may_answer);
    run(&a, DEADLINE_S);
    assert_int_equal(a.dones, 1);
    assert_int_equal(a.error, EAI_NONAME);
    assert_null(a.found);
    event_base_free(a.base);
}

static void a_question_given_up_is_never_answered(void **state)
{
    struct asker a;
    (void)state;
    ask(&a, "known.example");
    lookup_free(a.lookup);
    sem_post(&resolver.may_answer);
    sem_wait(&resolver.has_answered); /* what it found is freed by the thread */
    run(&a, 0);
    assert_int_equal(a.dones, 0);
    event_base_free(a.base);
}

static void a_name_too_long_is_refused_at_once(void **state)
{
    struct event_base *base = event_base_new();
    struct lookup *lookup = NULL;
    char host[300];
    (void)state;
    memset(host, 'a', sizeof host - 1);
    host[sizeof host - 1] = '\0';
    assert_int_equal(lookup_start(&lookup, base, host, 1, on_done, NULL), -ENAMETOOLONG);
    assert_null(lookup);
    event_base_free(base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_found_is_told_from_the_loop),
        cmocka_unit_test(a_name_nobody_knows_is_an_error),
        cmocka_unit_test(a_question_given_up_is_never_answered),
        cmocka_unit_test(a_name_too_long_is_refused_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
