"""Both SDKs with faulty engines. Each model is an engine with one fault, which the Go driver sets."""

import unittest

import anthropic
import openai

from support import ASK, anthropic_client, async_client, client

# What a refused request raises. A stream that broke after its status was sent
# is an APIError and none of these.
REFUSED = (openai.APIStatusError, anthropic.APIStatusError)


class OpenAI(unittest.TestCase):
    def setUp(self):
        self.openai, self.seen = client()
        self.addCleanup(self.openai.close)

    def ask(self, model, **more):
        return self.openai.chat.completions.create(model=model, messages=ASK, **more)

    def drain(self, model):
        """Reads a stream to its end; returns how many chunks came before the error."""
        chunks = 0
        with self.assertRaises(openai.APIError) as caught:
            for _ in self.ask(model, stream=True):
                chunks += 1
        self.assertNotIsInstance(caught.exception, REFUSED)
        return chunks

    def test_retry_after_is_obeyed(self):
        # An earlier retry would have got 503: the only worker is in backoff
        # for the second of its Retry-After.
        self.assertTrue(self.ask("later").choices)
        self.assertEqual(self.seen, [429, 200])

    def test_503_is_retried_when_the_engine_says(self):
        self.assertTrue(self.ask("busy").choices)
        self.assertEqual(self.seen, [503, 200])

    def test_x_should_retry_false_means_one_attempt(self):
        with self.assertRaises(openai.InternalServerError) as caught:
            self.ask("never")
        self.assertEqual(self.seen, [502])
        self.assertEqual(caught.exception.code, "worker_auth_failed")
        self.assertEqual(caught.exception.response.headers["x-should-retry"], "false")

    def test_rate_limit_error_after_the_last_retry(self):
        with self.assertRaises(openai.RateLimitError) as caught:
            self.openai.with_options(max_retries=1).chat.completions.create(model="limited", messages=ASK)
        self.assertEqual(self.seen, [429, 429])
        self.assertEqual(caught.exception.code, "rate_limit_exceeded")
        self.assertEqual(caught.exception.response.headers["retry-after"], "1")
        self.assertEqual(caught.exception.response.headers["retry-after-ms"], "1000")

    def test_a_broken_engine_is_an_internal_server_error(self):
        with self.assertRaises(openai.InternalServerError) as caught:
            self.ask("broken")
        self.assertEqual((caught.exception.code, caught.exception.status_code), ("worker_error", 502))
        self.assertEqual(self.seen[0], 502)
        self.assertEqual(set(self.seen), {502})

    def test_html_is_no_answer(self):
        with self.assertRaises(openai.InternalServerError) as caught:
            self.openai.with_options(max_retries=0).chat.completions.create(model="html", messages=ASK)
        self.assertEqual(caught.exception.code, "worker_protocol")

    def test_an_error_with_status_200_is_raised(self):
        for model in ("json-error", "empty"):
            with self.subTest(model):
                with self.assertRaises(openai.APIStatusError):
                    self.openai.with_options(max_retries=0).chat.completions.create(model=model, messages=ASK)

    def test_an_error_that_is_first_in_a_stream_becomes_a_status(self):
        with self.assertRaises(openai.BadRequestError):
            self.ask("error-first", stream=True)
        self.assertEqual(self.seen, [400])

    def test_an_error_in_a_stream_is_raised(self):
        self.assertGreater(self.drain("error-midway"), 0)

    def test_a_cut_stream_is_raised(self):
        self.assertGreater(self.drain("cut"), 0)

    def test_a_reset_stream_is_raised(self):
        self.assertGreater(self.drain("reset"), 0)

    def test_a_stream_that_ends_too_early_is_raised(self):
        self.assertGreater(self.drain("truncated"), 0)

    def test_a_truncated_responses_stream_is_raised(self):
        with self.assertRaises(openai.APIError):
            for event in self.openai.responses.create(model="truncated", input="Say hello", stream=True):
                self.assertNotEqual(event.type, "response.completed")

    def test_a_cut_answer_is_raised(self):
        with self.assertRaises(openai.APIError):
            self.openai.with_options(max_retries=0).chat.completions.create(model="cut", messages=ASK)

    def test_heartbeats_do_not_disturb(self):
        for model in ("slow", "identified"):
            chunks = list(self.ask(model, stream=True))
            self.assertTrue(all(c.choices for c in chunks), model)
            self.assertEqual(chunks[-1].choices[0].finish_reason, "stop", model)
        self.assertTrue(self.ask("slow").choices)

    def test_heartbeats_do_not_disturb_responses(self):
        for model in ("slow", "identified"):
            events = [e.type for e in self.openai.responses.create(model=model, input="Say hello", stream=True)]
            self.assertEqual((events[0], events[-1]), ("response.created", "response.completed"), model)

    def test_an_error_after_heartbeats_is_raised(self):
        with self.assertRaises(openai.APIError):
            list(self.ask("slow-error", stream=True))

    def test_a_background_response_is_cancelled(self):
        made = self.openai.responses.create(model="held", input="Say hello", background=True)
        self.assertIn(made.status, ("queued", "in_progress"))
        self.assertIn(self.openai.responses.retrieve(made.id).status, ("queued", "in_progress"))
        self.assertEqual(self.openai.responses.cancel(made.id).status, "cancelled")
        self.assertEqual(self.openai.responses.retrieve(made.id).status, "cancelled")

    def test_a_timeout_of_the_client_is_raised(self):
        with self.assertRaises(openai.APITimeoutError):
            self.openai.with_options(timeout=0.2, max_retries=0).chat.completions.create(model="held", messages=ASK)

    def test_odd_streams_arrive_whole(self):
        for model in ("crlf", "bytewise", "batched", "commented", "null-error"):
            with self.subTest(model):
                chunks = list(self.ask(model, stream=True))
                self.assertEqual(chunks[-1].choices[0].finish_reason, "stop")
                self.assertTrue("".join(c.choices[0].delta.content or "" for c in chunks))


class Async(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.openai, self.seen = async_client()
        self.addAsyncCleanup(self.openai.close)

    async def test_retry_after_is_obeyed(self):
        answer = await self.openai.chat.completions.create(model="later-async", messages=ASK)
        self.assertTrue(answer.choices)
        self.assertEqual(self.seen, [429, 200])

    async def test_broken_streams_are_raised(self):
        for model in ("error-midway", "cut", "truncated"):
            with self.subTest(model):
                with self.assertRaises(openai.APIError):
                    async for _ in await self.openai.chat.completions.create(model=model, messages=ASK, stream=True):
                        pass

    async def test_heartbeats_do_not_disturb(self):
        chunks = [c async for c in await self.openai.chat.completions.create(model="slow", messages=ASK, stream=True)]
        self.assertEqual(chunks[-1].choices[0].finish_reason, "stop")


class Anthropic(unittest.TestCase):
    def setUp(self):
        self.anthropic, self.seen = anthropic_client()
        self.addCleanup(self.anthropic.close)

    def ask(self, model, **more):
        return self.anthropic.messages.create(model=model, max_tokens=64, messages=ASK, **more)

    def test_retry_after_is_obeyed(self):
        self.assertTrue(self.ask("later-messages").content)
        self.assertEqual(self.seen, [429, 200])

    def test_x_should_retry_false_means_one_attempt(self):
        with self.assertRaises(anthropic.InternalServerError):
            self.ask("never")
        self.assertEqual(self.seen, [502])

    def test_a_broken_engine_is_an_internal_server_error(self):
        with self.assertRaises(anthropic.InternalServerError) as caught:
            self.ask("broken")
        self.assertEqual(caught.exception.body["error"]["type"], "api_error")

    def test_broken_streams_are_raised(self):
        for model in ("error-messages", "cut", "reset", "truncated"):
            with self.subTest(model):
                with self.assertRaises(anthropic.APIError):
                    for event in self.ask(model, stream=True):
                        self.assertNotEqual(event.type, "message_stop")

    def test_heartbeats_do_not_disturb(self):
        for model in ("slow", "identified"):
            events = [e.type for e in self.ask(model, stream=True)]
            self.assertEqual((events[0], events[-1]), ("message_start", "message_stop"), model)


if __name__ == "__main__":
    unittest.main()
