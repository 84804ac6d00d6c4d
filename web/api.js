// SPDX-License-Identifier: MIT
// Requests to this node. They carry the token where this tab has one, which lives in its sessionStorage and is asked for when the
// node says it is needed: to change something, and on a port that others reach also to look.

const KEY = 'ringd-token';

export class Refused extends Error {
    constructor(status, code, message) {
        super(message);
        this.status = status;
        this.code = code;
    }
}

export function authorization() {
    const token = sessionStorage.getItem(KEY);
    return token ? { Authorization: `Bearer ${token}` } : {};
}

async function request(method, path, body, patience = 10000) {
    const headers = authorization();
    if (body !== undefined)
        headers['Content-Type'] = 'application/json';
    let answer;
    try {
        answer = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body),
            signal: AbortSignal.timeout(patience), cache: 'no-store' });
    } catch {
        throw new Refused(0, 'silent', 'This node does not answer. Is ringd running there, and the way to it open?');
    }
    const json = await answer.json().catch(() => null);
    if (!answer.ok)
        throw new Refused(answer.status, json?.error?.code || 'unknown', json?.error?.message || `The node answered with ${answer.status}.`);
    return json;
}

let asking = null, declined = false; // several requests are refused at once: one question, and no second one after a no

export async function get(path) {
    try {
        return await request('GET', path);
    } catch (e) {
        if (e.status !== 401 || declined)
            throw e;
        sessionStorage.removeItem(KEY);
        asking ??= askForToken('This node shows itself only to those who have its token: `ringctl token` prints it there.').finally(() => asking = null);
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

/** Changes something; asks for the token first where there is none yet, and again when it was the wrong one. */
export async function change(method, path, body, patience) {
    let asked = false;
    if (!sessionStorage.getItem(KEY)) {
        if (!await askForToken('Changing something from a browser needs it; looking does not.'))
            return null;
        asked = true;
    }
    for (;;) {
        try {
            return await request(method, path, body, patience);
        } catch (e) {
            if (e.code !== 'forbidden')
                throw e;
            sessionStorage.removeItem(KEY);
            if (!await askForToken(asked ? 'The node did not take that one: `ringctl token` prints it there.' :
                'The node no longer takes the one this tab had.'))
                return null;
            asked = true;
        }
    }
}
