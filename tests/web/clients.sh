#!/bin/sh
# The clients of OpenAI and Anthropic as npm has them, unmodified, against the answers of daemon/ringd/openai: chat, streams, tools,
# JSON schemas, embeddings, errors. What they do is in clients.mjs; behind its little server a program answers for the model.
#   usage: tests/web/clients.sh BUILD
# Needs node, and the packages below: see npm.sh.
# SPDX-License-Identifier: MIT
set -u
cd "$(dirname "$0")/../.." || exit 2
build=$(cd "${1:-build}" && pwd)
skip() {
    echo "skipped: $*"
    exit 77
}
[ -x "$build/tests/web/lib/answer" ] || skip "$build/tests/web/lib/answer is missing: make web"
. tests/web/npm.sh
need_packages openai @anthropic-ai/sdk @langchain/openai ai @ai-sdk/openai zod
AI_SDK_LOG_WARNINGS=false NODE_MODULES=$modules ANSWER=$build/tests/web/lib/answer timeout 300 node tests/web/clients.mjs
