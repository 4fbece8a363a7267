// The SDKs read kept answers: as a stream what was kept whole, and the reverse. The Go driver counts the engine's requests.
import assert from 'node:assert/strict';
import test from 'node:test';
import { anthropicClient, client, collect } from './support.js';

// status is what the cache did with the last request of a client with these options.
let status = '';
const options = {
  maxRetries: 0,
  fetch: async (...args) => {
    const response = await fetch(...args);
    status = response.headers.get('X-Tierway-Cache-Status');
    return response;
  },
};
const [openai] = client(options);
const [anthropic] = anthropicClient(options);
const usage = { stream_options: { include_usage: true } };

const chat = (prompt) => ({ model: 'kept', temperature: 0, messages: [{ role: 'user', content: prompt }] });
const completion = (prompt) => ({ model: 'kept', temperature: 0, max_tokens: 99, prompt });
const response = (prompt) => ({ model: 'kept', temperature: 0, store: false, input: prompt });
const message = (prompt) => ({ ...chat(prompt), max_tokens: 99 });

// An answer as an SDK has read it.
const read = (id, text, finish, prompt, output) => ({ id, text, finish, prompt, output });
const ofChat = ({ id, choices: [choice], usage: used }) =>
  read(id, choice.message.content, choice.finish_reason, used.prompt_tokens, used.completion_tokens);
const ofResponse = (r) => read(r.id, r.output_text, r.status, r.usage.input_tokens, r.usage.output_tokens);
const ofMessage = (m) => read(m.id, m.content[0].text, m.stop_reason, m.usage.input_tokens, m.usage.output_tokens);

const dialects = {
  chat: {
    whole: async (prompt) => ofChat(await openai.chat.completions.create(chat(prompt))),
    stream: async (prompt) => ofChat(await openai.chat.completions.stream({ ...chat(prompt), ...usage }).finalChatCompletion()),
  },
  completions: {
    whole: async (prompt) => {
      const { id, choices: [choice], usage: used } = await openai.completions.create(completion(prompt));
      return read(id, choice.text, choice.finish_reason, used.prompt_tokens, used.completion_tokens);
    },
    stream: async (prompt) => {
      const chunks = await collect(openai.completions.create({ ...completion(prompt), ...usage, stream: true }));
      const { id, usage: used } = chunks.pop();
      const text = chunks.map((c) => c.choices[0].text).join('');
      return read(id, text, chunks.at(-1).choices[0].finish_reason, used.prompt_tokens, used.completion_tokens);
    },
  },
  responses: {
    whole: async (prompt) => ofResponse(await openai.responses.create(response(prompt))),
    stream: async (prompt) => {
      const stream = openai.responses.stream(response(prompt));
      const events = await collect(stream);
      assert.deepEqual(events.map((e) => e.sequence_number), events.map((_, i) => i));
      const deltas = events.filter((e) => e.type === 'response.output_text.delta').map((e) => e.delta).join('');
      const answer = ofResponse(await stream.finalResponse());
      assert.equal(answer.text, deltas);
      return answer;
    },
  },
  messages: {
    whole: async (prompt) => ofMessage(await anthropic.messages.create(message(prompt))),
    stream: async (prompt) => ofMessage(await anthropic.messages.stream(message(prompt)).finalMessage()),
  },
};

for (const [name, { whole, stream }] of Object.entries(dialects)) {
  for (const [form, order] of Object.entries({ whole: [whole, stream], stream: [stream, whole] })) {
    test(`${name} kept from ${form}`, async () => {
      const prompt = `Node ${name} ${form}`;
      const first = await order[0](prompt);
      assert.equal(status, 'miss');
      assert.ok(first.text.startsWith('Answer ') && first.finish && first.prompt && first.output);
      assert.ok((await fetch(process.env.KEPT_URL)).ok, 'the answer is not kept'); // returns when it is
      const ids = new Set([first.id]);
      for (const again of order.toReversed()) {
        const kept = await again(prompt);
        assert.equal(status, 'exact-hit');
        assert.deepEqual(kept, { ...first, id: kept.id });
        ids.add(kept.id);
      }
      assert.equal(ids.size, 3);
    });
  }
}

test('a kept stream has no chunk that was not asked for', async () => {
  const chunks = await collect(openai.chat.completions.create({ ...chat('Node chat whole'), stream: true }));
  assert.equal(status, 'exact-hit');
  assert.ok(chunks.every((c) => c.choices.length > 0 && !c.usage));
});
