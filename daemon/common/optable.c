/* SPDX-License-Identifier: MIT
 *
 * Owns the values of one option table and every sentence about a wrong option. Called by ringd and
 * ringctl at start, on the main thread. Each value remembers where it came from, so that a flag
 * wins over the file whichever is read first. */
#include "daemon/common/optable.h"

#include <assert.h>
#include <errno.h>
#include <ini.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "daemon/common/range_text.h"
#include "daemon/common/xalloc.h"

enum { HELP_WIDTH = 100, HELP_COLUMN_MAX = 34, INI_LINE_LIMIT = 199 /* inih cuts longer lines in two */ };

enum source { FROM_NOWHERE, FROM_DEFAULT, FROM_FILE, FROM_FLAG };

struct opt_value {
    enum source source;
    char *text; /* owned; all but LIST */
    int64_t integer;
    double real;
    bool flag;
    char **list; /* owned; LIST */
    size_t n_list;
};

struct opts {
    const struct opt_def *defs; /* borrowed: the table */
    size_t n;
    struct opt_value *values; /* owned, one per def */
};

/* --- finding an option by name --- */

static size_t count_defs(const struct opt_def *defs)
{
    size_t n = 0;
    while (defs[n].name)
        n++;
    return n;
}

static size_t find_name(const struct opts *o, const char *name, size_t n_name)
{
    size_t i = 0;
    while (i < o->n && (strncmp(o->defs[i].name, name, n_name) != 0 || o->defs[i].name[n_name]))
        i++;
    return i;
}

static const struct opt_value *value_of(const struct opts *o, const char *name)
{
    size_t i = find_name(o, name, strlen(name));
    if (i == o->n) {
        fprintf(stderr, "option table has no entry \"%s\"\n", name);
        abort();
    }
    return &o->values[i];
}

static size_t least_of(size_t a, size_t b)
{
    return a < b ? a : b;
}

bool opts_is_near(const char *wrong, const char *name, size_t *ret_distance)
{
    enum { LONGEST = 48 };
    size_t rows[3][LONGEST + 1]; /* row i of the table lies in rows[i % 3] */
    const size_t na = strlen(wrong), nb = strlen(name), shorter = least_of(na, nb);
    if (na > LONGEST || nb > LONGEST)
        return false;
    for (size_t i = 0; i <= na; i++)
        for (size_t j = 0; j <= nb; j++) {
            size_t *now = rows[i % 3], *before = rows[(i + 2) % 3], *earlier = rows[(i + 1) % 3],
                   best = i + j;
            if (i && j) {
                best = least_of(before[j - 1] + (wrong[i - 1] != name[j - 1]),
                                least_of(before[j], now[j - 1]) + 1);
                if (i > 1 && j > 1 && wrong[i - 1] == name[j - 2] && wrong[i - 2] == name[j - 1])
                    best = least_of(best, earlier[j - 2] + 1);
            }
            now[j] = best;
        }
    *ret_distance = rows[na % 3][nb];
    return *ret_distance <= (shorter < 3 ? 0 : shorter < 6 ? 1 : shorter < 10 ? 2 : 3);
}

/* Or the only one that begins like this. */
static const char *nearest_name(const struct opts *o, const char *wrong)
{
    const char *best = NULL, *begun = NULL;
    size_t least = SIZE_MAX, many = 0;
    for (size_t i = 0; i < o->n; i++) {
        size_t distance;
        if (opts_is_near(wrong, o->defs[i].name, &distance) && distance < least) {
            least = distance;
            best = o->defs[i].name;
        }
        if (strlen(wrong) >= 3 && !strncmp(o->defs[i].name, wrong, strlen(wrong))) {
            begun = o->defs[i].name;
            many++;
        }
    }
    return best ? best : many == 1 ? begun : NULL;
}

static int unknown_option(const struct opts *o, const char *dashes, const char *name, size_t n_name,
                          struct err *err)
{
    char *wrong = xstrndup(name, n_name);
    const char *near = nearest_name(o, wrong);
    if (near)
        err_set(err, -EINVAL, "unknown option %s%s: did you mean %s%s?", dashes, wrong, dashes, near);
    else
        err_set(err, -EINVAL, "unknown option %s%s: %s", dashes, wrong,
                *dashes ? "--help lists the options"
                        : "ringd --help lists the options, which are also the keys of this file");
    free(wrong);
    return -EINVAL;
}

/* --- checking a value --- */

static bool has_limits(const struct opt_def *def)
{
    return def->min != 0 || def->max != 0;
}

/* The sentence that fields.c has for JSON; what is no number is quoted as there. */
static int refuse(const struct opt_def *def, const char *range, const char *text, struct err *err)
{
    char *end;
    strtod(text, &end);
    const char *quote = *text && !*end ? "" : "\"";
    return err_set(err, -EINVAL, "--%s must be %s, and is %s%s%s", def->name, range, quote, text, quote);
}

static int refuse_number(const struct opt_def *def, const char *text, struct err *err)
{
    char range[RANGE_TEXT];
    const double min = has_limits(def) ? def->min : -INFINITY, max = has_limits(def) ? def->max : INFINITY;
    def->type == OPT_INT ? range_whole(range, min, max) : range_number(range, min, max);
    return refuse(def, range, text, err);
}

static int read_int(const struct opt_def *def, const char *text, int64_t *ret, struct err *err)
{
    char *end;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    const bool is_number = end != text && !*end && !errno;
    if (!is_number || (has_limits(def) && ((double)v < def->min || (double)v > def->max)))
        return refuse_number(def, text, err);
    *ret = v;
    return 0;
}

static int read_float(const struct opt_def *def, const char *text, double *ret, struct err *err)
{
    char *end;
    double v = strtod(text, &end);
    const bool is_number = end != text && !*end && isfinite(v);
    if (!is_number || (has_limits(def) && (v < def->min || v > def->max)))
        return refuse_number(def, text, err);
    *ret = v;
    return 0;
}

static int read_flag(const struct opt_def *def, const char *text, bool *ret, struct err *err)
{
    static const char *const yes[] = {"yes", "true", "on", "1"}, *const no[] = {"no", "false", "off", "0"};
    for (size_t i = 0; i < 4; i++) {
        if (!strcasecmp(text, yes[i]) || !strcasecmp(text, no[i])) {
            *ret = !strcasecmp(text, yes[i]);
            return 0;
        }
    }
    return refuse(def, "yes or no", text, err);
}

/* A path has a slash or a dot; no choice has. */
static int check_choice(const struct opt_def *def, const char *text, struct err *err)
{
    size_t n = strlen(text);
    bool path = strpbrk(text, "/.") != NULL;
    for (const char *p = def->placeholder; *p; p += strspn(p, "|")) {
        size_t len = strcspn(p, "|");
        bool file = len == 4 && !strncmp(p, "FILE", 4);
        if (file ? path : len == n && !strncmp(p, text, n))
            return 0;
        p += len;
    }
    char range[RANGE_TEXT];
    range_words(range, def->placeholder);
    return refuse(def, range, text, err);
}

/* --- setting a value --- */

static void value_clear(struct opt_value *v)
{
    free(v->text);
    for (size_t i = 0; i < v->n_list; i++)
        free(v->list[i]);
    free(v->list);
    *v = (struct opt_value){0};
}

static int value_set(struct opt_value *v, const struct opt_def *def, const char *text, enum source source,
                     struct err *err)
{
    if (v->source > source)
        return 0;
    struct opt_value fresh = {.source = source};
    int rc = 0;
    switch (def->type) {
    case OPT_INT: rc = read_int(def, text, &fresh.integer, err); break;
    case OPT_FLOAT: rc = read_float(def, text, &fresh.real, err); break;
    case OPT_FLAG: rc = read_flag(def, text, &fresh.flag, err); break;
    case OPT_CHOICE: rc = check_choice(def, text, err); break;
    case OPT_PATH:
    case OPT_LIST:
        if (!*text)
            rc = err_set(err, -EINVAL, "--%s: an empty %s", def->name, def->placeholder);
        break;
    case OPT_STRING: break;
    }
    if (rc)
        return rc;
    if (def->type == OPT_LIST && v->source == source) {
        v->list = xreallocarray(v->list, v->n_list + 1, sizeof *v->list);
        v->list[v->n_list++] = xstrdup(text);
        return 0;
    }
    value_clear(v);
    *v = fresh;
    if (def->type == OPT_LIST) {
        v->list = xmalloc(sizeof *v->list);
        v->list[v->n_list++] = xstrdup(text);
    } else {
        v->text = xstrdup(text);
    }
    return 0;
}

struct opts *opts_new(const struct opt_def *defs)
{
    struct opts *o = xcalloc(1, sizeof *o);
    o->defs = defs;
    o->n = count_defs(defs);
    o->values = xcalloc(o->n, sizeof *o->values);
    for (size_t i = 0; i < o->n; i++) {
        struct err err;
        if (defs[i].def && value_set(&o->values[i], &defs[i], defs[i].def, FROM_DEFAULT, &err)) {
            fprintf(stderr, "default in the option table: %s\n", err.text);
            abort();
        }
    }
    return o;
}

void opts_free(struct opts *o)
{
    if (!o)
        return;
    for (size_t i = 0; i < o->n; i++)
        value_clear(&o->values[i]);
    free(o->values);
    free(o);
}

int opts_set(struct opts *o, const char *name, const char *value, struct err *err)
{
    size_t i = find_name(o, name, strlen(name));
    if (i == o->n)
        return unknown_option(o, "--", name, strlen(name), err);
    return value_set(&o->values[i], &o->defs[i], value, FROM_FLAG, err);
}

bool opts_same(const struct opts *a, const struct opts *b, const char *name)
{
    const struct opt_value *x = value_of(a, name), *y = value_of(b, name);
    if (!x->text != !y->text || (x->text && strcmp(x->text, y->text)) || x->n_list != y->n_list)
        return false;
    for (size_t i = 0; i < x->n_list; i++)
        if (strcmp(x->list[i], y->list[i]))
            return false;
    return x->integer == y->integer && x->real == y->real && x->flag == y->flag;
}

void opts_take(struct opts *to, struct opts *from, const char *name)
{
    size_t i = find_name(to, name, strlen(name));
    assert(i < to->n && to->defs == from->defs);
    struct opt_value kept = to->values[i];
    to->values[i] = from->values[i];
    from->values[i] = kept;
}

int opts_check(const struct opts *o, struct err *err)
{
    char missing[400] = "";
    size_t at = 0, n = 0;
    for (size_t i = 0; i < o->n; i++) {
        const struct opt_def *def = &o->defs[i];
        if (!def->required || o->values[i].source != FROM_NOWHERE)
            continue;
        int wrote = snprintf(missing + at, sizeof missing - at, "%s--%s %s", n++ ? ", " : "", def->name,
                             def->placeholder ? def->placeholder : "");
        if (wrote > 0 && (size_t)wrote < sizeof missing - at)
            at += (size_t)wrote;
    }
    return n ? err_set(err, -EINVAL, "missing: %s", missing) : 0;
}

/* --- the command line --- */

struct args {
    int argc, at;
    char **argv;
};

/* One option whose definition is known; `inlined` is what follows "=" or a short name, NULL if
 * nothing does.
 */
static int take_option(struct opts *o, size_t i, const char *inlined, struct args *a, struct err *err)
{
    const struct opt_def *def = &o->defs[i];
    if (def->type == OPT_FLAG)
        return value_set(&o->values[i], def, inlined ? inlined : "yes", FROM_FLAG, err);
    if (!inlined && a->at + 1 >= a->argc)
        return err_set(err, -EINVAL, "--%s: a value is missing (%s)", def->name, def->placeholder);
    return value_set(&o->values[i], def, inlined ? inlined : a->argv[++a->at], FROM_FLAG, err);
}

static int take_long(struct opts *o, const char *name, struct args *a, bool *ret_help, struct err *err)
{
    size_t n_name = strcspn(name, "=");
    size_t i = find_name(o, name, n_name);
    if (i < o->n)
        return take_option(o, i, name[n_name] ? name + n_name + 1 : NULL, a, err);
    if (strcmp(name, "help") != 0)
        return unknown_option(o, "--", name, n_name, err);
    *ret_help = true;
    return 0;
}

/* "-k", "-kv" as two flags, "-n5" and "-n 5". */
static int take_short(struct opts *o, const char *letters, struct args *a, bool *ret_help, struct err *err)
{
    for (const char *p = letters; *p; p++) {
        size_t i = 0;
        while (i < o->n && o->defs[i].short_name != *p)
            i++;
        if (i == o->n && *p == 'h') {
            *ret_help = true;
            continue;
        }
        if (i == o->n)
            return err_set(
                err, -EINVAL,
                "unknown option -%s: --help lists the options (a text that begins with - goes after --)",
                letters);
        bool is_flag = o->defs[i].type == OPT_FLAG;
        int rc = take_option(o, i, !is_flag && p[1] ? p + 1 : NULL, a, err);
        if (rc || !is_flag)
            return rc;
    }
    return 0;
}

int opts_parse(struct opts *o, int argc, char **argv, char ***ret_positional, int *ret_npositional,
               bool *ret_help, struct err *err)
{
    struct args a = {.argc = argc, .argv = argv};
    char **positional = xcalloc((size_t)argc + 1, sizeof *positional);
    int n = 0, rc = 0;
    bool only_positional = false, help = false;
    for (a.at = 1; a.at < argc && !rc; a.at++) {
        char *arg = argv[a.at];
        if (only_positional || arg[0] != '-' || !arg[1])
            positional[n++] = arg;
        else if (!strcmp(arg, "--"))
            only_positional = true;
        else if (arg[1] == '-')
            rc = take_long(o, arg + 2, &a, &help, err);
        else
            rc = take_short(o, arg + 1, &a, &help, err);
    }
    if (rc) {
        free(positional);
        return rc;
    }
    *ret_positional = positional;
    *ret_npositional = n;
    *ret_help = help;
    return 0;
}

/* --- the file --- */

struct ini_read {
    struct opts *opts;
    FILE *file;
    struct err *err;
    const char *path;
    int line;  /* the one read last */
    int wrong; /* the first line found wrong, whose sentence is in err; 0 = none */
};

/* Reads like fgets and counts; a line longer than inih's buffer would come back as two, so it is
 * refused here. */
static char *ini_next_line(char *buf, int n, void *stream)
{
    struct ini_read *r = stream;
    if (!fgets(buf, n, r->file))
        return NULL;
    r->line++;
    if (!strchr(buf, '\n') && !feof(r->file)) {
        int c;
        while ((c = getc(r->file)) != EOF && c != '\n')
            ;
        if (!r->wrong) {
            r->wrong = r->line;
            err_set(r->err, -EINVAL, "%s line %d: longer than %d bytes", r->path, r->line, INI_LINE_LIMIT);
        }
    }
    return buf;
}

static int ini_take(void *owner, const char *section, const char *name, const char *value)
{
    struct ini_read *r = owner;
    struct err why;
    int rc;
    size_t i = find_name(r->opts, name, strlen(name));
    if (*section && strcmp(section, "ringd") != 0)
        rc = err_set(&why, -EINVAL, "unknown section [%s]: there is only [ringd]", section);
    else if (i == r->opts->n)
        rc = unknown_option(r->opts, "", name, strlen(name), &why);
    else
        rc = value_set(&r->opts->values[i], &r->opts->defs[i], value, FROM_FILE, &why);
    if (rc && !r->wrong) {
        r->wrong = r->line;
        err_set(r->err, rc, "%s line %d: %s", r->path, r->line, why.text);
    }
    return rc == 0;
}

int opts_read_ini(struct opts *o, const char *path, struct err *err)
{
    struct ini_read r = {.opts = o, .err = err, .path = path};
    r.file = fopen(path, "re");
    if (!r.file)
        return err_set(err, -errno, "%s: cannot be read: %s", path, strerror(errno));
    int bad_line = ini_parse_stream(ini_next_line, &r, ini_take, &r);
    bool unread = ferror(r.file);
    fclose(r.file);
    if (unread)
        return err_set(err, -EIO, "%s: cannot be read (is it a folder?)", path);
    if (bad_line > 0 && (!r.wrong || bad_line < r.wrong))
        return err_set(err, -EINVAL, "%s line %d: neither [section] nor key = value", path, bad_line);
    return r.wrong || bad_line < 0 ? -EINVAL : 0;
}

/* --- asking --- */

bool opts_is_set(const struct opts *o, const char *name)
{
    return value_of(o, name)->source >= FROM_FILE;
}

bool opts_flag(const struct opts *o, const char *name)
{
    return value_of(o, name)->flag;
}

int64_t opts_int(const struct opts *o, const char *name)
{
    return value_of(o, name)->integer;
}

double opts_float(const struct opts *o, const char *name)
{
    return value_of(o, name)->real;
}

const char *opts_str(const struct opts *o, const char *name)
{
    return value_of(o, name)->text;
}

size_t opts_list(const struct opts *o, const char *name, const char *const **ret)
{
    const struct opt_value *v = value_of(o, name);
    *ret = (const char *const *)v->list;
    return v->n_list;
}

/* --- --help --- */

static char *help_left(const struct opt_def *def)
{
    char letter[8] = "    ";
    if (def->short_name)
        snprintf(letter, sizeof letter, "-%c, ", def->short_name);
    return xasprintf("  %s--%s%s%s", letter, def->name, def->type == OPT_FLAG ? "" : " ",
                     def->type == OPT_FLAG ? "" : def->placeholder);
}

static char *help_right(const struct opt_def *def)
{
    const char *what = def->help ? def->help : "";
    if (def->required)
        return xasprintf("%s (required)", what);
    if (def->type == OPT_LIST)
        return xasprintf("%s (may be repeated)", what);
    if (def->def && def->type != OPT_FLAG)
        return xasprintf("%s (default %s)", what, *def->def ? def->def : "empty");
    return xstrdup(what);
}

/* Words from the current column on; each further line starts at `column`. */
static void print_wrapped(const char *text, size_t column, FILE *to)
{
    size_t at = column;
    for (const char *p = text + strspn(text, " "); *p; p += strspn(p, " ")) {
        size_t n = strcspn(p, " ");
        if (at > column && at + 1 + n > HELP_WIDTH) {
            fprintf(to, "\n%*s", (int)column, "");
            at = column;
        }
        at += (size_t)fprintf(to, "%s%.*s", at > column ? " " : "", (int)n, p);
        p += n;
    }
    fputc('\n', to);
}

void opts_help(const struct opt_def *defs, FILE *to)
{
    size_t column = 0;
    for (const struct opt_def *def = defs; def->name; def++) {
        char *left = help_left(def);
        size_t n = strlen(left) + 2;
        if (n > column && n <= HELP_COLUMN_MAX)
            column = n;
        free(left);
    }
    for (const struct opt_def *def = defs; def->name; def++) {
        char *left = help_left(def), *right = help_right(def);
        if (strlen(left) + 2 <= column)
            fprintf(to, "%-*s", (int)column, left);
        else
            fprintf(to, "%s\n%*s", left, (int)column, "");
        print_wrapped(right, column, to);
        free(left);
        free(right);
    }
}
