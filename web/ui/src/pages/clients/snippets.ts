import { shellQuote } from "../../lib/curl";

/** Target is the gateway that the snippets address. */
export interface Target {
  /** Base URL of the data plane without /v1, such as http://127.0.0.1:8080. */
  origin: string;
  /** Model name of the requests; auto lets the classifier select a tier. */
  model: string;
}

/** Snippet is the setup of one client. Its key comes from the environment, never from the page. */
interface Snippet {
  id: string;
  name: string;
  file: string;
  text: string;
  note?: string;
}

/** dataOrigin returns the address of the data plane as a browser of another machine reaches it. */
export function dataOrigin(listen: string, tls: boolean, page: URL): string {
  const at = listen.lastIndexOf(":");
  const port = listen.slice(at + 1);
  const host = listen.slice(0, at).replace(/^\[|\]$/g, "");
  const everywhere = host === "" || host === "0.0.0.0" || host === "::";
  const name = everywhere ? page.hostname : host.includes(":") ? `[${host}]` : host;
  return `${tls ? "https" : "http"}://${name}:${port}`;
}

const question = "Write a haiku about gateways";

/** snippets returns the setup of every client for one gateway. */
export function snippets({ origin, model }: Target): Snippet[] {
  const name = JSON.stringify(model);
  return [
    {
      id: "curl",
      name: "curl",
      file: "shell",
      text: `curl -sS ${shellQuote(`${origin}/v1/chat/completions`)} \\
  -H "Authorization: Bearer $OPENAI_API_KEY" \\
  -H 'Content-Type: application/json' \\
  -d ${shellQuote(JSON.stringify({ model, max_tokens: 100, messages: [{ role: "user", content: question }] }))}`,
    },
    {
      id: "env",
      name: "Environment",
      file: "shell",
      text: `export OPENAI_BASE_URL=${shellQuote(`${origin}/v1`)}
export OPENAI_API_KEY='tw-…'`,
      note: "OpenAI's SDKs and most tools that use them read these variables. Such an application needs no change of its code.",
    },
    {
      id: "python",
      name: "Python",
      file: "ask.py",
      text: `from openai import OpenAI

client = OpenAI(base_url="${origin}/v1")  # the key: OPENAI_API_KEY
answer = client.chat.completions.create(
    model=${name},
    max_tokens=100,
    messages=[{"role": "user", "content": "${question}"}],
    # extra_headers={"X-Model-Tier": "large", "X-Request-Priority": "batch"},
)
print(answer.choices[0].message.content)`,
    },
    {
      id: "node",
      name: "Node",
      file: "ask.mjs",
      text: `import OpenAI from "openai";

const client = new OpenAI({ baseURL: "${origin}/v1" }); // the key: OPENAI_API_KEY
const answer = await client.chat.completions.create({
  model: ${name},
  max_tokens: 100,
  messages: [{ role: "user", content: "${question}" }],
});
console.log(answer.choices[0].message.content);`,
    },
    {
      id: "go",
      name: "Go",
      file: "main.go",
      text: `package main

import (
	"context"
	"fmt"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

func main() {
	client := openai.NewClient(option.WithBaseURL("${origin}/v1")) // the key: OPENAI_API_KEY
	answer, err := client.Chat.Completions.New(context.Background(), openai.ChatCompletionNewParams{
		Model:     ${name},
		MaxTokens: openai.Int(100),
		Messages:  []openai.ChatCompletionMessageParamUnion{openai.UserMessage("${question}")},
	})
	if err != nil {
		panic(err)
	}
	fmt.Println(answer.Choices[0].Message.Content)
}`,
    },
    {
      id: "langchain",
      name: "LangChain",
      file: "ask.py",
      text: `from langchain_openai import ChatOpenAI

model = ChatOpenAI(model=${name}, base_url="${origin}/v1", max_tokens=100)  # the key: OPENAI_API_KEY
print(model.invoke("${question}").content)`,
    },
    {
      id: "codex",
      name: "Codex",
      file: "~/.codex/config.toml",
      text: `model = ${name}
model_provider = "tierway"

[model_providers.tierway]
name = "Tierway"
base_url = "${origin}/v1"
env_key = "OPENAI_API_KEY"
wire_api = "responses"`,
      note: "The tiers that Codex uses must serve responses (serves: in config.yaml).",
    },
    {
      id: "claude-code",
      name: "Claude Code",
      file: "shell",
      text: `export ANTHROPIC_BASE_URL=${shellQuote(origin)}
export ANTHROPIC_AUTH_TOKEN='tw-…'
export ANTHROPIC_MODEL=${shellQuote(model)}
claude`,
      note: "The base URL has no /v1: Anthropic's clients append /v1/messages themselves. The tiers must serve messages.",
    },
  ];
}
