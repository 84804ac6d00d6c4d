// SPDX-License-Identifier: MIT
// Requests to this node. It answers those it knows: a browser that opened the link of `ringctl dashboard` has a session, of which
// the cookie goes by itself and the key lies in localStorage, which no page of another port reads. Else there is the token, which
// is asked for when the node says it is needed, and lives in the sessionStorage of this tab.

const KEY = 'ringd-token', SESSION = 'ringd-session';

export class Refused extends Error {
    constructor(status, code, message) {
        super(message);
        this.status = status;
        this.code = code;
    }
}

export function authorization() {
    const token = sessionStorage.getItem(KEY), session = localStorage.getItem(SESSION);
    return token ? { Authorization: `Bearer ${token}` } : session ? { 'X-Ringd-Session': session } : {};
}

/** Its answer, of which only the head has come: the body is the caller's to read. */
async function send(method, path, body, signal, headers) {
    if (body !== undefined)
        headers['Content-Type'] = 'application/json';
    let answer;
    try {
        answer = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body), signal, cache: 'no-store' });
    } catch {
        throw new Refused(0, 'silent', 'This node does not answer. Is ringd running there, and the way to it open?');
    }
    if (answer.ok)
        return answer;
    const json = await answer.json().catch(() => null);
    throw new Refused(answer.status, json?.error?.code || 'unknown', json?.error?.message || `The node answered with ${answer.status}.`);
}

async function request(method, path, body, patience = 10000, headers = authorization()) {
    return (await send(method, path, body, AbortSignal.timeout(patience), headers)).json().catch(() => null);
}

function isKnown() {
    return sessionStorage.getItem(KEY) || localStorage.getItem(SESSION);
}

function forget() {
    sessionStorage.removeItem(KEY);
    localStorage.removeItem(SESSION);
}

/** Uses up the ticket of a link. Resolves to what is wrong with it, or ''. */
export async function enter(ticket) {
    try {
        const { key } = await request('POST', 'v1/session', undefined, 10000, { Authorization: `Ticket ${ticket}` });
        sessionStorage.removeItem(KEY);
        localStorage.setItem(SESSION, key);
        return '';
    } catch (e) {
        return e.message;
    }
}

let asking = null, declined = false; // several requests are refused at once: one question, and no second one after a no

export async function get(path) {
    try {
        return await request('GET', path);
    } catch (e) {
        if (e.status !== 401 || declined)
            throw e;
        forget();
        asking ??= askForToken('This node shows itself only to those it knows. `ringctl dashboard` opens this page with a link that lets you in.').finally(() => asking = null);
        declined = !await asking;
        if (declined)
            throw e;
        return request('GET', path);
    }
}

/** False: the reader would rather not. */
function askForToken(why) {
    const dialog = document.getElementById('ask'), field = document.getElementById('ask-token');
    document.getElementById('ask-why').textContent = why;
    field.value = '';
    dialog.returnValue = '';
    dialog.showModal();
    return new Promise(done => dialog.addEventListener('close', () => {
        const ok = dialog.returnValue === 'ok' && field.value.trim() !== '';
        if (ok)
            sessionStorage.setItem(KEY, field.value.trim());
        field.value = '';
        done(ok);
    }, { once: true }));
}

/** Changes something. Null: the reader would not say who they are. */
export function change(method, path, body, patience) {
    return asKnown(() => request(method, path, body, patience));
}

/** Asks a model, and resolves when its answer begins: a Response, whose body streams. Null: as above. */
export function ask(path, body, signal) {
    return asKnown(() => send('POST', path, body, signal, authorization()));
}

/** Asks for the token first where there is none yet, and again when it was the wrong one. */
async function asKnown(attempt) {
    let asked = false;
    if (!isKnown()) {
        if (!await askForToken('The node does not know this browser yet. `ringctl dashboard` opens this page with a link that lets you in.'))
            return null;
        asked = true;
    }
    for (;;) {
        try {
            return await attempt();
        } catch (e) {
            if (e.code !== 'forbidden')
                throw e;
            forget();
            if (!await askForToken(asked ? 'The node did not take that one: `ringctl token` prints it there.' :
                'The node no longer knows this browser: `ringctl dashboard` opens this page with a link that lets you in.'))
                return null;
            asked = true;
        }
    }
}
