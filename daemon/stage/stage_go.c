/* SPDX-License-Identifier: MIT */
#include "daemon/stage/stage_go.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { FIXED_WORDS = 18, STEP_WORDS = 7, ADJUST_WORDS = 3, REF_WORDS = 2 };

static size_t words_of(size_t bytes)
{
    return (bytes + 3) / 4;
}

size_t go_max_size(size_t microbatches, size_t seqs, size_t steps, size_t units, size_t adjusts, size_t lines)
{
    const size_t pairs = seqs / 2, rows = steps * STEP_WORDS + adjusts * ADJUST_WORDS +
                                          microbatches * (seqs + 1 + pairs * REF_WORDS);
    return 4 * (FIXED_WORDS + (rows > units ? rows : units) + (lines ? 1 + words_of(lines) : 0));
}

static uint8_t *put(uint8_t *at, uint64_t v, size_t words)
{
    for (size_t i = 0; i < words; i++, at += 4) {
        uint32_t w = htole32((uint32_t)(v >> (32 * i)));
        memcpy(at, &w, 4);
    }
    return at;
}

static uint64_t get(const uint8_t **at, size_t words)
{
    uint64_t v = 0;
    for (size_t i = 0; i < words; i++, *at += 4) {
        uint32_t w;
        memcpy(&w, *at, 4);
        v |= (uint64_t)le32toh(w) << (32 * i);
    }
    return v;
}

static uint8_t *put_float(uint8_t *at, float v)
{
    uint32_t w;
    memcpy(&w, &v, sizeof w);
    return put(at, w, 1);
}

static float get_float(const uint8_t **at)
{
    const uint32_t w = (uint32_t)get(at, 1);
    float v;
    memcpy(&v, &w, sizeof v);
    return v;
}

static uint64_t bits_of(double d)
{
    uint64_t v;
    memcpy(&v, &d, sizeof v);
    return v;
}

static double double_of(uint64_t v)
{
    double d;
    memcpy(&d, &v, sizeof d);
    return d;
}

/* The last word is filled up with zeros. */
static uint8_t *put_lines(uint8_t *at, const struct go *go)
{
    if (!go->nlines)
        return at;
    at = put(at, go->nlines, 1);
    const size_t room = 4 * words_of(go->nlines);
    memcpy(at, go->lines, go->nlines);
    memset(at + go->nlines, 0, room - go->nlines);
    return at + room;
}

size_t go_encode(uint8_t *out, const struct go *go)
{
    uint32_t flags = (uint32_t)go->state | (uint32_t)go->logprobs << 1 | (uint32_t)go->want_token << 2 |
                     (uint32_t)go->trace << 3 | (uint32_t)go->hold << 4 | (uint32_t)go->keep << 5 |
                     (uint32_t)go->kept << 6 | (uint32_t)(go->nlines > 0) << 7 | (go->top & GO_TOP_MAX) << 8;
    uint8_t *at = put(out, go->program, 1);
    at = put(at, go->round, 1);
    at = put(at, flags, 1);
    at = put(at, go->step, 2);
    at = put(at, go->adapter, 1);
    at = put(at, go->at, 2);
    at = put_float(at, go->choice.temperature);
    at = put_float(at, go->choice.top_p);
    at = put_float(at, go->choice.min_p);
    at = put(at, go->choice.top_k, 1);
    at = put(at, go->choice.seed, 2);
    at = put(at, go->choice.nadjust, 1);
    at = put(at, go->nsteps, 1);
    at = put(at, go->microbatches, 1);
    at = put(at, go->nrefs, 1);
    at = put_lines(at, go);
    for (size_t i = 0; i < go->choice.nadjust; i++) {
        at = put(at, go->choice.adjust[i].id, 1);
        at = put_float(at, go->choice.adjust[i].repeat);
        at = put_float(at, go->choice.adjust[i].add);
    }
    for (size_t i = 0; i < go->nsteps; i++) {
        at = put(at, go->steps[i].adapter, 1);
        at = put(at, go->steps[i].step, 2);
        at = put(at, bits_of(go->steps[i].dscale), 2);
        at = put(at, bits_of(go->steps[i].beta), 2);
    }
    for (size_t i = 0; i < go->nrefs; i++)
        at = put(at, bits_of(go->refs[i]), 2);
    for (size_t m = 0; m < go->microbatches; m++) {
        at = put(at, go->mb[m].n, 1);
        for (size_t i = 0; i < go->mb[m].n; i++)
            at = put(at, go->mb[m].start[i + 1] - go->mb[m].start[i], 1);
    }
    for (size_t u = 0; u < go->nheld; u++)
        at = put(at, go->held_by[u], 1);
    return (size_t)(at - out);
}

static int decode_lines(struct go *go, bool has_lines, const uint8_t **at, const uint8_t *end)
{
    if (!has_lines)
        return 0;
    if (end - *at < 4)
        return -EBADMSG;
    const size_t n = get(at, 1), room = 4 * words_of(n);
    if (!n || room > (size_t)(end - *at))
        return -EBADMSG;
    for (size_t i = n; i < room; i++)
        if ((*at)[i])
            return -EBADMSG;
    go->own_lines = malloc(n);
    if (!go->own_lines)
        return -ENOMEM;
    memcpy(go->own_lines, *at, n);
    go->lines = go->own_lines;
    go->nlines = n;
    *at += room;
    return 0;
}

static int decode_adjusts(struct go *go, const uint8_t **at, const uint8_t *end)
{
    if (go->choice.nadjust > (size_t)(end - *at) / (4 * ADJUST_WORDS) || go->choice.nadjust > GO_ADJUST_MAX)
        return -EBADMSG;
    if (!go->choice.nadjust)
        return 0;
    go->choice.adjust = go->adjust = calloc(go->choice.nadjust, sizeof *go->adjust);
    if (!go->adjust)
        return -ENOMEM;
    for (size_t i = 0; i < go->choice.nadjust; i++) {
        go->adjust[i].id = (uint32_t)get(at, 1);
        go->adjust[i].repeat = get_float(at);
        go->adjust[i].add = get_float(at);
    }
    return 0;
}

static int decode_steps(struct go *go, const uint8_t **at, const uint8_t *end)
{
    const bool trains = go->program == PROGRAM_TRAIN;
    if (go->nsteps > (size_t)(end - *at) / (4 * STEP_WORDS) || trains != (go->nsteps > 0) ||
        (trains && go->microbatches % go->nsteps))
        return -EBADMSG;
    go->steps = calloc(go->nsteps + 1, sizeof *go->steps);
    if (!go->steps)
        return -ENOMEM;
    for (size_t i = 0; i < go->nsteps; i++) {
        go->steps[i].adapter = (uint32_t)get(at, 1);
        go->steps[i].step = get(at, 2);
        go->steps[i].dscale = double_of(get(at, 2));
        go->steps[i].beta = double_of(get(at, 2));
    }
    return 0;
}

static int decode_refs(struct go *go, const uint8_t **at, const uint8_t *end)
{
    if (go->nrefs > (size_t)(end - *at) / (4 * REF_WORDS))
        return -EBADMSG;
    if (!go->nrefs)
        return 0;
    go->refs = calloc(go->nrefs, sizeof *go->refs);
    if (!go->refs)
        return -ENOMEM;
    for (size_t i = 0; i < go->nrefs; i++)
        go->refs[i] = double_of(get(at, 2));
    return 0;
}

/* The lengths of all sequences, as offsets. Every count is checked against the bytes that are left
 * before it is believed. */
static int decode_mbs(struct go *go, const uint8_t *at, const uint8_t *end, size_t max_tokens)
{
    size_t words = (size_t)(end - at) / 4;
    if (go->microbatches > words)
        return -EBADMSG;
    go->mb = calloc(go->microbatches + 1, sizeof *go->mb);
    go->starts =
        calloc(words + 1, sizeof *go->starts); /* per microbatch one count and n lengths make n + 1 offsets */
    if (!go->mb || !go->starts)
        return -ENOMEM;
    uint32_t *start = go->starts;
    for (size_t m = 0; m < go->microbatches; m++) {
        if (end - at < 4)
            return -EBADMSG;
        size_t n = get(&at, 1);
        if (n > (size_t)(end - at) / 4)
            return -EBADMSG;
        go->mb[m] = (struct seqs){n, start};
        uint64_t total = 0;
        for (size_t i = 0; i < n; i++) {
            total += get(&at, 1);
            if (total > max_tokens)
                return -EBADMSG;
            start[i + 1] = (uint32_t)total;
        }
        start += n + 1;
    }
    return at == end ? 0 : -EBADMSG;
}

/* All that is left. */
static int decode_held(struct go *go, const uint8_t *at, const uint8_t *end)
{
    const size_t n = (size_t)(end - at) / 4;
    if (go->microbatches || !n)
        return -EBADMSG;
    go->held_by = calloc(n, sizeof *go->held_by);
    if (!go->held_by)
        return -ENOMEM;
    for (go->nheld = 0; go->nheld < n; go->nheld++)
        go->held_by[go->nheld] = (uint32_t)get(&at, 1);
    return 0;
}

int go_decode(struct go *ret, const uint8_t *in, size_t n, size_t max_tokens)
{
    const uint8_t *at = in;
    if (n < 4 * FIXED_WORDS || n % 4)
        return -EBADMSG;
    struct go go = {.program = (uint32_t)get(&at, 1), .round = (uint32_t)get(&at, 1)};
    uint32_t flags = (uint32_t)get(&at, 1);
    go.state = flags & 1;
    go.logprobs = flags & 2;
    go.want_token = flags & 4;
    go.trace = flags & 8;
    go.hold = flags & 16;
    go.keep = flags & 32;
    go.kept = flags & 64;
    go.top = flags >> 8 & GO_TOP_MAX;
    go.step = get(&at, 2);
    go.adapter = (uint32_t)get(&at, 1);
    go.at = get(&at, 2);
    go.choice.temperature = get_float(&at);
    go.choice.top_p = get_float(&at);
    go.choice.min_p = get_float(&at);
    go.choice.top_k = (uint32_t)get(&at, 1);
    go.choice.seed = get(&at, 2);
    go.choice.nadjust = get(&at, 1);
    go.nsteps = get(&at, 1);
    go.microbatches = get(&at, 1);
    go.nrefs = get(&at, 1);
    int r = decode_lines(&go, flags & 128, &at, in + n);
    if (!r)
        r = decode_adjusts(&go, &at, in + n);
    if (!r)
        r = decode_steps(&go, &at, in + n);
    if (!r)
        r = decode_refs(&go, &at, in + n);
    if (!r && go.program == PROGRAM_RESTORE)
        r = decode_held(&go, at, in + n);
    else if (!r)
        r = decode_mbs(&go, at, in + n, max_tokens);
    if (r)
        go_done(&go);
    else
        *ret = go;
    return r;
}

void go_done(struct go *go)
{
    free(go->adjust);
    free(go->own_lines);
    free(go->steps);
    free(go->refs);
    free(go->mb);
    free(go->starts);
    free(go->held_by);
    *go = (struct go){0};
}
