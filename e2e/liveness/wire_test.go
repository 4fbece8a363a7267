package liveness

import (
	"bytes"
	"context"
	"net"
	"sync"
	"time"

	"tierway/memnet"
)

// wire is the network between the gateway and its workers. It records the attempts that the gateway makes,
// whatever the worker does with them: a frozen process reads no request and sees no end.
type wire struct {
	network *memnet.Network

	mu       sync.Mutex // guards the rest
	attempts []*attempt
	refused  map[string]int // connections that were refused, by address
}

// attempt is a request that was written to a worker.
type attempt struct {
	address   string
	began     time.Time
	contentAt time.Time // the first content; zero: none arrived
	ended     time.Time // the connection was closed without content; zero: not yet
}

// silence returns how long the attempt was without content at a moment.
func (a *attempt) silence(now time.Time) time.Duration {
	switch {
	case !a.contentAt.IsZero():
		now = a.contentAt
	case !a.ended.IsZero():
		now = a.ended
	}
	return now.Sub(a.began)
}

func newWire(n *memnet.Network) *wire { return &wire{network: n, refused: map[string]int{}} }

// dial is server.Options.Dial.
func (w *wire) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := w.network.Dial(ctx, network, address)
	if err != nil {
		w.mu.Lock()
		w.refused[address]++
		w.mu.Unlock()
		return nil, err
	}
	return &tap{Conn: c, wire: w, address: address}, nil
}

// all returns the attempts in their order.
func (w *wire) all() []attempt {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make([]attempt, len(w.attempts))
	for i, a := range w.attempts {
		out[i] = *a
	}
	return out
}

// refusals returns the number of refused connections to an address.
func (w *wire) refusals(address string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.refused[address]
}

// tap is a connection to a worker that records its attempts.
type tap struct {
	net.Conn
	wire    *wire
	address string
	current *attempt // without content; guarded by wire.mu
}

var (
	requestMark = []byte("POST /v1/chat/completions")
	contentMark = []byte(`"choices"`) // of events and of whole answers, not of their heads
)

// Write is part of net.Conn.
func (t *tap) Write(b []byte) (int, error) {
	if bytes.HasPrefix(b, requestMark) {
		t.wire.mu.Lock()
		t.current = &attempt{address: t.address, began: time.Now()}
		t.wire.attempts = append(t.wire.attempts, t.current)
		t.wire.mu.Unlock()
	}
	return t.Conn.Write(b)
}

// Read is part of net.Conn.
func (t *tap) Read(b []byte) (int, error) {
	n, err := t.Conn.Read(b)
	if bytes.Contains(b[:n], contentMark) {
		t.conclude(func(a *attempt) { a.contentAt = time.Now() })
	}
	return n, err
}

// Close is part of net.Conn.
func (t *tap) Close() error {
	t.conclude(func(a *attempt) { a.ended = time.Now() })
	return t.Conn.Close()
}

func (t *tap) conclude(record func(*attempt)) {
	t.wire.mu.Lock()
	defer t.wire.mu.Unlock()
	if t.current != nil {
		record(t.current)
		t.current = nil
	}
}
