/* SPDX-License-Identifier: MIT */
#include "daemon/ctl/terminal/step_chart.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ctl/terminal/ctl_term.h"

enum { WAITS = 6, NAME_MAX_COLUMNS = 12, STAGES_TEXT = 1024 };

struct span {
    char text[24];
};
static struct span span_of(double seconds)
{
    struct span s;
    if (seconds < 1)
        snprintf(s.text, sizeof s.text, "%.3g ms", 1e3 * seconds);
    else
        snprintf(s.text, sizeof s.text, "%.3g s", seconds);
    return s;
}

static bool has_plan(const struct step_view *v)
{
    return !isnan(v->planned_seconds);
}

static double length_of(const struct step_view *v)
{
    double seconds = has_plan(v) ? fmax(v->seconds, v->planned_seconds) : v->seconds;
    return seconds > 0 ? seconds : 1e-6;
}

static const char *node_of(const struct step_view *v, int rank)
{
    return rank >= 0 && (size_t)rank < v->nranks ? v->ranks[rank].node : "";
}

static void wait_text(char *ret, size_t size, const struct step_view *v, const struct step_wait *w)
{
    const char *from = node_of(v, w->from);
    snprintf(ret, size, "%s stood still for %s%s%s%s%s", v->ranks[w->rank].node, span_of(w->seconds).text,
             *w->message ? ", waiting for " : "", w->message, *from ? " of " : "", from);
}

static void summary_text(char *ret, size_t size, const struct step_view *v)
{
    char steps[40] = "";
    if (v->steps > 1)
        snprintf(steps, sizeof steps, " of %.0f steps", v->steps);
    int used =
        snprintf(ret, size, "job %.0f, step %.0f, %s, %.0f microbatches%s: took %s, bubble %.1f %%", v->job,
                 v->step, v->schedule, v->microbatches, steps, span_of(v->seconds).text, 100 * v->bubble);
    if (has_plan(v) && used > 0 && (size_t)used < size)
        snprintf(ret + used, size - (size_t)used, "; planned %s, bubble %.1f %%",
                 span_of(v->planned_seconds).text, 100 * v->planned_bubble);
}

/* The stages of a rank, from the lowest on. */
struct chunks {
    bool is_held[256];
    uint8_t index[256]; /* of those held */
    size_t n;
};

static void chunks_of(struct chunks *ret, const struct step_rank *r)
{
    enum { STAGES = sizeof ret->is_held / sizeof *ret->is_held };
    *ret = (struct chunks){.n = 0};
    for (size_t i = 0; i < r->n; i++)
        if (r->tasks[i].stage >= 0 && r->tasks[i].stage < STAGES)
            ret->is_held[r->tasks[i].stage] = true;
    for (size_t s = 0; s < STAGES; s++)
        if (ret->is_held[s])
            ret->index[s] = (uint8_t)ret->n++;
}

static size_t chunk_of(const struct step_task *t, const struct chunks *chunks)
{
    const size_t stage = (size_t)t->stage;
    return t->stage >= 0 && stage < sizeof chunks->index ? chunks->index[stage] : 0;
}

/* "n1 0 and 5, n2 1 and 4": which stages they are, where nodes have several. False: none has. */
static bool stages_text(char *ret, size_t size, const struct step_view *v)
{
    size_t used = 0;
    bool several = false;
    *ret = '\0';
    for (size_t r = 0; r < v->nranks; r++) {
        struct chunks chunks;
        size_t left;
        chunks_of(&chunks, &v->ranks[r]);
        several = several || chunks.n > 1;
        left = chunks.n;
        for (size_t s = 0; left && s < sizeof chunks.index && used < size; s++)
            if (chunks.is_held[s]) {
                const bool first = left == chunks.n;
                left--;
                used += (size_t)snprintf(ret + used, size - used, "%s%s%s%zu",
                                         first ? (used ? ", " : "") : (left ? ", " : " and "),
                                         first ? v->ranks[r].node : "", first ? " " : "", s);
            }
    }
    return several;
}

/* --- text ------------------------------------------------------------------------------------- */

struct chart_line {
    char *cells; /* [columns], owned */
    size_t columns;
    double per_column; /* seconds */
};

static char letter_of(const struct step_task *t, const struct chunks *chunks)
{
    const bool lower = chunk_of(t, chunks) % 2;
    return lower && *t->kind >= 'A' && *t->kind <= 'Z' ? (char)(*t->kind - 'A' + 'a') : *t->kind;
}

/* Its name where there is room, and on to its end. */
static void draw(struct chart_line *l, const struct step_task *t, char letter, double start, double end)
{
    size_t from = (size_t)lround(fmax(start, 0) / l->per_column),
           to = (size_t)lround(fmax(end, 0) / l->per_column);
    char name[24];
    to = to < l->columns ? to : l->columns;
    if (to <= from)
        return; /* too short to be seen */
    int n = snprintf(name, sizeof name, "%s", t->kind);
    if (n == 1 && t->mb >= 0)
        n = snprintf(name, sizeof name, "%s%d", t->kind, t->mb);
    name[0] = letter;
    n = (size_t)n > to - from ? 1 : n;
    memset(l->cells + from, '-', to - from);
    memcpy(l->cells + from, name, (size_t)n);
}

static void text_line(FILE *to, struct chart_line *l, const struct step_rank *r, bool planned)
{
    struct chunks chunks;
    memset(l->cells, '.', l->columns);
    chunks_of(&chunks, r);
    for (size_t i = 0; i < r->n; i++) {
        const struct step_task *t = &r->tasks[i];
        double start = planned ? t->planned_start : t->start, end = planned ? t->planned_end : t->end;
        if (!isnan(start) && !isnan(end))
            draw(l, t, letter_of(t, &chunks), start, end);
    }
    fwrite(l->cells, 1, l->columns, to);
}

static size_t name_columns(const struct step_view *v)
{
    size_t most = 4;
    for (size_t r = 0; r < v->nranks; r++) {
        size_t columns = text_columns(v->ranks[r].node, strlen(v->ranks[r].node));
        most = columns > most ? columns : most;
    }
    return most < NAME_MAX_COLUMNS ? most : NAME_MAX_COLUMNS;
}

static void print_name(FILE *to, const char *name, size_t columns)
{
    size_t bytes = text_bytes(name, strlen(name), columns);
    fprintf(to, "%.*s%*s", (int)bytes, name, (int)(columns - text_columns(name, bytes)), "");
}

static void text_ranks(FILE *to, const struct step_view *v, struct chart_line *l, size_t names, bool colors)
{
    for (size_t r = 0; r < v->nranks; r++) {
        print_name(to, v->ranks[r].node, names);
        if (has_plan(v)) {
            fprintf(to, "%s planned ", colors ? paint_on(PAINT_DIM) : "");
            text_line(to, l, &v->ranks[r], true);
            fprintf(to, "%s\n%*s", colors ? paint_off(PAINT_DIM) : "", (int)names, "");
        }
        fputs(" done    ", to);
        text_line(to, l, &v->ranks[r], false);
        fputc('\n', to);
    }
}

static void text_notes(FILE *to, const struct step_view *v)
{
    struct step_wait waits[WAITS];
    size_t n = step_view_waits(v, waits, WAITS);
    double error = 0;
    char stages[STAGES_TEXT];
    if (stages_text(stages, sizeof stages, v))
        fprintf(to, "stages: %s; every second stage of a node is in lower case\n", stages);
    for (size_t i = 0; i < n; i++) {
        char text[256];
        wait_text(text, sizeof text, v, &waits[i]);
        fprintf(to, "%s\n", text);
    }
    for (size_t r = 0; r < v->nranks; r++) {
        error = fmax(error, v->ranks[r].clock_error);
        if (!v->ranks[r].is_placed)
            fprintf(to, "the clock of %s is not known: its line begins where the first one does\n",
                    v->ranks[r].node);
    }
    if (error > length_of(v) / 100)
        fprintf(to, "clocks agree to %s\n", span_of(error).text);
    if (!has_plan(v))
        fputs("no plan of this step can be shown\n", to);
}

void step_chart_text(FILE *to, const struct step_view *v, size_t width, bool colors)
{
    enum { WORD = 9, LEAST = 20 }; /* " planned " */
    size_t names = name_columns(v), left = names + WORD;
    struct chart_line l = {.columns = width > left + LEAST ? width - left : LEAST};
    char text[256];
    l.cells = malloc(l.columns);
    l.per_column = length_of(v) / (double)l.columns;
    summary_text(text, sizeof text, v);
    fprintf(to, "%s\n", text);
    if (l.cells)
        text_ranks(to, v, &l, names, colors);
    free(l.cells);
    text_notes(to, v);
}

/* --- SVG -------------------------------------------------------------------------------------- */

enum { WIDTH = 1200, LEFT = 110, RIGHT = 20, TOP = 34, PLANNED = 12, DONE = 22, GAP = 16, NOTE = 17 };

static void escaped(FILE *to, const char *text)
{
    for (; *text; text++) {
        if (*text == '<')
            fputs("&lt;", to);
        else if (*text == '>')
            fputs("&gt;", to);
        else if (*text == '&')
            fputs("&amp;", to);
        else if ((unsigned char)*text >= ' ')
            fputc(*text, to);
    }
}

/* The later a stage of its node, the darker; white letters can be read on all of them. */
static unsigned color_of(const struct step_task *t, const struct chunks *chunks)
{
    static const struct {
        const char *kind;
        unsigned color;
    } colors[] = {{"F", 0x4e79a7}, {"B", 0x59a14f}, {"I", 0x76b7b2}, {"W", 0xedc948}, {"R", 0xb07aa1}};
    unsigned color = 0x9c755f, dark = 0;
    for (size_t i = 0; i < sizeof colors / sizeof *colors; i++)
        if (!strcmp(t->kind, colors[i].kind))
            color = colors[i].color;
    const double share = chunks->n > 1 ? 1 - 0.4 * (double)chunk_of(t, chunks) / (double)(chunks->n - 1) : 1;
    for (unsigned shift = 0; shift < 24; shift += 8)
        dark |= (unsigned)lround(share * (double)(color >> shift & 0xff)) << shift;
    return dark;
}

/* As schedules write it: the stage in front where its node has several. */
static void label_of(char *ret, size_t size, const struct step_task *t, const struct chunks *chunks)
{
    *ret = '\0';
    if (strlen(t->kind) == 1 && t->mb >= 0 && chunks->n > 1)
        snprintf(ret, size, "%d%s%d", t->stage, t->kind, t->mb);
    else if (strlen(t->kind) == 1 && t->mb >= 0)
        snprintf(ret, size, "%s%d", t->kind, t->mb);
}

static double x_of(const struct step_view *v, double seconds)
{
    return LEFT + seconds / length_of(v) * (WIDTH - LEFT - RIGHT);
}

static void svg_task(FILE *to, const struct step_view *v, const struct step_task *t,
                     const struct chunks *chunks, double y, bool planned)
{
    double start = planned ? t->planned_start : t->start, end = planned ? t->planned_end : t->end;
    double x = x_of(v, start), width = fmax(x_of(v, end) - x - 0.5, 0.5);
    int height = planned ? PLANNED : DONE;
    char label[32];
    label_of(label, sizeof label, t, chunks);
    fprintf(to, "<rect x=\"%.2f\" y=\"%.0f\" width=\"%.2f\" height=\"%d\" fill=\"#%06x\"%s><title>", x, y,
            width, height, color_of(t, chunks), planned ? " opacity=\"0.5\"" : "");
    escaped(to, t->kind);
    if (t->mb >= 0)
        fprintf(to, " of microbatch %d", t->mb);
    if (t->stage >= 0)
        fprintf(to, ", stage %d", t->stage);
    fprintf(to, ": %s at %s</title></rect>\n", span_of(end - start).text, span_of(start).text);
    if (*label && !planned && width > 8 * (double)strlen(label)) {
        fprintf(to, "<text x=\"%.2f\" y=\"%.0f\" text-anchor=\"middle\" fill=\"#fff\">", x + width / 2,
                y + 15);
        escaped(to, label);
        fputs("</text>\n", to);
    }
}

static void svg_wait(FILE *to, const struct step_view *v, const struct step_task *t, double y)
{
    double x = x_of(v, t->start - t->waited), width = x_of(v, t->start) - x;
    if (width < 0.5)
        return;
    fprintf(to,
            "<rect x=\"%.2f\" y=\"%.0f\" width=\"%.2f\" height=\"%d\" fill=\"#e15759\" opacity=\"0.25\">"
            "<title>waits %s",
            x, y, width, DONE, span_of(t->waited).text);
    fputs(*t->message ? " for " : "", to);
    escaped(to, t->message);
    fputs(*node_of(v, t->from) ? " of " : "", to);
    escaped(to, node_of(v, t->from));
    fputs("</title></rect>\n", to);
}

static void svg_rank(FILE *to, const struct step_view *v, size_t rank, double y)
{
    const struct step_rank *r = &v->ranks[rank];
    struct chunks chunks;
    chunks_of(&chunks, r);
    fprintf(to, "<text x=\"0\" y=\"%.0f\">", y + PLANNED);
    escaped(to, r->node);
    fprintf(to, "</text><text x=\"0\" y=\"%.0f\" fill=\"#777\">rank %zu</text>\n", y + PLANNED + 16, rank);
    for (size_t i = 0; i < r->n; i++) {
        const struct step_task *t = &r->tasks[i];
        if (!isnan(t->planned_start) && !isnan(t->planned_end))
            svg_task(to, v, t, &chunks, y, true);
        if (t->waited > 0)
            svg_wait(to, v, t, y + PLANNED + 2);
        svg_task(to, v, t, &chunks, y + PLANNED + 2, false);
    }
}

static void svg_axis(FILE *to, const struct step_view *v, double bottom)
{
    double about = length_of(v) / 8, power = pow(10, floor(log10(about))), tick = power;
    const double steps[] = {2, 5, 10};
    for (size_t i = 0; i < sizeof steps / sizeof *steps && tick < about; i++)
        tick = steps[i] * power;
    for (size_t k = 0; (double)k * tick <= length_of(v) * 1.0001; k++) {
        double x = x_of(v, (double)k * tick);
        fprintf(to,
                "<path d=\"M%.2f %dV%.0f\" stroke=\"#ddd\"/><text x=\"%.2f\" y=\"%.0f\" "
                "text-anchor=\"middle\" fill=\"#777\">%s</text>\n",
                x, TOP - 4, bottom, x, bottom + 13, k ? span_of((double)k * tick).text : "0");
    }
}

static void svg_note(FILE *to, double y, const char *text)
{
    fprintf(to, "<text x=\"%d\" y=\"%.0f\">", LEFT, y);
    escaped(to, text);
    fputs("</text>\n", to);
}

void step_chart_svg(FILE *to, const struct step_view *v)
{
    struct step_wait waits[WAITS];
    size_t n = step_view_waits(v, waits, WAITS);
    char text[256], stages[STAGES_TEXT], note[STAGES_TEXT + 64];
    const bool several = stages_text(stages, sizeof stages, v);
    double each = PLANNED + 2 + DONE + GAP, bottom = TOP + (double)v->nranks * each, at = bottom + 30,
           height = at + (double)(n + several) * NOTE;
    fprintf(to,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%.0f\" viewBox=\"0 0 %d %.0f\" "
            "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" "
            "fill=\"#fff\"/>\n<text x=\"0\" y=\"16\" font-weight=\"bold\">",
            WIDTH, height, WIDTH, height);
    summary_text(text, sizeof text, v);
    escaped(to, text);
    fputs("</text>\n", to);
    svg_axis(to, v, bottom);
    for (size_t r = 0; r < v->nranks; r++)
        svg_rank(to, v, r, TOP + (double)r * each);
    if (several) {
        snprintf(note, sizeof note, "stages: %s; the later one of a node is the darker", stages);
        svg_note(to, at, note);
        at += NOTE;
    }
    for (size_t i = 0; i < n; i++) {
        wait_text(text, sizeof text, v, &waits[i]);
        svg_note(to, at + (double)i * NOTE, text);
    }
    fputs("</svg>\n", to);
}
