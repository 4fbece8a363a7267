package workers

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tierway/http1"
)

// Worker is one live engine. It is safe for concurrent use; the Fleet that
// made it keeps its status.
type Worker struct {
	address address
	link    atomic.Pointer[link]   // replaced when a reload changes the key or the connect timeout
	suspect chan struct{}          // holds one when a check is wanted at once
	sent    atomic.Bool            // something was sent since its load was last asked for
	asked   atomic.Pointer[Worker] // that is checked for this one; nil: itself
	via     []string               // added to the Via header of requests; never written

	mu     sync.Mutex
	spec   Spec // without its Key
	status Status

	// reporting is held while the status is handed out and when the worker is
	// retired, so that no report of a retired worker is ever given.
	reporting sync.Mutex
	retired   bool
}

// link is how requests reach a worker. It is immutable. The key lives in its
// functions alone: fmt can print a field of any type, under any verb, but not what
// a function holds.
type link struct {
	sender    Sender
	key       func() string
	former    func() string     // the key before this one, which answers under way may repeat
	authorize func(http.Header) // sets the key; nil without one
}

// newLink returns a link over a Sender by that key, after another one.
func newLink(sender Sender, key string, former func() string) *link {
	l := &link{sender: sender, key: func() string { return key }, former: former}
	if key != "" {
		authorization := []string{"Bearer " + key}
		l.authorize = func(h http.Header) { h["Authorization"] = authorization }
	}
	return l
}

// Status is what the checks of a worker have found.
type Status struct {
	Up                  bool      // may be sent to; true too before the first check has ended
	Since               time.Time // when Up last changed, or the first check's end; zero before that
	Asked               time.Time // when the last check began; zero before the first has ended
	LastError           string    // why the last failed check failed; empty once the worker is well
	ConsecutiveFailures int
	Passed, Failed      int64 // checks since the gateway knows the worker

	Waiting int       // requests in the engine's own queue
	Running int       // requests that the engine works on
	KVUsage float64   // share of the KV cache in use, 0 to 1; the highest of several ranks
	LoadAt  time.Time // when the engine said so; zero when it never did

	// Suspended says why the engine runs no requests although its server is
	// healthy.
	Suspended Suspension
	// StalledSince is when the engine's step counters stopped although requests
	// run; zero while they move. It was last confirmed at LoadAt.
	StalledSince time.Time

	Health string   // the path that is checked; empty until one has answered
	Engine string   // the engine that the answers show, an openai.Engine; empty while they show none
	Models []string // what GET /v1/models lists; nil when it was not learned
}

func newWorker(spec Spec, send func(Spec) Sender) *Worker {
	w := &Worker{
		spec:    spec.clone(),
		suspect: make(chan struct{}, 1),
		status:  Status{Up: true},
	}
	// A URL that cannot be parsed has a Sender that says so.
	w.address, _ = parseAddress(spec.URL)
	w.spec.Key = ""
	w.link.Store(newLink(send(spec), spec.Key, func() string { return "" }))
	return w
}

// Name returns the worker's name, unique in its Fleet.
func (w *Worker) Name() string { return w.Spec().Name }

// Pool returns the name of the pool that the worker belongs to.
func (w *Worker) Pool() string { return w.Spec().Pool }

// Spec returns a copy of what the worker was last synced with. Its Key is set:
// printing a Spec hides it, reading the field does not.
func (w *Worker) Spec() Spec {
	w.mu.Lock()
	defer w.mu.Unlock()
	spec := w.spec.clone()
	spec.Key = w.link.Load().key()
	return spec
}

// Status returns what the checks have found so far. The caller may keep it.
func (w *Worker) Status() Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	status := w.status
	status.Models = slices.Clone(status.Models)
	return status
}

// Suspect asks for a check at once, after a request could not connect. It
// returns immediately and may be called for every failed request: the checks
// of a worker begin at least a second apart.
func (w *Worker) Suspect() {
	if first := w.asked.Load(); first != nil {
		w = first
	}
	select {
	case w.suspect <- struct{}{}:
	default:
	}
}

// RepeatsKey reports whether a text repeats the worker's own key, or the key before it.
// No client may read such a text.
func (w *Worker) RepeatsKey(text []byte) bool {
	l := w.link.Load()
	for _, key := range [...]string{l.key(), l.former()} {
		if key != "" && bytes.Contains(text, []byte(key)) {
			return true
		}
	}
	return false
}

// Reference returns a reference of one of the worker's answers, such as a Location, as
// a path that leads through the gateway and tells nothing of the worker's address. ok
// is false when there is none: it leads to another server.
func (w *Worker) Reference(of string) (ref string, ok bool) { return w.address.relative(of) }

// credentials are a client's own; they never reach a worker.
var credentials = []string{"Authorization", "Cookie", "Proxy-Authorization", "X-Api-Key"}

// Send carries r to the worker as a Sender does. r.Path begins at the
// gateway's root, as /v1/chat/completions; the worker's base path goes before
// it. The worker's own key replaces any credential in r.Header, which Send
// writes to, and the answer is asked for uncompressed.
func (w *Worker) Send(ctx context.Context, r *http1.Request) (*http1.Response, error) {
	if !w.sent.Load() {
		w.sent.Store(true)
	}
	return w.sendTo(ctx, w.address.join(r.Path), r)
}

func (w *Worker) sendTo(ctx context.Context, path string, r *http1.Request) (*http1.Response, error) {
	l := w.link.Load()
	out := *r
	out.Path = path
	out.Header = l.header(r.Header, w.via)
	return l.sender.Send(ctx, &out)
}

// Written once, read only: Senders do not change a header's values.
var (
	identityEncoding = []string{"identity"}
	ownAgent         = []string{"tierway"}
)

// header puts the worker's own into the header of a request.
func (l *link) header(h http.Header, via []string) http.Header {
	if h == nil {
		h = make(http.Header, 4) // the four below
	}
	for _, name := range credentials {
		delete(h, name)
	}
	if l.authorize != nil {
		l.authorize(h)
	}
	h["Accept-Encoding"] = identityEncoding
	if passed := h["Via"]; len(passed) > 0 {
		h["Via"] = slices.Concat(passed, via)
	} else if len(via) > 0 {
		h["Via"] = via
	}
	if len(h["User-Agent"]) == 0 {
		h["User-Agent"] = ownAgent
	}
	return h
}

// String names the worker, as in small-0 (small).
func (w *Worker) String() string {
	spec := w.Spec()
	return fmt.Sprintf("%s (%s)", spec.Name, spec.Pool)
}

// Format prints what String says under every verb, so that no way of printing
// a Worker shows its key.
func (w *Worker) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(w.String())) }

// LogValue logs the worker's name and pool.
func (w *Worker) LogValue() slog.Value {
	spec := w.Spec()
	return slog.GroupValue(slog.String("name", spec.Name), slog.String("pool", spec.Pool))
}

// adopt takes over a spec for which SameWorker holds. Exchanges under way go on as
// they began. The caller holds the fleet's lock.
func (w *Worker) adopt(spec Spec, send func(Spec) Sender) {
	w.mu.Lock()
	defer w.mu.Unlock()
	old := w.link.Load()
	rekeyed, reconnects := spec.Key != old.key(), spec.ConnectTimeout != w.spec.ConnectTimeout
	w.spec = spec.clone()
	w.spec.Key = ""
	sender := old.sender
	if reconnects {
		sender = send(spec)
		defer old.sender.Close()
	}
	switch {
	case rekeyed:
		w.link.Store(newLink(sender, spec.Key, old.key))
	case reconnects:
		w.link.Store(newLink(sender, spec.Key, old.former))
	}
}

// retire ends the worker's reports and drops its idle connections. Exchanges
// under way go on to their end.
func (w *Worker) retire() {
	w.reporting.Lock()
	w.retired = true
	w.reporting.Unlock()
	w.link.Load().sender.Close()
}

// report hands the status to give, unless the worker is retired.
func (w *Worker) report(give func(*Worker, Status)) {
	w.reporting.Lock()
	defer w.reporting.Unlock()
	if give != nil && !w.retired {
		give(w, w.Status())
	}
}

// update changes the status and tells whether a reader of reports should know.
func (w *Worker) update(change func(*Status)) (news bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.status
	change(&w.status)
	after := w.status
	return before.Since.IsZero() != after.Since.IsZero() || before.Up != after.Up ||
		before.LoadAt != after.LoadAt || before.Suspended != after.Suspended ||
		before.Waiting != after.Waiting || before.Running != after.Running || before.KVUsage != after.KVUsage ||
		before.Engine != after.Engine || !slices.Equal(before.Models, after.Models)
}
