// SPDX-License-Identifier: MIT
// Conversations as this browser keeps them: each under a key of its own, so that two tabs do not overwrite one another's. The oldest go
// when there is no more room. No node has them.
//
// A talk: {id, at, turns}. A turn: {role: 'user', text}, or {role: 'assistant', text, thought, model, why, error, first, seconds, tokens,
// cached}. `why` is how the answer ended, `first` the seconds to its first token, `seconds` those from there to the last one.

const PREFIX = 'ringd-talk-', KEPT = 200;

function read(key) {
    try {
        const talk = JSON.parse(localStorage.getItem(key));
        return Array.isArray(talk?.turns) && talk.turns.every(t => typeof t?.text === 'string') ? talk : null;
    } catch {
        return null;
    }
}

const keys = () => Object.keys(localStorage).filter(key => key.startsWith(PREFIX));

/** The newest first. */
export function allTalks() {
    return keys().map(read).filter(Boolean).sort((a, b) => b.at - a.at);
}

export function readTalk(id) {
    return read(PREFIX + id);
}

export function newTalk() {
    return { id: [...crypto.getRandomValues(new Uint8Array(8))].map(b => b.toString(16).padStart(2, '0')).join(''), at: Date.now(), turns: [] };
}

export function forgetTalk(id) {
    localStorage.removeItem(PREFIX + id);
}

/** False: this browser keeps nothing, or this talk alone is more than it keeps. */
export function keepTalk(talk) {
    const others = allTalks().filter(other => other.id !== talk.id);
    for (const old of others.splice(KEPT - 1))
        forgetTalk(old.id);
    for (;;) {
        try {
            localStorage.setItem(PREFIX + talk.id, JSON.stringify(talk));
            return true;
        } catch {
            if (!others.length)
                return false;
            forgetTalk(others.pop().id);
        }
    }
}

export const isTalkKey = key => key === null || key.startsWith(PREFIX);

export function titleOf(talk) {
    const text = talk.turns[0]?.text.trim().split('\n', 1)[0] || 'New conversation';
    return text.length > 80 ? `${text.slice(0, 79).trimEnd()}…` : text;
}
