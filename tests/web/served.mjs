// SPDX-License-Identifier: MIT
//
// Clients of OpenAI's and Anthropic's API against daemons that serve a model; served.sh starts them. The model's text makes no
// sense, so what is looked at is its form, and that the same seed says the same.
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';

const require = createRequire(process.env.NODE_MODULES + '/');
const OpenAI = require('openai').default, Anthropic = require('@anthropic-ai/sdk').default;
const { ChatOpenAI } = require('@langchain/openai'), ai = require('ai'), { createOpenAI } = require('@ai-sdk/openai');
const { z } = require('zod');
const origin = process.env.ORIGIN, baseURL = origin + '/v1', apiKey = process.env.KEY, model = 'tiny', maxRetries = 0;

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

const openai = new OpenAI({ baseURL, apiKey, maxRetries }), anthropic = new Anthropic({ baseURL: origin, apiKey, maxRetries });
const messages = [{ role: 'user', content: 'In the beginning God created' }], question = { model, messages, seed: 5, max_tokens: 30 };
const city = { type: 'string', enum: ['Ur', 'Babel'] };
const parameters = { type: 'object', properties: { city }, required: ['city'], additionalProperties: false };
const tools = [{ type: 'function', function: { name: 'weather', description: 'the weather', parameters } }];
const isCall = ({ name, arguments: text }) => assert.ok(name === 'weather' && ['Ur', 'Babel'].includes(JSON.parse(text).city), name + text);

// --- openai ---

let said;
await check('openai: models', async () => {
  assert.deepEqual((await openai.models.list()).data.map(m => m.id), [model]);
  assert.equal((await openai.models.retrieve(model)).id, model);
});
await check('openai: chat', async () => {
  const answer = await openai.chat.completions.create(question);
  said = answer.choices[0].message.content;
  assert.ok(said.length > 20);
  assert.deepEqual([answer.choices[0].finish_reason, answer.usage.completion_tokens], ['length', 30]);
});
await check('openai: chat in a stream says the same', async () => {
  let text = '', usage, chunks = 0;
  for await (const chunk of await openai.chat.completions.create({ ...question, stream: true, stream_options: { include_usage: true } })) {
    text += chunk.choices[0]?.delta.content ?? '';
    usage = chunk.usage ?? usage;
    chunks++;
  }
  assert.equal(text, said);
  assert.ok(usage.completion_tokens === 30 && chunks > 10, `${usage.completion_tokens} tokens in ${chunks} chunks`);
});
await check('openai: sixteen at once say what each says alone', async () => {
  const ask = async seed => (await openai.chat.completions.create({ ...question, seed })).choices[0].message.content;
  const together = await Promise.all(Array.from({ length: 16 }, (_, seed) => ask(seed)));
  assert.equal(together[5], said);
  assert.equal(together[11], await ask(11));
});
await check('openai: a call of a tool that must be', async () => {
  const answer = await openai.chat.completions.create({ model, messages, tools, tool_choice: 'required', max_tokens: 200 });
  assert.equal(answer.choices[0].finish_reason, 'tool_calls');
  isCall(answer.choices[0].message.tool_calls[0].function);
});
await check('openai: the same in a stream', async () => {
  const choice = { type: 'function', function: { name: 'weather' } };
  const stream = openai.chat.completions.stream({ model, messages, tools, tool_choice: choice, max_tokens: 200 });
  isCall((await stream.finalChatCompletion()).choices[0].message.tool_calls[0].function);
});
await check('openai: JSON schema', async () => {
  const schema = { name: 's', strict: true, schema: parameters };
  const answer = await openai.chat.completions.parse({ model, messages, max_tokens: 200, response_format: { type: 'json_schema', json_schema: schema } });
  assert.ok(['Ur', 'Babel'].includes(answer.choices[0].message.parsed.city));
});
await check('openai: logprobs, stop, choices', async () => {
  const answer = await openai.chat.completions.create({ ...question, n: 2, logprobs: true, top_logprobs: 2 });
  assert.equal(answer.choices.length, 2);
  for (const { logprobs } of answer.choices)
    assert.ok(logprobs.content.every(t => t.logprob <= 0 && t.top_logprobs.length === 2));
  const stop = said.slice(8, 10), [cut] = (await openai.chat.completions.create({ ...question, stop })).choices;
  assert.deepEqual([cut.message.content, cut.finish_reason], [said.slice(0, said.indexOf(stop)), 'stop']);
});
await check('openai: completions and embeddings', async () => {
  const answer = await openai.completions.create({ model, prompt: 'And the', max_tokens: 5, echo: true });
  assert.ok(answer.choices[0].text.startsWith('And the') && answer.choices[0].text.length > 7);
  const { data } = await openai.embeddings.create({ model, input: ['a', 'b'] });
  const length = Math.hypot(...data[1].embedding);
  assert.ok(data.length === 2 && Math.abs(length - 1) < 1e-4, `of length ${length}`);
});
await check('openai: refusals', async () => {
  await assert.rejects(openai.chat.completions.create({ ...question, max_tokens: 5000 }), OpenAI.BadRequestError);
  await assert.rejects(openai.chat.completions.create({ ...question, model: 'none' }), OpenAI.NotFoundError);
  await assert.rejects(new OpenAI({ baseURL, apiKey: 'wrong', maxRetries }).models.list(), OpenAI.AuthenticationError);
});
await check('openai: a client that leaves keeps nobody from an answer', async () => {
  const stream = await openai.chat.completions.create({ model, messages, stream: true, max_tokens: 900 });
  for await (const chunk of stream)
    if (chunk.choices[0].delta.content)
      break; // which closes the connection
  assert.equal((await openai.chat.completions.create(question)).choices[0].message.content, said);
});

// --- @anthropic-ai/sdk ---

await check('anthropic: a message, whole and in a stream', async () => {
  const ask = { model, max_tokens: 20, messages, temperature: 0 };
  const whole = await anthropic.messages.create(ask), streamed = await anthropic.messages.stream(ask).finalMessage();
  assert.equal(whole.content[0].text, streamed.content[0].text);
  assert.deepEqual([whole.stop_reason, whole.usage.output_tokens, streamed.usage.output_tokens], ['max_tokens', 20, 20]);
  assert.equal((await anthropic.messages.countTokens({ model, messages })).input_tokens, whole.usage.input_tokens);
});
await check('anthropic: a tool', async () => {
  const answer = await anthropic.messages.stream({ model, max_tokens: 200, messages, tool_choice: { type: 'any' },
    tools: [{ name: 'weather', description: 'the weather', input_schema: parameters }] }).finalMessage();
  const use = answer.content.find(part => part.type === 'tool_use');
  assert.ok(answer.stop_reason === 'tool_use' && ['Ur', 'Babel'].includes(use.input.city));
});

// --- @langchain/openai, ai ---

await check('langchain', async () => {
  const chat = new ChatOpenAI({ model, apiKey, maxTokens: 30, maxRetries, modelKwargs: { seed: 5 }, configuration: { baseURL } });
  assert.equal((await chat.invoke(messages[0].content)).content, said);
  let text = '';
  for await (const chunk of await chat.stream(messages[0].content))
    text += chunk.content;
  assert.equal(text, said);
  const asked = new ChatOpenAI({ model, apiKey, maxTokens: 200, maxRetries, configuration: { baseURL } }).bindTools(tools, { tool_choice: 'weather' });
  assert.ok(['Ur', 'Babel'].includes((await asked.invoke('x')).tool_calls[0].args.city));
});
await check('ai with its OpenAI provider', async () => {
  const provider = createOpenAI({ baseURL, apiKey }).chat(model), prompt = messages[0].content;
  assert.equal((await ai.generateText({ model: provider, prompt, seed: 5, maxOutputTokens: 30, maxRetries })).text, said);
  let text = '';
  for await (const part of ai.streamText({ model: provider, prompt, seed: 5, maxOutputTokens: 30, maxRetries }).textStream)
    text += part;
  assert.equal(text, said);
  const { object } = await ai.generateObject({ model: provider, prompt, schema: z.object({ city: z.enum(['Ur', 'Babel']) }), maxRetries });
  assert.ok(['Ur', 'Babel'].includes(object.city));
});

console.log(`${passed} passed, ${failed} failed`);
process.exit(failed ? 1 : 0);
