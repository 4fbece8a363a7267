package openai

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"
)

// RequestError is a request error that the client must correct. Message is public: it names the
// field, the problem and the correction, and never quotes a prompt. Param is the field, dotted
// if nested, or empty if the whole body is invalid. Reason is a code of the error table.
type RequestError struct {
	Reason  Code
	Param   string
	Message string
}

// Error returns the code and the public message.
func (e *RequestError) Error() string { return string(e.Reason) + ": " + e.Message }

// maxDepth is the maximum nesting of a body: no known client comes near it, and the parser of
// every engine supports it.
const maxDepth = 64

// Limits of the strings in a Request, in bytes. The body itself is kept as a whole, so these limit
// only copies.
const (
	maxModelBytes = 256 // longer than any Hugging Face path with a revision
	maxTierBytes  = 64  // values in use have at most eight
	maxIDBytes    = 512 // OpenAI's IDs have about 60
	maxSaltBytes  = 512 // vLLM advises 43 characters, 256 random bits
)

// Request holds the gateway's knowledge of one request. Parse and ParseMultipart return it; it
// does not change afterwards, except for Dialect in a form. Rarely needed data is read from the
// body on demand, by any number of goroutines: EachText, and AppendUserText, AppendSystemText
// and AppendChain of package prompt.
type Request struct {
	Dialect Dialect
	Body    []byte // as received; shared with the result of Splice
	Model   string // decoded; may be empty in some dialects
	Stream  bool

	MaxTokens int64 // largest output limit in the body; 0 if there is none
	N         int64 // number of choices; 1 if absent

	Store       bool // the body has store: true
	StoreSet    bool // the body has store: true or false
	Background  bool
	ServiceTier string

	User      string // cut to 512 bytes; empty if absent or not a string
	UserID    string // user_id, in the same form
	SessionID string // session_id, in the same form
	// SessionParamsID is session_params.session_id, in the same form.
	SessionParamsID string
	PromptCacheKey  string // prompt_cache_key, in the same form

	CacheSalt string // the client's own cache_salt; empty if absent or null

	PreviousResponseID string // Responses only
	ConversationID     string // Responses only

	// Priority is the client's own priority in the engine, lower is earlier. It is the minimum for
	// a value that parsers may read differently, such as "5", 5.0 or true.
	Priority      int64
	PriorityGiven bool // false if it is absent, null or certainly not a number

	IncludeUsage bool  // the client set stream_options.include_usage
	PromptBytes  int64 // bytes of decoded text that the model reads, without media
	Media        bool  // the prompt contains or refers to images, audio, video or files
	Tools        bool  // the request offers tools or functions

	prompts          int64 // result of countPrompts; 0 in a multipart body
	ascii, wide, ids int64 // characters and token IDs of the prompt
	place            offsets
}

// PromptTokens estimates the tokens that the model reads, rounded up: four ASCII characters per
// token, one and a half of all others, and token IDs as they are. Templates, images and audio
// are not included.
func (r *Request) PromptTokens() int64 {
	const parts = 12 // per token: an ASCII character has 3, another one 8, a token ID 12
	return r.ids + (3*r.ascii+8*r.wide+parts-1)/parts
}

// Parse reads a JSON request body in one pass. It accepts only bodies that all parsers read
// alike, so that no worker can see another request than the gateway. Unknown fields are kept.
// The request shares body, which the caller must not change afterwards. The error is always a
// *RequestError.
func Parse(d Dialect, body []byte) (*Request, error) { return parseFor(d, body, "", maxDepth) }

// ParseFor is Parse for a request whose path names the model, which replaces the body's.
func ParseFor(d Dialect, body []byte, model string) (*Request, error) {
	return parseFor(d, body, model, maxDepth)
}

// ReplaceModel makes model the request's model in place of the body's. An empty one changes nothing. A name that no
// body may have is a RequestError.
func (r *Request) ReplaceModel(model string) error {
	switch {
	case model == "":
		return nil
	case !isModelName(model):
		return badModelName(len(model))
	}
	r.place.replaced = r.place.replaced || model != r.Model
	r.Model = model
	return nil
}

// isModelName reports whether a path or a form may have the name of a model. It is written into a form as it is.
func isModelName[T string | []byte](name T) bool {
	return len(name) > 0 && len(name) <= maxModelBytes && utf8.ValidString(string(name)) &&
		strings.IndexFunc(string(name), func(r rune) bool { return r < 0x20 || r == 0x7f }) < 0
}

func badModelName(bytes int) error {
	return &RequestError{Reason: CodeInvalidValue, Param: "model", Message: fmt.Sprintf(
		"model must be a name of 1 to %d bytes in UTF-8 without control characters, not %d bytes", maxModelBytes, bytes)}
}

func parseFor(d Dialect, body []byte, model string, depth int) (*Request, error) {
	r := &Request{Dialect: d, Body: body, N: 1}
	p := parser{Reader: Reader{b: body, limit: depth, strict: true}, req: r}
	if p.readBody(); !p.bad {
		if err := r.ReplaceModel(model); err != nil {
			return nil, err
		}
		p.checkRequired()
	}
	if p.bad {
		return nil, p.fail
	}
	r.prompts = r.countPrompts()
	return r, nil
}

// parser fills one request from one body.
type parser struct {
	Reader
	req    *Request
	seen   uint64           // one bit per field
	given  uint64           // bits of fields that are not null
	onText func(raw []byte) // called with every raw text of the prompt; may be nil
}

func (p *parser) readBody() {
	if p.Next(); p.i == len(p.b) {
		p.rejectSyntax(p.i, "it is empty")
		return
	}
	p.req.place.topEmpty = p.Empty()
	p.Enter('{')
	p.req.place.top = p.i
	for p.More('}') {
		from := p.i
		name := p.Name()
		f := p.matchField(name)
		if p.readField(f); p.bad {
			p.attributeError(f)
			return
		}
		if f == FieldNone {
			p.recordEngineField(name, span{from, p.i})
		}
	}
	if p.Next(); p.i < len(p.b) {
		p.rejectSyntax(p.i, "unexpected text after the closing brace")
	}
}

// attributeError names the field in an error that a string inside it caused.
func (p *parser) attributeError(f Field) {
	if f != FieldNone && p.fail.Param == "" && p.fail.Reason == CodeInvalidValue {
		p.fail.Param, p.fail.Message = f.String(), f.String()+": "+p.fail.Message
	}
}

// matchField returns the field of a name, or FieldNone for a field that is forwarded unread. It
// rejects duplicates in any spelling, because workers differ in which value wins.
func (p *parser) matchField(name []byte) Field {
	f := fieldOf(name)
	if f == FieldNone || !f.guarded(p.req.Dialect) {
		if f = fieldOf(folded(name)); f == FieldNone || !f.guarded(p.req.Dialect) {
			return FieldNone
		}
		p.rejectCase(f.String())
		return f
	}
	if p.seen&(1<<f) != 0 {
		p.rejectDuplicate(f.String(), "")
	}
	p.seen |= 1 << f
	if p.Next() != 'n' {
		p.given |= 1 << f
	}
	return f
}

// folded returns name in lower case if that differs from name, else nil. Converting through
// upper case also maps the characters beyond ASCII that some case-insensitive comparisons treat
// as ASCII letters: ſ, ı, İ and the Kelvin sign. Names longer than all known fields are not
// folded.
func folded(name []byte) []byte {
	changes := func(c rune) bool { return 'A' <= c && c <= 'Z' || c >= utf8.RuneSelf }
	if len(name) > wordBytes || !bytes.ContainsFunc(name, changes) {
		return nil
	}
	return bytes.ToLower(bytes.ToUpper(name))
}

// rejectCase rejects a name that only a case-insensitive JSON parser takes for the field.
func (p *parser) rejectCase(param string) {
	p.reject(CodeAmbiguousJSON, param,
		"a field's name differs from %q only in case: JSON parsers disagree about whether it counts; write it exactly like this",
		param)
}

// rejectDuplicate rejects the second occurrence of a field. where is its place in the body, or "".
func (p *parser) rejectDuplicate(param, where string) {
	p.reject(CodeAmbiguousJSON, param, "duplicate field %q%s: JSON parsers disagree about which value wins; send it once",
		param, where)
}

func (p *parser) checkRequired() {
	r := p.req
	if r.Model == "" && !dialects[r.Dialect].unnamed {
		p.rejectMissing(FieldModel, "send a model or alias that GET /v1/models lists")
	}
	switch r.Dialect {
	case Chat, Messages:
		p.requireOneOf("send an array of at least one message", FieldMessages)
	case Completions:
		p.requireOneOf("send a string or an array", FieldPrompt, FieldPromptEmbeds)
	case Embeddings:
		p.requireOneOf("send a string or an array", FieldInput, FieldMessages)
	case Responses:
		p.requireOneOf("send a string or an array of items, or continue with previous_response_id",
			FieldInput, FieldPreviousResponseID, FieldPrompt, FieldConversation)
	}
}

// requireOneOf rejects a body in which all of the fields are absent or null.
func (p *parser) requireOneOf(remedy string, fields ...Field) {
	for _, f := range fields {
		if p.given&(1<<f) != 0 {
			return
		}
	}
	p.rejectMissing(fields[0], remedy)
}

func (p *parser) rejectMissing(f Field, remedy string) {
	p.reject(CodeMissingField, f.String(), "%s is missing: %s", f, remedy)
}
