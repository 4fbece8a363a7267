"""What the tests share: where the gateway is, and clients that count their attempts."""

import os

import anthropic
import openai

BASE_URL = os.environ["BASE_URL"]  # ends in /v1
API_KEY = os.environ["API_KEY"]
# Anthropic's SDK adds /v1 itself.
ANTHROPIC_URL = BASE_URL.removesuffix("/v1")

ASK = [{"role": "user", "content": "Say hello to the whole world"}]
WEATHER = [{"role": "user", "content": "What is the weather in Paris?"}]
PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "get_weather", "description": "Tells the weather", "parameters": PARAMETERS}}


class Attempts(list):
    """The status of every answer that a client got, retries included, and the headers of the last one."""

    headers = None

    def note(self, response):
        self.append(response.status_code)
        self.headers = response.headers

    async def note_async(self, response):
        self.note(response)


def client(**options):
    """An OpenAI client and the statuses that it saw."""
    seen = Attempts()
    http = openai.DefaultHttpxClient(event_hooks={"response": [seen.note]})
    return openai.OpenAI(base_url=BASE_URL, api_key=API_KEY, http_client=http, **options), seen


def async_client(**options):
    """An asynchronous OpenAI client and the statuses that it saw."""
    seen = Attempts()
    http = openai.DefaultAsyncHttpxClient(event_hooks={"response": [seen.note_async]})
    return openai.AsyncOpenAI(base_url=BASE_URL, api_key=API_KEY, http_client=http, **options), seen


def anthropic_client(**options):
    """An Anthropic client and the statuses that it saw."""
    seen = Attempts()
    http = anthropic.DefaultHttpxClient(event_hooks={"response": [seen.note]})
    return anthropic.Anthropic(base_url=ANTHROPIC_URL, api_key=API_KEY, http_client=http, **options), seen
