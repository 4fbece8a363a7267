// The Anthropic SDK against the demo, with its base URL and key alone.
import assert from 'node:assert/strict';
import test from 'node:test';
import Anthropic from '@anthropic-ai/sdk';
import { anthropicClient, apiKey, ask, collect, isForecast, parameters, weather, wrongKey } from './support.js';

const tools = [{ name: 'get_weather', description: 'Tells the weather', input_schema: parameters }];
const wish = { model: 'small', max_tokens: 64, messages: ask };

test('messages answer', async () => {
  const [anthropic, seen] = anthropicClient();
  const answer = await anthropic.messages.create({ ...wish, model: 'claude-haiku-4', system: 'Be brief.' });
  assert.ok(answer.content[0].text);
  assert.ok(answer.usage.output_tokens > 0);
  assert.deepEqual(seen, [200]);
});

test('messages stream', async () => {
  const [anthropic] = anthropicClient();
  const events = await collect(anthropic.messages.create({ ...wish, stream: true }));
  assert.equal(events[0].type, 'message_start');
  assert.equal(events.at(-1).type, 'message_stop');
});

test('the stream helper accumulates', async () => {
  const [anthropic] = anthropicClient();
  const stream = anthropic.messages.stream(wish);
  let text = '';
  stream.on('text', (part) => { text += part; });
  const final = await stream.finalMessage();
  assert.equal(text, final.content[0].text);
  assert.ok(final.usage.output_tokens > 0);
});

test('a tool is used, whole and streamed', async () => {
  const [anthropic] = anthropicClient();
  const call = { ...wish, max_tokens: 256, messages: weather, tools };
  for (const answer of [await anthropic.messages.create(call), await anthropic.messages.stream(call).finalMessage()]) {
    assert.equal(answer.stop_reason, 'tool_use');
    assert.ok(isForecast(answer.content.find((b) => b.type === 'tool_use').input));
  }
});

test('tokens are counted as they are used', async () => {
  const [anthropic] = anthropicClient();
  const counted = await anthropic.messages.countTokens({ model: 'small', messages: ask });
  assert.equal(counted.input_tokens, (await anthropic.messages.create(wish)).usage.input_tokens);
});

test('models', async () => {
  const [anthropic] = anthropicClient();
  assert.ok((await collect(anthropic.models.list())).some((m) => m.id === 'demo-small-7b'));
});

test('the request id reaches the answer', async () => {
  const [anthropic] = anthropicClient();
  const { request_id: id } = await anthropic.messages.create(wish, { headers: { 'X-Request-ID': 'req-of-mine' } }).withResponse();
  assert.equal(id, 'req-of-mine');
});

test('errors have their classes', async () => {
  const [anthropic, seen] = anthropicClient();
  await assert.rejects(anthropic.withOptions({ apiKey: wrongKey }).messages.create(wish),
    (e) => e instanceof Anthropic.AuthenticationError && e.error.error.type === 'authentication_error' && !e.message.includes(apiKey));
  await assert.rejects(anthropic.messages.create({ ...wish, model: 'nobody-serves-this' }),
    (e) => e instanceof Anthropic.NotFoundError && e.error.error.type === 'not_found_error' && Boolean(e.requestID));
  await assert.rejects(anthropic.messages.create({ ...wish, max_tokens: -1 }), Anthropic.BadRequestError);
  assert.deepEqual(seen, [401, 404, 400]);
});
