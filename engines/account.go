package engines

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"tierway/telemetry"
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

// opened returns a request with an account, where the engine keeps or exports them, and
// what is called when the request has ended with err.
func (e *Engine) opened(r *http.Request, path string) (_ *http.Request, over func(err error)) {
	if !e.c.Accounts && e.c.Traces == nil {
		return r, func(error) {}
	}
	a := &account{Account: Account{ID: r.Header.Get("X-Request-Id"), Path: r.URL.Path}}
	end := func(error) {}
	if e.c.Traces != nil && r.Header.Get("Traceparent") != "" { // checks of health name no trace
		c := e.c.Traces.Begin(r.Header, true, e.c.Clock())
		end = func(err error) {
			c.End([]telemetry.Span{spanOf(path, e.c.Model, e.c.Clock(), a.made, err != nil)})
		}
	}
	return r.WithContext(context.WithValue(r.Context(), accountKey{}, a)), func(err error) {
		if a.Whole = err == nil; a.Whole || a.stream && a.begun {
			a.Tokens = Tokens{Prompt: int64(a.made.prompt), Cached: int64(a.made.cached), Output: int64(a.made.output)}
		}
		e.accounts.mu.Lock()
		if e.c.Accounts && len(e.accounts.list) < maxAccounts {
			e.accounts.list = append(e.accounts.list, a.Account)
		}
		e.accounts.mu.Unlock()
		end(err)
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

// spanOf describes a request of the engine, by the name that vLLM gives its own.
func spanOf(path, model string, end time.Time, made usage, failed bool) telemetry.Span {
	attrs := []attribute.KeyValue{attribute.String(telemetry.AttrHTTPRoute, path)}
	if model != "" {
		attrs = append(attrs, attribute.String(telemetry.AttrGenAIAnswered, model))
	}
	if made != (usage{}) {
		attrs = append(attrs, attribute.Int(telemetry.AttrGenAIInput, made.prompt),
			attribute.Int(telemetry.AttrGenAICached, made.cached), attribute.Int(telemetry.AttrGenAIOutput, made.output))
	}
	return telemetry.Span{Name: telemetry.SpanEngine, End: end, Error: failed, Attributes: attrs}
}
