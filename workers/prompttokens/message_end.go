package prompttokens

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
)

// maxMessageEnds bounds the message ends of a source: clients choose chat_template_kwargs.
const maxMessageEnds = 256

// messageEnd is the end of messages of one role in a chat template. If it holds, it does not depend on the
// message, and the messages behind it can be rendered without those before it.
type messageEnd struct {
	holds bool
	first []uint32 // tokens of a chat with the message of probeContents()[0] alone
	start []uint32 // tokens that begin the answer behind a message of the role
}

// messageEndKey identifies a message end: a template renders a role in the same way for all messages, unless
// its arguments differ.
type messageEndKey struct {
	template uint64 // hash of model and arguments
	role     string
}

// messageEnds are the message ends that a source has probed.
type messageEnds struct {
	mu    sync.Mutex
	known map[messageEndKey]messageEnd
}

func (s *messageEnds) get(k messageEndKey) (m messageEnd, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, ok = s.known[k]
	return m, ok
}

func (s *messageEnds) set(k messageEndKey, m messageEnd) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.known) < maxMessageEnds {
		s.known[k] = m
	}
}

func (s *messageEnds) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.known)
}

// probeContents are the messages of a probe. A tokenizer that joins the end of a message with the text
// behind it does so for one of these ends: a letter, a line break, a space, a mark, a digit.
func probeContents() []string { return []string{"x", "x\n", "x ", "x.\n\n", "7"} }

func probeMessage(role, content string) []byte {
	m := map[string]string{"role": role, "content": content}
	if role == "tool" {
		m["tool_call_id"] = "000000000" // nine characters: Mistral's templates reject others
	}
	b, _ := json.Marshal(m) // strings always have a JSON form
	return b
}

// probeTurn is probeMessage as a turn.
func probeTurn(role, content string) turn { return turn{probeMessage(role, content), role} }

// probeMessageEnd returns the message end of a role, and probes it once. The tokens of a chat of one message must be a
// prefix of the tokens of the same chat with the beginning of an answer. The further tokens must be the
// same for all messages of the probe.
func (s *Source) probeMessageEnd(ctx context.Context, j *job, role string) messageEnd {
	k := messageEndKey{j.template, role}
	if m, ok := s.ends.get(k); ok {
		return m
	}
	var m messageEnd
	for i, content := range probeContents() {
		message := []turn{probeTurn(role, content)}
		closed, err := s.requestTokens(ctx, tokenizePath, j.part(message, false, false))
		if err != nil {
			return s.failSeam(k, err)
		}
		open, err := s.requestTokens(ctx, tokenizePath, j.part(message, true, false))
		if err != nil {
			return s.failSeam(k, err)
		}
		if commonPrefix(closed, open) < len(closed) {
			s.ends.set(k, messageEnd{})
			return messageEnd{}
		}
		start := open[len(closed):]
		if i == 0 {
			m = messageEnd{holds: true, first: closed, start: start}
		} else if !slices.Equal(start, m.start) {
			s.ends.set(k, messageEnd{})
			return messageEnd{}
		}
	}
	s.ends.set(k, m)
	return m
}

// failSeam records a refusal, such as that of a template that rejects a chat with this role alone. Another
// failure of the engine is no property of the template, and is not recorded.
func (s *Source) failSeam(k messageEndKey, err error) messageEnd {
	if errors.Is(err, errRefused) {
		s.ends.set(k, messageEnd{})
	}
	return messageEnd{}
}
