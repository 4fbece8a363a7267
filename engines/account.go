package engines

import (
	"net/http"
	"time"
)

// Account is the usage that one request's answer reported on the wire.
type Account struct {
	Engine string // the engine's name
	Began  time.Time
	Asked  int64 // prompt tokens, answered or not
	Tokens       // reported tokens; of a cut stream those up to the cut
	Whole  bool  // the whole answer was written, including requested usage

	Priority    int64 // the request's priority, also if the engine ignored or rejected it
	Prioritized bool  // the request has a priority; otherwise Priority is 0

	stream bool // tokens are reported one by one
	begun  bool // the prompt was read
}

// closeAccount completes an account.
func (e *Engine) closeAccount(r *http.Request, a *Account, err error) {
	if a.Whole = err == nil; !a.Whole && !(a.stream && a.begun) {
		a.Tokens = Tokens{}
	}
	e.counts.change(func(c *counters) {
		c.Written.Prompt += a.Prompt
		c.Written.Cached += a.Cached
		c.Written.Output += a.Output
	})
	if e.c.Ended != nil {
		e.c.Ended(r, *a)
	}
}
