package engines

import (
	"net/http"
	"time"
)

// Account is what one request was told, as it went to the socket.
type Account struct {
	Engine string // its name
	Began  time.Time
	Asked  int64 // tokens of its prompt, whether or not it was answered
	Tokens       // that it was told; of a stream that was cut: until then
	Whole  bool  // all of the answer was written, with its usage where that was asked for

	Priority    int64 // that the request carried, also where the engine ignored or refused it
	Prioritized bool  // it carried one; without, Priority is 0

	stream bool // tokens are told one by one
	begun  bool // the prompt was read
}

// closeAccount ends an account.
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
