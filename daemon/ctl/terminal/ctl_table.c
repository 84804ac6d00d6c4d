/* SPDX-License-Identifier: MIT
 *
 * Owns tables while they are put together. Called by every command that prints one. */
#include "daemon/ctl/terminal/ctl_table.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ctl/terminal/ctl_term.h"
#include "daemon/common/xalloc.h"

enum { COLUMNS_MAX = 16, COLUMN_GAP = 2, NARROWEST = 6, NARROWEST_CUT = 4 };

struct cell {
    const char *text; /* borrowed: the row */
    size_t bytes;
};

struct table {
    char **rows; /* owned: cells separated by tabs; the first is the heads */
    size_t n;
};

struct table *table_new(const char *heads)
{
    struct table *t = xcalloc(1, sizeof *t);
    table_add(t, "%s", heads);
    return t;
}

/* Names and sentences come from other machines: nothing in them may steer the terminal. */
static void disarm(char *row)
{
    for (char *p = row; *p; p++) {
        if (((unsigned char)*p < 0x20 && *p != '\t') || *p == 0x7f)
            *p = *p == '\n' ? ' ' : '?';
    }
}

void table_add(struct table *t, const char *fmt, ...)
{
    char *row = NULL;
    va_list ap;
    va_start(ap, fmt);
    int n = vasprintf(&row, fmt, ap);
    va_end(ap);
    if (n < 0)
        row = xstrdup("");
    disarm(row);
    t->rows = xreallocarray(t->rows, t->n + 1, sizeof *t->rows);
    t->rows[t->n++] = row;
}

size_t table_rows(const struct table *t)
{
    return t->n - 1;
}

void table_free(struct table *t)
{
    for (size_t r = 0; t && r < t->n; r++)
        free(t->rows[r]);
    if (t)
        free(t->rows);
    free(t);
}

static size_t split(const char *row, struct cell cells[static COLUMNS_MAX])
{
    size_t n = 0;
    for (;; row++) {
        cells[n].text = row;
        cells[n].bytes = strcspn(row, "\t");
        row += cells[n++].bytes;
        if (!*row || n == COLUMNS_MAX)
            return n;
    }
}

/* --- widths --- */

struct layout {
    size_t n, widths[COLUMNS_MAX];
    bool has_state[COLUMNS_MAX];
    bool colors;
};

static bool names_states(const struct cell *head)
{
    static const char *const heads[] = {"STATE", "STATUS", "LINK"};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        if (strlen(heads[i]) == head->bytes && !strncmp(heads[i], head->text, head->bytes))
            return true;
    return false;
}

/* Takes columns away from the widest until all fit; true if they do. None gets narrower than its
 * head, unless heads may be cut, too. */
static bool shrink(struct layout *l, const struct cell *heads, size_t width, bool cut_heads)
{
    for (;;) {
        size_t sum = (l->n - 1) * COLUMN_GAP, widest = SIZE_MAX;
        for (size_t c = 0; c < l->n; c++) {
            size_t head = text_columns(heads[c].text, heads[c].bytes);
            size_t least = cut_heads ? NARROWEST_CUT : head > NARROWEST ? head : NARROWEST;
            sum += l->widths[c];
            if (l->widths[c] > least && (widest == SIZE_MAX || l->widths[c] > l->widths[widest]))
                widest = c;
        }
        if (sum <= width || widest == SIZE_MAX)
            return sum <= width;
        l->widths[widest]--;
    }
}

static struct layout lay_out(const struct table *t, size_t width, bool colors)
{
    struct layout l = {.colors = colors};
    struct cell cells[COLUMNS_MAX], heads[COLUMNS_MAX];
    l.n = split(t->rows[0], heads);
    for (size_t r = 0; r < t->n; r++) {
        size_t n = split(t->rows[r], cells);
        for (size_t c = 0; c < n && c < l.n; c++) {
            size_t columns = text_columns(cells[c].text, cells[c].bytes);
            /* What stands alone in its row is a sentence, and makes no column wide. */
            if (columns > l.widths[c] && (n > 1 || l.n == 1))
                l.widths[c] = columns;
        }
    }
    for (size_t c = 0; c < l.n; c++)
        l.has_state[c] = names_states(&heads[c]);
    if (width && !shrink(&l, heads, width, false))
        shrink(&l, heads, width, true);
    return l;
}

/* --- printing --- */

/* How much of a text goes on this line: up to the last space that fits, or as much as fits. */
static size_t line_bytes(const char *text, size_t bytes, size_t columns)
{
    size_t fits = text_bytes(text, bytes, columns), cut = fits;
    if (fits == bytes)
        return bytes;
    while (cut && text[cut] != ' ')
        cut--;
    return cut ? cut : fits;
}

static void print_wrapped(const struct cell *cell, size_t columns, size_t indent, FILE *to)
{
    const char *text = cell->text;
    size_t left = cell->bytes;
    for (;;) {
        size_t n = line_bytes(text, left, columns);
        fprintf(to, "%.*s", (int)n, text);
        text += n;
        left -= n;
        for (; left && *text == ' '; left--)
            text++;
        if (!left)
            return;
        fprintf(to, "\n%*s", (int)indent, "");
    }
}

static void print_cell(const struct layout *l, size_t c, const struct cell *cell, size_t indent, bool is_last,
                       bool is_head, FILE *to)
{
    size_t columns = text_columns(cell->text, cell->bytes);
    enum paint paint = !l->colors        ? PAINT_NONE
                       : is_head         ? PAINT_HEAD
                       : l->has_state[c] ? paint_of_state(cell->text, cell->bytes)
                                         : PAINT_NONE;
    fputs(paint_on(paint), to);
    if (is_last && !is_head && columns > l->widths[c]) {
        print_wrapped(cell, l->widths[c], indent, to);
    } else if (columns > l->widths[c]) {
        size_t n = text_bytes(cell->text, cell->bytes, l->widths[c] - 1);
        fprintf(to, "%.*s…", (int)n, cell->text);
        columns = l->widths[c];
    } else {
        fprintf(to, "%.*s", (int)cell->bytes, cell->text);
    }
    fputs(paint_off(paint), to);
    if (!is_last)
        fprintf(to, "%*s", (int)(l->widths[c] - columns + COLUMN_GAP), "");
}

void table_print(const struct table *t, FILE *to, size_t width, bool colors)
{
    struct layout l = lay_out(t, width, colors);
    struct cell cells[COLUMNS_MAX];
    for (size_t r = 0; r < t->n; r++) {
        size_t n = split(t->rows[r], cells), indent = 0;
        n = n < l.n ? n : l.n;
        if (n == 1 && l.n > 1) {
            print_wrapped(&cells[0], width ? width : SIZE_MAX, 0, to);
        } else {
            while (n > 1 && !cells[n - 1].bytes)
                n--; /* nothing behind the last word of a line */
            for (size_t c = 0; c < n; c++) {
                print_cell(&l, c, &cells[c], indent, c + 1 == n, r == 0, to);
                indent += l.widths[c] + COLUMN_GAP;
            }
        }
        fputc('\n', to);
    }
}

void table_print_free(struct table *t, FILE *to)
{
    table_print(t, to, term_width(to), term_has_colors(to));
    table_free(t);
}
