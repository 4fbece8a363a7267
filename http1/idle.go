package http1

import (
	"sync"
	"time"
)

// idleConns keeps connections between exchanges. The most recently used connection is reused first,
// so that the others expire and the pool shrinks when traffic falls.
type idleConns struct {
	max     int
	timeout time.Duration

	mu     sync.Mutex
	conns  []*conn     // guarded by mu; the longest idle first
	closed bool        // guarded by mu
	timer  *time.Timer // guarded by mu; set while conns may be non-empty
}

// get removes and returns a connection that is open, has no input and was used within the time, or returns nil.
func (i *idleConns) get(within time.Duration) *conn {
	for {
		c := i.pop(within)
		if c == nil || c.quiet() {
			return c
		}
		_ = c.socket.Close()
	}
}

func (i *idleConns) pop(within time.Duration) *conn {
	i.mu.Lock()
	defer i.mu.Unlock()
	last := len(i.conns) - 1
	if last < 0 {
		return nil
	}
	c := i.conns[last]
	idle := time.Since(c.since)
	if idle >= within && idle < i.timeout {
		return nil // all others are older
	}
	i.conns[last] = nil
	i.conns = i.conns[:last]
	if idle >= i.timeout {
		// All other connections are older; the timer, which is late, closes them.
		_ = c.socket.Close()
		return nil
	}
	return c
}

// put adds c to the idle connections. It closes c after close, at its maxAge, or if there are max already.
func (i *idleConns) put(c *conn) {
	c.since = time.Now()
	i.mu.Lock()
	keep := !i.closed && len(i.conns) < i.max && c.since.Sub(c.opened) < maxAge
	if keep {
		i.conns = append(i.conns, c)
		if i.timer == nil {
			i.timer = time.AfterFunc(i.timeout, i.expire)
		}
	}
	i.mu.Unlock()
	if !keep {
		_ = c.socket.Close()
	}
}

// expire closes connections that have been idle for too long and sets the timer for the rest.
// Without it, a worker without traffic would keep sockets that its engine has closed.
func (i *idleConns) expire() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed {
		return
	}
	old := 0
	for old < len(i.conns) && time.Since(i.conns[old].since) >= i.timeout {
		_ = i.conns[old].socket.Close()
		old++
	}
	rest := copy(i.conns, i.conns[old:])
	clear(i.conns[rest:])
	i.conns = i.conns[:rest]
	if rest == 0 {
		i.timer = nil
		return
	}
	i.timer = time.AfterFunc(i.timeout-time.Since(i.conns[0].since), i.expire)
}

// close closes all idle connections, and from then on every connection that is put.
func (i *idleConns) close() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.closed = true
	for _, c := range i.conns {
		_ = c.socket.Close()
	}
	i.conns = nil
	if i.timer != nil {
		i.timer.Stop()
	}
}
