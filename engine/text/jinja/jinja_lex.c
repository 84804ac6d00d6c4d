/* SPDX-License-Identifier: MIT
 *
 * Owns the rules of tags: where they begin and end, what they do to the whitespace around them
 * (trim_blocks and lstrip_blocks are on, as chat templates expect), and Python's string escapes.
 * Called by the parser, on its thread. */
#include "text/jinja/jinja_lex.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "text/pytext.h"
#include "text/textbuf.h"
#include "text/utf8.h"

enum { NESTING_MAX = 100 };

struct lexer {
    const char *s; /* newlines are \n, the last one is gone */
    size_t n, at;
    uint32_t line;
    bool line_starts; /* what came before ended with a newline */
    struct arena *arena;
    struct jinja_tokens tokens;
    struct err *err;
};

static int no_memory(struct lexer *l)
{
    return err_set(l->err, -ENOMEM, "no memory for the template");
}

static int add(struct lexer *l, enum jinja_token_kind kind, const char *s, size_t n)
{
    void *at = l->tokens.at;
    if (array_reserve(&at, &l->tokens.cap, l->tokens.n + 1, sizeof *l->tokens.at))
        return no_memory(l);
    l->tokens.at = at;
    l->tokens.at[l->tokens.n++] = (struct jinja_token){kind, l->line, {s, n}};
    return 0;
}

static char peek(const struct lexer *l, size_t ahead)
{
    return l->at + ahead < l->n ? l->s[l->at + ahead] : '\0';
}

static void skip(struct lexer *l, size_t n)
{
    for (; n > 0; n--)
        l->line += l->s[l->at++] == '\n';
    l->line_starts = l->at > 0 && l->s[l->at - 1] == '\n';
}

static void skip_space(struct lexer *l)
{
    size_t n = pytext_lspace(l->s + l->at, l->n - l->at);
    skip(l, n);
}

/* After a tag: '-' takes all whitespace, '+' nothing, else one newline goes where `trims`. */
static void end_tag(struct lexer *l, char sign, bool trims)
{
    if (sign == '-')
        skip_space(l);
    else if (sign != '+' && trims && peek(l, 0) == '\n')
        skip(l, 1);
}

static bool starts_tag(const struct lexer *l, size_t at)
{
    return l->s[at] == '{' && at + 1 < l->n && strchr("{%#", l->s[at + 1]);
}

/* The text from `start` to a tag, less what the tag's sign, or its being alone on a line, takes
 * away. */
static int add_text(struct lexer *l, size_t start, size_t end, char tag, char sign, bool line_starts)
{
    const char *s = l->s + start;
    size_t n = end - start;
    if (sign == '-') {
        n = pytext_rspace(s, n);
    } else if (sign != '+' && tag != '{') {
        size_t line = n;
        while (line > 0 && s[line - 1] != '\n')
            line--;
        if ((line > 0 || line_starts) && pytext_lspace(s + line, n - line) == n - line)
            n = line;
    }
    return n > 0 ? add(l, TOKEN_TEXT, s, n) : 0;
}

static int comment(struct lexer *l)
{
    uint32_t line = l->line;
    size_t start = l->at;
    const char *end = memmem(l->s + l->at, l->n - l->at, "#}", 2);
    if (!end)
        return err_set(l->err, -EINVAL, "line %u: the comment {# has no end #}", line);
    size_t at = (size_t)(end - l->s);
    char sign = at > start ? l->s[at - 1] : '\0';
    skip(l, at + 2 - start);
    end_tag(l, sign, true);
    return 0;
}

/* Is this "{% WORD %}", with any signs and blanks? Then ret_len bytes of it, and the sign at its
 * end. */
static bool is_bare_tag(const struct lexer *l, size_t at, const char *word, size_t *ret_len, char *ret_sign)
{
    size_t i = at + 2, w = strlen(word);
    if (at + 2 > l->n || memcmp(l->s + at, "{%", 2) != 0)
        return false;
    if (i < l->n && (l->s[i] == '-' || l->s[i] == '+'))
        i++;
    i += pytext_lspace(l->s + i, l->n - i);
    if (l->n - i < w || memcmp(l->s + i, word, w) != 0)
        return false;
    i += w;
    i += pytext_lspace(l->s + i, l->n - i);
    *ret_sign = i < l->n && (l->s[i] == '-' || l->s[i] == '+') ? l->s[i++] : '\0';
    if (l->n - i < 2 || memcmp(l->s + i, "%}", 2) != 0)
        return false;
    *ret_len = i + 2 - at;
    return true;
}

/* {% raw %} … {% endraw %}; we stand behind the first. */
static int raw(struct lexer *l)
{
    uint32_t line = l->line;
    bool line_starts = l->line_starts;
    size_t start = l->at, len;
    char sign;
    for (size_t at = start; at + 1 < l->n; at++) {
        if (!is_bare_tag(l, at, "endraw", &len, &sign))
            continue;
        int r = add_text(l, start, at, '%', l->s[at + 2], line_starts);
        skip(l, at + len - start);
        end_tag(l, sign, true);
        return r;
    }
    return err_set(l->err, -EINVAL, "line %u: {%% raw %%} has no {%% endraw %%}", line);
}

/* --- within a tag --- */

static unsigned digit_of(char c)
{
    return c >= '0' && c <= '9'   ? (unsigned)(c - '0')
           : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a' + 10)
           : c >= 'A' && c <= 'F' ? (unsigned)(c - 'A' + 10)
                                  : 99;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_name(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           (unsigned char)c >= 0x80;
}

/* \xHH, \uHHHH, \UHHHHHHHH, \ooo: the character; s stands behind the backslash. */
static int numbered(struct lexer *l, const char *s, size_t n, size_t *i, struct textbuf *buf)
{
    unsigned base = s[*i] == 'x' || s[*i] == 'u' || s[*i] == 'U' ? 16 : 8;
    size_t most = s[*i] == 'x' ? 2 : s[*i] == 'u' ? 4 : s[*i] == 'U' ? 8 : 3, got = 0;
    uint32_t cp = 0;
    size_t at = base == 16 ? *i + 1 : *i;
    for (; got < most && at < n && digit_of(s[at]) < base; got++, at++)
        cp = cp * base + digit_of(s[at]);
    if ((base == 16 && got < most) || cp > 0x10FFFF || (cp >= 0xD800 && cp <= 0xDFFF))
        return err_set(l->err, -EINVAL, "line %u: the text holds \\%.*s, which is no character", l->line,
                       (int)(at - *i), s + *i);
    textbuf_append_char(buf, cp);
    *i = at;
    return 0;
}

static int escape(struct lexer *l, const char *s, size_t n, size_t *i, struct textbuf *buf)
{
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    char c = s[*i];
    if (c == '\n') {
        (*i)++;
        return 0;
    }
    const char *known = c ? strchr(from, c) : NULL;
    if (known) {
        textbuf_append(buf, &to[known - from], 1);
        (*i)++;
        return 0;
    }
    if ((c >= '0' && c <= '7') || c == 'x' || c == 'u' || c == 'U')
        return numbered(l, s, n, i, buf);
    if (c == 'N')
        return err_set(l->err, -ENOTSUP, "line %u: characters by name (\\N{…}) are not known", l->line);
    textbuf_append(buf, "\\", 1);
    return 0;
}

static int string(struct lexer *l)
{
    const char quote = l->s[l->at], *s = l->s + l->at + 1;
    size_t n = 0, left = l->n - l->at - 1;
    while (n < left && s[n] != quote)
        n += s[n] == '\\' ? 2 : 1;
    if (n >= left)
        return err_set(l->err, -EINVAL, "line %u: a text that begins with %c has no end", l->line, quote);
    struct textbuf buf = {0};
    int r = 0;
    for (size_t i = 0; i < n && !r;) {
        if (s[i] == '\\') {
            i++;
            r = escape(l, s, n, &i, &buf);
        } else {
            textbuf_append(&buf, s + i++, 1);
        }
    }
    char *text = r || buf.failed ? NULL : arena_copy(l->arena, buf.data, buf.len);
    if (!r)
        r = text ? add(l, TOKEN_STRING, text, buf.len) : no_memory(l);
    textbuf_done(&buf);
    skip(l, n + 2);
    return r;
}

static size_t digits(const struct lexer *l, size_t at, unsigned base)
{
    size_t n = 0;
    while (at + n < l->n && (digit_of(l->s[at + n]) < base || (n > 0 && l->s[at + n] == '_')))
        n++;
    return n;
}

static int number(struct lexer *l)
{
    enum jinja_token_kind kind = TOKEN_INT;
    char second = peek(l, 1);
    unsigned base = peek(l, 0) != '0'                ? 10
                    : second == 'x' || second == 'X' ? 16
                    : second == 'o' || second == 'O' ? 8
                    : second == 'b' || second == 'B' ? 2
                                                     : 10;
    size_t n = base == 10 ? digits(l, l->at, 10) : 2 + digits(l, l->at + 2, base);
    /* After a dot this is an index (a.0.1), not a fraction. */
    bool may_be_float = base == 10 && (l->at == 0 || l->s[l->at - 1] != '.');
    if (may_be_float && peek(l, n) == '.' && is_digit(peek(l, n + 1))) {
        n += 1 + digits(l, l->at + n + 1, 10);
        kind = TOKEN_FLOAT;
    }
    size_t sign = peek(l, n + 1) == '+' || peek(l, n + 1) == '-';
    if (may_be_float && (peek(l, n) | 0x20) == 'e' && is_digit(peek(l, n + 1 + sign))) {
        n += 1 + sign + digits(l, l->at + n + 1 + sign, 10);
        kind = TOKEN_FLOAT;
    }
    char *text = arena_alloc(l->arena, n + 1);
    if (!text)
        return no_memory(l);
    size_t len = 0;
    for (size_t i = 0; i < n; i++)
        if (l->s[l->at + i] != '_')
            text[len++] = l->s[l->at + i];
    int r = add(l, kind, text, len);
    skip(l, n);
    return r;
}

static int operator_or_name(struct lexer *l, char *nesting, size_t *depth)
{
    static const char *const doubled[] = {"**", "//", "==", "!=", "<=", ">="};
    const char *s = l->s + l->at;
    size_t n = 0;
    while (l->at + n < l->n && is_name(s[n]))
        n++;
    if (n > 0) {
        int r = add(l, TOKEN_NAME, s, n);
        skip(l, n);
        return r;
    }
    for (size_t i = 0; i < sizeof doubled / sizeof *doubled; i++)
        if (l->n - l->at >= 2 && !memcmp(s, doubled[i], 2))
            n = 2;
    if (!n && (!*s || !strchr("+-*/%~[](){}<>=.:|,", *s)))
        return err_set(l->err, -EINVAL, "line %u: \"%.*s\" means nothing within a tag", l->line,
                       (int)utf8_next(s, l->n - l->at).len, s);
    if (strchr("([{", *s)) {
        if (*depth == NESTING_MAX)
            return err_set(l->err, -EINVAL, "line %u: brackets more than %d deep", l->line, NESTING_MAX);
        nesting[(*depth)++] = *s == '(' ? ')' : *s == '[' ? ']' : '}';
    } else if (strchr(")]}", *s) && (*depth == 0 || nesting[--*depth] != *s)) {
        return err_set(l->err, -EINVAL, "line %u: \"%c\" closes nothing that is open", l->line, *s);
    }
    int r = add(l, TOKEN_OPERATOR, s, n ? n : 1);
    skip(l, n ? n : 1);
    return r;
}

/* From behind "{%" or "{{" to behind its end. */
static int tag(struct lexer *l, bool is_block)
{
    char nesting[NESTING_MAX];
    const char *close = is_block ? "%}" : "}}";
    size_t depth = 0;
    uint32_t line = l->line;
    int r = add(l, is_block ? TOKEN_BLOCK : TOKEN_PRINT, close, 0);
    while (!r) {
        skip_space(l);
        if (l->at >= l->n)
            return err_set(l->err, -EINVAL, "line %u: {%c has no end %s", line, is_block ? '%' : '{', close);
        char c = peek(l, 0), sign = c == '-' || (c == '+' && is_block) ? c : '\0';
        if (!depth && peek(l, sign != 0) == close[0] && peek(l, 1 + (sign != 0)) == '}') {
            r = add(l, is_block ? TOKEN_BLOCK_END : TOKEN_PRINT_END, close, 2);
            skip(l, 2 + (sign != 0));
            end_tag(l, sign, is_block);
            return r;
        }
        if (c == '\'' || c == '"')
            r = string(l);
        else if (is_digit(c))
            r = number(l);
        else
            r = operator_or_name(l, nesting, &depth);
    }
    return r;
}

static int one(struct lexer *l)
{
    size_t start = l->at, at = start, len;
    bool line_starts = l->line_starts;
    char end_sign;
    while (at < l->n && !starts_tag(l, at))
        at++;
    if (at == l->n) {
        int r = add(l, TOKEN_TEXT, l->s + start, at - start);
        skip(l, at - start);
        return r;
    }
    char kind = l->s[at + 1], sign = at + 2 < l->n ? l->s[at + 2] : '\0';
    int r = add_text(l, start, at, kind, sign, line_starts);
    if (r)
        return r;
    if (is_bare_tag(l, at, "raw", &len, &end_sign)) {
        skip(l, at + len - start);
        end_tag(l, end_sign, false);
        return raw(l);
    }
    skip(l, at + 2 + (sign == '-' || sign == '+') - start);
    return kind == '#' ? comment(l) : tag(l, kind == '%');
}

/* \r\n and \r are newlines too; the last one of the template does not count. */
static size_t normal_newlines(char *out, const char *s, size_t n)
{
    size_t len = 0;
    for (size_t i = 0; i < n; i++) {
        if (s[i] == '\r' && i + 1 < n && s[i + 1] == '\n')
            i++;
        out[len++] = s[i] == '\r' ? '\n' : s[i];
    }
    return len > 0 && out[len - 1] == '\n' ? len - 1 : len;
}

int jinja_lex(struct jinja_tokens *ret, struct arena *arena, const char *text, size_t n, struct err *err)
{
    struct lexer l = {.line = 1, .line_starts = true, .arena = arena, .err = err};
    char *copy = arena_alloc(arena, n + 1);
    if (!copy)
        return no_memory(&l);
    l.s = copy;
    l.n = normal_newlines(copy, text, n);
    int r = 0;
    while (!r && l.at < l.n)
        r = one(&l);
    if (!r)
        r = add(&l, TOKEN_END, "", 0);
    if (r)
        jinja_tokens_done(&l.tokens);
    else
        *ret = l.tokens;
    return r;
}

void jinja_tokens_done(struct jinja_tokens *tokens)
{
    free(tokens->at);
    *tokens = (struct jinja_tokens){0};
}
