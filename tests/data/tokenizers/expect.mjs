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

// Kimi's pattern as its program has it, and tiktoken's own code, npm's tiktoken.
const WORD = '[^\\r\\n\\p{L}\\p{N}]?UPPER*LOWER+(?i:\'s|\'t|\'re|\'ve|\'m|\'ll|\'d)?';
const kimiPattern = ['[\\p{Han}]+', WORD, WORD.replace('UPPER*LOWER+', 'UPPER+LOWER*'), '\\p{N}{1,3}', ' ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*', '\\s*[\\r\\n]+',
    '\\s+(?!\\S)', '\\s+'].join('|').replaceAll('UPPER', '[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]')
    .replaceAll('LOWER', '[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]');

function kimi(folder) {
    const { Tiktoken } = createRequire(process.env.NODE_PATH + '/')('tiktoken');
    const lines = readFileSync(`${folder}/tiktoken.model`, 'utf8').trim().split('\n');
    const named = JSON.parse(readFileSync(`${folder}/tokenizer_config.json`, 'utf8')).added_tokens_decoder;
    const special = {};
    for (let id = lines.length; id < lines.length + 256; id++) special[named[id]?.content ?? `<|reserved_token_${id}|>`] = id;
    const ranks = '! 0 ' + lines.map((line) => line.split(' ')[0]).join(' ');
    const tokenizer = new Tiktoken(ranks, special, kimiPattern);
    const shown = (id) => id < lines.length || named[id]?.special === false;
    return {
        encode: (text) => ({ ids: [...tokenizer.encode(text, 'all')] }),
        decode: (ids, how) => new TextDecoder('utf-8', { ignoreBOM: true })
            .decode(tokenizer.decode(Uint32Array.from(how.skip_special_tokens ? ids.filter(shown) : ids))),
    };
}

const decode = (tokenizer, ids, skip) => (ids.length ? tokenizer.decode(ids, { skip_special_tokens: skip }) : '');

const folder = process.argv[2];
const texts = JSON.parse(readFileSync(`${folder}/texts.json`, 'utf8'));
for (const name of readdirSync(folder).sort()) {
    const path = `${folder}/${name}/tokenizer.json`, isKimi = existsSync(`${folder}/${name}/tiktoken.model`);
    if (!existsSync(path) && !isKimi) continue;
    const tokenizer = isKimi ? kimi(`${folder}/${name}`) : new Tokenizer(JSON.parse(readFileSync(path, 'utf8')), { clean_up_tokenization_spaces: false });
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
