package openai

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
	"slices"
	"strconv"
)

// Edit is the gateway's changes of a body for a worker.
type Edit struct {
	Model        string // the worker's name of the model; empty: no change
	IncludeUsage bool   // request usage from a chat or completions stream
	CacheSalt    string // selects the engine's prefix cache; empty: no change
	Priority     int64  // priority in the engine's queue, with SetPriority
	SetPriority  bool   // false: no change of the priority
	CacheControl bool   // mark the prompt of a Messages request for the engine's prefix cache

	MaxTokens int64 // lowers the output limits of the body, and thinking.budget_tokens below them; 0: no change

	AllowFields []string // EngineFields to keep; the others are removed

	Set []Member // members of a hand-over, which precede the other changes
}

// span is a range of bytes in a body. The zero span means absence: no value begins at byte 0,
// because all are inside brackets.
type span struct{ from, to int }

// offsets are the positions in a body for Splice and for later readers of the prompt.
type offsets struct {
	top      int  // after the opening brace of the body
	topEmpty bool // the body has no members
	model    span // the value of model, including quotes; the content of a form's part
	salt     span // the value of cache_salt
	replaced bool // Request.Model is not the body's model

	limits [3]outputLimit // max_tokens, max_completion_tokens and max_output_tokens

	options     span // stream_options: null
	inside      int  // after the opening brace of stream_options; 0 if absent
	insideEmpty bool
	include     span // the value of include_usage
	// continuous is the value of continuous_usage_stats unless it is false or null. vLLM uses it
	// only with include_usage. It is set to false if the gateway adds include_usage: otherwise the
	// client would receive usage with every chunk.
	continuous span

	engine []engineMember // members of EngineFields, in the order of the body

	prompt [fieldCount]uint32 // start of the values of prompt fields and edited fields

	form      bool   // the body is multipart/form-data
	delimiter string // of a form: two dashes and the boundary
}

// outputLimit is a limit of the output in a body. The zero value means that there is none, or 0.
type outputLimit struct {
	span
	value int64 // or unlimited
}

// unlimited is the value of a limit that the client has switched off.
const unlimited = -1

// record stores the start of f's value. Beyond 4 GiB the field counts as absent; no caller reads
// such bodies.
func (p *offsets) record(f Field, at int) {
	if uint64(at) <= math.MaxUint32 {
		p.prompt[f] = uint32(at)
	}
}

// start returns the start of f's value; 0 if it is absent or, for all fields except priority,
// null.
func (p *offsets) start(f Field) int { return int(p.prompt[f]) }

// change replaces a range of the body.
type change struct {
	span
	replacement []byte
}

// Splice returns the edited body in pieces, to be sent in order. Unchanged bytes are shared
// with the request and must not be changed; nothing large is copied. IncludeUsage does not
// apply to a form, and the model name for a form must not contain line breaks.
func (r *Request) Splice(e Edit) [][]byte {
	var scratch [10]change
	changes := r.changes(scratch[:0], e)
	if len(changes) == 0 {
		return [][]byte{r.Body}
	}
	pieces := make([][]byte, 0, 2*len(changes)+1)
	done := 0
	for _, c := range changes {
		if c.from > done {
			pieces = append(pieces, r.Body[done:c.from:c.from])
		}
		if len(c.replacement) > 0 {
			pieces = append(pieces, c.replacement)
		}
		done = c.to
	}
	if done < len(r.Body) {
		pieces = append(pieces, r.Body[done:])
	}
	return pieces
}

// AddedFields returns the fields that the edit adds to the client's body: "model" and
// "cache_salt" if they were absent, "priority" if it was absent, null or 0, "stream_options" if
// it was absent or null, and "stream_options.include_usage" if the object was present. If a
// worker's error names one of them, or its last part, the request can be sent again without it.
func (r *Request) AddedFields(e Edit) []string {
	var added []string
	if e.Model != "" && r.place.model == (span{}) {
		added = append(added, "model")
	}
	if r.addsSalt(e) {
		added = append(added, "cache_salt")
	}
	if r.addsPriority(e) {
		added = append(added, "priority")
	}
	if r.addsUsage(e) {
		if r.place.inside > 0 {
			added = append(added, "stream_options.include_usage")
		} else {
			added = append(added, "stream_options")
		}
	}
	return added
}

// addsUsage reports whether the edit must request usage itself.
func (r *Request) addsUsage(e Edit) bool {
	return e.IncludeUsage && !r.IncludeUsage && r.Stream && !r.place.form &&
		(r.Dialect == Chat || r.Dialect == Completions)
}

// addsSalt reports whether the edit adds a salt to a body without one.
func (r *Request) addsSalt(e Edit) bool {
	return e.CacheSalt != "" && !r.place.form && r.place.salt == (span{}) && dialects[r.Dialect].salted
}

// changes appends the changes of the edit, in the order of the body.
func (r *Request) changes(cuts []change, e Edit) []change {
	if c, ok := r.modelChange(e.Model); ok {
		cuts = append(cuts, c)
	}
	if r.addsUsage(e) {
		cuts = append(cuts, r.usageChange())
		if at := r.place.continuous; at != (span{}) {
			cuts = append(cuts, change{span: at, replacement: []byte("false")})
		}
	}
	if !r.place.form && e.CacheSalt != "" && (r.place.salt != (span{}) || r.addsSalt(e)) {
		cuts = append(cuts, r.setMember(r.place.salt, "cache_salt", appendJSONText(nil, e.CacheSalt)))
	}
	if c, ok := r.priorityChange(e); ok {
		cuts = append(cuts, c)
	}
	lowered := false
	for i, limit := range r.place.limits {
		switch {
		case limit == (outputLimit{}), len(e.Set) > 0 && e.sets(Field(i+int(FieldMaxTokens)).String()):
		case limit.value == unlimited: // most engines reject it
			cuts = append(cuts, change{span: limit.span, replacement: []byte("null")})
		case e.MaxTokens > 0 && limit.value > e.MaxTokens:
			lowered = true
			cuts = append(cuts, change{span: limit.span, replacement: strconv.AppendInt(nil, e.MaxTokens, 10)})
		}
	}
	if lowered {
		cuts = append(cuts, r.thinkingChanges(e.MaxTokens)...)
	}
	cuts = append(cuts, r.cacheMarkChanges(e)...)
	var dropped []engineMember
	if len(e.Set) > 0 {
		cuts, dropped = r.memberChanges(cuts, e)
	}
	removed, empty := r.removals(e, dropped)
	slices.SortStableFunc(cuts, func(a, b change) int { return a.from - b.from })
	if (r.place.topEmpty || empty) && len(cuts) > 0 {
		// All changes insert members into an empty body; only the last one has no comma.
		for i := range cuts {
			if replacement := bytes.TrimSuffix(cuts[i].replacement, []byte(",")); i < len(cuts)-1 {
				cuts[i].replacement = append(replacement, ',')
			} else {
				cuts[i].replacement = replacement
			}
		}
	}
	if len(removed) > 0 {
		cuts = append(cuts, removed...)
		slices.SortStableFunc(cuts, func(a, b change) int { return a.from - b.from })
	}
	return cuts
}

// thinkingChanges returns the changes that lower thinking.budget_tokens below the output limit, as Anthropic's API
// requires. Clients send one less than their own limit.
func (r *Request) thinkingChanges(limit int64) (cuts []change) {
	body := NewReader(r.Body)
	for body.Enter('{'); body.More('}'); {
		if string(body.Name()) != "thinking" || body.Next() != '{' {
			body.Skip()
			continue
		}
		for body.Enter('{'); body.More('}'); {
			counted := string(body.Name()) == "budget_tokens"
			from := body.Pos()
			if budget, ok := body.readInteger(); ok && counted && budget >= limit {
				cuts = append(cuts, change{span: span{from, body.Pos()}, replacement: strconv.AppendInt(nil, limit-1, 10)})
			}
		}
	}
	return cuts
}

func (r *Request) modelChange(name string) (c change, ok bool) {
	at := r.place.model
	if name == "" && r.place.replaced {
		name = r.Model
	}
	switch {
	case name == "" || name == r.Model && !r.place.replaced:
		return c, false
	case r.place.form && at == (span{}):
		part := r.place.delimiter + "\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\n" + name + "\r\n"
		return change{replacement: []byte(part)}, true
	case r.place.form:
		return change{span: at, replacement: []byte(name)}, true
	}
	return r.setMember(at, "model", appendJSONText(nil, name)), true
}

// NamedBody returns a copy of the body that has the request's model, or nil if the body has it already.
func (r *Request) NamedBody() []byte {
	c, ok := r.modelChange("")
	if !ok {
		return nil
	}
	return slices.Concat(r.Body[:c.from], c.replacement, r.Body[c.to:])
}

// usageChange returns the change that sets stream_options.include_usage.
func (r *Request) usageChange() change {
	at := &r.place
	switch {
	case at.include != (span{}):
		return change{span: at.include, replacement: []byte("true")}
	case at.inside > 0:
		return insertion(at.inside, at.insideEmpty, "include_usage", []byte("true"))
	}
	return r.setMember(at.options, "stream_options", []byte(`{"include_usage":true}`))
}

// setMember returns the change that sets a member of the body; at is the position of its value, or
// the zero span.
func (r *Request) setMember(at span, name string, value []byte) change {
	if at != (span{}) {
		return change{span: at, replacement: value}
	}
	return insertion(r.place.top, r.place.topEmpty, name, value)
}

// insertion returns the change that inserts a member after the brace before at.
func insertion(at int, empty bool, name string, value []byte) change {
	member := make([]byte, 0, len(`"":,`)+len(name)+len(value))
	member = append(append(append(append(member, '"'), name...), `":`...), value...)
	if !empty {
		member = append(member, ',')
	}
	return change{span: span{at, at}, replacement: member}
}

// saltLabel separates salts from all other hashes of tenant names.
const saltLabel = "tierway cache_salt 1\n"

// CacheSalt returns the cache_salt that an engine receives instead of the client's own, which
// may be empty: 64 hexadecimal digits that no other tenant's request can have. This holds only
// if every salt that reaches the engine comes from this function, because the result can be
// computed from both names.
func CacheSalt(tenant, client string) string {
	b := make([]byte, 0, len(saltLabel)+8+len(tenant)+len(client))
	b = append(b, saltLabel...)
	// The length separates ("ab", "c") from ("a", "bc").
	b = binary.BigEndian.AppendUint64(b, uint64(len(tenant)))
	b = append(append(b, tenant...), client...)
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
