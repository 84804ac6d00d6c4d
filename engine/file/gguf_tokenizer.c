/* SPDX-License-Identifier: MIT
 *
 * A tokenizer.json and a tokenizer_config.json of a GGUF file's metadata: SentencePiece's scores
 * become merges with ranks, byte-level BPE is as it was. What they mean, text/ knows. Called by
 * gguf_config.c; one thread. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file/gguf_model_impl.h"
#include "file/input.h"

#define KEY "tokenizer.ggml."
#define MARK "\xe2\x96\x81" /* SentencePiece's blank */

enum { TOKEN_MOST = 64 << 10 }; /* bytes */

/* Types of tokens, by their numbers in files. */
enum { TOKEN_NORMAL = 1, TOKEN_UNKNOWN, TOKEN_CONTROL, TOKEN_USER, TOKEN_UNUSED, TOKEN_BYTE };

struct vocabulary {
    const struct gguf *g;
    size_t n;
    struct gguf_text *text; /* owned: [n] */
    int *type;              /* owned: [n] */
    json_t *ids;            /* owned: the text of each, and its id */
    struct err *err;
};

/* --- tokens ----------------------------------------------------------------------------------- */

static void vocabulary_done(struct vocabulary *v)
{
    free(v->text);
    free(v->type);
    json_decref(v->ids);
}

/* A list with something for each token. */
static int find_list(const struct vocabulary *v, const char *key, bool is_text, const struct gguf_value **ret)
{
    const struct gguf_value *list = *ret = gguf_value(v->g, key);
    double unused;
    if (!list)
        return 0;
    if (!list->is_array ||
        (is_text ? list->type != GGUF_STRING : list->count && !gguf_real(list, 0, &unused)))
        return err_set(v->err, -EBADMSG, "%s is of type %s, and must be an array of %s", key,
                       gguf_type_name(list), is_text ? "string" : "numbers");
    if (v->n && list->count != v->n)
        return err_set(v->err, -EBADMSG, "%s has %zu elements for %zu tokens", key, list->count, v->n);
    return 0;
}

static int add_token(struct vocabulary *v, size_t id)
{
    char text[TOKEN_MOST + 1];
    const struct gguf_text t = v->text[id];
    if (t.n > TOKEN_MOST)
        return err_set(v->err, -EBADMSG, "token %zu has %zu bytes; at most %d are possible", id, t.n,
                       TOKEN_MOST);
    memcpy(text, t.at, t.n);
    text[t.n] = 0;
    if (strlen(text) != t.n)
        return err_set(v->err, -EBADMSG, "token %zu holds a zero byte", id);
    if (json_object_get(v->ids, text)) /* fillers may be alike; the first is the one that is meant */
        return 0;
    return json_object_set_new(v->ids, text, json_integer((json_int_t)id))
               ? err_set(v->err, -EBADMSG, "token %zu is no sound UTF-8", id)
               : 0;
}

static int read_vocabulary(struct vocabulary *v)
{
    const struct gguf_value *tokens, *types;
    struct gguf_text at = {NULL, 0};
    size_t i = 0;
    int r = find_list(v, KEY "tokens", true, &tokens);
    if (!r && (!tokens || !tokens->count))
        r = err_set(v->err, -ENOENT, "it has no tokenizer: " KEY "tokens is missing");
    if (r)
        return r;
    v->n = tokens->count;
    v->text = calloc(v->n, sizeof *v->text);
    v->type = calloc(v->n, sizeof *v->type);
    v->ids = json_object();
    if (!v->text || !v->type || !v->ids)
        return err_set(v->err, -ENOMEM, "no memory for %zu tokens", v->n);
    r = find_list(v, KEY "token_type", false, &types);
    while (!r && gguf_next_text(tokens, &i, &at)) {
        int64_t type = TOKEN_NORMAL;
        if (types)
            gguf_whole(types, i - 1, &type);
        v->text[i - 1] = at;
        v->type[i - 1] = (int)type;
        r = add_token(v, i - 1);
    }
    return r;
}

static json_t *text_of(const struct vocabulary *v, size_t id)
{
    return json_stringn(v->text[id].at, v->text[id].n);
}

/* --- ids in metadata -------------------------------------------------------------------------- */

static bool id_at(const struct gguf *g, const char *key, int64_t *ret)
{
    const struct gguf_value *v = gguf_value(g, key);
    return v && !v->is_array && gguf_whole(v, 0, ret);
}

static bool is_text(struct gguf_text t, const char *text)
{
    return t.n == strlen(text) && !memcmp(t.at, text, t.n);
}

static bool says(const struct gguf *g, const char *key, const char *text)
{
    const struct gguf_value *v = gguf_value(g, key);
    struct gguf_text at = {NULL, 0};
    size_t i = 0;
    return v && !v->is_array && gguf_next_text(v, &i, &at) && is_text(at, text);
}

bool gguf_tokenizer_bos(const struct gguf *g, int64_t *ret)
{
    return id_at(g, KEY "bos_token_id", ret);
}

static void add_end(int64_t *list, size_t *n, size_t most, int64_t id)
{
    for (size_t i = 0; i < *n; i++)
        if (list[i] == id)
            return;
    if (*n < most)
        list[(*n)++] = id;
}

size_t gguf_tokenizer_ends(const struct gguf *g, int64_t *ret, size_t most)
{
    static const char *const keys[] = {KEY "eos_token_id", KEY "eot_token_id", KEY "eom_token_id"};
    static const char *const turns[] = {"<|eot_id|>", "<|im_end|>", "<|call|>",
                                        "<|return|>"}; /* where no key says them */
    const struct gguf_value *tokens = gguf_value(g, KEY "tokens"), *types = gguf_value(g, KEY "token_type");
    struct gguf_text at = {NULL, 0};
    size_t n = 0, i = 0;
    int64_t id;
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
        if (id_at(g, keys[k], &id))
            add_end(ret, &n, most, id);
    while (tokens && types && gguf_next_text(tokens, &i, &at))
        for (size_t k = 0; k < sizeof turns / sizeof *turns; k++)
            if (is_text(at, turns[k]) && gguf_whole(types, i - 1, &id) && id == TOKEN_CONTROL)
                add_end(ret, &n, most, (int64_t)i - 1);
    return n;
}

/* --- SentencePiece's scores ------------------------------------------------------------------- */

struct scored_merge {
    double score;
    size_t id, left; /* bytes of the left part */
};

static int by_score(const void *a, const void *b)
{
    const struct scored_merge *x = a, *y = b;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    if (x->id != y->id)
        return x->id < y->id ? -1 : 1;
    return (x->left > y->left) - (x->left < y->left);
}

static bool is_piece(const struct vocabulary *v, const char *text, size_t n, char *room)
{
    memcpy(room, text, n);
    room[n] = 0;
    const json_t *id = json_object_get(v->ids, room);
    const int type = id ? v->type[json_integer_value(id)] : 0;
    return type == TOKEN_NORMAL || type == TOKEN_USER || type == TOKEN_UNUSED;
}

/* All ways to make each token of two others. */
static int list_merges(const struct vocabulary *v, const struct gguf_value *scores, struct scored_merge **ret,
                       size_t *ret_n)
{
    char room[TOKEN_MOST + 1];
    size_t cap = 0;
    for (size_t id = 0; id < v->n; id++) {
        const struct gguf_text t = v->text[id];
        double score = 0;
        gguf_real(scores, id, &score);
        if (isnan(score))
            return err_set(v->err, -EBADMSG, "the score of token %zu is no number", id);
        for (size_t left = 1; is_piece(v, t.at, t.n, room) && left < t.n; left++) {
            const bool inside = ((unsigned char)t.at[left] & 0xc0) == 0x80; /* of a character */
            if (inside || !is_piece(v, t.at, left, room) || !is_piece(v, t.at + left, t.n - left, room))
                continue;
            if (*ret_n == cap) {
                cap = cap ? 2 * cap : 1024;
                struct scored_merge *grown = reallocarray(*ret, cap, sizeof *grown);
                if (!grown)
                    return err_set(v->err, -ENOMEM, "no memory for its merges");
                *ret = grown;
            }
            (*ret)[(*ret_n)++] = (struct scored_merge){score, id, left};
        }
    }
    if (*ret_n)
        qsort(*ret, *ret_n, sizeof **ret, by_score);
    return 0;
}

static int put_scores(const struct vocabulary *v, json_t *model)
{
    const struct gguf_value *scores;
    struct scored_merge *list = NULL;
    size_t n = 0;
    json_t *merges = json_array(), *ranks = json_array();
    json_int_t rank = 0;
    int r = find_list(v, KEY "scores", false, &scores);
    if (!r && !scores)
        r = err_set(v->err, -EBADMSG, KEY "scores is missing");
    if (!r)
        r = list_merges(v, scores, &list, &n);
    for (size_t i = 0; i < n && !r; i++) {
        const struct gguf_text t = v->text[list[i].id];
        rank += i && list[i].score < list[i - 1].score;
        json_array_append_new(
            merges, json_pack("[s%s%]", t.at, list[i].left, t.at + list[i].left, t.n - list[i].left));
        json_array_append_new(ranks, json_integer(rank));
    }
    json_object_set_new(model, "merges", merges);
    json_object_set_new(model, "ranks", ranks);
    free(list);
    return r;
}

/* Without a byte for what is unknown there is a token. */
static void put_unknown(const struct vocabulary *v, json_t *model)
{
    int64_t id = -1;
    if (!id_at(v->g, KEY "unknown_token_id", &id))
        for (size_t i = 0; i < v->n && id < 0; i++)
            id = v->type[i] == TOKEN_UNKNOWN ? (int64_t)i : -1;
    if (id >= 0 && (size_t)id < v->n)
        json_object_set_new(model, "unk_token", text_of(v, (size_t)id));
}

static bool flag(const struct gguf *g, const char *key, bool fallback)
{
    const struct gguf_value *v = gguf_value(g, key);
    bool is = fallback;
    if (v)
        gguf_bool(v, &is);
    return is;
}

static json_t *replace(const char *what, const char *with)
{
    return json_pack("{s:s s:{s:s} s:s}", "type", "Replace", "pattern", "String", what, "content", with);
}

/* A blank goes before a text that does not begin with a special token, and away again. */
static int put_sentencepiece(const struct vocabulary *v, json_t *root, json_t *model)
{
    const bool blank = flag(v->g, KEY "add_space_prefix", true);
    json_t *before = json_array(), *behind = json_array();
    if (blank)
        json_array_append_new(before, json_pack("{s:s s:s}", "type", "Prepend", "prepend", MARK));
    json_array_append_new(before, replace(" ", MARK));
    json_array_append_new(behind, replace(MARK, " "));
    json_array_append_new(behind, json_pack("{s:s}", "type", "ByteFallback"));
    json_array_append_new(behind, json_pack("{s:s}", "type", "Fuse"));
    if (blank)
        json_array_append_new(
            behind, json_pack("{s:s s:s s:i s:i}", "type", "Strip", "content", " ", "start", 1, "stop", 0));
    json_object_set_new(root, "normalizer",
                        json_pack("{s:s s:o}", "type", "Sequence", "normalizers", before));
    json_object_set_new(root, "pre_tokenizer", json_null());
    json_object_set_new(root, "decoder", json_pack("{s:s s:o}", "type", "Sequence", "decoders", behind));
    json_object_set_new(model, "byte_fallback", json_true());
    json_object_set_new(model, "fuse_unk", json_true());
    put_unknown(v, model);
    return put_scores(v, model);
}

/* --- byte-level BPE --------------------------------------------------------------------------- */

#define ENDINGS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define UPPER "\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}"
#define LOWER "\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}"
/* Words begin where case changes. */
#define CASED(endings, digits)                                                                               \
    "[^\\r\\n\\p{L}\\p{N}]?[" UPPER "]*[" LOWER "]+" endings "|[^\\r\\n\\p{L}\\p{N}]?[" UPPER "]+[" LOWER    \
    "]*" endings "|" digits "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define WORDS(digits)                                                                                        \
    ENDINGS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits                                                         \
            "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

/* How a text is cut before it is merged, by the name in `pre`. */
static const struct gguf_cutting {
    const char *pre, *at[3];
    bool takes_whole, begins; /* a piece that is a token is taken unmerged; BOS also without a key */
} cuttings[] = {
    {"llama-bpe", {WORDS("\\p{N}{1,3}")}, true, true},
    {"llama3", {WORDS("\\p{N}{1,3}")}, true, true},
    {"llama-v3", {WORDS("\\p{N}{1,3}")}, true, true},
    {"qwen2", {WORDS("\\p{N}")}, false, false},
    {"deepseek-r1-qwen", {WORDS("\\p{N}")}, false, false},
    {"deepseek-v3",
     {"\\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
      "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "
      "?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
     false,
     false},
    {"glm4", {WORDS("\\p{N}{1,3}")}, false, false},
    {"dbrx", {WORDS("\\p{N}{1,3}")}, false, false},
    {"smaug-bpe", {WORDS("\\p{N}{1,3}")}, false, false},
    {"gpt-4o", {CASED(ENDINGS "?", "\\p{N}{1,3}")}, false, false},
    {"minimax-m2", {CASED(ENDINGS "?", "\\p{N}{1,3}")}, false, false},
    {"tekken", {CASED("", "\\p{N}")}, true, false},
    {"qwen35",
     {ENDINGS "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| "
              "?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
     false,
     false},
    {"refact",
     {"\\p{N}", "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"},
     false,
     false},
    {"gpt-2",
     {"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"},
     false,
     false},
};

static const struct gguf_cutting *find_cutting(const struct gguf *g)
{
    for (size_t i = 0; i < sizeof cuttings / sizeof *cuttings; i++)
        if (says(g, KEY "pre", cuttings[i].pre))
            return &cuttings[i];
    return NULL;
}

static int refuse_cutting(struct err *err)
{
    char known[256] = "";
    for (size_t i = 0; i < sizeof cuttings / sizeof *cuttings; i++)
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", i ? ", " : "", cuttings[i].pre);
    return err_set(err, -ENOTSUP, KEY "pre is none of %s: how it cuts texts is not known", known);
}

static int put_merges(const struct vocabulary *v, json_t *model)
{
    const struct gguf_value *list = gguf_value(v->g, KEY "merges");
    struct gguf_text at = {NULL, 0};
    size_t i = 0;
    json_t *merges = json_array();
    json_object_set_new(model, "merges", merges);
    if (!list || !list->is_array || list->type != GGUF_STRING)
        return err_set(v->err, -EBADMSG, KEY "merges is missing, or no array of string");
    while (gguf_next_text(list, &i, &at))
        if (json_array_append_new(merges, json_stringn(at.at, at.n)))
            return err_set(v->err, -EBADMSG, "merge %zu is no sound UTF-8", i - 1);
    return 0;
}

static json_t *byte_level(void)
{
    return json_pack("{s:s s:b s:b s:b}", "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets", 0,
                     "use_regex", 0);
}

static int put_byte_level(const struct vocabulary *v, json_t *root, json_t *model)
{
    const struct gguf_cutting *c = find_cutting(v->g);
    json_t *steps = json_array();
    for (size_t i = 0; c && i < 3 && c->at[i]; i++)
        json_array_append_new(steps, json_pack("{s:s s:{s:s} s:s s:b}", "type", "Split", "pattern", "Regex",
                                               c->at[i], "behavior", "Isolated", "invert", 0));
    json_array_append_new(steps, byte_level());
    json_object_set_new(root, "normalizer", json_null());
    json_object_set_new(root, "pre_tokenizer",
                        json_pack("{s:s s:o}", "type", "Sequence", "pretokenizers", steps));
    json_object_set_new(root, "decoder", byte_level());
    if (!c)
        return refuse_cutting(v->err);
    json_object_set_new(model, "ignore_merges", json_boolean(c->takes_whole));
    return put_merges(v, model);
}

/* --- both ------------------------------------------------------------------------------------- */

static bool begins(const struct gguf *g)
{
    const struct gguf_cutting *c = find_cutting(g);
    return flag(g, KEY "add_bos_token", says(g, KEY "model", "llama") || (c && c->begins));
}

static void put_added(const struct vocabulary *v, json_t *root)
{
    json_t *list = json_array();
    for (size_t i = 0; i < v->n; i++) {
        const int type = v->type[i];
        if (type == TOKEN_UNKNOWN || type == TOKEN_CONTROL || type == TOKEN_USER)
            json_array_append_new(list, json_pack("{s:i s:o s:b s:b s:b s:b s:b}", "id", (int)i, "content",
                                                  text_of(v, i), "single_word", 0, "lstrip", 0, "rstrip", 0,
                                                  "normalized", 0, "special", type != TOKEN_USER));
    }
    json_object_set_new(root, "added_tokens", list);
}

static int put_end(const struct vocabulary *v, const char *key, json_t *list, json_t *tokens)
{
    int64_t id;
    if (!id_at(v->g, key, &id))
        return 0;
    if (id < 0 || (size_t)id >= v->n)
        return err_set(v->err, -EBADMSG, "%s is %lld, and there are %zu tokens", key, (long long)id, v->n);
    json_t *text = text_of(v, (size_t)id);
    json_array_append_new(list, json_pack("{s:{s:O s:i}}", "SpecialToken", "id", text, "type_id", 0));
    json_object_set_new(tokens, json_string_value(text),
                        json_pack("{s:O s:[i] s:[O]}", "id", text, "ids", (int)id, "tokens", text));
    json_decref(text);
    return 0;
}

/* What is put around a text. */
static int put_template(const struct vocabulary *v, json_t *root)
{
    json_t *list = json_array(), *tokens = json_object();
    int r = begins(v->g) ? put_end(v, KEY "bos_token_id", list, tokens) : 0;
    json_array_append_new(list, json_pack("{s:{s:s s:i}}", "Sequence", "id", "A", "type_id", 0));
    if (!r && flag(v->g, KEY "add_eos_token", false))
        r = put_end(v, KEY "eos_token_id", list, tokens);
    json_object_set_new(root, "post_processor",
                        json_pack("{s:s s:o s:[] s:o}", "type", "TemplateProcessing", "single", list, "pair",
                                  "special_tokens", tokens));
    return r;
}

static int put_all(struct vocabulary *v, json_t *root)
{
    json_t *model = json_pack("{s:s}", "type", "BPE");
    const bool is_pieces = says(v->g, KEY "model", "llama");
    int r = model ? read_vocabulary(v) : err_set(v->err, -ENOMEM, "no memory for its tokenizer");
    if (!r && !is_pieces && !says(v->g, KEY "model", "gpt2"))
        r = err_set(v->err, -ENOTSUP, KEY "model is neither llama nor gpt2, which is not supported");
    if (!r)
        r = is_pieces ? put_sentencepiece(v, root, model) : put_byte_level(v, root, model);
    if (!r)
        r = put_template(v, root);
    if (!r) {
        put_added(v, root);
        json_object_set(model, "vocab", v->ids);
    }
    json_object_set_new(root, "model", model);
    return r;
}

int gguf_tokenizer(json_t **ret, const struct gguf *g, struct err *err)
{
    struct vocabulary v = {.g = g, .err = err};
    json_t *root = json_pack("{s:s s:n s:n}", "version", "1.0", "truncation", "padding");
    int r = put_all(&v, root);
    vocabulary_done(&v);
    if (r)
        json_decref(root);
    else
        *ret = root;
    return r;
}

/* --- names of tokens, and the template -------------------------------------------------------- */

static json_t *token_text(const struct gguf *g, int64_t id)
{
    const struct gguf_value *tokens = gguf_value(g, KEY "tokens");
    struct gguf_text at = {NULL, 0};
    size_t i = 0;
    while (tokens && gguf_next_text(tokens, &i, &at))
        if ((int64_t)i - 1 == id)
            return json_stringn(at.at, at.n);
    return NULL;
}

int gguf_tokenizer_config(json_t **ret, const struct gguf *g, struct err *err)
{
    static const char *const names[][2] = {{"bos_token", KEY "bos_token_id"},
                                           {"eos_token", KEY "eos_token_id"},
                                           {"unk_token", KEY "unknown_token_id"},
                                           {"pad_token", KEY "padding_token_id"}};
    const struct gguf_value *template = gguf_value(g, "tokenizer.chat_template");
    struct gguf_text at = {NULL, 0};
    size_t i = 0;
    int64_t id;
    json_t *root = json_pack("{s:b s:b}", "add_bos_token", begins(g), "add_eos_token",
                             flag(g, KEY "add_eos_token", false));
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        json_t *text = id_at(g, names[k][1], &id) ? token_text(g, id) : NULL;
        if (text)
            json_object_set_new(root, names[k][0], text);
    }
    if (template && !template->is_array && gguf_next_text(template, &i, &at))
        json_object_set_new(root, "chat_template", json_stringn(at.at, at.n));
    *ret = root;
    return root ? 0 : err_set(err, -ENOMEM, "no memory for its tokenizer");
}
