// SPDX-License-Identifier: MIT
//
// What an independent implementation, npm's @huggingface/tokenizers, makes of texts.json: NAME/expected.jsonl beside
// each NAME/tokenizer.json. usage: NODE_PATH=… node expect.mjs FOLDER
import { createRequire } from 'node:module';
import { readFileSync, writeFileSync, readdirSync, existsSync } from 'node:fs';
const { Tokenizer } = createRequire(process.env.NODE_PATH + '/')('@huggingface/tokenizers');

// Each token's share of the text: nothing while a character is not whole.
function stream(tokenizer, ids) {
    let shown = '';
    return ids.map((_, i) => {
        const text = decode(tokenizer, ids.slice(0, i + 1), false);
        if (text.endsWith('\ufffd') || text.length <= shown.length) return null;
        const chunk = text.slice(shown.length);
        shown = text;
        return chunk;
    });
}

const decode = (tokenizer, ids, skip) => (ids.length ? tokenizer.decode(ids, { skip_special_tokens: skip }) : '');

const folder = process.argv[2];
const texts = JSON.parse(readFileSync(`${folder}/texts.json`, 'utf8'));
for (const name of readdirSync(folder).sort()) {
    const path = `${folder}/${name}/tokenizer.json`;
    if (!existsSync(path)) continue;
    const tokenizer = new Tokenizer(JSON.parse(readFileSync(path, 'utf8')), { clean_up_tokenization_spaces: false });
    const rows = texts.map((text) => {
        const ids = tokenizer.encode(text, { add_special_tokens: false }).ids;
        return JSON.stringify({
            text, ids,
            ids_with_special: tokenizer.encode(text, { add_special_tokens: true }).ids,
            decoded: decode(tokenizer, ids, false),
            decoded_skip_special: decode(tokenizer, ids, true),
            stream: stream(tokenizer, ids),
        });
    });
    writeFileSync(`${folder}/${name}/expected.jsonl`, rows.join('\n') + '\n');
    console.log(name, rows.length);
}
