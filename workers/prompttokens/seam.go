package prompttokens

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
)

// maxSeams bounds the seams of a source: clients choose chat_template_kwargs.
const maxSeams = 256

// seam is the end of messages of one role in a chat template. If it holds, it does not depend on the
// message, and the messages behind it can be rendered without those before it.
type seam struct {
	holds bool
	first []uint32 // tokens of a chat with the message of probeContents()[0] alone
	start []uint32 // tokens that begin the answer behind a message of the role
}

// seamKey identifies a seam: a template renders a role in the same way for all messages, unless
// its arguments differ.
type seamKey struct {
	template uint64 // hash of model and arguments
	role     string
}

// seams are the seams that a source has probed.
type seams struct {
	mu    sync.Mutex
	known map[seamKey]seam
}

func (s *seams) get(k seamKey) (m seam, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, ok = s.known[k]
	return m, ok
}

func (s *seams) set(k seamKey, m seam) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.known) < maxSeams {
		s.known[k] = m
	}
}

func (s *seams) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.known)
}

// probeContents are the messages of a probe. A tokenizer that joins the end of a message with the text
// behind it does so for one of these ends: a letter, a line break, a space, a mark, a digit.
func probeContents() []string { return []string{"x", "x\n", "x ", "x.\n\n", "7"} }

// probeMessage is a message of a role.
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

// seam returns the seam behind a role, and probes it once. The tokens of a chat of one message must be a
// prefix of the tokens of the same chat with the beginning of an answer. The further tokens must be the
// same for all messages of the probe.
func (s *Source) seam(ctx context.Context, j *job, role string) seam {
	k := seamKey{j.seams, role}
	if m, ok := s.seams.get(k); ok {
		return m
	}
	var m seam
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
			s.seams.set(k, seam{})
			return seam{}
		}
		start := open[len(closed):]
		if i == 0 {
			m = seam{holds: true, first: closed, start: start}
		} else if !slices.Equal(start, m.start) {
			s.seams.set(k, seam{})
			return seam{}
		}
	}
	s.seams.set(k, m)
	return m
}

// failSeam records a refusal, such as that of a template that rejects a chat with this role alone. Another
// failure of the engine is no property of the template, and is not recorded.
func (s *Source) failSeam(k seamKey, err error) seam {
	if errors.Is(err, errRefused) {
		s.seams.set(k, seam{})
	}
	return seam{}
}
