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

// Balancer is a TCP load balancer before several gateways, as HAProxy would be:
// each new connection goes to the next target that is ready, and stays there.
// A target that leaves keeps its connections until it closes them itself.
type Balancer struct {
	Addr string // 127.0.0.1:PORT

	targets  []*target
	listener net.Listener
	client   *http.Client
	stop     context.CancelFunc
	work     sync.WaitGroup

	mu    sync.Mutex
	turn  int
	conns map[net.Conn]bool // those to be closed at the end
}

// target is where connections go. Its Balancer's mutex guards ready.
type target struct {
	addr  string
	ready bool
}

const (
	// checkEvery is how old the knowledge of who is ready may be: well below
	// what a gateway waits between saying that it leaves and leaving.
	checkEvery = 50 * time.Millisecond
	// dialTimeout bounds a dial on the loopback interface, which takes microseconds.
	dialTimeout = time.Second
)

// NewBalancer starts a balancer before targets, which are addresses such as
// 127.0.0.1:8080, and returns when one of them is ready. A target is ready while
// it answers GET /readyz with 200. It ends with the test.
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
		b.work.Go(func() { b.watch(ctx, to) })
	}
	if err := until("a target that is ready", func() error {
		if len(b.order(true)) == 0 {
			return errors.New("none is")
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

// Ready returns the targets that are ready as far as the balancer knows.
func (b *Balancer) Ready() []string { return b.order(true) }

// watch keeps a target's readiness.
func (b *Balancer) watch(ctx context.Context, to *target) {
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	for {
		ready := b.check(ctx, to.addr)
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

func (b *Balancer) check(ctx context.Context, addr string) bool {
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

// order returns the targets in the order in which the next connection tries
// them: those that are ready in turn, and then, unless only they are asked for,
// the others.
func (b *Balancer) order(onlyReady bool) (addrs []string) {
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
		if !b.keep(ctx, c) {
			return
		}
		b.work.Go(func() {
			defer b.drop(c)
			b.carry(ctx, c)
		})
	}
}

// keep remembers a connection, so that it ends with the balancer; false when
// that has ended already, and the connection with it.
func (b *Balancer) keep(ctx context.Context, c net.Conn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if ctx.Err() != nil {
		_ = c.Close()
		return false
	}
	b.conns[c] = true
	return true
}

// drop closes and forgets a connection.
func (b *Balancer) drop(c net.Conn) {
	b.mu.Lock()
	delete(b.conns, c)
	b.mu.Unlock()
	_ = c.Close()
}

// carry connects a client to the first target that takes it, and copies both
// ways until both have ended.
func (b *Balancer) carry(ctx context.Context, c net.Conn) {
	for _, addr := range b.order(false) {
		d := net.Dialer{Timeout: dialTimeout}
		to, err := d.DialContext(ctx, "tcp", addr)
		if err != nil {
			continue
		}
		if !b.keep(ctx, to) {
			return
		}
		defer b.drop(to)
		done := make(chan struct{})
		go func() {
			defer close(done)
			pour(to, c)
		}()
		pour(c, to)
		<-done
		return
	}
}

// pour copies until the source ends, and says so to the other side.
func pour(to, from net.Conn) {
	if _, err := io.Copy(to, from); err != nil {
		// Cut, not ended: the other side must see that too.
		_ = to.Close()
		_ = from.Close()
		return
	}
	if half, ok := to.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}
