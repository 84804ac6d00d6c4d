#!/bin/sh
# Which charts a training has, from what it says: the dashboard's own function, without a browser.
#   usage: tests/web/curves.sh
# SPDX-License-Identifier: MIT
cd "$(dirname "$0")/../.." || exit 2
command -v node >/dev/null || { echo 'skip: node is not installed'; exit 77; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cp web/curves.js "$tmp/curves.mjs"
cat >"$tmp/test.mjs" <<'END'
import assert from 'node:assert';
import { columnsOf, extraCurves } from './curves.mjs';

const titles = rows => extraCurves(rows).map(chart => `${chart.title}: ${chart.curves.map(curve => curve.name).join(', ')}`);
assert.deepEqual(titles({ steps: [], valid: [] }), []);
assert.deepEqual(titles({ steps: [{ step: 1, loss: 2 }], valid: [{ step: 1, valid_loss: 2, valid_tokens: 9 }] }), [], 'a plain run has the usual charts');
const rows = {
    steps: [{ step: 1, 'rewards/margins': 0.5, 'rewards/accuracies': 1 }, { step: 2, 'rewards/margins': 0.75 }],
    valid: [{ step: 0, 'valid_rewards/margins': 0, 'valid_loss/a': 3, exact_match: 0 }, { step: 2, 'valid_rewards/margins': 1, 'valid_loss/a': 2, 'valid_loss/b': 4, 'valid_tokens/a': 7 }],
};
assert.deepEqual(titles(rows), ['Reward margin: each step, validation', 'Preferred answers: each step', 'Further sets: a, b', 'Exact matches: of all answers']);
assert.deepEqual(columnsOf(extraCurves(rows)[0].curves, curve => rows[curve.of]), [[0, 1, 2], [[undefined, 0.5, 0.75], [0, undefined, 1]]]);
console.log('ok: charts of pairs, further sets and questions');
END
node "$tmp/test.mjs"
