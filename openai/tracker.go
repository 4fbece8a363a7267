package openai

import (
	"bytes"
	"slices"
)

// Mark says what one event of a stream means. Several can hold.
type Mark uint16

// The marks.
const (
	// MarkContent: the event carries something that a client shows or acts on:
	// text, reasoning, a tool call, audio, log probabilities. After it no other
	// worker can answer. A chunk that only names the role is not content.
	MarkContent Mark = 1 << iota
	// MarkUsageOnly: a chunk with `choices: []` and usage, which may be removed
	// when the client did not ask for it.
	MarkUsageOnly
	// MarkFinish: the event says why generation ended.
	MarkFinish
	// MarkDone: the event is `data: [DONE]`, whether or not it proves anything.
	MarkDone
	// MarkEnd: the event proves that the answer is whole.
	MarkEnd
	// MarkError: the event is an error; ErrorOf reads it.
	MarkError
	// MarkFailed: the engine reports that the answer failed (response.failed).
	// The stream itself is whole; ErrorOf reads the reason.
	MarkFailed
	// MarkNullError: the payload has an `error` member that says nothing, at
	// which openai-go gives up; StripNullError removes it.
	MarkNullError
	// MarkMalformed: the data is no JSON object, so the stream is broken.
	MarkMalformed
	// MarkAborted: the engine ended the answer before it was whole, as vLLM does on
	// SIGTERM: a finish_reason of "abort" or "error", a message without a stop_reason,
	// a cancelled response. A client may have cancelled a background response itself.
	MarkAborted
)

// Has says that all marks of want hold.
func (m Mark) Has(want Mark) bool { return m&want == want }

// Tracker follows the events of one stream and knows whether the answer is
// whole, what it cost and what has been shown. Everything is decided on the
// parsed payloads. The zero Tracker follows the dialect Other. It is not safe
// for use by several goroutines.
type Tracker struct {
	dialect Dialect
	choices eventChoices
	tokens  eventTokens
	id      string
	next    int64 // after the last sequence_number

	events, output int
	deltas, text   int64 // events that can each be a token, and the parts of tokens in their text
	stopped        bool  // a stop_reason was seen
	unstopped      bool  // a stop_reason of null was seen
	proven, failed bool
}

// NewTracker returns a tracker for a stream of the dialect.
func NewTracker(d Dialect) Tracker { return Tracker{dialect: d} }

// Proven says that the answer is whole: `[DONE]` after a finish_reason for each
// choice, a Responses terminal event, or message_stop, and no error or broken
// event. A dialect without a terminator of its own has nothing to prove: it is
// true after the first event.
func (t *Tracker) Proven() bool {
	if t.failed {
		return false
	}
	if t.dialect.Generates() {
		return t.proven
	}
	return t.events > 0
}

// Finished says that generation ended by the engine's own word, though the
// terminator is missing: the answer is whole and who forwards it owes the
// terminator.
func (t *Tracker) Finished() bool {
	return !t.failed && !t.Proven() && (t.stopped || t.choices.finished())
}

// Usage returns the tokens that the stream has reported up to now; ok is false
// when it has reported none. In the Messages dialect Output is first that of
// message_start and final with message_delta.
func (t *Tracker) Usage() (u Usage, ok bool) { return t.tokens.usage(t.dialect) }

// Events is how many events there were, comments not counted.
func (t *Tracker) Events() int { return t.events }

// ResponseID is the id of the Responses object that the stream makes, empty
// before response.created and in the other dialects.
func (t *Tracker) ResponseID() string { return t.id }

// NextSequence is the sequence_number that an event after the last one of a
// Responses stream has; 0 where the stream has not numbered its events.
func (t *Tracker) NextSequence() int64 { return t.next }

// Observe takes the stream's next event and says what it means. It keeps
// nothing of the event's bytes.
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
		m |= t.data(ev)
	}
	if m.Has(MarkContent) {
		t.output++
	}
	if m&(MarkError|MarkMalformed|MarkAborted) != 0 {
		t.failed = true
	}
	return m
}

// data takes an event that has data.
func (t *Tracker) data(ev Event) Mark {
	if string(bytes.TrimSpace(ev.Data)) == "[DONE]" {
		return t.done()
	}
	p := eventPayload{choices: &t.choices, tokens: &t.tokens}
	if !p.read(ev.Data) {
		if t.dialect.Generates() {
			return MarkMalformed
		}
		return MarkContent
	}
	if len(p.kind) == 0 {
		p.kind = ev.Name
	}
	m := p.errorMark()
	if m.Has(MarkError) {
		return m // an event that the gateway's own error takes the place and number of
	}
	t.next = max(t.next, p.next)
	switch t.dialect {
	case Chat, Completions:
		return m | t.chunk(&p)
	case Responses:
		return m | t.response(&p)
	case Messages:
		return m | t.message(&p)
	}
	return m | MarkContent
}

// done takes `data: [DONE]`. Engines send it after the Responses dialect's own
// terminator too, where it proves nothing.
func (t *Tracker) done() Mark {
	if t.dialect != Chat && t.dialect != Completions {
		return MarkDone
	}
	if t.failed || !t.choices.finished() {
		return MarkDone
	}
	t.proven = true
	return MarkDone | MarkEnd
}

// chunk takes a chunk of chat or completions.
func (t *Tracker) chunk(p *eventPayload) Mark {
	t.deltas += int64(p.deltas)
	t.text += int64(p.text)
	if p.count == 0 && p.usage {
		return p.mark | MarkUsageOnly
	}
	return p.mark
}

// response takes an event of the Responses dialect.
func (t *Tracker) response(p *eventPayload) Mark {
	var in eventPayload
	if len(p.response) > 0 {
		in.tokens = &t.tokens
		in.read(p.response)
		if t.id == "" {
			t.id = textOf(in.id)
		}
	}
	switch string(p.kind) {
	case "response.completed", "response.incomplete":
		t.proven = true
		if cancelled(in.status, in.incomplete) {
			return MarkFinish | MarkEnd | MarkAborted
		}
		return MarkFinish | MarkEnd
	case "response.failed":
		t.proven = true
		return MarkFinish | MarkEnd | MarkFailed
	case "response.created", "response.queued", "response.in_progress", "response.content_part.added",
		"response.reasoning_part.added", "response.reasoning_summary_part.added":
		return 0
	case "response.output_item.added":
		// A message or a reasoning item opens empty; every other kind is a call
		// of a tool, which clients show and act on.
		var item eventPayload
		item.read(p.item)
		if k := string(item.kind); k == "message" || k == "reasoning" {
			return 0
		}
		t.deltas++
		return MarkContent
	}
	t.responseDelta(p)
	if bytes.HasPrefix(p.kind, []byte("response.")) {
		return MarkContent
	}
	return 0
}

// message takes an event of the Messages dialect.
func (t *Tracker) message(p *eventPayload) Mark {
	switch string(p.kind) {
	case "message_start":
		if len(p.message) > 0 {
			in := eventPayload{tokens: &t.tokens}
			in.read(p.message)
		}
	case "content_block_start":
		m := fieldsFilled(p.block, "type", "signature", "citations")
		if m != 0 {
			t.deltas++
		}
		return m
	case "content_block_delta":
		t.messageDelta(p)
		return fieldsFilled(p.delta, "type")
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

// fieldsFilled is MarkContent when the object has a member beside those named
// that says something.
func fieldsFilled(object []byte, but ...string) (m Mark) {
	c := newReader(object)
	for c.Enter('{'); c.More('}'); {
		if !slices.Contains(but, string(c.Name())) && c.nonEmpty() {
			m = MarkContent
		}
	}
	return m
}

// choiceBound bounds the choices that are told apart: a completions request has
// n answers for each of its prompts.
const choiceBound = 1 << 16

// eventChoices knows which choices of a stream began and which have finished.
type eventChoices struct {
	began, ended uint64         // the choices 0 to 63, one bit each
	more         map[int64]bool // those from 64 on, and whether each has finished
}

// note records that a choice was seen and whether it has finished.
func (s *eventChoices) note(index int64, finished bool) {
	switch {
	case index < 0 || index >= choiceBound:
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

// finished says that there was a choice and each has finished.
func (s *eventChoices) finished() bool {
	for _, ended := range s.more {
		if !ended {
			return false
		}
	}
	return s.began == s.ended && (s.began != 0 || len(s.more) > 0)
}
