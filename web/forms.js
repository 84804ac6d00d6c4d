// SPDX-License-Identifier: MIT
// Submitting: the forms of a job that trains and of one that serves, and the box that generates. What was typed is kept in this browser for the next time.

import { change, get } from './api.js';
import { h, show } from './dom.js';
import { changed, detail, say, servingJobs, state } from './live.js';
import { stages } from './job.js';
import { figure, isOver } from './jobs.js';
import { travelOf } from './models.js';
import { bytes, number, percent, plural, span } from './words.js';

const remembered = key => JSON.parse(localStorage.getItem(key) || '{}');

/* --- training --- */

// name, label, kind, default, hint
const first = [
    ['model', 'Model', 'model', '', 'a Hugging Face directory on this node, or ORG/NAME, which then comes to each node'],
    ['data', 'Data', 'path', '', 'texts, prompts or conversations as JSON lines, or a directory with train.jsonl'],
    ['adapter_out', 'Result', 'path', '', 'where the adapter goes'],
    ['iters', 'Steps', 'number', 200, ''],
    ['batch_size', 'Rows per step', 'number', 4, ''],
    ['seq_len', 'Tokens per row', 'number', 512, ''],
    ['lr', 'Learning rate', 'number', '', 'empty: 0.0005 for an adapter, 0.0002 for a whole model'],
];
const more = [
    ['mask', 'Left out of training', ['none', 'prompt', 'assistant'], 'none', 'the prompt, or all but the assistant’s turns'],
    ['overlong', 'Rows that are too long', ['truncate', 'split', 'drop'], 'truncate', ''],
    ['prompt_field', 'Key of prompts', 'text', '', 'if not "prompt"'],
    ['completion_field', 'Key of completions', 'text', '', 'if not "completion"'],
    ['valid', 'Validation rows', 'path', '', ''],
    ['eval_every', 'Steps between validations', 'number', 0, ''],
    ['sample_prompt', 'Samples go on from', 'text', '', 'empty: none are taken'],
    ['sample_every', 'Steps between samples', 'number', 0, '0: one at the end'],
    ['fine_tune_type', 'What is trained', ['lora', 'full'], 'lora', ''],
    ['rank', 'Rank', 'number', 8, ''],
    ['alpha', 'Alpha', 'number', 16, ''],
    ['dropout', 'Dropout', 'number', 0, ''],
    ['target_modules', 'Layers with an adapter', 'text', 'q_proj,v_proj', ''],
    ['micro_batch_size', 'Rows at once', 'number', 1, ''],
    ['schedule', 'Schedule', ['1f1b'], '1f1b', 'auto: the one with the shortest step, and the layers shared out to suit it'], // the others are the node's to name
    ['lr_schedule', 'Rate falls', ['constant', 'linear', 'cosine'], 'constant', ''],
    ['warmup', 'Warm-up steps', 'number', 0, ''],
    ['max_grad_norm', 'Largest gradient norm', 'number', 0, '0: not clipped'],
    ['weight_decay', 'Weight decay', 'number', 0, ''],
    ['save_every', 'Steps between saves', 'number', 0, ''],
    ['seed', 'Seed', 'number', 0, ''],
];

const serving = [
    ['model', 'Model', 'model', '', 'a Hugging Face directory on this node, or ORG/NAME, which then comes to each node'],
    ['name', 'Name', 'text', '', 'as clients call it; empty: the last part of its path'],
];
const servingMore = [
    ['max_context', 'Tokens of prompt and answer', 'number', '', 'empty: what the model was made for, at most 8192'],
    ['max_num_seqs', 'Requests at once', 'number', 32, 'on each node'],
    ['max_kv_size', 'Tokens kept in memory', 'number', '', 'of all requests together; empty: four times the above'],
    ['prefill_step_size', 'Tokens of a piece', 'number', 128, 'of a prompt: answers under way wait for one piece at most'],
    ['kv', 'Keys and values', ['f32', 'bf16', 'int8'], 'f32', 'bf16: half the memory; int8: about a quarter; both slightly less exact'],
    ['weights', 'Weights', ['stored', 'int8', 'int4'], 'stored', ''],
    ['compute', 'Products', ['f32', 'bf16', 'int8'], 'f32', ''],
];

const typed = { // kinds that are texts of a form of their own: pattern, placeholder, what a browser says of another one
    path: ['/.*', '/…', 'an absolute path'],
    model: ['/.*|[^\\/@\\s]+/[^\\/\\s]+', '/… or ORG/NAME', 'an absolute path, or the name of a model: ORG/NAME'],
};

function field([name, label, kind, def, hint], kept, prefix) {
    const id = `${prefix}-${name}`, value = kept[name] ?? def, needed = ['model', 'data', 'adapter_out'].includes(name);
    const [pattern, example, title] = typed[kind] || [];
    const input = Array.isArray(kind) ? h('select', { id, name }, kind.map(k => h('option', { value: k, selected: k === value }, k))) :
        h('input', { id, name, type: kind === 'number' ? 'number' : 'text', value, step: kind === 'number' ? 'any' : null, min: kind === 'number' ? 0 : null,
            required: needed, pattern, placeholder: example, spellcheck: 'false', autocapitalize: 'off',
            'aria-describedby': hint ? `${id}-hint` : null, title });
    const list = name === 'model' && h('select', { id: `${id}-list`, 'aria-label': `${label}: those this node knows`, hidden: true, 'data-fills': id });
    return h('div', { class: `field ${pattern ? 'path' : ''}` }, h('label', { for: id }, label), list, input, hint && h('p', { class: 'hint', id: `${id}-hint` }, hint));
}

function specOf(form, table) {
    const spec = {};
    for (const [name, , kind, def] of table) {
        const text = form.elements[name]?.value.trim();
        const value = kind === 'number' ? Number(text) : text;
        if (text !== '' && text !== undefined && (value !== def || name === 'iters'))
            spec[name] = value;
    }
    return spec;
}

/** The models this node knows stand in a list; a path is typed only for another one. */
async function nameModels(input, list) {
    const [paths, store] = await Promise.all(['v1/model-paths', 'v1/store'].map(path => get(path).catch(() => null)));
    const models = [...paths?.models || [], ...(store?.models || []).filter(m => m.named && !m.adapter).map(m => ({ name: m.model.split('@')[0], path: m.model }))];
    if (!models.length)
        return;
    const place = path => path.startsWith('/') ? path.slice(0, path.lastIndexOf('/')) || '/' : `commit ${path.split('@')[1].slice(0, 10)}`;
    const served = path => servingJobs().find(job => job.model === path);
    list.replaceChildren(...models.map(m => h('option', { value: m.path }, `${m.name} (${place(m.path)})${served(m.path) ? `, served as ${served(m.path).serves}` : ''}`)), h('option', { value: '' }, 'another directory …'));
    const known = models.some(m => m.path === input.value);
    if (!input.value)
        input.value = models[0].path;
    list.value = known || !input.value ? input.value : models.some(m => m.path === input.value) ? input.value : '';
    list.hidden = false;
    input.classList.toggle('unseen', list.value !== '');
    list.addEventListener('change', () => {
        input.classList.toggle('unseen', list.value !== '');
        input.value = list.value;
        if (!list.value)
            input.focus();
    });
    input.addEventListener('input', () => {
        list.value = models.some(m => m.path === input.value) ? input.value : '';
    });
}

/** Every schedule this node knows; the select keeps what is chosen, also what was kept from the last time. */
async function nameSchedules(select, kept) {
    const answer = await get('v1/schedules').catch(() => null); // without, there is the usual one
    const chosen = select.value === select.options[0].value && kept ? kept : select.value;
    if (answer)
        select.replaceChildren(...answer.schedules.map(name => h('option', { value: name, selected: name === chosen }, name)));
}

function jobForm(type, hint, small, large) {
    const kept = remembered(`ringd-${type}`);
    return h('form', { id: `${type}-form`, 'data-kept': '' }, h('p', { class: 'hint' }, hint),
        h('div', { class: 'fields' }, small.map(f => field(f, kept, type))),
        h('details', null, h('summary', null, 'More'), h('div', { class: 'fields' }, large.map(f => field(f, kept, type)))),
        h('p', { class: 'notice bad', id: `${type}-error`, role: 'alert', hidden: true }),
        h('div', { id: `${type}-plan`, role: 'status' }),
        h('p', { class: 'row' }, h('button', { class: 'main' }, type === 'serve' ? 'Serve' : 'Start'), h('button', { value: 'plan' }, 'Show the plan')));
}

function watchForm(form, type) {
    nameModels(form.elements.model, document.getElementById(`${type}-model-list`));
    form.addEventListener('submit', event => {
        event.preventDefault();
        event.submitter?.value === 'plan' ? showPlan(form, type) : start(form, type);
    });
    form.addEventListener('input', () => show(document.getElementById(`${type}-plan`))); // it was for something else
}

/** type: 'train' or 'serve'. */
export function drawNew(section, type) {
    if (!section.firstChild) {
        const tab = (name, text) => h('a', { href: name === 'train' ? '#/new' : `#/new/${name}`, 'data-type': name }, text);
        show(section, h('div', { class: 'panel narrow' }, h('div', { class: 'row spread' }, h('h1', null, 'New job'), h('nav', { class: 'tabs', 'aria-label': 'Type' }, tab('train', 'Train'), tab('serve', 'Serve'))),
            jobForm('train', 'The layers are shared out over the ring by themselves; paths are those of this node.', first, more),
            jobForm('serve', 'The model stays loaded on the ring, and answers on every node: on the page Chat, and to clients of its API.', serving, servingMore)));
        const form = document.getElementById('train-form');
        nameSchedules(form.elements.schedule, remembered('ringd-train').schedule);
        watchForm(form, 'train');
        watchForm(document.getElementById('serve-form'), 'serve');
    }
    for (const form of section.querySelectorAll('form'))
        form.hidden = form.id !== `${type}-form`;
    for (const link of section.querySelectorAll('.tabs a'))
        link.dataset.type === type ? link.setAttribute('aria-current', 'page') : link.removeAttribute('aria-current');
}

/** What the form asks for; kept for the next time, but for the prompt of a generation. */
function specToSend(form, type) {
    const spec = specOf(form, { train: [...first, ...more], serve: [...serving, ...servingMore], generate: generating }[type]);
    localStorage.setItem(`ringd-${type}`, JSON.stringify(spec));
    document.getElementById(`${type}-error`).hidden = true;
    return type !== 'generate' ? spec : { ...spec, prompt: form.elements.prompt.value };
}

function refused(type, why) {
    const error = document.getElementById(`${type}-error`);
    error.textContent = why;
    error.hidden = false;
}

async function start(form, type) {
    try {
        const made = await change('POST', 'v1/jobs', { type, spec: specToSend(form, type) });
        if (made)
            location.hash = `#/job/${made.id}`; // of this node
    } catch (e) {
        refused(type, e.message);
    }
}

const STILL_MS = 60000, PLAN_MS = 1000000; // a large data set is read; the node gives up sooner, and says so

/** Of a model that is on its way to the nodes this node says what it waits for: it is asked as long as that changes, and a minute longer. */
async function planned(place, request) {
    for (let last = '', since = Date.now();;) {
        const made = await change('POST', 'v1/plan', request, PLAN_MS), why = made?.waits_for;
        if (!why)
            return made;
        if (why !== last)
            since = Date.now();
        if (Date.now() - since > STILL_MS)
            throw new Error(`No plan can be made yet: ${why}`);
        last = why;
        show(place, h('p', { class: 'empty' }, `${why}…`));
    }
}

async function showPlan(form, type) {
    const place = document.getElementById(`${type}-plan`), buttons = form.querySelectorAll('button');
    show(place, h('p', { class: 'empty' }, type === 'train' ? 'The node reads model and data…' : 'The node reads the model…'));
    buttons.forEach(b => b.disabled = true);
    try {
        const made = await planned(place, { type, spec: specToSend(form, type) });
        show(place, made && planOf(made));
    } catch (e) {
        show(place);
        refused(type, e.message);
    }
    buttons.forEach(b => b.disabled = false);
}

/** The best plans that a search for replicas and nodes has found, and why. */
const choices = forecast => (forecast?.choices || []).map((c, i) => h('p', { class: 'hint' },
    `${c.parallel} on ${c.nodes.join(', ')}, ${c.schedule}: ${span(c.seconds)} a step, at most ${bytes(Math.max(...c.bytes))} on a node. ${i ? 'Slower' : 'Chosen'}: ${c.why}.`));

/** What a step of training would take, or a token, if the nodes timed it. */
function predicted({ forecast, speed }) {
    if (forecast)
        return h('dl', { class: 'figures' }, figure(forecast.steps > 1 ? `${forecast.steps} steps` : 'A step', span(forecast.seconds), 'predicted'), figure('Bubble', percent(forecast.bubble), 'of its time a node waits'),
            forecast.second && figure('Next best', span(forecast.second.seconds), forecast.second.schedule));
    if (!speed)
        return null;
    return h('dl', { class: 'figures' }, speed.prompt_seconds !== undefined && figure('The prompt', span(speed.prompt_seconds), plural(speed.prompt_tokens, 'token')),
        speed.token_seconds !== undefined && figure('A token', span(speed.token_seconds)),
        figure('Tokens/s', number(speed.tokens_per_second, 3), 'predicted'));
}

function planOf({ steps, plan, lines }) {
    return h('div', { class: 'plan' }, h('h2', null, `The plan: ${steps ? `${plural(steps, 'step')} on ` : ''}${plural(plan.nodes.length, 'node')}`),
        h('p', { class: 'hint' }, `${plan.schedule ? `Schedule ${plan.schedule}, ` : ''}${plural(plan.microbatches, 'microbatch', 'microbatches')} of at most ${plan.tokens} tokens. Nothing has been started.`),
        predicted(plan), choices(plan.forecast), travelOf(plan), stages(plan), lines.map(text => h('p', { class: 'hint' }, text)));
}

/* --- generating --- */

const generating = [
    ['model', 'Model', 'model', '', ''],
    ['adapter', 'Adapter', 'path', '', 'what a training job left, if it is to be used'],
    ['max_tokens', 'Tokens at most', 'number', 64, ''],
    ['temperature', 'Temperature', 'number', 0, '0: the likeliest each time'],
    ['top_p', 'Top p', 'number', 1, ''],
    ['seed', 'Seed', 'number', 0, ''],
];
const talk = []; // {id, prompt}

function answer({ id, prompt }) {
    const d = detail(id), job = d.job, over = job && isOver(job), text = job?.result?.text ?? d.text;
    return h('li', { 'data-key': `t${id}` }, h('p', { class: 'prose' }, h('span', { class: 'asked' }, prompt), h('span', { class: over ? '' : 'coming' }, text)),
        h('p', { class: 'hint' }, h('a', { href: `#/job/${id}` }, `job ${id}`), ' ', over ? '' : job?.state === 'queued' ? job.error || 'waits for its turn' : job?.state === 'interrupted' ? job.error || 'goes on in a moment…' : job?.state === 'planned' ? 'opens the model on the ring…' : 'writes…',
            job?.error && over ? job.error : '', !over && h('button', { type: 'button', class: 'quiet', 'data-do': 'cancel', 'data-id': id }, 'Stop')));
}

export function drawGenerate(section) {
    if (!section.firstChild) {
        const kept = remembered('ringd-generate');
        show(section, h('div', { class: 'panel narrow' }, h('h1', null, 'Generate'), h('ol', { id: 'talk', class: 'talk', 'data-kept': '', 'aria-live': 'polite', 'aria-label': 'What was written' }),
            h('form', { id: 'generate-form', 'data-kept': '' },
                h('label', { for: 'prompt' }, 'Prompt'), h('textarea', { id: 'prompt', name: 'prompt', rows: 3, required: true, placeholder: 'Once upon a time' }),
                h('p', { class: 'row' }, h('button', { class: 'main' }, 'Generate'), h('button', { value: 'plan' }, 'Show the plan'), h('span', { class: 'hint' }, 'Ctrl+Enter')),
                h('div', { id: 'generate-plan', role: 'status' }),
                h('details', { open: !kept.model }, h('summary', null, 'Model and choices'), h('div', { class: 'fields' }, generating.map(f => field(f, kept, 'generate')))),
                h('p', { class: 'notice bad', id: 'generate-error', role: 'alert', hidden: true }))));
        const form = section.querySelector('form');
        nameModels(form.elements.model, document.getElementById('generate-model-list'));
        form.addEventListener('submit', event => {
            event.preventDefault();
            event.submitter?.value === 'plan' ? showPlan(form, 'generate') : submit(form);
        });
        form.addEventListener('input', () => show(document.getElementById('generate-plan')));
        form.addEventListener('keydown', event => {
            if (event.key === 'Enter' && event.ctrlKey)
                form.requestSubmit();
        });
    }
    const list = document.getElementById('talk');
    show(list, talk.length ? talk.map(answer) : h('li', { class: 'empty' }, state.status?.ring?.nodes?.length > 1 ? `What the ring of ${state.status.ring.nodes.length} writes appears here, token by token.` : 'What the model writes appears here, token by token.'));
}

async function submit(form) {
    const spec = specToSend(form, 'generate'), prompt = spec.prompt;
    try {
        const made = await change('POST', 'v1/jobs', { type: 'generate', spec });
        if (!made)
            return;
        detail(String(made.id));
        talk.push({ id: String(made.id), prompt });
        show(document.getElementById('generate-plan')); // it says that nothing was started
        say('Submitted.');
    } catch (e) {
        refused('generate', e.message);
    }
    changed();
}
