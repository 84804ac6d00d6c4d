// SPDX-License-Identifier: MIT
// The page: which part of it is shown, the line at its top, and what clicks do.

import { change, enter } from './api.js';
import { chatActions, chooseModel, drawChat } from './chat.js';
import { h, show } from './dom.js';
import { drawGenerate, drawNew } from './forms.js';
import { drawJob, leaveJob, recolor, resetZoom, setView } from './job.js';
import { jobList } from './jobs.js';
import { drawHistory, leaveHistory, recolorHistory, setNode, setRange } from './history.js';
import { changed, jobPath, onChange, running, say, start, state, storeChanged } from './live.js';
import { drawModels, leaveModels } from './models.js';
import { cableTable, drawRing } from './ring.js';
import { chooseRun, drawRuns, leaveRuns, recolorRuns } from './runs.js';
import { servingPanel } from './serving.js';
import { age } from './words.js';

const by = id => document.getElementById(id), STALE_MS = 6000;
let page = '', notice = '';

/* --- the top --- */

const shapes = { closed: 'good', alone: '', chain: 'warn', broken: 'bad' };

function drawTop() {
    const status = state.status, silent = state.heard ? Date.now() - state.heard : 0, stale = silent > STALE_MS || (state.trouble && state.heard);
    show(by('where'), status && [h('b', null, status.node.name), ' ', h('span', { class: `pill ${shapes[status.ring.state] || ''}` }, status.ring.state === 'closed' ? `ring of ${status.ring.nodes.length}` : status.ring.state)]);
    show(by('live'), h('i', { class: `lamp ${!state.heard ? '' : stale ? 'bad' : state.stream ? 'good' : 'warn'}` }),
        !state.heard ? 'connecting' : stale ? 'out of date' : state.stream ? 'live' : 'reconnecting');
    document.body.classList.toggle('stale', !!stale);
    const lines = [];
    if (stale)
        lines.push(`No word from ${status?.node.name || 'this node'} for ${age(silent / 1000)}: what you see is from then. ${state.trouble}`);
    else if (!state.heard && state.trouble)
        lines.push(state.trouble);
    if (notice)
        lines.push(notice);
    if (!stale)
        lines.push(...(status?.trouble || []), ...(status?.ring?.trouble ? [status.ring.trouble] : []));
    show(by('trouble'), lines.map(text => h('p', { class: stale ? 'bad' : '' }, text)));
    document.title = `${runningShare()}${status ? `${status.node.name} · ` : ''}ringd`;
}

function runningShare() {
    const job = state.jobs?.get(running());
    return job?.steps ? `${Math.floor(100 * job.step / job.steps)} % · ` : '';
}

/* --- home --- */

function lost() {
    return state.nodes.filter(n => n.state !== 'up').map(n => h('p', { class: 'notice bad', 'data-key': `lost${n.id}` },
        h('b', null, `No word from node ${n.name} for ${age(n.seconds)}. `), n.doing ? `${n.doing[0].toUpperCase()}${n.doing.slice(1)}. ` : '',
        'It joins again by itself once it runs and a cable leads to it.'));
}

function drawHome(section) {
    if (!state.status) {
        show(section, h('div', { class: 'panel' }, h('p', { class: 'empty' }, state.trouble || 'Asking this node…')));
        return;
    }
    const wide = section.clientWidth >= 1060, width = (wide ? Math.floor((section.clientWidth - 16) * 0.58) : section.clientWidth) - 36;
    show(section, h('div', { class: 'columns home' },
        h('div', { class: 'wide' },
            h('div', { class: 'panel', 'data-key': 'ring' }, h('h1', null, ringWords()), lost(), drawRing(Math.max(260, width)), aloneWords()),
            h('div', { class: 'panel', 'data-key': 'cables' }, cableTable())),
        h('div', { class: 'side' }, servingPanel(), h('div', { class: 'panel', 'data-key': 'jobs' }, jobList()))));
}

function ringWords() {
    const text = state.status.ring.text;
    return text.charAt(0).toUpperCase() + text.slice(1);
}

function aloneWords() {
    return state.nodes.length === 1 && h('div', { class: 'empty' }, h('p', null, 'One node can train and generate too. To let another in:'),
        h('p', null, h('code', null, 'ringctl invite'), ' here, and ', h('code', null, 'ringctl join TOKEN'), ' there, with a cable between the two.'));
}

/* --- which page --- */

function draw() {
    const route = location.hash.slice(2).split('/'), name = ['job', 'chat', 'new', 'generate', 'models', 'runs', 'history'].includes(route[0]) ? route[0] : 'home', id = decodeURIComponent(route[1] || '');
    drawTop();
    for (const section of by('main').querySelectorAll('section'))
        section.hidden = section.id !== name;
    for (const link of document.querySelectorAll('.bar nav a'))
        link.dataset.page === name ? link.setAttribute('aria-current', 'page') : link.removeAttribute('aria-current');
    if (name === 'job' && id)
        drawJob(by('job'), id);
    else
        leaveJob(by('job'));
    if (name === 'history')
        drawHistory(by('history'));
    else
        leaveHistory(by('history'));
    if (name === 'runs')
        drawRuns(by('runs'));
    else
        leaveRuns(by('runs'));
    if (name === 'models')
        drawModels(by('models'));
    else
        leaveModels();
    if (name === 'home')
        drawHome(by('home'));
    if (name === 'chat')
        drawChat(by('chat'), id);
    if (name === 'new')
        drawNew(by('new'), id === 'serve' ? 'serve' : 'train');
    if (name === 'generate')
        drawGenerate(by('generate'));
    const hash = location.hash || '#/';
    if (page && page !== hash) {
        notice = '';
        scrollTo(0, 0);
        if (!by(name).contains(document.activeElement)) // who types there goes on typing
            by('main').focus({ preventScroll: true });
    }
    page = hash;
}

/* --- clicks --- */

async function command(method, path, said, body = {}) {
    try {
        if (await change(method, path, method === 'POST' ? body : undefined)) // a POST is JSON, or the node refuses it
            say(said);
        notice = '';
    } catch (e) {
        notice = e.message;
    }
    changed();
}

async function withModel(what, model, said) {
    await command('POST', 'v1/store', said, { do: what, model });
    storeChanged();
}

const actions = {
    'pin-model': ({ id }) => withModel('pin', id, `${id} stays.`),
    'unpin-model': ({ id }) => withModel('unpin', id, `${id} may go when its room is needed.`),
    'stop-model': ({ id }) => withModel('stop', id, `${id} is not pulled any more.`),
    cancel: ({ id }) => command('DELETE', jobPath(id), `Job ${id} is being cancelled.`),
    pause: ({ id }) => command('POST', jobPath(id, 'pause'), `Job ${id} stops after its next step.`),
    continue: ({ id }) => command('POST', jobPath(id, 'continue'), `Job ${id} goes on when its turn comes.`),
    unzoom: resetZoom,
    ...chatActions,
    chat: ({ id }) => chooseModel(id),
};

document.addEventListener('click', event => {
    const button = event.target.closest('[data-do]');
    if (button)
        actions[button.dataset.do](button.dataset, button);
});
document.addEventListener('input', event => {
    if (event.target.id === 'smooth')
        setView({ smooth: Number(event.target.value) });
    if (event.target.id === 'range')
        setRange(event.target.value);
    if (event.target.dataset.run)
        chooseRun(event.target.dataset.run, event.target.checked);
    if (event.target.id === 'history-node')
        setNode(event.target.value);
    if (event.target.id === 'log')
        setView({ log: event.target.checked });
});

/* --- the link of `ringctl dashboard` --- */

/** Whether the address had a ticket: it is used up, and goes from the address and from the history of the tab. */
async function arrive() {
    const ticket = /^#ticket=([0-9a-f]+)$/.exec(location.hash)?.[1];
    if (!ticket)
        return false;
    history.replaceState(null, '', '#/');
    notice = await enter(ticket);
    return true;
}

/* --- colours --- */

const themes = ['auto', 'light', 'dark'], marks = { auto: '◐', light: '☀', dark: '☾' };

function setTheme(theme) {
    if (theme === 'auto')
        delete document.documentElement.dataset.theme;
    else
        document.documentElement.dataset.theme = theme;
    by('theme').textContent = marks[theme];
    by('theme').setAttribute('aria-label', `Colours: ${theme}. Change`);
    by('theme').title = `Colours: ${theme}`;
    localStorage.setItem('ringd-theme', theme);
    recolor();
    recolorHistory();
    recolorRuns();
}

by('theme').addEventListener('click', () =>
    setTheme(themes[(themes.indexOf(localStorage.getItem('ringd-theme') || 'auto') + 1) % themes.length]));
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
    recolor();
    recolorHistory();
    recolorRuns();
});
setTheme(localStorage.getItem('ringd-theme') || 'auto');

addEventListener('hashchange', async () => {
    if (await arrive() && !notice)
        location.reload(); // all that was refused is asked for again
    else
        draw();
});
addEventListener('resize', changed);
onChange(draw);
await arrive();
draw();
start();
