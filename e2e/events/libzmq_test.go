package events

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tinylib/msgp/msgp"

	"tierway/e2e/gateway"
	"tierway/workers/kvevents"
	"tierway/workers/kvstream"
	"tierway/workers/zmtp"
)

// publisher is a running publisher.py.
type publisher struct {
	t       *testing.T
	process *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
}

// python is the interpreter that has pyzmq.
func python(t *testing.T) string {
	t.Helper()
	gateway.DependOn(t, ".") // the scripts
	path, err := filepath.Abs(cmp.Or(os.Getenv("TIERWAY_PYTHON"), "../../.cache/python/bin/python"))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// start runs a publisher until the test ends or kill is called.
func start(t *testing.T, mode, pub, router, layout string) *publisher {
	t.Helper()
	p := &publisher{t: t, process: exec.Command(python(t), "publisher.py", mode, pub, router, layout)}
	p.process.Stderr = os.Stderr
	var err error
	if p.in, err = p.process.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.out = bufio.NewReader(out)
	if err := p.process.Start(); err != nil {
		t.Fatalf("%v: run `make deps` first", err)
	}
	t.Cleanup(p.kill)
	p.expect("ready")
	return p
}

// kill ends the process at once, as a crash does.
func (p *publisher) kill() {
	if p.process.ProcessState == nil {
		p.process.Process.Kill() // it may have ended
		p.process.Wait()         // it was killed
	}
}

func (p *publisher) expect(word string) {
	p.t.Helper()
	if line, err := p.out.ReadString('\n'); err != nil || line != word+"\n" {
		p.t.Fatalf("the publisher wrote %q, %v, and not %s", line, err, word)
	}
}

// obey sends one command and waits until it is done.
func (p *publisher) obey(format string, args ...any) {
	p.t.Helper()
	if _, err := fmt.Fprintf(p.in, format+"\n", args...); err != nil {
		p.t.Fatal(err)
	}
	p.expect("done")
}

// payload is a batch that stores one block. Later batches have later times.
func payload(hash uint64) []byte {
	b := msgp.AppendArrayHeader(nil, 3)
	b = msgp.AppendFloat64(b, float64(time.Now().UnixNano())/1e9)
	b = msgp.AppendArrayHeader(b, 1)
	b = msgp.AppendString(msgp.AppendArrayHeader(b, 5), "BlockStored")
	b = msgp.AppendUint64(msgp.AppendArrayHeader(b, 1), hash)
	b = msgp.AppendUint32(msgp.AppendArrayHeader(msgp.AppendNil(b), 1), 7)
	return msgp.AppendInt(msgp.AppendInt(b, 1), 0)
}

// store publishes a batch that stores one block under a number, or keeps it for replays only.
func (p *publisher) store(what string, number int, hash uint64) {
	p.t.Helper()
	p.obey("%s %d %x", what, number, payload(hash))
}

// index is a sink that keeps the hashes of all stores in their order.
type index struct {
	mu       sync.Mutex
	hashes   []uint64
	live     bool
	reported map[kvstream.Happening]int
}

func (x *index) Apply(b *kvevents.Batch) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, e := range b.Events {
		x.hashes = append(x.hashes, e.Hashes...)
	}
}

func (x *index) Reset() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.hashes = nil
}

func (x *index) SetLive(live bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.live = live
}

func (x *index) Report(h kvstream.Happening, _ error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.reported[h]++
}

func (x *index) is(want ...uint64) func() bool {
	return func() bool {
		x.mu.Lock()
		defer x.mu.Unlock()
		return x.live && slices.Equal(x.hashes, want)
	}
}

func (x *index) count() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.hashes)
}

func (x *index) alive() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.live
}

func (x *index) saw(h kvstream.Happening) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.reported[h]
}

// eventually waits for a condition, and calls nudge at each step.
func eventually(t *testing.T, what string, nudge func(), holds func() bool) {
	t.Helper()
	end := time.After(30 * time.Second)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		if nudge != nil {
			nudge()
		}
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("no %s", what)
		}
	}
}

// zmqAddress returns a free ZeroMQ address.
func zmqAddress(t *testing.T) string { return "tcp://" + gateway.Address(t) }

// read starts the reader of a publisher's stream: it connects to one that binds, and listens for
// one that dials. It ends with the test.
func read(t *testing.T, mode, pub, router string) *index {
	t.Helper()
	x := &index{reported: map[kvstream.Happening]int{}}
	stream := kvstream.New(kvstream.Config{Replay: router}, x)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	t.Cleanup(func() { cancel(); <-done })
	if mode == "bind" {
		go func() { defer close(done); stream.Follow(ctx, pub) }()
		return x
	}
	l, err := zmtp.Network{}.Listen(ctx, pub)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(done)
		if err := kvstream.Serve(ctx, l, func([]byte) *kvstream.Stream { return stream }); err != nil {
			t.Error(err)
		}
	}()
	return x
}

func TestSmokeStreamOfLibzmqIsReadThroughLossKillAndRestart(t *testing.T) {
	for _, mode := range []string{"bind", "connect"} {
		for _, layout := range []string{"topic", "plain"} {
			t.Run(mode+" "+layout, func(t *testing.T) {
				pub, router := zmqAddress(t), zmqAddress(t)
				x := read(t, mode, pub, router) // before the publisher is there
				p := start(t, mode, pub, router, layout)
				p.store("keep", 0, 100) // published before the subscription
				next := 1
				nudge := func() { p.store("send", next, uint64(100+next)); next++ }
				eventually(t, "first event", nudge, func() bool { return x.count() > 0 })
				p.store("keep", next, uint64(100+next)) // lost
				next++
				nudge()
				want := make([]uint64, next)
				for i := range want {
					want[i] = uint64(100 + i)
				}
				eventually(t, "index of all events", nil, x.is(want...))

				p.kill()
				eventually(t, "report of the end", nil, func() bool { return !x.alive() })
				p = start(t, mode, pub, router, layout)
				for n := range next + 3 { // beyond the last number of the first process
					p.store("keep", n, uint64(500+n))
				}
				want = nil
				for n := range next + 3 {
					want = append(want, uint64(500+n))
				}
				number := next + 3
				eventually(t, "index of the new process", func() {
					p.store("send", number, uint64(500+number))
					want = append(want, uint64(500+number))
					number++
				}, func() bool { return x.is(want...)() })
			})
		}
	}
}

func TestStoppedPublisherIsFoundAndReadAgain(t *testing.T) {
	pub, router := zmqAddress(t), zmqAddress(t)
	p := start(t, "bind", pub, router, "topic")
	x := read(t, "bind", pub, router)
	p.store("keep", 0, 1)
	p.store("send", 1, 2)
	eventually(t, "index", nil, x.is(1, 2))
	// libzmq answers PINGs, so the reader distinguishes a stopped process from an idle one. It needs one
	// answered PING before the stop.
	eventually(t, "a second of silence", nil, after(2*zmtp.Heartbeat))
	if err := p.process.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	eventually(t, "report of the silence", nil, func() bool { return !x.alive() })
	t.Logf("a stopped publisher was found after %v", time.Since(began).Round(10*time.Millisecond))
	if err := p.process.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	p.store("keep", 2, 3)
	eventually(t, "index after the stop", nil, x.is(1, 2, 3))
}

// after holds once a time has passed.
func after(d time.Duration) func() bool {
	end := time.Now().Add(d)
	return func() bool { return time.Now().After(end) }
}

func TestFloodOfLibzmqIsReadWhole(t *testing.T) {
	const count = 200_000
	pub, router := zmqAddress(t), zmqAddress(t)
	p := start(t, "bind", pub, router, "topic")
	x := read(t, "bind", pub, router)
	p.store("send", 0, 7)
	eventually(t, "first event", nil, x.is(7))
	began := time.Now()
	p.obey("flood %d %d %x", 1, count, payload(7))
	eventually(t, "end of the flood", nil, func() bool { return x.count() == count+1 })
	took := time.Since(began)
	t.Logf("%d messages in %v, %.0f a second; %d gaps", count, took.Round(time.Millisecond), count/took.Seconds(),
		x.saw(kvstream.Gap))
	if x.saw(kvstream.ReplayFailed) > 0 {
		t.Errorf("%d replays failed", x.saw(kvstream.ReplayFailed))
	}
}
