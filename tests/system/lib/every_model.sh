#!/bin/sh
# SPDX-License-Identifier: MIT
#
# A model of every family, with a token for each number, and rows to train them on. Of each family the golden case, or random weights for a config
# of tests/data/families. Sourced behind check.sh.

# As many tokens as the model has, each with a text of its own, so that a text says which tokens it is.
with_tokens() {
    n=$(jq .vocab_size "models/$1/config.json")
    jq -nc --argjson n "$n" '{version: "1.0", added_tokens: [], model: {type: "BPE", merges: [], vocab: [range($n) | {key: "<\(.)>", value: .}] | from_entries}}' \
        >"models/$1/tokenizer.json"
    echo '{"chat_template": "{% for m in messages %}{{ m.content }}{% endfor %}"}' >"models/$1/tokenizer_config.json"
}

# Makes models/, out/ and rows.jsonl where it is called.
every_model() {
    mkdir models out
    for folder in "$cases"/*; do
        name=${folder##*/}
        mkdir "models/$name"
        ln -s "$folder"/model/* "models/$name/"
        rm -f "models/$name/config.v5.json"
        with_tokens "$name"
    done
    for folder in "$data"/families/*; do
        name=${folder##*/}
        mkdir "models/$name"
        cp "$folder/config.json" "models/$name/"
        "$build/tests/system/lib/random_model" "models/$name" || fail "no weights for $name"
        with_tokens "$name"
    done
    for i in 0 1 2 3; do
        jq -nc --argjson i "$i" '{input_ids: [range(3 + $i; 20 + 2 * $i) | (. * 37 + $i * 11) % 240 + 3]}'
    done >rows.jsonl
}
