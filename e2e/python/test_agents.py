"""What agents and their frameworks send and expect, with the SDKs against the demo."""

import enum
import io
import json
import math
import unittest
from typing import List, Literal, Optional

import anthropic
import openai
from pydantic import BaseModel, Field

from support import ASK, anthropic_client, client

QUERY = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"], "additionalProperties": False}
NAMES = ("search", "calculate", "final_answer")
CONTEXT = 262144


def function(name):
    return {"type": "function", "function": {"name": name, "parameters": QUERY}}


class Case(unittest.TestCase):
    def setUp(self):
        self.openai, self.seen = client(max_retries=0)
        self.addCleanup(self.openai.close)
        self.anthropic, _ = anthropic_client(max_retries=0)
        self.addCleanup(self.anthropic.close)


class Loops(Case):
    """An agent that may not answer itself ends with a tool of its own."""

    def test_chat(self):
        messages, called = list(ASK), []
        for _ in range(6):
            message = self.openai.chat.completions.create(
                model="small", messages=messages, tools=[function(n) for n in NAMES], tool_choice="required",
                parallel_tool_calls=False).choices[0].message
            self.assertEqual(len(message.tool_calls), 1)
            call = message.tool_calls[0]
            called.append(call.function.name)
            if called[-1] == "final_answer":
                break
            messages += [message, {"role": "tool", "tool_call_id": call.id, "content": "42"}]
        self.assertEqual(called, ["search", "final_answer"])

    def test_responses(self):
        tools = [{"type": "web_search"}] + [{"type": "function", "name": n, "parameters": QUERY, "strict": True} for n in NAMES]
        given, previous, called = "hi", None, []
        for _ in range(6):
            made = self.openai.responses.create(model="small", input=given, previous_response_id=previous, tools=tools, tool_choice="required")
            item, previous = made.output[0], made.id
            called.append(item.name)
            if called[-1] == "final_answer":
                break
            given = [{"type": "function_call_output", "call_id": item.call_id, "output": "42"}]
        self.assertEqual(called, ["search", "final_answer"])

    def test_messages(self):
        tools = [{"name": n, "input_schema": QUERY} for n in NAMES]
        messages, called = list(ASK), []
        for _ in range(6):
            answer = self.anthropic.messages.create(
                model="small", max_tokens=256, messages=messages, tools=tools, tool_choice={"type": "any"})
            use = next(b for b in answer.content if b.type == "tool_use")
            called.append(use.name)
            if called[-1] == "final_answer":
                break
            messages += [{"role": "assistant", "content": answer.content},
                         {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use.id, "content": "42"}]}]
        self.assertEqual(called, ["search", "final_answer"])

    def test_allowed_tools(self):
        allowed = {"mode": "required", "tools": [{"type": "function", "function": {"name": "calculate"}}]}
        answer = self.openai.chat.completions.create(
            model="small", messages=ASK, tools=[function(n) for n in NAMES], tool_choice={"type": "allowed_tools", "allowed_tools": allowed})
        self.assertEqual(answer.choices[0].message.tool_calls[0].function.name, "calculate")


class Ceilings(Case):
    """Agents send the most that a model may answer with every request."""

    def test_chat(self):
        messages = [{"role": "system", "content": "word " * 10000}, *ASK]
        answer = self.openai.chat.completions.create(model="small", messages=messages, max_tokens=32000, tools=[function("read")])
        self.assertEqual(answer.choices[0].finish_reason, "stop")

    def test_messages(self):
        with self.anthropic.messages.stream(model="small", max_tokens=64000, messages=ASK) as stream:
            self.assertEqual(stream.get_final_message().stop_reason, "end_turn")

    def test_a_ceiling_over_the_context(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.openai.chat.completions.create(model="small", messages=ASK, max_tokens=300000)
        self.assertEqual(caught.exception.param, "max_tokens")
        self.assertIn(f"max_tokens=300000 cannot be greater than max_model_len={CONTEXT}", caught.exception.message)

    def test_a_prompt_over_the_context(self):
        """LangChain recognizes the code, litellm OpenAI's text, Anthropic's agents Anthropic's."""
        prompt = [{"role": "user", "content": "word " * 250000}]
        with self.assertRaises(openai.BadRequestError) as caught:
            self.openai.chat.completions.create(model="small", messages=prompt)
        self.assertEqual(caught.exception.code, "context_length_exceeded")
        self.assertIn(f"This model's maximum context length is {CONTEXT} tokens", caught.exception.message)
        with self.assertRaises(anthropic.BadRequestError) as caught:
            self.anthropic.messages.create(model="small", max_tokens=9, messages=prompt)
        self.assertRegex(caught.exception.message, rf"prompt is too long: \d+ tokens > {CONTEXT} maximum")


class Unit(enum.Enum):
    celsius = "celsius"
    fahrenheit = "fahrenheit"


class Day(BaseModel):
    degrees: float = Field(gt=-5, lt=-4.99)
    kind: Literal["sun", "rain"]


class Report(BaseModel):
    city: str = Field(min_length=30, max_length=31, pattern="^[a-z]+$")
    days: List[Day] = Field(min_length=2, max_length=3)
    unit: Unit
    hours: int = Field(gt=0, lt=3)
    step: float = Field(multiple_of=0.25, ge=0.3, lt=1)
    wind: Optional[int] = Field(ge=7, le=8)


class Structured(Case):
    """The SDKs check every bound of a model after the answer came."""

    def test_chat(self):
        answer = self.openai.chat.completions.parse(model="small", messages=ASK, response_format=Report)
        self.assertIsInstance(answer.choices[0].message.parsed, Report)

    def test_responses(self):
        self.assertIsInstance(self.openai.responses.parse(model="small", input="hi", text_format=Report).output_parsed, Report)

    def test_messages(self):
        answer = self.anthropic.messages.parse(model="small", max_tokens=999, messages=ASK, output_format=Report)
        self.assertIsInstance(answer.parsed_output, Report)

    def test_messages_stream(self):
        with self.anthropic.messages.stream(model="small", max_tokens=999, messages=ASK, output_format=Report) as stream:
            self.assertIsInstance(stream.get_final_message().parsed_output, Report)

    def test_messages_with_a_schema(self):
        answer = self.anthropic.messages.create(
            model="small", max_tokens=999, messages=ASK, output_config={"format": {"type": "json_schema", "schema": QUERY}})
        self.assertEqual(set(json.loads(answer.content[0].text)), {"query"})


class Logprobs(Case):
    def check(self, entries, text, top):
        self.assertEqual("".join(e.token for e in entries), text)
        for e in entries:
            self.assertLess(e.logprob, 0)
            self.assertEqual(len(e.top_logprobs), top)
            self.assertLess(sum(math.exp(t.logprob) for t in e.top_logprobs), 1)

    def test_chat(self):
        wish = dict(model="small", messages=ASK, logprobs=True, top_logprobs=2, max_tokens=5)
        choice = self.openai.chat.completions.create(**wish).choices[0]
        self.check(choice.logprobs.content, choice.message.content, 2)
        chunks = [c.choices[0] for c in self.openai.chat.completions.create(**wish, stream=True)]
        self.check([e for c in chunks if c.logprobs for e in c.logprobs.content], "".join(c.delta.content or "" for c in chunks), 2)

    def test_completions(self):
        for stream in (False, True):
            answer = self.openai.completions.create(model="small", prompt="Once", max_tokens=4, logprobs=3, stream=stream)
            choices = [c.choices[0] for c in (answer if stream else [answer])]
            told = [c.logprobs for c in choices if c.logprobs]
            self.assertEqual("".join(t for p in told for t in p.tokens), "".join(c.text for c in choices))
            self.assertEqual([len(likely) for p in told for likely in p.top_logprobs], [3] * 4)
            self.assertEqual([o for p in told for o in p.text_offset], [0, 4, 8, 12])

    def test_responses(self):
        wish = dict(model="small", input="hi", include=["message.output_text.logprobs"], top_logprobs=1, max_output_tokens=5)
        part = self.openai.responses.create(**wish).output[0].content[0]
        self.check(part.logprobs, part.text, 1)
        deltas = [e for e in self.openai.responses.create(**wish, stream=True) if e.type == "response.output_text.delta"]
        self.check([p for e in deltas for p in e.logprobs], "".join(e.delta for e in deltas), 1)


class Transcriptions(Case):
    def ask(self, **wish):
        sound = io.BytesIO(bytes(64000))
        sound.name = "speech.wav"
        return self.openai.audio.transcriptions.create(model="small", file=sound, **wish)

    def test_usage(self):
        usage = self.ask(prompt="Ann and Bob").usage
        self.assertEqual((usage.type, usage.input_token_details.audio_tokens, usage.input_token_details.text_tokens), ("tokens", 20, 3))
        self.assertEqual((usage.input_tokens, usage.total_tokens), (23, 23 + usage.output_tokens))

    def test_verbose(self):
        heard = self.ask(response_format="verbose_json", timestamp_granularities=["word", "segment"])
        self.assertEqual((heard.duration, heard.usage.type, heard.usage.seconds), (2, "duration", 2))
        self.assertEqual((heard.segments[0].text, " ".join(w.word for w in heard.words)), (heard.text, heard.text))

    def test_subtitles(self):
        self.assertTrue(self.ask(response_format="vtt").startswith("WEBVTT\n\n00:00:00.000 --> 00:00:02.000\n"))
        self.assertTrue(self.ask(response_format="srt").startswith("1\n00:00:00,000 --> 00:00:02,000\n"))

    def test_stream(self):
        events = list(self.ask(stream=True, include=["logprobs"]))
        self.assertEqual(events[-1].type, "transcript.text.done")
        self.assertEqual("".join(e.delta for e in events[:-1]), events[-1].text)
        self.assertEqual(events[-1].usage.output_tokens, len(events[-1].logprobs))


class Background(Case):
    def test_stream_and_its_repetition(self):
        events = list(self.openai.responses.create(model="small", input="hi", background=True, stream=True, max_output_tokens=16))
        self.assertEqual([e.type for e in events[:3]], ["response.created", "response.queued", "response.in_progress"])
        self.assertEqual([e.response.status for e in events[:3]], ["queued", "queued", "in_progress"])
        self.assertEqual([e.sequence_number for e in events], list(range(len(events))))
        id = events[0].response.id
        again = list(self.openai.responses.retrieve(id, stream=True, starting_after=4))
        self.assertEqual(again, events[5:])
        self.assertEqual(self.openai.responses.retrieve(id).output_text, events[-1].response.output_text)

    def test_a_completed_response_is_not_cancelled(self):
        *_, last = self.openai.responses.create(model="small", input="hi", background=True, stream=True, max_output_tokens=1)
        with self.assertRaises(openai.BadRequestError):
            self.openai.responses.cancel(last.response.id)


if __name__ == "__main__":
    unittest.main()
