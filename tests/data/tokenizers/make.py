#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes small tokenizers, one for each way in which released models cut text before they merge bytes, and texts.

usage: make.py OUT <VERSES       (verses as share/tiny-llama/prepare.py reads them)

  OUT/NAME/tokenizer.json   the merges are learnt from the verses; how text is cut is that of the family it is named for
  OUT/kimi/tiktoken.model   the same merges as Kimi-K2's folder would have them, with its tokenizer_config.json
  OUT/texts.json            what expect.mjs has an independent implementation encode and decode
"""
import base64
import collections
import importlib.util
import json
import os
import sys

path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../share/tiny-llama/prepare.py")
spec = importlib.util.spec_from_file_location("tiny_llama_prepare", path)
bible = importlib.util.module_from_spec(spec)
spec.loader.exec_module(bible)

BLANK = "\u2581"
MERGES = 220
VERSES = 8000  # enough to learn so few merges from

# How the families cut, as their published tokenizer.json files say it.
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
DEEPSEEK = [r"\p{N}{1,3}", "[一-龥\u3040-\u309f\u30a0-\u30ff]+",
            "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|"
            "\\s*[\r\n]+|\\s+(?!\\S)|\\s+"]

BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}


def split(pattern, behavior="Isolated"):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": False}


def sequence(key, *steps):
    return {"type": "Sequence", key: list(steps)}


def special(token, i):
    return {"id": i, "content": token, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}


def starts_with(token, i):
    start = {"SpecialToken": {"id": token, "type_id": 0}}
    return {"type": "TemplateProcessing", "single": [start, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [start, {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {token: {"id": token, "ids": [i], "tokens": [token]}}}


def tokenizer(vocab, merges, specials, **parts):
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
             "fuse_unk": False, "byte_fallback": False, "ignore_merges": False}
    model.update(parts.pop("model", {}))
    model.update({"vocab": vocab, "merges": [list(pair) for pair in merges]})
    whole = {"version": "1.0", "truncation": None, "padding": None,
             "added_tokens": [special(token, vocab.get(token, len(vocab) + i)) for i, token in enumerate(specials)],
             "normalizer": None, "pre_tokenizer": None, "post_processor": None, "decoder": None}
    whole.update(parts)
    whole["model"] = model
    return whole


def byte_families(words):
    letters = bible.byte_letters()
    merges = bible.learn_merges(words, lambda word: [letters[b] for b in word.encode()], MERGES)
    # A token of a whole word whose merges are missing is found only where merges are ignored.
    tokens = [letters[b] for b in range(256)] + [a + b for a, b in merges]
    vocab = {token: i for i, token in enumerate(tokens)}
    whole = dict(vocab)
    whole["Ġunderstanding"] = len(whole)
    end = len(vocab)
    yield "gpt2", tokenizer(vocab, merges, ["<|endoftext|>"], pre_tokenizer=dict(BYTES, use_regex=True),
                            post_processor=dict(BYTES, use_regex=True), decoder=BYTES)
    yield "llama3", tokenizer(whole, merges, ["<|begin_of_text|>", "<|eot_id|>"], model={"ignore_merges": True},
                              pre_tokenizer=sequence("pretokenizers", split(LLAMA3), BYTES),
                              post_processor=sequence("processors", BYTES, starts_with("<|begin_of_text|>", len(whole))), decoder=BYTES)
    yield "qwen2", tokenizer(vocab, merges, ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], normalizer={"type": "NFC"},
                             pre_tokenizer=sequence("pretokenizers", split(QWEN2), BYTES), post_processor=BYTES, decoder=BYTES)
    yield "deepseek", tokenizer(vocab, merges, ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"],
                                normalizer=sequence("normalizers"),
                                pre_tokenizer=sequence("pretokenizers", *[split(p) for p in DEEPSEEK], BYTES),
                                post_processor=starts_with("<｜begin▁of▁sentence｜>", end), decoder=BYTES)
    yield "digits", tokenizer(vocab, merges, ["<|endoftext|>"], normalizer=sequence("normalizers", {"type": "NFKC"}),
                              pre_tokenizer=sequence("pretokenizers", {"type": "Digits", "individual_digits": True},
                                                     dict(BYTES, use_regex=True)), decoder=BYTES)


def blank_families(words):
    counts = collections.Counter()
    for word, n in words.items():
        counts[word.replace(" ", BLANK)] += n
    letters = sorted({letter for word in counts for letter in word})
    merges = bible.learn_merges(counts, list, MERGES)
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)] + letters
    vocab = {token: i for i, token in enumerate(dict.fromkeys(tokens + [a + b for a, b in merges]))}
    decoder = sequence("decoders", {"type": "Replace", "pattern": {"String": BLANK}, "content": " "}, {"type": "ByteFallback"},
                       {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0})
    fallback = {"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True}
    yield "mistral", tokenizer(vocab, merges, ["<unk>", "<s>", "</s>"], model=fallback,
                               pre_tokenizer={"type": "Metaspace", "replacement": BLANK, "prepend_scheme": "first", "split": False},
                               post_processor=starts_with("<s>", 1), decoder=decoder)
    yield "llama2", tokenizer(vocab, merges, ["<unk>", "<s>", "</s>"], model=fallback,
                              normalizer=sequence("normalizers", {"type": "Prepend", "prepend": BLANK},
                                                  {"type": "Replace", "pattern": {"String": " "}, "content": BLANK}),
                              post_processor=starts_with("<s>", 1), decoder=decoder)
    yield "gemma", tokenizer(vocab, merges, ["<unk>", "<s>", "</s>"], model=fallback,
                             normalizer={"type": "Replace", "pattern": {"String": " "}, "content": BLANK},
                             pre_tokenizer={"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False},
                             post_processor=starts_with("<s>", 1), decoder=sequence("decoders", *decoder["decoders"][:3]))


def write_kimi(out, vocab):
    byte_of = {letter: bytes([b]) for b, letter in bible.byte_letters().items()}
    tokens = [b"".join(byte_of[letter] for letter in token) for token in vocab]
    # One that no merge makes; signs that are cut from the letters behind them; merges of one rank.
    tokens += [b" understanding", "文".encode()[:2], "文".encode(), "文a".encode(), "文ab".encode(), b"aa", b"aaa"]
    named = {"[BOS]": True, "[EOS]": True, "<|im_end|>": True, "<|im_start|>": False}
    config = {"tokenizer_class": "TikTokenTokenizer", "auto_map": {"AutoTokenizer": ["tokenization_kimi.TikTokenTokenizer", None]},
              "bos_token": "[BOS]", "eos_token": "[EOS]",
              "added_tokens_decoder": {str(len(tokens) + i): dict(special(token, 0), special=is_special)
                                       for i, (token, is_special) in enumerate(named.items())}}
    os.makedirs(f"{out}/kimi", exist_ok=True)
    with open(f"{out}/kimi/tiktoken.model", "w", encoding="ascii") as file:
        for rank, token in enumerate(tokens):
            file.write(f"{base64.b64encode(token).decode()} {rank}\n")
    with open(f"{out}/kimi/tokenizer_config.json", "w", encoding="utf-8") as file:
        json.dump(config, file, indent=1)
        file.write("\n")


TEXTS = [
    "", " ", "  ", "   ", "\n", "\n\n", "\t", " \n", "\r\n", "\n \n", "a", " a", "a ", "In the beginning", " In the beginning", "in  the   beginning",
    "And God said, Let there be light: and there was light.", "understanding", " understanding", "understanding understandings",
    "I'm you're he's we've I'd they'll don't", "I'M YOU'RE HE'S", "it’s", "O'Brien's '90s", "'s", "''", "'twas 'tis", "3", "33", "333", "3333",
    "33333", "1,234,567.89", "v1.2.3-rc4", "2026-11-23T07:16:00Z", "１２３", "x²+y³=z⁴", "½ ⅓ ¾", "Ⅷ", "\u0663\u0664\u0665", "3.14 3,14 3 14",
    "Hello, world!", "Hello,world!", "(a)[b]{c}<d>", "a/b\\c|d", "!!!???...", "... wait ...", "--long-option=value -x", "#define MAX(a,b) ((a)>(b)?(a):(b))",
    "for (int i = 0; i < n; i++) {\n    x[i] += y[i];\n}\n", "def f(x):\n\treturn x ** 2\n", "<html><body class=\"a\">&amp;</body></html>",
    "https://example.org/a?b=c&d=%20e#f", "user@example.org", "C:\\Users\\x", "~/.config/ringd", "snake_case camelCase PascalCase kebab-case",
    "Straße über Köln", "Ångström", "cafe\u0301 café", "ﬁ ﬂ ﬃ", "naïve façade", "Ḁ̂", "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich",
    "Le cœur déçu mais l'âme plutôt naïve", "El pingüino Wenceslao hizo kilómetros", "Pchnąć w tę łódź jeża lub ośm skrzyń fig", "Příliš žluťoučký kůň",
    "Съешь ещё этих мягких французских булок", "Ξεσκεπάζω τὴν ψυχοφθόρα βδελυγμία", "عربي نص", "שלום עולם", "हिन्दी पाठ", "ภาษาไทย", "한국어 텍스트",
    "中文文本", "中文 and English 混合", "日本語のテキスト", "カタカナ ひらがな 漢字", "你好，世界！", "「引用」", "한글123中文abc", "中1文2", "あ1い2",
    "🙂", "👩‍👩‍👧‍👦", "🇩🇪🇫🇷", "👍🏽 ok", "a🙂b", "☃ ☂ ☔", "→ ≤ ≠ ∑ √", "€5 £6 ¥7 $8", "“quoted” ‘single’ «guillemets»", "en–dash em—dash", "a\u00a0b", "a\u200bb", "a\u2028b",
    "a\u2060b", "\u0000zero", "tab\tand\ttab", "  leading", "trailing  ", "line one\nline two\n\nline four", "a\n\n\nb", "a \n b", "x\r\ny\r\n", "\n\n  indented\n", "word\n", "\nword",
    "ALL CAPS TEXT", "MiXeD cAsE", "supercalifragilisticexpialidocious", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "ababababababababab", "the the the the the",
    "<|endoftext|>", "a<|endoftext|>b", "<s>", "</s> and <s>", "<|im_start|>user\nHi<|im_end|>\n", "<|begin_of_text|>x<|eot_id|>", "<unk>", "<｜begin▁of▁sentence｜>x",
    "<0x41>", "▁", "▁a ▁b", "a▁b", "<|not special|>", "< s >", "Ġ", "\u00c3\u00a9", "\U00010348", "e\u0301\u0302\u0303", "\u1100\u1161\u11a8", "Å", "\u212b", "ſ", "İi", "ß",
    "Thou shalt not covet thy neighbour's house, nor his ox, nor his ass.", "And Jacob came to Shalem, a city of Shechem.", "1:1 2:2 3:3", "Gen 1:1-3", "unto unto unto",
]


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: make.py OUT <VERSES")
    out = sys.argv[1]
    verses = [verse for chapter in bible.read_chapters(sys.stdin) for verse in chapter][:VERSES]
    words = collections.Counter(bible.WORD.findall("\n".join(verses)))
    families = [*byte_families(words), *blank_families(words)]
    for name, whole in families:
        os.makedirs(f"{out}/{name}", exist_ok=True)
        with open(f"{out}/{name}/tokenizer.json", "w", encoding="utf-8") as file:
            json.dump(whole, file, ensure_ascii=False, indent=1)
            file.write("\n")
    write_kimi(out, next(whole["model"]["vocab"] for name, whole in families if name == "qwen2"))
    with open(f"{out}/texts.json", "w", encoding="ascii") as file:
        json.dump(TEXTS, file, indent=0)
        file.write("\n")


if __name__ == "__main__":
    main()
