// SPDX-License-Identifier: MIT
// The list of jobs, and what runs now.

import { h, svg } from './dom.js';
import { detail, running, state } from './live.js';
import { age, moment, number, span } from './words.js';

const SHOWN = 40, RECENT = 12;

export const isOver = job => ['done', 'failed', 'cancelled'].includes(job.state);

/** No stage works for it now. job.error says since when, why, and what it waits for. */
export const isHalted = job => ['interrupted', 'paused', 'moved'].includes(job.state);

/** What a person should know of it, in red or grey: why it failed or waits, or that its disk is full. */
export const trouble = job => job.error || (job.unsaved && !isOver(job) ? `not saved: ${job.unsaved}` : '');

/** Seconds per step of late, from the last steps; null before there is one. */
export function pace(steps) {
    const last = steps.slice(-RECENT).map(s => s.step_seconds).filter(Number.isFinite).sort((a, b) => a - b);
    return last.length ? last[last.length >> 1] : null;
}

export function eta(job, steps) {
    const each = pace(steps);
    return each !== null && job.steps > job.step && !isOver(job) && !isHalted(job) ? each * (job.steps - job.step) : null;
}

export function progress(job) {
    const share = job.steps ? job.step / job.steps : 0;
    return h('div', { class: `progress ${job.state}`, role: 'progressbar', 'aria-label': `Progress of job ${job.name}`, 'aria-valuemin': 0,
        'aria-valuemax': 100, 'aria-valuenow': Math.round(100 * share) }, h('i', { css: { width: `${(100 * share).toFixed(2)}%` } }));
}

export function stateMark(job) {
    const kind = { done: 'good', failed: 'bad', running: 'live', planned: 'live', interrupted: 'warn' }[job.state] || '';
    return h('span', { class: `pill ${kind}` }, job.up === false && !isOver(job) ? `${job.state}, last heard` : job.state);
}

/** The colour of the sentence that says why a job is in its state. */
export function tone(job) {
    return { failed: 'bad', interrupted: 'warn' }[job.state] || (job.unsaved && !isOver(job) ? 'warn' : '');
}

/** A job that trains can be paused, and goes on when its user says so. */
export function pauseButton(job) {
    if (job.type !== 'train' || isOver(job) || job.state === 'moved')
        return null;
    return job.state === 'paused' ? h('button', { type: 'button', class: 'main', 'data-do': 'continue', 'data-id': job.name }, 'Continue') :
        h('button', { type: 'button', 'data-do': 'pause', 'data-id': job.name }, 'Pause');
}

/** Losses as a small line, the whole run in `w` pixels. */
function spark(steps, w, height) {
    const values = steps.map(s => s.loss).filter(Number.isFinite);
    if (values.length < 2)
        return null;
    const many = Math.min(values.length, w >> 1), points = [];
    for (let i = 0; i < many; i++) {
        const part = values.slice(Math.floor(i * values.length / many), Math.max(Math.floor((i + 1) * values.length / many), Math.floor(i * values.length / many) + 1));
        points.push(part.reduce((a, b) => a + b) / part.length);
    }
    const low = Math.min(...points), high = Math.max(...points), range = high - low || 1;
    const line = points.map((v, i) => `${(i / (many - 1) * (w - 4) + 2).toFixed(1)} ${(height - 4 - (v - low) / range * (height - 8)).toFixed(1)}`).join('L');
    return svg('svg', { class: 'spark', viewBox: `0 0 ${w} ${height}`, preserveAspectRatio: 'none', 'aria-hidden': 'true' },
        svg('path', { d: `M${line}L${w - 2} ${height}L2 ${height}Z`, class: 'area' }), svg('path', { d: `M${line}`, class: 'line' }));
}

export function figure(name, value, more) {
    return h('div', { class: 'figure' }, h('dt', null, name), h('dd', null, value, more && h('small', null, ` ${more}`)));
}

/** What runs, in large. */
export function current() {
    const id = running();
    if (!id)
        return null;
    const d = detail(id), job = d.job || state.jobs?.get(id), last = d.steps[d.steps.length - 1];
    if (!job || job.serves)
        return null; // what is served has a panel of its own
    const left = eta(job, d.steps);
    return h('a', { class: 'now', href: `#/job/${encodeURIComponent(id)}`, 'data-key': `now${id}` },
        h('h3', null, `Job ${id} `, h('span', { class: 'faint' }, [job.type, modelName(job)].filter(Boolean).join(' · ')), ' ', stateMark(job)),
        (isHalted(job) || job.unsaved) && trouble(job) && h('p', { class: `why ${tone(job)}` }, trouble(job)),
        progress(job),
        h('dl', { class: 'figures' },
            figure('Step', `${job.step || 0}`, job.steps ? `of ${job.steps}` : ''),
            figure('Left', left === null ? '–' : span(left)),
            job.type !== 'generate' && figure('Loss', Number.isFinite(job.loss) ? number(job.loss) : '–'),
            last?.tokens_per_second && figure('Tokens/s', number(last.tokens_per_second, 3))),
        spark(d.steps, 560, 64));
}

function when(job) {
    if (isHalted(job))
        return `begun ${moment(job.started || job.created)}`;
    if (!isOver(job))
        return job.started ? `for ${age(Date.now() / 1000 - job.started)}` : `since ${moment(job.created)}`;
    return `${moment(job.ended)}${job.started ? `, took ${job.ended > job.started ? age(job.ended - job.started) : 'under 1 s'}` : ''}`;
}

/** The directory's own name: the rest of the path is for the job's page. */
export function modelName(job) {
    return (job.model ?? job.spec?.model ?? '').split('/').filter(Boolean).pop() || '';
}

function row(job) {
    return h('li', { 'data-key': `job${job.name}` }, h('a', { href: `#/job/${encodeURIComponent(job.name)}` },
        h('span', { class: 'id' }, `#${job.name}`), h('span', { class: 'type' }, job.type),
        h('span', { class: 'model', title: job.model }, modelName(job)), stateMark(job),
        h('span', { class: 'steps n' }, job.steps ? `${job.step} / ${job.steps}` : ''),
        h('span', { class: 'loss n' }, Number.isFinite(job.loss) && job.loss !== null ? `loss ${number(job.loss)}` : ''),
        h('span', { class: 'when faint' }, when(job)),
        trouble(job) && h('span', { class: `why ${tone(job)}` }, trouble(job))));
}

/** In large, or in the panel of what is served. */
function isShown(job) {
    return job.serves ? !isOver(job) && job.up !== false : job.name === running();
}

export function jobList() {
    const title = h('h2', null, 'Jobs');
    if (!state.jobs)
        return [title, h('p', { class: 'empty' }, state.trouble ? 'The list comes when the node answers again.' : 'Reading the list…')];
    const all = [...state.jobs.values()].sort((a, b) => b.created - a.created || b.id - a.id);
    const rest = all.filter(job => !isShown(job));
    if (!all.length)
        return [title, h('div', { class: 'empty' }, h('p', null, 'Nothing has run here yet.'),
            h('p', null, h('a', { class: 'button main', href: '#/new' }, 'Train something'), ' ', h('a', { class: 'button', href: '#/generate' }, 'Generate text')),
            h('p', { class: 'hint' }, 'In a terminal: ', h('code', null, 'ringctl train --help')))];
    const now = current();
    return [title, now, !now && !rest.length && h('p', { class: 'empty' }, 'Nothing else has run here yet.'), h('ul', { class: 'jobs' }, rest.slice(0, SHOWN).map(row)),
        rest.length > SHOWN && h('p', { class: 'hint' }, `${rest.length - SHOWN} older ones: `, h('code', null, 'ringctl jobs --all'))];
}
