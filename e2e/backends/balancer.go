package backends

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"
)

// Balancer is a TCP load balancer in front of several gateways, like HAProxy. Each new
// connection goes to the next ready target and stays there. A target that is no longer ready
// keeps its connections until it closes them.
type Balancer struct {
	Addr string // 127.0.0.1:PORT

	targets  []*target
	listener net.Listener
	client   *http.Client
	stop     context.CancelFunc
	work     sync.WaitGroup

	mu    sync.Mutex
	turn  int
	conns map[net.Conn]bool // open connections, closed when the balancer ends
}

// target is a gateway behind a Balancer. The Balancer's mutex guards ready.
type target struct {
	addr  string
	ready bool
}

const (
	// checkInterval is the interval of the readiness checks: well below drain.accept_grace,
	// during which a gateway that drains still accepts connections.
	checkInterval = 50 * time.Millisecond
	// dialTimeout bounds a dial on the loopback interface, which takes microseconds.
	dialTimeout = time.Second
)

// NewBalancer starts a balancer for targets, which are addresses such as 127.0.0.1:8080, and
// returns when one of them is ready. A target is ready while GET /readyz returns 200. The
// balancer ends with the test.
func NewBalancer(t testing.TB, targets ...string) *Balancer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	b := &Balancer{Addr: l.Addr().String(), listener: l, stop: stop, conns: map[net.Conn]bool{},
		client: &http.Client{Timeout: dialTimeout, Transport: &http.Transport{DisableKeepAlives: true}}}
	for _, addr := range targets {
		b.targets = append(b.targets, &target{addr: addr})
	}
	t.Cleanup(b.close)
	for _, to := range b.targets {
		b.work.Go(func() { b.watchTarget(ctx, to) })
	}
	if err := waitFor("a ready target", func() error {
		if len(b.targetOrder(true)) == 0 {
			return errors.New("no target is ready")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	b.work.Go(func() { b.accept(ctx) })
	return b
}

// close ends the balancer and all its connections.
func (b *Balancer) close() {
	b.stop()
	_ = b.listener.Close()
	b.mu.Lock()
	for c := range b.conns {
		_ = c.Close()
	}
	b.mu.Unlock()
	b.work.Wait()
}

// Ready returns the targets that were ready at their last check.
func (b *Balancer) Ready() []string { return b.targetOrder(true) }

// watchTarget checks a target's readiness until ctx ends.
func (b *Balancer) watchTarget(ctx context.Context, to *target) {
	tick := time.NewTicker(checkInterval)
	defer tick.Stop()
	for {
		ready := b.isReady(ctx, to.addr)
		b.mu.Lock()
		to.ready = ready
		b.mu.Unlock()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (b *Balancer) isReady(ctx context.Context, addr string) bool {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/readyz", nil)
	if err != nil {
		return false
	}
	resp, err := b.client.Do(r)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// targetOrder returns the targets in the order in which the next connection tries them: the
// ready targets in turn and then, unless onlyReady is set, the others.
func (b *Balancer) targetOrder(onlyReady bool) (addrs []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.turn++
	var others []string
	for i := range b.targets {
		to := b.targets[(b.turn+i)%len(b.targets)]
		if to.ready {
			addrs = append(addrs, to.addr)
		} else {
			others = append(others, to.addr)
		}
	}
	if !onlyReady {
		addrs = append(addrs, others...)
	}
	return addrs
}

func (b *Balancer) accept(ctx context.Context) {
	for {
		c, err := b.listener.Accept()
		if err != nil {
			return // closed
		}
		if !b.addConn(ctx, c) {
			return
		}
		b.work.Go(func() {
			defer b.dropConn(c)
			b.proxyConn(ctx, c)
		})
	}
}

// addConn registers a connection, so that it ends with the balancer. If the balancer has ended
// already, addConn closes the connection and returns false.
func (b *Balancer) addConn(ctx context.Context, c net.Conn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if ctx.Err() != nil {
		_ = c.Close()
		return false
	}
	b.conns[c] = true
	return true
}

// dropConn closes a connection and removes it.
func (b *Balancer) dropConn(c net.Conn) {
	b.mu.Lock()
	delete(b.conns, c)
	b.mu.Unlock()
	_ = c.Close()
}

// proxyConn connects a client to the first target that accepts a connection and copies in
// both directions until both have ended.
func (b *Balancer) proxyConn(ctx context.Context, c net.Conn) {
	for _, addr := range b.targetOrder(false) {
		d := net.Dialer{Timeout: dialTimeout}
		to, err := d.DialContext(ctx, "tcp", addr)
		if err != nil {
			continue
		}
		if !b.addConn(ctx, to) {
			return
		}
		defer b.dropConn(to)
		done := make(chan struct{})
		go func() {
			defer close(done)
			copyStream(to, c)
		}()
		copyStream(c, to)
		<-done
		return
	}
}

// copyStream copies until the source ends and then ends the destination.
func copyStream(to, from net.Conn) {
	if _, err := io.Copy(to, from); err != nil {
		// The connection broke off, and its peer must see a break too, not an orderly end.
		_ = to.Close()
		_ = from.Close()
		return
	}
	if half, ok := to.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}
