package openai

import "strings"

// Field is a top-level member of the body that the gateway reads.
type Field uint8

// The fields. FieldModel to FieldPriority are guarded in every dialect: requests are routed and
// accounted by them. FieldSystem and those after it are guarded in the dialects that know them.
const (
	FieldNone Field = iota

	FieldModel
	FieldMessages
	FieldPrompt
	FieldInput
	FieldStream
	FieldStreamOptions
	FieldMaxTokens
	FieldMaxCompletionTokens
	FieldMaxOutputTokens
	FieldN
	FieldStore
	FieldBackground
	FieldServiceTier
	FieldTools
	FieldUser
	FieldUserID
	FieldSessionID
	FieldSessionParams
	FieldPromptCacheKey
	FieldCacheSalt
	FieldExtraKey
	FieldPriority

	FieldSystem
	FieldInstructions
	FieldFunctions
	FieldSuffix
	FieldPromptEmbeds
	FieldPreviousResponseID
	FieldConversation
	FieldQuery
	FieldQueries
	FieldDocuments
	FieldItems
	FieldText1
	FieldText2
	FieldEncodingFormat

	fieldCount
)

var fieldNames = [fieldCount]string{
	FieldModel: "model", FieldMessages: "messages", FieldPrompt: "prompt", FieldInput: "input",
	FieldStream: "stream", FieldStreamOptions: "stream_options",
	FieldMaxTokens: "max_tokens", FieldMaxCompletionTokens: "max_completion_tokens",
	FieldMaxOutputTokens: "max_output_tokens", FieldN: "n",
	FieldStore: "store", FieldBackground: "background", FieldServiceTier: "service_tier",
	FieldTools: "tools", FieldUser: "user", FieldUserID: "user_id",
	FieldSessionID: "session_id", FieldSessionParams: "session_params",
	FieldPromptCacheKey: "prompt_cache_key",
	FieldCacheSalt:      "cache_salt", FieldExtraKey: "extra_key", FieldPriority: "priority",
	FieldSystem: "system", FieldInstructions: "instructions", FieldFunctions: "functions",
	FieldSuffix: "suffix", FieldPromptEmbeds: "prompt_embeds",
	FieldPreviousResponseID: "previous_response_id", FieldConversation: "conversation",
	FieldQuery: "query", FieldQueries: "queries", FieldDocuments: "documents", FieldItems: "items",
	FieldText1: "text_1", FieldText2: "text_2", FieldEncodingFormat: "encoding_format",
}

// String returns the field's name in a body.
func (f Field) String() string { return fieldNames[f] }

// fieldOf returns the field of a decoded name, FieldNone for all other names.
func fieldOf(name []byte) Field {
	for f := FieldModel; f < fieldCount; f++ {
		if string(name) == fieldNames[f] {
			return f
		}
	}
	return FieldNone
}

// guarded reports whether the dialect rejects duplicates and other spellings of the field.
func (f Field) guarded(d Dialect) bool {
	return f < FieldSystem || promptReadings[d][f] != ReadNothing || f.dialectOnly(d)
}

// dialectOnly reports whether the field is specific to the dialect and contains no prompt text.
// A pass-through request may belong to the Responses API.
func (f Field) dialectOnly(d Dialect) bool {
	switch f {
	case FieldPromptEmbeds:
		return d == Completions
	case FieldPreviousResponseID, FieldConversation:
		return d == Responses || d == Other
	case FieldEncodingFormat:
		return d == Embeddings || d == Pooling
	}
	return false
}

// queryReadings are the prompt fields of rerank and score requests.
var queryReadings = [fieldCount]Reading{
	FieldQuery: ReadIDs, FieldQueries: ReadIDs, FieldDocuments: ReadIDs, FieldItems: ReadIDs,
	FieldText1: ReadIDs, FieldText2: ReadIDs,
}

// promptReadings are the prompt fields of each dialect.
var promptReadings = [...][fieldCount]Reading{
	Chat:        {FieldMessages: ReadTurns, FieldTools: ReadAll, FieldFunctions: ReadAll},
	Completions: {FieldPrompt: ReadIDs, FieldSuffix: ReadTurns},
	Responses:   {FieldInput: ReadTurns, FieldInstructions: ReadTurns, FieldPrompt: ReadTurns, FieldTools: ReadAll},
	Messages:    {FieldMessages: ReadTurns, FieldSystem: ReadTurns, FieldTools: ReadAll},
	Embeddings:  {FieldInput: ReadIDs, FieldMessages: ReadTurns},
	Rerank:      queryReadings,
	Score:       queryReadings,
	Pooling:     {FieldInput: ReadIDs, FieldMessages: ReadTurns},
	Tokenize:    {FieldPrompt: ReadTurns, FieldMessages: ReadTurns, FieldTools: ReadAll},
	Moderations: {FieldInput: ReadTurns},
	Images:      {FieldPrompt: ReadTurns},
	Audio:       {FieldInput: ReadTurns, FieldInstructions: ReadTurns},
}

func (p *parser) readField(f Field) {
	r := p.req
	if r.Dialect == Other && !p.readsPassThrough(f) {
		p.Skip()
		return
	}
	switch f {
	case FieldModel:
		p.readModel()
	case FieldCacheSalt:
		p.readSalt()
	case FieldExtraKey:
		p.rejectExtraKey()
	case FieldPriority:
		p.readPriority()
	case FieldStream:
		p.readFlag(f.String(), &r.Stream)
	case FieldStreamOptions:
		p.readStreamOptions()
	case FieldMaxTokens, FieldMaxCompletionTokens, FieldMaxOutputTokens:
		p.readOutputLimit(f)
	case FieldN:
		r.N = max(r.N, p.readCount(f, 1, maxN))
	case FieldStore:
		r.StoreSet = p.readFlag(f.String(), &r.Store)
	case FieldBackground:
		if r.Dialect != Responses { // an image's background, or unknown
			p.Skip()
			return
		}
		p.readFlag(f.String(), &r.Background)
	case FieldServiceTier:
		p.readString(f.String(), maxTierBytes, &r.ServiceTier)
	case FieldUser:
		p.readLooseString(&r.User)
	case FieldUserID:
		p.readLooseString(&r.UserID)
	case FieldSessionID:
		p.readLooseString(&r.SessionID)
	case FieldPromptCacheKey:
		p.readLooseString(&r.PromptCacheKey)
	case FieldSessionParams:
		if p.Next() != '{' {
			p.Skip()
			return
		}
		p.readChildren(f.String(), func(string) { p.readLooseString(&r.SessionParamsID) }, "session_id")
	case FieldPreviousResponseID, FieldConversation:
		p.readContinuation(f)
	case FieldEncodingFormat:
		p.readEncodingFormat()
	default:
		p.readPrompt(f)
	}
}

// readsPassThrough reports whether f is read on pass-through endpoints: it has its usual type there,
// or it is a salt or priority. These are always read, because they must not reach an engine unseen.
func (p *parser) readsPassThrough(f Field) bool {
	switch c := p.Next(); f {
	case FieldModel:
		return c == '"'
	case FieldStream:
		return c == 't' || c == 'f'
	case FieldPreviousResponseID:
		return c == '"'
	case FieldConversation:
		return c == '"' || c == '{'
	case FieldCacheSalt, FieldExtraKey, FieldPriority:
		return true
	}
	return false
}

// rejectExtraKey rejects extra_key, which engines add to the salt.
func (p *parser) rejectExtraKey() {
	if p.Next() == 'n' {
		p.Skip()
		return
	}
	p.reject(CodeInvalidValue, FieldExtraKey.String(),
		"extra_key is not supported because it selects an engine's prefix cache: "+
			"send cache_salt, which is confined to your tenant")
}

// readOutputLimit reads a limit of the output. -1 is llama.cpp's word for none, which LM Studio's clients and n8n send
// to every engine. The engine defines the meaning of 0.
func (p *parser) readOutputLimit(f Field) {
	c := p.Next()
	at := outputLimit{span: span{from: p.i}}
	if r := p.Reader; c == '-' && p.req.Dialect != Messages && string(r.Scalar()) == "-1" {
		p.Scalar()
		at.value = unlimited
	} else {
		at.value = p.readCount(f, 0, maxInt32)
	}
	if at.to = p.i; at.value != 0 {
		p.req.place.limits[f-FieldMaxTokens] = at
	}
	p.req.MaxTokens = max(p.req.MaxTokens, at.value)
}

// readEncodingFormat rejects the formats in which vLLM answers with bytes instead of JSON. Their usage is in a header,
// and no client of OpenAI's API reads them.
func (p *parser) readEncodingFormat() {
	if format := string(p.Word()); strings.HasPrefix(format, "bytes") && !p.bad {
		p.reject(CodeInvalidValue, FieldEncodingFormat.String(),
			"encoding_format %q is not supported, because its answer is not JSON: send float or base64", format)
	}
}

// readSalt reads cache_salt and stores its position.
func (p *parser) readSalt() {
	r := p.req
	if p.Next() != 'n' {
		r.place.record(FieldCacheSalt, p.i)
	}
	from := p.i
	p.readString(FieldCacheSalt.String(), maxSaltBytes, &r.CacheSalt)
	r.place.salt = span{from, p.i}
}

// readPrompt reads a field that shapes the prompt and stores the position of its value unless it is
// null. It skips every other field.
func (p *parser) readPrompt(f Field) {
	how, c := promptReadings[p.req.Dialect][f], p.Next()
	if c != 'n' && (how != ReadNothing || f.dialectOnly(p.req.Dialect)) {
		p.req.place.record(f, p.i)
	}
	if how == ReadNothing || c == 'n' {
		p.Skip()
		return
	}
	switch f {
	case FieldMessages:
		if c != '[' {
			p.rejectType(f.String(), "an array of messages")
		} else if p.Empty() && (p.req.Dialect == Chat || p.req.Dialect == Messages) {
			p.reject(CodeInvalidValue, f.String(), "messages is an empty array: send at least one message")
		}
	case FieldTools, FieldFunctions:
		if c == '[' && !p.Empty() {
			p.req.Tools = true
		}
	case FieldPrompt, FieldInput:
		p.checkPromptShape(f, c)
	}
	p.walkPrompt(how)
}

// checkPromptShape checks the type of prompt or input if the dialect requires one; c is its first
// byte.
func (p *parser) checkPromptShape(f Field, c byte) {
	switch p.req.Dialect {
	case Completions, Embeddings:
		if c == '[' && p.Empty() {
			p.reject(CodeInvalidValue, f.String(), "%s is an empty array: send at least one element", f)
			return
		}
	case Responses:
		if f == FieldPrompt {
			return
		}
	default:
		return
	}
	if c != '"' && c != '[' {
		p.rejectType(f.String(), "a string or an array")
	}
}

// readContinuation reads the ID of the response or conversation that the request continues.
func (p *parser) readContinuation(f Field) {
	r := p.req
	read := func(name string, to *string) { p.readString(name, maxIDBytes, to) }
	switch r.Dialect {
	case Responses:
	case Other: // the API may be a different one
		read = func(_ string, to *string) { p.readLooseString(to) }
	default:
		p.Skip()
		return
	}
	switch {
	case f == FieldPreviousResponseID:
		read(f.String(), &r.PreviousResponseID)
	case p.Next() == '{':
		p.readChildren(f.String(), func(string) { read("conversation.id", &r.ConversationID) }, "id")
	default:
		read(f.String(), &r.ConversationID)
	}
}

// readStreamOptions reads stream_options and stores positions for Splice.
func (p *parser) readStreamOptions() {
	r := p.req
	if r.Dialect != Chat && r.Dialect != Completions {
		p.Skip()
		return
	}
	at := &r.place
	switch p.Next() {
	case 'n':
		at.options = p.skipSpan()
		return
	case '{':
	default:
		p.rejectType(FieldStreamOptions.String(), "an object or null")
		return
	}
	at.inside, at.insideEmpty = p.i+1, p.Empty()
	const include, continuous = "include_usage", "continuous_usage_stats"
	p.readChildren(FieldStreamOptions.String(), func(child string) {
		if child == continuous {
			where := p.skipSpan()
			if v := string(p.b[where.from:where.to]); v != "false" && v != "null" {
				at.continuous = where
			}
			return
		}
		at.include.from = p.i
		p.readFlag("stream_options.include_usage", &r.IncludeUsage)
		at.include.to = p.i
	}, include, continuous)
}

// skipSpan skips the next value and returns its position.
func (p *parser) skipSpan() span {
	p.Next()
	from := p.i
	p.Skip()
	return span{from, p.i}
}
