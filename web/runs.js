// SPDX-License-Identifier: MIT
// Runs beside each other: a table of the jobs that train, and the curves of those that are ticked in one chart. A job that trains
// several adapters is a run for each.

import { get } from './api.js';
import { Chart } from './charts.js';
import { extraCurves } from './curves.js';
import { h, show } from './dom.js';
import { isOver, modelName, stateMark } from './jobs.js';
import { changed, jobPath, state } from './live.js';
import { age, number, plural } from './words.js';

const AGAIN_MS = 10000, SHOWN = 50;
const colors = ['--curve', '--curve-2', '--curve-3', '--curve-4', '--live', '--bad', '--warn', '--text']; // each can be read as text, too
const CHOSEN_MOST = colors.length;
const NO_ADAPTER = '';

const kept = new Map(); // name of a job: {spec, steps, valid}
const chosen = new Set(); // names of jobs
let charts = null, made = 0, timer = 0, trouble = '', reading = false, again = false, begun = false;

function training() {
    return [...state.jobs?.values() || []].filter(job => job.type === 'train').sort((a, b) => b.created - a.created || b.id - a.id).slice(0, SHOWN);
}

/* --- what is read --- */

async function readSpec(job) {
    if (!kept.has(job.name))
        kept.set(job.name, { spec: (await get(jobPath(job.name))).spec, steps: [], valid: [], isWhole: false });
}

/** A run that is over says nothing new. */
async function readCurves(job) {
    const of = kept.get(job.name);
    if (of.isWhole)
        return;
    const isWhole = isOver(job);
    [of.steps, of.valid] = await Promise.all([get(jobPath(job.name, 'steps')).then(a => a.steps), get(jobPath(job.name, 'evaluations')).then(a => a.evaluations)]);
    of.isWhole = isWhole;
}

/** What is asked for meanwhile comes right behind. */
async function read() {
    again = reading;
    if (reading || !state.jobs)
        return;
    reading = true;
    try {
        const jobs = training();
        await Promise.all(jobs.map(readSpec));
        if (!begun) // the two latest are the ones to compare, most likely
            jobs.slice(0, 2).forEach(job => chosen.add(job.name));
        begun = true;
        await Promise.all(jobs.filter(job => chosen.has(job.name)).map(readCurves));
        trouble = '';
        makeCharts();
        changed();
        await new Promise(requestAnimationFrame); // the places of the charts stand in the page
        updateCharts();
    } catch (e) {
        trouble = e.message;
    }
    reading = false;
    changed();
    if (again)
        read();
}

/* --- charts --- */

const usual = [['Loss', 'steps', 'loss'], ['Validation', 'valid', 'valid_loss'], ['Learning rate', 'steps', 'lr'], ['Tokens per second', 'steps', 'tokens_per_second']];

/** [title, key of the rows, key of the value]: what each chart compares; beside the usual ones what any of the runs has. */
function kinds() {
    const chosenRows = key => [...chosen].flatMap(name => kept.get(name)?.[key] || []);
    const more = extraCurves({ steps: chosenRows('steps'), valid: chosenRows('valid') });
    return [...usual, ...more.flatMap(({ title, curves }) => curves.map(({ name, of, key }) => [`${title}, ${name}`, of, key]))];
}

/** [{name, rows of key}], one for each ticked job or adapter. */
function runs(key) {
    return training().filter(job => chosen.has(job.name) && kept.has(job.name)).flatMap(job => {
        const rows = kept.get(job.name)[key], names = [...new Set(rows.map(row => row.adapter || NO_ADAPTER))];
        return names.map(adapter => ({ name: `#${job.name}${adapter && ` ${adapter}`}`, rows: rows.filter(row => (row.adapter || NO_ADAPTER) === adapter) }));
    }).slice(0, CHOSEN_MOST);
}

/** A chart knows its curves from the beginning: others want another one. */
function makeCharts() {
    const all = kinds(), wanted = JSON.stringify(all.map(([title, key]) => [title, runs(key).map(run => run.name)]));
    if (charts?.wanted === wanted)
        return;
    const names = runs('steps').map(run => run.name); // a run has one colour in all charts
    free();
    made++;
    charts = { wanted, all: all.map(([title, key, value]) => ({ key, value, chart: new Chart(title,
        runs(key).map(run => ({ name: run.name, color: colors[Math.max(names.indexOf(run.name), 0)], points: key === 'valid' })), { large: value === 'loss', id: `runs ${made}` }) })) };
}

/** One row for each step that any of them has. */
function updateCharts() {
    for (const { key, value, chart } of charts?.all || []) {
        const of = runs(key), steps = [...new Set(of.flatMap(run => run.rows.map(row => row.step)))].sort((a, b) => a - b);
        const columns = of.map(run => {
            const by = new Map(run.rows.map(row => [row.step, row[value]]));
            return steps.map(step => by.get(step));
        });
        if (!of.length)
            chart.element.hidden = true;
        else
            chart.update(steps, columns);
        if (of.length && !chart.graph) // it was hidden, having had no points
            chart.update(steps, columns);
    }
}

function free() {
    for (const { chart } of charts?.all || [])
        chart.free();
    charts = null;
}

export function recolorRuns() {
    for (const { chart } of charts?.all || [])
        chart.recolor();
}

/* --- the page --- */

export function chooseRun(name, isChosen) {
    isChosen ? chosen.add(name) : chosen.delete(name);
    read();
}

function row(job) {
    const spec = kept.get(job.name)?.spec || {}, ran = job.started ? (job.ended || Date.now() / 1000) - job.started : NaN, id = `run-${job.name}`;
    const cell = (label, text) => h('td', { class: 'n', 'data-label': label }, text);
    return h('tr', { 'data-key': job.name },
        h('th', { scope: 'row' }, h('input', { id, type: 'checkbox', 'data-run': job.name, checked: chosen.has(job.name), disabled: !chosen.has(job.name) && chosen.size >= CHOSEN_MOST }),
            ' ', h('label', { for: id }, `#${job.name}`), ' ', h('a', { href: `#/job/${encodeURIComponent(job.name)}` }, modelName(job)), ' ', stateMark(job)),
        cell('Learning rate', spec.sweep ? spec.sweep.join(', ') : Number.isFinite(spec.lr) ? String(spec.lr) : 'usual'),
        cell('Batch', String(spec.batch_size ?? 'usual')),
        cell('Steps', job.steps ? `${job.step} / ${job.steps}` : '–'),
        cell('Loss', Number.isFinite(job.loss) && job.loss !== null ? number(job.loss) : '–'),
        cell('Time', Number.isFinite(ran) ? ran >= 1 ? age(ran) : 'under 1 s' : '–'));
}

function table(jobs) {
    return h('table', { class: 'cards' }, h('thead', null, h('tr', null, ['Run', 'Learning rate', 'Batch', 'Steps', 'Loss', 'Time'].map((name, i) => h('th', { scope: 'col', class: i ? 'n' : '' }, name)))),
        h('tbody', null, jobs.map(row)));
}

export function drawRuns(section) {
    if (!timer && state.jobs) {
        timer = setInterval(read, AGAIN_MS);
        read();
    }
    const jobs = training();
    show(section, h('div', { class: 'panel', 'data-key': 'curves' }, h('h1', null, 'Runs'),
        trouble && h('p', { class: 'notice bad' }, trouble),
        chosen.size > 0 ? h('div', { class: 'charts' }, charts?.all.map(c => c.chart.element)) : jobs.length > 0 && h('p', { class: 'empty' }, 'Tick the runs whose curves you want to see.')),
    h('div', { class: 'panel', 'data-key': 'table' }, jobs.length ? [table(jobs), h('p', { class: 'hint' }, `${plural(jobs.length, 'run')}, at most ${CHOSEN_MOST} in a chart. As files: `, h('code', null, 'ringctl export ID… --out DIR'))] :
        h('p', { class: 'empty' }, state.jobs ? 'No job has trained here yet.' : 'Reading the list…')));
}

export function leaveRuns(section) {
    if (!timer)
        return;
    clearInterval(timer);
    timer = 0;
    free();
    show(section);
}
