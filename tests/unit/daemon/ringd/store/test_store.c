/* SPDX-License-Identifier: MIT
 *
 * The store on a real file: records, history, numbers over a restart, a damaged and a newer file, a
 * disk that refuses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <event2/event.h>
#include <signal.h>
#include <jansson.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "daemon/ringd/ledger.h"
#include "daemon/ringd/mailbox.h"
#include "daemon/ringd/store/store.h"

struct fixture {
    char dir[64], note[256];
    struct event_base *base;
    struct mailbox *box;
    struct store *store;
    struct ledger *ledger; /* of this store */
    char *answer;          /* of the last read */
    int answers;
};

static void open_store(struct fixture *f)
{
    struct err err;
    ledger_free(f->ledger);
    f->ledger = ledger_new();
    if (store_open(&f->store, f->dir, f->box, f->ledger, f->note, &err))
        fail_msg("%s", err.text);
}

static void close_store(struct fixture *f)
{
    store_close(f->store);
    f->store = NULL;
}

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    strcpy(f->dir, "/tmp/ringd-store-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    f->base = event_base_new();
    assert_int_equal(mailbox_new(&f->box, f->base), 0);
    open_store(f);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    close_store(f);
    mailbox_free(f->box);
    event_base_free(f->base);
    DIR *dir = opendir(f->dir);
    for (struct dirent *e; (e = readdir(dir));)
        unlinkat(dirfd(dir), e->d_name, 0);
    closedir(dir);
    rmdir(f->dir);
    free(f->answer);
    ledger_free(f->ledger);
    free(f);
    return 0;
}

static void take(void *arg, const char *json)
{
    struct fixture *f = arg;
    free(f->answer);
    f->answer = json ? strdup(json) : NULL;
    f->answers++;
}

static void wait_answer(struct fixture *f, int n)
{
    while (f->answers < n)
        event_base_loop(f->base, EVLOOP_ONCE);
}

static void expect_job(struct fixture *f, uint64_t job, const char *json)
{
    store_get_job(f->store, job, take, f);
    wait_answer(f, f->answers + 1);
    if (json)
        assert_string_equal(f->answer, json);
    else
        assert_null(f->answer);
}

static void records_replace_each_other(void **state)
{
    struct fixture *f = *state;
    assert_string_equal(f->note, "");
    assert_int_equal(store_next_job(f->store), 1);
    assert_int_equal(store_next_job(f->store), 2);
    store_put_job(f->store, 1, "queued", "{\"a\":1}", NULL);
    store_put_job(f->store, 2, "queued", "{\"b\":1}", NULL);
    store_put_job(f->store, 1, "done", "{\"a\":2,\"spec\":{}}", NULL);
    expect_job(f, 1, "{\"a\":2,\"spec\":{}}");
    expect_job(f, 9, NULL);
    store_get_jobs(f->store, 0, take, f);
    wait_answer(f, 3);
    assert_string_equal(f->answer, "[{\"b\":1},{\"a\":2}]");
    store_get_jobs(f->store, 1, take, f);
    wait_answer(f, 4);
    assert_string_equal(f->answer, "[{\"b\":1}]");
    assert_null(store_trouble(f->store));
}

static void history_is_kept_by_kind(void **state)
{
    struct fixture *f = *state;
    store_put_event(f->store, 1, "step", "{\"step\":1}");
    store_put_event(f->store, 1, "log", "\"it's\"");
    store_put_event(f->store, 2, "step", "{\"step\":9}");
    store_put_event(f->store, 1, "step", "{\"step\":2}");
    store_get_events(f->store, 1, "step", 0, take, f);
    wait_answer(f, 1);
    assert_string_equal(f->answer, "[{\"step\":1},{\"step\":2}]");
    store_get_events(f->store, 1, "step", 2, take, f);
    wait_answer(f, 2);
    assert_string_equal(f->answer, "[{\"step\":2}]");
    store_get_events(f->store, 1, NULL, 0, take, f);
    wait_answer(f, 3);
    assert_string_equal(f->answer, "[{\"step\":1},\"it's\",{\"step\":2}]");
    store_get_events(f->store, 7, NULL, 0, take, f);
    wait_answer(f, 4);
    assert_string_equal(f->answer, "[]");
}

/* What the other node has saved and logged stays there. */
static void a_job_of_another_head_gets_a_number_here(void **state)
{
    struct fixture *f = *state;
    const uint64_t kept = STORE_FIRST_DOSSIER + 1;
    store_put_job(f->store, kept, "kept", "{\"id\":9,\"state\":\"running\"}", "{\"state\":\"RUNNING\"}");
    store_put_event(f->store, kept, "step", "{\"job\":9,\"step\":1}");
    store_put_event(f->store, kept, "saved", "{\"job\":9,\"step\":1}");
    store_put_event(f->store, kept, "logged", "{\"job\":9,\"step\":1}");
    store_put_event(f->store, kept, "step", "{\"job\":9,\"step\":2}");
    store_get_jobs(f->store, 0, take, f);
    wait_answer(f, 1);
    assert_string_equal(f->answer, "[]");
    store_move_job(f->store, kept, 3);
    store_get_events(f->store, 3, NULL, 0, take, f);
    wait_answer(f, 2);
    assert_string_equal(f->answer, "[{\"job\":3,\"step\":1},{\"job\":3,\"step\":2}]");
    store_get_unfinished(f->store, 3, take, f);
    wait_answer(f, 3);
    json_t *list = json_loads(f->answer, 0, NULL), *entry = json_array_get(list, 0);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(entry, "record"), "id")), 3);
    assert_true(json_is_null(json_object_get(entry, "saved")));
    assert_true(json_is_null(json_object_get(entry, "logged")));
    json_decref(list);
    store_drop_job(f->store, 3);
    store_get_unfinished(f->store, 3, take, f);
    wait_answer(f, 4);
    assert_string_equal(f->answer, "[]");
}

static void everything_survives_a_restart(void **state)
{
    struct fixture *f = *state;
    store_put_job(f->store, 1, "done", "{\"id\":1}", NULL);
    store_put_job(f->store, 2, "running", "{\"id\":2}", "{\"attempt\":0}");
    store_put_job(f->store, 2, "interrupted", "{\"id\":2}", "{\"attempt\":1}");
    store_put_job(f->store, 3, "queued", "{\"id\":3}", NULL);
    store_put_job(f->store, 4, "running", "{\"id\":4}", "{\"attempt\":0}");
    store_put_job(f->store, 4, "failed", "{\"id\":4}", NULL);
    for (int i = 1; i <= 12; i++) {
        char text[64];
        snprintf(text, sizeof text, "{\"step\":%d,\"tokens\":8}", i);
        store_put_event(f->store, 2, "step", text);
    }
    store_put_event(f->store, 2, "valid", "{\"step\":7,\"adapter\":\"b\"}");
    store_put_event(f->store, 2, "saved", "{\"step\":4}");
    store_put_event(f->store, 2, "saved", "{\"step\":8}");
    store_put_event(f->store, 2, "logged", "{\"step\":8,\"log_bytes\":9}");
    for (uint64_t job = 2; job <= 4; job++) {
        store_put_event(f->store, job, "prompt", "{\"ids\":[7]}");
        store_put_event(f->store, job, "tokens", "{\"n\":1}");
    }
    store_put_job(f->store, 4, "failed", "{\"id\":4}", NULL); /* what it generated goes with its end */
    store_get_events(f->store, 4, NULL, 0, take, f);
    wait_answer(f, 1);
    assert_string_equal(f->answer, "[]");
    for (int i = 0; i < 1000; i++)
        store_put_event(f->store, 5, "log", "\"x\"");
    close_store(f);
    open_store(f);
    char *unfinished = store_unfinished(f->store);
    assert_string_equal(
        unfinished,
        "[{\"record\":{\"id\":2},\"life\":{\"attempt\":1},\"said\":[[\"step\",\"\",12],[\"valid\",\"b\",7]],"
        "\"last\":{\"step\":12,\"tokens\":8},\"saved\":{\"step\":8},\"logged\":{\"step\":8,\"log_bytes\":9},"
        "\"tokens\":96,\"texts\":[{\"ids\":[7]},{\"n\":1}]},"
        "{\"record\":{\"id\":3},\"life\":null,\"said\":[],\"last\":null,\"saved\":null,\"logged\":null,"
        "\"tokens\":0,\"texts\":[{\"ids\":[7]},{\"n\":1}]}]");
    free(unfinished);
    /* Job 5 has no record, but its number has been seen. */
    assert_int_equal(store_next_job(f->store), 6);
}

static void sync_is_answered_behind_what_was_put(void **state)
{
    struct fixture *f = *state;
    store_put_event(f->store, 1, "step", "{\"step\":1}");
    store_sync(f->store, take, f);
    wait_answer(f, 1);
    assert_null(f->answer);
    /* Another process reads it from the disk. */
    char command[200];
    snprintf(command, sizeof command, "cp %s/ringd.db %s/copy.db && cp %s/ringd.db-wal %s/copy.db-wal",
             f->dir, f->dir, f->dir, f->dir);
    assert_int_equal(system(command), 0);
    snprintf(command, sizeof command, "%s/copy.db", f->dir);
    sqlite3 *db;
    sqlite3_stmt *stmt;
    assert_int_equal(sqlite3_open(command, &db), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db, "SELECT count(*) FROM events", -1, &stmt, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
    assert_int_equal(sqlite3_column_int(stmt, 0), 1);
    sqlite3_finalize(stmt);
    sqlite3_close(db);
}

static void closing_answers_what_was_asked(void **state)
{
    struct fixture *f = *state;
    store_put_job(f->store, 1, "done", "{}", NULL);
    store_get_jobs(f->store, 0, take, f);
    store_get_job(f->store, 1, take, f);
    close_store(f);
    assert_int_equal(f->answers, 2);
    assert_string_equal(f->answer, "{}");
    event_base_loop(f->base, EVLOOP_NONBLOCK);
    assert_int_equal(f->answers, 2);
}

static void a_damaged_file_is_set_aside(void **state)
{
    struct fixture *f = *state;
    char path[128], aside[300];
    store_put_job(f->store, 1, "done", "{}", NULL);
    close_store(f);
    snprintf(path, sizeof path, "%s/ringd.db", f->dir);
    FILE *file = fopen(path, "r+");
    fputs("this was a database once", file);
    fclose(file);
    open_store(f);
    const char *name = strstr(f->note, "/tmp/");
    assert_non_null(name);
    snprintf(aside, sizeof aside, "%.*s", (int)strcspn(name, ","), name);
    assert_non_null(strstr(aside, "ringd.db.damaged-"));
    assert_int_equal(access(aside, F_OK), 0);
    expect_job(f, 1, NULL);
}

static void a_newer_layout_is_refused(void **state)
{
    struct fixture *f = *state;
    char path[128];
    struct err err;
    sqlite3 *db;
    close_store(f);
    snprintf(path, sizeof path, "%s/ringd.db", f->dir);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    sqlite3_exec(db, "PRAGMA user_version=99", NULL, NULL, NULL);
    sqlite3_close(db);
    assert_true(store_open(&f->store, f->dir, f->box, NULL, f->note, &err) < 0);
    assert_non_null(strstr(err.text, "newer ringd"));
    assert_null(f->store);
}

static void a_folder_that_is_not_there_is_named(void **state)
{
    struct fixture *f = *state;
    struct store *s = NULL;
    struct err err;
    assert_true(store_open(&s, "/nonexistent/ringd", f->box, NULL, f->note, &err) < 0);
    assert_non_null(strstr(err.text, "/nonexistent/ringd/ringd.db"));
}

/* Fine where it is recent, coarser where it is not, and the same numbers in all. */
static void series_are_thinned_out(void **state)
{
    struct fixture *f = *state;
    int64_t now = time(NULL) / 3600 * 3600;
    char rows[200];
    snprintf(rows, sizeof rows, "[[\"a\",%lld,1],[\"a\",%lld,3],[\"a\",%lld,8],[\"b\",%lld,5]]",
             (long long)now, (long long)now + 4, (long long)now + 20, (long long)now);
    store_put_points(f->store, rows);
    store_get_series(f->store, take, f);
    wait_answer(f, 1);
    assert_string_equal(f->answer, "[\"a\",\"b\"]");
    char want[200];
    assert_int_equal(store_get_points(f->store, "a", now - 60, now + 60, now, take, f), 10);
    wait_answer(f, 2);
    snprintf(want, sizeof want, "[[%lld,2.0,1.0,3.0],[%lld,8.0,8.0,8.0]]", (long long)now,
             (long long)now + 20);
    assert_string_equal(f->answer, want);
    assert_int_equal(store_get_points(f->store, "a", now - 2 * 86400, now + 60, now, take, f), 300);
    wait_answer(f, 3);
    snprintf(want, sizeof want, "[[%lld,4.0,1.0,8.0]]", (long long)now);
    assert_string_equal(f->answer, want);
    assert_int_equal(store_get_points(f->store, "a", now - 90 * 86400, now + 60, now, take, f), 3600);
    wait_answer(f, 4);
    assert_string_equal(f->answer, want);
    store_get_points(f->store, "c", 0, now + 60, now, take, f);
    wait_answer(f, 5);
    assert_string_equal(f->answer, "[]");
}

/* However much is written, the file stays about as large as it may be, and what is newest is
 * there. */
static void the_file_has_its_limit(void **state)
{
    struct fixture *f = *state;
    enum { LIMIT = 1 << 20, LINES = 12000, LENGTH = 500 };
    char line[LENGTH + 3], path[128];
    struct stat st;
    store_set_limit(f->store, LIMIT);
    memset(line, 'x', sizeof line - 1);
    line[0] = line[LENGTH + 1] = '"';
    line[LENGTH + 2] = '\0';
    for (int i = 0; i < LINES; i++)
        store_put_event(f->store, 1, "log", line);
    store_put_event(f->store, 1, "log", "\"newest\"");
    store_get_events(f->store, 1, "log", 0, take, f);
    wait_answer(f, 1);
    assert_non_null(strstr(f->answer, ",\"newest\"]"));
    assert_true(strlen(f->answer) > LIMIT / 4);
    close_store(f);
    snprintf(path, sizeof path, "%s/ringd.db", f->dir);
    assert_int_equal(stat(path, &st), 0);
    assert_true(st.st_size < 3 * LIMIT);
    open_store(f);
}

static void a_full_disk_is_reported_and_got_over(void **state)
{
    struct fixture *f = *state;
    struct rlimit before, tight;
    store_put_job(f->store, 1, "running", "{\"v\":1}", NULL);
    expect_job(f, 1, "{\"v\":1}");
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before);
    tight = (struct rlimit){.rlim_cur = 1, .rlim_max = before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &tight);
    store_put_job(f->store, 1, "done", "{\"v\":2}", NULL);
    store_put_event(f->store, 1, "log", "\"waits\"");
    store_get_job(f->store, 1, take, f);
    wait_answer(f, f->answers + 1);
    assert_non_null(store_trouble(f->store));
    setrlimit(RLIMIT_FSIZE, &before);
    /* A read sees the writes before it, so they are tried again. */
    store_put_event(f->store, 1, "log", "\"next\"");
    expect_job(f, 1, "{\"v\":2}");
    assert_null(store_trouble(f->store));
    store_get_events(f->store, 1, "log", 0, take, f);
    wait_answer(f, f->answers + 1);
    assert_string_equal(f->answer, "[\"waits\",\"next\"]");
}

/* What waits is bounded: the oldest history gives way, a job's record stays. */
static void what_waits_has_its_limit(void **state)
{
    struct fixture *f = *state;
    enum { LINES = 5000, LENGTH = 2000 };
    struct rlimit before, tight;
    char line[LENGTH + 32];
    store_put_event(f->store, 1, "log", "\"before\"");
    expect_job(f, 1, NULL);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before);
    tight = (struct rlimit){.rlim_cur = 1, .rlim_max = before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &tight);
    store_put_job(f->store, 1, "running", "{\"v\":1}", NULL);
    store_put_job(f->store, 1, "done", "{\"v\":2}", NULL);
    for (int i = 0; i < LINES; i++) {
        snprintf(line, sizeof line, "\"%d%*s\"", i, LENGTH, "");
        store_put_event(f->store, 1, "log", line);
    }
    expect_job(f, 1, NULL);
    const struct ledger_queue *writes = ledger_first(f->ledger);
    assert_string_equal(writes->name, "store_writes");
    assert_int_equal(writes->cap, STORE_WAITING_MIB << 20);
    assert_in_range(atomic_load(&writes->bytes), (STORE_WAITING_MIB << 20) / 2,
                    (STORE_WAITING_MIB << 20) / 4 * 3);
    /* Records of jobs have room that history has not, and then history gives way to them. */
    char *record = malloc((1 << 20) + 64);
    assert_non_null(record);
    for (uint64_t job = 2; job <= 4; job++) {
        snprintf(record, (1 << 20) + 64, "{\"v\":%d,\"pad\":\"%*s\"}", (int)job, 600 << 10, "");
        store_put_job(f->store, job, "done", record, NULL);
        assert_in_range(atomic_load(&writes->bytes), 1, writes->cap);
    }
    setrlimit(RLIMIT_FSIZE, &before);
    expect_job(f, 1, "{\"v\":2}");
    for (uint64_t job = 2; job <= 4; job++) {
        snprintf(record, (1 << 20) + 64, "{\"v\":%d,\"pad\":\"%*s\"}", (int)job, 600 << 10, "");
        expect_job(f, job, record);
    }
    free(record);
    assert_int_equal(atomic_load(&writes->bytes), 0);
    store_get_events(f->store, 1, "log", 0, take, f);
    wait_answer(f, f->answers + 1);
    size_t n = strlen(f->answer);
    assert_in_range(n, (STORE_WAITING_MIB << 20) / 4, STORE_WAITING_MIB << 20);
    assert_non_null(strstr(f->answer, "\"4999 "));
    assert_null(strstr(f->answer, "\"0 "));
    assert_memory_equal(f->answer, "[\"before\",", 10);
}

static void a_bad_row_holds_up_no_other(void **state)
{
    struct fixture *f = *state;
    store_put_points(f->store, "[[\"a\",");
    store_put_event(f->store, 1, "log", "\"good\"");
    store_get_events(f->store, 1, "log", 0, take, f);
    wait_answer(f, 1);
    assert_string_equal(f->answer, "[\"good\"]");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(records_replace_each_other, set_up, tear_down),
        cmocka_unit_test_setup_teardown(series_are_thinned_out, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_file_has_its_limit, set_up, tear_down),
        cmocka_unit_test_setup_teardown(history_is_kept_by_kind, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_job_of_another_head_gets_a_number_here, set_up, tear_down),
        cmocka_unit_test_setup_teardown(everything_survives_a_restart, set_up, tear_down),
        cmocka_unit_test_setup_teardown(sync_is_answered_behind_what_was_put, set_up, tear_down),
        cmocka_unit_test_setup_teardown(closing_answers_what_was_asked, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_damaged_file_is_set_aside, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_newer_layout_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_folder_that_is_not_there_is_named, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_full_disk_is_reported_and_got_over, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_bad_row_holds_up_no_other, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_waits_has_its_limit, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
