package watch

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"testing"
	"time"

	"tierway/e2e/rig"
	"tierway/engines"
	"tierway/engines/chaos"
)

const (
	// shortStorm is enough time for some hundred requests of each kind.
	shortStorm = 4 * time.Second
	// stormClients is more than the workers and their queue accept at once.
	stormClients = 32
	// scrapeEvery is the interval of the scrapes: short, but not so short that the machine does
	// nothing else.
	scrapeEvery = 20 * time.Millisecond
	// faultPeriod is how long a worker keeps one fault.
	faultPeriod = 150 * time.Millisecond
)

// Keys of the tenants.
const (
	limitedKey = "the-key-of-many-requests-a-minute"
	narrowKey  = "the-key-of-two-requests-at-once"
)

// storm is a load with faults everywhere, and counts the requests that clients have sent.
type storm struct {
	*watchRig
	passing *rig.Worker // of the pool that reloads add and remove
	draft   string      // a configuration for replays

	mu      sync.Mutex // guards the fields below
	sent    map[string]int
	seen    map[int]int // responses by status; 0: no response
	scrapes int
	busy    int // scrapes that found requests in flight
}

// TestTelemetryAddsUp: OB-05: workers fail in every way, clients disconnect, tenants reach their
// limits, the queue is full and the configuration changes all the time. In every scrape, started
// requests are the sum of ended ones and those in flight. At the end, the clients' counts, metrics,
// records, access lines and workers agree.
func TestTelemetryAddsUp(t *testing.T) {
	s := newStorm(t)
	var clients, others sync.WaitGroup
	over := make(chan struct{})
	others.Go(func() { s.scrape(over) })
	s.meetEachCase()
	s.Reload(stormSettings())
	ctx, stop := context.WithTimeout(t.Context(), rig.Soak(t, shortStorm))
	defer stop()
	for i := range stormClients {
		rng := rand.New(rand.NewPCG(uint64(i), 6))
		clients.Go(func() {
			for ctx.Err() == nil {
				s.sendOne(rng)
			}
		})
	}
	others.Go(func() { s.injectFaults(ctx) })
	others.Go(func() { s.useAdminAPI(ctx) })
	s.reloadRepeatedly(ctx)
	clients.Wait()
	s.setFaults()
	s.WaitUntilIdle()
	close(over)
	others.Wait()
	s.checkBalance()
	t.Logf("%d requests, %d scrapes; answers by status: %v", len(s.sent), s.scrapes, s.seen)
}

// newStorm returns a rig of slow workers with few slots. Reloads add and remove the pool of the last
// worker.
func newStorm(t *testing.T) *storm {
	t.Helper()
	s := &storm{sent: map[string]int{}, seen: map[int]int{}}
	// A file holds the records of at most two seconds, so that there are several files, but fewer
	// than max_files.
	fileSize := fmt.Sprintf("%dMiB", max(1, int(rig.Soak(t, shortStorm)/shortStorm)))
	s.watchRig = newRig(t, 4, engines.Config{AnyModel: true, Slots: 64, PerToken: 2 * time.Millisecond}, nil)
	s.Client.Transport.(*http.Transport).DialContext = func(ctx context.Context, network, address string) (net.Conn,
		error) {
		c, err := new(net.Dialer).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &countedConn{Conn: c}, nil
	}
	s.passing = s.Workers[3]
	s.Workers = s.Workers[:3]
	s.Serve(rig.Settings{
		"auth": "{ keys: [ { name: acme, sha256: " + rig.Digest(rig.TenantKey) + " }, { name: limited, sha256: " +
			rig.Digest(limitedKey) +
			", limits: { rpm: 60, burst: 20 } }, { name: narrow, sha256: " + rig.Digest(narrowKey) +
			", limits: { concurrent: 2 } } ] }",
		"tiers":     s.Tiers("max_inflight: 4", ""),
		"policy":    "{ name: least_load }",
		"decisions": "{ file: decisions.jsonl, max_files: 100, max_size: " + fileSize + " }",
		"telemetry": "{ tenants: 3 }", // all tenants keep series of their own
		// For meetEachCase: held requests may wait.
		"queue":    "{ max_depth: 6, max_wait: { interactive: 10m } }",
		"timeouts": "{ first_byte: 10m, idle: 10m }",
		"breaker":  "{ consecutive_failures: 20, failure_ratio: 1, open_for: 100ms }",
		"retry":    "{ attempts: 3, budget: 1 }",
		"pools":    s.removable(true),
	})
	s.draft = s.Config.With(rig.Settings{"policy": "{ name: round_robin }"}).String()
	return s
}

// stormSettings are the settings of the random load: short waits and limits.
func stormSettings() rig.Settings {
	return rig.Settings{
		"queue": "{ max_depth: 6, max_wait: { interactive: 200ms, background: 100ms, batch: 1s }, age: { background: " +
			"50ms, batch: 200ms }, displace: true, heartbeat_after: 50ms }",
		"timeouts": "{ first_byte: 300ms, idle: 300ms, total: { interactive: 2s, background: 2s, batch: 3s } }",
	}
}

// meetEachCase sends requests that end in each way that checkBalance demands: the random load may miss some on a slow
// machine. It takes as long as ten scrapes with requests in flight.
func (s *storm) meetEachCase() {
	s.T.Helper()
	const streams = `"stream":true`
	request := func(key, text string, more ...string) *http.Request {
		return s.Request(s.T.Context(), http.MethodPost, "/v1/chat/completions", rig.Chat("sim", text, more...),
			"Authorization", "Bearer "+key)
	}
	send := func(key, text string, more ...string) rig.Reply {
		got := s.Send(request(key, text, more...))
		s.count(got.ID, got.Status, 1)
		return got
	}
	hold := func(key string) *rig.Stream {
		held := s.Open(request(key, rig.PauseMark, streams))
		s.count(held.ID, held.Resp.StatusCode, 1)
		return held
	}
	rig.Eventually(s.T, func() error { // beyond the burst
		if got := send(limitedKey, "hello"); got.Status != http.StatusTooManyRequests {
			return fmt.Errorf("within the rate, the status is %d", got.Status)
		}
		return nil
	})
	narrow := []*rig.Stream{hold(narrowKey), hold(narrowKey)}
	if got := send(narrowKey, "hello"); got.Status != http.StatusTooManyRequests {
		s.T.Errorf("with two requests in flight, the status is %d", got.Status)
	}
	hold(rig.TenantKey).Cancel()

	const held = 30 // more than the workers and their queue accept
	replies := make(chan rig.Reply, held)
	for range held {
		go func() { replies <- send(rig.TenantKey, rig.PauseMark) }()
	}
	if got := <-replies; got.Status == http.StatusOK {
		s.T.Errorf("the queue was not full: %s", got.Body)
	}
	rig.Eventually(s.T, func() error {
		if n := s.busyScrapes(); n < 10 {
			return fmt.Errorf("%d scrapes found requests in flight", n)
		}
		return nil
	})
	s.ResumePaused()
	for range held - 1 {
		<-replies
	}
	for _, stream := range narrow {
		if _, err := stream.ReadRest(); err != nil {
			s.T.Error(err)
		}
	}

	for _, fault := range []chaos.Fault{{Kind: chaos.Status, Status: http.StatusInternalServerError},
		{Kind: chaos.Truncate, After: 2}} {
		s.setFaults(fault)
		send(rig.TenantKey, "hello", streams)
	}
	s.setFaults()
}

// setFaults gives all workers the same faults.
func (s *storm) setFaults(faults ...chaos.Fault) {
	s.T.Helper()
	for _, w := range s.Workers {
		if err := w.Set(faults...); err != nil {
			s.T.Error(err)
		}
	}
}

// count counts a request that was sent some times, and the status of its response.
func (s *storm) count(id string, status, times int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent[id] += times
	s.seen[status]++
}

// busyScrapes returns the number of scrapes that found requests in flight.
func (s *storm) busyScrapes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.busy
}

// removable returns the setting pools with or without the removable pool.
func (s *storm) removable(there bool) string {
	if !there {
		return "[]"
	}
	return fmt.Sprintf("[ { name: passing, model: passing, serves: [chat], workers: [ { name: p0, url: %q } ] } ]",
		s.passing.Server.URL)
}

// reloadRepeatedly changes the configuration until ctx ends.
func (s *storm) reloadRepeatedly(ctx context.Context) {
	for n := 0; ctx.Err() == nil; n++ {
		s.Reload(rig.Settings{"pools": s.removable(n%2 == 1), "tiers": s.Tiers(fmt.Sprintf("max_inflight: %d", 3+n%3), "")})
		rig.Pause(ctx, faultPeriod)
	}
	s.Reload(rig.Settings{"pools": s.removable(true)})
}

// injectFaults gives each worker a random fault, or none, in every period until ctx ends.
func (s *storm) injectFaults(ctx context.Context) {
	after := func(k chaos.Kind) chaos.Fault { return chaos.Fault{Kind: k, After: 2} }
	kinds := []chaos.Fault{{Kind: chaos.Reset}, after(chaos.Reset), {Kind: chaos.Close}, after(chaos.Close),
		{Kind: chaos.Hang}, after(chaos.Hang), {Kind: chaos.Slow, Delay: 200 * time.Millisecond}, {Kind: chaos.Stale},
		{Kind: chaos.Garbage}, after(chaos.Truncate), {Kind: chaos.NoDone}, {Kind: chaos.ErrorFirst}, after(chaos.ErrorEvent),
		after(chaos.Malformed), {Kind: chaos.Status, Status: 503}, {Kind: chaos.Status, Status: 500},
		{Kind: chaos.Status, Status: 400},
		{Kind: chaos.Status, Status: 429, RetryAfter: "1", Times: 1}, {Kind: chaos.HTML}, {Kind: chaos.JSONError},
		{Kind: chaos.Empty},
		{Kind: chaos.NoUsage}, {Kind: chaos.Redirect}}
	rng := rand.New(rand.NewPCG(7, 6))
	for ctx.Err() == nil {
		for _, w := range s.Workers {
			faults := []chaos.Fault{kinds[rng.IntN(len(kinds))]}
			if rng.IntN(3) == 0 {
				faults = nil
			}
			if err := w.Set(faults...); err != nil {
				s.T.Error(err)
			}
		}
		rig.Pause(ctx, faultPeriod)
	}
}

// useAdminAPI requests explanations, replays and records until ctx ends. They must not count as
// requests.
func (s *storm) useAdminAPI(ctx context.Context) {
	explained := rig.Chat("auto", "question 1")
	for n := 0; ctx.Err() == nil; n++ {
		key := []string{"acme", "limited", "narrow"}[n%3]
		for path, body := range map[string]string{
			"/admin/route/explain": `{"tenant":"` + key + `","request":` + explained + `}`,
			"/admin/route/replay":  `{"last":100,"draft":` + rig.Quoted(s.draft) + `}`,
		} {
			if status, told := s.Admin(http.MethodPost, path, body, rig.AdminKey); status != http.StatusOK {
				s.T.Errorf("POST %s is %d: %s", path, status, told)
			}
		}
		if status, told := s.Admin(http.MethodGet, "/admin/decisions?limit=1&q=question", "", rig.AdminKey); status !=
			http.StatusOK {
			s.T.Errorf("GET /admin/decisions is %d: %s", status, told)
		}
		rig.Pause(ctx, faultPeriod/3)
	}
}

// scrape scrapes the metrics and checks their sums until over is closed.
func (s *storm) scrape(over <-chan struct{}) {
	tick := time.NewTicker(scrapeEvery)
	defer tick.Stop()
	for {
		m, err := s.Metrics()
		if err == nil {
			err = checkSums(m)
		}
		now := m.Sum("tierway_inflight")
		if err == nil && (now < 0 || now > 2*stormClients) { // a client may disconnect and send its next request
			err = fmt.Errorf("%v requests are in flight of %d clients", now, stormClients)
		}
		if err != nil {
			s.T.Errorf("scrape %d: %v", s.scrapes, err)
			return
		}
		s.mu.Lock()
		if s.scrapes++; now > 0 {
			s.busy++
		}
		s.mu.Unlock()
		select {
		case <-over:
			return
		case <-tick.C:
		}
	}
}

// sendOne sends one random request and counts it.
func (s *storm) sendOne(rng *rand.Rand) {
	ctx, cancel := context.WithTimeout(context.Background(), rig.Patience)
	defer cancel()
	uses := make(chan use, 8) // net/http may send a request again on another connection
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
		c := i.Conn.(*countedConn)
		uses <- use{c, c.writeCount()}
	}})
	req := s.randomRequest(ctx, rng)
	var leaver sync.WaitGroup
	if rng.IntN(5) == 0 { // a client that disconnects after it has sent its request
		after := time.Duration(rng.IntN(60)) * time.Millisecond
		leaver.Go(func() {
			select {
			case u := <-uses:
				for !u.written() && ctx.Err() == nil {
					rig.Pause(ctx, 100*time.Microsecond)
				}
				uses <- u
				rig.Pause(ctx, after)
				cancel()
			case <-ctx.Done():
			}
		})
	}
	got := s.Send(req)
	cancel()
	leaver.Wait()
	times := 0
	for range len(uses) {
		if u := <-uses; u.written() {
			times++
		}
	}
	if times == 0 {
		s.T.Errorf("a request was not sent: %v", got.Err)
	}
	s.count(got.ID, got.Status, times)
	if got.Err != nil && got.Status == 0 && !errors.Is(got.Err, context.Canceled) {
		s.T.Errorf("no response came: %v", got.Err)
	}
}

// countedConn is a client connection that counts its writes. httptrace reports a request as written
// before its last bytes are flushed.
type countedConn struct {
	net.Conn
	mu     sync.Mutex // held during a write: its answer may come before it returns
	writes int64
}

// Write implements net.Conn.
func (c *countedConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, err := c.Conn.Write(p)
	if err == nil {
		c.writes++
	}
	return n, err
}

// writeCount returns the number of writes that have ended without an error.
func (c *countedConn) writeCount() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.writes
}

// use is the connection of a request, with the number of its earlier writes.
type use struct {
	conn   *countedConn
	before int64
}

// written reports whether the request was sent; each fits one write.
func (u use) written() bool { return u.conn.writeCount() > u.before }

// randomRequest returns a random request. Some are invalid.
func (s *storm) randomRequest(ctx context.Context, rng *rand.Rand) *http.Request {
	key := []string{rig.TenantKey, rig.TenantKey, rig.TenantKey, limitedKey, narrowKey}[rng.IntN(5)]
	class := []string{"interactive", "background", "batch"}[rng.IntN(3)]
	headers := []string{"Authorization", "Bearer " + key, "X-Request-Priority", class}
	text := fmt.Sprintf("question %d", rng.IntN(50))
	streams := fmt.Sprintf(`"stream":%v`, rng.IntN(3) > 0)
	post := func(path, body string) *http.Request {
		return s.Request(ctx, http.MethodPost, path, body, headers...)
	}
	switch rng.IntN(16) {
	case 0:
		return post("/v1/chat/completions", rig.Chat("nobody-has-it", text))
	case 1:
		return s.Request(ctx, http.MethodPost, "/v1/chat/completions", rig.Chat("sim", text), "Authorization",
			"Bearer nobody")
	case 2:
		return post("/v1/messages", `{"model":`)
	case 3:
		return s.Request(ctx, http.MethodGet, "/v1/models", "", headers...)
	case 4:
		return s.Request(ctx, http.MethodGet, "/v1/nowhere", "", headers...)
	case 5:
		return post("/v1/chat/completions", rig.Chat("passing", text, streams))
	case 6, 7:
		return post("/v1/messages", rig.Chat("sim", text, streams, `"max_tokens":20`))
	case 8, 9:
		return post("/v1/responses", `{"model":"sim","input":`+rig.Quoted(text)+`,`+streams+`}`)
	case 10:
		return post("/v1/embeddings", `{"model":"sim","input":`+rig.Quoted(text)+`}`)
	case 11:
		return post("/v1/completions", `{"model":"sim","prompt":`+rig.Quoted(text)+`,`+streams+`}`)
	}
	return post("/v1/chat/completions", rig.Chat("auto", text, streams))
}
