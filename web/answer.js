// SPDX-License-Identifier: MIT
// One answer of a model, as it comes: the request, its stream of events, and the clock that says how fast it was.

import { ask } from './api.js';
import { reader } from './events.js';

/** Answers under way: turn → its AbortController. */
const asked = new Map();

export const isComing = turn => asked.has(turn);

export function stop(turn) {
    asked.get(turn)?.abort();
}

function hear(turn, chunk, clock) {
    if (chunk.error)
        throw new Error(chunk.error.message || 'The model gave up.');
    const choice = chunk.choices?.[0], delta = choice?.delta;
    if (delta?.content || delta?.reasoning_content) {
        const now = performance.now();
        clock.first ??= now;
        turn.first = (clock.first - clock.asked) / 1000;
        turn.seconds = (now - clock.first) / 1000;
        turn.tokens++;
        turn.text += delta.content ?? '';
        turn.thought += delta.reasoning_content ?? '';
    }
    turn.why = choice?.finish_reason || turn.why;
    if (chunk.usage) { // parts of a text were counted, and a part may have several tokens
        turn.tokens = chunk.usage.completion_tokens;
        turn.cached = chunk.usage.prompt_tokens_details?.cached_tokens ?? 0;
        turn.prompt = chunk.usage.prompt_tokens;
    }
}

async function listen(answer, turn, clock, changed) {
    let isWhole = false;
    const lines = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    const read = reader(({ data }) => {
        if (data === '[DONE]')
            isWhole = true;
        else
            hear(turn, JSON.parse(data), clock);
    });
    for (let part = await lines.read(); !part.done; part = await lines.read()) {
        read(part.value);
        changed();
    }
    if (!isWhole)
        throw new Error('The connection to this node broke off before the end of the answer.');
}

/** Fills in the turn; resolves when it is over, whatever came of it. `request` is as OpenAI's API has it. */
export async function answerTo(request, turn, changed) {
    const control = new AbortController(), clock = { asked: performance.now(), first: null };
    Object.assign(turn, { text: '', thought: '', why: '', error: '', first: null, seconds: 0, tokens: 0, cached: 0, prompt: 0 });
    asked.set(turn, control);
    changed();
    try {
        const answer = await ask('v1/chat/completions', { ...request, stream: true, stream_options: { include_usage: true } }, control.signal);
        if (answer)
            await listen(answer, turn, clock, changed);
        else
            turn.why = 'stopped';
    } catch (e) {
        turn.why = control.signal.aborted ? 'stopped' : 'failed';
        turn.error = control.signal.aborted ? '' : e.message;
    }
    asked.delete(turn);
    changed();
}
