/* SPDX-License-Identifier: MIT
 *
 * Which files a stage may open: every text of a spec and of a plan is a path or is known to be
 * none, and each message names those of its own paths. And what is left to a process in its cell,
 * with the Landlock of this kernel and with that of older ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/common/cell_kernel.h"
#include "daemon/common/ipc.h"
#include "daemon/common/job_plan.h"
#include "daemon/stage/stage_cell.h"
#include "engine/file/lent.h"
#include "daemon/common/job_spec.h"

/* --- fields ----------------------------------------------------------------------------------- */

static bool is_listed(const char *const *list, const char *name)
{
    while (*list && strcmp(*list, name) != 0)
        list++;
    return *list != NULL;
}

static bool is_text(const struct field *f)
{
    return f->type == FIELD_TEXT || f->type == FIELD_OWNED || f->type == FIELD_FIXED;
}

/* A new field of text is a path, in its table, or its name is added here. */
static void every_text_is_a_path_or_none(void **state)
{
    static const char *const plain[] = {
        "text",        "text_field", "prompt_field",   "completion_field", "messages_field",
        "tools_field", "layers",     "target_modules", "serve_as",         "sample_prompt",
        "prompt",      "system",     "content",        "fingerprint",      "weights",
        "schedule",    "order",      "kept_in",        "state_dir",        "name",
        "parallel",    NULL};
    const struct field *tables[] = {job_spec_fields(), job_plan_fields(), job_tune_fields()};
    (void)state;
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        for (const struct field *f = tables[t]; f->name; f++) {
            if (is_text(f) && !f->path && !is_listed(plain, f->name))
                fail_msg("\"%s\" is a text: give its row a .path, or name it in this test", f->name);
            if (f->path && !is_text(f) && f->type != FIELD_OBJECT)
                fail_msg("\"%s\" is no text and holds none, and has a .path", f->name);
            if (!f->path && f->doc && strstr(f->doc, "path of"))
                fail_msg("\"%s\" says it is a path, and has no .path", f->name);
        }
}

/* --- rules ------------------------------------------------------------------------------------ */

static void expect_rules(const char *message, const char *expected)
{
    struct cell_rules rules = {0};
    struct err err;
    char said[2000] = "";
    json_t *json = json_loads(message, 0, NULL);
    assert_non_null(json);
    assert_int_equal(stage_cell_rules(&rules, "/state", json, &err), 0);
    for (size_t i = 0; i < rules.n; i++) {
        static const char *const uses[] = {"model", "read", "write", "append"};
        size_t n = strlen(said);
        snprintf(said + n, sizeof said - n, "%s%s %s %s", i ? ", " : "", uses[rules.at[i].use],
                 rules.at[i].option, rules.at[i].path);
    }
    assert_string_equal(said, expected);
    assert_string_equal(rules.state, "/state");
    cell_rules_done(&rules);
    json_decref(json);
}

static void expect_no_rules(const char *message, const char *words)
{
    struct cell_rules rules = {0};
    struct err err = {""};
    json_t *json = json_loads(message, 0, NULL);
    assert_non_null(json);
    assert_int_equal(stage_cell_rules(&rules, "/state", json, &err), -EINVAL);
    assert_non_null(strstr(err.text, words));
    assert_int_equal(rules.n, 0);
    cell_rules_done(&rules);
    json_decref(json);
}

static void rules_of_messages(void **state)
{
    (void)state;
    expect_rules(
        "{\"do\":\"plan\",\"type\":\"train\",\"spec\":{\"model\":\"/m\",\"data\":\"/d\",\"valid\":\"/v\","
        "\"adapter_out\":\"/o\",\"log\":\"/l\",\"schedule\":\"1f1b\",\"init_adapter\":\"/i\","
        "\"adapter\":null,\"text\":\"/t\",\"rescue_dir\":\"/state/results/job-1\"}}",
        "model --model /m, read --data /d, write --adapter-out /o, read --init-adapter /i, "
        "read --valid /v, append --log /l, write the folder /state/results/job-1");
    expect_rules("{\"do\":\"plan\",\"type\":\"train\",\"spec\":{\"schedule\":\"/a/file\"}}",
                 "read --schedule /a/file");
    /* What belongs to other jobs is not opened. */
    expect_rules("{\"do\":\"plan\",\"type\":\"generate\",\"spec\":{\"model\":\"/m\",\"data\":\"/d\","
                 "\"adapter_out\":\"/o\",\"adapter\":\"/a\",\"rescue_dir\":\"/state/results/job-1\"}}",
                 "model --model /m, read --adapter /a");
    expect_rules("{\"do\":\"plan\",\"type\":\"serve\",\"spec\":{\"model\":\"/m\",\"adapter\":\"/x\","
                 "\"adapters\":{\"owl\":\"/a\",\"n\":1,\"fox\":\"/b\"}}}",
                 "model --model /m, read --adapter /a, read --adapter /b");
    expect_no_rules("{\"do\":\"plan\",\"type\":\"bake\",\"spec\":{\"model\":\"/m\"}}", "not \"bake\"");
    expect_no_rules("{\"do\":\"plan\",\"spec\":{\"model\":\"/m\"}}", "not \"\"");
    expect_rules("{\"do\":\"open\",\"plan\":{\"model\":\"/m\",\"order\":\"/x\",\"data\":\"/d\"}}",
                 "model --model /m");
    expect_rules("{\"do\":\"measure\",\"question\":{\"plan\":{\"model\":\"/m\"}}}", "model --model /m");
    expect_rules("{\"do\":\"weights\",\"model\":\"/m\"}", "read --model /m");
    expect_rules("{\"do\":\"run\"}", "");
}

/* They are open already, and the process may not look for their paths. */
static void what_was_lent_needs_no_rule(void **state)
{
    (void)state;
    assert_int_equal(lent_add_folder("/m"), 0);
    assert_int_equal(lent_add("/m/config.json", dup(0)), 0);
    assert_int_equal(lent_add("/d", dup(0)), 0);
    expect_rules(
        "{\"do\":\"plan\",\"type\":\"train\",\"spec\":{\"model\":\"/m\",\"data\":\"/d\",\"valid\":\"/v\","
        "\"adapter_out\":\"/m/out\"}}",
        "write --adapter-out /m/out, read --valid /v");
    expect_rules("{\"do\":\"open\",\"plan\":{\"model\":\"/m\"}}", "");
    lent_clear();
}

/* --- in the cell ------------------------------------------------------------------------------ */

struct place {
    char dir[64];
};

static void write_file(const struct place *p, const char *name)
{
    char path[200];
    snprintf(path, sizeof path, "%s/%s", p->dir, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs("{}", f);
    assert_int_equal(fclose(f), 0);
}

static void make_folder(const struct place *p, const char *name)
{
    char path[200];
    snprintf(path, sizeof path, "%s/%s", p->dir, name);
    assert_int_equal(mkdir(path, 0700), 0);
}

static int place_new(void **state)
{
    static struct place p;
    strcpy(p.dir, "/tmp/ringd-cell-XXXXXX");
    assert_non_null(mkdtemp(p.dir));
    static const char *const folders[] = {
        "state",           "state/results", "state/models", "hub",  "hub/blobs", "hub/snapshots",
        "hub/snapshots/1", "out",           "other",        "keys", "split"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        make_folder(&p, folders[i]);
    static const char *const files[] = {"state/identity",
                                        "hub/blobs/abc",
                                        "hub/snapshots/1/model.safetensors",
                                        "hub/blobs/def",
                                        "other/file",
                                        "keys/key.json",
                                        "split/m-00001-of-00002.gguf",
                                        "split/m-00002-of-00002.gguf",
                                        "split/other.gguf"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        write_file(&p, files[i]);
    char path[200];
    snprintf(path, sizeof path, "%s/hub/snapshots/1/config.json", p.dir);
    assert_int_equal(symlink("../../blobs/abc", path), 0);
    *state = &p;
    return 0;
}

static int place_done(void **state)
{
    const struct place *p = *state;
    char command[100];
    snprintf(command, sizeof command, "rm -rf %s", p->dir);
    return system(command);
}

static const char *in(const struct place *p, const char *name)
{
    static char path[4][200];
    static unsigned next;
    char *to = path[next++ % 4];
    snprintf(to, sizeof *path, "%s/%s", p->dir, name);
    return to;
}

static int opens(const char *path, int flags)
{
    int fd = open(path, flags | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    close(fd);
    return 0;
}

/* Else the cell makes the cache, and opens it. */
static void have_no_cache(void)
{
    unsetenv("CACHE_DIRECTORY");
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
}

static void *thread_main(void *arg)
{
    return arg;
}

/* Whatever the parent sees as an exit status: the first line that is not as it should be. */
#define EXPECT(is)                                                                                           \
    do                                                                                                       \
        if (!(is))                                                                                           \
            _exit(__LINE__ % 200 + 20);                                                                      \
    while (0)

/* Whether a process may have the tiles of AMX is for the CPU and the kernel to say, not for the
 * filter. */
static bool may_ask_for_tiles(void)
{
#if defined __x86_64__
    enum { REQ_XCOMP_PERM = 0x1023, SET_GS = 0x1001, XTILEDATA = 18 };
    const bool may = !syscall(SYS_arch_prctl, REQ_XCOMP_PERM, XTILEDATA) || errno != EPERM;
    return may && syscall(SYS_arch_prctl, SET_GS, 0) && errno == EPERM;
#else
    return true;
#endif
}

static void live_in_cell(const struct place *p, unsigned landlock_most)
{
    struct cell_rules rules = {.state = strdup(in(p, "state")), .landlock_most = landlock_most};
    struct err err = {""};
    pthread_t thread;
    struct rlimit limit;
    have_no_cache();
    cell_add(&rules, CELL_MODEL, "--model", in(p, "hub/snapshots/1"), &err);
    cell_add(&rules, CELL_MODEL, "--model", in(p, "keys"), &err);
    cell_add(&rules, CELL_MODEL, "--model", in(p, "split/m-00001-of-00002.gguf"), &err);
    cell_add(&rules, CELL_WRITE, "--adapter-out", in(p, "out"), &err);
    cell_add(&rules, CELL_WRITE, "--adapter-out", in(p, "state/results/new"), &err);
    cell_add(&rules, CELL_APPEND, "--log", in(p, "log"), &err);
    int r = cell_enter(&rules, &err);
    if (r)
        fprintf(stderr, "%s\n", err.text);
    EXPECT(!r);
    EXPECT(!opens(in(p, "hub/snapshots/1/config.json"), O_RDONLY)); /* the link to its blob */
    EXPECT(!opens(in(p, "hub/snapshots/1/model.safetensors"), O_RDONLY));
    EXPECT(opens(in(p, "hub/snapshots/1/model.safetensors"), O_RDWR) == -EACCES);
    EXPECT(opens(in(p, "hub/blobs/def"), O_RDONLY) == -EACCES);
    EXPECT(opens(in(p, "keys/key.json"), O_RDONLY) == -EACCES);     /* no model, for it has no config.json */
    EXPECT(!opens(in(p, "split/m-00001-of-00002.gguf"), O_RDONLY)); /* a GGUF file with all its parts, */
    EXPECT(!opens(in(p, "split/m-00002-of-00002.gguf"), O_RDONLY));
    EXPECT(opens(in(p, "split/m-00002-of-00002.gguf"), O_RDWR) == -EACCES);
    EXPECT(opens(in(p, "split/other.gguf"), O_RDONLY) == -EACCES); /* and nothing beside it */
    EXPECT(opens(in(p, "state/identity"), O_RDONLY) == -EACCES);
    EXPECT(opens(in(p, "other/file"), O_RDONLY) == -EACCES);
    EXPECT(!opens(in(p, "out/new"), O_WRONLY | O_CREAT | O_TRUNC));
    EXPECT(!rename(in(p, "out/new"), in(p, "out/newer")));
    EXPECT(rename(in(p, "out/newer"), in(p, "other/newer")) && (errno == EXDEV || errno == EACCES));
    EXPECT(!mkdir(in(p, "out/folder"), 0700) && !opens(in(p, "out/folder/new"), O_WRONLY | O_CREAT));
    EXPECT(!opens(in(p, "state/results/new/file"), O_WRONLY | O_CREAT));
    EXPECT(opens(in(p, "state/results/file"), O_WRONLY | O_CREAT) == -EACCES);
    EXPECT(!opens(in(p, "log"), O_WRONLY | O_CREAT | O_TRUNC));
    EXPECT(!opens("/proc/self/maps", O_RDONLY) && !opens("/proc/meminfo", O_RDONLY));
    EXPECT(opens("/etc/passwd", O_RDONLY) == -EACCES);
    EXPECT(socket(AF_INET, SOCK_STREAM, 0) < 0 && errno == EPERM);
    EXPECT(fork() < 0 && errno == EPERM);
    EXPECT(may_ask_for_tiles());
    EXPECT(!pthread_create(&thread, NULL, thread_main, NULL) && !pthread_join(thread, NULL));
    cell_limit_memory(0, 0, 1, UINT64_C(1) << 40);
    EXPECT(!getrlimit(RLIMIT_AS, &limit) && limit.rlim_max != RLIM_INFINITY);
    EXPECT(!malloc(limit.rlim_cur));
    const rlim_t first = limit.rlim_cur, most = limit.rlim_max;
    cell_limit_memory(UINT64_C(1) << 39, 0, 1, UINT64_C(1) << 40); /* of another plan */
    EXPECT(!getrlimit(RLIMIT_AS, &limit) && limit.rlim_cur > first && limit.rlim_max == most);
    cell_limit_memory(UINT64_C(1) << 41, 0, 1, UINT64_C(1) << 40);
    EXPECT(!getrlimit(RLIMIT_AS, &limit) && limit.rlim_cur == most && limit.rlim_max == most);
}

static void lives_with(const struct place *p, unsigned landlock_most)
{
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        live_in_cell(p, landlock_most);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    if (status)
        fail_msg("with version %u of Landlock: status %x, line %d or such", landlock_most, status,
                 WEXITSTATUS(status) - 20);
}

static bool is_instrumented(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return true;
#else
    return false;
#endif
}

static void any_kernel_with_landlock(void **state)
{
    const unsigned here = cell_kernel_landlock();
    if (!here || !cell_kernel_filters() || is_instrumented())
        skip();
    for (unsigned version = 1; version <= here; version++) {
        assert_int_equal(place_new(state), 0);
        lives_with(*state, version);
        assert_int_equal(place_done(state), 0);
    }
}

static void expect_refusal(const struct place *p, enum cell_use use, const char *path, const char *words)
{
    int pipes[2], status;
    char said[600] = "";
    assert_int_equal(pipe(pipes), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        struct cell_rules rules = {.state = strdup(in(p, "state"))};
        struct err err = {""};
        dup2(pipes[1], IPC_FD);
        have_no_cache();
        cell_add(&rules, use, "--option", path, &err);
        int r = cell_enter(&rules, &err);
        if (write(IPC_FD, err.text, strlen(err.text)) < 0)
            _exit(3);
        _exit(r == -EPERM ? 0 : 2);
    }
    close(pipes[1]);
    assert_true(read(pipes[0], said, sizeof said - 1) >= 0);
    close(pipes[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    if (status || !strstr(said, words))
        fail_msg("%s: status %x, \"%s\" says nothing of %s", path, status, said, words);
}

static void what_is_the_daemons_own(void **state)
{
    const struct place *p = *state;
    static const char own[] = "which is ringd's own", elsewhere[] = "which is in no model";
    expect_refusal(p, CELL_READ, in(p, "state/identity"), own);
    expect_refusal(p, CELL_READ, in(p, "state"), own);
    expect_refusal(p, CELL_READ, in(p, "other/../state/identity"), own);
    expect_refusal(p, CELL_WRITE, in(p, "state/new"), own);
    expect_refusal(p, CELL_WRITE, in(p, "state/results"), own);
    expect_refusal(p, CELL_WRITE, p->dir, own); /* it lies around it */
    expect_refusal(p, CELL_APPEND, in(p, "state/identity"), own);
    expect_refusal(p, CELL_APPEND, in(p, "state/log"), own);
    assert_int_equal(access(in(p, "state/log"), F_OK), -1);
    assert_int_equal(access(in(p, "state/new"), F_OK), -1);
    assert_int_equal(symlink("../state/identity", in(p, "other/link.json")), 0);
    expect_refusal(p, CELL_READ, in(p, "other"), own);
    assert_int_equal(unlink(in(p, "other/link.json")), 0);
    assert_int_equal(symlink("../keys/key.json", in(p, "other/link.json")), 0);
    expect_refusal(p, CELL_READ, in(p, "other"), elsewhere);
}

/* Who only asks for a plan finds nothing new. */
static void plans_make_nothing(void **state)
{
    const struct place *p = *state;
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        struct cell_rules rules = {.must_not_make = true};
        struct err err;
        have_no_cache();
        cell_add(&rules, CELL_WRITE, "--adapter-out", in(p, "planned"), &err);
        cell_add(&rules, CELL_APPEND, "--log", in(p, "planned.log"), &err);
        _exit(cell_enter(&rules, &err) != 0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(access(in(p, "planned"), F_OK), -1);
    assert_int_equal(access(in(p, "planned.log"), F_OK), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_text_is_a_path_or_none),
        cmocka_unit_test(rules_of_messages),
        cmocka_unit_test(what_was_lent_needs_no_rule),
        cmocka_unit_test(any_kernel_with_landlock),
        cmocka_unit_test_setup_teardown(what_is_the_daemons_own, place_new, place_done),
        cmocka_unit_test_setup_teardown(plans_make_nothing, place_new, place_done),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
