package openai

import (
	"bytes"
	"math"
	"slices"
)

// Edit is what the gateway changes in a body before a worker gets it.
type Edit struct {
	Model        string // the model's name at the worker; empty keeps what is there
	IncludeUsage bool   // ask a chat or completions stream for its usage, once
	CacheSalt    string // which prefix cache the engine uses; empty keeps what is there
	Priority     int64  // the request's place in the engine's own queue, with SetPriority
	SetPriority  bool   // false keeps what is there

	AllowFields []string // of EngineFields; the others are removed
}

// span is a place in a body, from its first byte to behind its last. A place
// that a body does not have is the zero span: every value stands behind a
// bracket, so none begins at 0.
type span struct{ from, to int }

// places is what Splice and those who read the prompt again must know of a body.
type places struct {
	top      int  // behind the brace that opens the body
	topEmpty bool // nothing stands in it
	model    span // the value of model, quotes included; of a form its content
	salt     span // the value of cache_salt, whatever it is

	options     span // stream_options: null
	inside      int  // behind the brace that opens stream_options, 0 without one
	insideEmpty bool
	include     span // the value of include_usage, whatever it is
	// continuous is the value of continuous_usage_stats where it is neither false nor
	// null. vLLM reads it beside include_usage only: a client that has not asked for usage
	// would get it with every chunk, because the gateway has.
	continuous span

	engine []engineMember // what names one of EngineFields, in the order of the body

	prompt [fieldCount]uint32 // where the values of the fields begin that make up the prompt, or are edited

	form      bool   // the body is multipart/form-data
	delimiter string // of a form: two dashes and the boundary
}

// note keeps where the value of f begins. Behind 4 GiB, which no caller reads,
// a field is as good as absent.
func (p *places) note(f Field, at int) {
	if uint64(at) <= math.MaxUint32 {
		p.prompt[f] = uint32(at)
	}
}

// of returns where the value of f begins, 0 when it is absent, and of all but
// priority when it is null.
func (p *places) of(f Field) int { return int(p.prompt[f]) }

// change is one cut: bytes that stand in the body, and those that take their
// place.
type change struct {
	span
	with []byte
}

// Splice returns the body with the edit done, in pieces to be sent one after
// the other. Bytes that the edit does not touch are the request's own and must
// not be changed; nothing large is copied. A form has no include_usage, and the
// new name of its model must hold no line break.
func (r *Request) Splice(e Edit) [][]byte {
	var room [5]change
	changes := r.changes(room[:0], e)
	if len(changes) == 0 {
		return [][]byte{r.Body}
	}
	pieces := make([][]byte, 0, 2*len(changes)+1)
	done := 0
	for _, c := range changes {
		if c.from > done {
			pieces = append(pieces, r.Body[done:c.from:c.from])
		}
		if len(c.with) > 0 {
			pieces = append(pieces, c.with)
		}
		done = c.to
	}
	if done < len(r.Body) {
		pieces = append(pieces, r.Body[done:])
	}
	return pieces
}

// AddedFields names what the edit puts into the body that its sender did not
// write: "model" and "cache_salt" when there was none, "priority" when there was
// none, null or 0, "stream_options" when there was none or null, and
// "stream_options.include_usage" when the object was there. A worker whose error
// names one of them, or the part behind the dot, can be asked again without it.
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

// addsUsage tells whether the edit must ask for usage itself.
func (r *Request) addsUsage(e Edit) bool {
	return e.IncludeUsage && !r.IncludeUsage && r.Stream && !r.place.form &&
		(r.Dialect == Chat || r.Dialect == Completions)
}

// addsSalt tells whether the edit puts a salt where there was no such member.
func (r *Request) addsSalt(e Edit) bool {
	return e.CacheSalt != "" && !r.place.form && r.place.salt == (span{}) && dialects[r.Dialect].salted
}

// changes appends the edit's cuts in the order of the body.
func (r *Request) changes(cuts []change, e Edit) []change {
	if c, ok := r.modelChange(e.Model); ok {
		cuts = append(cuts, c)
	}
	if r.addsUsage(e) {
		cuts = append(cuts, r.usageChange())
		if at := r.place.continuous; at != (span{}) {
			cuts = append(cuts, change{span: at, with: []byte("false")})
		}
	}
	if !r.place.form && e.CacheSalt != "" && (r.place.salt != (span{}) || r.addsSalt(e)) {
		cuts = append(cuts, r.set(r.place.salt, "cache_salt", appendJSONText(nil, e.CacheSalt)))
	}
	if c, ok := r.priorityChange(e); ok {
		cuts = append(cuts, c)
	}
	removed, empty := r.removals(e)
	slices.SortStableFunc(cuts, func(a, b change) int { return a.from - b.from })
	if (r.place.topEmpty || empty) && len(cuts) > 0 {
		// All of them are members that are put into nothing, each with a comma unless
		// the body was empty.
		for i := range cuts {
			if with := bytes.TrimSuffix(cuts[i].with, []byte(",")); i < len(cuts)-1 {
				cuts[i].with = append(with, ',')
			} else {
				cuts[i].with = with
			}
		}
	}
	if len(removed) > 0 {
		cuts = append(cuts, removed...)
		slices.SortStableFunc(cuts, func(a, b change) int { return a.from - b.from })
	}
	return cuts
}

// modelChange returns the cut that makes name the body's model.
func (r *Request) modelChange(name string) (c change, ok bool) {
	at := r.place.model
	switch {
	case name == "" || name == r.Model:
		return c, false
	case r.place.form && at == (span{}):
		part := r.place.delimiter + "\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\n" + name + "\r\n"
		return change{with: []byte(part)}, true
	case r.place.form:
		return change{span: at, with: []byte(name)}, true
	}
	return r.set(at, "model", appendJSONText(nil, name)), true
}

// usageChange returns the cut that sets stream_options.include_usage.
func (r *Request) usageChange() change {
	at := &r.place
	switch {
	case at.include != (span{}):
		return change{span: at.include, with: []byte("true")}
	case at.inside > 0:
		return insertion(at.inside, at.insideEmpty, "include_usage", []byte("true"))
	}
	return r.set(at.options, "stream_options", []byte(`{"include_usage":true}`))
}

// set returns the cut that gives a member of the body the value; at is where its own
// value stands, the zero span without one.
func (r *Request) set(at span, name string, value []byte) change {
	if at != (span{}) {
		return change{span: at, with: value}
	}
	return insertion(r.place.top, r.place.topEmpty, name, value)
}

// insertion puts a member behind the brace that stands before at.
func insertion(at int, empty bool, name string, value []byte) change {
	member := make([]byte, 0, len(`"":,`)+len(name)+len(value))
	member = append(append(append(append(member, '"'), name...), `":`...), value...)
	if !empty {
		member = append(member, ',')
	}
	return change{span: span{at, at}, with: member}
}
