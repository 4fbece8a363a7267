package prompttokens

import (
	"errors"
	"sync/atomic"
	"time"
)

const (
	// retryUnsupported is the pause after an engine has shown that it does not serve a kind of prompt.
	// An engine that is replaced by one that does is found within a minute.
	retryUnsupported = time.Minute
	// refusedInARow is the number of refusals that show it: an engine whose /tokenize takes texts only
	// answers 400 to each chat. A client's mistakes are refused too, but others' prompts are answered
	// in between.
	refusedInARow = 16
)

// kind is a kind of prompt, by what it needs of an engine.
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
	case f.raw[messages] != nil:
		return chatKind
	}
	return textKind
}

// gate stops requests for a kind of prompt that the engines do not serve.
type gate struct {
	until   atomic.Int64 // Unix nanoseconds
	refused atomic.Int64 // refusals since the last answer
}

// isOpen reports whether an engine may be asked.
func (g *gate) isOpen() bool { return time.Now().UnixNano() >= g.until.Load() }

// note takes the result of a request. closed is true when the gate closes for the first time.
func (g *gate) note(err error) (closed bool) {
	switch {
	case err == nil:
		g.refused.Store(0)
		return false
	case errors.Is(err, errUnsupported):
	case errors.Is(err, errRefused) && g.refused.Add(1) >= refusedInARow:
	default:
		return false
	}
	g.refused.Store(0)
	return g.until.Swap(time.Now().Add(retryUnsupported).UnixNano()) == 0
}
