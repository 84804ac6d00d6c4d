// SPDX-License-Identifier: MIT
// The page of conversations with the models that the ring serves. A turn that is over is drawn once and left alone, so that what is
// selected in it stays selected; the one that comes is drawn as often as it takes no more than a fifth of the time.

import { answerTo, isComing, stop } from './answer.js';
import { get } from './api.js';
import { h, show } from './dom.js';
import { changed, say, servingJobs, state } from './live.js';
import { markdown } from './markdown.js';
import { allTalks, forgetTalk, isTalkKey, keepTalk, newTalk, readTalk, titleOf } from './talks.js';
import { moment, number, plural, span } from './words.js';

const CHOICES = 'ringd-chat', NEAR = 80; // pixels from the end of the page: the reader follows
const SHORT = 0.05; // seconds: too few for a rate, of what came in one piece

const open = new Map(); // talks of this visit by their id: an answer goes on while another page is read
let talk = null, list = null, models = null, modelsOf = '', trouble = '', isListShown = false;
let drawn = new Map(); // turn → {element, was}: of the talk that is shown

const by = id => document.getElementById(id);
const coming = () => talk && talk.turns.find(isComing);

/* --- models --- */

/** Asked again when a deployment comes, goes, or begins to answer. */
async function readModels() {
    const now = servingJobs().map(job => `${job.name} ${job.serves} ${job.state}`).sort().join('\n');
    if (models && modelsOf === now)
        return;
    modelsOf = now;
    try {
        models = [...new Set((await get('v1/models')).data.map(model => model.id))];
    } catch {
        models ??= [];
        modelsOf = '';
    }
    changed();
}

function drawModels() {
    const select = by('chat-model'), jobs = servingJobs(), chosen = models.includes(select.dataset.wanted) ? select.dataset.wanted : models[0];
    show(select, models.map(name => {
        const job = jobs.find(one => one.serves === name);
        return h('option', { value: name }, job && job.state !== 'running' ? `${name} (${job.state})` : name);
    }));
    select.value = chosen;
    select.disabled = models.length < 2;
}

/** The link of a deployment on the first page leads to a talk with it. */
export function chooseModel(name) {
    localStorage.setItem(CHOICES, JSON.stringify({ ...kept(), model: name }));
    if (by('chat-model'))
        by('chat-model').dataset.wanted = name;
    location.hash = '#/chat';
}

/* --- choices --- */

// name in the request, label, what counts if it is empty, step, least, most
const numbers = [
    ['temperature', 'Temperature', '1', 'any', 0, 100],
    ['top_p', 'Top p', '1', 'any', 0.000001, 1],
    ['max_completion_tokens', 'Tokens at most', 'all that fit', 1, 1, 1048576],
    ['seed', 'Seed', 'another each time', 1, 0, 9000000000000000],
];

function kept() {
    return JSON.parse(localStorage.getItem(CHOICES) || '{}');
}

function keepChoices() {
    const { elements } = by('chat-form'), choices = { model: elements.model.value || elements.model.dataset.wanted, system: elements.system.value };
    for (const [name] of numbers)
        choices[name] = elements[name].value;
    elements.model.dataset.wanted = choices.model;
    localStorage.setItem(CHOICES, JSON.stringify(choices));
}

/** What is asked for the turn: all that was said before it. */
function requestFor(turn) {
    const choices = kept(), messages = [], before = talk.turns.slice(0, talk.turns.indexOf(turn));
    if (choices.system?.trim())
        messages.push({ role: 'system', content: choices.system });
    for (const { role, text } of before)
        if (text)
            messages.push({ role, content: text });
    const request = { model: turn.model, messages };
    for (const [name] of numbers)
        if (choices[name])
            request[name] = Number(choices[name]);
    return request;
}

/* --- talking --- */

function keep(one) {
    one.at = Date.now();
    trouble = keepTalk(one) ? '' : 'This browser has no room to keep this conversation: it is gone when the page is closed.';
    list = null;
}

async function answer(turn) {
    const of = talk;
    turn.model = by('chat-model').value;
    const done = answerTo(requestFor(turn), turn, changed);
    keep(of);
    toEnd();
    await done;
    keep(of);
    say(turn.error || (turn.why === 'stopped' ? 'Stopped.' : 'The answer is complete.'));
}

function send() {
    const field = by('chat-text'), text = field.value.trim();
    if (!text || coming() || !models?.length || !by('chat-form').reportValidity())
        return;
    if (!talk.turns.length) {
        open.set(talk.id, talk);
        history.replaceState(null, '', `#/chat/${talk.id}`);
    }
    const turn = { role: 'assistant', text: '' };
    talk.turns.push({ role: 'user', text }, turn);
    field.value = '';
    fit(field);
    answer(turn);
}

/** Whoever follows what is written goes on following. */
function toEnd() {
    changed();
    requestAnimationFrame(() => scrollTo(0, document.documentElement.scrollHeight));
}

export const chatActions = {
    stop() {
        stop(coming());
    },
    again() {
        if (!coming())
            answer(talk.turns[talk.turns.length - 1]);
    },
    talks() {
        isListShown = !isListShown;
        changed();
    },
    forget({ id }) {
        open.get(id)?.turns.forEach(stop);
        open.delete(id);
        forgetTalk(id);
        list = null;
        say('Deleted.');
        if (talk?.id === id)
            location.hash = '#/chat';
        changed();
    },
    async copy(_, button) {
        const code = button.closest('.code')?.querySelector('code') || button.closest('.turn').querySelector('.written');
        const text = code.nodeName === 'CODE' ? code.textContent : talk.turns[Number(button.closest('.turn').dataset.turn)].text;
        try {
            await navigator.clipboard.writeText(text);
        } catch { // a page that came neither over TLS nor from this machine has no clipboard
            getSelection().selectAllChildren(code);
            document.execCommand('copy');
        }
        button.textContent = 'Copied';
        setTimeout(() => button.textContent = 'Copy', 1500);
    },
};

/* --- drawing: turns --- */

const endings = { length: 'Cut off: it has as many tokens as it may.', stopped: 'Stopped.', tool_calls: 'It calls a function, which nobody runs here.' };

function figures(turn) {
    if (!turn.tokens)
        return isComing(turn) ? 'waits for the first token' : '';
    const speed = turn.tokens > 1 && turn.seconds >= SHORT && `${number((turn.tokens - 1) / turn.seconds, 3)} tokens/s`;
    return [turn.first !== null && `first token after ${span(turn.first)}`, speed, plural(turn.tokens, 'token'),
        turn.cached > 0 && `${turn.cached} of ${turn.prompt} of the prompt were known`].filter(Boolean).join(' · ');
}

/** The model thinks until its answer begins. */
function thought(turn) {
    return turn.thought && h('details', { class: 'thought' }, h('summary', null, isComing(turn) && !turn.text ? 'Thinks…' : 'Thought'), h('p', { class: 'prose' }, turn.thought));
}

function drawAnswer(turn, i) {
    const comes = isComing(turn), isLast = i === talk.turns.length - 1, ending = endings[turn.why] || (!turn.why && !comes ? 'Broken off.' : '');
    return [h('p', { class: 'who' }, turn.model), thought(turn),
        h('div', { class: `written ${comes ? 'coming' : ''}` }, markdown(turn.text)),
        ending && h('p', { class: 'hint' }, ending),
        turn.error && h('p', { class: 'notice bad', role: 'alert' }, turn.error),
        h('p', { class: 'row after' }, h('span', { class: 'hint n' }, figures(turn)), !comes && turn.text && h('button', { type: 'button', class: 'quiet', 'data-do': 'copy' }, 'Copy'),
            !comes && isLast && h('button', { type: 'button', class: 'quiet', 'data-do': 'again' }, turn.error ? 'Try again' : 'Regenerate'))];
}

/** Whether it has to be drawn again, from what it shows. */
function isDrawn(d, turn, i) {
    const is = [turn.text.length, turn.thought?.length, turn.why, turn.error, turn.seconds, isComing(turn), i === talk.turns.length - 1].join();
    if (d.was === is || (isComing(turn) && performance.now() < d.next))
        return true;
    d.was = is;
    return false;
}

function drawTurn(turn, i) {
    if (!drawn.has(turn))
        drawn.set(turn, { element: h('li', { class: `turn ${turn.role}`, 'data-turn': i }), was: null, next: 0 });
    const d = drawn.get(turn), { element } = d;
    if (isDrawn(d, turn, i))
        return element;
    const from = performance.now();
    show(element, turn.role === 'user' ? h('p', { class: 'said' }, turn.text) : drawAnswer(turn, i));
    d.next = performance.now() + 5 * (performance.now() - from);
    return element;
}

function drawTurns() {
    const place = by('turns'), elements = talk.turns.map(drawTurn);
    if (elements.length !== place.children.length || elements.some((e, i) => e !== place.children[i]))
        place.replaceChildren(...elements);
}

/* --- drawing: the frame --- */

function fit(field) {
    field.style.height = 'auto';
    field.style.height = `${Math.min(field.scrollHeight + 2, innerHeight / 3)}px`;
}

function choices() {
    const was = kept();
    return h('details', { class: 'choices' }, h('summary', null, 'Choices'),
        h('div', { class: 'field' }, h('label', { for: 'chat-system' }, 'System prompt'), h('textarea', { id: 'chat-system', name: 'system', rows: 2 }, was.system || '')),
        h('div', { class: 'fields' }, numbers.map(([name, label, placeholder, step, min, max]) => h('div', { class: 'field' }, h('label', { for: `chat-${name}` }, label),
            h('input', { id: `chat-${name}`, name, type: 'number', value: was[name] || '', placeholder, step, min, max })))));
}

function frame(section) {
    show(section, h('div', { class: 'chat' },
        h('aside', { class: 'talks', 'aria-label': 'Conversations' },
            h('p', { class: 'row' }, h('a', { class: 'button', href: '#/chat' }, 'New conversation'),
                h('button', { type: 'button', class: 'quiet narrow-only', 'data-do': 'talks', id: 'talks-shown', 'aria-controls': 'talks' }, 'All')),
            h('ul', { id: 'talks' })),
        h('div', { class: 'talking' }, h('h1', { id: 'chat-title', class: 'unseen' }), h('ol', { id: 'turns', 'aria-label': 'The conversation' }), h('div', { id: 'chat-empty' }),
            h('form', { id: 'chat-form', class: 'composer' },
                h('p', { id: 'chat-trouble', class: 'notice warn', hidden: true }),
                h('label', { for: 'chat-text', class: 'unseen' }, 'Message'), h('textarea', { id: 'chat-text', rows: 1, placeholder: 'Ask something' }),
                h('div', { class: 'row' }, h('label', { for: 'chat-model', class: 'unseen' }, 'Model'), h('select', { id: 'chat-model', name: 'model', class: 'short', 'data-wanted': kept().model || '' }),
                    h('span', { class: 'hint keys-hint' }, 'Enter sends, Shift+Enter begins a line'), h('span', { id: 'chat-go' })),
                choices()))));
    const form = by('chat-form'), field = by('chat-text');
    form.addEventListener('submit', event => {
        event.preventDefault();
        send();
    });
    form.addEventListener('change', keepChoices);
    field.addEventListener('input', () => fit(field));
    field.addEventListener('keydown', event => {
        if (event.key === 'Enter' && !event.shiftKey && !event.isComposing && !matchMedia('(pointer: coarse)').matches) {
            event.preventDefault();
            send();
        }
    });
}

function drawList() {
    list ??= allTalks();
    show(by('talks'), list.map(one => h('li', { 'data-key': one.id }, h('a', { href: `#/chat/${one.id}`, 'aria-current': one.id === talk.id ? 'page' : null },
        h('span', { class: 'title' }, titleOf(one)), h('span', { class: 'hint' }, moment(one.at / 1000))),
    h('button', { type: 'button', class: 'quiet', 'data-do': 'forget', 'data-id': one.id, 'aria-label': `Delete ${titleOf(one)}`, title: 'Delete' }, '×'))));
    by('talks').classList.toggle('shown', isListShown);
    by('talks-shown').hidden = !list.length;
    by('talks-shown').setAttribute('aria-expanded', isListShown);
    show(by('talks-shown'), isListShown ? 'Hide' : plural(list.length, 'conversation'));
}

function emptyWords() {
    if (talk.turns.length)
        return null;
    if (models?.length)
        return [h('h1', null, `Talk with ${by('chat-model').value}`), h('p', { class: 'hint' }, 'The ring answers. Your conversations stay in this browser.')];
    return models && state.jobs && [h('h1', null, 'No model is served yet'), h('p', { class: 'hint' }, 'A model that is served stays loaded, and answers here and to every client of its API.'),
        h('p', { class: 'row' }, h('a', { class: 'button main', href: '#/new/serve' }, 'Serve a model'), h('code', null, 'ringctl serve --model DIR'))];
}

/** Shows the talk of that id; '' or one that is not there: a new one. */
function turnTo(id) {
    if (talk && (talk.id === id || (!id && !talk.turns.length)))
        return;
    talk = open.get(id) || readTalk(id) || newTalk();
    if (talk.turns.length)
        open.set(talk.id, talk);
    drawn = new Map();
    isListShown = false;
    list = null;
    if (talk.turns.length)
        toEnd();
}

export function drawChat(section, id) {
    if (!section.firstChild)
        frame(section);
    readModels();
    turnTo(id);
    const follows = innerHeight + scrollY >= document.documentElement.scrollHeight - NEAR, comes = !!coming();
    if (models)
        drawModels();
    drawTurns();
    drawList();
    by('chat-title').hidden = !talk.turns.length;
    show(by('chat-title'), titleOf(talk));
    show(by('chat-empty'), emptyWords());
    by('chat-form').hidden = !talk.turns.length && !models?.length;
    by('chat-trouble').hidden = !trouble;
    show(by('chat-trouble'), trouble);
    show(by('chat-go'), comes ? h('button', { type: 'button', 'data-do': 'stop' }, 'Stop') : h('button', { class: 'main', disabled: !models?.length }, 'Send'));
    if (comes && follows)
        scrollTo(0, document.documentElement.scrollHeight);
}

addEventListener('storage', event => {
    if (isTalkKey(event.key)) {
        list = null;
        changed();
    }
});
// What has come of an answer is kept when the page is closed.
addEventListener('pagehide', () => {
    for (const one of open.values())
        if (one.turns.some(isComing))
            keep(one);
});
