package openai

import (
	"bytes"
	"unicode/utf8"
)

// RequestError is a request that its sender must change before anybody can
// serve it. Message is for that sender: it names the field, what is wrong with
// it and what would be right, and never quotes a prompt. Param is the field,
// with a dot before a nested one, or empty when the whole body is at fault.
// Reason is a row of the error table.
type RequestError struct {
	Reason  Code
	Param   string
	Message string
}

// Error returns the message for the client, after its code.
func (e *RequestError) Error() string { return string(e.Reason) + ": " + e.Message }

// maxDepth is how deep objects and arrays of a body may nest: no known client comes near,
// and every engine's own parser survives it.
const maxDepth = 64

// Sizes of what Parse hands out as strings. A request keeps its whole body, so
// these bound only the copies.
const (
	maxModelBytes = 256 // beyond the longest Hugging Face path with a revision
	maxTierBytes  = 64  // the values in use have at most eight
	maxIDBytes    = 512 // OpenAI's ids have about 60
	maxSaltBytes  = 512 // vLLM advises 43 characters, 256 random bits
)

// Request is what the gateway knows of one request. Parse and ParseMultipart
// make it; it is not changed afterwards, except for Dialect in a form. What few
// requests need is read from the body again when it is asked for, by as many at
// once as like: AppendUserText and AppendSystemText, AppendChain.
type Request struct {
	Dialect Dialect
	Body    []byte // as given; shared with what Splice returns
	Model   string // decoded; empty where the dialect allows that it is absent
	Stream  bool

	MaxTokens int64 // the larger of the limits on output given, 0 without any
	N         int64 // choices asked for, 1 when absent

	Store       bool // store: true was given, whatever the worker's default is
	StoreSet    bool // store was given as true or false
	Background  bool
	ServiceTier string

	User      string // cut to 512 bytes; empty when absent or not a string
	UserID    string // the body's user_id, likewise
	SessionID string // session_params.session_id, else session_id, likewise

	CacheSalt string // the client's own, as given; empty when absent, null or empty

	PreviousResponseID string // Responses only
	ConversationID     string // Responses only

	// Priority is the client's own order inside the engine, lower is earlier; the
	// least there is stands for a value that readers may take for different
	// numbers, as "5", 5.0 or true.
	Priority      int64
	PriorityGiven bool // false when it is absent, null, or no reader takes it for a number

	IncludeUsage bool  // the client asked for stream_options.include_usage
	PromptBytes  int64 // decoded text that the model reads; media is not counted
	Media        bool  // carries or refers to images, audio, video or files
	Tools        bool  // offers tools or functions

	ascii, wide, ids int64 // characters of the prompt, and token ids in it
	place            places
}

// PromptTokens estimates how many tokens the model reads: four ASCII characters
// a token, one and a half of all others, and token ids as they are, rounded up.
// Templates, images and audio are not in it.
func (r *Request) PromptTokens() int64 {
	const parts = 12 // of a token: an ASCII character is 3, another 8, an id all
	return r.ids + (3*r.ascii+8*r.wide+parts-1)/parts
}

// Parse reads the JSON body of a request in one pass. It accepts exactly what
// a strict reader accepts, so that no worker can read another request than the
// gateway decided on, and keeps fields that it does not know. Whoever calls it
// must not change body afterwards: the request shares it. The error is always a
// *RequestError.
func Parse(d Dialect, body []byte) (*Request, error) { return parse(d, body, maxDepth) }

func parse(d Dialect, body []byte, depth int) (*Request, error) {
	r := &Request{Dialect: d, Body: body, N: 1}
	p := parser{Reader: Reader{b: body, limit: depth, strict: true}, req: r}
	if p.body(); !p.bad {
		p.complete()
	}
	if p.bad {
		return nil, p.fail
	}
	return r, nil
}

// parser fills one request from one body.
type parser struct {
	Reader
	req     *Request
	seen    uint64           // a bit a field
	given   uint64           // of these, those whose value is not null
	nested  string           // session_params.session_id
	session string           // session_id
	each    func(raw []byte) // called with every text of the prompt, as written; nil: with none
}

// body reads the one object that the body is.
func (p *parser) body() {
	if p.Next(); p.i == len(p.b) {
		p.syntax(p.i, "it is empty")
		return
	}
	p.req.place.topEmpty = p.Empty()
	p.Enter('{')
	p.req.place.top = p.i
	for p.More('}') {
		from := p.i
		name := p.Name()
		f := p.field(name)
		if p.member(f); p.bad {
			p.attribute(f)
			return
		}
		if f == FieldNone {
			p.noteEngine(name, span{from, p.i})
		}
	}
	if p.Next(); p.i < len(p.b) {
		p.syntax(p.i, "unexpected text after the closing brace")
	}
}

// attribute names the field in a refusal of a string inside it.
func (p *parser) attribute(f Field) {
	if f != FieldNone && p.fail.Param == "" && p.fail.Reason == CodeInvalidValue {
		p.fail.Param, p.fail.Message = f.String(), f.String()+": "+p.fail.Message
	}
}

// field returns the field of a name, FieldNone for one that goes through unread, and
// refuses a field's second coming under whatever spelling: of two, workers differ in
// which they take.
func (p *parser) field(name []byte) Field {
	f := fieldOf(name)
	if f == FieldNone || !f.guarded(p.req.Dialect) {
		if f = fieldOf(folded(name)); f == FieldNone || !f.guarded(p.req.Dialect) {
			return FieldNone
		}
		p.otherCase(f.String())
		return f
	}
	if p.seen&(1<<f) != 0 {
		p.duplicate(f.String(), "")
	}
	p.seen |= 1 << f
	if p.Next() != 'n' {
		p.given |= 1 << f
	}
	return f
}

// folded returns name in lower case when that differs from it, else nothing. By way of
// upper case it also turns the characters beyond ASCII that some case-insensitive
// comparison takes for an ASCII letter into that: ſ, ı, İ and the Kelvin sign. A name that
// is longer than any that is looked for is not folded.
func folded(name []byte) []byte {
	changes := func(c rune) bool { return 'A' <= c && c <= 'Z' || c >= utf8.RuneSelf }
	if len(name) > wordBytes || !bytes.ContainsFunc(name, changes) {
		return nil
	}
	return bytes.ToLower(bytes.ToUpper(name))
}

// otherCase rejects a name that only a case-insensitive JSON parser takes for the field.
func (p *parser) otherCase(param string) {
	p.refuse(CodeAmbiguousJSON, param,
		"a field's name differs from %q only in case: JSON parsers disagree about whether it counts; write it exactly like this",
		param)
}

// duplicate rejects the second occurrence of a field; where says in which part of the body.
func (p *parser) duplicate(param, where string) {
	p.refuse(CodeAmbiguousJSON, param, "duplicate field %q%s: JSON parsers disagree about which value wins; send it once",
		param, where)
}

// complete checks that everything is there that the dialect needs.
func (p *parser) complete() {
	r := p.req
	if r.SessionID = p.nested; r.SessionID == "" {
		r.SessionID = p.session
	}
	if r.Model == "" && !dialects[r.Dialect].unnamed {
		p.missing(FieldModel, "send a model or alias that GET /v1/models lists")
	}
	switch r.Dialect {
	case Chat, Messages:
		p.need("send an array of at least one message", FieldMessages)
	case Completions:
		p.need("send a string or an array", FieldPrompt, FieldPromptEmbeds)
	case Embeddings:
		p.need("send a string or an array", FieldInput, FieldMessages)
	case Responses:
		p.need("send a string or an array of items, or continue with previous_response_id",
			FieldInput, FieldPreviousResponseID, FieldPrompt, FieldConversation)
	}
}

// need refuses a body in which none of the fields was given and not null.
func (p *parser) need(remedy string, fields ...Field) {
	for _, f := range fields {
		if p.given&(1<<f) != 0 {
			return
		}
	}
	p.missing(fields[0], remedy)
}

func (p *parser) missing(f Field, remedy string) {
	p.refuse(CodeMissingField, f.String(), "%s is missing: %s", f, remedy)
}
