package hooks

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"time"

	"tierway/workers"
)

// Options are what hooks need of their gateway. Log and Rand are required.
type Options struct {
	Log  *slog.Logger
	Rand func() float64 // uniform in [0, 1); safe for concurrent use
	// Dial opens connections in tests; nil: net.Dialer, which rejects the addresses of metadata services.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Chain is the hooks of a configuration, in their order. It is immutable. A nil Chain has no hooks.
type Chain struct {
	Hooks   []*Hook
	Timeout time.Duration // for all hooks of a request together
}

// NewChain returns the hooks of a configuration, or nil without hooks. It keeps the hooks of was that are the same, and
// opens no connections. Retire closes those of the others once the new chain is in force.
func NewChain(specs []Spec, timeout time.Duration, was *Chain, o Options) *Chain {
	if len(specs) == 0 {
		return nil
	}
	c := &Chain{Timeout: timeout}
	for _, s := range specs {
		h := was.hook(func(h *Hook) bool { return h.same(s) })
		if h == nil {
			h = newHook(s, o)
		}
		c.Hooks = append(c.Hooks, h)
	}
	return c
}

// Retire closes the connections of the hooks that next does not have, and returns the names that it does not have.
// Requests in flight can still call them.
func (c *Chain) Retire(next *Chain) (removed []string) {
	if c == nil {
		return nil
	}
	for _, h := range c.Hooks {
		if next.hook(func(other *Hook) bool { return other == h }) == nil {
			h.retired.Store(true)
			h.caller.close()
		}
		if next.hook(func(other *Hook) bool { return other.Name == h.Name }) == nil {
			removed = append(removed, h.Name)
		}
	}
	return removed
}

// All returns the hooks; none for a nil Chain.
func (c *Chain) All() []*Hook {
	if c == nil {
		return nil
	}
	return c.Hooks
}

// Has reports whether the chain has that hook, not only an equal one.
func (c *Chain) Has(h *Hook) bool { return c.hook(func(other *Hook) bool { return other == h }) != nil }

// hook returns the first hook that meets a condition, or nil.
func (c *Chain) hook(meets func(*Hook) bool) *Hook {
	if c == nil {
		return nil
	}
	if i := slices.IndexFunc(c.Hooks, meets); i >= 0 {
		return c.Hooks[i]
	}
	return nil
}

// newCaller returns the caller of a hook. A URL that cannot be parsed makes every call fail.
func newCaller(s Spec, o Options) caller {
	to, _ := parseTarget(s.Type, s.URL)
	peer := workers.NewPeer(workers.Spec{
		Config: workers.Config{Name: s.Name, URL: to.server, APIKeyEnv: s.APIKeyEnv, APIKeyFile: s.APIKeyFile,
			TLS: s.TLS},
		Key:            s.Key,
		ConnectTimeout: s.ConnectTimeout,
	}, o.Dial, o.Log.With("hook", s.Name))
	if s.Type == TypeExtProc {
		return &extProc{peer: peer, target: to, maxAnswer: s.MaxReply}
	}
	return &httpCaller{peer: peer, path: to.path, maxAnswer: s.MaxReply}
}
