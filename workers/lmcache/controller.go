package lmcache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// The defaults of a Config.
const (
	DefaultURL          = "http://localhost:9000"
	DefaultPollInterval = 10 * time.Second
	DefaultTimeout      = 2 * time.Second
)

const (
	// maxConnections is the number of connections that are kept, and of look-ups at a time.
	maxConnections = 64
	// idleTimeout is shorter than the 5 s after which uvicorn, the controller's server, closes idle connections.
	idleTimeout = 4 * time.Second
	// maxAnswer bounds an answer in bytes: a list of 10,000 workers.
	maxAnswer      = 4 << 20
	maxHeaderBytes = 64 << 10
)

// Config configures a Controller. A zero number is the default.
type Config struct {
	URL          string // of the controller's HTTP API; empty: DefaultURL
	Key          string // bearer token; empty: none
	Lookups      bool   // prompts are looked up; otherwise the number of keys is polled
	PollInterval time.Duration
	Timeout      time.Duration // of a poll, and of a look-up if that is shorter than LookupLimit

	// Known reports whether an instance is a worker of the pool; nil: all are.
	Known func(instance string) bool
	// Dial opens connections; nil: net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	Log  *slog.Logger // nil discards
	// Recover runs a step that reads the controller's answers, and turns a panic into an error; nil: a panic ends
	// the process.
	Recover func(work string, step func() error) error
	// OnLookup receives the duration of each look-up that was sent; nil: none.
	OnLookup func(time.Duration)
}

// Controller is the client of a controller for one pool. It is safe for concurrent use.
type Controller struct {
	c      Config
	url    string
	client http.Client

	listing atomic.Pointer[Listing] // of the last poll; nil if it failed
	lookups lookups

	mu      sync.Mutex // guards the rest
	polled  bool       // a poll has ended
	since   time.Time  // of the last change of fault
	fault   string     // cause of the last failed poll; empty after a good one
	empty   int        // successive polls without an instance of the pool
	warned  bool       // of the present empty listings
	uncount bool       // the log has a line that the controller states no numbers of keys
}

// New returns a Controller. It polls and probes while Run runs.
func New(c Config) *Controller {
	c.URL = cmp.Or(c.URL, DefaultURL)
	c.PollInterval, c.Timeout = cmp.Or(c.PollInterval, DefaultPollInterval), cmp.Or(c.Timeout, DefaultTimeout)
	if c.Known == nil {
		c.Known = func(string) bool { return true }
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Recover == nil {
		c.Recover = func(_ string, step func() error) error { return step() }
	}
	if c.OnLookup == nil {
		c.OnLookup = func(time.Duration) {}
	}
	if c.Dial == nil {
		c.Dial = (&net.Dialer{}).DialContext
	}
	k := &Controller{c: c, url: strings.TrimSuffix(c.URL, "/")}
	k.client = http.Client{
		Transport: &http.Transport{DialContext: c.Dial, MaxIdleConnsPerHost: maxConnections, IdleConnTimeout: idleTimeout,
			DisableCompression: true, MaxResponseHeaderBytes: maxHeaderBytes},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // it would get the key
	}
	k.lookups.due = make(chan struct{}, 1)
	k.lookups.semaphore = make(chan struct{}, maxConnections)
	return k
}

// Run polls the controller, and probes it while it does not answer look-ups, until ctx ends.
func (k *Controller) Run(ctx context.Context) {
	defer k.client.CloseIdleConnections()
	var running sync.WaitGroup
	running.Go(func() { k.runProbes(ctx) })
	defer running.Wait()
	ticker := time.NewTicker(k.c.PollInterval)
	defer ticker.Stop()
	for {
		if err := k.c.Recover("polling the LMCache controller", func() error { k.poll(ctx); return nil }); err != nil {
			k.record(nil, err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// statusError is an answer of the controller with another status than 200.
type statusError int

// Error returns a text with the status.
func (e statusError) Error() string { return fmt.Sprintf("the controller answers %d", int(e)) }

var errLongAnswer = errors.New("the controller's answer is too long")

// call sends a request to the controller and returns the body of a good answer.
func (k *Controller) call(ctx context.Context, limit time.Duration, method, path string,
	body io.Reader) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, k.url+path, body)
	if err != nil {
		return nil, err
	}
	if k.c.Key != "" {
		r.Header.Set("Authorization", "Bearer "+k.c.Key)
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
		r.Header["Idempotency-Key"] = nil // is not sent: a kept connection that was closed is replaced
	}
	answer, err := k.client.Do(r)
	if err != nil {
		return nil, plain(err, limit)
	}
	defer answer.Body.Close() // it was only read
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, plain(err, limit)
	case answer.StatusCode != http.StatusOK:
		return nil, statusError(answer.StatusCode)
	case len(text) > maxAnswer:
		return nil, errLongAnswer
	}
	return text, nil
}

// timeoutError is a call without an answer within its limit.
type timeoutError time.Duration

// Error returns a text with the limit.
func (e timeoutError) Error() string {
	return fmt.Sprintf("the controller does not answer within %v", time.Duration(e))
}

// plain returns an error of a call without its URL.
func plain(err error, limit time.Duration) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return timeoutError(limit)
	}
	if outer, ok := errors.AsType[*url.Error](err); ok {
		return outer.Err
	}
	return err
}
