/* SPDX-License-Identifier: MIT
 *
 * Curves as TensorBoard's event files, read back by a reader of the format, and as tables. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/ctl/export/curves.h"
#include "daemon/ctl/export/event_file.h"

static json_t *read_json(const char *text)
{
    json_t *json = json_loads(text, 0, NULL);
    assert_non_null(json);
    return json;
}

/* A run of two steps, one of two adapters, and of one with a measurement before the first step. */
static json_t *curves(void)
{
    json_t *steps =
               read_json("[{\"step\":1,\"loss\":2.5,\"lr\":0.001,\"step_seconds\":2,\"adapter\":\"a\"},"
                         "{\"step\":1,\"loss\":3,\"step_seconds\":4,\"adapter\":\"b\"},"
                         "{\"step\":2,\"loss\":2.25,\"lr\":0.002,\"step_seconds\":3,\"adapter\":\"a\"}]"),
           *valid = read_json("[{\"step\":0,\"valid_loss\":3.5,\"adapter\":\"a\"},"
                              "{\"step\":1,\"valid_loss\":2.75,\"adapter\":\"a\"},"
                              "{\"step\":2,\"valid_loss\":2,\"adapter\":\"a\"}]");
    json_t *all = curves_of(steps, valid, 100);
    json_decref(steps);
    json_decref(valid);
    return all;
}

static char *written(void (*write)(FILE *, const json_t *), const json_t *rows, size_t *ret_n)
{
    char *text = NULL;
    FILE *to = open_memstream(&text, ret_n);
    assert_non_null(to);
    write(to, rows);
    assert_int_equal(fclose(to), 0);
    return text;
}

static void test_table(void **state)
{
    (void)state;
    json_t *all = curves();
    size_t n;
    char *text = written(curves_write_csv, json_object_get(all, "a"), &n);
    assert_string_equal(text, "step,time,loss,lr,grad_norm,tokens_per_second,valid_loss\n"
                              "0,100.000,,,,,3.5\n"
                              "1,102.000,2.5,0.001,,,2.75\n"
                              "2,105.000,2.25,0.002,,,2\n");
    free(text);
    text = written(curves_write_lines, json_object_get(all, "b"), &n);
    assert_string_equal(text, "{\"step\":1,\"time\":104.0,\"loss\":3}\n");
    free(text);
    json_decref(all);
}

static void test_sets(void **state)
{
    (void)state;
    json_t *steps = read_json("[{\"step\":1,\"loss\":0.5,\"step_seconds\":2}]"),
           *valid = read_json("[{\"step\":0,\"valid_loss\":3,\"valid_loss/b\":4,\"valid_tokens/b\":9},"
                              "{\"step\":1,\"valid_loss\":2,\"valid_loss/a\":2.5,\"valid_loss/b\":1}]"),
           *all = curves_of(steps, valid, 100);
    size_t n;
    char *text = written(curves_write_csv, json_object_get(all, ""), &n);
    assert_string_equal(text,
                        "step,time,loss,lr,grad_norm,tokens_per_second,valid_loss,valid_loss/b,valid_loss/a\n"
                        "0,100.000,,,,,3,4,\n"
                        "1,102.000,0.5,,,,2,1,2.5\n");
    free(text);
    text = written(curves_write_events, json_object_get(all, ""), &n);
    assert_non_null(memmem(text, n, "valid/loss/a", 12));
    free(text);
    json_decref(all);
    json_decref(steps);
    json_decref(valid);
}

/* What only some jobs have makes no empty columns in the others' tables. */
static void test_pairs(void **state)
{
    (void)state;
    json_t *steps = read_json("[{\"step\":1,\"loss\":0.5,\"rewards/margins\":0.25,\"step_seconds\":2}]"),
           *valid = read_json("[{\"step\":1,\"valid_loss\":0.5,\"valid_rewards/margins\":-1}]"),
           *all = curves_of(steps, valid, 100);
    size_t n;
    char *text = written(curves_write_csv, json_object_get(all, ""), &n);
    assert_string_equal(
        text,
        "step,time,loss,lr,grad_norm,tokens_per_second,valid_loss,rewards/margins,valid_rewards/margins\n"
        "1,102.000,0.5,,,,0.5,0.25,-1\n");
    free(text);
    json_decref(all);
    json_decref(steps);
    json_decref(valid);
}

static void test_no_training(void **state)
{
    (void)state;
    json_t *steps = read_json("[{\"step\":1,\"steps\":2,\"acc\":0.5},{\"step\":2,\"steps\":2,\"acc\":1}]"),
           *all = curves_of(steps, NULL, 100);
    assert_int_equal(json_object_size(all), 0);
    json_decref(all);
    json_decref(steps);
}

/* --- an own reader ---------------------------------------------------------------------------- */

static uint64_t fixed(const uint8_t *at, size_t bytes)
{
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; i++)
        value |= (uint64_t)at[i] << 8 * i;
    return value;
}

static bool is_sum(uint64_t masked, const uint8_t *bytes, size_t n)
{
    const uint32_t turned = (uint32_t)masked - 0xa282ead8;
    return (turned >> 17 | turned << 15) == event_file_crc(bytes, n);
}

static uint64_t varint(const uint8_t **at)
{
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
        value |= (uint64_t)(**at & 0x7f) << shift;
        if (!(*(*at)++ & 0x80))
            return value;
    }
}

/* "9.1=100 9.3=brain.Event:2", with messages in brackets. */
static void show_message(char *to, const uint8_t *at, size_t n)
{
    for (const uint8_t *end = at + n; at < end;) {
        const uint64_t key = varint(&at);
        to += sprintf(to, "%s%u=", to[-1] == '[' || to[-1] == ' ' ? "" : " ", (unsigned)(key >> 3));
        float f;
        double d;
        uint64_t size;
        switch (key & 7) {
        case 0: to += sprintf(to, "%llu", (unsigned long long)varint(&at)); break;
        case 1:
            memcpy(&d, at, 8);
            at += 8;
            to += sprintf(to, "%g", d);
            break;
        case 5:
            memcpy(&f, at, 4);
            at += 4;
            to += sprintf(to, "%g", (double)f);
            break;
        default:
            size = varint(&at);
            if (at[0] == 0x0a) { /* another message, whose first field is text or a message */
                to += sprintf(to, "[");
                show_message(to, at, size);
                to += strlen(to);
                to += sprintf(to, "]");
            } else
                to += sprintf(to, "%.*s", (int)size, (const char *)at);
            at += size;
        }
    }
}

static void test_events(void **state)
{
    (void)state;
    static const char *const records[] = {
        "1=100 3=brain.Event:2", "1=100 2=0 5=[1=[1=valid/loss 2=3.5]]",
        "1=102 2=1 5=[1=[1=train/loss 2=2.5] 1=[1=train/lr 2=0.001] 1=[1=valid/loss 2=2.75]]",
        "1=105 2=2 5=[1=[1=train/loss 2=2.25] 1=[1=train/lr 2=0.002] 1=[1=valid/loss 2=2]]"};
    json_t *all = curves();
    size_t n, i = 0;
    uint8_t *file = (uint8_t *)written(curves_write_events, json_object_get(all, "a"), &n);
    for (uint8_t *at = file; at < file + n; i++) {
        char text[400] = " ";
        const size_t size = fixed(at, 8);
        assert_true(i < 4 && is_sum(fixed(at + 8, 4), at, 8) &&
                    is_sum(fixed(at + 12 + size, 4), at + 12, size));
        show_message(text + 1, at + 12, size);
        assert_string_equal(text + 1, records[i]);
        at += 16 + size;
    }
    assert_int_equal(i, 4);
    free(file);
    json_decref(all);
}

/* RFC 3720's check value, and how every file of TensorFlow begins: a length of 24 and its sum. */
static void test_known_bytes(void **state)
{
    (void)state;
    static const uint8_t begin[] = {0x18, 0, 0, 0, 0, 0, 0, 0, 0xa3, 0x7f, 0x4b, 0x22, 0x09};
    assert_int_equal(event_file_crc((const uint8_t *)"123456789", 9), 0xe3069283);
    json_t *all = curves();
    size_t n;
    char *file = written(curves_write_events, json_object_get(all, "b"), &n);
    assert_memory_equal(file, begin, sizeof begin);
    free(file);
    json_decref(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),       cmocka_unit_test(test_pairs),  cmocka_unit_test(test_sets),
        cmocka_unit_test(test_no_training), cmocka_unit_test(test_events), cmocka_unit_test(test_known_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
