// SPDX-License-Identifier: MIT
// What the nodes keep over time: of each its memory and its work, and of the cables between them what flows.

import { get } from './api.js';
import { Chart } from './charts.js';
import { h, show } from './dom.js';
import { changed, state } from './live.js';
import { bytes, mbps, number, percent, span } from './words.js';

const AGAIN_MS = 60000; // new points are written once a minute
const ranges = { 3600: 'last hour', 21600: 'last 6 hours', 86400: 'last day', 1209600: 'last two weeks', 31536000: 'last year' };

const parts = [
    ['Memory', bytes, { memory_used: 'used on the machine', stage_memory: 'of the stages' }],
    ['Work', percent, { busy: 'computed', wait: 'stood still' }],
    ['Trained tokens a second', v => number(v, 3), { trained_tokens: '' }],
];
const cableParts = [
    ['Flowing', v => v * 8e-6 >= 1 ? mbps(v * 8e-6) : `${number(v * 8e-3, 3)} kb/s`, { tx: 'sent', rx: 'received' }],
    ['Round trip', v => v < 0.01 ? `${number(v * 1000, 3)} ms` : span(v), { rtt: '' }],
];
const colors = ['--curve', '--curve-2'];

let made = 0; // sets of charts so far: the page keeps an element of the same key, and a new chart needs its own
let groups = null, shape = '', range = 3600, of = '', timer = 0, trouble = '', reading = false, again = false;

/* --- whose --- */

/** Names of those in reach, this node first, as far as they are wanted; `of` is '' for all. */
function nodes() {
    const up = state.nodes.filter(node => node.state === 'up').sort((a, b) => b.self - a.self).map(node => node.name);
    return up.filter(name => !of || name === of);
}

function path(node, more = '') {
    const self = state.nodes.find(one => one.self)?.name;
    return `v1/history?${node === self ? '' : `node=${encodeURIComponent(node)}`}${more}`;
}

/* --- charts --- */

/** Series of one node or cable: [[title, words, {end of a name: what it is called}], …] as charts; those that are not kept are left out. */
function chartsOf(key, node, prefix, wanted, names) {
    return wanted.map(([title, words, ends]) => {
        const kept = Object.entries(ends).filter(([end]) => names.includes(prefix + end));
        return kept.length && { node, series: kept.map(([end]) => prefix + end), chart: new Chart(title,
            kept.map(([, name], i) => ({ name: name || title, color: colors[i] })), { time: true, words, id: `${key} ${made}`, binary: words === bytes }) };
    }).filter(Boolean);
}

/** A cable has two ends, and both nodes keep it: it is drawn as the first of them sees it. */
function cablesOf(node, names, before) {
    const cables = [...new Set(names.filter(n => n.startsWith('cable/')).map(n => n.slice(0, n.lastIndexOf('/'))))].sort();
    return cables.filter(cable => !before.includes(cable.split('/')[1])).map(cable => {
        const [, peer, port] = cable.split('/'), key = `${node} ${cable}`;
        return { key, title: `Cable ${node} – ${peer}${port === '-' ? '' : `, port ${port} of ${node}`}`, charts: chartsOf(key, node, `${cable}/`, cableParts, names) };
    });
}

/** kept: [[node, names of its series], …] */
function makeGroups(kept) {
    made++;
    const order = kept.map(([node]) => node);
    groups = [...kept.map(([node, names]) => ({ key: node, title: `Node ${node}`, charts: chartsOf(node, node, 'node/', parts, names) })),
        ...kept.flatMap(([node, names], i) => cablesOf(node, names, order.slice(0, i)))];
}

/** Points of several series by their times: one row for each time that any of them has. */
function joined(answers) {
    const times = [...new Set(answers.flatMap(a => a.points.map(p => p[0])))].sort((a, b) => a - b);
    return [times, answers.map(a => {
        const by = new Map(a.points.map(p => [p[0], p[1]]));
        return times.map(t => by.get(t));
    })];
}

async function readChart({ node, series, chart }) {
    const [times, columns] = joined(await Promise.all(series.map(name => get(path(node, `&series=${encodeURIComponent(name)}&from=-${range}`)))));
    chart.update(times, columns);
    if (!chart.graph) // it was hidden, having had no points
        chart.update(times, columns);
}

async function readAll() {
    const wanted = nodes(), kept = await Promise.all(wanted.map(async node => [node, (await get(path(node))).series]));
    if (!groups || shape !== JSON.stringify(kept)) {
        free();
        makeGroups(kept);
        shape = JSON.stringify(kept);
        changed();
        await new Promise(requestAnimationFrame); // the places of the charts stand in the page
    }
    for (const group of groups || [])
        await Promise.all(group.charts.map(readChart));
}

/** What is asked for meanwhile comes right behind. */
async function read() {
    again = reading;
    if (reading || !state.nodes.length)
        return;
    reading = true;
    try {
        await readAll();
        trouble = '';
    } catch (e) {
        trouble = e.message;
    }
    reading = false;
    changed();
    if (again)
        read();
}

function free() {
    for (const { charts } of groups || [])
        for (const { chart } of charts)
            chart.free();
    groups = null;
}

export function setRange(seconds) {
    range = Number(seconds);
    read();
}

export function setNode(name) {
    of = name;
    read();
}

export function recolorHistory() {
    for (const { charts } of groups || [])
        for (const { chart } of charts)
            chart.recolor();
}

/* --- the page --- */

function choice(id, label, options, chosen) {
    return [h('label', { for: id }, label), h('select', { id, class: 'short' }, options.map(([value, name]) => h('option', { value, selected: String(value) === String(chosen) }, name)))];
}

export function drawHistory(section) {
    if (!timer && state.nodes.length) {
        timer = setInterval(read, AGAIN_MS);
        read();
    }
    const names = state.nodes.map(node => node.name);
    show(section, h('div', { class: 'panel' },
        h('div', { class: 'row spread' }, h('h1', null, 'History'),
            h('div', { class: 'row controls', 'data-kept': '', 'data-key': names.join() }, names.length > 1 && choice('history-node', 'Of', [['', 'all nodes'], ...names.map(name => [name, `node ${name}`])], of),
                choice('range', 'Shown', Object.entries(ranges), range))),
        h('p', { class: 'hint' }, 'Each node keeps its own. New points come once a minute.'),
        trouble && h('p', { class: 'notice bad' }, trouble)),
    !groups?.length ? h('div', { class: 'panel' }, h('p', { class: 'empty' }, trouble ? 'There is nothing to draw.' : !groups ? 'Reading what is kept…' : `Node ${of} is out of reach, and so is what it keeps.`)) :
        groups.map(g => h('div', { class: 'panel', 'data-key': g.key }, h('h2', null, g.title),
            g.charts.length ? h('div', { class: 'charts history' }, g.charts.map(c => c.chart.element)) : h('p', { class: 'empty' }, 'Nothing is kept yet: the first points come after a minute.'))));
}

export function leaveHistory(section) {
    if (!timer)
        return;
    clearInterval(timer);
    timer = 0;
    free();
    show(section);
}
