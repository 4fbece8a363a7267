"""The OpenAI SDK against the demo, with its base URL and key alone."""

import io
import json
import math
import unittest

import openai
from pydantic import BaseModel

from support import API_KEY, ASK, BASE_URL, PARAMETERS, TOOL, WEATHER, client


class Forecast(BaseModel):
    city: str
    days: int


def text_of(chunks):
    return "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)


class Case(unittest.TestCase):
    def setUp(self):
        self.openai, self.seen = client()
        self.addCleanup(self.openai.close)


class Chat(Case):
    def test_answer(self):
        answer = self.openai.chat.completions.create(model="auto", messages=ASK)
        self.assertTrue(answer.choices[0].message.content)
        self.assertIn(answer.choices[0].finish_reason, ("stop", "length"))
        self.assertEqual(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens)
        self.assertEqual(self.seen, [200])

    def test_names_of_models(self):
        for asked, served in (("small", "demo-small-7b"), ("gpt-4o", "demo-medium-32b"), ("demo-large-70b", "demo-large-70b")):
            with self.subTest(asked):
                self.assertEqual(self.openai.chat.completions.create(model=asked, messages=ASK, max_tokens=2).model, served)

    def test_several_choices_and_a_bound(self):
        answer = self.openai.chat.completions.create(model="small", messages=ASK, n=3, max_tokens=5)
        self.assertEqual([c.index for c in answer.choices], [0, 1, 2])
        self.assertEqual({c.finish_reason for c in answer.choices}, {"length"})
        self.assertEqual(answer.usage.completion_tokens, 15)

    def test_stream_says_what_the_whole_answer_says(self):
        whole = self.openai.chat.completions.create(model="small", messages=ASK, seed=1)
        chunks = list(self.openai.chat.completions.create(model="small", messages=ASK, seed=1, stream=True))
        self.assertGreater(len(chunks), 2)
        self.assertEqual(chunks[-1].choices[0].finish_reason, whole.choices[0].finish_reason)
        self.assertTrue(text_of(chunks))

    def test_stream_without_usage_has_no_chunk_of_the_gateway(self):
        for chunk in self.openai.chat.completions.create(model="small", messages=ASK, stream=True):
            self.assertTrue(chunk.choices, "a chunk without choices was not asked for")
            self.assertIsNone(chunk.usage)

    def test_stream_with_usage_ends_with_it(self):
        chunks = list(self.openai.chat.completions.create(
            model="small", messages=ASK, stream=True, max_tokens=7, stream_options={"include_usage": True}))
        self.assertEqual(chunks[-1].choices, [])
        self.assertEqual(chunks[-1].usage.completion_tokens, 7)
        self.assertEqual([c.usage for c in chunks[:-1]], [None] * (len(chunks) - 1))

    def test_stream_helper_accumulates(self):
        with self.openai.chat.completions.stream(model="small", messages=ASK) as stream:
            events = [e.type for e in stream]
            final = stream.get_final_completion()
        self.assertIn("content.done", events)
        self.assertTrue(final.choices[0].message.content)

    def test_a_stream_can_be_left(self):
        with self.openai.chat.completions.create(model="large", messages=ASK, stream=True) as stream:
            next(iter(stream))
        self.assertTrue(self.openai.chat.completions.create(model="small", messages=ASK).choices)

    def test_tool_call(self):
        answer = self.openai.chat.completions.create(model="auto", messages=WEATHER, tools=[TOOL], tool_choice="required")
        self.assertEqual(answer.choices[0].finish_reason, "tool_calls")
        call = answer.choices[0].message.tool_calls[0]
        self.assertEqual(call.function.name, "get_weather")
        Forecast.model_validate_json(call.function.arguments)

    def test_tool_call_in_a_stream_is_assembled(self):
        calls = {}
        for chunk in self.openai.chat.completions.create(model="auto", messages=WEATHER, tools=[TOOL], stream=True):
            for part in chunk.choices[0].delta.tool_calls or []:
                call = calls.setdefault(part.index, {"id": "", "name": "", "arguments": ""})
                call["id"] += part.id or ""
                call["name"] += part.function.name or ""
                call["arguments"] += part.function.arguments or ""
        self.assertEqual(list(calls), [0])
        self.assertEqual(calls[0]["name"], "get_weather")
        self.assertTrue(calls[0]["id"])
        Forecast.model_validate_json(calls[0]["arguments"])

    def test_tool_result_is_taken(self):
        first = self.openai.chat.completions.create(model="small", messages=WEATHER, tools=[TOOL])
        message = first.choices[0].message
        answer = self.openai.chat.completions.create(model="small", tools=[TOOL], messages=[
            *WEATHER, message, {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "sunny"}])
        self.assertEqual(answer.choices[0].finish_reason, "stop")

    def test_structured_output(self):
        answer = self.openai.chat.completions.parse(model="auto", messages=ASK, response_format=Forecast)
        self.assertIsInstance(answer.choices[0].message.parsed, Forecast)

    def test_json_object(self):
        answer = self.openai.chat.completions.create(model="small", messages=ASK, response_format={"type": "json_object"})
        json.loads(answer.choices[0].message.content)

    def test_completions(self):
        answer = self.openai.completions.create(model="small", prompt="Once upon a time", max_tokens=6)
        self.assertEqual(answer.usage.completion_tokens, 6)
        self.assertTrue(answer.choices[0].text)

    def test_completions_stream(self):
        chunks = list(self.openai.completions.create(model="small", prompt="Once upon a time", max_tokens=6, stream=True))
        self.assertTrue("".join(c.choices[0].text for c in chunks))
        self.assertEqual(chunks[-1].choices[0].finish_reason, "length")


class Responses(Case):
    def test_answer(self):
        answer = self.openai.responses.create(model="auto", input="Say hello")
        self.assertEqual(answer.status, "completed")
        self.assertTrue(answer.output_text)
        self.assertGreater(answer.usage.output_tokens, 0)

    def test_stream(self):
        events = list(self.openai.responses.create(model="small", input="Say hello", stream=True))
        self.assertEqual(events[0].type, "response.created")
        self.assertEqual(events[-1].type, "response.completed")
        text = "".join(e.delta for e in events if e.type == "response.output_text.delta")
        self.assertEqual(text, events[-1].response.output_text)
        self.assertEqual([e.sequence_number for e in events], list(range(len(events))))

    def test_stream_helper(self):
        with self.openai.responses.stream(model="small", input="Say hello") as stream:
            for _ in stream:
                pass
            self.assertTrue(stream.get_final_response().output_text)

    def test_tool_call(self):
        tool = {"type": "function", "name": "get_weather", "parameters": PARAMETERS, "strict": True}
        answer = self.openai.responses.create(model="auto", input="What is the weather in Paris?", tools=[tool])
        call = answer.output[0]
        self.assertEqual((call.type, call.name), ("function_call", "get_weather"))
        Forecast.model_validate_json(call.arguments)

    def test_structured_output(self):
        answer = self.openai.responses.parse(model="auto", input="Say hello", text_format=Forecast)
        self.assertIsInstance(answer.output_parsed, Forecast)

    def test_conversation_retrieve_and_delete(self):
        made = self.openai.responses.create(model="small", input="Say hello")
        got = self.openai.responses.retrieve(made.id)
        self.assertEqual((got.id, got.output_text), (made.id, made.output_text))
        then = self.openai.responses.create(model="small", input="And again", previous_response_id=made.id)
        self.assertEqual(then.previous_response_id, made.id)
        self.openai.responses.delete(made.id)
        with self.assertRaises(openai.NotFoundError):
            self.openai.responses.retrieve(made.id)

    def test_unknown_response(self):
        with self.assertRaises(openai.NotFoundError):
            self.openai.responses.retrieve("resp_that_nobody_made")


class Others(Case):
    def test_embeddings(self):
        # Without encoding_format the SDK asks for base64 and decodes it.
        # Vectors are of length 1, which wrongly decoded ones are not.
        for more in ({}, {"encoding_format": "float"}, {"dimensions": 64}):
            with self.subTest(more):
                answer = self.openai.embeddings.create(model="text-embedding-3-small", input=["a sentence", "another"], **more)
                self.assertEqual([e.index for e in answer.data], [0, 1])
                for e in answer.data:
                    self.assertAlmostEqual(math.hypot(*e.embedding), 1, places=4)
                    self.assertEqual(len(e.embedding), more.get("dimensions", 384))

    def test_models(self):
        names = [m.id for m in self.openai.models.list()]
        self.assertIn("auto", names)
        self.assertIn("demo-small-7b", names)
        self.assertEqual(self.openai.models.retrieve("demo-small-7b").id, "demo-small-7b")

    def test_moderations(self):
        self.assertEqual(len(self.openai.moderations.create(model="small", input="I am kind").results), 1)

    def test_transcription(self):
        sound = io.BytesIO(b"RIFF" + bytes(2000))
        sound.name = "speech.wav"
        heard = self.openai.audio.transcriptions.create(model="small", file=sound)
        self.assertIn("speech.wav holds 2004 bytes", heard.text)

    def test_speech(self):
        sound = self.openai.audio.speech.create(model="small", voice="alloy", input="Hello to the whole world")
        self.assertGreater(len(sound.content), 512)

    def test_speech_in_pieces(self):
        with self.openai.audio.speech.with_streaming_response.create(model="small", voice="alloy", input="Hello") as sound:
            self.assertEqual(sound.headers["content-type"], "audio/mpeg")
            self.assertTrue(b"".join(sound.iter_bytes()))

    def test_images(self):
        self.assertTrue(self.openai.images.generate(model="small", prompt="A small red square", n=2).data[1].b64_json)

    def test_image_with_a_transparent_background(self):
        self.assertTrue(self.openai.images.generate(model="small", prompt="A square", background="transparent").data[0].b64_json)

    def test_image_edit(self):
        picture = io.BytesIO(b"\x89PNG" + bytes(64))
        picture.name = "a.png"
        self.assertTrue(self.openai.images.edit(model="small", image=picture, prompt="Make it blue").data[0].b64_json)

    def test_base_url_without_v1(self):
        bare = self.openai.with_options(base_url=BASE_URL.removesuffix("/v1"))
        self.assertTrue(bare.chat.completions.create(model="small", messages=ASK).choices)


class Headers(Case):
    def test_routing_is_explained(self):
        raw = self.openai.chat.completions.with_raw_response.create(
            model="auto", messages=ASK, extra_headers={"X-Model-Tier": "LARGE"})
        self.assertEqual(raw.headers["X-Model-Tier"], "large")
        self.assertTrue(raw.headers["X-Routed-To"].startswith("large-"))
        for name in ("X-Tier-Reason", "X-Route-Reason", "X-Queue-Ms", "X-Request-Duration", "openai-processing-ms"):
            self.assertIn(name, raw.headers)
        self.assertEqual(raw.parse().model, "demo-large-70b")

    def test_request_id_reaches_the_answer(self):
        answer = self.openai.chat.completions.create(model="small", messages=ASK, extra_headers={"X-Request-ID": "req-of-mine"})
        self.assertEqual(answer._request_id, "req-of-mine")

    def test_stream_has_the_headers_too(self):
        raw = self.openai.chat.completions.with_raw_response.create(model="small", messages=ASK, stream=True)
        self.assertTrue(raw.headers["content-type"].startswith("text/event-stream"))
        self.assertTrue(raw.headers["X-Routed-To"].startswith("small-"))
        self.assertTrue(text_of(raw.parse()))

    def test_unknown_fields_reach_the_engine(self):
        answer = self.openai.chat.completions.create(model="small", messages=ASK, max_tokens=40, extra_body={"ignore_eos": True})
        self.assertEqual(answer.usage.completion_tokens, 40)


class Errors(Case):
    def test_wrong_key(self):
        with self.assertRaises(openai.AuthenticationError) as caught:
            self.openai.with_options(api_key="tw-wrong-" + API_KEY[3:]).chat.completions.create(model="auto", messages=ASK)
        self.assertEqual(caught.exception.code, "invalid_api_key")
        self.assertNotIn(API_KEY[3:], str(caught.exception))
        self.assertEqual(self.seen, [401])

    def test_unknown_model(self):
        with self.assertRaises(openai.NotFoundError) as caught:
            self.openai.chat.completions.create(model="nobody-serves-this", messages=ASK)
        e = caught.exception
        self.assertEqual((e.code, e.param, e.type), ("model_not_found", "model", "invalid_request_error"))
        self.assertTrue(e.request_id)
        self.assertEqual(self.seen, [404])

    def test_unknown_model_retrieved(self):
        with self.assertRaises(openai.NotFoundError):
            self.openai.models.retrieve("nobody-serves-this")

    def test_bad_value_is_named(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.openai.chat.completions.create(model="small", messages=ASK, max_tokens="many")
        self.assertEqual((caught.exception.param, caught.exception.code), ("max_tokens", "invalid_value"))
        self.assertEqual(self.seen, [400])

    def test_missing_model_is_named(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.openai.chat.completions.create(model="", messages=ASK)
        self.assertEqual(caught.exception.param, "model")

    def test_the_engine_refuses(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.openai.chat.completions.create(model="small", messages=ASK, n=1000)
        self.assertEqual(caught.exception.param, "n")
        self.assertIsNotNone(caught.exception.request_id)

    def test_errors_of_streams_come_before_them(self):
        with self.assertRaises(openai.NotFoundError):
            self.openai.chat.completions.create(model="nobody-serves-this", messages=ASK, stream=True)

    def test_unknown_url(self):
        with self.assertRaises(openai.NotFoundError) as caught:
            self.openai.batches.list()
        self.assertEqual(caught.exception.code, "unknown_url")


if __name__ == "__main__":
    unittest.main()
