/* SPDX-License-Identifier: MIT
 *
 * Builds the tree of a vocabulary: texts are sorted, so those that begin alike are neighbours. */
#include "text/form/form_tokens_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* --- kinds of bytes --------------------------------------------------------------------------- */

unsigned form_kind_of(uint8_t byte)
{
    if (byte >= '0' && byte <= '9')
        return byte == '0' ? 1 : 2;
    if ((byte >= 'A' && byte <= 'F') || (byte >= 'a' && byte <= 'f'))
        return 3;
    if ((byte >= 'G' && byte <= 'Z') || (byte >= 'g' && byte <= 'z'))
        return 4;
    if (byte == '\t' || byte == '\n' || byte == '\r')
        return byte == '\t' ? 5 : byte == '\n' ? 6 : 7;
    if (byte < ' ')
        return 0;
    /* Signs: each has a kind of its own. */
    return byte < '0'   ? 8U + byte - ' '
           : byte < 'A' ? 24U + byte - ':'
           : byte < 'a' ? 31U + byte - '['
                        : 37U + byte - '{';
}

/* Of the Unicode Standard 15, table 3-7: which bytes may come next. */
enum { BETWEEN, ONE_LEFT, TWO_LEFT, THREE_LEFT, AFTER_E0, AFTER_ED, AFTER_F0, AFTER_F4 };

int form_utf8_step(int state, uint8_t b)
{
    const bool continues = b >= 0x80 && b <= 0xBF;
    switch (state) {
    case BETWEEN:
        return b < 0x80                 ? BETWEEN
               : b >= 0xC2 && b <= 0xDF ? ONE_LEFT
               : b == 0xE0              ? AFTER_E0
               : b == 0xED              ? AFTER_ED
               : b >= 0xE1 && b <= 0xEF ? TWO_LEFT
               : b == 0xF0              ? AFTER_F0
               : b >= 0xF1 && b <= 0xF3 ? THREE_LEFT
               : b == 0xF4              ? AFTER_F4
                                        : -1;
    case ONE_LEFT: return continues ? BETWEEN : -1;
    case TWO_LEFT: return continues ? ONE_LEFT : -1;
    case THREE_LEFT: return continues ? TWO_LEFT : -1;
    case AFTER_E0: return continues && b >= 0xA0 ? ONE_LEFT : -1;
    case AFTER_ED: return continues && b <= 0x9F ? ONE_LEFT : -1;
    case AFTER_F0: return continues && b >= 0x90 ? TWO_LEFT : -1;
    case AFTER_F4: return continues && b <= 0x8F ? TWO_LEFT : -1;
    default: return -1;
    }
}

/* The bit of a byte's kind; what is broken begins a new character. */
static uint64_t kind_bit(int *state, uint8_t byte)
{
    const int before = *state, after = form_utf8_step(before, byte);
    *state = after < 0 ? BETWEEN : after;
    return UINT64_C(1) << (after < 0 ? KIND_BROKEN : byte < 0x80 ? form_kind_of(byte) : KIND_WIDE);
}

const uint8_t form_lengths[FORM_LENGTHS] = {1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, FORM_LENGTH_MOST};

static uint64_t length_bits(size_t n)
{
    uint64_t bits = 0;
    for (unsigned i = 0; i < FORM_LENGTHS; i++)
        bits |= (uint64_t)(n > form_lengths[i]) << (KIND_LENGTHS + i);
    return bits;
}

/* --- texts ------------------------------------------------------------------------------------ */

static int copy_texts(struct form_tokens *t, const struct form_token *token, struct err *err)
{
    size_t sum = 0;
    for (size_t i = 0; i < t->vocab; i++) {
        if (token[i].n > FORM_TOKEN_MAX)
            return err_set(err, -EINVAL, "token %zu has %zu bytes: at most %d are supported", i, token[i].n,
                           FORM_TOKEN_MAX);
        t->text_at[i] = sum;
        sum += token[i].n;
    }
    t->text_at[t->vocab] = sum;
    t->text = malloc(sum + 1);
    if (!t->text)
        return err_set(err, -ENOMEM, "no memory for the texts of the tokens");
    for (size_t i = 0; i < t->vocab; i++)
        if (token[i].n)
            memcpy(t->text + t->text_at[i], token[i].text, token[i].n);
    return 0;
}

static size_t length_of(const struct form_tokens *t, uint32_t id)
{
    return t->text_at[id + 1] - t->text_at[id];
}

static int by_text(const void *a, const void *b, void *tokens)
{
    const struct form_tokens *t = tokens;
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    const size_t nx = length_of(t, x), ny = length_of(t, y);
    const int order = memcmp(t->text + t->text_at[x], t->text + t->text_at[y], nx < ny ? nx : ny);
    return order ? order : nx != ny ? (nx < ny ? -1 : 1) : x < y ? -1 : x > y;
}

static bool is_end(const struct form_tokens *t, uint32_t id)
{
    for (size_t i = 0; i < t->nends; i++)
        if (t->ends[i] == id)
            return true;
    return false;
}

static void sort_tokens(struct form_tokens *t)
{
    for (uint32_t id = 0; id < t->vocab; id++) {
        int state = BETWEEN;
        uint64_t kinds = 0;
        for (size_t i = t->text_at[id]; i < t->text_at[id + 1]; i++)
            kinds |= kind_bit(&state, (uint8_t)t->text[i]);
        t->kinds[id] = !kinds || is_end(t, id) ? ~UINT64_C(0) : kinds | length_bits(length_of(t, id));
        if (t->kinds[id] != ~UINT64_C(0))
            t->order[t->ntokens++] = id;
    }
    qsort_r(t->order, t->ntokens, sizeof *t->order, by_text, t);
}

/* --- the tree --------------------------------------------------------------------------------- */

static size_t in_common(const struct form_tokens *t, uint32_t a, uint32_t b)
{
    const size_t na = length_of(t, a), nb = length_of(t, b), most = na < nb ? na : nb;
    size_t n = 0;
    while (n < most && t->text[t->text_at[a] + n] == t->text[t->text_at[b] + n])
        n++;
    return n;
}

static size_t shared_with_last(const struct form_tokens *t, size_t k)
{
    return k ? in_common(t, t->order[k - 1], t->order[k]) : 0;
}

/* Each token adds the bytes that it does not share with the one before. */
static void add_nodes(struct form_tokens *t)
{
    for (size_t k = 0; k < t->ntokens; k++) {
        const uint32_t id = t->order[k];
        const size_t n = length_of(t, id), shared = shared_with_last(t, k);
        int state = BETWEEN;
        for (size_t i = 0; i < n; i++) {
            const uint8_t byte = (uint8_t)t->text[t->text_at[id] + i];
            const bool starts = state == BETWEEN;
            const uint64_t kind = kind_bit(&state, byte);
            if (i >= shared)
                t->nodes[t->nnodes++] = (struct form_node){.kinds = kind,
                                                           .first_token = (uint32_t)k,
                                                           .depth = (uint16_t)(i + 1),
                                                           .byte = byte,
                                                           .is_char_start = starts};
        }
        t->nodes[t->nnodes - 1].own_tokens++;
        t->nodes[t->nnodes - 1].kinds |= length_bits(n);
        t->longest = n > t->longest ? n : t->longest;
    }
    t->nodes[t->nnodes] = (struct form_node){.first_token = (uint32_t)t->ntokens};
}

/* From the end, every node comes before the one above it. last [longest + 2]: by depth, where the
 * nearest node of at most that depth begins, behind. */
static void close_nodes(struct form_tokens *t, uint64_t *below)
{
    for (size_t i = t->nnodes; i--;) {
        struct form_node *n = &t->nodes[i];
        uint32_t after = (uint32_t)i + 1;
        while (after < t->nnodes && t->nodes[after].depth > n->depth)
            after = t->nodes[after].after;
        n->after = after;
        n->kinds |= below[n->depth + 1];
        below[n->depth + 1] = 0;
        below[n->depth] |= n->kinds;
    }
}

static int build(struct form_tokens *t, struct err *err)
{
    size_t bytes = 0;
    for (size_t k = 0; k < t->ntokens; k++)
        bytes += length_of(t, t->order[k]) - shared_with_last(t, k);
    uint64_t *below = calloc(FORM_TOKEN_MAX + 2, sizeof *below);
    t->nodes = bytes < UINT32_MAX ? calloc(bytes + 1, sizeof *t->nodes) : NULL;
    if (below && t->nodes) {
        add_nodes(t);
        close_nodes(t, below);
    }
    free(below);
    return below && t->nodes ? 0 : err_set(err, -ENOMEM, "no memory for the tree of the tokens");
}

int form_tokens_new(struct form_tokens **ret, const struct form_token *token, size_t vocab,
                    const uint32_t *ends, size_t nends, struct err *err)
{
    struct form_tokens *t = calloc(1, sizeof *t);
    int r = t ? 0 : err_set(err, -ENOMEM, "no memory for the tokens");
    for (size_t i = 0; i < nends && !r; i++)
        if (ends[i] >= vocab)
            r = err_set(err, -EINVAL, "token %u ends an answer, but there are only %zu tokens", ends[i],
                        vocab);
    if (!r) {
        t->vocab = vocab;
        t->nends = nends;
        t->order = calloc(vocab + 1, sizeof *t->order);
        t->kinds = calloc(vocab + 1, sizeof *t->kinds);
        t->text_at = calloc(vocab + 1, sizeof *t->text_at);
        t->ends = calloc(nends + 1, sizeof *t->ends);
        if (!t->order || !t->kinds || !t->text_at || !t->ends)
            r = err_set(err, -ENOMEM, "no memory for %zu tokens", vocab);
    }
    if (!r)
        r = copy_texts(t, token, err);
    if (!r) {
        if (nends)
            memcpy(t->ends, ends, nends * sizeof *ends);
        sort_tokens(t);
        r = build(t, err);
    }
    if (r)
        form_tokens_free(t);
    else
        *ret = t;
    return r;
}

void form_tokens_free(struct form_tokens *t)
{
    if (!t)
        return;
    free(t->nodes);
    free(t->order);
    free(t->kinds);
    free(t->text);
    free(t->text_at);
    free(t->ends);
    free(t);
}

size_t form_tokens_vocab(const struct form_tokens *t)
{
    return t->vocab;
}
