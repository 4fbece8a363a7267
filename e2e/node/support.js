// What the tests share: where the gateway is, and clients that count their attempts.
import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';

export const baseURL = process.env.BASE_URL; // ends in /v1
export const apiKey = process.env.API_KEY;
export const wrongKey = 'tw-wrong-' + apiKey.slice(3);
// Anthropic's SDK adds /v1 itself.
export const anthropicURL = baseURL.replace(/\/v1$/, '');

export const ask = [{ role: 'user', content: 'Say hello to the whole world' }];
export const weather = [{ role: 'user', content: 'What is the weather in Paris?' }];
export const parameters = {
  type: 'object',
  properties: { city: { type: 'string' }, days: { type: 'integer' } },
  required: ['city', 'days'],
  additionalProperties: false,
};
export const tool = { type: 'function', function: { name: 'get_weather', description: 'Tells the weather', parameters } };

// counting returns a fetch and the statuses of all answers that came over it.
function counting() {
  const seen = [];
  return [seen, async (...args) => {
    const response = await fetch(...args);
    seen.push(response.status);
    return response;
  }];
}

// client returns an OpenAI client and the statuses that it saw.
export function client(options = {}) {
  const [seen, counted] = counting();
  return [new OpenAI({ baseURL, apiKey, fetch: counted, ...options }), seen];
}

// anthropicClient returns an Anthropic client and the statuses that it saw.
export function anthropicClient(options = {}) {
  const [seen, counted] = counting();
  return [new Anthropic({ baseURL: anthropicURL, apiKey, fetch: counted, ...options }), seen];
}

// collect reads a stream to its end.
export async function collect(stream) {
  const all = [];
  for await (const item of await stream) all.push(item);
  return all;
}

export const textOf = (chunks) => chunks.map((c) => c.choices[0]?.delta?.content ?? '').join('');

// isForecast says whether a JSON text is what the parameters ask for.
export function isForecast(text) {
  const value = typeof text === 'string' ? JSON.parse(text) : text;
  return typeof value.city === 'string' && Number.isInteger(value.days);
}
