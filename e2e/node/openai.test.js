// The OpenAI SDK against the demo, with its base URL and key alone.
import assert from 'node:assert/strict';
import test from 'node:test';
import OpenAI, { toFile } from 'openai';
import { apiKey, ask, baseURL, client, collect, isForecast, parameters, textOf, tool, weather, wrongKey } from './support.js';

const format = { type: 'json_schema', json_schema: { name: 'forecast', strict: true, schema: parameters } };

test('chat answers', async () => {
  const [openai, seen] = client();
  const answer = await openai.chat.completions.create({ model: 'auto', messages: ask });
  assert.ok(answer.choices[0].message.content);
  assert.equal(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens);
  assert.deepEqual(seen, [200]);
});

test('names of models lead to the tiers that serve them', async () => {
  const [openai] = client();
  for (const [asked, served] of [['small', 'demo-small-7b'], ['gpt-4o', 'demo-medium-32b'], ['demo-large-70b', 'demo-large-70b']]) {
    assert.equal((await openai.chat.completions.create({ model: asked, messages: ask, max_tokens: 2 })).model, served);
  }
});

test('a chat stream has no chunk that was not asked for', async () => {
  const [openai] = client();
  const chunks = await collect(openai.chat.completions.create({ model: 'small', messages: ask, stream: true }));
  assert.ok(chunks.every((c) => c.choices.length > 0 && !c.usage));
  assert.ok(textOf(chunks));
  assert.ok(['stop', 'length'].includes(chunks.at(-1).choices[0].finish_reason));
});

test('a chat stream ends with the usage that was asked for', async () => {
  const [openai] = client();
  const chunks = await collect(openai.chat.completions.create(
    { model: 'small', messages: ask, stream: true, max_tokens: 7, stream_options: { include_usage: true } }));
  assert.deepEqual(chunks.at(-1).choices, []);
  assert.equal(chunks.at(-1).usage.completion_tokens, 7);
});

test('the stream helper accumulates', async () => {
  const [openai] = client();
  const final = await openai.chat.completions.stream({ model: 'small', messages: ask }).finalChatCompletion();
  assert.ok(final.choices[0].message.content);
});

test('a stream can be left', async () => {
  const [openai] = client();
  for await (const chunk of await openai.chat.completions.create({ model: 'large', messages: ask, stream: true })) {
    assert.ok(chunk.choices);
    break;
  }
  assert.ok((await openai.chat.completions.create({ model: 'small', messages: ask })).choices);
});

test('many requests at once', async () => {
  const [openai, seen] = client();
  const answers = await Promise.all(Array.from({ length: 16 }, (_, i) => collect(openai.chat.completions.create(
    { model: 'small', messages: [{ role: 'user', content: `Question ${i}` }], stream: true }))));
  assert.ok(answers.every((chunks) => textOf(chunks)));
  assert.deepEqual(seen, Array(16).fill(200));
});

test('a tool is called', async () => {
  const [openai] = client();
  const answer = await openai.chat.completions.create({ model: 'auto', messages: weather, tools: [tool] });
  const call = answer.choices[0].message.tool_calls[0];
  assert.equal(answer.choices[0].finish_reason, 'tool_calls');
  assert.equal(call.function.name, 'get_weather');
  assert.ok(isForecast(call.function.arguments));
});

test('a tool call in a stream is assembled', async () => {
  const [openai] = client();
  const final = await openai.chat.completions.stream({ model: 'auto', messages: weather, tools: [tool] }).finalChatCompletion();
  const call = final.choices[0].message.tool_calls[0];
  assert.equal(call.function.name, 'get_weather');
  assert.ok(isForecast(call.function.arguments));
});

test('the tool runner comes to an end', async () => {
  const [openai] = client();
  const calls = [];
  const run = openai.chat.completions.runTools({
    model: 'small', messages: weather,
    tools: [{ type: 'function', function: { ...tool.function, parse: JSON.parse, function: (args) => { calls.push(args); return 'sunny'; } } }],
  });
  assert.ok(await run.finalContent());
  assert.equal(calls.length, 1);
});

test('structured output', async () => {
  const [openai] = client();
  const answer = await openai.chat.completions.parse({ model: 'auto', messages: ask, response_format: format });
  assert.ok(isForecast(answer.choices[0].message.content));
});

test('completions, whole and streamed', async () => {
  const [openai] = client();
  const wish = { model: 'small', prompt: 'Once upon a time', max_tokens: 6 };
  assert.equal((await openai.completions.create(wish)).usage.completion_tokens, 6);
  const chunks = await collect(openai.completions.create({ ...wish, stream: true }));
  assert.equal(chunks.at(-1).choices[0].finish_reason, 'length');
});

test('responses answer', async () => {
  const [openai] = client();
  const answer = await openai.responses.create({ model: 'auto', input: 'Say hello' });
  assert.equal(answer.status, 'completed');
  assert.ok(answer.output_text);
});

test('responses stream', async () => {
  const [openai] = client();
  const events = await collect(openai.responses.create({ model: 'small', input: 'Say hello', stream: true }));
  assert.equal(events[0].type, 'response.created');
  assert.equal(events.at(-1).type, 'response.completed');
  assert.ok(events.some((e) => e.type === 'response.output_text.delta'));
});

test('responses with structured output', async () => {
  const [openai] = client();
  const answer = await openai.responses.parse(
    { model: 'auto', input: 'Say hello', text: { format: { type: 'json_schema', name: 'forecast', strict: true, schema: parameters } } });
  assert.ok(isForecast(answer.output_text));
});

test('a response is kept, continued and deleted', async () => {
  const [openai] = client();
  const made = await openai.responses.create({ model: 'small', input: 'Say hello' });
  assert.equal((await openai.responses.retrieve(made.id)).output_text, made.output_text);
  const then = await openai.responses.create({ model: 'small', input: 'And again', previous_response_id: made.id });
  assert.equal(then.previous_response_id, made.id);
  await openai.responses.delete(made.id);
  await assert.rejects(openai.responses.retrieve(made.id), OpenAI.NotFoundError);
});

test('embeddings, decoded and as numbers', async () => {
  // Without encoding_format the SDK asks for base64 and decodes it. Vectors are
  // of length 1, which wrongly decoded ones are not.
  const [openai] = client();
  for (const more of [{}, { encoding_format: 'float' }]) {
    const answer = await openai.embeddings.create({ model: 'text-embedding-3-small', input: ['a sentence', 'another'], ...more });
    assert.deepEqual(answer.data.map((e) => e.index), [0, 1]);
    for (const { embedding } of answer.data) assert.ok(Math.abs(Math.hypot(...embedding) - 1) < 1e-4);
  }
});

test('models', async () => {
  const [openai] = client();
  const names = (await collect(openai.models.list())).map((m) => m.id);
  assert.ok(names.includes('auto') && names.includes('demo-small-7b'));
  assert.equal((await openai.models.retrieve('demo-small-7b')).id, 'demo-small-7b');
});

test('moderations', async () => {
  const [openai] = client();
  assert.equal((await openai.moderations.create({ model: 'small', input: 'I am kind' })).results.length, 1);
});

test('transcription', async () => {
  const [openai] = client();
  const file = await toFile(Buffer.alloc(2004), 'speech.wav');
  assert.match((await openai.audio.transcriptions.create({ model: 'small', file })).text, /speech\.wav holds 2004 bytes/);
});

test('speech', async () => {
  const [openai] = client();
  const sound = await openai.audio.speech.create({ model: 'small', voice: 'alloy', input: 'Hello to the whole world' });
  assert.ok((await sound.arrayBuffer()).byteLength > 512);
});

test('images, generated and edited', async () => {
  const [openai] = client();
  assert.ok((await openai.images.generate({ model: 'small', prompt: 'A red square', background: 'opaque' })).data[0].b64_json);
  const image = await toFile(Buffer.alloc(64), 'a.png', { type: 'image/png' });
  assert.ok((await openai.images.edit({ model: 'small', image, prompt: 'Make it blue' })).data[0].b64_json);
});

test('headers explain the answer', async () => {
  const [openai] = client();
  const { data, response, request_id: id } = await openai.chat.completions.create({ model: 'auto', messages: ask },
    { headers: { 'X-Model-Tier': 'LARGE', 'X-Request-ID': 'req-of-mine' } }).withResponse();
  assert.equal(response.headers.get('x-model-tier'), 'large');
  assert.match(response.headers.get('x-routed-to'), /^large-/);
  assert.equal(data.model, 'demo-large-70b');
  assert.equal(data._request_id, 'req-of-mine');
  assert.equal(id, 'req-of-mine');
});

test('a base URL without /v1 works', async () => {
  const [openai] = client({ baseURL: baseURL.replace(/\/v1$/, '') });
  assert.ok((await openai.chat.completions.create({ model: 'small', messages: ask })).choices);
});

test('a wrong key is an AuthenticationError', async () => {
  const [openai, seen] = client({ apiKey: wrongKey });
  await assert.rejects(openai.models.list(), (e) => e instanceof OpenAI.AuthenticationError && e.code === 'invalid_api_key' && !e.message.includes(apiKey));
  assert.deepEqual(seen, [401]);
});

test('an unknown model is a NotFoundError', async () => {
  const [openai, seen] = client();
  for (const stream of [false, true]) {
    await assert.rejects(openai.chat.completions.create({ model: 'nobody-serves-this', messages: ask, stream }),
      (e) => e instanceof OpenAI.NotFoundError && e.code === 'model_not_found' && e.param === 'model' && Boolean(e.requestID));
  }
  assert.deepEqual(seen, [404, 404]);
});

test('a bad value is a BadRequestError that names it', async () => {
  const [openai, seen] = client();
  await assert.rejects(openai.chat.completions.create({ model: 'small', messages: ask, max_tokens: 'many' }),
    (e) => e instanceof OpenAI.BadRequestError && e.param === 'max_tokens');
  await assert.rejects(openai.chat.completions.create({ model: 'small', messages: ask, n: 1000 }),
    (e) => e instanceof OpenAI.BadRequestError && e.param === 'n');
  assert.deepEqual(seen, [400, 400]);
});
