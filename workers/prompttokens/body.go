package prompttokens

import (
	"bytes"
	"encoding/json"

	"github.com/cespare/xxhash/v2"

	"tierway/openai"
)

// promptKind is the form of a completion's prompt.
type promptKind uint8

const (
	promptOther promptKind = iota // several prompts, or none
	promptText
	promptIDs
)

// promptOf returns the form of a completion's prompt, and the string or the array of ids in it. A
// list of one prompt is that prompt.
func promptOf(raw []byte) (kind promptKind, value []byte) {
	if len(raw) > 0 && raw[0] == '[' {
		holder := openai.Request{Body: raw}
		rd := holder.Reader()
		if c := rd.Inside(); c == '"' || c == '[' {
			rd.Enter('[')
			rd.More(']')
			raw = rd.Skip()
			if rd.More(']') {
				return promptOther, nil
			}
		}
	}
	switch {
	case len(raw) == 0:
		return promptOther, nil
	case raw[0] == '"':
		return promptText, raw
	case raw[0] == '[':
		return promptIDs, raw
	}
	return promptOther, nil
}

// modelOf returns the model's name in requests to engines.
func modelOf(q *Query) string {
	if q.Model != "" {
		return q.Model
	}
	return q.Request.Model
}

// seedOf returns a seed that separates prompts with equal chains: the hash of all that shapes them besides
// their text.
func seedOf(q *Query, f *fields) uint64 {
	return mix(f.variant, xxhash.Sum64String(modelOf(q))) ^ xxhash.Sum64String(q.Adapter)
}

// appendMember appends a member with a raw value, and a comma.
func appendMember(b []byte, name string, value []byte) []byte {
	b = append(append(append(b, '"'), name...), `":`...)
	return append(append(b, value...), ',')
}

// newJob copies the needed parts of a request, because its body may be reused after the request ends.
func newJob(q *Query, f *fields) *job {
	seed := seedOf(q, f)
	j := &job{kind: f.kind(), dialect: q.Request.Dialect, blocks: make([]uint64, len(q.Chain)), done: make(chan struct{})}
	for i := range q.Chain {
		j.blocks[i] = mix(q.Chain[i].Hash, seed)
		if q.Chain[i].Message {
			j.ends = append(j.ends, i)
		}
	}
	j.model, _ = json.Marshal(modelOf(q)) // a string always has a JSON form
	if f.renderOnly {
		j.path = map[openai.Dialect]string{openai.Chat: chatRenderPath, openai.Completions: textRenderPath}[q.Request.Dialect]
		for _, piece := range q.Request.Splice(openai.Edit{Model: q.Model}) {
			j.body = append(j.body, piece...)
		}
		j.size = len(j.body)
		return j
	}
	j.path = tokenizePath
	for m := range memberCount {
		if f.raw[m] != nil {
			j.source[m] = bytes.Clone(f.raw[m])
			j.size += len(f.raw[m])
		}
	}
	j.divisible = f.divisible()
	return j
}

// prepare makes the request for the whole prompt from the copied members. ok is false if they have no equivalent in
// requests of /tokenize.
func (j *job) prepare() (ok bool) {
	if j.path != tokenizePath {
		return true
	}
	if ok = j.translate(); !ok {
		return false
	}
	raw := &j.source
	j.messages, j.text, j.tools, j.plain = raw[messages], raw[text], raw[tools], string(raw[special]) == "false"
	if j.arguments, ok = argumentsOf(raw[arguments], j.effort, raw[documents]); !ok {
		return false
	}
	raw[arguments] = j.arguments
	b := appendMember(append(make([]byte, 0, j.size+256), '{'), "model", j.model)
	for m := range taken {
		if raw[m] != nil {
			b = appendMember(b, m.String(), raw[m])
		}
	}
	b[len(b)-1] = '}'
	j.body = b
	j.template = mix(xxhash.Sum64(j.model), xxhash.Sum64(j.arguments))
	return true
}

func elements(array []byte) (all [][]byte) {
	holder := openai.Request{Body: array}
	rd := holder.Reader()
	for rd.Enter('['); rd.More(']'); {
		all = append(all, rd.Skip())
	}
	return all
}

func roleOf(message []byte) string {
	holder := openai.Request{Body: message}
	rd := holder.Reader()
	for rd.Enter('{'); rd.More('}'); {
		if string(rd.Name()) == "role" {
			return string(rd.Word())
		}
	}
	return ""
}

// turn is what a message of the client's request becomes: one message, or several.
type turn struct {
	raw  []byte // separated by commas
	role string // of the last one
}

// turns returns the messages of the prompt, each as a turn.
func (j *job) turns() (all []turn) {
	if j.translated != nil {
		return j.translated
	}
	for _, m := range elements(j.messages) {
		all = append(all, turn{m, roleOf(m)})
	}
	return all
}

// part returns a body of /tokenize for some messages. With answer, the rendered prompt ends with the
// beginning of an answer.
func (j *job) part(messages []turn, answer, tools bool) []byte {
	b := appendMember([]byte{'{'}, "model", j.model)
	if j.arguments != nil {
		b = appendMember(b, "chat_template_kwargs", j.arguments)
	}
	if tools && j.tools != nil {
		b = appendMember(b, "tools", j.tools)
	}
	if !answer {
		b = append(b, `"add_generation_prompt":false,`...)
	}
	b = append(b, `"messages":[`...)
	for i, m := range messages {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, m.raw...)
	}
	return append(b, `]}`...)
}
