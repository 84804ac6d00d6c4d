// SPDX-License-Identifier: MIT
// The models of this node that have a name: how much of each is here, what is on its way, and who else holds it. And what has to
// come to the nodes of a plan before it can begin.

import { h, show } from './dom.js';
import { state, watchStore } from './live.js';
import { bytes, mbps, percent, plural, span } from './words.js';

const isComing = pull => ['waiting', 'pulling', 'verifying'].includes(pull?.state);

function stateOf({ pinned, whole, pull }) {
    const word = isComing(pull) ? pull.state : pinned ? 'pinned' : whole ? 'ready' : pull?.state === 'failed' ? 'failed' : 'in part';
    return h('span', { class: `pill ${isComing(pull) ? 'live' : { ready: 'good', pinned: 'good', failed: 'bad' }[word] || 'warn'}` }, word);
}

function bar(name, share, kind) {
    const part = Math.min(Math.max(share, 0), 1);
    return h('div', { class: `progress ${kind}`, role: 'progressbar', 'aria-label': name, 'aria-valuemin': 0, 'aria-valuemax': 100, 'aria-valuenow': Math.round(100 * part) },
        h('i', { css: { width: `${(100 * part).toFixed(2)}%` } }));
}

/** What is on its way: how much of it, how fast, and for how long still. */
function coming(name, { state: word, done, total, rate, seconds_left: left }) {
    const said = !total ? 'It begins.' : `${bytes(done)} of ${bytes(total)}${rate > 0 ? `, ${mbps(rate * 8e-6)}` : ''}${Number.isFinite(left) ? `, ${span(left)} left` : ''}`;
    return [bar(`${name}: ${word}`, total ? done / total : 0, 'running'), h('p', { class: 'row spread' }, h('span', { class: 'n' }, said),
        h('button', { type: 'button', class: 'quiet', 'data-do': 'stop-model', 'data-id': name }, 'Stop'))];
}

function sizeOf({ whole, pull, added, in_place: place, here, bytes: all, on_disk: disk }) {
    const size = !(all > 0) ? bytes(disk) : whole || isComing(pull) ? bytes(all) : `${bytes(here)} of ${bytes(all)} here, ${percent(here / all)}`;
    return place ? `${size}, in ${added ? place : "Hugging Face's cache"}` : size;
}

function holder({ node, same, whole, here, bytes: all }) {
    return h('li', { 'data-key': node }, node, !same ? h('span', { class: 'why warn' }, ' other files') : !whole && h('span', { class: 'faint' }, ` ${percent(all > 0 ? here / all : 0)}`));
}

function model(m) {
    const [name, commit] = m.model.split('@'), lacks = !m.whole && !isComing(m.pull) && m.bytes > 0;
    return h('li', { 'data-key': m.model }, h('div', { class: 'row spread' }, h('h2', null, name, ' ', stateOf(m), m.adapter && [' ', h('span', { class: 'pill' }, 'adapter')]),
        m.named && h('button', { type: 'button', class: 'quiet', 'data-do': m.pinned ? 'unpin-model' : 'pin-model', 'data-id': m.model }, m.pinned ? 'Unpin' : 'Pin')),
    h('p', { class: 'hint' }, commit && `Commit ${commit.slice(0, 10)} · `, h('span', { class: 'n' }, sizeOf(m)),
        m.jobs.length > 0 && [' · used by job ', m.jobs.map((job, i) => [i > 0 && ', ', h('a', { href: `#/job/${encodeURIComponent(job)}` }, job)])]),
    isComing(m.pull) ? coming(m.pull.asked || m.model, m.pull) : lacks && bar(`${name}: here`, m.here / m.bytes, ''),
    m.pull?.state === 'failed' && h('p', { class: 'why bad' }, m.pull.error),
    m.holders.length ? h('ul', { class: 'keys', 'aria-label': 'Also on' }, h('li', { class: 'faint' }, 'Also on'), m.holders.map(holder)) : h('p', { class: 'hint' }, 'No other node holds any of it.'));
}

function list({ models, unheard, folder, quota }) {
    const taken = models.reduce((sum, m) => sum + (m.on_disk || 0), 0);
    return [models.length ? h('ul', { class: 'models' }, models.map(model)) : h('div', { class: 'empty' }, h('p', null, 'No model with a name is on this node.'),
        h('p', null, 'A job brings the one that it names, as ', h('code', null, 'ORG/NAME'), '. To have it before: ', h('code', null, 'ringctl pull ORG/NAME'))),
    unheard.map(({ node, why }) => h('p', { class: 'why warn', 'data-key': `u${node}` }, `Node ${node} ${why}: what it has is not known.`)),
    h('p', { class: 'hint' }, `${plural(models.length, 'model')}, ${bytes(taken)}${quota ? ` of ${bytes(quota)} at most` : ''}, in ${folder}`)];
}

export function drawModels(section) {
    watchStore(true);
    show(section, h('div', { class: 'panel narrow' }, h('h1', null, 'Models'),
        state.store ? list(state.store) : h('p', { class: 'empty' }, state.storeTrouble || 'Asking the nodes what they have…')));
}

export function leaveModels() {
    watchStore(false);
}

/** What has to come to the nodes of a plan; nothing where nothing has. */
export function travelOf({ travel }) {
    if (!travel)
        return null;
    const { bytes: all, hub, ranks, seconds, mbps: rate, spared } = travel, lacking = ranks.filter(r => r.lacks === undefined || r.lacks > 0);
    const time = hub >= all ? '' : Number.isFinite(seconds) ? `${hub ? ', and the rest takes' : ':'} ${span(seconds)} at ${mbps(rate)}` : ', at a rate that is not known';
    return h('div', { class: 'travel' }, all > 0 && h('p', null, h('b', null, `${bytes(all)} must travel first`), hub >= all ? ', all of it from the hub' : hub ? `, ${bytes(hub)} of it from the hub` : '', time),
        spared > 0 && h('p', { class: 'hint' }, `Of splits that are within 2 % of the fastest, this one spares ${bytes(spared)} of travel.`),
        h('ul', { class: 'hint' }, lacking.map(({ node, share, lacks, from, hub: own, why }) => h('li', { 'data-key': node }, why ? `What ${node} lacks of ${bytes(share)} is not known: it ${why}.` :
            `${node} lacks ${bytes(lacks)} of ${bytes(share)}: from ${[...from.map(f => f.node), ...own ? ['the hub'] : []].join(' and ')}`))));
}
