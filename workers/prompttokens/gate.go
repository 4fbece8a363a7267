package prompttokens

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"
)

const (
	// retryUnsupported is the pause after an engine has rejected a kind of prompt. If an engine that serves
	// it takes its place, it is used within a minute.
	retryUnsupported = time.Minute
	// refusedInARow is the number of refusals after which a probe decides: an engine whose /tokenize takes
	// texts only answers 400 to each chat, and any engine answers 400 to a client's mistakes.
	refusedInARow = 16
)

// kind is a kind of prompt, by the endpoint that it needs.
type kind uint8

const (
	textKind     kind = iota // /tokenize with a text
	chatKind                 // /tokenize with messages
	renderedKind             // a render endpoint
	kindCount
)

// kind returns the kind of a request's prompt.
func (f *fields) kind() kind {
	switch {
	case f.renderOnly:
		return renderedKind
	case f.raw[messages] != nil, f.raw[input] != nil:
		return chatKind
	}
	return textKind
}

// gate stops requests for a kind of prompt that the engines do not serve.
type gate struct {
	until   atomic.Int64 // Unix nanoseconds
	refused atomic.Int64 // refusals since the last answer with tokens
}

// isOpen reports whether requests are allowed.
func (g *gate) isOpen() bool { return time.Now().UnixNano() >= g.until.Load() }

// recordResult records the result of a request. It returns true if the engines possibly do not serve this
// kind of prompt.
func (g *gate) recordResult(err error) (suspect bool) {
	switch {
	case err == nil:
		g.refused.Store(0)
	case errors.Is(err, errUnsupported), errors.Is(err, errTooLong):
		return true
	case errors.Is(err, errRefused) && g.refused.Add(1) >= refusedInARow:
		g.refused.Store(0)
		return true
	}
	return false
}

// close closes the gate for retryUnsupported. first is true for the first call.
func (g *gate) close() (first bool) {
	return g.until.Swap(time.Now().Add(retryUnsupported).UnixNano()) == 0
}

// refusesProbe reports whether an engine refuses the simplest prompt of a job's kind.
func (s *Source) refusesProbe(ctx context.Context, j *job) bool {
	body := appendMember([]byte{'{'}, "model", j.model)
	if j.kind == chatKind || j.path == chatRenderPath {
		body = appendMember(body, messages.String(), slices.Concat([]byte{'['}, probeMessage("user", "x"), []byte{']'}))
	} else {
		body = appendMember(body, text.String(), []byte(`"x"`))
	}
	body[len(body)-1] = '}'
	_, err := s.requestTokens(ctx, j.path, body)
	return errors.Is(err, errUnsupported) || errors.Is(err, errRefused) || errors.Is(err, errTooLong)
}
