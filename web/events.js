// SPDX-License-Identifier: MIT
// Server-sent events by fetch: an EventSource cannot carry what this node asks for. Goes on after the last
// event it had when the connection breaks, and gives up one that has been silent for too long.

import { authorization } from './api.js';

const AGAIN_MS = 1000, AGAIN_REFUSED_MS = 3000, SILENT_MS = 30000; // the node writes something every 10 s

/** Lines of the stream, gathered into events: fields as in the HTML standard, § 9.2.6. */
export function reader(told) {
    let rest = '', name = '', data = [], id = '';
    return text => {
        const lines = (rest + text).split(/\r\n|\r|\n/);
        rest = lines.pop();
        for (const line of lines) {
            const [, field, value] = /^([^:]*):? ?(.*)$/.exec(line);
            if (line === '') {
                if (data.length)
                    told({ name: name || 'message', data: data.join('\n'), id });
                name = '';
                data = [];
            } else if (field === 'event') {
                name = value;
            } else if (field === 'data') {
                data.push(value);
            } else if (field === 'id') {
                id = value;
            }
        }
    };
}

/** Follows `path` for as long as the page is open. `on`: {open(), lost(status), event({name, data, id})}. */
export async function follow(path, on) {
    let last = '';
    for (;;) {
        const stop = new AbortController();
        let status = 0, silence = 0;
        const heard = () => {
            clearTimeout(silence);
            silence = setTimeout(() => stop.abort(), SILENT_MS);
        };
        try {
            heard();
            const answer = await fetch(path, { headers: { ...authorization(), ...(last && { 'Last-Event-ID': last }) },
                signal: stop.signal, cache: 'no-store' });
            status = answer.status;
            if (answer.ok) {
                on.open();
                const lines = answer.body.pipeThrough(new TextDecoderStream()).getReader();
                const read = reader(event => {
                    last = event.id || last;
                    on.event(event);
                });
                for (let part = await lines.read(); !part.done; part = await lines.read()) {
                    heard();
                    read(part.value);
                }
            }
        } catch {
            // broken off, or silent: begun again below
        }
        clearTimeout(silence);
        on.lost(status);
        await new Promise(done => setTimeout(done, status && status !== 200 ? AGAIN_REFUSED_MS : AGAIN_MS));
    }
}
