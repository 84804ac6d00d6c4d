// SPDX-License-Identifier: MIT
// What is known of the ring and its jobs, and how it stays true: one stream of events for the whole page, and every two seconds,
// while the page is seen, the figures that make no event (memory, bytes, round trips).

import { get } from './api.js';
import { follow } from './events.js';

const REFRESH_MS = 2000, STEPS_KEPT = 20000, LINES_KEPT = 500;

export const state = {
    status: null, nodes: [], links: [], ports: [], jobs: null,
    stream: false,   // the stream of events stands
    heard: 0,        // when the node last answered anything, in ms
    trouble: '',     // why it does not
    rates: new Map(), // port → {tx, rx} in Mb/s
    serving: new Map(), // name of a job that serves → what it says of itself, and its plan
    store: null,        // the models of this node, and who holds them; asked for while their page is open
    storeTrouble: ''    // why that is not known
};

/** name of a job → {job, steps, valid, samples, lines, timeline, text, error}; made when first asked for. */
const details = new Map();
const watchers = new Set();
let watched = '', drawing = false, soon = 0;
let timelineAt = 0, timelineBusy = false;
const counted = new Map(); // port → {at, tx, rx}

export function onChange(fn) {
    watchers.add(fn);
}

export function changed() {
    if (drawing)
        return;
    drawing = true;
    const run = () => {
        drawing = false;
        for (const fn of watchers)
            fn();
    };
    if (document.hidden)
        setTimeout(run, 1000);
    else
        requestAnimationFrame(run);
}

export function say(text) {
    document.getElementById('said').textContent = text;
}

function heard() {
    state.heard = Date.now();
    state.trouble = '';
}

/* --- what is served --- */

/** Jobs that serve a model, or will: of all nodes in reach. */
export function servingJobs() {
    return [...state.jobs?.values() || []].filter(job => job.serves && !job.ended && job.up !== false);
}

async function askServing() {
    await Promise.all(servingJobs().map(async ({ name }) => {
        const job = await get(jobPath(name)).catch(() => null); // its head is out of reach: the row says so
        if (!job)
            return;
        state.serving.set(name, { ...job.serving, plan: job.plan });
        Object.assign(state.jobs.get(name) || {}, { tokens: job.tokens }); // which no event tells
    }));
}

/* --- models by their names --- */

const STORE_MS = 10000; // all nodes are asked
let storeWanted = false, storeBusy = false, storeAt = 0, storeSoon = 0;

async function loadStore() {
    if (storeBusy || !storeWanted)
        return;
    storeBusy = true;
    storeAt = Date.now();
    try {
        state.store = await get('v1/store');
        state.storeTrouble = '';
    } catch (e) {
        state.storeTrouble = e.message;
    }
    storeBusy = false;
    changed();
}

/** Their page is open, or no more. */
export function watchStore(wanted) {
    const opens = wanted && !storeWanted;
    storeWanted = wanted;
    if (opens)
        loadStore();
}

/** Somebody has changed them, or what they are used for: several changes make one question. */
export function storeChanged() {
    clearTimeout(storeSoon);
    storeSoon = setTimeout(loadStore, 300);
}

/* --- figures --- */

function countPorts() {
    const now = performance.now();
    for (const port of state.ports) {
        const before = counted.get(port.name), seconds = before ? (now - before.at) / 1000 : 0;
        if (!Number.isFinite(port.tx_bytes) || (before && seconds < 0.5))
            continue;
        if (before && port.tx_bytes >= before.tx && port.rx_bytes >= before.rx)
            state.rates.set(port.name, { tx: (port.tx_bytes - before.tx) * 8e-6 / seconds, rx: (port.rx_bytes - before.rx) * 8e-6 / seconds });
        counted.set(port.name, { at: now, tx: port.tx_bytes, rx: port.rx_bytes });
    }
}

async function refresh() {
    if (Date.now() - storeAt > STORE_MS)
        loadStore();
    try {
        const [status, nodes, links, ports] = await Promise.all([...['v1/status', 'v1/nodes', 'v1/links', 'v1/ports'].map(get), askServing()]);
        tellChanges(nodes.nodes);
        Object.assign(state, { status, nodes: nodes.nodes, links: links.links, ports: ports.ports });
        countPorts();
        heard();
    } catch (e) {
        state.trouble = e.message;
    }
    changed();
}

function tellChanges(nodes) {
    for (const node of nodes) {
        const before = state.nodes.find(n => n.id === node.id);
        if (before && before.state !== node.state)
            say(node.state === 'up' ? `Node ${node.name} is back.` : `No word from node ${node.name}.`);
    }
}

async function refreshJobs() {
    try {
        const { jobs } = await get('v1/jobs?all');
        state.jobs = new Map(jobs.map(job => [job.name, job]));
        heard();
    } catch (e) {
        state.trouble = e.message;
    }
    changed();
}

/** Several events at once make one question. */
function refreshSoon() {
    clearTimeout(soon);
    soon = setTimeout(refresh, 100);
}

/* --- jobs in full --- */

/** The path of a job: 7 is this node's own, 7@b has node b as its head, which is asked for it. */
export function jobPath(name, part = '') {
    return `v1/jobs/${encodeURIComponent(name)}${part && `/${part}`}`;
}

/** What runs, of this node first, else what is paused, else what is served; undefined: nothing. */
export function running() {
    const jobs = state.status?.jobs, all = kind => [...jobs?.[kind] || [], ...jobs?.elsewhere?.[kind] || []].map(String);
    const works = all('running'), isServing = name => state.jobs?.get(name)?.serves;
    return works.find(name => !isServing(name)) ?? all('paused')[0] ?? works[0];
}

export function detail(id) {
    if (!details.has(id)) {
        details.set(id, { reading: false,  job: null, adapter: undefined, adapters: new Map(), steps: [], valid: [], samples: [], lines: [], timeline: null, text: '', tokens: 0, error: '', loaded: false });
        load(id);
    }
    return details.get(id);
}

/** A sweep trains several adapters: of each the last step is kept, of the first one all. */
function isFirst(d, one) {
    if (!d.adapters.size)
        d.adapter = one.adapter;
    if (one.adapter !== undefined && (d.adapters.get(one.adapter)?.step ?? 0) <= one.step)
        d.adapters.set(one.adapter, one);
    return one.adapter === d.adapter;
}

function addStep(d, step) {
    if (!isFirst(d, step))
        return;
    const last = d.steps[d.steps.length - 1];
    if (last && step.step <= last.step && step.step > d.steps[0].step)
        return;
    if (last && step.step <= last.step)
        d.steps.length = 0; // begun again
    d.steps.push(step);
    if (d.steps.length > STEPS_KEPT)
        d.steps.splice(0, STEPS_KEPT / 4);
}

/** What the node has on record, and what it has said since: an event may overtake the answer. */
function joined(recorded, said, key) {
    const known = new Set(recorded.map(key));
    return [...recorded, ...said.filter(one => !known.has(key(one)))];
}

async function load(id) {
    const d = details.get(id);
    try {
        d.job = { ...await get(jobPath(id)), name: id }; // its head calls it by its number
        const [steps, valid, samples, log] = await Promise.all(['steps', 'evaluations', 'samples', 'log'].map(part => get(jobPath(id, part))));
        const newest = d.steps;
        d.steps = steps.steps.filter(step => isFirst(d, step));
        for (const step of newest)
            addStep(d, step);
        d.valid = joined(valid.evaluations, d.valid, v => `${v.adapter} ${v.step}`);
        d.samples = joined(samples.samples, d.samples, s => `${s.adapter} ${s.step}`);
        d.lines = joined(log.lines, d.lines, l => `${l.time} ${l.text}`).slice(-LINES_KEPT);
        d.error = '';
    } catch (e) {
        d.error = e.message;
    }
    d.loaded = true;
    changed();
    loadTimeline(id);
}

/** What a job of another head has done since it was looked at: this node hears only its row. */
async function catchUp(id) {
    const d = details.get(id), last = d?.steps[d.steps.length - 1];
    if (!d?.loaded || d.reading)
        return;
    d.reading = true;
    try {
        for (const step of (await get(jobPath(id, `steps?from=${last ? last.step + 1 : 0}`))).steps)
            addStep(d, step);
        if (id === watched) {
            const [valid, samples, log] = await Promise.all(['evaluations', 'samples', 'log'].map(part => get(jobPath(id, part))));
            Object.assign(d, { valid: valid.evaluations, samples: samples.samples, lines: log.lines.slice(-LINES_KEPT) });
            loadTimeline(id);
        }
    } catch {
        // its head is out of reach: the row says so
    }
    d.reading = false;
    changed();
}

async function loadTimeline(id) {
    const d = details.get(id);
    if (!d || timelineBusy || d.job?.type !== 'train' || !d.steps.length || Date.now() - timelineAt < 1500)
        return;
    timelineBusy = true;
    timelineAt = Date.now();
    try {
        d.timeline = await get(jobPath(id, 'timeline'));
    } catch {
        // not known yet: the page says so
    }
    timelineBusy = false;
    changed();
}

/** The job whose page is open: only its timeline is asked for. */
export function watch(id) {
    if (watched !== id) {
        watched = id;
        timelineAt = 0;
        if (id && details.get(id)?.loaded)
            loadTimeline(id);
    }
}

/* --- events --- */

/** What a job says names it; an older daemon leaves it out, and then it is the one that runs. */
function speaker(data) {
    return String(data.job ?? state.status?.jobs?.running?.[0]);
}

const handlers = {
    node() {
        refreshSoon();
        storeChanged();
    },
    pull(data) {
        const known = state.store?.models.find(m => m.model === data.model || m.pull?.number === data.number);
        if (known)
            known.pull = data;
        if (!known || !['waiting', 'pulling', 'verifying'].includes(data.state))
            storeChanged();
    },
    push({ state: word }) { // others hold it now
        if (word !== 'pushing')
            storeChanged();
    },
    job(job) {
        const id = job.name, before = state.jobs?.get(id);
        state.jobs?.set(id, job);
        if (before?.state !== job.state) {
            say(`Job ${id} is ${job.state}${job.state === 'interrupted' && job.error ? `: ${job.error}` : ''}.`);
            refreshSoon();
            if (details.has(id))
                load(id); // its plan is there, or what came of it
        } else if (details.get(id)?.job) {
            Object.assign(details.get(id).job, job);
            if (job.node)
                catchUp(id);
        }
    },
    end(job) {
        const { spec, plan, memory, relayed, result, ...short } = job;
        state.jobs?.set(job.name, short);
        if (details.has(job.name))
            load(job.name);
        refreshSoon();
        storeChanged();
    },
    step(data) {
        const id = speaker(data), job = state.jobs?.get(id), d = details.get(id);
        if (job)
            Object.assign(job, { step: data.step, steps: data.steps, loss: data.loss, last: data });
        if (!d)
            return;
        if (d.job)
            Object.assign(d.job, { step: data.step, steps: data.steps, loss: data.loss });
        addStep(d, data);
        if (id === watched)
            loadTimeline(id);
    },
    valid(data) {
        details.get(speaker(data))?.valid.push(data);
    },
    sample(data) {
        details.get(speaker(data))?.samples.push(data);
    },
    log(data) {
        const d = details.get(speaker(data));
        d?.lines.push(data);
        if (d?.lines.length > LINES_KEPT)
            d.lines.splice(0, LINES_KEPT / 5);
    },
    token(data) {
        const d = details.get(speaker(data));
        if (!d || data.n <= d.tokens)
            return; // heard before the daemon was started again
        d.tokens = data.n;
        d.text += data.text;
    },
    load(data) {
        Object.assign(state.serving.get(speaker(data)) || {}, { load: data });
    },
    memory(data) {
        const list = details.get(speaker(data))?.job?.memory;
        if (list)
            list[data.rank] = data;
    },
    resync() {
        refresh();
        refreshJobs();
        for (const id of details.keys())
            load(id);
    },
};

function listen() {
    follow('v1/events?after=now', {
        open() {
            state.stream = true;
            heard();
            handlers.resync();
        },
        lost() {
            state.stream = false;
            changed();
        },
        event({ name, data }) {
            heard();
            handlers[name]?.(JSON.parse(data));
            changed();
        },
    });
}

export function start() {
    listen();
    setInterval(() => {
        if (!document.hidden)
            refresh();
    }, REFRESH_MS);
    setInterval(changed, 1000); // what counts up
    document.addEventListener('visibilitychange', () => {
        if (!document.hidden)
            refresh();
    });
}
