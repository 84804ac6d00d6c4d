// SPDX-License-Identifier: MIT
// What a model writes, as elements. marked cuts the text into tokens; each kind of token that is named here becomes an element of ours,
// and everything else a text node. No HTML of the model is ever parsed, so there is nothing to sanitise, and nothing is loaded.

import { h } from './dom.js';

const DEEPEST = 40; // quotes in quotes: what lies deeper is shown as it was written
const LONGEST = 3000; // a line of more letters is no Markdown, and marked would take seconds over some of them
const entities = { amp: '&', lt: '<', gt: '>', quot: '"', apos: '\'', nbsp: '\u00a0' };

/** marked hands out texts with the special characters of HTML escaped. */
function plain(text) {
    return text.replace(/&(?:#(\d{1,7})|#x([0-9a-f]{1,6})|(amp|lt|gt|quot|apos|nbsp));/gi, (whole, decimal, hex, name) => {
        const code = name ? 0 : decimal ? Number(decimal) : parseInt(hex, 16);
        return name ? entities[name.toLowerCase()] : code > 0 && code <= 0x10ffff ? String.fromCodePoint(code) : whole;
    });
}

/** Where a link may lead: to another site or a mailbox, and nowhere on this node. */
function address(href) {
    const text = plain(href ?? '');
    return /^(https?:\/\/|mailto:)/i.test(text) && URL.canParse(text) ? text : null;
}

function link(token, content) {
    const href = address(token.href);
    return href ? h('a', { href, title: href, target: '_blank', rel: 'noopener noreferrer nofollow' }, content) : h('span', null, content);
}

const inline = {
    text: (t, deep) => t.tokens ? spans(t.tokens, deep) : plain(t.text),
    escape: t => plain(t.text),
    strong: (t, deep) => h('strong', null, spans(t.tokens, deep)),
    em: (t, deep) => h('em', null, spans(t.tokens, deep)),
    del: (t, deep) => h('del', null, spans(t.tokens, deep)),
    codespan: t => h('code', null, plain(t.text)),
    br: () => h('br'),
    link: (t, deep) => link(t, spans(t.tokens, deep)),
    image: t => link(t, t.text ? plain(t.text) : 'picture'), // a picture would be asked of another host
};

function spans(tokens, deep) {
    return tokens.map(t => deep < DEEPEST && inline[t.type] ? inline[t.type](t, deep + 1) : t.raw);
}

function code(t) {
    const language = /^[\w+#.-]{1,30}/.exec(t.lang || '')?.[0];
    return h('div', { class: 'code' }, h('div', { class: 'row spread' }, h('span', null, language || 'text'),
        h('button', { type: 'button', class: 'quiet', 'data-do': 'copy' }, 'Copy')),
    h('pre', { tabindex: 0, role: 'group', 'aria-label': `Code${language ? `, ${language}` : ''}` }, h('code', null, t.text)));
}

function item(t, deep) {
    return h('li', { class: t.task ? 'task' : null }, t.task && h('input', { type: 'checkbox', disabled: true, checked: t.checked, 'aria-label': t.checked ? 'done' : 'to do' }),
        blocks(t.tokens, deep, t.loose));
}

function table(t, deep) {
    const cell = (tag, c, i) => h(tag, { scope: tag === 'th' ? 'col' : null, css: t.align[i] ? { 'text-align': t.align[i] } : null }, spans(c.tokens, deep));
    return h('div', { class: 'scroll', role: 'region', tabindex: 0, 'aria-label': 'Table' }, h('table', null,
        h('thead', null, h('tr', null, t.header.map((c, i) => cell('th', c, i)))),
        h('tbody', null, t.rows.map(row => h('tr', null, row.map((c, i) => cell('td', c, i)))))));
}

const block = {
    space: () => null,
    def: () => null,
    code,
    table,
    hr: () => h('hr'),
    heading: (t, deep) => h(`h${Math.min(t.depth + 2, 6)}`, null, spans(t.tokens, deep)), // below the page's own
    paragraph: (t, deep) => h('p', null, spans(t.tokens, deep)),
    blockquote: (t, deep) => h('blockquote', null, blocks(t.tokens, deep, true)),
    list: (t, deep) => h(t.ordered ? 'ol' : 'ul', { start: t.ordered && t.start !== 1 ? t.start : null }, t.items.map(one => item(one, deep))),
};

/** loose: a text that stands by itself is a paragraph. */
function blocks(tokens, deep, loose) {
    return tokens.map(t => deep < DEEPEST && block[t.type] ? block[t.type](t, deep + 1) :
        t.type === 'text' && deep < DEEPEST ? (loose ? h('p', null, inline.text(t, deep + 1)) : inline.text(t, deep + 1)) : h('p', null, t.raw));
}

/** Elements for a text, which may still be growing. */
export function markdown(text) {
    try {
        return text.split('\n').some(line => line.length > LONGEST) ? [h('p', null, text)] : blocks(window.marked.lexer(`${text}\n`), 0, true); // a fence that is open yet needs whole lines
    } catch {
        return [h('p', null, text)]; // so deep that the lexer gave up
    }
}
