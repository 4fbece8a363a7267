// What agents and their frameworks send and expect, with the SDKs against the demo.
import assert from 'node:assert/strict';
import test from 'node:test';
import OpenAI, { toFile } from 'openai';
import { anthropicClient, ask, client, collect, isForecast, parameters } from './support.js';

const functions = ['search', 'calculate', 'final_answer'].map((name) => ({ type: 'function', function: { name, parameters } }));

test('an agent with tool_choice required ends with its last tool', async () => {
  const [openai] = client();
  const messages = [...ask];
  const called = [];
  while (called.length < 6 && called.at(-1) !== 'final_answer') {
    const answer = await openai.chat.completions.create({ model: 'small', messages, tools: functions, tool_choice: 'required' });
    const { message } = answer.choices[0];
    const [call] = message.tool_calls;
    called.push(call.function.name);
    messages.push(message, { role: 'tool', tool_call_id: call.id, content: '42' });
  }
  assert.deepEqual(called, ['search', 'final_answer']);
});

test('the ceilings of agents are taken', async () => {
  const [openai] = client();
  const [anthropic] = anthropicClient();
  assert.ok((await openai.chat.completions.create({ model: 'small', messages: ask, max_tokens: 32000 })).choices);
  assert.equal((await anthropic.messages.stream({ model: 'small', messages: ask, max_tokens: 64000 }).finalMessage()).stop_reason, 'end_turn');
});

test('a ceiling over the context is refused in the words of vLLM', async () => {
  const [openai] = client();
  await assert.rejects(openai.chat.completions.create({ model: 'small', messages: ask, max_completion_tokens: 300000 }),
    (e) => e instanceof OpenAI.BadRequestError && e.param === 'max_completion_tokens'
      && e.message.includes('max_completion_tokens=300000 cannot be greater than max_model_len=262144'));
});

test('messages with structured output', async () => {
  const [anthropic] = anthropicClient();
  const answer = await anthropic.messages.create({ model: 'small', max_tokens: 256, messages: ask,
    output_config: { format: { type: 'json_schema', schema: parameters } } });
  assert.ok(isForecast(answer.content[0].text));
});

test('log probabilities', async () => {
  const [openai] = client();
  const { logprobs, message } = (await openai.chat.completions.create(
    { model: 'small', messages: ask, max_tokens: 4, logprobs: true, top_logprobs: 3 })).choices[0];
  assert.equal(logprobs.content.map((t) => t.token).join(''), message.content);
  assert.ok(logprobs.content.every((t) => t.logprob < 0 && t.top_logprobs.length === 3));
});

test('transcriptions stream', async () => {
  const [openai] = client();
  const events = await collect(openai.audio.transcriptions.create(
    { model: 'small', file: await toFile(Buffer.alloc(64000), 'speech.wav'), stream: true }));
  const done = events.at(-1);
  assert.equal(done.type, 'transcript.text.done');
  assert.equal(events.slice(0, -1).map((e) => e.delta).join(''), done.text);
  assert.equal(done.usage.input_token_details.audio_tokens, 20);
});

test('a background stream is read again from its middle', async () => {
  const [openai] = client();
  const events = await collect(openai.responses.create({ model: 'small', input: 'hi', background: true, stream: true, max_output_tokens: 16 }));
  assert.deepEqual(events.slice(0, 3).map((e) => e.response.status), ['queued', 'queued', 'in_progress']);
  const again = await collect(openai.responses.retrieve(events[0].response.id, { stream: true, starting_after: 4 }));
  assert.deepEqual(again, events.slice(5));
});
