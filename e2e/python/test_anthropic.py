"""The Anthropic SDK against the demo, with its base URL and key alone."""

import unittest

import anthropic

from support import ANTHROPIC_URL, API_KEY, ASK, PARAMETERS, WEATHER, anthropic_client

TOOL = {"name": "get_weather", "description": "Tells the weather", "input_schema": PARAMETERS}


class Messages(unittest.TestCase):
    def setUp(self):
        self.anthropic, self.seen = anthropic_client()
        self.addCleanup(self.anthropic.close)

    def test_answer(self):
        answer = self.anthropic.messages.create(model="claude-haiku-4", max_tokens=64, messages=ASK)
        self.assertTrue(answer.content[0].text)
        self.assertIn(answer.stop_reason, ("end_turn", "max_tokens"))
        self.assertGreater(answer.usage.output_tokens, 0)
        self.assertEqual(self.seen, [200])

    def test_system_prompt_and_bound(self):
        answer = self.anthropic.messages.create(model="small", max_tokens=4, system="Be brief.", messages=ASK)
        self.assertEqual((answer.stop_reason, answer.usage.output_tokens), ("max_tokens", 4))

    def test_stream(self):
        with self.anthropic.messages.stream(model="claude-haiku-4", max_tokens=64, messages=ASK) as stream:
            text = "".join(stream.text_stream)
            final = stream.get_final_message()
        self.assertEqual(text, final.content[0].text)
        self.assertGreater(final.usage.output_tokens, 0)

    def test_raw_stream_ends_with_message_stop(self):
        events = [e.type for e in self.anthropic.messages.create(model="small", max_tokens=8, messages=ASK, stream=True)]
        self.assertEqual((events[0], events[-1]), ("message_start", "message_stop"))

    def test_tool_use(self):
        answer = self.anthropic.messages.create(model="small", max_tokens=256, messages=WEATHER, tools=[TOOL])
        self.assertEqual(answer.stop_reason, "tool_use")
        use = next(b for b in answer.content if b.type == "tool_use")
        self.assertEqual((use.name, set(use.input)), ("get_weather", {"city", "days"}))

    def test_tool_use_in_a_stream_is_assembled(self):
        with self.anthropic.messages.stream(model="small", max_tokens=256, messages=WEATHER, tools=[TOOL]) as stream:
            final = stream.get_final_message()
        use = next(b for b in final.content if b.type == "tool_use")
        self.assertEqual(set(use.input), {"city", "days"})

    def test_count_tokens(self):
        counted = self.anthropic.messages.count_tokens(model="small", messages=ASK)
        answered = self.anthropic.messages.create(model="small", max_tokens=1, messages=ASK)
        self.assertEqual(counted.input_tokens, answered.usage.input_tokens)

    def test_models(self):
        self.assertIn("demo-small-7b", [m.id for m in self.anthropic.models.list()])
        model = self.anthropic.models.retrieve("demo-small-7b")
        self.assertEqual((model.id, model.lifecycle), ("demo-small-7b", "active"))

    def test_request_id(self):
        answer = self.anthropic.messages.create(model="small", max_tokens=8, messages=ASK, extra_headers={"X-Request-ID": "req-of-mine"})
        self.assertEqual(answer._request_id, "req-of-mine")

    def test_headers(self):
        raw = self.anthropic.messages.with_raw_response.create(model="small", max_tokens=8, messages=ASK)
        self.assertTrue(raw.headers["X-Routed-To"].startswith("small-"))
        for required in (1024, 4096):  # the SDK sends some limit with every request: it is no wish
            raw = self.anthropic.messages.with_raw_response.create(model="auto", max_tokens=required, messages=ASK)
            self.assertEqual(raw.headers["X-Model-Tier"], "small")
            # Before it, a note counts the prompts that the share of the large tier still waits for.
            self.assertRegex(raw.headers["X-Tier-Reason"], "^default; .*max_tokens not counted: the endpoint requires it$")

    def test_bearer_token(self):
        bearer = anthropic.Anthropic(base_url=ANTHROPIC_URL, auth_token=API_KEY, api_key=None)
        self.addCleanup(bearer.close)
        self.assertTrue(bearer.messages.create(model="small", max_tokens=8, messages=ASK).content)


class Errors(unittest.TestCase):
    def setUp(self):
        self.anthropic, self.seen = anthropic_client()
        self.addCleanup(self.anthropic.close)

    def test_wrong_key(self):
        with self.assertRaises(anthropic.AuthenticationError) as caught:
            self.anthropic.with_options(api_key="tw-wrong-" + API_KEY[3:]).messages.create(model="small", max_tokens=8, messages=ASK)
        self.assertEqual(caught.exception.body["error"]["type"], "authentication_error")
        self.assertEqual(self.seen, [401])

    def test_unknown_model(self):
        for ask in (lambda name: self.anthropic.messages.create(model=name, max_tokens=8, messages=ASK),
                    lambda name: self.anthropic.models.retrieve(name)):
            with self.assertRaises(anthropic.NotFoundError) as caught:
                ask("nobody-serves-this")
            self.assertEqual(caught.exception.body["error"]["type"], "not_found_error")
            self.assertTrue(caught.exception.request_id)
        self.assertEqual(self.seen, [404, 404])

    def test_bad_value(self):
        with self.assertRaises(anthropic.BadRequestError) as caught:
            self.anthropic.messages.create(model="small", max_tokens=-1, messages=ASK)
        self.assertEqual(caught.exception.body["type"], "error")

    def test_errors_of_streams_come_before_them(self):
        with self.assertRaises(anthropic.NotFoundError):
            self.anthropic.messages.create(model="nobody-serves-this", max_tokens=8, messages=ASK, stream=True)


if __name__ == "__main__":
    unittest.main()
