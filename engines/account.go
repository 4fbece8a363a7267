package engines

import (
	"context"
	"net/http"
	"slices"
	"sync"
)

// Account is what one request was told, as it went to the socket.
type Account struct {
	ID     string // of the request: its X-Request-Id
	Path   string
	Asked  int64 // tokens of its prompt, whether or not it was answered
	Tokens       // that it was told; of a stream that was cut: until then
	Whole  bool  // all of the answer was written, with its usage where that was asked for

	Priority    int64 // that the request carried, also where the engine ignored or refused it
	Prioritized bool  // it carried one; without, Priority is 0
}

// maxAccounts bounds what is kept: more requests than any test makes of one engine.
const maxAccounts = 1 << 16

// account is an Account on its way. Background answers write to none: nobody is
// told them.
type account struct {
	Account
	stream bool // tokens are told one by one
	begun  bool // the prompt was read
	made   usage
}

type accountKey struct{}

// accountOf returns the account of the request that a context belongs to, or one
// that nobody keeps.
func accountOf(ctx context.Context) *account {
	if a, ok := ctx.Value(accountKey{}).(*account); ok {
		return a
	}
	return &account{}
}

// opened returns a request with an account, where the engine keeps or exports them.
func (e *Engine) opened(r *http.Request) *http.Request {
	if !e.c.Accounts && e.c.Traces == nil {
		return r
	}
	a := &account{Account: Account{ID: r.Header.Get("X-Request-Id"), Path: r.URL.Path}}
	return r.WithContext(context.WithValue(r.Context(), accountKey{}, a))
}

// settled keeps the account of a request that ended with err.
func (e *Engine) settled(r *http.Request, err error) {
	a, kept := r.Context().Value(accountKey{}).(*account)
	if !kept {
		return
	}
	if a.Whole = err == nil; a.Whole || a.stream && a.begun {
		a.Tokens = Tokens{Prompt: int64(a.made.prompt), Cached: int64(a.made.cached), Output: int64(a.made.output)}
	}
	e.accounts.mu.Lock()
	defer e.accounts.mu.Unlock()
	if e.c.Accounts && len(e.accounts.list) < maxAccounts {
		e.accounts.list = append(e.accounts.list, a.Account)
	}
}

type accounts struct {
	mu   sync.Mutex // guards list
	list []Account
}

// Accounts returns what each request that has ended was told, of an engine whose
// Config.Accounts is set: the first 65,536, background answers left out.
func (e *Engine) Accounts() []Account {
	e.accounts.mu.Lock()
	defer e.accounts.mu.Unlock()
	return slices.Clone(e.accounts.list)
}
