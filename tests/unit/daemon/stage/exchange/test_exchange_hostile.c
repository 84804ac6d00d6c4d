/* SPDX-License-Identifier: MIT
 *
 * A hostile member at the other end of a lane: it has the keys, seals what it likes, and nothing of
 * that has an effect but the end of its lane, with a sentence. So it is whether receivers read, or
 * the compute thread in their place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "daemon/stage/exchange/exchange_impl.h"
#include "daemon/common/progress.h"

enum { ROOM = 100, GUARD_S = 20 };
static const char forged[] = "a record was forged or damaged on the way",
                  unknown[] = "it sent a message that the plan does not know";

struct hostile {
    bool attended; /* the compute thread reads */
    struct progress progress;
    struct exchange *x; /* rank 0, which has posted ROOM bytes of microbatch 0 */
    int fd;             /* of rank 1 */
    struct seal tx;     /* of rank 1 */
    sem_t lost;
    char why[128];
};

static void on_lost(void *owner, uint32_t rank, uint64_t path, const char *why)
{
    struct hostile *h = owner;
    (void)path;
    assert_int_equal(rank, 1);
    snprintf(h->why, sizeof h->why, "%s", why);
    sem_post(&h->lost);
}

static struct msg_key key_of(uint32_t mb)
{
    return (struct msg_key){7, MSG_ACT, 1, mb};
}

/* Until the compute thread alone reads. */
static void attend(struct hostile *h)
{
    const struct msg_key key = key_of(0);
    struct lane *l = &h->x->neighbors[0].lanes[0];
    for (unsigned readers = 1; readers;) {
        assert_int_equal(exchange_attend(h->x, 1), 0);
        assert_false(exchange_ready(h->x, 1, &key));
        pthread_mutex_lock(&h->x->lock);
        readers = l->readers;
        pthread_mutex_unlock(&h->x->lock);
        if (readers)
            exchange_wait(h->x);
    }
}

/* What was said is read by now. */
static void hear(struct hostile *h)
{
    const struct msg_key key = key_of(0);
    if (h->attended)
        exchange_ready(h->x, 1, &key);
}

static void begin(struct hostile *h, void **state)
{
    const struct msg_key key = key_of(0);
    const uint8_t out[32] = {1}, back[32] = {2};
    struct seal tx, rx;
    struct err err = {""};
    int fd[2];
    *h = (struct hostile){.attended = *state};
    sem_init(&h->lost, 0, 0);
    seal_init(&tx, out, SEAL_CHACHA20_POLY1305);
    seal_init(&rx, back, SEAL_CHACHA20_POLY1305);
    seal_init(&h->tx, back, SEAL_CHACHA20_POLY1305);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    h->fd = fd[1];
    assert_int_equal(exchange_new(&h->x, &h->progress, &err), 0);
    exchange_on_lost(h->x, on_lost, h);
    assert_int_equal(exchange_add(h->x, 1, 1, fd[0], &tx, &rx, &err), 0);
    assert_int_equal(exchange_post(h->x, 1, &key, ROOM, false), 0);
    if (h->attended)
        attend(h);
}

static void give(struct hostile *h, const void *bytes, size_t n)
{
    assert_int_equal(send(h->fd, bytes, n, MSG_NOSIGNAL), n);
}

/* So many heads in one record; its bytes as they travel. */
static size_t seal_heads(struct hostile *h, const struct lane_frame *f, size_t n,
                         uint8_t out[SEAL_HEAD + BATCH * HEAD + SEAL_TAG])
{
    uint8_t plain[BATCH * HEAD];
    for (size_t i = 0; i < n; i++)
        frame_encode(plain + i * HEAD, &f[i]);
    assert_int_equal(seal_seal(&h->tx, out, plain, n * HEAD), 0);
    return SEAL_HEAD + n * HEAD + SEAL_TAG;
}

static void say(struct hostile *h, const struct lane_frame *f, size_t n)
{
    uint8_t record[SEAL_HEAD + BATCH * HEAD + SEAL_TAG];
    give(h, record, seal_heads(h, f, n, record));
}

static void say_payload(struct hostile *h, size_t n)
{
    uint8_t record[SEAL_HEAD + 2 * ROOM + SEAL_TAG], plain[2 * ROOM] = {3};
    assert_int_equal(seal_seal(&h->tx, record, plain, n), 0);
    give(h, record, SEAL_HEAD + n + SEAL_TAG);
}

/* The lane ends so, and what was posted has not come. */
static void end_with(struct hostile *h, const char *why)
{
    const struct msg_key key = key_of(0);
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += GUARD_S;
    hear(h);
    if (sem_timedwait(&h->lost, &until))
        fail_msg("the lane still stands, and should have ended: %s", why);
    assert_string_equal(h->why, why);
    assert_false(exchange_ready(h->x, 1, &key));
    exchange_free(h->x);
    close(h->fd);
    sem_destroy(&h->lost);
}

static struct lane_frame chunk(uint32_t mb, uint64_t size, uint64_t offset)
{
    return (struct lane_frame){.type = FRAME_CHUNK, .key = key_of(mb), .size = size, .offset = offset};
}

static void frames_that_no_plan_has(void **state)
{
    static const struct {
        uint32_t mb;
        uint64_t size, offset;
        const char *why;
    } wrong[] = {{1, ROOM, 0, unknown},             /* another message */
                 {0, ROOM + 1, 0, unknown},         /* longer, */
                 {0, ROOM - 1, 0, unknown},         /* shorter, */
                 {0, UINT64_MAX, 0, unknown},       /* endless */
                 {0, ROOM, 1, forged},              /* no chunk begins there */
                 {0, ROOM, EXCHANGE_CHUNK, forged}, /* behind its end */
                 {0, UINT64_MAX, UINT64_MAX - EXCHANGE_CHUNK + 1, unknown}};
    struct hostile h;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const struct lane_frame f = chunk(wrong[i].mb, wrong[i].size, wrong[i].offset);
        begin(&h, state);
        say(&h, &f, 1);
        end_with(&h, wrong[i].why);
    }
}

static void frames_of_no_kind(void **state)
{
    struct hostile h;
    for (unsigned type = 0; type < 256; type++) {
        const struct lane_frame f = {.type = type, .key = key_of(0)};
        if (type >= FRAME_CREDIT && type <= FRAME_ACK)
            continue;
        begin(&h, state); /* a change of keys says nothing else */
        say(&h, &f, 1);
        end_with(&h, forged);
    }
    const struct lane_frame two[] = {chunk(0, ROOM, 0), {.type = FRAME_CREDIT, .key = key_of(5)}};
    begin(&h, state);
    say(&h, two, 2); /* a chunk is the last of its record */
    end_with(&h, forged);
}

static void payloads_of_another_length(void **state)
{
    static const size_t lengths[] = {1, ROOM - 1, ROOM + 1, 2 * ROOM};
    const struct lane_frame f = chunk(0, ROOM, 0);
    struct hostile h;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        begin(&h, state);
        say(&h, &f, 1);
        say_payload(&h, lengths[i]);
        shutdown(h.fd, SHUT_WR); /* what is missing of a short one would be waited for */
        end_with(&h, lengths[i] < ROOM ? "closed by the other end" : forged);
    }
}

static void records_that_were_changed_cut_or_repeated(void **state)
{
    const struct lane_frame f = {.type = FRAME_ACK, .key = key_of(0)};
    uint8_t record[SEAL_HEAD + BATCH * HEAD + SEAL_TAG];
    struct hostile h;
    for (size_t bit = 8 * SEAL_HEAD; bit < 8 * (SEAL_HEAD + HEAD + SEAL_TAG); bit++) {
        begin(&h, state);
        const size_t n = seal_heads(&h, &f, 1, record);
        record[bit / 8] ^= (uint8_t)(1 << bit % 8);
        give(&h, record, n);
        end_with(&h, forged);
    }
    for (size_t cut = 1; cut < SEAL_HEAD + HEAD + SEAL_TAG; cut++) {
        begin(&h, state);
        seal_heads(&h, &f, 1, record);
        give(&h, record, cut);
        shutdown(h.fd, SHUT_WR);
        end_with(&h, "closed by the other end");
    }
    begin(&h, state);
    const size_t n = seal_heads(&h, &f, 1, record);
    give(&h, record, n);
    give(&h, record, n);
    end_with(&h, forged);
}

/* Acknowledgements of what nobody sends, credits said again: and then all goes on. */
static void what_means_nothing_changes_nothing(void **state)
{
    struct lane_frame f[BATCH];
    const struct msg_key key = key_of(0);
    struct hostile h;
    begin(&h, state);
    for (uint32_t i = 0; i < BATCH; i++)
        f[i] = (struct lane_frame){.type = i % 2 ? FRAME_ACK : FRAME_CREDIT,
                                   .key = key_of(i % 2 ? i : 3),
                                   .size = UINT64_MAX,
                                   .offset = i % 2 ? EXCHANGE_CHUNK * UINT64_C(1000000) : 0};
    for (int i = 0; i < 100; i++)
        say(&h, f, BATCH);
    const struct lane_frame good = chunk(0, ROOM, 0);
    say(&h, &good, 1);
    say_payload(&h, ROOM);
    while (!exchange_ready(h.x, 1, &key))
        exchange_wait(h.x);
    exchange_free(h.x);
    close(h.fd);
    sem_destroy(&h.lost);
}

static void credits_have_a_cap(void **state)
{
    struct lane_frame f[BATCH];
    struct hostile h;
    uint32_t mb = 0;
    begin(&h, state);
    for (size_t i = 0; i < MAX_CREDITS / BATCH; i++) {
        for (size_t k = 0; k < BATCH; k++)
            f[k] = (struct lane_frame){.type = FRAME_CREDIT, .key = key_of(mb++)};
        say(&h, f, BATCH);
        hear(&h);
    }
    say(&h, f, BATCH); /* those are known */
    f[0].key = key_of(mb);
    say(&h, f, 1);
    end_with(&h, "it says that it has room for more messages than any plan sends");
}

int main(void)
{
    static char attended[] = "attended";
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_that_no_plan_has),
        cmocka_unit_test(frames_of_no_kind),
        cmocka_unit_test(payloads_of_another_length),
        cmocka_unit_test(records_that_were_changed_cut_or_repeated),
        cmocka_unit_test(what_means_nothing_changes_nothing),
        cmocka_unit_test(credits_have_a_cap),
        cmocka_unit_test_prestate(frames_that_no_plan_has, attended),
        cmocka_unit_test_prestate(frames_of_no_kind, attended),
        cmocka_unit_test_prestate(payloads_of_another_length, attended),
        cmocka_unit_test_prestate(records_that_were_changed_cut_or_repeated, attended),
        cmocka_unit_test_prestate(what_means_nothing_changes_nothing, attended),
        cmocka_unit_test_prestate(credits_have_a_cap, attended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
