package openai

// field is a member of the body's own object that the gateway reads.
type field uint8

const (
	fieldNone field = iota

	// Guarded in every dialect: what requests are routed and accounted by.
	fieldModel
	fieldMessages
	fieldPrompt
	fieldInput
	fieldStream
	fieldStreamOptions
	fieldMaxTokens
	fieldMaxCompletionTokens
	fieldMaxOutputTokens
	fieldN
	fieldStore
	fieldBackground
	fieldServiceTier
	fieldTools
	fieldUser
	fieldUserID
	fieldSessionID
	fieldSessionParams
	fieldCacheSalt
	fieldExtraKey
	fieldPriority

	// Guarded in the dialects that know them.
	fieldSystem
	fieldInstructions
	fieldFunctions
	fieldSuffix
	fieldPromptEmbeds
	fieldPreviousResponseID
	fieldConversation
	fieldQuery
	fieldQueries
	fieldDocuments
	fieldItems
	fieldText1
	fieldText2

	fieldCount
)

var fieldNames = [fieldCount]string{
	fieldModel: "model", fieldMessages: "messages", fieldPrompt: "prompt", fieldInput: "input",
	fieldStream: "stream", fieldStreamOptions: "stream_options",
	fieldMaxTokens: "max_tokens", fieldMaxCompletionTokens: "max_completion_tokens",
	fieldMaxOutputTokens: "max_output_tokens", fieldN: "n",
	fieldStore: "store", fieldBackground: "background", fieldServiceTier: "service_tier",
	fieldTools: "tools", fieldUser: "user", fieldUserID: "user_id",
	fieldSessionID: "session_id", fieldSessionParams: "session_params",
	fieldCacheSalt: "cache_salt", fieldExtraKey: "extra_key", fieldPriority: "priority",
	fieldSystem: "system", fieldInstructions: "instructions", fieldFunctions: "functions",
	fieldSuffix: "suffix", fieldPromptEmbeds: "prompt_embeds",
	fieldPreviousResponseID: "previous_response_id", fieldConversation: "conversation",
	fieldQuery: "query", fieldQueries: "queries", fieldDocuments: "documents", fieldItems: "items",
	fieldText1: "text_1", fieldText2: "text_2",
}

// String returns the field as it stands in a body.
func (f field) String() string { return fieldNames[f] }

// fieldOf returns the field of a decoded name, fieldNone for all others.
func fieldOf(name []byte) field {
	for f := fieldModel; f < fieldCount; f++ {
		if string(name) == fieldNames[f] {
			return f
		}
	}
	return fieldNone
}

// guarded tells whether a second spelling of the field would be ambiguous in
// the dialect.
func (f field) guarded(d Dialect) bool {
	return f < fieldSystem || f.prose(d) != readNothing || f.only(d)
}

// only reports whether the field is one that just this dialect knows and that
// holds no prose. What passes through may be of the Responses API.
func (f field) only(d Dialect) bool {
	switch f {
	case fieldPromptEmbeds:
		return d == Completions
	case fieldPreviousResponseID, fieldConversation:
		return d == Responses || d == Other
	}
	return false
}

// prose tells how the field's value counts towards the prompt in the dialect.
func (f field) prose(d Dialect) reading {
	switch d {
	case Chat:
		switch f {
		case fieldMessages:
			return readTurns
		case fieldTools, fieldFunctions:
			return readAll
		}
	case Completions:
		switch f {
		case fieldPrompt:
			return readIDs
		case fieldSuffix:
			return readTurns
		}
	case Responses:
		switch f {
		case fieldInput, fieldInstructions, fieldPrompt:
			return readTurns
		case fieldTools:
			return readAll
		}
	case Messages:
		switch f {
		case fieldMessages, fieldSystem:
			return readTurns
		case fieldTools:
			return readAll
		}
	case Embeddings:
		switch f {
		case fieldInput:
			return readIDs
		case fieldMessages:
			return readTurns
		}
	case Rerank, Score:
		switch f {
		case fieldQuery, fieldQueries, fieldDocuments, fieldItems, fieldText1, fieldText2:
			return readIDs
		}
	case Tokenize:
		switch f {
		case fieldPrompt, fieldMessages:
			return readTurns
		case fieldTools:
			return readAll
		}
	case Moderations:
		if f == fieldInput {
			return readTurns
		}
	case Images:
		if f == fieldPrompt {
			return readTurns
		}
	case Audio:
		if f == fieldInput || f == fieldInstructions {
			return readTurns
		}
	}
	return readNothing
}

// member reads the value of the field f, of which the first byte is next.
func (p *parser) member(f field) bool {
	r := p.req
	if r.Dialect == Other && !p.plainOf(f) {
		return p.skip()
	}
	switch f {
	case fieldModel:
		return p.model()
	case fieldCacheSalt:
		return p.salt()
	case fieldExtraKey:
		return p.extraKey()
	case fieldPriority:
		return p.priority()
	case fieldStream:
		_, ok := p.flag(f.String(), &r.Stream)
		return ok
	case fieldStreamOptions:
		return p.streamOptions()
	case fieldMaxTokens, fieldMaxCompletionTokens, fieldMaxOutputTokens:
		n, ok := p.integer(f, 0, maxInt32) // what 0 means is for the engine to say
		r.MaxTokens = max(r.MaxTokens, n)
		return ok
	case fieldN:
		n, ok := p.integer(f, 1, maxN)
		r.N = max(r.N, n)
		return ok
	case fieldStore:
		set, ok := p.flag(f.String(), &r.Store)
		r.StoreSet = set
		return ok
	case fieldBackground:
		if r.Dialect != Responses { // a picture's background, or nothing that is known
			return p.skip()
		}
		_, ok := p.flag(f.String(), &r.Background)
		return ok
	case fieldServiceTier:
		return p.exact(f.String(), maxTierBytes, &r.ServiceTier)
	case fieldUser:
		return p.loose(&r.User)
	case fieldUserID:
		return p.loose(&r.UserID)
	case fieldSessionID:
		return p.loose(&p.session)
	case fieldSessionParams:
		if p.space() != '{' {
			return p.skip()
		}
		return p.within(f.String(), func(string) bool { return p.loose(&p.nested) }, "session_id")
	case fieldPreviousResponseID, fieldConversation:
		return p.continued(f)
	}
	return p.prompt(f)
}

// plainOf tells, for endpoints that pass through, whether f is one of the
// fields that are read there and holds what it holds elsewhere. A salt and a
// priority are read whatever they hold: none may reach an engine unseen.
func (p *parser) plainOf(f field) bool {
	switch c := p.space(); f {
	case fieldModel:
		return c == '"'
	case fieldStream:
		return c == 't' || c == 'f'
	case fieldPreviousResponseID:
		return c == '"'
	case fieldConversation:
		return c == '"' || c == '{'
	case fieldCacheSalt, fieldExtraKey, fieldPriority:
		return true
	}
	return false
}

// extraKey refuses extra_key, which engines take for another part of the salt.
func (p *parser) extraKey() bool {
	if p.space() == 'n' {
		return p.skip()
	}
	const name = "extra_key"
	return p.refuse(CodeInvalidValue, name, "extra_key is not taken, because it chooses an engine's prefix cache: send cache_salt, which is kept within your tenant")
}

// salt reads cache_salt and notes where it stands.
func (p *parser) salt() bool {
	r := p.req
	if p.space() != 'n' {
		r.place.note(fieldCacheSalt, p.i)
	}
	r.place.salt.from = p.i
	ok := p.exact(fieldCacheSalt.String(), maxSaltBytes, &r.CacheSalt)
	r.place.salt.to = p.i
	return ok
}

// prompt reads a field that holds text for the model, or skips it, and notes
// where its value stands unless that is null.
func (p *parser) prompt(f field) bool {
	how, c := f.prose(p.req.Dialect), p.space()
	if c != 'n' {
		p.req.place.note(f, p.i)
	}
	if how == readNothing || c == 'n' {
		return p.skip()
	}
	switch f {
	case fieldMessages:
		if c != '[' {
			return p.wrong(f.String(), "an array of messages")
		}
		if p.emptyArray() && (p.req.Dialect == Chat || p.req.Dialect == Messages) {
			return p.refuse(CodeInvalidValue, f.String(), "messages is an empty array: send at least one message")
		}
	case fieldTools, fieldFunctions:
		if c == '[' && !p.emptyArray() {
			p.req.Tools = true
		}
	case fieldPrompt, fieldInput:
		if !p.promptShape(f, c) {
			return false
		}
	}
	return p.walk(how)
}

// promptShape checks the value of prompt or input where a dialect needs one;
// c is its first byte.
func (p *parser) promptShape(f field, c byte) bool {
	switch p.req.Dialect {
	case Completions, Embeddings:
		if c == '[' && p.emptyArray() {
			return p.refuse(CodeInvalidValue, f.String(), "%s is an empty array: send at least one element", f)
		}
	case Responses:
		if f == fieldPrompt {
			return true
		}
	default:
		return true
	}
	if c != '"' && c != '[' {
		return p.wrong(f.String(), "a string or an array")
	}
	return true
}

// emptyArray tells whether the next value is [].
func (p *parser) emptyArray() bool {
	ahead := scanner{b: p.b, i: p.i + 1}
	return p.space() == '[' && ahead.space() == ']'
}

// continued reads the id of a response or conversation that this one goes on
// from.
func (p *parser) continued(f field) bool {
	r := p.req
	read := func(name string, to *string) bool { return p.exact(name, maxIDBytes, to) }
	switch r.Dialect {
	case Responses:
	case Other: // of an API that may be another one
		read = func(_ string, to *string) bool { return p.loose(to) }
	default:
		return p.skip()
	}
	if f == fieldPreviousResponseID {
		return read(f.String(), &r.PreviousResponseID)
	}
	if p.space() == '{' {
		return p.within(f.String(), func(string) bool { return read("conversation.id", &r.ConversationID) }, "id")
	}
	return read(f.String(), &r.ConversationID)
}

// streamOptions reads stream_options and notes where Splice can write.
func (p *parser) streamOptions() bool {
	r := p.req
	if r.Dialect != Chat && r.Dialect != Completions {
		return p.skip()
	}
	at := &r.place
	switch p.space() {
	case 'n':
		at.options.from = p.i
		ok := p.skip()
		at.options.to = p.i
		return ok
	case '{':
	default:
		return p.wrong(fieldStreamOptions.String(), "an object or null")
	}
	inside := scanner{b: p.b, i: p.i + 1}
	at.inside, at.insideEmpty = p.i+1, inside.space() == '}'
	const include, continuous = "include_usage", "continuous_usage_stats"
	return p.within(fieldStreamOptions.String(), func(child string) bool {
		if p.space(); child == continuous {
			at.continuous.from = p.i
			ok := p.skip()
			at.continuous.to = p.i
			return ok
		}
		at.include.from = p.i
		_, ok := p.flag("stream_options.include_usage", &r.IncludeUsage)
		at.include.to = p.i
		return ok
	}, include, continuous)
}
