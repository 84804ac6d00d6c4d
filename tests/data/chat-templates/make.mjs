// SPDX-License-Identifier: MIT
//
// Writes expected.jsonl: what an independent implementation, npm's @huggingface/jinja, renders of each template in
// templates/ and each conversation below. usage: NODE_PATH=… node make.mjs FOLDER
import { createRequire } from 'node:module';
import { readFileSync, readdirSync, writeFileSync } from 'node:fs';
const { Template } = createRequire(process.env.NODE_PATH + '/')('@huggingface/jinja');

const say = (role, content, more = {}) => ({ role, content, ...more });
const price = { type: 'function', function: { name: 'find_price', description: 'The price of goods in a town',
    parameters: { type: 'object', properties: { town: { type: 'string' }, goods: { type: 'string' } }, required: ['town'] } } };
const call = { type: 'function', function: { name: 'find_price', arguments: { town: 'Fez', goods: 'lamps', count: 2 } } };
const requests = {
    hello: { messages: [say('user', 'Hello')] },
    'system first': { messages: [say('system', 'Be short.'), say('user', 'Who are you?')] },
    'two turns': { messages: [say('user', 'Hello'), say('assistant', 'Good morning.'), say('user', 'And now?')] },
    'ends with an answer': { messages: [say('user', 'Hello'), say('assistant', 'Good morning.')], add_generation_prompt: false },
    'blanks around': { messages: [say('system', '  Be short.\n'), say('user', '\n  Hello  \n')] },
    'other scripts': { messages: [say('user', 'Grüße, 你好, שלום, 🙂'), say('assistant', '"quoted" & <tagged>'), say('user', "it's \\ a slash")] },
    'many lines': { messages: [say('user', 'one\ntwo\n\nfour\ttab')] },
    'empty question': { messages: [say('user', '')] },
    'a thought inside': { messages: [say('user', 'Two and two?'), say('assistant', '<think>\nI add.\n</think>\n\nFour.'), say('user', 'Sure?')] },
    'a thought beside': { messages: [say('user', 'Two and two?'), say('assistant', 'Four.', { reasoning_content: 'I add.' })], add_generation_prompt: false },
    'thoughts off': { messages: [say('user', 'Two and two?')], kwargs: { enable_thinking: false } },
    'a date': { messages: [say('user', 'Which day is it?')], kwargs: { date_string: '23 November 2026' } },
    tools: { messages: [say('user', 'What do lamps cost in Fez?')], tools: [price] },
    'a call': { messages: [say('user', 'What do lamps cost in Fez?'), say('assistant', '', { tool_calls: [call] }), say('tool', '{"price": 13}'),
        say('assistant', '13 crowns.'), say('user', 'Thanks')], tools: [price] },
    'two calls': { messages: [say('user', 'Lamps?'), say('assistant', '', { tool_calls: [call, call] })], tools: [price, price], add_generation_prompt: false },
};
const folder = process.argv[2];
const rows = [];
for (const file of readdirSync(`${folder}/templates`).sort()) {
    const template = new Template(readFileSync(`${folder}/templates/${file}`, 'utf8'));
    for (const [name, request] of Object.entries(requests)) {
        const row = { name: `${file}: ${name}`, template_file: file, bos_token: '<s>', eos_token: '</s>', tools: null,
            add_generation_prompt: true, kwargs: {}, ...request };
        try {
            row.expected = template.render({ messages: row.messages, tools: row.tools, bos_token: row.bos_token, eos_token: row.eos_token,
                add_generation_prompt: row.add_generation_prompt, ...row.kwargs });
        } catch (e) {
            console.error(`${row.name}: left out: ${e.message}`);
            continue;
        }
        rows.push(JSON.stringify(row));
    }
}
writeFileSync(`${folder}/expected.jsonl`, rows.join('\n') + '\n');
console.log(rows.length);
