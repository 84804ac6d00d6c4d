/* SPDX-License-Identifier: MIT */
#include "tests/lib/carry_world.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/common/ipc.h"
#include "daemon/common/model/models_dir.h"
#include "daemon/fetch/carry/carry.h"
#include "daemon/fetch/part_file.h"
#include "daemon/fetch/settle.h"

enum { MINUTE_MS = 60000, HIGH = 200 /* descriptors above those of a test */ };

/* --- the model -------------------------------------------------------------------------------- */

/* Of the world that is open; "": its nodes do not know it. */
static char known_list[DIGEST_HEX];

static const char config[] = "{\"model_type\":\"llama\"}";

static void write_file(int folder, const char *name, const void *bytes, size_t n)
{
    const int fd = openat(folder, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    for (size_t at = 0; at < n;) {
        const ssize_t put = write(fd, (const char *)bytes + at, n - at);
        assert_true(put > 0);
        at += (size_t)put;
    }
    close(fd);
}

int carry_world_folder(struct carry_world *w, char letter)
{
    char path[96];
    struct err err;
    snprintf(path, sizeof path, "%s/%c", w->root, letter);
    const int dir = models_dir_open(path, &err);
    assert_true(dir >= 0);
    return dir;
}

void carry_world_open(struct carry_world *w, size_t bytes)
{
    struct hub_file files[] = {{.name = "model.safetensors", .has_size = true, .size = bytes},
                               {.name = "config.json", .has_size = true, .size = sizeof config - 1}};
    struct err err;
    uint32_t x = 1;
    *w = (struct carry_world){.root = "/tmp/ringd-carry.XXXXXX", .weights = malloc(bytes), .bytes = bytes};
    assert_non_null(mkdtemp(w->root));
    for (size_t i = 0; i < bytes; i++)
        w->weights[i] = (uint8_t)((x = x * 1664525 + 1013904223) >> 24);
    memcpy(w->weights, &(uint64_t){BLOCK_BYTES + 100}, sizeof(uint64_t));
    w->dir = carry_world_folder(w, 'a');
    const int folder = settle_open_part(w->dir, CARRY_MODEL, &err);
    assert_true(folder >= 0);
    write_file(folder, "config.json", config, sizeof config - 1);
    write_file(folder, "model.safetensors", w->weights, bytes);
    for (int i = 0; i < 2; i++)
        assert_int_equal(part_file_check(folder, &files[i], NULL, &err), 0); /* for the hash */
    assert_int_equal(manifest_new(&w->manifest, files, 2, &err), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(
            part_file_check(folder, &files[i], manifest_hashes_of(w->manifest, files[i].name), &err), 0);
    assert_int_equal(manifest_note_heads(w->manifest, folder, &err), 0);
    const struct settle_setup s = {.dir = w->dir, .model = CARRY_MODEL, .manifest = w->manifest};
    assert_int_equal(settle_model(&s, &err), 0);
    w->list = manifest_encode(w->manifest, &w->list_n);
    manifest_content(w->content, w->list, w->list_n);
    manifest_list(known_list, w->list, w->list_n);
    close(folder);
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    return remove(path);
}

void carry_world_close(struct carry_world *w)
{
    close(w->dir);
    manifest_free(w->manifest);
    free(w->list);
    free(w->weights);
    assert_int_equal(nftw(w->root, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

/* --- nodes ------------------------------------------------------------------------------------ */

void carry_world_forget_list(void)
{
    *known_list = '\0';
}

/* Takes the reference. */
static void be_node(int ipc, int dir, const char *content, json_t *want, uint64_t patience_us, uint64_t rate)
{
    struct err err = {""};
    const struct carry_setup setup = {.ipc = ipc,
                                      .dir = dir,
                                      .model = CARRY_MODEL,
                                      .content = content,
                                      .list = known_list,
                                      .source = "other nodes",
                                      .want = want,
                                      .rate = rate,
                                      .patience_us = patience_us,
                                      .idle_us = UINT64_C(60000000)};
    const int r = carry_run(&setup, &err);
    if (r && r != -ECANCELED)
        ipc_send(ipc, json_pack("{s:s s:s s:i}", "ev", "failed", "error", err.text, "code", r));
    _exit(0);
}

static json_t *want_order(uint32_t first, uint32_t end)
{
    json_t *blocks = json_array();
    if (first < end)
        json_array_append_new(blocks,
                              json_pack("[s,I,I]", "model.safetensors", (json_int_t)first, (json_int_t)end));
    return json_pack("{s:s s:o s:i}", "do", "want", "blocks", blocks, "number", 1);
}

void carry_node_want(struct carry_node *n, uint32_t first, uint32_t end)
{
    assert_int_equal(ipc_send(n->ipc, want_order(first, end)), 0);
}

static void start_node(struct carry_node *n, int dir, const char *content, json_t *want, uint64_t patience_us,
                       uint64_t rate)
{
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    n->pid = fork();
    assert_true(n->pid >= 0);
    if (!n->pid) {
        /* Sockets of others must end when their owners do. */
        const int ipc = fcntl(ends[1], F_DUPFD_CLOEXEC, HIGH), own = fcntl(dir, F_DUPFD_CLOEXEC, HIGH);
        close_range(3, HIGH - 1, 0);
        be_node(ipc, own, content, want, patience_us, rate);
    }
    json_decref(want);
    close(ends[1]);
    n->ipc = ends[0];
}

void carry_node_start(struct carry_node *n, int dir, const char *content, uint64_t patience_us, uint64_t rate)
{
    start_node(n, dir, content, want_order(0, CARRY_WORLD_BLOCKS), patience_us, rate);
}

void carry_node_start_for(struct carry_node *n, int dir, const char *content, uint32_t first, uint32_t end)
{
    start_node(n, dir, content, want_order(first, end), UINT64_C(60000000), 0);
}

void carry_node_start_rows(struct carry_node *n, int dir, const char *content, json_t *rows,
                           uint64_t patience_us)
{
    start_node(n, dir, content, json_pack("{s:s s:o s:i}", "do", "want", "blocks", rows, "number", 1),
               patience_us, 0);
}

void carry_node_kill(struct carry_node *n)
{
    kill(n->pid, SIGKILL);
    carry_node_stop(n);
}

void carry_node_stop(struct carry_node *n)
{
    int status;
    close(n->ipc);
    assert_int_equal(waitpid(n->pid, &status, 0), n->pid);
    assert_true(WIFSIGNALED(status) ? WTERMSIG(status) == SIGKILL : WEXITSTATUS(status) == 0);
}

static bool is_readable(int fd, int ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, ms) > 0;
}

/* NULL: another one. */
static json_t *next_event(struct carry_node *n, const char *kind)
{
    json_t *event = NULL;
    int fd;
    if (ipc_receive(n->ipc, &event, NULL, &fd))
        fail_msg("the node has ended, and never said \"%s\"", kind);
    const char *ev = json_string_value(json_object_get(event, "ev"));
    if (ev && !strcmp(ev, kind))
        return event;
    if (ev && !strcmp(ev, "failed"))
        fail_msg("the node failed: %s", json_string_value(json_object_get(event, "error")));
    if (ev && !strcmp(ev, "room"))
        carry_node_say_room(n, NULL);
    json_decref(event);
    return NULL;
}

json_t *carry_node_hear(struct carry_node *n, const char *kind)
{
    json_t *event = NULL;
    while (!event) {
        if (!is_readable(n->ipc, MINUTE_MS))
            fail_msg("the node never says \"%s\"", kind);
        event = next_event(n, kind);
    }
    return event;
}

void carry_node_say_room(struct carry_node *n, const char *why)
{
    assert_int_equal(ipc_send(n->ipc, json_pack("{s:s s:s*}", "do", "room", "why", why)), 0);
}

/* --- lanes ------------------------------------------------------------------------------------ */

static void make_keys(struct carry_world *w, struct ipc_lane *one, struct ipc_lane *other)
{
    uint8_t key[32] = {(uint8_t)++w->paths};
    *one = *other = (struct ipc_lane){.path = w->paths};
    seal_init(&one->tx, key, SEAL_CHACHA20_POLY1305);
    key[1] = 1;
    seal_init(&one->rx, key, SEAL_CHACHA20_POLY1305);
    other->tx = one->rx;
    other->rx = one->tx;
}

static void send_lane(struct carry_node *n, struct ipc_lane *lane, uint32_t rank, int fd)
{
    struct ipc_frame *f;
    lane->rank = rank;
    assert_int_equal(ipc_frame_new_lane(&f, lane, fd), 0);
    assert_int_equal(ipc_frame_push(f, n->ipc), 0);
    ipc_frame_free(f);
    close(fd);
}

uint32_t carry_world_connect(struct carry_world *w, struct carry_node *giver, struct carry_node *taker)
{
    struct ipc_lane one, other;
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    make_keys(w, &one, &other);
    send_lane(giver, &one, 1, ends[0]);
    send_lane(taker, &other, 0, ends[1]);
    return w->paths;
}

/* --- a peer by hand --------------------------------------------------------------------------- */

static void open_peer(struct carry_peer *p, struct carry_world *w, struct carry_node *n, uint32_t rank)
{
    struct ipc_lane one, other;
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    make_keys(w, &one, &other);
    send_lane(n, &one, rank, ends[0]);
    *p = (struct carry_peer){.world = w,
                             .path = w->paths,
                             .give = UINT32_MAX,
                             .flipped = UINT32_MAX,
                             .said = UINT32_MAX,
                             .asked = calloc(w->manifest->blocks, 1)};
    memset(p->has, 0xff, sizeof p->has);
    assert_int_equal(carry_line_open(&p->line, &other, ends[1], clock_now()), 0);
}

void carry_peer_open(struct carry_peer *p, struct carry_world *w, struct carry_node *n, bool is_source)
{
    open_peer(p, w, n, is_source ? CARRY_RANK_SOURCE : CARRY_RANK_TAKER);
}

void carry_peer_close(struct carry_peer *p)
{
    carry_line_close(&p->line);
    free(p->asked);
}

void carry_peer_open_hub(struct carry_peer *p, struct carry_world *w, struct carry_node *n)
{
    open_peer(p, w, n, CARRY_RANK_HUB);
    p->is_hub = true;
}

/* Waits for the socket where it is full. */
static void push(struct carry_peer *p)
{
    int r;
    while ((r = carry_line_push(&p->line, clock_now())) == -EAGAIN) {
        struct pollfd out = {.fd = p->line.fd, .events = POLLOUT};
        assert_true(poll(&out, 1, MINUTE_MS) > 0);
    }
    p->is_over |= r != 0;
}

void carry_peer_say(struct carry_peer *p, enum carry_kind kind, uint32_t a, uint32_t b, const void *bytes,
                    size_t n)
{
    uint8_t *to = carry_line_space(&p->line);
    const size_t head = carry_frame_write(to, kind, a, b);
    if (n)
        memcpy(to + head, bytes, n);
    assert_int_equal(carry_line_put(&p->line, head + n, clock_now()), 0);
    push(p);
}

static void give_list(struct carry_peer *p)
{
    const struct carry_world *w = p->world;
    for (size_t at = 0; at < w->list_n;) {
        const size_t n = w->list_n - at < CARRY_BYTES ? w->list_n - at : CARRY_BYTES;
        carry_peer_say(p, CARRY_LIST, (uint32_t)w->list_n, (uint32_t)at, w->list + at, n);
        at += n;
    }
}

static const uint8_t *block_of(const struct carry_world *w, uint32_t block)
{
    const bool is_config =
        !strcmp(w->manifest->files[manifest_file_of(w->manifest, block)].name, "config.json");
    return is_config ? (const uint8_t *)config : w->weights + manifest_offset(w->manifest, block);
}

static void give_block(struct carry_peer *p, uint32_t block)
{
    const struct carry_world *w = p->world;
    const uint32_t size = manifest_size(w->manifest, block);
    uint8_t *copy = malloc(size);
    assert_non_null(copy);
    memcpy(copy, block_of(w, block), size);
    copy[size > HEAD_LENGTH ? HEAD_LENGTH : 0] ^= block == p->flipped; /* one of the head's, where one is */
    if (p->length && manifest_is_head(w->manifest, block))
        memcpy(copy, p->length, HEAD_LENGTH);
    if (block == p->said)
        carry_peer_say(p, CARRY_HASH, block, 0, "the hash that another block has.", DIGEST);
    for (uint32_t at = 0; at < size && !p->is_over; at += CARRY_BYTES)
        carry_peer_say(p, CARRY_PIECE, block, at, copy + at,
                       size - at < CARRY_BYTES ? size - at : CARRY_BYTES);
    free(copy);
    p->given++;
}

static void serve_want(struct carry_peer *p, uint32_t block)
{
    assert_true(block < p->world->manifest->blocks);
    p->wanted++;
    p->asked[block]++;
    if (p->given < p->give)
        give_block(p, block);
    else
        p->kept[p->n_kept++ % 64] = block;
}

static void serve_frame(struct carry_peer *p, const struct carry_frame *f)
{
    if (f->kind == CARRY_ASK)
        give_list(p);
    if (f->kind == CARRY_WHICH)
        carry_peer_say(p, CARRY_HAVE, 0, p->world->manifest->blocks, p->has,
                       (p->world->manifest->blocks + 7) / 8);
    if (f->kind != CARRY_WANT)
        return;
    assert_true(f->b == 1 || p->is_hub);
    p->runs++;
    for (uint32_t block = f->a; block < f->a + f->b; block++)
        serve_want(p, block);
}

static void serve_what_came(struct carry_peer *p)
{
    struct carry_frame f;
    int r;
    while (p->n_kept && p->given < p->give) { /* its test has raised the number */
        give_block(p, p->kept[0]);
        memmove(p->kept, p->kept + 1, --p->n_kept * sizeof *p->kept);
    }
    while (!p->is_over && (r = carry_line_read(&p->line, &f, clock_now())) != 0) {
        if (r < 0)
            p->is_over = true;
        else
            serve_frame(p, &f);
    }
}

json_t *carry_peers_serve(struct carry_peer *peers, size_t n, struct carry_node *node, const char *kind)
{
    struct pollfd fds[8] = {{.fd = node->ipc, .events = POLLIN}};
    json_t *event = NULL;
    while (!event) {
        for (size_t i = 0; i < n; i++) {
            serve_what_came(&peers[i]);
            fds[i + 1] = (struct pollfd){.fd = peers[i].is_over ? -1 : peers[i].line.fd, .events = POLLIN};
        }
        if (poll(fds, n + 1, MINUTE_MS) <= 0)
            fail_msg("the node never says \"%s\"", kind);
        if (fds[0].revents)
            event = next_event(node, kind);
    }
    return event;
}

void carry_peer_serve_wants(struct carry_peer *p, uint32_t wanted)
{
    for (serve_what_came(p); p->wanted < wanted; serve_what_came(p))
        assert_true(is_readable(p->line.fd, MINUTE_MS) && !p->is_over);
}

bool carry_peer_hear(struct carry_peer *p, struct carry_frame *ret)
{
    int r;
    while ((r = carry_line_read(&p->line, ret, clock_now())) == 0)
        assert_true(is_readable(p->line.fd, MINUTE_MS));
    return r > 0;
}
