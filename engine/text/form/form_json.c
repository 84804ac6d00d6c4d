/* SPDX-License-Identifier: MIT */
#include "text/form/form_json.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Numbers have so many digits at most, and strings no half of a surrogate pair and no character 0:
 * so every reader of JSON takes them. Dates are those that there are. */
static const char rules[] =
    "json-value ::= json-object | json-array | json-string | json-number | \"true\" | \"false\" | \"null\"\n"
    "json-object ::= \"{\" json-space ( json-pair ( \",\" json-space json-pair )* json-space )? \"}\"\n"
    "json-pair ::= json-string \":\" json-space json-value\n"
    "json-array ::= \"[\" json-space ( json-value ( \",\" json-space json-value )* json-space )? \"]\"\n"
    "json-string ::= \"\\\"\" json-char* \"\\\"\"\n"
    "json-char ::= [^\"\\\\\\x00-\\x1F] | \"\\\\\" ( [\"\\\\/bfnrt] | \"u\" json-unit )\n"
    "json-unit ::= \"000\" [1-9a-fA-F] | \"00\" [1-9a-fA-F] json-hex | \"0\" [1-9a-fA-F] json-hex json-hex\n"
    "  | [1-9a-cA-CeEfF] json-hex json-hex json-hex | [dD] [0-7] json-hex json-hex\n"
    "  | [dD] [89abAB] json-hex json-hex \"\\\\u\" [dD] [c-fC-F] json-hex json-hex\n"
    "json-hex ::= [0-9a-fA-F]\n"
    "json-integer ::= \"-\"? ( \"0\" | [1-9] [0-9]{0,15} )\n"
    "json-number ::= json-integer ( \".\" [0-9]{1,16} )? ( [eE] [-+]? [0-9]{1,2} )?\n"
    "json-date ::= json-year \"-\" ( ( \"0\" [13578] | \"1\" [02] ) \"-\" ( \"0\" [1-9] | [12] [0-9] | \"3\" "
    "[01] )\n"
    "  | ( \"0\" [469] | \"11\" ) \"-\" ( \"0\" [1-9] | [12] [0-9] | \"30\" )\n"
    "  | \"02-\" ( \"0\" [1-9] | \"1\" [0-9] | \"2\" [0-8] ) ) | json-leap \"-02-29\"\n"
    "json-year ::= [0-9]{4}\n"
    "json-leap ::= [0-9]{2} ( \"0\" [48] | [2468] [048] | [13579] [26] ) | ( [02468] [048] | [13579] [26] ) "
    "\"00\"\n"
    "json-clock ::= ( [01] [0-9] | \"2\" [0-3] ) \":\" [0-5] [0-9]\n"
    "json-time ::= json-clock \":\" [0-5] [0-9] ( \".\" [0-9]{1,9} )? ( \"Z\" | [-+] json-clock )\n"
    "json-date-time ::= json-date \"T\" json-time\n"
    "json-uuid ::= json-hex{8} ( \"-\" json-hex{4} ){3} \"-\" json-hex{12}\n"
    "json-ipv4 ::= json-byte ( \".\" json-byte ){3}\n"
    "json-byte ::= [0-9] | [1-9] [0-9] | \"1\" [0-9]{2} | \"2\" ( [0-4] [0-9] | \"5\" [0-5] )\n";

void form_json_rules(struct form_draft *d, bool loose)
{
    static const char tight_space[] = "json-space ::= \" \"?\n",
                      loose_space[] = "json-space ::= \" \"? | \"\\n\" [ \\t]{0,32}\n";
    char all[sizeof rules + sizeof loose_space];
    const int n = snprintf(all, sizeof all, "%s%s", rules, loose ? loose_space : tight_space);
    form_grammar_read(d, all, (size_t)n);
}

struct form_expr *form_json(struct form_draft *d, const char *rule)
{
    return form_call(d, form_rule_named(d, rule, strlen(rule)));
}

struct form_expr *form_json_literal(struct form_draft *d, const json_t *value)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    if (!text)
        form_draft_fail(d, -ENOMEM, "no memory for a value of the schema");
    struct form_expr *e = form_text(d, text ? text : "");
    free(text);
    return e;
}

/* --- characters of a string ------------------------------------------------------------------- */

static bool has(const struct form_range *ranges, size_t n, uint32_t cp)
{
    for (size_t i = 0; i < n; i++)
        if (cp >= ranges[i].from && cp <= ranges[i].to)
            return true;
    return false;
}

/* Those that must have a backslash: the letter behind it, or 0 for \u00XX. */
static char letter_of(uint32_t cp)
{
    switch (cp) {
    case '"':
    case '\\': return (char)cp;
    case '\b': return 'b';
    case '\f': return 'f';
    case '\n': return 'n';
    case '\r': return 'r';
    case '\t': return 't';
    default: return 0;
    }
}

static void add_escaped(struct form_draft *d, struct form_expr *alt, const struct form_range *ranges,
                        size_t n)
{
    struct form_range letters[8], digits[2][16];
    size_t nletters = 0, ndigits[2] = {0, 0};
    for (uint32_t cp = 1; cp <= '\\'; cp++) {
        const char letter = letter_of(cp);
        if ((cp >= ' ' && !letter) || !has(ranges, n, cp))
            continue;
        const uint32_t digit = (uint32_t) "0123456789abcdef"[cp % 16];
        if (letter)
            letters[nletters++] = (struct form_range){(uint32_t)letter, (uint32_t)letter};
        else
            digits[cp / 16][ndigits[cp / 16]++] = (struct form_range){digit, digit};
    }
    static const char *const before[3] = {"\\u000", "\\u001", "\\"};
    for (size_t i = 0; i < 3; i++) {
        const size_t many = i < 2 ? ndigits[i] : nletters;
        struct form_expr *seq = many ? form_seq(d) : NULL;
        if (!seq)
            continue;
        form_add(seq, form_text(d, before[i]));
        form_add(seq, form_class(d, i < 2 ? digits[i] : letters, many, false));
        form_add(alt, seq);
    }
}

struct form_expr *form_json_chars(struct form_draft *d, const struct form_range *ranges, size_t n,
                                  bool negated)
{
    static const struct form_range escaped[] = {{0, 0x1F}, {'"', '"'}, {'\\', '\\'}};
    struct form_range tidy[2 * FORM_RANGES_MAX + 2], plain[2 * FORM_RANGES_MAX + 8];
    size_t nplain = 0;
    struct form_expr *alt = form_alt(d);
    if (n > FORM_RANGES_MAX / 2) {
        form_draft_fail(d, -E2BIG, "a class of characters has more than %d ranges: make it shorter",
                        FORM_RANGES_MAX / 2);
        return alt;
    }
    n = form_ranges_tidy(tidy, ranges, n, negated);
    for (size_t i = 0; i < n; i++) { /* what is left between those that are escaped */
        uint32_t from = tidy[i].from;
        for (size_t k = 0; k < 3 && from <= tidy[i].to; k++) {
            if (escaped[k].from > from)
                plain[nplain++] = (struct form_range){
                    from, tidy[i].to < escaped[k].from ? tidy[i].to : escaped[k].from - 1};
            from = escaped[k].to >= from ? escaped[k].to + 1 : from;
        }
        if (from <= tidy[i].to)
            plain[nplain++] = (struct form_range){from, tidy[i].to};
    }
    form_add(alt, form_class(d, plain, nplain, false));
    add_escaped(d, alt, tidy, n);
    return alt;
}

/* --- whole numbers ---------------------------------------------------------------------------- */

static struct form_expr *digits(struct form_draft *d, char from, char to)
{
    const struct form_range r = {(uint32_t)from, (uint32_t)to};
    return form_class(d, &r, 1, false);
}

static struct form_expr *any_digits(struct form_draft *d, size_t n)
{
    return form_repeat(d, digits(d, '0', '9'), (uint32_t)n, (uint32_t)n);
}

/* Numbers of as many digits as both texts have, from one to the other. */
static struct form_expr *between(struct form_draft *d, const char *from, const char *to)
{
    const size_t n = strlen(from);
    char low[24], high[24];
    struct form_expr *alt = form_alt(d), *seq;
    if (!n) {
        form_add(alt, form_text(d, ""));
        return alt;
    }
    memset(low, '0', n - 1);
    memset(high, '9', n - 1);
    low[n - 1] = high[n - 1] = '\0';
    const bool same = *from == *to, all_of_first = !strcmp(from + 1, low),
               all_of_last = !strcmp(to + 1, high);
    /* The first digits behind which all others may stand. */
    const char first = (char)(*from + !all_of_first), last = (char)(*to - !all_of_last);
    if (same && !(all_of_first && all_of_last)) {
        seq = form_seq(d);
        form_add(seq, digits(d, *from, *from));
        form_add(seq, between(d, from + 1, to + 1));
        form_add(alt, seq);
        return alt;
    }
    if (!all_of_first) {
        seq = form_seq(d);
        form_add(seq, digits(d, *from, *from));
        form_add(seq, between(d, from + 1, high));
        form_add(alt, seq);
    }
    if (first <= last) {
        seq = form_seq(d);
        form_add(seq, digits(d, first, last));
        form_add(seq, any_digits(d, n - 1));
        form_add(alt, seq);
    }
    if (!all_of_last) {
        seq = form_seq(d);
        form_add(seq, digits(d, *to, *to));
        form_add(seq, between(d, low, to + 1));
        form_add(alt, seq);
    }
    return alt;
}

static struct form_expr *naturals(struct form_draft *d, uint64_t from, uint64_t to)
{
    struct form_expr *alt = form_alt(d);
    char low[24], high[24];
    while (from <= to) {
        uint64_t last = 9; /* of as many digits as `from` has */
        while (last < from && last < UINT64_MAX / 10)
            last = 10 * last + 9;
        if (last < from || last > to)
            last = to;
        snprintf(low, sizeof low, "%" PRIu64, from);
        snprintf(high, sizeof high, "%" PRIu64, last);
        form_add(alt, between(d, low, high));
        if (last == to)
            break;
        from = last + 1;
    }
    return alt;
}

struct form_expr *form_json_integers(struct form_draft *d, int64_t from, int64_t to)
{
    struct form_expr *alt = form_alt(d);
    if (from < 0) {
        struct form_expr *seq = form_seq(d);
        const uint64_t least = to < 0 ? -(uint64_t)to : 1, most = -(uint64_t)from;
        form_add(seq, form_text(d, "-"));
        form_add(seq, naturals(d, least, most));
        form_add(alt, seq);
    }
    if (to >= 0)
        form_add(alt, naturals(d, from < 0 ? 0 : (uint64_t)from, (uint64_t)to));
    return alt;
}

/* --- any object ------------------------------------------------------------------------------- */

int form_of_json_object(struct form **ret, struct err *err)
{
    struct form_draft d;
    form_draft_init(&d, err);
    form_json_rules(&d, true);
    const uint32_t root = form_rule_named(&d, "json-object", strlen("json-object"));
    const int r = d.failed ? d.failed : form_draft_compile(ret, &d, root, err);
    form_draft_done(&d);
    return r;
}
