package openai

import (
	"net/http"
	"slices"
	"strings"
)

// Dialect is one family of endpoints with its own request, stream and usage formats.
type Dialect uint8

// The dialects. Other is any endpoint with pass-through requests.
const (
	Other Dialect = iota
	Chat
	Completions
	Responses
	Messages
	Embeddings
	Rerank
	Score
	Pooling // vectors and classes of prompts, as vLLM serves them
	Tokenize
	Moderations
	Images
	Audio
)

// dialects are the properties of each dialect.
var dialects = [...]struct {
	name        string // name in `serves` of config.yaml, in metrics and in records
	generates   bool   // see Generates
	unnamed     bool   // the body may omit the model
	salted      bool   // engines with cache_salt support accept it here
	prioritized bool   // vLLM accepts a priority here; its Messages API does not
}{
	Other:       {name: "other", unnamed: true},
	Chat:        {name: "chat", generates: true, salted: true, prioritized: true},
	Completions: {name: "completions", generates: true, salted: true, prioritized: true},
	Responses:   {name: "responses", generates: true, unnamed: true, salted: true, prioritized: true},
	Messages:    {name: "messages", generates: true, salted: true},
	Embeddings:  {name: "embeddings", salted: true, prioritized: true},
	Rerank:      {name: "rerank", unnamed: true, salted: true, prioritized: true},
	Score:       {name: "score", unnamed: true, salted: true, prioritized: true},
	Pooling:     {name: "pooling", unnamed: true, salted: true, prioritized: true},
	Tokenize:    {name: "tokenize", unnamed: true},
	Moderations: {name: "moderations", unnamed: true},
	Images:      {name: "images", unnamed: true},
	Audio:       {name: "audio"},
}

// String returns the dialect's name in config.yaml.
func (d Dialect) String() string {
	if int(d) < len(dialects) {
		return dialects[d].name
	}
	return "other"
}

// ParseDialect returns the dialect of a name in config.yaml; ok is false for an unknown name.
func ParseDialect(name string) (d Dialect, ok bool) {
	for d := range dialects {
		if dialects[d].name == name {
			return Dialect(d), true
		}
	}
	return Other, false
}

// Generates reports whether the dialect's responses are generated text: they consist of output
// tokens, and their streams are read event by event and have a proof of completeness.
func (d Dialect) Generates() bool { return dialects[d].generates }

// RequiresMaxTokens reports whether a request of the dialect must limit its output. The limit
// then does not express a preference of the client.
func (d Dialect) RequiresMaxTokens() bool { return d == Messages }

// Engine is the software of a worker, where it affects requests and responses.
type Engine string

// The engines that a pool can name. EngineAuto is detected from responses.
const (
	EngineAuto      Engine = "auto"
	EngineVLLM      Engine = "vllm"
	EngineSGLang    Engine = "sglang"
	EngineLlamaCpp  Engine = "llamacpp"
	EngineOllama    Engine = "ollama"
	EngineOpenAI    Engine = "openai"    // a server of OpenAI's API
	EngineAnthropic Engine = "anthropic" // a server of Anthropic's API
)

// HasMetrics reports whether the engine may state its load in GET /metrics. Hosted endpoints and
// Ollama have no metrics.
func (e Engine) HasMetrics() bool {
	return e != EngineOpenAI && e != EngineOllama && e != EngineAnthropic
}

// TakesCacheSalt reports whether the engine separates prefix caches by the request's
// cache_salt. vLLM does for chat, completions and responses, and in newer versions for
// messages, embeddings, rerank and score; SGLang does for chat and completions. Both ignore the
// field elsewhere. llama.cpp and Ollama have no such field, and OpenAI's own API rejects
// unknown fields.
func (e Engine) TakesCacheSalt() bool { return e == EngineVLLM || e == EngineSGLang }

// TakesPriority reports whether the engine may order its queue by the request's priority, lower
// first. vLLM does for chat, completions, responses, embeddings, rerank and score. Without
// --scheduling-policy priority it rejects or ignores every value except 0, depending on its
// version. SGLang's field of this name has the opposite order by default.
func (e Engine) TakesPriority() bool { return e == EngineVLLM }

// ownPosts are the endpoints below ownPrefixes at which the data plane serves POST requests
// itself.
var ownPosts = [...]string{
	"/chat/completions", "/completions", "/responses", "/messages", "/messages/count_tokens", "/embeddings", "/rerank",
	"/v2/rerank", "/score", "/tokenize", "/detokenize", "/moderations", "/audio/transcriptions", "/audio/translations", "/audio/speech",
	"/images/generations", "/images/edits", "/images/variations",
}

// ownPrefixes are the prefixes of the data plane's endpoints.
var ownPrefixes = [...]string{
	"/background/v1", "/background/v1/v1", "/batch/v1", "/batch/v1/v1", "/openai/v1", "/openai", "/v1", "/v1/v1", "",
}

// OwnMethod returns the HTTP method of an exact path that the data plane serves itself, or "". Such
// requests are never passed through to a pool.
func OwnMethod(path string) string {
	if path == "/livez" || path == "/readyz" {
		return http.MethodGet
	}
	for _, prefix := range ownPrefixes {
		below, ok := strings.CutPrefix(path, prefix)
		switch {
		case !ok:
		case slices.Contains(ownPosts[:], below):
			return http.MethodPost
		case below == "/models":
			return http.MethodGet
		}
	}
	return ""
}
