package zmtp

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// unhex decodes hexadecimal bytes with spaces between them.
func unhex(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(text), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// publisherHello and libzmqHello are the greeting and READY of a PUB: of a simulated engine (ZMTP 3.0), and
// of libzmq 4.3 (ZMTP 3.1).
func publisherHello(t testing.TB) []byte {
	return append(greeting(t, "00 00 00 00 00 00 00 00", "03 00"), ready("PUB", "Identity",
		"0c5dc0d3-2f5c-4d4a-9d3a-7d2f3c6f7b1a")...)
}

func libzmqHello(t testing.TB, socket string) []byte {
	return append(greeting(t, "00 00 00 00 00 00 00 01", "03 01"), ready(socket)...)
}

func greeting(t testing.TB, length, version string) []byte {
	b := unhex(t, "ff"+length+"7f"+version)
	return append(append(b, "NULL"...), make([]byte, greetingSize-16)...)
}

// ready is a READY command with a socket type and more properties.
func ready(socket string, more ...string) []byte {
	var data []byte
	for p := append([]string{"Socket-Type", socket}, more...); len(p) > 0; p = p[2:] {
		data = append(append(data, byte(len(p[0]))), p[0]...)
		data = append(append(data, 0, 0, 0, byte(len(p[1]))), p[1]...)
	}
	return appendCommand(nil, "READY", data)
}

// connect makes a connection to a peer of which the test has the other end.
func connect(t testing.TB, socket Socket, limits Limits, hello []byte) (*Conn, net.Conn, error) {
	t.Helper()
	near, far := net.Pipe()
	t.Cleanup(func() { near.Close(); far.Close() })
	got := make(chan []byte, 1)
	go func() {
		sent := make([]byte, greetingSize)
		io.ReadFull(far, sent) // the handshake fails then
		go func() {
			rest := make([]byte, 512)
			n, _ := far.Read(rest)
			got <- rest[:n]
		}()
		far.Write(hello) // the handshake fails then
	}()
	c, err := Handshake(t.Context(), near, socket, limits)
	if err != nil {
		return nil, far, err
	}
	if sent := <-got; !bytes.Equal(sent, ready(string(socket))) {
		t.Errorf("READY was sent as %x", sent)
	}
	return c, far, nil
}

func TestGreetingIsThatOfVersion3(t *testing.T) {
	want := append(append(unhex(t, "ff 00 00 00 00 00 00 00 00 7f 03 00"), "NULL"...), make([]byte, 48)...)
	if got := appendGreeting(nil); !bytes.Equal(got, want) {
		t.Errorf("%x", got)
	}
	if got, want := ready("SUB"),
		unhex(t, "04 19 05 5245414459 0b 536f636b65742d54797065 00000003 535542"); !bytes.Equal(got,
		want) {
		t.Errorf("%x", got)
	}
}

// captured is a message of a simulated engine's PUB: topic, sequence number 1 and a payload of
// 313 bytes, which needs a long frame.
func captured(t testing.TB) (wire []byte, parts [][]byte) {
	parts = [][]byte{[]byte("kv@127.0.0.1:8101@sim-model"), unhex(t, "00 00 00 00 00 00 00 01"),
		bytes.Repeat([]byte{7}, 313)}
	wire = append([]byte{1, 0x1b}, parts[0]...)
	wire = append(append(wire, 1, 8), parts[1]...)
	return append(append(wire, unhex(t, "02 00 00 00 00 00 00 01 39")...), parts[2]...), parts
}

func TestMessageIsReadHoweverItsBytesAreSplit(t *testing.T) {
	wire, parts := captured(t)
	for _, step := range []int{1, 2, 3, 64, len(wire)} {
		c, far, err := connect(t, Sub, Limits{}, publisherHello(t))
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for b := wire; len(b) > 0; b = b[min(step, len(b)):] {
				far.Write(b[:min(step, len(b))]) // Receive fails then
			}
		}()
		var m Message
		if err := c.Receive(&m); err != nil {
			t.Fatalf("steps of %d: %v", step, err)
		}
		if !slicesEqual(m.Parts, parts) {
			t.Errorf("steps of %d: %q", step, m.Parts)
		}
	}
}

func slicesEqual(a, b [][]byte) bool {
	for i := range a {
		if i >= len(b) || !bytes.Equal(a[i], b[i]) {
			return false
		}
	}
	return len(a) == len(b)
}

func TestSubscriptionIsAMessageThatAllVersionsUnderstand(t *testing.T) {
	const ping = " 04 07 04 50 49 4e 47 00 00"
	for topic, want := range map[string]string{"": "00 01 01" + ping, "kv": "00 03 01 6b 76" + ping} {
		c, far, err := connect(t, Sub, Limits{}, libzmqHello(t, "XPUB"))
		if err != nil {
			t.Fatal(err)
		}
		sent := make([]byte, len(unhex(t, want)))
		done := make(chan error, 1)
		go func() { done <- c.Subscribe(topic) }()
		if _, err := io.ReadFull(far, sent); err != nil || !bytes.Equal(sent, unhex(t, want)) {
			t.Errorf("%q: sent %x, %v", topic, sent, err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestHandshakeRejectsPeersThatDoNotFit(t *testing.T) {
	secured := bytes.Replace(libzmqHello(t, "PUB"), []byte("NULL\x00"), []byte("CURVE"), 1)
	for name, c := range map[string]struct {
		hello []byte
		want  string
	}{
		"an HTTP server":        {bytes.Repeat([]byte("HTTP/1.1 400 Bad Request\r\n"), 4), "does not speak ZMTP"},
		"ZMTP 2.0":              {greeting(t, "00 00 00 00 00 00 00 00", "01 00"), "speaks ZMTP 1"},
		"a mechanism with keys": {secured, `requires the mechanism "CURVE"`},
		"another subscriber":    {libzmqHello(t, "SUB"), `the peer is a "SUB" socket; SUB needs PUB or XPUB`},
		"an ERROR": {append(greeting(t, "0000000000000000", "03 01"), appendCommand(nil, "ERROR", nil)...),
			"refused"},
		"a message instead of READY": {append(greeting(t, "0000000000000000", "03 01"), 0, 1, 1), "instead of READY"},
		"READY of a gigabyte": {append(greeting(t, "0000000000000000", "03 01"), 6, 0, 0, 0, 0, 64, 0, 0, 0),
			"a command of"},
		"READY without a socket type": {append(greeting(t, "0000000000000000", "03 01"), appendCommand(nil, "READY", nil)...),
			"without Socket-Type"},
		"READY with a cut property": {append(greeting(t, "0000000000000000", "03 01"),
			appendCommand(nil, "READY", []byte("\x0bSocket-Type\x00\x00\x00\x09PUB"))...), "is cut"},
	} {
		if _, _, err := connect(t, Sub, Limits{}, c.hello); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestHandshakeEndsWithItsContextAndItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer far.Close()
		go io.Copy(io.Discard, far) // the peer reads and never answers
		began := time.Now()
		if _, err := Handshake(t.Context(), near, Sub, Limits{}); err == nil || time.Since(began) != Patience {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		near, far2 := net.Pipe()
		defer far2.Close()
		go io.Copy(io.Discard, far2) // the peer reads and never answers
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := errors.New("the worker was removed")
		time.AfterFunc(time.Second, func() { cancel(gone) })
		began = time.Now()
		if _, err := Handshake(ctx, near, Sub, Limits{}); err == nil || time.Since(began) != time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

func TestMessageOverALimitIsAnErrorBeforeItIsAllocated(t *testing.T) {
	for name, c := range map[string]struct {
		wire string
		want error
	}{
		"a part of 2^40 bytes":          {"02 00 00 01 00 00 00 00 00", ErrLimit},
		"a part of 2^63 bytes":          {"02 80 00 00 00 00 00 00 00", ErrLimit},
		"a part over the limit":         {"00 65", ErrLimit},
		"two parts over it together":    {"01 02 61 62 00 63", ErrLimit},
		"a fourth part":                 {"01 00 01 00 01 00 00 00", ErrLimit},
		"a command of 2^40 bytes":       {"06 00 00 01 00 00 00 00 00", ErrLimit},
		"unknown flags":                 {"08 00", ErrProtocol},
		"a command with MORE":           {"05 00", ErrProtocol},
		"a command without a name":      {"04 00", ErrProtocol},
		"a command with a name too far": {"04 02 09 61", ErrProtocol},
		"a PING without a TTL":          {"04 05 04 50 49 4e 47", ErrProtocol},
		"an end inside a part":          {"00 05 61", io.ErrUnexpectedEOF},
		"an end between parts":          {"01 01 61", io.EOF},
	} {
		conn, far, err := connect(t, Sub, Limits{Parts: 3, Bytes: 100}, publisherHello(t))
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			far.Write(unhex(t, c.wire)) // Receive fails
			far.Close()
		}()
		var m Message
		if err := conn.Receive(&m); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if cap(m.buf) > 1<<20 {
			t.Errorf("%s: %d bytes were allocated", name, cap(m.buf))
		}
	}
}

func TestCommandsBetweenPartsOfAStreamAreNoMessages(t *testing.T) {
	c, far, err := connect(t, Sub, Limits{}, publisherHello(t))
	if err != nil {
		t.Fatal(err)
	}
	pong := make(chan []byte, 1)
	go func() {
		far.Write(appendCommand(nil, "SURPRISE", []byte("data")))    // Receive fails then
		far.Write(appendCommand(nil, "PING", []byte("\x00\x05ctx"))) // Receive fails then
		b := make([]byte, len(appendCommand(nil, "PONG", []byte("ctx"))))
		io.ReadFull(far, b) // compared below
		pong <- b
		far.Write([]byte{0, 1, 'x'}) // Receive fails then
	}()
	var m Message
	if err := c.Receive(&m); err != nil || len(m.Parts) != 1 || string(m.Parts[0]) != "x" {
		t.Fatalf("%q, %v", m.Parts, err)
	}
	if got := <-pong; !bytes.Equal(got, appendCommand(nil, "PONG", []byte("ctx"))) {
		t.Errorf("PONG is %x", got)
	}
}

// serveCommands answers each PING of a peer until alive returns false, then stays silent.
func serveCommands(far net.Conn, alive func() bool) (pings func() int) {
	var count atomic.Int64
	b := make([]byte, 64)
	go func() {
		for {
			n, err := far.Read(b)
			if err != nil {
				return
			}
			if bytes.Contains(b[:n], []byte("PING")) {
				count.Add(1)
				if alive() {
					far.Write(appendCommand(nil, "PONG", nil)) // Receive ends then
				}
			}
		}
	}()
	return func() int { return int(count.Load()) }
}

func TestPeerThatStopsAnsweringIsGivenUpWithinFiveSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, far, err := connect(t, Sub, Limits{}, libzmqHello(t, "PUB"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		defer far.Close()
		const stops = 20 * time.Second
		began := time.Now()
		serveCommands(far, func() bool { return time.Since(began) < stops })
		var m Message
		err = c.Receive(&m)
		if took := time.Since(began); !errors.Is(err, ErrSilent) || took < stops || took > stops+5*time.Second {
			t.Errorf("after %v: %v", took, err)
		}
	})
}

// TestBusyPeerIsGivenUpWithinFiveSeconds: a peer that was never silent has received one PING, the one of
// Subscribe.
func TestBusyPeerIsGivenUpWithinFiveSeconds(t *testing.T) {
	for name, answers := range map[string]bool{"answers": true, "ignores": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, far, err := connect(t, Sub, Limits{}, libzmqHello(t, "PUB"))
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				defer far.Close()
				const stops = 5 * time.Second
				began := time.Now()
				pings := serveCommands(far, func() bool { return answers && time.Since(began) < stops })
				if err := c.Subscribe(""); err != nil {
					t.Fatal(err)
				}
				for at := time.Duration(0); at < stops; at += Heartbeat / 2 {
					time.AfterFunc(at, func() { far.Write([]byte{0, 1, 'x'}) }) // Receive fails then
				}
				time.AfterFunc(time.Minute, func() { far.Close() })
				var m Message
				for err == nil {
					err = c.Receive(&m)
				}
				if took := time.Since(began); answers != errors.Is(err, ErrSilent) || answers && took > stops+5*time.Second {
					t.Errorf("%d pings, %v after %v", pings(), err, took)
				}
				if !answers && pings() != 1 {
					t.Errorf("%d pings to a peer that ignores them", pings())
				}
			})
		})
	}
}

func TestIdlePeerThatIgnoresPingsIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, far, err := connect(t, Sub, Limits{}, publisherHello(t))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		defer far.Close()
		pings := serveCommands(far, func() bool { return false })
		time.AfterFunc(time.Hour, func() { far.Write([]byte{0, 1, 'x'}) }) // Receive fails then
		var m Message
		if err := c.Receive(&m); err != nil || pings() != 1 {
			t.Errorf("%d pings, %v", pings(), err)
		}
	})
}

func TestReceiveAllocatesNothingOnceItsBuffersHaveGrown(t *testing.T) {
	wire, _ := captured(t)
	c, far, err := connect(t, Sub, Limits{}, publisherHello(t))
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			if _, err := far.Write(wire); err != nil {
				return
			}
		}
	}()
	var m Message
	if n := testing.AllocsPerRun(200, func() {
		if err := c.Receive(&m); err != nil {
			t.Fatal(err)
		}
	}); n > 3 { // net.Pipe arms a timer for each deadline
		t.Errorf("%v allocations a message", n)
	}
	far.Close()
}

func FuzzReceive(f *testing.F) {
	wire, _ := captured(f)
	for _, seed := range [][]byte{wire, {0, 0}, {1, 0, 0, 0}, appendCommand(nil, "PING", []byte{0, 0, 1}),
		{6, 255, 255, 255, 255, 255, 255, 255, 255}, {2, 0, 0, 0, 0, 1, 0, 0, 0, 5}} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, wire []byte) {
		limits := Limits{Parts: 4, Bytes: 1 << 20, First: 1 << 10}
		near, far := net.Pipe()
		defer near.Close()
		c, done := &Conn{conn: near, limits: limits}, make(chan struct{})
		c.in = newReader(near)
		go func() {
			go io.Copy(io.Discard, far) // PONGs
			far.Write(wire)             // Receive ends then
			far.Close()
			close(done)
		}()
		var m Message
		even := func(first []byte) bool { return len(first)%2 == 0 }
		for c.ReceiveIf(&m, even) == nil {
			total := 0
			for _, p := range m.Parts {
				total += len(p)
			}
			if len(m.Parts) == 0 || len(m.Parts) > limits.Parts || total > limits.Bytes || !even(m.Parts[0]) {
				t.Fatalf("%d parts of %d bytes", len(m.Parts), total)
			}
		}
		if cap(m.buf) > len(wire)+(256<<10) {
			t.Errorf("%d bytes were allocated for %d", cap(m.buf), len(wire))
		}
		near.Close()
		<-done
	})
}
