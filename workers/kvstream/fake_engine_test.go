package kvstream

import (
	"bytes"
	"encoding/binary"
	"io"
	"math"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tinylib/msgp/msgp"

	"tierway/memnet"
	"tierway/workers/zmtp"
)

// fakeEngine publishes events as an engine does: a PUB and a ROUTER that are bound to addresses of its network.
// Each batch stores or removes one block, or clears the cache.
type fakeEngine struct {
	t           testing.TB
	network     *memnet.Network
	pub, router net.Listener

	mu      sync.Mutex
	now     float64           // time of the next batch
	log     [][]byte          // all payloads of this process
	from    int               // number of the first payload in the replay buffer
	cache   map[uint64]bool   // blocks that the engine has
	readers map[net.Conn]bool // subscribers
	hold    chan struct{}     // replay requests are answered after it was closed; nil: at once
	hole    bool              // replays lack one message
	old     bool              // replies have no topic
	asked   int               // replay requests
}

func startFake(t testing.TB) *fakeEngine {
	e := &fakeEngine{t: t, network: memnet.New(), now: 1000, cache: map[uint64]bool{}, readers: map[net.Conn]bool{}}
	e.pub, e.router = e.listen(e.publish), e.listen(e.answer)
	return e
}

func (e *fakeEngine) listen(serve func(net.Conn)) net.Listener {
	l, err := e.network.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		e.t.Fatal(err)
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	open := []net.Conn{}
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, c)
			mu.Unlock()
			all.Go(func() { serve(c); c.Close() })
		}
	})
	e.t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for _, c := range open {
			c.Close()
		}
		mu.Unlock()
		all.Wait()
	})
	return l
}

func (e *fakeEngine) address() string { return "tcp://" + e.pub.Addr().String() }
func (e *fakeEngine) replay() string  { return "tcp://" + e.router.Addr().String() }
func (e *fakeEngine) zmtp() zmtp.Network {
	return zmtp.Network{DialFunc: e.network.Dial, ListenFunc: e.network.Listen}
}

// greet exchanges the handshake as a socket of a type.
func greet(c net.Conn, socket string) bool {
	hello := append([]byte{0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 3, 1}, "NULL"...)
	hello = append(hello, make([]byte, 48)...)
	ready := append([]byte("\x05READY\x0bSocket-Type\x00\x00\x00"), byte(len(socket)))
	ready = append(ready, socket...)
	if _, err := c.Write(append(append(hello, 4, byte(len(ready))), ready...)); err != nil {
		return false
	}
	_, err := io.ReadFull(c, make([]byte, 64))
	if err != nil {
		return false
	}
	_, _, err = readFrame(c)
	return err == nil
}

func readFrame(c io.Reader) (flags byte, body []byte, err error) {
	var head [2]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return 0, nil, err
	}
	body = make([]byte, head[1])
	_, err = io.ReadFull(c, body)
	return head[0], body, err
}

func writeMessage(c net.Conn, parts ...[]byte) error {
	var b []byte
	for i, p := range parts {
		more := byte(1)
		if i == len(parts)-1 {
			more = 0
		}
		b = append(b, 2|more)
		b = append(binary.BigEndian.AppendUint64(b, uint64(len(p))), p...)
	}
	_, err := c.Write(b)
	return err
}

// publish serves a subscriber. A PING is answered.
func (e *fakeEngine) publish(c net.Conn) {
	if !greet(c, "PUB") {
		return
	}
	for {
		flags, body, err := readFrame(c)
		e.mu.Lock()
		switch {
		case err != nil:
			delete(e.readers, c)
			e.mu.Unlock()
			return
		case flags == 0 && len(body) > 0 && body[0] == 1:
			e.readers[c] = true
		case bytes.HasPrefix(body, []byte("\x04PING")):
			c.Write([]byte("\x04\x05\x04PONG")) // the reader ends then
		}
		e.mu.Unlock()
	}
}

// answer serves replay requests.
func (e *fakeEngine) answer(c net.Conn) {
	if !greet(c, "ROUTER") {
		return
	}
	for {
		if _, empty, err := readFrame(c); err != nil || len(empty) != 0 {
			return
		}
		_, number, err := readFrame(c)
		if err != nil {
			return
		}
		e.mu.Lock()
		e.asked++
		first, log := max(int(binary.BigEndian.Uint64(number)), e.from), slices.Clone(e.log)
		hold, hole, old := e.hold, e.hole, e.old
		e.mu.Unlock()
		if hold != nil {
			<-hold
		}
		for i := first; i < len(log); i++ {
			if hole && i == first+1 {
				continue
			}
			if writeReply(c, old, uint64(i), log[i]) != nil {
				return
			}
		}
		if writeReply(c, old, math.MaxUint64, nil) != nil {
			return
		}
	}
}

func writeReply(c net.Conn, old bool, number uint64, payload []byte) error {
	parts := [][]byte{nil, []byte("kv"), binary.BigEndian.AppendUint64(nil, number), payload}
	if old {
		parts = append(parts[:1:1], parts[2:]...)
	}
	return writeMessage(c, parts...)
}

// send makes a batch of one event and publishes it to all subscribers, unless it is lost.
func (e *fakeEngine) send(lost bool, event string, hash uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.now++
	b := msgp.AppendArrayHeader(nil, 3)
	b = msgp.AppendArrayHeader(msgp.AppendFloat64(b, e.now), 1)
	switch event {
	case "store":
		e.cache[hash] = true
		b = msgp.AppendString(msgp.AppendArrayHeader(b, 5), "BlockStored")
		b = msgp.AppendNil(msgp.AppendUint64(msgp.AppendArrayHeader(b, 1), hash))
		b = msgp.AppendInt(msgp.AppendUint32(msgp.AppendArrayHeader(b, 1), 7), 1)
	case "remove":
		delete(e.cache, hash)
		b = msgp.AppendString(msgp.AppendArrayHeader(b, 2), "BlockRemoved")
		b = msgp.AppendUint64(msgp.AppendArrayHeader(b, 1), hash)
	case "clear":
		clear(e.cache)
		b = msgp.AppendString(msgp.AppendArrayHeader(b, 1), "AllBlocksCleared")
	}
	b = msgp.AppendInt(b, 0)
	number := uint64(len(e.log))
	e.log = append(e.log, b)
	if lost {
		return
	}
	for c := range e.readers {
		writeMessage(c, []byte("kv"), binary.BigEndian.AppendUint64(nil, number), b) // a reader left
	}
}

// sendForgotten loses batches that the replay buffer has no longer.
func (e *fakeEngine) sendForgotten(n int) {
	for range n {
		e.send(true, "clear", 0)
	}
	e.locked(func() { e.from = len(e.log) })
}

// restart begins a new process. With cut it closes the connections, as a process that ends does.
func (e *fakeEngine) restart(cut bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.log, e.from, e.cache = nil, 0, map[uint64]bool{}
	if cut {
		e.cut()
	}
}

// cut closes the connections of all subscribers.
func (e *fakeEngine) cut() {
	for c := range e.readers {
		c.Close()
		delete(e.readers, c)
	}
}

// locked runs a change of the engine.
func (e *fakeEngine) locked(change func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	change()
}

// subscribed waits until the engine has a subscriber.
func (e *fakeEngine) subscribed() {
	eventually(e.t, "a subscription", func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return len(e.readers) > 0
	})
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no %s", what)
		}
	}
}

// dialAsPublisher connects as a PUB that dials, and waits for the subscription.
func (e *fakeEngine) dialAsPublisher(t testing.TB, address string) net.Conn {
	t.Helper()
	c, err := e.network.Dial(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if !greet(c, "PUB") {
		t.Fatal("no handshake")
	}
	if _, body, err := readFrame(c); err != nil || !bytes.Equal(body, []byte{1}) {
		t.Fatalf("subscription %x, %v", body, err)
	}
	return c
}
