"""The asynchronous OpenAI SDK against the demo, many requests at once among them."""

import asyncio
import unittest

import openai

from support import API_KEY, ASK, TOOL, WEATHER, async_client
from test_openai import Forecast, text_of


class Async(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.openai, self.seen = async_client()
        self.addAsyncCleanup(self.openai.close)

    async def test_chat(self):
        answer = await self.openai.chat.completions.create(model="auto", messages=ASK)
        self.assertTrue(answer.choices[0].message.content)

    async def test_chat_stream(self):
        stream = await self.openai.chat.completions.create(
            model="small", messages=ASK, stream=True, stream_options={"include_usage": True})
        chunks = [c async for c in stream]
        self.assertTrue(text_of(chunks))
        self.assertGreater(chunks[-1].usage.completion_tokens, 0)

    async def test_many_at_once(self):
        async def one(i):
            stream = await self.openai.chat.completions.create(
                model="small", messages=[{"role": "user", "content": f"Question {i}"}], stream=True)
            return text_of([c async for c in stream])
        answers = await asyncio.gather(*(one(i) for i in range(16)))
        self.assertTrue(all(answers))
        self.assertEqual(self.seen, [200] * 16)

    async def test_tool_call_in_a_stream(self):
        async with self.openai.chat.completions.stream(model="small", messages=WEATHER, tools=[TOOL]) as stream:
            async for _ in stream:
                pass
            final = await stream.get_final_completion()
        self.assertEqual(final.choices[0].message.tool_calls[0].function.name, "get_weather")

    async def test_structured_output(self):
        answer = await self.openai.chat.completions.parse(model="small", messages=ASK, response_format=Forecast)
        self.assertIsInstance(answer.choices[0].message.parsed, Forecast)

    async def test_embeddings(self):
        answer = await self.openai.embeddings.create(model="text-embedding-3-small", input="a sentence")
        self.assertIsInstance(answer.data[0].embedding[0], float)

    async def test_responses_stream(self):
        stream = await self.openai.responses.create(model="small", input="Say hello", stream=True)
        events = [e.type async for e in stream]
        self.assertEqual((events[0], events[-1]), ("response.created", "response.completed"))

    async def test_cancelled_task_leaves_the_client_whole(self):
        task = asyncio.create_task(self.openai.chat.completions.create(
            model="large", messages=ASK, max_tokens=2000, extra_body={"ignore_eos": True}))
        stream = await self.openai.chat.completions.create(model="small", messages=ASK, stream=True)
        async for _ in stream:  # by now the task has sent its request
            pass
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task
        self.assertTrue((await self.openai.chat.completions.create(model="small", messages=ASK)).choices)

    async def test_errors(self):
        with self.assertRaises(openai.AuthenticationError):
            await self.openai.with_options(api_key="tw-wrong-" + API_KEY[3:]).models.list()
        with self.assertRaises(openai.NotFoundError):
            await self.openai.chat.completions.create(model="nobody-serves-this", messages=ASK)
        self.assertEqual(self.seen, [401, 404])


if __name__ == "__main__":
    unittest.main()
