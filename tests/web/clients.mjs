// SPDX-License-Identifier: MIT
//
// Clients of OpenAI's and Anthropic's API against the answers that tests/web/lib/answer.c makes; clients.sh starts it. The model says
// what stands behind "SAY:".
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import http from 'node:http';
import { createRequire } from 'node:module';

const require = createRequire(process.env.NODE_MODULES + '/');
const OpenAI = require('openai').default, Anthropic = require('@anthropic-ai/sdk').default;
const { ChatOpenAI } = require('@langchain/openai'), ai = require('ai'), { createOpenAI } = require('@ai-sdk/openai');
const { z } = require('zod');

// --- a server, which hands each request to a process, and its answer on in small pieces ---

const server = http.createServer((request, response) => {
  const parts = [];
  request.on('data', part => parts.push(part));
  request.on('end', () => {
    const anthropic = request.headers['anthropic-version'] ? ['anthropic'] : [];
    const format = request.headers['x-format'] ?? 'hermes';
    const done = spawnSync(process.env.ANSWER, [request.url.split('?')[0], format, ...anthropic], { input: Buffer.concat(parts) });
    const head = done.stdout.indexOf(10);
    const [status, type] = done.stdout.subarray(0, head).toString().split(' ');
    const body = done.stdout.subarray(head + 1);
    if (done.status !== 0) console.error('the answering process failed:', done.stderr.toString());
    response.writeHead(done.status === 0 ? Number(status) : 500, { 'content-type': type || 'text/plain' });
    for (let i = 0; i < body.length; i += 100) response.write(body.subarray(i, i + 100));
    response.end();
  });
});
await new Promise(resolve => server.listen(0, '127.0.0.1', resolve));
const origin = `http://127.0.0.1:${server.address().port}`, baseURL = origin + '/v1', apiKey = 'none';

let passed = 0, failed = 0;
async function check(name, what) {
  try {
    await what();
    passed++;
    console.log('ok   ' + name);
  } catch (error) {
    failed++;
    console.log('FAILED ' + name + '\n' + (error.stack ?? error));
  }
}

const openai = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
const anthropic = new Anthropic({ baseURL: origin, apiKey, maxRetries: 0 });
const model = 'tiny';
const say = text => [{ role: 'user', content: 'SAY:' + text }];
const parameters = { type: 'object', properties: { city: { type: 'string' } } };
const tools = [{ type: 'function', function: { name: 'weather', description: 'the weather', parameters } }];
const anthropicTools = [{ name: 'weather', description: 'the weather', input_schema: parameters }];
const call = '<tool_call>\n{"name": "weather", "arguments": {"city": "Zürich", "n": [1, {"a": "}"}]}}\n</tool_call>';

// --- openai ---

await check('openai: models', async () => {
  assert.equal((await openai.models.list()).data[0].id, model);
  assert.equal((await openai.models.retrieve(model)).id, model);
});
await check('openai: chat', async () => {
  const answer = await openai.chat.completions.create({ model, messages: say('Grüezi 😀') });
  assert.equal(answer.choices[0].message.content, 'Grüezi 😀');
  assert.equal(answer.choices[0].finish_reason, 'stop');
  assert.equal(answer.usage.prompt_tokens_details.cached_tokens, 4);
});
await check('openai: chat in a stream, with reasoning and usage', async () => {
  let text = '', thought = '', usage;
  const stream = await openai.chat.completions.create(
    { model, messages: say('<think>hm</think>Grüezi 😀'), stream: true, stream_options: { include_usage: true } });
  for await (const chunk of stream) {
    text += chunk.choices[0]?.delta.content ?? '';
    thought += chunk.choices[0]?.delta.reasoning_content ?? '';
    usage = chunk.usage ?? usage;
  }
  assert.deepEqual([text, thought], ['Grüezi 😀', 'hm']);
  assert.ok(usage.completion_tokens > 3);
});
await check('openai: calls of tools', async () => {
  const answer = await openai.chat.completions.create({ model, messages: say('ok' + call + call), tools });
  assert.equal(answer.choices[0].finish_reason, 'tool_calls');
  assert.equal(answer.choices[0].message.content, 'ok');
  assert.equal(JSON.parse(answer.choices[0].message.tool_calls[1].function.arguments).city, 'Zürich');
});
await check('openai: calls of tools in a stream of two answers', async () => {
  const answer = await openai.chat.completions.stream({ model, messages: say('ok' + call + call), tools, n: 2 }).finalChatCompletion();
  assert.equal(answer.choices.length, 2);
  for (const choice of answer.choices) {
    assert.equal(choice.message.tool_calls.length, 2);
    assert.equal(JSON.parse(choice.message.tool_calls[0].function.arguments).n[1].a, '}');
  }
});
for (const [format, text] of [
  ['llama3', '{"name": "weather", "parameters": {"city": "Zürich"}}'],
  ['deepseek', '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n{"city": "Zürich"}\n```' +
    '<｜tool▁call▁end｜><｜tool▁calls▁end｜>'],
])
  await check('openai: a call in a stream, as ' + format + ' writes it', async () => {
    const client = new OpenAI({ baseURL, apiKey, defaultHeaders: { 'x-format': format } });
    const answer = await client.chat.completions.stream({ model, messages: say(text), tools }).finalChatCompletion();
    const [{ function: called }] = answer.choices[0].message.tool_calls;
    assert.deepEqual([called.name, JSON.parse(called.arguments).city], ['weather', 'Zürich']);
  });
await check('openai: runTools hands the result back', async () => {
  const weather = { name: 'weather', parameters, parse: JSON.parse, function: ({ city }) => city + ': rain' };
  const run = openai.chat.completions.runTools({ model, messages: say(call), tools: [{ type: 'function', function: weather }] },
    { maxChatCompletions: 2 });
  await run.done();
  assert.ok(run.messages.some(message => message.role === 'tool' && message.content === 'Zürich: rain'));
});
await check('openai: JSON schema', async () => {
  const answer = await openai.chat.completions.parse({ model, messages: say('{"a": 1}'),
    response_format: { type: 'json_schema', json_schema: { name: 's', strict: true, schema: { type: 'object' } } } });
  assert.deepEqual(answer.choices[0].message.parsed, { a: 1 });
});
await check('openai: logprobs, stop, length', async () => {
  let [choice] = (await openai.chat.completions.create({ model, messages: say('é'), logprobs: true, top_logprobs: 1 })).choices;
  assert.deepEqual(choice.logprobs.content[0].bytes, [195, 169]);
  [choice] = (await openai.chat.completions.create({ model, messages: say('one END two'), stop: ['END'] })).choices;
  assert.deepEqual([choice.message.content, choice.finish_reason], ['one ', 'stop']);
  [choice] = (await openai.chat.completions.create({ model, messages: say('a long text'), max_completion_tokens: 1 })).choices;
  assert.equal(choice.finish_reason, 'length');
});
await check('openai: refusals', async () => {
  const image = [{ role: 'user', content: [{ type: 'image_url', image_url: { url: 'x' } }] }];
  await assert.rejects(openai.chat.completions.create({ model, messages: say('x'), temperature: -1 }),
    error => error instanceof OpenAI.BadRequestError && error.param === 'temperature');
  await assert.rejects(openai.chat.completions.create({ model, messages: image }),
    error => error.code === 'unsupported_parameter' && error.param === 'messages[0].content[0]');
});
await check('openai: completions', async () => {
  const answer = await openai.completions.create({ model, prompt: 'Grüezi', max_tokens: 50, echo: true, n: 2 });
  assert.equal(answer.choices[1].text, 'GrüeziGrüezi');
  let text = '';
  for await (const chunk of await openai.completions.create({ model, prompt: 'Grüezi', stream: true, logprobs: 1 }))
    text += chunk.choices[0]?.text ?? '';
  assert.equal(text, 'Grüezi');
});
await check('openai: embeddings', async () => {
  const answer = await openai.embeddings.create({ model, input: ['a', 'b'] }); // base64 below
  assert.deepEqual([answer.data.length, answer.data[1].embedding.length, answer.data[1].embedding[1]], [2, 8, 0.25]);
  const few = await openai.embeddings.create({ model, input: 'a', encoding_format: 'float', dimensions: 4 });
  assert.equal(few.data[0].embedding.length, 4);
});

// --- @anthropic-ai/sdk ---

await check('anthropic: models and counted tokens', async () => {
  assert.equal((await anthropic.models.list()).data[0].id, model);
  assert.equal((await anthropic.messages.countTokens({ model, messages: say('x') })).input_tokens, 17);
});
await check('anthropic: a message', async () => {
  const answer = await anthropic.messages.create({ model, max_tokens: 100, messages: say('<think>hm</think>Grüezi 😀') });
  assert.deepEqual([answer.content[0].thinking, answer.content[1].text, answer.stop_reason], ['hm', 'Grüezi 😀', 'end_turn']);
});
await check('anthropic: a stream with a tool', async () => {
  let text = '';
  const stream = anthropic.messages.stream(
    { model, max_tokens: 1000, messages: say('<think>hm</think>Grüezi 😀' + call), tools: anthropicTools });
  stream.on('text', delta => { text += delta; });
  const answer = await stream.finalMessage();
  assert.equal(text, 'Grüezi 😀');
  assert.deepEqual([answer.content[2].input.city, answer.stop_reason, answer.usage.input_tokens], ['Zürich', 'tool_use', 8]);
});
await check("anthropic: a tool's result, and a stop sequence", async () => {
  const messages = [
    { role: 'user', content: 'x' },
    { role: 'assistant', content: [{ type: 'tool_use', id: 'u', name: 'weather', input: {} }] },
    { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'u', content: 'rain' }, { type: 'text', text: 'SAY:so' }] },
  ];
  const answer = await anthropic.messages.create({ model, max_tokens: 100, messages, tools: anthropicTools, stop_sequences: ['o'] });
  assert.deepEqual([answer.content[0].text, answer.stop_reason, answer.stop_sequence], ['s', 'stop_sequence', 'o']);
});
await check('anthropic: a refusal', () => assert.rejects(anthropic.messages.create({ model, max_tokens: 0, messages: say('x') }),
  error => error instanceof Anthropic.BadRequestError && error.error.error.type === 'invalid_request_error'));

// --- @langchain/openai, ai ---

await check('langchain', async () => {
  const chat = new ChatOpenAI({ model, apiKey, configuration: { baseURL } });
  assert.equal((await chat.invoke('SAY:Grüezi')).content, 'Grüezi');
  let whole;
  for await (const chunk of await chat.bindTools(tools).stream('SAY:' + call)) whole = whole ? whole.concat(chunk) : chunk;
  assert.equal(whole.tool_calls[0].args.city, 'Zürich');
});
await check('ai with its OpenAI provider', async () => {
  const provider = createOpenAI({ baseURL, apiKey }).chat(model), maxRetries = 0;
  assert.equal((await ai.generateText({ model: provider, prompt: 'SAY:Grüezi', maxRetries })).text, 'Grüezi');
  const weather = ai.tool({ description: 'the weather', inputSchema: z.object({ city: z.string() }).passthrough() });
  const [called] = await ai.streamText({ model: provider, prompt: 'SAY:' + call, maxRetries, tools: { weather } }).toolCalls;
  assert.equal(called.input.city, 'Zürich');
  const { object } = await ai.generateObject({ model: provider, prompt: 'SAY:{"a": 1}', schema: z.object({ a: z.number() }), maxRetries });
  assert.equal(object.a, 1);
});

server.close();
console.log(`${passed} passed, ${failed} failed`);
process.exit(failed ? 1 : 0);
