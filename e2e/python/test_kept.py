"""The SDKs read kept answers: as a stream what was kept whole, and the reverse. The Go driver counts the engine's requests."""

import os
import unittest
import urllib.request
from typing import NamedTuple

from support import anthropic_client, client


class Read(NamedTuple):
    """An answer as an SDK has read it."""

    id: str
    text: str
    finish: str
    prompt: int
    output: int


class Kept(unittest.TestCase):
    def check(self, seen, whole, stream):
        """Reads an answer in each form first, and then what the gateway has kept of it."""
        for order in (whole, stream), (stream, whole):
            prompt = f"Python {self.id()} {order[0].__name__}"
            with self.subTest(prompt):
                first = order[0](prompt)
                self.assertEqual(seen.headers["X-Tierway-Cache-Status"], "miss")
                self.assertTrue(first.text.startswith("Answer ") and first.finish and first.prompt and first.output, first)
                urllib.request.urlopen(os.environ["KEPT_URL"]).close()  # returns when the answer is kept
                ids = {first.id}
                for read in reversed(order):
                    kept = read(prompt)
                    self.assertEqual(seen.headers["X-Tierway-Cache-Status"], "exact-hit")
                    self.assertEqual(kept, first._replace(id=kept.id))
                    ids.add(kept.id)
                self.assertEqual(len(ids), 3)


class OpenAI(Kept):
    def setUp(self):
        self.openai, self.seen = client(max_retries=0)
        self.addCleanup(self.openai.close)

    def test_chat(self):
        def ask(prompt, **more):
            return {"model": "kept", "temperature": 0, "messages": [{"role": "user", "content": prompt}], **more}

        def read(answer):
            choice = answer.choices[0]
            return Read(answer.id, choice.message.content, choice.finish_reason, answer.usage.prompt_tokens,
                        answer.usage.completion_tokens)

        def whole(prompt):
            return read(self.openai.chat.completions.create(**ask(prompt)))

        def stream(prompt):
            with self.openai.chat.completions.stream(**ask(prompt, stream_options={"include_usage": True})) as events:
                return read(events.until_done().get_final_completion())

        self.check(self.seen, whole, stream)
        for chunk in self.openai.chat.completions.create(**ask(f"Python {self.id()} whole"), stream=True):
            self.assertTrue(chunk.choices, "a chunk without choices was not asked for")
            self.assertIsNone(chunk.usage)
        self.assertEqual(self.seen.headers["X-Tierway-Cache-Status"], "exact-hit")

    def test_completions(self):
        def ask(prompt, **more):
            return {"model": "kept", "temperature": 0, "max_tokens": 99, "prompt": prompt, **more}

        def whole(prompt):
            answer = self.openai.completions.create(**ask(prompt))
            choice = answer.choices[0]
            return Read(answer.id, choice.text, choice.finish_reason, answer.usage.prompt_tokens, answer.usage.completion_tokens)

        def stream(prompt):
            *chunks, last = self.openai.completions.create(**ask(prompt, stream=True, stream_options={"include_usage": True}))
            text = "".join(c.choices[0].text for c in chunks)
            return Read(last.id, text, chunks[-1].choices[0].finish_reason, last.usage.prompt_tokens, last.usage.completion_tokens)

        self.check(self.seen, whole, stream)

    def test_responses(self):
        def read(answer):
            return Read(answer.id, answer.output_text, answer.status, answer.usage.input_tokens, answer.usage.output_tokens)

        def whole(prompt):
            return read(self.openai.responses.create(model="kept", temperature=0, store=False, input=prompt))

        def stream(prompt):
            with self.openai.responses.stream(model="kept", temperature=0, store=False, input=prompt) as answered:
                events = list(answered)
            self.assertEqual([e.sequence_number for e in events], list(range(len(events))))
            answer = read(answered.get_final_response())
            self.assertEqual(answer.text, "".join(e.delta for e in events if e.type == "response.output_text.delta"))
            return answer

        self.check(self.seen, whole, stream)


class Anthropic(Kept):
    def test_messages(self):
        anthropic, seen = anthropic_client(max_retries=0)
        self.addCleanup(anthropic.close)

        def ask(prompt):
            return {"model": "kept", "max_tokens": 99, "messages": [{"role": "user", "content": prompt}],
                    "extra_body": {"temperature": 0}}  # this SDK has no such argument

        def read(answer):
            return Read(answer.id, answer.content[0].text, answer.stop_reason, answer.usage.input_tokens, answer.usage.output_tokens)

        def whole(prompt):
            return read(anthropic.messages.create(**ask(prompt)))

        def stream(prompt):
            with anthropic.messages.stream(**ask(prompt)) as events:
                text = "".join(events.text_stream)
                answer = read(events.get_final_message())
            self.assertEqual(answer.text, text)
            return answer

        self.check(seen, whole, stream)


if __name__ == "__main__":
    unittest.main()
