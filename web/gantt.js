// SPDX-License-Identifier: MIT
// The last step of a job: for each rank what was planned, below it what came, on one axis of time; where a rank stood still, for what.

import { h, svg } from './dom.js';
import { number, percent, span } from './words.js';

const names = { F: 'forward', B: 'backward', I: 'backward of the input', W: 'backward of the weights', R: 'forward again', norm: 'norm', update: 'update', loss: 'loss',
    rows: 'rows for a replica', losses: 'losses of a replica', scale: 'clip factor for a replica', give: 'gradients to another replica', take: 'gradients from another replica' };
const LEFT = 64, ROW = 20, PLAN = 11, GAP = 16, TOP = 8;

/** The stages a rank has, from the lowest on; −1, of a task without a plan, is none. */
function stagesOf(r) {
    return [...new Set(r.tasks.map(([, , , , , , , stage]) => stage))].filter(stage => stage >= 0).sort((a, b) => a - b);
}

/** Four tones, the later stage of a rank the darker. */
function toneOf(stages, stage) {
    return stages.length > 1 && stage >= 0 ? `tone-${Math.round(3 * stages.indexOf(stage) / (stages.length - 1))}` : '';
}

function titleOf(kind, micro, stage) {
    return `${names[kind] || kind}${micro >= 0 ? ` of microbatch ${micro}` : ''}${stage >= 0 ? `, stage ${stage}` : ''}`;
}

/** As schedules write it, the stage in front where its rank has several. */
function block(kind, micro, stage, x, width, y, height, title, extra) {
    const letters = width > 16 && height > 14 ? `${kind.length > 1 || micro < 0 ? kind : `${stage}${kind}${micro}`}` : '';
    return [svg('rect', { x, y, width: Math.max(width - 0.5, 0.7), height, rx: width > 6 ? 2 : 0, class: `task k-${kind} ${extra}` }, svg('title', null, title)),
        letters.length * 6.5 < width && letters ? svg('text', { x: x + width / 2, y: y + height - 6, 'text-anchor': 'middle', class: 'letters' }, letters) : null];
}

function rankRows(r, y, scale) {
    const stages = stagesOf(r), before = stage => stages.length > 1 && stage >= 0 ? stage : '';
    const planned = r.planned.map(([kind, micro, start, end], i) =>
        block(kind, micro, '', LEFT + start * scale, (end - start) * scale, y, PLAN,
            `planned: ${titleOf(kind, micro, r.tasks[i]?.[7])}, ${span(end - start)} at ${span(start)}`, `plan ${toneOf(stages, r.tasks[i]?.[7])}`));
    const actual = r.tasks.map(([kind, micro, start, end, waited, message, from, stage]) => {
        const gap = waited * scale, why = message ? `waited ${span(waited)} for ${message}${from >= 0 ? ` (rank ${from})` : ''}` : `stood still for ${span(waited)}`;
        return [gap > 1 && svg('rect', { x: LEFT + (start - waited) * scale, y: y + PLAN + 2, width: gap, height: ROW, class: 'wait' }, svg('title', null, why)),
            gap > 1 && message && gap > message.length * 6 + 8 && svg('text', { x: LEFT + (start - waited / 2) * scale, y: y + PLAN + 2 + ROW - 6,
                'text-anchor': 'middle', class: 'letters wait-word' }, message),
            block(kind, micro, before(stage), LEFT + start * scale, (end - start) * scale, y + PLAN + 2, ROW,
                `${titleOf(kind, micro, stage)}, ${span(end - start)} at ${span(start)}${waited > 0.0005 ? `; ${why} before` : ''}`, toneOf(stages, stage))];
    });
    return svg('g', null,
        svg('text', { x: 0, y: y + PLAN + 2, class: 'strong small' }, r.node.length > 9 ? `${r.node.slice(0, 8)}…` : r.node),
        svg('text', { x: 0, y: y + PLAN + 17, class: 'small faint' }, `rank ${r.rank}`), planned, actual);
}

/** The longest waits, by what for. */
function waits(t) {
    const by = new Map();
    for (const r of t.ranks)
        for (const [, , , , waited, message, from] of r.tasks)
            if (waited > 0) {
                const key = `${r.node}\n${message}\n${from}`;
                by.set(key, { node: r.node, message, from: t.ranks[from]?.node, seconds: (by.get(key)?.seconds || 0) + waited });
            }
    return [...by.values()].sort((a, b) => b.seconds - a.seconds).slice(0, 4);
}

function axis(seconds, scale, height) {
    const about = seconds / 6, power = 10 ** Math.floor(Math.log10(about)), step = [1, 2, 5, 10].find(k => k * power >= about) * power, lines = [];
    for (let t = 0; t <= seconds * 1.0001; t += step)
        lines.push(svg('path', { d: `M${LEFT + t * scale} ${TOP - 4}V${height - 18}`, class: 'grid' }),
            svg('text', { x: LEFT + t * scale, y: height - 4, 'text-anchor': 'middle', class: 'small faint' }, t ? span(t) : '0'));
    return lines;
}

export function gantt(t, width) {
    const seconds = Math.max(t.seconds, t.planned_seconds, 1e-6), scale = (width - LEFT - 14) / seconds;
    const each = ROW + PLAN + 2 + GAP, height = TOP + t.ranks.length * each + 20, worst = waits(t);
    const words = `Step ${t.step} took ${span(t.seconds)}, planned were ${span(t.planned_seconds)}; bubble ${percent(t.bubble)}, planned ${percent(t.planned_bubble)}.`;
    const error = Math.max(...t.ranks.map(r => r.offset_error_us ?? 0)) / 1e6;
    return [
        h('dl', { class: 'figures' },
            ...[['Step', String(t.step), t.schedule], ['Took', span(t.seconds), `planned ${span(t.planned_seconds)}`],
                ['Bubble', percent(t.bubble), `planned ${percent(t.planned_bubble)}`], ['Microbatches', String(t.microbatches), '']]
                .map(([name, value, more]) => h('div', { class: 'figure' }, h('dt', null, name), h('dd', null, value, more && h('small', null, ` ${more}`))))),
        svg('svg', { class: 'gantt', width, height, viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': words },
            axis(seconds, scale, height), t.ranks.map((r, i) => rankRows(r, TOP + i * each, scale))),
        h('p', { class: 'keys' }, [['F', 'forward'], ['B', 'backward'], ['W', 'weights'], ['R', 'forward again'], ['update', 'update, norm, loss']]
            .filter(([k]) => k !== 'R' && k !== 'W' || t.ranks.some(r => r.tasks.some(([kind]) => kind === k))).map(([k, text]) =>
            h('span', null, h('i', { class: `key k-${k}` }), text)),
            t.ranks.some(r => stagesOf(r).length > 1) && h('span', { class: 'faint' }, 'several stages a node: the later, the darker'), h('span', null, h('i', { class: 'key wait' }), 'waiting'),
            h('span', { class: 'faint' }, 'thin above: planned'), error > seconds / 100 && h('span', { class: 'faint' }, `clocks agree to ${number(error * 1000, 2)} ms`)),
        worst.length > 0 && h('ul', { class: 'waits' }, worst.map(w => h('li', null, h('b', null, w.node), ` stood still for ${span(w.seconds)}`,
            w.message ? ` waiting for ${w.message}${w.from ? ` of ${w.from}` : ''}` : ''))),
    ];
}
