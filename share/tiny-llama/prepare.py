#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Text for the demo model and a tokenizer made from it.

usage: prepare.py OUT <VERSES

Reads lines "Ge1:1 In the beginning ...", as `bible -f` prints them, and writes OUT/tokenizer.json (byte-level BPE),
OUT/train.jsonl and OUT/valid.jsonl. The same verses give the same files, byte for byte. Called by recipe.
"""
import collections
import json
import re
import sys

VOCAB = 1024
SEQ_LEN = 256  # of the training run; a row and its <|endoftext|> fit
HELD_OUT = 40  # one chapter in so many is kept for validation
END = "<|endoftext|>"

# What a ByteLevel pre-tokenizer splits ASCII text into. Verses hold nothing else: see read_chapters.
WORD = re.compile(r"'(?:s|t|re|ve|m|ll|d)| ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+")


def byte_letters():
    """The printable letter that stands for each byte in a byte-level vocabulary."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in plain]
    return {**{b: chr(b) for b in plain}, **{b: chr(256 + i) for i, b in enumerate(others)}}


def read_chapters(lines):
    chapters = collections.OrderedDict()
    for line in lines:
        place, _, verse = line.strip().partition(" ")
        if ":" not in place or not verse.isascii():
            sys.exit(f'prepare.py: "{line.strip()[:60]}" is not a verse: lines like "Ge1:1 In the ..." are needed, from `bible -f`')
        chapters.setdefault(place.partition(":")[0], []).append(verse)
    if not chapters:
        sys.exit("prepare.py: no verses on standard input")
    return list(chapters.values())


def replace_pair(word, pair):
    out, i = [], 0
    while i < len(word):
        if word[i : i + 2] == pair:
            out.append(word[i] + word[i + 1])
            i += 2
        else:
            out.append(word[i])
            i += 1
    return tuple(out)


def learn_merges(counts, split, n):
    """Byte-pair encoding of counted words, which split() makes letters of: n times the pair seen most often, of equals
    the one first in the alphabet."""
    words = [tuple(split(w)) for w in counts]
    times = list(counts.values())
    seen, where = collections.Counter(), collections.defaultdict(set)
    for i, word in enumerate(words):
        for pair in zip(word, word[1:]):
            seen[pair] += times[i]
            where[pair].add(i)
    merges = []
    while len(merges) < n:
        best = min(seen, key=lambda pair: (-seen[pair], pair))
        merges.append(best)
        for i in sorted(where[best]):
            for pair in zip(words[i], words[i][1:]):
                seen[pair] -= times[i]
            words[i] = replace_pair(words[i], best)
            for pair in zip(words[i], words[i][1:]):
                seen[pair] += times[i]
                where[pair].add(i)
        del seen[best], where[best]
    return merges


def tokenizer_json(letters, merges):
    vocab = {END: 0}
    for token in [letters[b] for b in range(256)] + [a + b for a, b in merges]:
        vocab[token] = len(vocab)
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    special = {"id": 0, "content": END, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [special], "normalizer": None,
        "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": vocab, "merges": [f"{a} {b}" for a, b in merges]},
    }


class TokenCounter:
    """Tokens of a text, counted word by word as the tokenizer will make them."""

    def __init__(self, letters, merges):
        self.letters = letters
        self.rank = {pair: i for i, pair in enumerate(merges)}
        self.known = {}

    def word(self, word):
        parts = tuple(self.letters[b] for b in word.encode())
        while len(parts) > 1:
            best = min(zip(parts, parts[1:]), key=lambda pair: self.rank.get(pair, len(self.rank)))
            if best not in self.rank:
                break
            parts = replace_pair(parts, best)
        return len(parts)

    def text(self, text):
        n = 0
        for word in WORD.findall(text):
            if word not in self.known:
                self.known[word] = self.word(word)
            n += self.known[word]
        return n


def passages(verses, counter):
    """As many verses as fit a row, one a line."""
    rows = [""]
    for verse in verses:
        longer = f"{rows[-1]}{verse}\n"
        if rows[-1] and counter.text(longer) >= SEQ_LEN:
            rows.append(verse + "\n")
        else:
            rows[-1] = longer
    return rows


def write_rows(path, rows):
    with open(path, "w", encoding="ascii") as out:
        out.writelines(json.dumps({"text": row}) + "\n" for row in rows)


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: prepare.py OUT <VERSES")
    out = sys.argv[1]
    chapters = read_chapters(sys.stdin)
    train = [c for i, c in enumerate(chapters) if i % HELD_OUT != HELD_OUT - 1]
    valid = chapters[HELD_OUT - 1 :: HELD_OUT]
    letters = byte_letters()
    counts = collections.Counter(WORD.findall("\n".join(verse for c in train for verse in c)))
    merges = learn_merges(counts, lambda word: [letters[b] for b in word.encode()], VOCAB - 257)
    counter = TokenCounter(letters, merges)
    with open(f"{out}/tokenizer.json", "w", encoding="utf-8") as file:
        json.dump(tokenizer_json(letters, merges), file, ensure_ascii=False, indent=1)
        file.write("\n")
    for name, part in (("train", train), ("valid", valid)):
        rows = [row for chapter in part for row in passages(chapter, counter)]
        write_rows(f"{out}/{name}.jsonl", rows)
        print(f"{name}: {len(part)} chapters, {len(rows)} rows, {sum(counter.text(r) for r in rows)} tokens")


if __name__ == "__main__":
    main()
