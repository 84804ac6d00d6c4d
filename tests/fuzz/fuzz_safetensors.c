/* SPDX-License-Identifier: MIT
 *
 * Any bytes as a safetensors file, or as a GGUF file if they begin like one: either refused with a
 * sentence, or every byte of every tensor can be read. Config, tokenizer and chat template of a
 * GGUF file are what they say, or are refused. */
#include "tests/fuzz/lib/fuzz.h"

#include "engine/file/config.h"
#include "engine/file/st.h"
#include "engine/text/chat.h"
#include "engine/text/tokenizer.h"

static unsigned touch(const struct st *st)
{
    unsigned sum = 0;
    const char *const *names;
    if (st_names(st, &names) != st_count(st))
        abort();
    for (size_t i = 0; i < st_count(st); i++) {
        const struct st_tensor *t = st_at(st, i);
        if (st_find(st, names[i]) != t)
            abort();
        st_willneed(st, t);
        for (size_t b = 0; b < t->bytes; b++)
            sum += ((const unsigned char *)t->data)[b];
    }
    return sum;
}

/* --- GGUF --- */

static const char name[] = "model.gguf";

static unsigned touch_gguf(const struct st *st)
{
    unsigned sum = 0;
    for (size_t i = 0; i < st_count(st); i++) {
        const struct st_tensor *t = st_at(st, i);
        expect(st_find(st, t->name) == t);
        for (size_t b = 0; b < t->bytes; b++)
            sum += ((const unsigned char *)t->data)[b];
        const size_t cols = t->ndim > 1 ? t->shape[t->ndim - 1] : 1;
        float row[512];
        if (cols <= 512 && t->ndim <= 2 && (t->block || t->dtype < DTYPE_COUNT) && t->elements)
            st_row(t, 0, cols, row);
    }
    return sum;
}

static void read_text(const char *path, struct err *err)
{
    static const char text[] = "Hello, w\xc3\xb6rld 123 <s>";
    struct tokenizer *tok = NULL;
    struct chat_template *tpl = NULL;
    uint32_t *ids;
    size_t n;
    if (tokenizer_open(&tok, path, err)) {
        expect(err->text[0] != '\0' && !tok);
    } else if (!tokenizer_encode(tok, text, sizeof text - 1, true, &ids, &n, err)) {
        for (size_t i = 0; i < n; i++)
            expect(tokenizer_has(tok, ids[i]));
        free(ids);
    }
    if (chat_template_open(&tpl, path, err))
        expect(err->text[0] != '\0' && !tpl);
    tokenizer_close(tok);
    chat_template_close(tpl);
}

static void drop(void)
{
    static const char *const names[] = {name};
    fuzz_dir_drop(names, 1);
}

static void run_gguf(const uint8_t *bytes, size_t n)
{
    static bool prepared;
    struct st *st = NULL;
    struct config c;
    struct err err = {""};
    char path[2 * FUZZ_PATH], fingerprint[33];
    volatile unsigned sum = 0; /* the reads must not be optimised away */
    if (!prepared)
        prepared = atexit(drop) == 0;
    fuzz_dir_put(name, bytes, n);
    snprintf(path, sizeof path, "%s/%s", fuzz_dir(), name);
    if (st_open_dir(&st, path, NULL, NULL, &err) == 0)
        sum = touch_gguf(st);
    else
        expect(err.text[0] && !st);
    st_close(st);
    err.text[0] = '\0';
    if (config_read(&c, path, &err) == 0)
        expect(c.layers && c.heads && c.mixed &&
               (config_fingerprint(fingerprint, path, &err) == 0 || err.text[0]));
    else
        expect(err.text[0] != '\0');
    read_text(path, &err);
    (void)sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct st *st = NULL;
    struct err err = {""};
    volatile unsigned sum = 0; /* the reads must not be optimised away */
    if (n >= 4 && !memcmp(bytes, "GGUF", 4)) {
        run_gguf(bytes, n);
        return 0;
    }
    if (st_open_file(&st, fuzz_file(bytes, n), &err) == 0)
        sum = touch(st);
    else if (!err.text[0] || st)
        abort();
    (void)sum;
    st_close(st);
    return 0;
}
