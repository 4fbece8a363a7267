// Package openai is the wire: the requests of every dialect that clients of
// inference engines speak, the streams that answer them, the usage they carry
// and the errors they expect. It knows bytes and nothing of sockets, workers or
// tenants.
package openai

// Dialect is one family of endpoints with its own request, stream and usage
// format.
type Dialect uint8

// The dialects. Other is any endpoint that passes through untouched.
const (
	Other Dialect = iota
	Chat
	Completions
	Responses
	Messages
	Embeddings
	Rerank
	Score
	Tokenize
	Moderations
	Images
	Audio
)

// dialects are the facts of each dialect.
var dialects = [...]struct {
	name        string // the word of `serves:` in config.yaml, in metrics and in records
	generates   bool   // see Generates
	unnamed     bool   // a body need not name its model
	salted      bool   // engines that take a cache_salt take it here
	prioritized bool   // vLLM's requests have a priority; Anthropic's have none there
}{
	Other:       {name: "other", unnamed: true},
	Chat:        {name: "chat", generates: true, salted: true, prioritized: true},
	Completions: {name: "completions", generates: true, salted: true, prioritized: true},
	Responses:   {name: "responses", generates: true, unnamed: true, salted: true, prioritized: true},
	Messages:    {name: "messages", generates: true, salted: true},
	Embeddings:  {name: "embeddings", salted: true, prioritized: true},
	Rerank:      {name: "rerank", unnamed: true, salted: true, prioritized: true},
	Score:       {name: "score", unnamed: true, salted: true, prioritized: true},
	Tokenize:    {name: "tokenize", unnamed: true},
	Moderations: {name: "moderations", unnamed: true},
	Images:      {name: "images", unnamed: true},
	Audio:       {name: "audio"},
}

// String returns the dialect's name as config.yaml writes it.
func (d Dialect) String() string {
	if int(d) < len(dialects) {
		return dialects[d].name
	}
	return "other"
}

// ParseDialect returns the dialect of a name in config.yaml; ok is false for a
// name that is none.
func ParseDialect(name string) (d Dialect, ok bool) {
	for d := range dialects {
		if dialects[d].name == name {
			return Dialect(d), true
		}
	}
	return Other, false
}

// Generates reports whether the answers of the dialect are generated text: they are made
// of output tokens, and their streams are read event by event and prove that they are whole.
func (d Dialect) Generates() bool { return dialects[d].generates }

// RequiresMaxTokens reports whether a request of the dialect must limit its output, so
// that the limit is there whatever the client wants.
func (d Dialect) RequiresMaxTokens() bool { return d == Messages }

// Engine is what a worker runs, as far as the wire differs between engines.
type Engine string

// The engines that a pool can name. EngineAuto is told from the answers.
const (
	EngineAuto     Engine = "auto"
	EngineVLLM     Engine = "vllm"
	EngineSGLang   Engine = "sglang"
	EngineLlamaCpp Engine = "llamacpp"
	EngineOllama   Engine = "ollama"
	EngineOpenAI   Engine = "openai"
)

// TakesCacheSalt says that the engine keeps prefixes apart by the request's
// cache_salt: vLLM for chat, completions and responses, and where its version
// has it for messages, embeddings, rerankings and scores; SGLang for chat and
// completions. Both pass over the field where they do not take it. llama.cpp and
// Ollama have no such field, and OpenAI's own API refuses what it does not know.
func (e Engine) TakesCacheSalt() bool { return e == EngineVLLM || e == EngineSGLang }

// TakesPriority says that the engine may order its queue by the request's
// priority, lower first: vLLM for chat, completions, responses, embeddings,
// rerankings and scores. Without --scheduling-policy priority it refuses every
// value but 0, or passes over it, by its version. SGLang's field of that name
// counts the other way round unless the engine is told otherwise.
func (e Engine) TakesPriority() bool { return e == EngineVLLM }
