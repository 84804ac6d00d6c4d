#!/bin/sh
# The clients of OpenAI and Anthropic as npm has them, unmodified, against the answers of daemon/ringd/openai: chat, streams, tools,
# JSON schemas, embeddings, errors. What they do is in clients.mjs; behind its little server a program answers for the model.
#   usage: tests/web/clients.sh BUILD
# Needs node, and the packages below where NODE_PATH says; with CI=true they are fetched with npm.
# SPDX-License-Identifier: MIT
set -u
cd "$(dirname "$0")/../.." || exit 2
build=$(cd "${1:-build}" && pwd)
packages='openai @anthropic-ai/sdk @langchain/openai ai @ai-sdk/openai zod'
skip() {
    echo "skipped: $*"
    exit 77
}
[ -x "$build/tests/web/lib/answer" ] || skip "$build/tests/web/lib/answer is missing: make web"
command -v node >/dev/null || skip "node is not installed"
modules=${NODE_PATH:-$HOME/.cache/ringd-web/node_modules}
for package in $packages; do
    [ -d "$modules/$package" ] && continue
    [ "${CI:-}" = true ] || skip "$package is not in $modules: NODE_PATH names its folder, or CI=true fetches it"
    # shellcheck disable=SC2086 # a list
    npm install --silent --prefix "$(dirname "$modules")" $packages >/dev/null 2>&1 || skip "npm could not fetch $packages"
done
AI_SDK_LOG_WARNINGS=false NODE_MODULES=$modules ANSWER=$build/tests/web/lib/answer timeout 300 node tests/web/clients.mjs
