// Both SDKs with faulty engines. Each model is an engine with one fault, which
// the Go driver sets.
import assert from 'node:assert/strict';
import test from 'node:test';
import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';
import { anthropicClient, ask, client, collect, textOf } from './support.js';

const chat = (openai, model, more = {}) => openai.chat.completions.create({ model, messages: ask, ...more });

// Node's fetch reports a cut body as an error of its own; all that counts is
// that the iteration does not end as if the answer were whole.
async function breaks(stream, last = 'never') {
  let seen = 0;
  await assert.rejects(async () => {
    for await (const item of await stream) {
      assert.notEqual(item.type, last);
      seen++;
    }
  }, (e) => e instanceof Error && !(e instanceof assert.AssertionError));
  return seen;
}

test('Retry-After is obeyed', async () => {
  // An earlier retry would have got 503: the only worker is in backoff for the
  // second of its Retry-After.
  const [openai, seen] = client();
  assert.ok((await chat(openai, 'later')).choices);
  assert.deepEqual(seen, [429, 200]);
});

test('503 is retried when the engine says', async () => {
  const [openai, seen] = client();
  assert.ok((await chat(openai, 'busy')).choices);
  assert.deepEqual(seen, [503, 200]);
});

test('x-should-retry: false means one attempt', async () => {
  const [openai, seen] = client();
  await assert.rejects(chat(openai, 'never'), (e) => e instanceof OpenAI.InternalServerError && e.headers.get('x-should-retry') === 'false');
  assert.deepEqual(seen, [502]);
});

test('a RateLimitError comes after the last retry', async () => {
  const [openai, seen] = client({ maxRetries: 1 });
  await assert.rejects(chat(openai, 'limited'), (e) => e instanceof OpenAI.RateLimitError && e.code === 'rate_limit_exceeded'
    && e.headers.get('retry-after') === '1' && e.headers.get('retry-after-ms') === '1000');
  assert.deepEqual(seen, [429, 429]);
});

test('a broken engine is an InternalServerError', async () => {
  const [openai] = client({ maxRetries: 0 });
  await assert.rejects(chat(openai, 'broken'), (e) => e instanceof OpenAI.InternalServerError && e.code === 'worker_error');
  await assert.rejects(chat(openai, 'html'), (e) => e instanceof OpenAI.InternalServerError && e.code === 'worker_protocol');
  await assert.rejects(chat(openai, 'cut'), (e) => e instanceof OpenAI.InternalServerError && e.code === 'worker_error');
});

test('an error that is first in a stream becomes a status', async () => {
  const [openai, seen] = client();
  await assert.rejects(chat(openai, 'error-first', { stream: true }), OpenAI.BadRequestError);
  assert.deepEqual(seen, [400]);
});

for (const model of ['error-midway', 'cut', 'reset', 'truncated']) {
  test(`a stream breaks: ${model}`, async () => {
    const [openai] = client();
    assert.ok(await breaks(chat(openai, model, { stream: true })) > 0);
    await assert.rejects(openai.chat.completions.stream({ model, messages: ask }).finalChatCompletion(), OpenAI.OpenAIError);
  });
}

test('an error in a stream is an APIError', async () => {
  const [openai] = client();
  await assert.rejects(collect(chat(openai, 'error-midway', { stream: true })), OpenAI.APIError);
  await assert.rejects(collect(chat(openai, 'truncated', { stream: true })), OpenAI.APIError);
});

test('a truncated responses stream breaks', async () => {
  const [openai] = client();
  await breaks(openai.responses.create({ model: 'truncated', input: 'Say hello', stream: true }), 'response.completed');
});

test('heartbeats do not disturb', async () => {
  const [openai] = client();
  for (const model of ['slow', 'identified']) {
    const chunks = await collect(chat(openai, model, { stream: true }));
    assert.ok(chunks.every((c) => c.choices.length > 0));
    assert.equal(chunks.at(-1).choices[0].finish_reason, 'stop');
    const events = await collect(openai.responses.create({ model, input: 'Say hello', stream: true }));
    assert.equal(events.at(-1).type, 'response.completed');
  }
});

test('an error after heartbeats is raised', async () => {
  const [openai] = client();
  await assert.rejects(collect(chat(openai, 'slow-error', { stream: true })), OpenAI.APIError);
});

test('an error with status 200 is raised', async () => {
  const [openai] = client({ maxRetries: 0 });
  for (const model of ['json-error', 'empty']) await assert.rejects(chat(openai, model), (e) => e instanceof OpenAI.APIError && e.status >= 400);
});

test('a background response is cancelled', async () => {
  const [openai] = client();
  const made = await openai.responses.create({ model: 'held', input: 'Say hello', background: true });
  assert.equal((await openai.responses.cancel(made.id)).status, 'cancelled');
  assert.equal((await openai.responses.retrieve(made.id)).status, 'cancelled');
});

test('an aborted stream ends', async () => {
  // The engine sends nothing after one token, so only the abort ends the stream.
  const [openai] = client();
  const abort = new AbortController();
  let chunks = 0;
  for await (const chunk of await openai.chat.completions.create({ model: 'held', messages: ask, stream: true }, { signal: abort.signal })) {
    assert.ok(chunk.choices);
    chunks++;
    abort.abort();
  }
  assert.ok(chunks > 0);
});

test('a timeout of the client is raised', async () => {
  const [openai] = client({ maxRetries: 0, timeout: 200 });
  await assert.rejects(chat(openai, 'held'), OpenAI.APIConnectionTimeoutError);
});

test('odd streams arrive whole', async () => {
  const [openai] = client();
  for (const model of ['crlf', 'bytewise', 'batched', 'commented', 'null-error']) {
    const chunks = await collect(chat(openai, model, { stream: true }));
    assert.equal(chunks.at(-1).choices[0].finish_reason, 'stop', model);
    assert.ok(textOf(chunks), model);
  }
});

const message = (anthropic, model, more = {}) => anthropic.messages.create({ model, max_tokens: 64, messages: ask, ...more });

test('Anthropic: Retry-After is obeyed', async () => {
  const [anthropic, seen] = anthropicClient();
  assert.ok((await message(anthropic, 'later-messages')).content);
  assert.deepEqual(seen, [429, 200]);
});

test('Anthropic: x-should-retry: false means one attempt', async () => {
  const [anthropic, seen] = anthropicClient();
  await assert.rejects(message(anthropic, 'never'), Anthropic.InternalServerError);
  assert.deepEqual(seen, [502]);
});

for (const model of ['error-messages', 'cut', 'reset', 'truncated']) {
  test(`Anthropic: a stream breaks: ${model}`, async () => {
    const [anthropic] = anthropicClient();
    await breaks(message(anthropic, model, { stream: true }), 'message_stop');
  });
}

test('Anthropic: heartbeats do not disturb', async () => {
  const [anthropic] = anthropicClient();
  for (const model of ['slow', 'identified']) {
    const events = await collect(message(anthropic, model, { stream: true }));
    assert.equal(events.at(-1).type, 'message_stop');
  }
});
