/* SPDX-License-Identifier: MIT */
#include "daemon/stage/serve/serve_draft.h"

#include <stdbool.h>

/* Two tokens in a row say something, one says next to nothing; more than that is looked at to
 * choose among places. */
enum { ALIKE_LEAST = 2, ALIKE_MOST = 16 };

/* --- guessing --------------------------------------------------------------------------------- */

static size_t alike(const uint32_t *ids, size_t n, size_t end)
{
    size_t k = 0;
    while (k < ALIKE_MOST && k < end && ids[end - 1 - k] == ids[n - 1 - k])
        k++;
    return k;
}

size_t draft_find(const uint32_t *ids, size_t n, uint32_t *ret, size_t most)
{
    size_t best = ALIKE_LEAST - 1, at = 0, found = 0;
    for (size_t end = n ? n - 1 : 0; end >= ALIKE_LEAST && best < ALIKE_MOST; end--) {
        const size_t k = alike(ids, n, end);
        if (k > best) {
            best = k;
            at = end;
        }
    }
    for (; at && found < most; found++) /* a text that repeats itself goes on to do so */
        ret[found] = at + found < n ? ids[at + found] : ret[at + found - n];
    return found;
}

/* --- what it costs ---------------------------------------------------------------------------- */

void draft_cost_saw(struct draft_cost *c, size_t rows, uint64_t us)
{
    const double keep = 0.98, x = (double)rows, y = (double)us;
    c->weight = c->weight * keep + 1;
    c->rows = c->rows * keep + x;
    c->us = c->us * keep + y;
    c->rows_rows = c->rows_rows * keep + x * x;
    c->rows_us = c->rows_us * keep + x * y;
}

/* A row more, as a share of what no row would cost. Until several sizes were seen, and in the
 * least, a guess of what CPUs do that wait for their memory. */
static double slope_of(const struct draft_cost *c)
{
    const double least = 0.02, usual = 0.12, most = 4;
    const double spread = c->weight * c->rows_rows - c->rows * c->rows;
    if (c->weight < 4 || spread < c->weight * c->weight * 0.01)
        return usual;
    const double slope = (c->weight * c->rows_us - c->rows * c->us) / spread,
                 base = (c->us - slope * c->rows) / c->weight;
    if (!(slope > 0))
        return least;
    if (!(base > slope / most))
        return most;
    return slope / base > least ? slope / base : least;
}

/* A time without rows, and what each row adds. */
struct price {
    double base, row;
};

static bool is_known(const struct draft_cost *c)
{
    return c->weight >= 4 && c->us > 0;
}

static struct price price_of(const struct draft_cost *c)
{
    const double slope = slope_of(c), base = is_known(c) ? c->us / (c->weight + slope * c->rows) : 1;
    return (struct price){base, slope * base};
}

struct prices {
    struct price ring, pass;
    double read; /* of a row that the draft model reads */
};

/* Before it was timed, a draft model is taken for a fifth of the model; and a row that it reads for
 * one more of the model's, as both are then multiplied as fast as the CPU can. */
static struct prices prices_of(const struct draft_known *k)
{
    const double share = 0.2;
    struct prices p = {.ring = price_of(&k->cost), .pass = price_of(&k->pass)};
    if (!is_known(&k->cost) || !is_known(&k->pass))
        p.pass = (struct price){p.ring.base * share, p.ring.row * share};
    p.read = k->read.rows > 0 && is_known(&k->cost) ? k->read.us / k->read.rows : p.ring.row;
    return p;
}

/* --- how likely ------------------------------------------------------------------------------- */

void draft_luck_saw(struct draft_luck *l, size_t guessed, size_t right)
{
    const double keep = 0.97;
    if (!guessed)
        return;
    l->tried = l->tried * keep + (double)(right < guessed ? right + 1 : guessed);
    l->right = l->right * keep + (double)right;
    l->rested = 0;
}

/* That the next guess is right. Of a new answer it is what it is of the others. A draft model was
 * chosen by somebody who thinks that it is good: some wrong guesses do not mean that it is not. */
static double chance_of(const struct draft_known *k, const struct draft_case *c, enum draft_kind kind)
{
    static const struct draft_luck before[DRAFT_KINDS] = {
        [DRAFT_TEXT] = {2, 1, 0}, [DRAFT_MODEL] = {5, 4, 0}};
    const struct draft_luck *all = &k->luck[kind], *own = c->luck[kind];
    const double prior = 2, of_all = (all->right + before[kind].right) / (all->tried + before[kind].tried);
    return (own->right + prior * of_all) / (own->tried + prior);
}

/* --- how many --------------------------------------------------------------------------------- */

/* What a guess more of one sequence gains, in tokens: its chance, less the tokens that could be had
 * in its time. */
struct gain {
    double best;
    size_t length;
};

/* The best of up to `most` guesses that cost `each`, after `first` was paid. */
static struct gain gain_of(double chance, size_t most, double each, double first)
{
    struct gain g = {0, 0};
    double sum = -first, right = 1;
    for (size_t k = 1; k <= most; k++) {
        right *= chance;
        sum += right - each;
        if (sum > g.best)
            g = (struct gain){sum, k};
    }
    return g;
}

static struct gain text_gain(const struct draft_known *k, const struct prices *p, const struct draft_case *c,
                             double rate)
{
    const size_t most = c->found < c->most ? c->found : c->most;
    return gain_of(chance_of(k, c, DRAFT_TEXT), most, rate * p->ring.row, 0);
}

/* Rows that it is behind are paid for once, and good for the microbatches that follow. */
static struct gain model_gain(const struct draft_known *k, const struct prices *p, const struct draft_case *c,
                              double rate, size_t passes)
{
    const double microbatches = c->left > 2 ? (double)c->left / 2 : 1;
    const size_t most = passes < c->most ? passes : c->most;
    if (!c->behind)
        return (struct gain){0, 0};
    return gain_of(chance_of(k, c, DRAFT_MODEL), most, rate * (p->ring.row + p->pass.row),
                   rate * p->read * (double)(c->behind - 1) / microbatches);
}

/* With so many passes of the draft model: what all sequences gain. */
static double choose_with(const struct draft_known *k, const struct prices *p, struct draft_case *cases,
                          size_t n, double rate, size_t passes)
{
    double sum = -rate * p->pass.base * (double)passes;
    for (size_t i = 0; i < n; i++) {
        const struct gain text = text_gain(k, p, &cases[i], rate),
                          model = model_gain(k, p, &cases[i], rate, passes);
        cases[i].kind = model.best > text.best ? DRAFT_MODEL : DRAFT_TEXT;
        cases[i].length = model.best > text.best ? model.length : text.length;
        sum += model.best > text.best ? model.best : text.best;
    }
    return sum;
}

/* Tokens in a time, as the cases stand. */
static double rate_of(const struct draft_known *k, const struct prices *p, const struct draft_case *cases,
                      size_t n)
{
    double tokens = (double)n, rows = (double)n, time = 0;
    size_t passes = 0;
    for (size_t i = 0; i < n; i++) {
        const struct draft_case *c = &cases[i];
        const bool is_model = c->length && c->kind == DRAFT_MODEL;
        double right = 1;
        for (size_t g = 0; g < c->length; g++)
            tokens += right *= chance_of(k, c, c->kind);
        rows += (double)c->length;
        time += is_model ? p->pass.row * (double)c->length : 0;
        passes = is_model && c->length > passes ? c->length : passes;
    }
    return tokens / (time + p->ring.base + p->ring.row * rows + p->pass.base * (double)passes);
}

/* The best for a rate that is to be beaten. */
static void choose_for(const struct draft_known *k, const struct prices *p, struct draft_case *cases,
                       size_t n, double rate)
{
    size_t most = 0, best = 0;
    for (size_t i = 0; i < n; i++)
        most = cases[i].behind && cases[i].most > most ? cases[i].most : most;
    double gain = choose_with(k, p, cases, n, rate, 0);
    for (size_t passes = 1; passes <= most; passes++) {
        const double with = choose_with(k, p, cases, n, rate, passes);
        if (with > gain) {
            gain = with;
            best = passes;
        }
    }
    choose_with(k, p, cases, n, rate, best);
}

/* --- what rests ------------------------------------------------------------------------------- */

enum { REST = 64 };

static void try_texts(struct draft_case *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct draft_case *c = &cases[i];
        if (c->length || !c->found || !c->most || ++c->luck[DRAFT_TEXT]->rested < REST)
            continue;
        c->kind = DRAFT_TEXT;
        c->length = 1;
    }
}

/* Whom a draft model that rests is tried for, because it has the least to read. */
static struct draft_case *least_behind(struct draft_case *cases, size_t n)
{
    struct draft_case *least = NULL;
    for (size_t i = 0; i < n; i++)
        if (cases[i].behind && cases[i].most && (!least || cases[i].behind < least->behind))
            least = &cases[i];
    return least;
}

/* Its bad luck is forgotten once some guesses, and what it reads before, take a small part of the
 * time since then. */
static void forget_luck(struct draft_known *k, const struct prices *p, struct draft_case *least, size_t n)
{
    const double part = 1.0 / 48, guesses = 8;
    const double takes = p->read * (double)(least->behind - 1) + guesses * (p->pass.base + p->pass.row),
                 rested = k->luck[DRAFT_MODEL].rested;
    if (rested < REST || takes > part * rested * (p->ring.base + p->ring.row * (double)n))
        return;
    k->luck[DRAFT_MODEL] = *least->luck[DRAFT_MODEL] = (struct draft_luck){0};
}

/* Until some guesses were seen, one sequence tries it. */
static void prepare_model(struct draft_known *k, const struct prices *p, struct draft_case *cases, size_t n)
{
    const double some = 6;
    struct draft_case *least = least_behind(cases, n);
    if (!least)
        return;
    forget_luck(k, p, least, n);
    for (size_t i = 0; i < n && k->luck[DRAFT_MODEL].tried < some; i++)
        if (&cases[i] != least)
            cases[i].behind = 0;
}

static void count_rest(struct draft_known *k, struct draft_case *cases, size_t n)
{
    bool is_used = !least_behind(cases, n);
    for (size_t i = 0; i < n; i++)
        is_used = is_used || (cases[i].length && cases[i].kind == DRAFT_MODEL);
    k->luck[DRAFT_MODEL].rested += !is_used;
}

/* The best share of two sums, by Dinkelbach's way (On nonlinear fractional programming, 1967): what
 * is best for a rate gives a better rate, until it gives the same. */
void draft_choose(struct draft_known *k, struct draft_case *cases, size_t n)
{
    enum { ROUNDS = 4 };
    const struct prices p = prices_of(k);
    for (size_t i = 0; i < n; i++)
        cases[i].length = 0;
    prepare_model(k, &p, cases, n);
    double rate = rate_of(k, &p, cases, n);
    for (size_t i = 0; i < ROUNDS; i++) {
        choose_for(k, &p, cases, n, rate);
        const double better = rate_of(k, &p, cases, n);
        if (better <= rate * 1.001)
            break;
        rate = better;
    }
    try_texts(cases, n);
    count_rest(k, cases, n);
}
