# A model whose answers no token ends, and with a template for conversations: sourced by tests of long texts. Needs jq.
# SPDX-License-Identifier: MIT

# endless FOLDER FROM: made of the model in FROM
endless() {
    mkdir "$1"
    for file in "$2"/*.safetensors "$2"/*.json; do
        ln -s "$(realpath "$file")" "$1/"
    done
    for file in config generation_config tokenizer_config; do
        rm -f "$1/$file.json"
        [ ! -e "$2/$file.json" ] || jq 'del(.eos_token_id, .eos_token)' "$2/$file.json" >"$1/$file.json"
    done
    jq '.chat_template = "{{ bos_token }}{% for m in messages %}{{ m.content }}{{ \" \" if not loop.last }}{% endfor %}"' \
        "$1/tokenizer_config.json" >"$1/template.json"
    mv "$1/template.json" "$1/tokenizer_config.json"
}
