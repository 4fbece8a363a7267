package workers

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"tierway/http1"
	"tierway/openai"
	"tierway/workers/kvcache"
)

// Worker is one live worker. It is safe for concurrent use. The Fleet that created it maintains its
// status.
type Worker struct {
	// What SameWorker compares stays the same as long as the worker lives.
	name, pool     string
	engine         openai.Engine
	address        address
	link           atomic.Pointer[link]   // replaced if a reload changes the key, headers or connection
	suspect        chan struct{}          // holds one if a check is due at once
	sent           atomic.Bool            // requests were sent since the last load check
	checkedThrough atomic.Pointer[Worker] // the worker that sends the checks for this one; nil: itself
	via            []string               // added to the Via header of requests; immutable
	rank           *int                   // Spec.Rank; immutable
	rankValue      []string               // value of rankHeader; nil without rank. Immutable

	mu     sync.Mutex
	spec   Spec // without its Key and Headers
	status Status

	// reporting is held while a status is reported and while the worker is retired, so that a
	// retired worker is never reported.
	reporting sync.Mutex
	retired   bool
}

// link is the connection to a worker. It is immutable. Only its functions hold the key: fmt can
// print a field of any type, but not what a function holds.
type link struct {
	sender      Sender
	key         func() string
	previousKey func() string     // the previous key, which answers in flight may repeat
	authorize   func(http.Header) // sets the key and other headers of the engine's API; nil if there are none

	headers         func() Headers    // of the configuration
	previousHeaders func() Headers    // the previous ones, which answers in flight may repeat
	setHeaders      func(http.Header) // sets headers; nil if there are none
}

// anthropicVersion is the version of Anthropic's API for requests that name none. It is the only one
// with the present form of messages.
var anthropicVersion = []string{"2023-06-01"}

// newLink returns a link over a Sender with spec's key and headers, and the previous ones.
func newLink(sender Sender, spec Spec, former func() string, formerHeaders func() Headers, log *slog.Logger) *link {
	key, headers := spec.Key, maps.Clone(spec.Headers)
	l := &link{sender: sender, key: func() string { return key }, previousKey: former,
		headers: func() Headers { return headers }, previousHeaders: formerHeaders, setHeaders: headers.setter()}
	switch {
	case spec.APIKeyFile != "":
		l.readKeyFrom(&keyFile{path: spec.APIKeyFile, log: log}, spec.anthropic())
	case spec.anthropic():
		var value []string
		if key != "" {
			value = []string{key}
		}
		l.authorize = func(h http.Header) {
			if value != nil {
				h["X-Api-Key"] = value
			}
			if len(h["Anthropic-Version"]) == 0 {
				h["Anthropic-Version"] = anthropicVersion
			}
		}
	case key != "":
		authorization := []string{"Bearer " + key}
		l.authorize = func(h http.Header) { h["Authorization"] = authorization }
	}
	return l
}

// readKeyFrom sets the functions of a link whose key is in a file.
func (l *link) readKeyFrom(f *keyFile, anthropic bool) {
	before := l.previousKey
	l.key = func() string {
		key, _ := f.keys()
		return key
	}
	l.previousKey = func() string {
		_, former := f.keys()
		return cmp.Or(former, before())
	}
	l.authorize = func(h http.Header) {
		key := l.key()
		switch {
		case anthropic:
			if key != "" {
				h["X-Api-Key"] = []string{key}
			}
			if len(h["Anthropic-Version"]) == 0 {
				h["Anthropic-Version"] = anthropicVersion
			}
		case key != "":
			h["Authorization"] = []string{"Bearer " + key}
		}
	}
}

// Status is the result of a worker's checks.
type Status struct {
	Up                  bool          // accepts requests; also true before the first check has ended
	Since               time.Time     // last change of Up, or end of the first check; zero before that
	CheckedAt           time.Time     // start of the last check; zero before the first has ended
	RoundTrip           time.Duration // of a health check on a new connection, without delays; 0 if unknown
	LastError           string        // cause of the last failed check; empty once the worker is healthy
	ConsecutiveFailures int
	Passed, Failed      int64 // checks since the gateway knows the worker

	// The load is that of the worker's rank, else the sum of all ranks.
	Waiting int       // requests in the engine's own queue
	Running int       // requests that the engine works on
	KVUsage float64   // share of the KV cache in use, 0 to 1; without a rank, the maximum of all ranks
	LoadAt  time.Time // time of the load; zero if the engine never reported one

	CacheTokens int64 // size of the KV cache in tokens, of the worker's rank or of all ranks; 0 if unknown
	// EventSources are where the engine publishes the events of its KV cache; nil if it does not say.
	EventSources []kvcache.Announced

	// Suspended is the reason why an engine with a healthy server runs no requests.
	Suspended Suspension
	// SteppedAt is the time of the last reading in which the engine's step counters or its load differed, or of the
	// first reading; zero for an engine without such counters. vLLM publishes both after a step only.
	SteppedAt time.Time
	// StalledSince is the time since when the engine's step counters stand still although requests
	// run; zero while they move. It was last confirmed at LoadAt.
	StalledSince time.Time

	Health string   // the checked path, or HealthOff; empty until a path has answered
	Engine string   // the detected engine, an openai.Engine; empty if unknown
	Models []string // the list of GET /v1/models; nil if unknown
	// Adapters are those of Models that vLLM lists with a parent: LoRA adapters.
	Adapters []string
}

func newWorker(spec Spec, send func(Spec) Sender, log *slog.Logger) *Worker {
	w := &Worker{
		name:    spec.Name,
		pool:    spec.Pool,
		engine:  openai.Engine(spec.Engine),
		spec:    spec.clone(),
		suspect: make(chan struct{}, 1),
		status:  Status{Up: true},
	}
	// If the URL cannot be parsed, every exchange of the Sender fails with the cause.
	w.address, _ = parseAddress(spec.URL)
	if spec.Rank != nil {
		w.rank, w.rankValue = spec.Rank, []string{strconv.Itoa(*spec.Rank)}
	}
	w.spec.Key, w.spec.Headers = "", nil
	w.link.Store(newLink(send(spec), spec, func() string { return "" }, func() Headers { return nil }, log))
	return w
}

// Name returns the worker's name, unique in its Fleet.
func (w *Worker) Name() string { return w.name }

// Pool returns the name of the worker's pool.
func (w *Worker) Pool() string { return w.pool }

// Engine returns the engine of the worker: the configured one, or else the one that its answers show. It is
// empty if neither is known.
func (w *Worker) Engine() openai.Engine {
	if w.engine != openai.EngineAuto && w.engine != "" {
		return w.engine
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return openai.Engine(w.status.Engine)
}

// ConfigureEvents sets the sources of the worker's KV-cache events, from the worker's configuration
// and the status of its engine. Without used there are none.
func (w *Worker) ConfigureEvents(events *kvcache.Worker, s *Status, used bool) {
	spec := w.Spec()
	sources := spec.events()
	sources.Rank = spec.Rank
	if !used {
		sources.Enabled = new(false)
	}
	host, _, err := net.SplitHostPort(w.address.host)
	if err != nil {
		host = "" // a Unix socket
	}
	events.SetCacheTokens(spec.cacheTokens(s))
	events.Configure(sources, host, s.EventSources)
}

// CacheTokens returns the size of the engine's KV cache in tokens: the configured one, else the one
// that the engine reports; 0 if it is unknown.
func (w *Worker) CacheTokens(s *Status) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.spec.cacheTokens(s)
}

func (s Spec) cacheTokens(seen *Status) int64 { return cmp.Or(s.Config.CacheTokens, seen.CacheTokens) }

// Spec returns a copy of the last synced spec. Its Key and Headers are set: printing a Spec hides them, reading
// the fields does not.
func (w *Worker) Spec() Spec {
	w.mu.Lock()
	defer w.mu.Unlock()
	spec := w.spec.clone()
	l := w.link.Load()
	spec.Key, spec.Headers = l.key(), maps.Clone(l.headers())
	return spec
}

// Status returns the result of the checks so far. The caller may keep it.
func (w *Worker) Status() Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	status := w.status
	status.Models, status.Adapters = slices.Clone(status.Models), slices.Clone(status.Adapters)
	status.EventSources = slices.Clone(status.EventSources)
	return status
}

// Suspect requests a check at once, after a request could not connect or another gateway found the
// worker failing. It returns immediately and may be called for every failed request: at most one check
// of a worker runs at a time, and checks begin at least a second apart. A check that runs already does
// not count as the requested one. Options.OnStatus receives the result.
func (w *Worker) Suspect() {
	if first := w.checkedThrough.Load(); first != nil {
		w = first
	}
	select {
	case w.suspect <- struct{}{}:
	default:
	}
}

// RepeatsKey reports whether a text contains the worker's current or previous key, or a secret of its headers. Such a
// text must not reach a client.
func (w *Worker) RepeatsKey(text []byte) bool {
	l := w.link.Load()
	for _, key := range [...]string{l.key(), l.previousKey()} {
		if key != "" && bytes.Contains(text, []byte(key)) {
			return true
		}
	}
	return l.headers().repeatedIn(text) || l.previousHeaders().repeatedIn(text)
}

// Reference converts a reference in one of the worker's answers, such as a Location, into a path
// through the gateway that hides the worker's address. ok is false if it leads to another server.
func (w *Worker) Reference(raw string) (ref string, ok bool) { return w.address.relative(raw) }

// credentials are headers with a client's own credentials. They never reach a worker.
var credentials = []string{"Api-Key", "Authorization", "Cookie", "Proxy-Authorization", "X-Api-Key"}

// Send sends r to the worker as a Sender does. r.Path is relative to the gateway's root, such as
// /v1/chat/completions; the worker's base path is prepended. Send changes r, which cannot be sent again: the worker's
// key replaces any credential, its headers those of the client, its rank is selected, and the answer is requested
// uncompressed.
func (w *Worker) Send(ctx context.Context, r *http1.Request) (*http1.Response, error) {
	if !w.sent.Load() {
		w.sent.Store(true)
	}
	w.setRank(&r.Header)
	return w.sendTo(ctx, w.address.join(r.Path), r)
}

func (w *Worker) sendTo(ctx context.Context, path string, r *http1.Request) (*http1.Response, error) {
	l := w.link.Load()
	r.Path, r.Header = path, l.header(r.Header, w.via)
	return l.sender.Send(ctx, r)
}

// Shared and read only: Senders do not change header values.
var (
	identityEncoding = []string{"identity"}
	ownAgent         = []string{"tierway"}
)

// header sets the worker's own headers.
func (l *link) header(h http.Header, via []string) http.Header {
	if h == nil {
		h = make(http.Header, 5) // the headers below
	}
	for _, name := range credentials {
		delete(h, name)
	}
	if l.authorize != nil {
		l.authorize(h)
	}
	if l.setHeaders != nil {
		l.setHeaders(h)
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

// String returns the worker's name and pool, as in small-0 (small).
func (w *Worker) String() string {
	return fmt.Sprintf("%s (%s)", w.name, w.pool)
}

// Format prints the result of String under every verb, so that no format shows the key.
func (w *Worker) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(w.String())) }

// LogValue logs the worker's name and pool.
func (w *Worker) LogValue() slog.Value {
	return slog.GroupValue(slog.String("name", w.name), slog.String("pool", w.pool))
}

func (w *Worker) isSame(spec *Spec) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.spec.SameWorker(spec)
}

// applySpec applies a spec for which isSame holds, and reports whether the worker's checks stay the same. Exchanges in
// flight continue unchanged. The caller must hold the fleet's lock.
func (w *Worker) applySpec(spec *Spec, send func(Spec) Sender, log *slog.Logger) (checksKept bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	old := w.link.Load()
	keyKept := spec.APIKeyFile == w.spec.APIKeyFile && (spec.APIKeyFile != "" || spec.Key == old.key())
	headersKept := maps.Equal(spec.Headers, old.headers())
	tlsKept := spec.tls() == w.spec.tls()
	reconnects := spec.ConnectTimeout != w.spec.ConnectTimeout || !tlsKept
	checksKept = keyKept && headersKept && tlsKept && spec.health() == w.spec.health()
	shown := *spec
	if shown.Key, shown.Headers = "", nil; !w.spec.Equal(&shown) {
		w.spec = shown.clone()
	}
	if keyKept && headersKept && !reconnects {
		return checksKept
	}
	sender := old.sender
	if reconnects {
		sender = send(*spec)
		defer old.sender.Close()
	}
	l := newLink(sender, *spec, old.key, old.headers, log)
	if keyKept { // a key file has its last key, which applies while the file cannot be read
		l.key, l.previousKey, l.authorize = old.key, old.previousKey, old.authorize
	}
	if headersKept {
		l.previousHeaders = old.previousHeaders
	}
	w.link.Store(l)
	return checksKept
}

// retire ends the worker's reports and closes its idle connections. Exchanges in flight continue to
// their end.
func (w *Worker) retire() {
	w.reporting.Lock()
	w.retired = true
	w.reporting.Unlock()
	w.link.Load().sender.Close()
}

// reportTo calls onStatus, which may be nil, with the status unless the worker is retired.
func (w *Worker) reportTo(onStatus func(*Worker, Status)) {
	w.reporting.Lock()
	defer w.reporting.Unlock()
	if onStatus != nil && !w.retired {
		onStatus(w, w.Status())
	}
}

// update applies a change to the status and returns whether it must be reported.
func (w *Worker) update(change func(*Status)) (reportable bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.status
	change(&w.status)
	after := w.status
	return before.Since.IsZero() != after.Since.IsZero() || before.Up != after.Up ||
		before.LoadAt != after.LoadAt || before.Suspended != after.Suspended ||
		before.Waiting != after.Waiting || before.Running != after.Running || before.KVUsage != after.KVUsage ||
		before.Engine != after.Engine || !slices.Equal(before.Models, after.Models) ||
		before.CacheTokens != after.CacheTokens || !slices.Equal(before.EventSources, after.EventSources)
}

// Sender performs HTTP exchanges with a worker. It is safe for concurrent use.
type Sender interface {
	// Send writes the request and returns when it has read the answer's header. The request body is then sent or no
	// longer needed, unless r.BodyInUse is set. Cancelling ctx before Response.Body is closed ends the exchange
	// and its connection at once. An error is a *http1.SendError.
	Send(ctx context.Context, r *http1.Request) (*http1.Response, error)
	// Close closes idle connections; exchanges in flight continue to their end.
	Close()
}

// OutOfResources reports whether err means that this process or its system has no file descriptor
// or memory for a socket. Such an error is no fault of the worker.
func OutOfResources(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) ||
		errors.Is(err, syscall.ENOBUFS) || errors.Is(err, syscall.ENOMEM)
}
