// SPDX-License-Identifier: MIT
// The models that the ring serves: what each works on now, on which nodes, and how fast.

import { h } from './dom.js';
import { figure, isHalted, stateMark, trouble } from './jobs.js';
import { servingJobs, state } from './live.js';
import { age, number, percent, plural } from './words.js';

/** How much of the memory for keys and values is taken; the same on each node, which holds them of its own layers. */
function memory(load) {
    const share = load.kv_blocks > 0 ? load.kv_used / load.kv_blocks : 0;
    return h('div', { class: 'kv' }, h('div', { class: 'row spread' }, h('span', { class: 'faint' }, 'KV in use'), h('span', { class: 'n' }, `${percent(share)} `, h('small', { class: 'faint' }, `${load.kv_used} of ${plural(load.kv_blocks, 'block')}`))),
        h('div', { class: 'memory', role: 'img', 'aria-label': `KV in use: ${percent(share)}` }, h('i', { class: 'want s0', css: { width: `${(100 * share).toFixed(2)}%` } })));
}

/** What a deployment says of itself. */
export function loadFigures(name) {
    const { load, max_context: context, tokens_per_second: speed } = state.serving.get(name) || {};
    if (!load)
        return h('p', { class: 'hint' }, context ? 'Nobody has asked it yet.' : 'It opens.');
    const prompts = load.prompt_tokens + load.cached_tokens; // those that were computed, and those that were there
    return [h('dl', { class: 'figures' },
        figure('Requests', String(load.requests)),
        figure('Sequences', String(load.running), load.waiting ? `and ${load.waiting} wait` : ''),
        figure('Tokens/s', load.running && !speed ? '–' : number(load.running ? speed : 0, 3)), // of the first second nothing is known
        figure('Prefix hits', prompts ? percent(load.cached_tokens / prompts) : '–', 'of prompts'),
        load.guessed_tokens > 0 && figure('Guessed right', percent(load.guessed_right / load.guessed_tokens), 'from the text'),
        load.drafted_tokens > 0 && figure('Drafted right', percent(load.drafted_right / load.drafted_tokens), 'by the draft model'),
        load.preempted > 0 && figure('Put off', String(load.preempted), 'for lack of memory')), memory(load)];
}

function nodesOf(plan) {
    return plan?.nodes?.length > 0 && h('ul', { class: 'keys', 'aria-label': 'Nodes' }, plan.nodes.map((name, rank) => {
        const node = state.nodes.find(n => n.name === name);
        return h('li', { 'data-key': name, title: node?.doing || '' }, h('i', { class: `key s${rank % 8}` }), name, node && node.state !== 'up' && h('span', { class: 'why bad' }, ' gone'));
    }));
}

function deployment(job) {
    const why = isHalted(job) || job.state === 'queued' ? trouble(job) : '';
    return h('li', { 'data-key': job.name }, h('div', { class: 'row spread' }, h('h3', null, h('a', { href: `#/job/${encodeURIComponent(job.name)}` }, job.serves), ' ', stateMark(job)),
        h('button', { type: 'button', 'data-do': 'chat', 'data-id': job.serves }, 'Chat')),
    h('p', { class: 'hint' }, `Job ${job.name}`, job.started && ` · for ${age(Date.now() / 1000 - job.started)}`, ` · ${plural(job.tokens || 0, 'token')} so far`),
    why ? h('p', { class: 'why warn' }, why) : job.state === 'running' && loadFigures(job.name), nodesOf(state.serving.get(job.name)?.plan));
}

/** Nothing where nothing is served. */
export function servingPanel() {
    const jobs = servingJobs();
    return jobs.length > 0 && h('div', { class: 'panel', 'data-key': 'serving' }, h('h2', null, 'Serving'), h('ul', { class: 'serving' }, jobs.map(deployment)));
}
