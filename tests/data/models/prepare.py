#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Text for the test models and a tokenizer made from it.

usage: prepare.py OUT <VERSES

Reads verses as share/tiny-llama/prepare.py does and writes OUT/tokenizer.json (512 tokens in the manner of Llama 2:
a blank is part of the word behind it, characters without a token of their own are spelled as bytes), OUT/train.jsonl
and OUT/valid.jsonl. The same verses give the same files, byte for byte. Called by recipe.
"""
import collections
import importlib.util
import json
import os
import sys

VOCAB = 512
SEQ_LEN = 256
HELD_OUT = 40
BLANK = "\u2581"
SPECIAL = ["<unk>", "<s>", "</s>"]

path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../share/tiny-llama/prepare.py")
spec = importlib.util.spec_from_file_location("tiny_llama_prepare", path)
bible = importlib.util.module_from_spec(spec)
spec.loader.exec_module(bible)


def words_of(text):
    """Llama 2 has no pre-tokenizer; that no token spans two words keeps the vocabulary useful."""
    return [BLANK + word for word in text.split(" ")]


def tokenizer_json(merges, letters):
    vocab = {token: i for i, token in enumerate(SPECIAL + [f"<0x{b:02X}>" for b in range(256)])}
    for token in [a + b for a, b in merges] + letters:
        vocab[token] = len(vocab)
    added = [{"id": i, "content": token, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": True} for i, token in enumerate(SPECIAL)]
    start = {"SpecialToken": {"id": "<s>", "type_id": 0}}
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": BLANK}, {"type": "Replace", "pattern": {"String": " "}, "content": BLANK}]},
        "pre_tokenizer": None,
        "post_processor": {"type": "TemplateProcessing", "single": [start, {"Sequence": {"id": "A", "type_id": 0}}],
                           "pair": [start, {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                           "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": BLANK}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True, "ignore_merges": False,
                  "vocab": vocab, "merges": [list(pair) for pair in merges]},
    }


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: prepare.py OUT <VERSES")
    out = sys.argv[1]
    chapters = bible.read_chapters(sys.stdin)
    train = [c for i, c in enumerate(chapters) if i % HELD_OUT != HELD_OUT - 1]
    valid = chapters[HELD_OUT - 1 :: HELD_OUT]
    counts = collections.Counter(word for c in train for verse in c for word in words_of(verse))
    letters = sorted({letter for word in counts for letter in word})
    merges = bible.learn_merges(counts, list, VOCAB - len(SPECIAL) - 256 - len(letters))
    with open(f"{out}/tokenizer.json", "w", encoding="utf-8") as file:
        json.dump(tokenizer_json(merges, letters), file, ensure_ascii=False, indent=1)
        file.write("\n")
    counter = Counter(merges)
    for name, part in (("train", train), ("valid", valid)):
        rows = [row for chapter in part for row in bible.passages(chapter, counter)]
        bible.write_rows(f"{out}/{name}.jsonl", rows)
        print(f"{name}: {len(part)} chapters, {len(rows)} rows, {sum(counter.text(r) for r in rows)} tokens")


class Counter:
    """Tokens of a text, counted word by word; a newline is one byte."""

    def __init__(self, merges):
        self.rank = {pair: i for i, pair in enumerate(merges)}
        self.known = {}

    def word(self, word):
        parts = tuple(word)
        while len(parts) > 1:
            best = min(zip(parts, parts[1:]), key=lambda pair: self.rank.get(pair, len(self.rank)))
            if best not in self.rank:
                break
            parts = bible.replace_pair(parts, best)
        return len(parts)

    def text(self, text):
        n = 0
        for word in words_of(text):
            if word not in self.known:
                self.known[word] = self.word(word)
            n += self.known[word]
        return n


if __name__ == "__main__":
    main()
