package openai

import (
	"bytes"
	"slices"
)

// Mark is the meaning of one event of a stream: a set of flags.
type Mark uint16

// The marks.
const (
	// MarkContent: the event contains text, reasoning, a tool call, audio or log probabilities.
	// After it, the request cannot move to another worker. A chunk with only the role is not
	// content.
	MarkContent Mark = 1 << iota
	// MarkUsageOnly: a chunk with usage and without a choice, which may be removed if the client did
	// not request it. Its `choices` are [], null or absent.
	MarkUsageOnly
	// MarkFinish: the event contains the reason why generation ended.
	MarkFinish
	// MarkDone: the event is `data: [DONE]` in any spelling, even if it proves nothing.
	MarkDone
	// MarkEnd: the event proves that the response is complete.
	MarkEnd
	// MarkError: the event is an error; ErrorOf reads it.
	MarkError
	// MarkFailed: the engine reports that the response failed (response.failed). The stream itself
	// is complete; ErrorOf reads the reason.
	MarkFailed
	// MarkNullError: the payload has an empty `error` member, at which openai-go fails;
	// AppendEvent removes it.
	MarkNullError
	// MarkMalformed: the data is not a JSON object, so the stream is broken.
	MarkMalformed
	// MarkAborted: the engine ended the response before it was complete, as vLLM does on SIGTERM: a
	// finish_reason of "abort" or "error", a message without a stop_reason, a cancelled response.
	// Clients can cancel background responses too.
	MarkAborted
	// MarkUnnamed: an event of the Messages dialect lacks its name, without which Anthropic's SDKs
	// skip it; AppendEvent adds it.
	MarkUnnamed
	// MarkNoChoices: the `choices` of a usage chunk are null or absent, which SDKs with schemas reject;
	// AppendEvent sets them to [].
	MarkNoChoices
	// MarkResponseDone: the event is response.done, which SDKs do not know; AppendEvent gives it the
	// name of the response's status, such as response.completed.
	MarkResponseDone
)

// Has reports whether m contains all flags of want.
func (m Mark) Has(want Mark) bool { return m&want == want }

// Tracker follows the events of one stream: whether the response is complete, its usage, and
// what the client has received. All decisions use parsed payloads. The zero Tracker follows the
// dialect Other. It is not safe for concurrent use.
type Tracker struct {
	dialect Dialect
	choices eventChoices
	tokens  eventTokens
	id      string
	next    int64 // after the last sequence_number

	events, output int
	deltas, text   int64 // content events, and the token parts in their text
	stopped        bool  // a stop_reason was seen
	unstopped      bool  // a stop_reason of null was seen
	proven, failed bool
}

// NewTracker returns a tracker for a stream of the dialect.
func NewTracker(d Dialect) Tracker { return Tracker{dialect: d} }

// Proven reports whether the response is complete: `[DONE]` after a finish_reason for each
// choice, a terminal event of Responses, or message_stop, without an error or malformed event.
// Dialects without a terminator are complete after the first event.
func (t *Tracker) Proven() bool {
	if t.failed {
		return false
	}
	if t.dialect.Generates() {
		return t.proven
	}
	return t.events > 0
}

// Finished reports whether the engine ended generation, but the terminator is missing. The
// response is complete, and a caller that forwards it must add the terminator.
func (t *Tracker) Finished() bool {
	if t.failed || t.Proven() {
		return false
	}
	switch t.dialect {
	case Chat, Completions:
		return t.choices.finished()
	case Messages:
		return t.stopped
	}
	return false
}

// Usage returns the usage that the stream has reported so far; ok is false if there is none. In
// the Messages dialect, Output comes from message_start first and is final with message_delta.
func (t *Tracker) Usage() (u Usage, ok bool) { return t.tokens.usage(t.dialect) }

// Events returns the number of events, without comments.
func (t *Tracker) Events() int { return t.events }

// ResponseID returns the ID of the stream's Responses object; empty before response.created and
// in other dialects.
func (t *Tracker) ResponseID() string { return t.id }

// NextSequence returns the sequence_number after the last one of a Responses stream; 0 if the
// stream has no numbers.
func (t *Tracker) NextSequence() int64 { return t.next }

// Observe processes the next event of the stream and returns its meaning. It keeps no bytes of
// the event.
func (t *Tracker) Observe(ev Event) Mark {
	if ev.Comment {
		return 0
	}
	var m Mark
	if string(ev.Name) == "error" {
		m = MarkError
	}
	if len(ev.Data) > 0 {
		t.events++
		m |= t.observeData(ev)
	}
	if m.Has(MarkContent) {
		t.output++
	}
	if m&(MarkError|MarkMalformed|MarkAborted) != 0 {
		t.failed = true
	}
	return m
}

func (t *Tracker) observeData(ev Event) Mark {
	if isDone(ev.Data) {
		return t.observeDone()
	}
	p := eventPayload{choices: &t.choices, tokens: &t.tokens}
	if !p.read(ev.Data) {
		if _, isError := ErrorOf(ev.Data); isError {
			return MarkError
		}
		if t.dialect.Generates() {
			return MarkMalformed
		}
		return MarkContent
	}
	m := p.errorMark()
	if t.dialect == Messages && p.names(ev.Name) {
		m |= MarkUnnamed
	}
	if len(p.kind) == 0 {
		p.kind = ev.Name
	}
	if m.Has(MarkError) {
		return m // the gateway's own error replaces this event and uses its number
	}
	t.next = max(t.next, p.next)
	if len(p.kind) == 0 && (t.dialect == Messages || t.dialect == Responses) {
		if _, isError := ErrorOf(ev.Data); isError {
			return MarkError
		}
	}
	switch t.dialect {
	case Chat, Completions:
		return m | t.observeChunk(&p, ev.Data)
	case Responses:
		return m | t.observeResponse(&p)
	case Messages:
		return m | t.observeMessage(&p)
	}
	return m | MarkContent
}

// observeDone processes `data: [DONE]`. Engines also send it after the terminator of the Responses
// dialect, where it proves nothing.
func (t *Tracker) observeDone() Mark {
	if t.dialect != Chat && t.dialect != Completions {
		return MarkDone
	}
	if t.failed || !t.choices.finished() {
		return MarkDone
	}
	t.proven = true
	return MarkDone | MarkEnd
}

// observeChunk processes a chunk of chat or completions. A chunk without choices and usage may be an
// error in one of the rarer forms.
func (t *Tracker) observeChunk(p *eventPayload, data []byte) Mark {
	t.deltas += int64(p.deltas)
	t.text += int64(p.text)
	switch {
	case p.count == 0 && p.usage:
		return p.mark | MarkUsageOnly
	case p.count < 0 && p.usage:
		return p.mark | MarkUsageOnly | MarkNoChoices
	case p.count < 0:
		if _, isError := ErrorOf(data); isError {
			return MarkError
		}
	}
	return p.mark
}

func (t *Tracker) observeResponse(p *eventPayload) Mark {
	var in eventPayload
	if len(p.response) > 0 {
		in.tokens = &t.tokens
		in.read(p.response)
		if t.id == "" {
			t.id = textOf(in.id)
		}
	}
	switch string(p.kind) {
	case "response.completed", "response.incomplete", "response.done", "response.cancelled", "response.failed":
		t.proven = true
		ended := MarkFinish | MarkEnd
		if string(p.kind) == "response.done" {
			ended |= MarkResponseDone
		}
		switch {
		case string(p.kind) == "response.failed", string(p.kind) == "response.done" && string(in.status) == "failed":
			return ended | MarkFailed
		case string(p.kind) == "response.cancelled", cancelled(in.status, in.incomplete):
			return ended | MarkAborted
		default:
			return ended
		}
	case "response.created", "response.queued", "response.in_progress", "response.content_part.added",
		"response.reasoning_part.added", "response.reasoning_summary_part.added":
		return 0
	case "response.output_item.added":
		// Message and reasoning items open empty. All other items are tool calls, which clients
		// display and execute.
		var item eventPayload
		item.read(p.item)
		if k := string(item.kind); k == "message" || k == "reasoning" {
			return 0
		}
		t.deltas++
		return MarkContent
	}
	t.countResponseDelta(p)
	if bytes.HasPrefix(p.kind, []byte("response.")) {
		return MarkContent
	}
	return 0
}

func (t *Tracker) observeMessage(p *eventPayload) Mark {
	switch string(p.kind) {
	case "message_start":
		if len(p.message) > 0 {
			in := eventPayload{tokens: &t.tokens}
			in.read(p.message)
		}
	case "content_block_start":
		m := contentMark(p.block, "type", "signature", "citations")
		if m != 0 {
			t.deltas++
		}
		return m
	case "content_block_delta":
		t.countMessageDelta(p)
		return contentMark(p.delta, "type")
	case "message_delta":
		var in eventPayload
		in.read(p.delta)
		if in.stop {
			t.stopped = true
			return MarkFinish
		}
		t.unstopped = t.unstopped || in.unstopped
	case "message_stop":
		if t.unstopped && !t.stopped {
			return MarkAborted
		}
		t.proven = true
		return MarkEnd
	}
	return 0
}

// contentMark returns MarkContent if the object has a non-empty member other than the ignored ones.
func contentMark(object []byte, ignored ...string) (m Mark) {
	c := NewReader(object)
	for c.Enter('{'); c.More('}'); {
		if !slices.Contains(ignored, string(c.Name())) && c.nonEmpty() {
			m = MarkContent
		}
	}
	return m
}

// maxChoices limits the indexes of tracked choices: a completions request has n choices for each of
// its prompts.
const maxChoices = 1 << 16

// eventChoices tracks which choices of a stream have begun and finished.
type eventChoices struct {
	began, ended uint64         // the choices 0 to 63, one bit each
	more         map[int64]bool // choices from 64 on, and whether each has finished
}

// record records a choice and whether it has finished.
func (s *eventChoices) record(index int64, finished bool) {
	switch {
	case index < 0 || index >= maxChoices:
	case index >= 64:
		if s.more == nil {
			s.more = map[int64]bool{}
		}
		s.more[index] = s.more[index] || finished
	default:
		s.began |= 1 << index
		if finished {
			s.ended |= 1 << index
		}
	}
}

// finished reports whether there was at least one choice and all have finished.
func (s *eventChoices) finished() bool {
	for _, ended := range s.more {
		if !ended {
			return false
		}
	}
	return s.began == s.ended && (s.began != 0 || len(s.more) > 0)
}
