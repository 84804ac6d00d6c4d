// SPDX-License-Identifier: MIT
// What this node keeps over time: its memory and its work, and each of its cables.

import { get } from './api.js';
import { Chart } from './charts.js';
import { h, show } from './dom.js';
import { changed, state } from './live.js';
import { bytes, mbps, number, percent, span } from './words.js';

const AGAIN_MS = 60000; // new points are written once a minute
const ranges = { 3600: 'last hour', 21600: 'last 6 hours', 86400: 'last day', 1209600: 'last two weeks', 31536000: 'last year' };

const parts = [
    ['Memory', bytes, { memory_used: 'used on the machine', stage_memory: 'of the stage' }],
    ['Work', percent, { busy: 'computed', wait: 'stood still' }],
    ['Trained tokens a second', v => number(v, 3), { trained_tokens: '' }],
];
const cableParts = [
    ['Flowing', v => v * 8e-6 >= 1 ? mbps(v * 8e-6) : `${number(v * 8e-3, 3)} kb/s`, { tx: 'sent', rx: 'received' }],
    ['Round trip', v => v < 0.01 ? `${number(v * 1000, 3)} ms` : span(v), { rtt: '' }],
];
const colors = ['--curve', '--curve-2'];

let made = 0; // sets of charts so far: the page keeps an element of the same key, and a new chart needs its own
let groups = null, range = 3600, timer = 0, trouble = '', reading = false;

/** Series of one node or cable: [[title, words, {end of a name: what it is called}], …] as charts; those that are not kept are left out. */
function chartsOf(key, prefix, wanted, names) {
    return wanted.map(([title, words, ends]) => {
        const kept = Object.entries(ends).filter(([end]) => names.includes(prefix + end));
        return kept.length && { series: kept.map(([end]) => prefix + end), chart: new Chart(title,
            kept.map(([, name], i) => ({ name: name || title, color: colors[i] })), { time: true, words, id: `${key} ${made}`, binary: words === bytes }) };
    }).filter(Boolean);
}

function makeGroups(names) {
    made++;
    const cables = [...new Set(names.filter(n => n.startsWith('cable/')).map(n => n.slice(0, n.lastIndexOf('/'))))].sort();
    groups = [{ key: 'node', title: `Node ${state.status?.node.name || ''}`, names, charts: chartsOf('node', 'node/', parts, names) },
        ...cables.map(key => {
            const [, peer, port] = key.split('/');
            return { key, title: `Cable to ${peer}${port === '-' ? '' : `, port ${port}`}`, names, charts: chartsOf(key, `${key}/`, cableParts, names) };
        })];
}

/** Points of several series by their times: one row for each time that any of them has. */
function joined(answers) {
    const times = [...new Set(answers.flatMap(a => a.points.map(p => p[0])))].sort((a, b) => a - b);
    return [times, answers.map(a => {
        const by = new Map(a.points.map(p => [p[0], p[1]]));
        return times.map(t => by.get(t));
    })];
}

async function read() {
    if (reading)
        return;
    reading = true;
    try {
        const { series } = await get('v1/history');
        if (!groups || groups[0].names.join() !== series.join()) {
            free();
            makeGroups(series);
            changed();
            await new Promise(requestAnimationFrame); // the places of the charts stand in the page
        }
        for (const { charts } of groups || [])
            for (const { chart, series: wanted } of charts) {
                const [times, columns] = joined(await Promise.all(wanted.map(name => get(`v1/history?series=${encodeURIComponent(name)}&from=-${range}`))));
                chart.update(times, columns);
                if (!chart.graph) // it was hidden, having had no points
                    chart.update(times, columns);
            }
        trouble = '';
    } catch (e) {
        trouble = e.message;
    }
    reading = false;
    changed();
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

export function recolorHistory() {
    for (const { charts } of groups || [])
        for (const { chart } of charts)
            chart.recolor();
}

export function drawHistory(section) {
    if (!timer) {
        timer = setInterval(read, AGAIN_MS);
        read();
    }
    show(section, h('div', { class: 'panel' },
        h('div', { class: 'row spread' }, h('h1', null, `History of ${state.status?.node.name || 'this node'}`),
            h('div', { class: 'row controls', 'data-kept': '' }, h('label', { for: 'range' }, 'Shown'), h('select', { id: 'range', class: 'short' },
                Object.entries(ranges).map(([seconds, name]) => h('option', { value: seconds, selected: Number(seconds) === range }, name))))),
        h('p', { class: 'hint' }, 'Each node keeps its own; the page of another node shows the other ends of its cables. New points come once a minute.'),
        trouble && h('p', { class: 'notice bad' }, trouble)),
    !groups ? h('div', { class: 'panel' }, h('p', { class: 'empty' }, trouble ? 'There is nothing to draw.' : 'Reading what is kept…')) :
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
