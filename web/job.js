// SPDX-License-Identifier: MIT
// The page of one job.

import { Chart, smoothed } from './charts.js';
import { columnsOf, extraCurves } from './curves.js';
import { h, show } from './dom.js';
import { gantt } from './gantt.js';
import { eta, figure, isOver, modelName, pace, pauseButton, progress, stateMark, tone, trouble } from './jobs.js';
import { detail, state, watch } from './live.js';
import { layersText } from './ring.js';
import { loadFigures } from './serving.js';
import { age, bytes, clock, moment, number, percent, plural, span } from './words.js';

const extraColors = ['--curve', '--curve-2', '--curve-3', '--curve-4', '--live', '--warn', '--bad', '--text'];
let shown = '', charts = null, extras = [], extraNames = '', drawnSteps = -1, drawnAt = 0;
const view = { smooth: 0.6, log: false };

/* --- charts --- */

let busy = false;
function onZoom(from, range) {
    if (busy)
        return;
    busy = true;
    for (const c of allCharts())
        if (c !== from)
            c.zoom(range);
    busy = false;
}

function allCharts() {
    return [...Object.values(charts || {}), ...extras.map(extra => extra.chart)];
}

function makeCharts() {
    const one = (title, color, more) => new Chart(title, [{ name: title, color }], { onZoom, ...more });
    charts = {
        loss: new Chart('Loss', [{ name: 'each step', color: '--curve-pale', words: '--faint', width: 1 }, { name: 'smoothed', color: '--curve', width: 2 },
            { name: 'validation', color: '--curve-2', width: 1.6, points: true }], { onZoom, large: true }),
        lr: one('Learning rate', '--curve-3'), norm: one('Gradient norm', '--curve-4'), speed: one('Tokens per second', '--curve'),
    };
}

/** What else the shown adapter says has charts once it says it; what is evaluated of all is under no name. */
function rowsOf(d) {
    return { steps: d.steps, valid: d.valid.filter(v => v.adapter === d.adapter) };
}

function makeExtras(d) {
    const wanted = extraCurves(rowsOf(d)), names = JSON.stringify(wanted);
    if (names === extraNames)
        return;
    for (const extra of extras)
        extra.chart.free();
    extraNames = names;
    extras = wanted.map(({ title, curves }) => ({ curves, chart: new Chart(title,
        curves.map(({ name, of }, i) => ({ name, color: extraColors[i % extraColors.length], points: of === 'valid' })), { onZoom, id: names }) }));
    drawnSteps = -1;
}

function freeCharts() {
    for (const c of allCharts())
        c.free();
    charts = null;
    extras = [];
    extraNames = '';
    drawnSteps = -1;
}

function updateCharts(d, force) {
    const total = d.steps.length + d.valid.length;
    if (!charts || (!force && (total === drawnSteps || performance.now() - drawnAt < 500)))
        return;
    drawnSteps = total;
    drawnAt = performance.now();
    const column = key => d.steps.map(s => s[key]), steps = column('step'), loss = column('loss');
    const valid = new Map(d.valid.filter(v => v.adapter === d.adapter).map(v => [v.step, v.valid_loss]));
    // A measurement before the first step, or at one that is not kept, has a row of its own.
    const lone = [...valid.keys()].filter(step => !steps.includes(step));
    const rows = [...steps.map((step, i) => ({ step, i })), ...lone.map(step => ({ step, i: -1 }))].sort((a, b) => a.step - b.step);
    const smooth = smoothed(loss, view.smooth);
    charts.loss.update(rows.map(r => r.step), [rows.map(r => loss[r.i]), rows.map(r => smooth[r.i]), rows.map(r => valid.get(r.step))], view.log);
    charts.lr.update(steps, [column('lr')]);
    charts.norm.update(steps, [column('grad_norm')]);
    charts.speed.update(steps, [column('tokens_per_second')]);
    const own = rowsOf(d);
    for (const { curves, chart } of extras)
        chart.update(...columnsOf(curves, curve => own[curve.of]));
}

export function setView(change) {
    Object.assign(view, change);
    if (shown)
        updateCharts(detail(shown), true);
}

export function resetZoom() {
    for (const c of allCharts())
        c.zoom(null);
}

export function recolor() {
    for (const c of allCharts())
        c.recolor();
}

/* --- parts --- */

function ranFor(job) {
    return job.started ? (job.ended || Date.now() / 1000) - job.started : NaN;
}

function taken(job) {
    const ran = ranFor(job);
    return figure('Took', ran >= 1 ? age(ran) : 'under 1 s', `ended ${moment(job.ended)}`);
}

/** Of a job that goes from step to step. */
function counted(job, d) {
    const last = d.steps[d.steps.length - 1], right = last?.acc ?? last?.exact_match, left = eta(job, d.steps), each = pace(d.steps), valid = d.valid.findLast(v => v.adapter === d.adapter), ran = ranFor(job);
    return [progress(job), h('dl', { class: 'figures' },
        figure('Step', String(job.step || 0), job.steps ? `of ${job.steps}` : ''),
        isOver(job) ? taken(job) : figure('Left', left === null ? '–' : span(left), Number.isFinite(ran) ? `${age(ran)} so far` : ''),
        d.adapters.size ? [...d.adapters].map(([name, step]) => figure(`Loss, ${name}`, number(step.loss)))
            : Number.isFinite(job.loss) && job.loss !== null && figure('Loss', number(job.loss)),
        Number.isFinite(right) && figure('Right', percent(right)),
        valid && figure('Validation', number(valid.valid_loss), `step ${valid.step}`),
        last?.tokens_per_second && figure('Tokens/s', number(last.tokens_per_second, 3)),
        each !== null && figure('Step time', span(each)),
        Number.isFinite(last?.bubble) && figure('Bubble', percent(last.bubble)))];
}

function controls(job) {
    return h('div', { class: 'row controls' }, pauseButton(job),
        job.serves && h('button', { type: 'button', class: 'main', 'data-do': 'chat', 'data-id': job.serves }, 'Chat'),
        h('button', { type: 'button', class: 'danger', 'data-do': 'cancel', 'data-id': job.name }, job.serves ? 'Stop serving' : 'Cancel this job'));
}

function head(job, d) {
    return h('div', { class: 'panel head' },
        h('div', { class: 'row spread' }, h('h1', null, `Job ${job.name} `, h('span', { class: 'faint' }, [job.type, modelName(job)].filter(Boolean).join(' · ')), ' ', stateMark(job)),
            !isOver(job) && controls(job)),
        trouble(job) && h('p', { class: `notice ${tone(job)}`, role: job.state === 'failed' ? 'alert' : null }, trouble(job)),
        job.serves && !isOver(job) ? h('div', { class: 'served' }, loadFigures(job.name)) : job.serves ? h('dl', { class: 'figures' }, figure('Tokens', String(job.tokens)), taken(job)) : counted(job, d));
}

function curves(d) {
    return h('div', { class: 'panel', 'data-key': 'curves' },
        h('div', { class: 'row spread' }, h('h2', null, d.adapter ? `Curves of ${d.adapter}` : 'Curves'), h('div', { class: 'row controls', 'data-kept': '' },
            h('label', null, 'Smoothing ', h('input', { id: 'smooth', type: 'range', min: 0, max: 0.99, step: 0.01, value: view.smooth })),
            h('label', null, h('input', { id: 'log', type: 'checkbox', checked: view.log }), ' Log scale'),
            h('button', { type: 'button', 'data-do': 'unzoom', class: 'quiet' }, 'Whole run'))),
        d.steps.length ? null : h('p', { class: 'empty' }, 'The first step has not ended yet.'),
        h('div', { class: `charts ${d.steps.length ? '' : 'none'}` }, allCharts().map(c => c.element)),
        h('p', { class: 'hint' }, 'Drag across a chart to zoom into those steps; double click shows the whole run again.'));
}

function lastStep(d, width) {
    return h('div', { class: 'panel', 'data-key': 'gantt' }, h('h2', null, 'The last step'),
        d.timeline ? gantt(d.timeline, width) : h('p', { class: 'empty' }, d.steps.length ? 'No node has sent the timeline of a step yet.' : 'After the first step it is drawn here: planned over actual.'));
}

/** Of a plan with several replicas of the pipeline, which one a rank is of. */
function replicaText(plan, rank) {
    const replicas = plan.shares?.length;
    if (!replicas)
        return '';
    if (!plan.other_places?.length)
        return `, replica ${Math.floor(rank * replicas / plan.nodes.length)}`;
    const stages = plan.places.length;
    for (let d = 0, first = 0; d < replicas; d++) {
        const places = d ? plan.other_places.slice((d - 1) * stages, d * stages) : plan.places;
        first += Math.max(...places) + 1;
        if (rank < first)
            return `, replica ${d}`;
    }
    return '';
}

/** Who holds what, beside what its machine has; of a job also what its stage's process took. */
export function stages(plan, measured, over) {
    return h('ul', { class: 'stages' }, plan.nodes.map((name, rank) => {
        const node = state.nodes.find(n => n.name === name), total = node?.memory_total || Math.max(...plan.bytes), used = node ? total - node.memory_available : NaN;
        const wanted = plan.bytes[rank] / total, stage = measured?.[rank];
        const told = stage ? `${bytes(over ? stage.peak : stage.rss)} ${over ? 'at most' : 'measured'}, ` : '';
        return h('li', { 'data-key': name }, h('div', { class: 'row spread' }, h('span', null, h('i', { class: `key s${rank % 8}` }), h('b', null, name), ' ',
            h('span', { class: 'faint' }, `rank ${rank}${replicaText(plan, rank)}${layersText(plan.split?.[rank]) && `, ${layersText(plan.split[rank])}`}`)),
        h('span', { class: 'n' }, `${told}${bytes(plan.bytes[rank])} planned`)),
        h('div', { class: 'memory', role: 'img', 'aria-label': `${name}: ${told}${bytes(plan.bytes[rank])} planned, the machine has ${bytes(total)}${Number.isFinite(used) ? `, ${bytes(used)} in use` : ''}` },
            Number.isFinite(used) && h('i', { class: 'used', css: { width: `${(100 * used / total).toFixed(2)}%` } }),
            h('i', { class: `want s${rank % 8}`, css: { width: `${Math.max(100 * wanted, 0.6).toFixed(2)}%` } }),
            stage && h('i', { class: 'has', css: { left: `${Math.min(100 * (over ? stage.peak : stage.rss) / total, 99.6).toFixed(2)}%` } })),
        h('div', { class: 'hint' }, node ? `${bytes(used)} of ${bytes(total)} in use on the machine` : 'this node is not known now'));
    }));
}

function memory(job) {
    return job.plan?.bytes?.length > 0 && h('div', { class: 'panel', 'data-key': 'memory' }, h('h2', null, 'Stages'), stages(job.plan, job.memory, isOver(job)));
}

function samples(job, d) {
    if (job.spec?.sample_prompt === undefined)
        return null;
    return h('div', { class: 'panel', 'data-key': 'samples' }, h('h2', { id: 'samples-title' }, 'Samples'),
        d.samples.length ? h('ol', { class: 'samples', tabindex: 0, 'aria-labelledby': 'samples-title' }, d.samples.slice(-50).reverse().map(s =>
            h('li', { 'data-key': `s${s.step}${s.adapter ?? ''}` }, h('span', { class: 'n' }, `step ${s.step}${s.adapter ? `, ${s.adapter}` : ''}`), h('p', { class: 'prose' }, h('span', { class: 'faint' }, s.prompt), s.sample)))) :
            h('p', { class: 'empty' }, isOver(job) ? 'None was taken.' : job.spec.sample_every ? `The model writes here every ${job.spec.sample_every === 1 ? 'step' : plural(job.spec.sample_every, 'step')}, and at the end.` : 'The model writes here when the last step is done.'));
}

function writing(job, d) {
    const text = job.result?.text ?? d.text;
    if (job.type !== 'generate' || (!text && !job.spec?.prompt))
        return null;
    return h('div', { class: 'panel', 'data-key': 'text' }, h('h2', null, 'Text'), h('p', { class: 'prose' }, h('span', { class: 'faint' }, job.spec?.prompt || ''), text));
}

function log(d) {
    return h('div', { class: 'panel', 'data-key': 'log' }, h('h2', { id: 'log-title' }, 'Log'),
        d.lines.length ? h('ol', { class: 'log', id: 'lines', tabindex: 0, 'aria-labelledby': 'log-title' }, d.lines.slice(-200).map(l =>
            h('li', null, h('time', null, clock(l.time)), h('span', null, l.text)))) : h('p', { class: 'empty' }, 'Nothing was said yet.'));
}

const unsaid = new Set(['prompt', 'sample_prompt', 'text']); // they have a place of their own

function table(fields, say) {
    const rows = Object.entries(fields || {}).filter(([k, v]) => !unsaid.has(k) && (typeof v !== 'object' || v === null) && String(v).length < 300);
    return rows.length > 0 && h('dl', { class: 'spec' }, rows.flatMap(([k, v]) => [h('dt', null, k.replaceAll('_', ' ')), h('dd', null, say(v))]));
}

function result(job) {
    const rows = table(job.result, v => typeof v === 'number' && !Number.isInteger(v) ? number(v, 6) : String(v));
    return rows && h('div', { class: 'panel', 'data-key': 'result' }, h('h2', null, 'Result'), rows);
}

function spec(job) {
    return h('div', { class: 'panel', 'data-key': 'spec' }, h('h2', null, 'What was asked for'), table(job.spec, String),
        job.relayed?.length > 0 && h('p', { class: 'hint' }, job.relayed.map(r => `${r.from} → ${r.to} goes through ${r.through}. `)));
}

/* --- the page --- */

export function drawJob(section, id) {
    const d = detail(id), job = d.job;
    watch(id);
    if (shown !== id) {
        freeCharts();
        show(section);
        shown = id;
    }
    if (!job) {
        show(section, h('div', { class: 'panel' }, h('h1', null, `Job ${id}`), h('p', { class: 'empty' }, d.error || 'Reading what is known of it…'),
            d.error && h('p', null, h('a', { href: '#/', class: 'button' }, 'All jobs'))));
        return;
    }
    const trains = job.type === 'train' || d.steps.filter(step => Number.isFinite(step.loss)).length > 1; // other steps have no curves
    const isPlain = job.serves || job.type === 'eval'; // without curves there is room
    if (trains && !charts)
        makeCharts();
    if (trains)
        makeExtras(d);
    const lines = section.querySelector('#lines'), follows = !lines || lines.scrollHeight - lines.scrollTop - lines.clientHeight < 30;
    const width = Math.max(300, section.clientWidth - 36), ganttWidth = section.clientWidth > 1060 ? Math.floor(width * 0.66) - 20 : width;
    show(section, head(job, d), writing(job, d),
        h('div', { class: 'columns' },
            h('div', { class: 'wide' }, trains && curves(d), trains && job.type === 'train' && lastStep(d, ganttWidth), samples(job, d), isPlain && [memory(job), log(d)]),
            h('div', { class: 'side' }, !isPlain && memory(job), result(job), !isPlain && log(d), spec(job))));
    if (trains)
        updateCharts(d, false);
    const tail = section.querySelector('#lines');
    if (tail && follows)
        tail.scrollTop = tail.scrollHeight;
}

export function leaveJob(section) {
    if (!shown)
        return;
    freeCharts();
    show(section);
    shown = '';
    watch('');
}
