package events

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"tierway/e2e/gateway"
	"tierway/engines"
)

func TestMain(m *testing.M) { os.Exit(gateway.Main(m)) }

// simulated is a simulated engine that publishes events.
type simulated struct {
	*engines.Server
	engine *engines.Engine
}

// simulate starts an engine on given addresses of its HTTP server, its publisher and its replays.
func simulate(t *testing.T, at, pub, router string) *simulated {
	t.Helper()
	e := engines.New(engines.Config{Name: "sim", Model: "m", CacheTokens: 1 << 20})
	if err := e.PublishEvents(t.Context(), pub, router); err != nil {
		t.Fatal(err)
	}
	s, err := engines.Start(e, at)
	if err != nil {
		t.Fatal(err)
	}
	x := &simulated{s, e}
	t.Cleanup(x.end)
	return x
}

// end stops the engine like a process that is killed.
func (s *simulated) end() {
	s.Kill()
	s.engine.Close()
}

// sendChat sends a chat of some words to an engine or a gateway.
func sendChat(t *testing.T, url, word string, words int) {
	t.Helper()
	body := fmt.Sprintf(`{"model":"m","max_tokens":1,"messages":[{"role":"user","content":%q}]}`,
		strings.Repeat(word+" ", words))
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close() // it was only read
	if text, err := io.ReadAll(a.Body); err != nil || a.StatusCode != http.StatusOK {
		t.Fatalf("%d %s %v", a.StatusCode, text, err)
	}
}

// configuration is a gateway with one worker. Its formatting verbs stand for the file's kv_events, the
// worker's URL and the worker's kv_events.
const configuration = `
auth: { required: false }
store: { sql: "" }
drain: { accept_grace: 10ms, timeout: 2s }
health: { interval: 30s, timeout: 30s }
policy: { name: kv_aware }
kv_events: { %s }
tiers:
  - { name: small, model: m, workers: [{ name: w, url: %q, kv_events: { %s } }] }
`

// metric returns the value of a metric of the gateway.
func metric(t *testing.T, p *gateway.Process, name string, pairs ...string) float64 {
	t.Helper()
	all, err := p.Metrics()
	if err != nil {
		t.Fatal(err)
	}
	return all.Sum(name, pairs...)
}

// portOf returns the port of a ZeroMQ address.
func portOf(address string) string { return address[strings.LastIndexByte(address, ':')+1:] }

// wire forwards connections to an address until it is cut. Then it drops all bytes and keeps the connections
// open, like a failed network.
type wire struct {
	net.Listener
	to string

	mu    sync.Mutex
	cut   bool
	conns []net.Conn
}

func newWire(t *testing.T, to string) *wire {
	t.Helper()
	l, err := net.Listen("tcp", gateway.Address(t))
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{Listener: l, to: to}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", to)
			if err != nil {
				c.Close() // nothing was sent
				continue
			}
			w.mu.Lock()
			w.conns = append(w.conns, c, far)
			w.mu.Unlock()
			all.Go(func() { w.pass(c, far) })
			all.Go(func() { w.pass(far, c) })
		}
	})
	t.Cleanup(func() {
		l.Close() // its loop ends
		w.mu.Lock()
		for _, c := range w.conns {
			c.Close() // its loops end
		}
		w.mu.Unlock()
		all.Wait()
	})
	return w
}

// pass copies bytes while the wire is not cut.
func (w *wire) pass(to, from net.Conn) {
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		if err != nil {
			return
		}
		w.mu.Lock()
		cut := w.cut
		w.mu.Unlock()
		if cut {
			continue
		}
		if _, err := to.Write(b[:n]); err != nil {
			return
		}
	}
}

func (w *wire) setCut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = true
}

// The tests of workers/zmtp check in virtual time that this takes at most five seconds.
func TestStreamThatIsCutWithoutACloseIsReported(t *testing.T) {
	pub, router := zmqAddress(t), zmqAddress(t)
	s := simulate(t, gateway.Address(t), pub, router)
	w := newWire(t, strings.TrimPrefix(pub, "tcp://"))
	p := gateway.Serve(t, fmt.Sprintf(configuration, "", s.URL,
		fmt.Sprintf("port: %s, replay_port: %s", portOf(w.Addr().String()), portOf(router))))
	sendChat(t, p.BaseURL, "first", 300)
	complete := func() bool { return metric(t, p, "tierway_kv_events_complete") == 1 }
	p.WaitFor("the events", complete)
	w.setCut()
	p.WaitFor("report of the loss", func() bool { return metric(t, p, "tierway_kv_events_up") == 0 })
	if n := strings.Count(p.Log(), "KV events are lost"); n != 1 {
		t.Errorf("the log has %d lines about the loss:\n%s", n, p.Log())
	}
	sendChat(t, p.BaseURL, "second", 300)
	if n := metric(t, p, "tierway_kv_events_faults_total", `kind="lost"`); n < 1 {
		t.Errorf("%v losses are counted", n)
	}
}

func TestRestartedEngineHasNoBlocksOfTheFormerOne(t *testing.T) {
	at, pub, router := gateway.Address(t), zmqAddress(t), zmqAddress(t)
	first := simulate(t, at, pub, router)
	p := gateway.Serve(t, fmt.Sprintf(configuration, "", first.URL, ""))
	sendChat(t, p.BaseURL, "former", 2000)
	blocks := func() float64 { return metric(t, p, "tierway_kv_index_blocks") }
	p.WaitFor("the events", func() bool { return blocks() > 100 })
	sendChat(t, p.BaseURL, "former", 2000)
	predicted := metric(t, p, "tierway_prefix_predicted_tokens_total")
	cached := metric(t, p, "tierway_prefix_cached_tokens_total")
	if predicted < 1000 || cached < 1000 {
		t.Errorf("before the restart %v tokens were predicted and %v cached, want 1,000 each", predicted, cached)
	}
	first.end()
	second := simulate(t, at, pub, router)
	sendChat(t, second.URL+"/v1", "later", 200) // its first event
	p.WaitFor("the first event of the new engine", func() bool {
		n := blocks()
		return n > 0 && n < 100 && metric(t, p, "tierway_kv_events_complete") == 1
	})
	sendChat(t, p.BaseURL, "former", 2000)
	// The later chat has at most its first block of 16 tokens in common with the former one.
	if n := metric(t, p, "tierway_prefix_predicted_tokens_total") - predicted; n > 16 {
		t.Errorf("%v tokens of the former engine were predicted, want at most 16", n)
	}
	if n := metric(t, p, "tierway_prefix_cached_tokens_total") - cached; n > 16 {
		t.Errorf("the restarted engine had %v tokens cached, want at most 16", n)
	}
	p.WaitFor("the events of the prompt", func() bool { return blocks() > 100 })
}

func TestEngineThatConnectsIsKnownByItsTopic(t *testing.T) {
	s := engines.New(engines.Config{Name: "sim", Model: "m", CacheTokens: 1 << 20}) // it publishes nothing itself
	server, err := engines.Start(s, gateway.Address(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { server.Kill(); s.Close() }()
	listen, router := gateway.Address(t), zmqAddress(t)
	p := gateway.Serve(t, fmt.Sprintf(configuration, fmt.Sprintf("listen: %q", listen), server.URL,
		"topic: kv, replay_port: "+portOf(router)))
	publisher := start(t, "connect", "tcp://"+listen, router, "topic")
	publisher.store("keep", 0, 1)
	number := 1
	eventually(t, "blocks of the publisher", func() {
		publisher.store("send", number, uint64(number+1))
		number++
	}, func() bool {
		return metric(t, p, "tierway_kv_events_complete") == 1 && metric(t, p, "tierway_kv_event_batches_total") > 1
	})
	publisher.kill()
	p.WaitFor("the end of the publisher", func() bool { return metric(t, p, "tierway_kv_events_up") == 0 })
}
