#!/bin/sh
# The clients of OpenAI and Anthropic as npm has them, unmodified, against a ring of three real daemons that serves share/tiny-llama.
# They ask node 3 over TCP, each with a key of its own; the model's head is node 1. What they do is in served.mjs.
#   usage: tests/web/served.sh BUILD
# Needs node, jq, and the packages that npm.sh names.
# SPDX-License-Identifier: MIT
cd "$(dirname "$0")/../.." || exit 2
. tests/system/lib/check.sh
. tests/system/lib/ring.sh
. tests/lib/endless.sh
. tests/web/npm.sh

need_packages openai @anthropic-ai/sdk @langchain/openai ai @ai-sdk/openai zod
start_node 1
start_node 2
free_port=18573
while ss -Htln "sport = :$free_port" 2>/dev/null | grep -q .; do free_port=$((free_port + 1)); done
node_options="--http-listen 127.0.0.1:$free_port" # the later one counts
start_node 3
join_ring
endless "$work/model" "$PWD/share/tiny-llama"
# So that calls of functions are looked for, as Qwen and Hermes write them.
jq '.chat_template += "{# <tool_call> #}"' "$work/model/tokenizer_config.json" >"$work/config" && mv "$work/config" "$work/model/tokenizer_config.json"
on 1 serve --model "$work/model" --name tiny --max-context 1024 >"$work/said" 2>&1 || fail "serve: $(cat "$work/said")"
on 3 key add clients >"$work/key" || fail 'key add'
AI_SDK_LOG_WARNINGS=false NODE_MODULES=$modules ORIGIN=http://127.0.0.1:$free_port KEY=$(cat "$work/key") limit 120 node tests/web/served.mjs
