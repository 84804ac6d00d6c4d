// SPDX-License-Identifier: MIT
// The ring, drawn: who there is, what each does, and the cables between. An ellipse where the cards fit on one, else a column. A node
// that is lost keeps its place, so that the eye finds what is missing.

import { h, svg } from './dom.js';
import { detail, running, state } from './live.js';
import { age, bytes, mbps, plural } from './words.js';

const CARD = { w: 206, h: 112 }, MARGIN = 6, FAST_S = 2, LETTER = 6.3;
let places = [];        // names, in the order they stand around the ring, this node first
const hops = new Map(); // pairs that were next to each other, for when one of them is gone

const mediums = { ethernet: 'Ethernet', thunderbolt: 'Thunderbolt', usb: 'USB', wifi: 'Wi-Fi', other: 'cable' };

/* --- who stands where --- */

function isTurned(order, kept) {
    const at = kept.indexOf(order[0]);
    return order.every((name, i) => kept[(at + i) % kept.length] === name);
}

function fromSelf(order) {
    const at = Math.max(order.indexOf(state.nodes.find(n => n.self)?.name), 0);
    return [...order.slice(at), ...order.slice(0, at)];
}

function arrange() {
    const order = fromSelf(state.status?.ring?.nodes || []), known = state.nodes.map(n => n.name);
    const standing = places.filter(name => order.includes(name));
    if (standing.length !== order.length || (order.length && !isTurned(order, standing)))
        places = [...order];
    places = places.filter(name => known.includes(name));
    for (const name of known)
        if (!places.includes(name))
            places.push(name);
    return places;
}

/** The job that runs, and by name each node's rank and layers in it. */
function stages() {
    const id = running(), plan = id ? detail(id).job?.plan : null, by = new Map();
    plan?.nodes?.forEach((name, rank) => by.set(name, { rank, layers: plan.split?.[rank] }));
    return by;
}

/** The bounds of each stage one after the other, as words. */
export function layersText(bounds) {
    if (!bounds?.length || bounds[0] === null)
        return '';
    const parts = [];
    for (let i = 0; i + 1 < bounds.length; i += 2)
        if (bounds[i + 1] > bounds[i])
            parts.push(bounds[i + 1] - bounds[i] > 1 ? `${bounds[i]}–${bounds[i + 1] - 1}` : `${bounds[i]}`);
    if (!parts.length)
        return 'no layer';
    return `${parts.length > 1 || parts[0].includes('–') ? 'layers' : 'layer'} ${parts.join(', ')}`;
}

/* --- cables --- */

/** Every way between two nodes, with this node's own cables in full. */
function edges() {
    const map = new Map(), self = state.nodes.find(n => n.self)?.name;
    const between = (a, b) => {
        const key = [a, b].sort().join('\n');
        if (!map.has(key))
            map.set(key, { a, b, cables: [], classMbps: 0, up: false, missing: false });
        return map.get(key);
    };
    for (const node of state.nodes) {
        for (const to of node.state === 'up' ? node.neighbours || [] : []) {
            const e = between(node.name, to.name);
            e.up = e.up || to.mutual;
            e.classMbps = Math.max(e.classMbps, to.class_mbps);
            e.shared = to.shared;
        }
    }
    for (const link of state.links)
        if (link.peer && link.peer !== self)
            between(self, link.peer).cables.push(link);
    for (const [a, b] of state.status?.ring?.missing || [])
        between(a, b).missing = true;
    const ring = state.status?.ring?.nodes || [], closed = state.status?.ring?.state === 'closed';
    for (const e of map.values()) {
        e.up = e.up || e.cables.some(c => c.state === 'up');
        const i = ring.indexOf(e.a), j = ring.indexOf(e.b), gap = Math.abs(i - j);
        e.hop = i >= 0 && j >= 0 && (gap === 1 || (closed && gap === ring.length - 1));
    }
    const gone = name => state.nodes.some(n => n.name === name && n.state !== 'up');
    for (const [key, e] of map)
        if (e.hop && e.up)
            hops.set(key, [e.a, e.b]);
    for (const [key, [a, b]] of hops) {
        if (gone(a) || gone(b))
            between(a, b).lost = true;
        else if (!map.get(key)?.hop)
            hops.delete(key);
    }
    return [...map.values()].filter(e => e.up || e.lost || e.missing || e.cables.length);
}

export function cableMedium(link) {
    const port = state.ports.find(p => p.name === link.port);
    return port ? mediums[port.kind] || port.kind : link.port ? 'cable' : 'address';
}

function edgeLines(e) {
    const live = e.cables.filter(c => c.state === 'up'), down = e.cables.filter(c => c.state !== 'up');
    if (!e.up && !e.cables.length && e.lost)
        return [];
    if (!e.up) {
        const longest = Math.max(...down.map(c => c.since_seconds).filter(Number.isFinite), -1);
        return e.missing && !down.length ? ['a cable would', 'close the ring'] : ['down', longest >= 0 ? `for ${age(longest)}` : ''].filter(Boolean);
    }
    if (!live.length)
        return [e.classMbps ? `class ${mbps(e.classMbps)}` : 'connected', e.shared && 'shared'].filter(Boolean);
    const rate = live.reduce((sum, c) => sum + (Math.min(c.tx_mbps, c.rx_mbps) || c.negotiated_mbps || 0), 0);
    const flow = live.reduce((sum, c) => sum + (state.rates.get(c.port)?.tx || 0) + (state.rates.get(c.port)?.rx || 0), 0);
    const rtt = Math.min(...live.map(c => c.rtt_ms));
    const one = live.length > 1 ? `${live.length} cables` : cableMedium(live[0]);
    return [`${one}${rate ? ` ${mbps(rate)}` : ''}`, flow >= 0.1 ? `⇅ ${mbps(flow)}` : `${rtt.toFixed(rtt < 1 ? 2 : 1)} ms`,
        down.length ? `${down.length} down` : ''].filter(Boolean);
}

function isFlowing(e, by) {
    if (e.cables.some(c => (state.rates.get(c.port)?.tx || 0) + (state.rates.get(c.port)?.rx || 0) > 1))
        return true;
    const a = by.get(e.a)?.rank, b = by.get(e.b)?.rank, n = by.size;
    return e.up && a !== undefined && b !== undefined && (Math.abs(a - b) === 1 || Math.abs(a - b) === n - 1);
}

/* --- where things stand --- */

function onEllipse(n, width) {
    const start = n === 2 ? Math.PI : n === 4 ? -0.75 * Math.PI : -Math.PI / 2, rx = (width - CARD.w) / 2 - MARGIN;
    for (const ry of n <= 2 ? [0] : [156, 190, 240, 300]) {
        const at = [...Array(n).keys()].map(i => {
            const angle = start + 2 * Math.PI * i / n;
            return { x: n === 1 ? 0 : rx * Math.cos(angle), y: ry * Math.sin(angle) };
        });
        const fits = at.every((p, i) => at.every((q, j) => i >= j || Math.abs(p.x - q.x) > CARD.w + (Math.abs(p.y - q.y) < 40 ? 92 : 12) ||
            Math.abs(p.y - q.y) > CARD.h + 34));
        if (!fits)
            continue;
        const top = Math.min(...at.map(p => p.y)), bottom = Math.max(...at.map(p => p.y));
        return { at: at.map(p => ({ x: p.x + width / 2, y: p.y - top + CARD.h / 2 + MARGIN })), height: bottom - top + CARD.h + 2 * MARGIN, column: false };
    }
    return null;
}

function inColumn(n, width) {
    const step = CARD.h + 52, x = n > 2 ? Math.min(width / 2 + 66, width - CARD.w / 2 - MARGIN) : width / 2; // the closing cable is at the left
    return { at: [...Array(n).keys()].map(i => ({ x, y: CARD.h / 2 + MARGIN + i * step })),
        height: n * step - 52 + 2 * MARGIN, column: true };
}

/** Where the line from the centre of a card towards `to` leaves it. */
function edgeOfCard(from, to) {
    const dx = to.x - from.x, dy = to.y - from.y;
    const t = Math.min(Math.abs((CARD.w / 2) / (dx || 1e-9)), Math.abs((CARD.h / 2) / (dy || 1e-9)), 1);
    return { x: from.x + dx * t, y: from.y + dy * t };
}

/* --- drawing --- */

function cut(text, pixels, perLetter = LETTER) {
    const most = Math.floor(pixels / perLetter);
    return text.length > most ? `${text.slice(0, most - 1).trimEnd()}…` : text;
}

/** A line that is too wide for where it stands: its rate below it. */
function halves(line) {
    return line.match(/^(.+) ([\d.]+ .?b\/s)$/)?.slice(1) || [line];
}

function pathOf(p, q, layout, aside) {
    const far = layout.column && Math.abs(p.y - q.y) > CARD.h + 60;
    if (!far) {
        const a = edgeOfCard(p, q), b = edgeOfCard(q, p);
        const long = Math.hypot(q.x - p.x, q.y - p.y) || 1, dx = -(q.y - p.y) / long * aside, dy = (q.x - p.x) / long * aside;
        return { d: `M${a.x + dx} ${a.y + dy}L${b.x + dx} ${b.y + dy}`, label: { x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 } };
    }
    const left = p.x - CARD.w / 2, x = left - 68; // a curve whose middle is 51 left of the cards
    return { d: `M${left} ${p.y}C${x} ${p.y} ${x} ${q.y} ${left} ${q.y}`, label: { x: left - 51, y: (p.y + q.y) / 2, most: left - 8 } };
}

function drawEdge(e, at, layout, by) {
    const p = at.get(e.a), q = at.get(e.b);
    if (!p || !q)
        return null;
    const many = Math.max(1, e.cables.filter(c => c.state === 'up').length), flows = isFlowing(e, by);
    const paths = [...Array(many).keys()].map(i => pathOf(p, q, layout, (i - (many - 1) / 2) * 7)), { label } = paths[0];
    const room = label.most ? label.most - 2 : Infinity, lines = edgeLines(e).flatMap(l => l.length * LETTER + 12 > room ? halves(l) : [l]);
    const warns = e.up && e.cables.some(c => c.warning || c.suspect || c.state !== 'up');
    const kind = `${!e.up ? (e.missing && !e.cables.length ? 'missing' : 'down') : e.hop ? 'hop' : 'spare'} ${warns ? 'warn' : ''}`;
    const wide = Math.max(0, ...lines.map(l => l.length)) * LETTER + 12, tall = lines.length * 14 + 6;
    const x = Math.min(label.x, (label.most ?? Infinity) - wide / 2);
    return svg('g', { class: `cable ${kind}`, 'data-key': `${e.a} ${e.b}` },
        paths.map(({ d }) => [svg('path', { d, class: 'wire' }), flows && svg('path', { d, class: 'flow' })]),
        lines.length > 0 && svg('rect', { x: x - wide / 2, y: label.y - tall / 2, width: wide, height: tall, rx: 7, class: 'tag' }),
        lines.map((line, i) => svg('text', { x, y: label.y - tall / 2 + 14 + i * 14, class: i ? 'small' : 'small strong',
            'text-anchor': 'middle' }, line)));
}

function nodeWords(node, stage) {
    if (node.state !== 'up')
        return `no word for ${age(node.seconds)}`;
    if (!node.stages.length)
        return 'idle';
    const slow = node.seconds >= FAST_S ? `, ${age(node.seconds)}` : '';
    const more = node.stages.length > 1 ? `, and ${plural(node.stages.length - 1, 'more job')}` : '';
    return `${node.doing || 'working'}${slow}${more}`;
}

function drawNode(node, p, stage) {
    const x = p.x - CARD.w / 2, y = p.y - CARD.h / 2, up = node.state === 'up', used = node.memory_total - node.memory_available;
    const share = node.memory_total ? used / node.memory_total : 0, inside = CARD.w - 30;
    const role = stage ? `stage ${stage.rank} · ${layersText(stage.layers)}` : node.stages.length && up ? `rank ${node.stages[0].rank} of a job` : '';
    const words = nodeWords(node, stage);
    const label = `Node ${node.name}${node.self ? ', this node' : ''}: ${up ? 'up' : 'gone'}, ${words}. ${role && `${role}. `}` +
        `${plural(node.threads, 'thread')}, memory ${bytes(used)} of ${bytes(node.memory_total)}.`;
    return svg('g', { class: `node ${up ? node.stages.length ? 'busy' : 'idle' : 'gone'}`, 'data-key': node.id, transform: `translate(${x} ${y})`,
        role: 'img', 'aria-label': label, tabindex: 0 },
        svg('title', null, up ? label : `${label} ${node.doing || ''}`),
        svg('rect', { width: CARD.w, height: CARD.h, rx: 12, class: 'card' }),
        svg('rect', { x: 0, y: 14, width: 4, height: CARD.h - 28, rx: 2, class: stage ? `stage s${stage.rank % 8}` : 'stage' }),
        svg('text', { x: 16, y: 25, class: 'name' }, cut(node.name, inside - 80, 8.4)),
        svg('circle', { cx: CARD.w - 18, cy: 20, r: 4.5, class: 'dot' }),
        node.self && svg('text', { x: CARD.w - 30, y: 24, 'text-anchor': 'end', class: 'small faint' }, 'this node'),
        svg('text', { x: 16, y: 45, class: 'small' }, role || plural(node.threads, 'thread')),
        svg('rect', { x: 16, y: 56, width: inside, height: 6, rx: 3, class: 'track' }),
        up && svg('rect', { x: 16, y: 56, width: Math.max(3, inside * share), height: 6, rx: 3, class: share > 0.92 ? 'fill high' : 'fill' }),
        svg('text', { x: 16, y: 78, class: 'small faint' }, up ? `${bytes(used)} of ${bytes(node.memory_total)}` +
            (role ? ` · ${plural(node.threads, 'thread')}` : '') : cut(node.doing || '', inside, 6)),
        svg('text', { x: 16, y: 98, class: 'small says' }, cut(words, inside)));
}

/** The drawing, for a place `width` pixels wide. */
export function drawRing(width) {
    const names = arrange(), n = names.length, by = stages();
    if (!n)
        return null;
    CARD.w = n <= 4 && width >= 640 ? 240 : 206; // room for what a node says
    const layout = (width >= CARD.w * 2 + 40 || n === 1 ? onEllipse(n, width) : null) || inColumn(n, width);
    const at = new Map(names.map((name, i) => [name, layout.at[i]]));
    const lines = edges(), order = e => (e.hop ? 1 : 0) + (e.up ? 0 : 2);
    lines.sort((a, b) => order(a) - order(b));
    return svg('svg', { width, height: layout.height, viewBox: `0 0 ${width} ${layout.height}`, role: 'group', class: 'ring',
        'aria-label': `Drawing: ${state.status?.ring?.text || 'the ring'}` },
        lines.map(e => drawEdge(e, at, layout, by)),
        names.map((name, i) => drawNode(state.nodes.find(node => node.name === name), layout.at[i], by.get(name))));
}

/* --- this node's cables, in words --- */

/** On a phone each cable is a card, and each of its lines begins with the head of its column. */
const heads = ['To', 'Medium', 'Negotiated', 'Measured', 'Round trip', 'Flowing', 'State'];

/** What there is to say of a cable, across the table. */
function cableNote(c) {
    const text = c.state === 'up' ? c.warning : c.why;
    return text && h('tr', { class: 'note', 'data-key': `note ${c.peer} ${c.port} ${c.cable} ${c.address}` }, h('td', { class: 'why', colspan: 7 }, h('p', null, text)));
}

function cableRow(c) {
    const up = c.state === 'up', rates = state.rates.get(c.port), measured = Math.min(c.tx_mbps, c.rx_mbps);
    const what = up ? c.suspect ? 'silent' : 'up' : c.state.replace('-', ' ');
    return h('tr', { class: up && !c.warning && !c.suspect ? '' : 'off', 'data-key': `${c.peer} ${c.port} ${c.cable} ${c.address}` },
        h('th', { scope: 'row' }, c.peer || '?', c.port && h('span', { class: 'faint' }, ` ${c.port}`)),
        h('td', { 'data-label': heads[1] }, cableMedium(c)),
        h('td', { class: 'n', 'data-label': heads[2] }, mbps(c.negotiated_mbps) || '–'),
        h('td', { class: 'n', 'data-label': heads[3] }, mbps(measured) || '–'),
        h('td', { class: 'n', 'data-label': heads[4] }, up ? `${c.rtt_ms.toFixed(c.rtt_ms < 1 ? 2 : 1)} ms` : '–'),
        h('td', { class: 'n', 'data-label': heads[5] }, up && rates ? `${mbps(rates.tx) || '0'} ↑ ${mbps(rates.rx) || '0'} ↓` : '–'),
        h('td', { 'data-label': heads[6] }, h('span', { class: `pill ${up ? c.warning || c.suspect ? 'warn' : 'good' : 'bad'}` }, what),
            ' ', up ? age(c.up_seconds) : Number.isFinite(c.since_seconds) ? `for ${age(c.since_seconds)}` : ''));
}

export function cableTable() {
    const self = state.nodes.find(n => n.self)?.name || 'this node';
    const title = h('h2', { id: 'cables-title' }, `Cables of ${self}`);
    if (!state.links.length)
        return [title, h('p', { class: 'empty' }, state.nodes.length > 1 ? 'No connection to a neighbour.' :
            'Nothing is plugged in, or nobody answers there. ', state.nodes.length < 2 && h('code', null, 'ringctl doctor'),
            state.nodes.length < 2 && ' says what it sees on each port.')];
    return [title, h('div', { class: 'scroll', role: 'region', 'aria-labelledby': 'cables-title', tabindex: 0 }, h('table', { class: 'cards' },
        h('thead', null, h('tr', null, heads.map((t, i) =>
            h('th', { scope: 'col', class: i > 1 && i < 6 ? 'n' : '' }, t)))),
        h('tbody', null, state.links.map(c => [cableRow(c), cableNote(c)]))))];
}
