/* SPDX-License-Identifier: MIT */
#include "daemon/ctl/export/curves.h"

#include <stdbool.h>
#include <string.h>

#include "daemon/common/job_spec.h"
#include "daemon/ctl/export/event_file.h"
#include "daemon/ctl/terminal/ctl_print.h"

/* A column of a row, and its name in TensorBoard. A rare one is in a table only if a row has it. */
static const struct column {
    const char *key, *tag;
    bool is_rare;
} columns[] = {{"loss", "train/loss", false},
               {"lr", "train/lr", false},
               {"grad_norm", "train/grad_norm", false},
               {"tokens_per_second", "train/tokens_per_second", false},
               {"valid_loss", "valid/loss", false},
               {"valid_perplexity", "valid/perplexity", true},
               {"rewards/accuracies", "train/rewards/accuracies", true},
               {"rewards/margins", "train/rewards/margins", true},
               {"valid_rewards/accuracies", "valid/rewards/accuracies", true},
               {"valid_rewards/margins", "valid/rewards/margins", true},
               {"exact_match", "valid/exact_match", true}};
enum { COLUMNS = sizeof columns / sizeof *columns };

/* A further set that was evaluated, "valid_loss/NAME", has a column of its own. */
#define SET_KEY "valid_loss/"
#define SET_TAG "valid/loss/"
enum { SETS_MOST = JOB_EVAL_SETS, SET_TAG_MOST = 128 };

static bool is_set(const char *key)
{
    return !strncmp(key, SET_KEY, strlen(SET_KEY));
}

/* --- rows ------------------------------------------------------------------------------------- */

static json_t *rows_for(json_t *curves, const json_t *event)
{
    const char *name = field_text(event, "adapter", "");
    json_t *rows = json_object_get(curves, name);
    if (!rows)
        json_object_set_new(curves, name, rows = json_array());
    return rows;
}

static void copy_columns(json_t *row, const json_t *event)
{
    const char *key;
    json_t *value;
    json_object_foreach ((json_t *)(uintptr_t)event, key, value)
        if (is_set(key) && json_is_number(value))
            json_object_set(row, key, value);
    for (size_t c = 0; c < COLUMNS; c++)
        if (json_is_number(json_object_get(event, columns[c].key)))
            json_object_set(row, columns[c].key, json_object_get(event, columns[c].key));
}

static bool has_columns(const json_t *event)
{
    bool has = false;
    for (size_t c = 0; c < COLUMNS; c++)
        has = has || json_is_number(json_object_get(event, columns[c].key));
    return has;
}

/* Steps of a job that evaluates make no curve. */
static void add_step(json_t *curves, const json_t *event, double started)
{
    if (!has_columns(event))
        return;
    json_t *rows = rows_for(curves, event);
    const json_t *last = json_array_get(rows, json_array_size(rows) - 1);
    const double time = (last ? field_number(last, "time") : started) + field_number(event, "step_seconds");
    json_t *row = json_pack("{s:O s:f}", "step", json_object_get(event, "step"), "time", time);
    copy_columns(row, event);
    json_array_append_new(rows, row);
}

/* Beside its step, or in a row of its own: before the first step, or of one that is not kept. */
static void add_evaluation(json_t *curves, const json_t *event, double started)
{
    json_t *rows = rows_for(curves, event);
    const double step = field_number(event, "step");
    size_t at = json_array_size(rows);
    while (at && field_number(json_array_get(rows, at - 1), "step") > step)
        at--;
    json_t *before = at ? json_array_get(rows, at - 1) : NULL;
    if (before && field_number(before, "step") == step) {
        copy_columns(before, event);
        return;
    }
    json_t *row = json_pack("{s:O s:f}", "step", json_object_get(event, "step"), "time",
                            before ? field_number(before, "time") : started);
    copy_columns(row, event);
    json_array_insert_new(rows, at, row);
}

json_t *curves_of(const json_t *steps, const json_t *evaluations, double started)
{
    json_t *curves = json_object(), *event;
    size_t i;
    json_array_foreach (steps, i, event)
        add_step(curves, event, started);
    json_array_foreach (evaluations, i, event)
        add_evaluation(curves, event, started);
    return curves;
}

/* --- files ------------------------------------------------------------------------------------ */

static bool is_shown(const json_t *rows, const struct column *column)
{
    size_t i;
    json_t *row;
    bool is = !column->is_rare;
    json_array_foreach (rows, i, row)
        is = is || json_object_get(row, column->key);
    return is;
}

/* Keys of all sets that a row has, in the order in which they come; returns how many. */
static size_t sets_of(const char *ret[SETS_MOST], const json_t *rows)
{
    size_t i, n = 0;
    json_t *row, *value;
    const char *key;
    json_array_foreach (rows, i, row)
        json_object_foreach (row, key, value) {
            bool is_new = is_set(key) && n < SETS_MOST;
            for (size_t k = 0; k < n; k++)
                is_new = is_new && strcmp(ret[k], key) != 0;
            if (is_new)
                ret[n++] = key;
        }
    return n;
}

static void write_cell(FILE *to, const json_t *value)
{
    fputc(',', to);
    if (value)
        fprintf(to, "%.17g", json_number_value(value));
}

void curves_write_csv(FILE *to, const json_t *rows)
{
    const char *sets[SETS_MOST];
    const size_t nsets = sets_of(sets, rows);
    size_t i;
    json_t *row;
    bool shown[COLUMNS];
    fputs("step,time", to);
    for (size_t c = 0; c < COLUMNS; c++)
        if ((shown[c] = is_shown(rows, &columns[c])))
            fprintf(to, ",%s", columns[c].key);
    for (size_t s = 0; s < nsets; s++)
        fprintf(to, ",%s", sets[s]);
    fputc('\n', to);
    json_array_foreach (rows, i, row) {
        fprintf(to, "%.0f,%.3f", field_number(row, "step"), field_number(row, "time"));
        for (size_t c = 0; c < COLUMNS; c++)
            if (shown[c])
                write_cell(to, json_object_get(row, columns[c].key));
        for (size_t s = 0; s < nsets; s++)
            write_cell(to, json_object_get(row, sets[s]));
        fputc('\n', to);
    }
}

void curves_write_lines(FILE *to, const json_t *rows)
{
    size_t i;
    json_t *row;
    json_array_foreach (rows, i, row) {
        json_dumpf(row, to, JSON_COMPACT);
        fputc('\n', to);
    }
}

void curves_write_events(FILE *to, const json_t *rows)
{
    const char *sets[SETS_MOST];
    const size_t nsets = sets_of(sets, rows);
    size_t i;
    json_t *row;
    event_file_begin(to, field_number(json_array_get(rows, 0), "time"));
    json_array_foreach (rows, i, row) {
        struct event_scalar scalars[COLUMNS + SETS_MOST];
        char tags[SETS_MOST][SET_TAG_MOST];
        size_t n = 0;
        for (size_t c = 0; c < COLUMNS; c++) {
            const json_t *value = json_object_get(row, columns[c].key);
            if (value)
                scalars[n++] = (struct event_scalar){columns[c].tag, (float)json_number_value(value)};
        }
        for (size_t s = 0; s < nsets; s++) {
            const json_t *value = json_object_get(row, sets[s]);
            snprintf(tags[s], sizeof tags[s], SET_TAG "%s", sets[s] + strlen(SET_KEY));
            if (value)
                scalars[n++] = (struct event_scalar){tags[s], (float)json_number_value(value)};
        }
        event_file_add(to, field_number(row, "time"), (uint64_t)field_number(row, "step"), scalars, n);
    }
}
