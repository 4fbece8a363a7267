package workers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"tierway/http1"
	"tierway/routing"
)

// HealthOff is the Status.Health of a worker without health checks.
const HealthOff = "off"

const (
	pathAuto   = "auto"
	pathHealth = "/health"
	pathModels = "/v1/models"

	// suspectGap is the minimum time between two checks of a suspected worker. A dead worker is
	// detected in down_after seconds.
	suspectGap = time.Second
	// maxHealthBody limits the read part of an answer in bytes. Engines answer /health with nothing
	// or a line of JSON.
	maxHealthBody = 64 << 10
	// maxCauses limits the log lines of a worker that is down. A worker fails in few ways, but an error text that always
	// differs would give a line per check.
	maxCauses = 8
	// maxModelsBody limits the list of models in bytes: ten times the list of a hosted endpoint.
	maxModelsBody = 1 << 20
)

// checker runs one server's checks for the workers that it backs. It is used by one goroutine.
type checker struct {
	w              *Worker   // the first of all, which sends the checks
	all            []*Worker // workers with the same status
	options        Options
	health         Health
	tally          tally
	path           string // the path that auto has found; empty before
	started        time.Time
	due            time.Time // time of the next health check
	nextLoad       time.Time // time of the next load check
	scraped        time.Time // time of the last load check
	noMetricsUntil time.Time // end of the time without requests for /metrics
	unreported     []bool    // per worker: OnStatus has not received its status yet

	progress       []progress // per worker
	asleep, paused bool       // as the engine last reported
	noPausedPath   bool       // the engine does not report whether it is paused

	causes          map[string]bool // kinds of causes that were logged in this outage
	suspected       bool            // the next health check was requested by Worker.Suspect
	askedForSources bool            // the engine has answered where it publishes KV events
}

// newChecker returns the checker of the workers that one server backs. It continues from the
// results of an earlier checker of any of them.
func newChecker(all []*Worker, o Options) *checker {
	w := all[0]
	health, found := w.Spec().health(), w.Status()
	for _, other := range all[1:] {
		if s := other.Status(); found.Since.IsZero() && !s.Since.IsZero() {
			found = s
		}
	}
	t := tally{downAfter: health.DownAfter, upAfter: health.UpAfter, known: !found.Since.IsZero(), up: found.Up}
	if found.Up {
		t.failures = found.ConsecutiveFailures
	} else {
		t.passes = t.upAfter - 1 // the new settings may have repaired the worker
	}
	c := &checker{w: w, all: all, options: o, health: health, tally: t, unreported: make([]bool, len(all)),
		progress: make([]progress, len(all))}
	if health.Path == pathAuto && w.Spec().anthropic() {
		c.path = pathModels // auto tries /health if the server has no list of models
	}
	for _, other := range all {
		other.checkedThrough.Store(w)
	}
	if t.known && !t.up {
		c.causes = map[string]bool{causeKind(found.LastError): true}
	}
	if t.known {
		c.update(func(s *Status) {
			if s.Since.IsZero() {
				*s = found
			}
		})
	}
	return c
}

// run checks the worker at once, then at every interval and whenever it is suspected, until ctx
// ends.
func (c *checker) run(ctx context.Context) {
	if c.health.Path == HealthOff {
		c.update(func(s *Status) {
			if s.Since.IsZero() || !s.Up {
				s.Since = time.Now()
			}
			s.Up, s.Health, s.LastError, s.ConsecutiveFailures = true, HealthOff, "", 0
		})
		c.publish()
		return
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.w.suspect:
			c.suspected = true
			if soonest := c.started.Add(suspectGap); soonest.Before(c.due) {
				c.due = soonest
			}
		case <-timer.C:
		}
		// An error is a panic that Recover has logged; the next step follows on time.
		_ = c.options.Recover("checking the worker "+c.w.Name(), func() error {
			c.step(ctx)
			return nil
		})
		timer.Reset(time.Until(c.nextCheck()))
	}
}

// step runs the due health check or load check.
func (c *checker) step(ctx context.Context) {
	if time.Until(c.due) > 0 && time.Until(c.nextLoad) > 0 {
		return // the last check is too recent for a suspicion
	}
	defer c.scheduleLoadCheck() // also after a panic: without a new time the next step would follow at once
	if time.Until(c.due) > 0 {
		c.checkLoad(ctx)
		return
	}
	c.started = time.Now()
	c.due = c.started.Add(jittered(c.health.Interval, c.options.Rand()))
	c.checkHealth(ctx)
}

// jittered spreads d by a tenth in both directions, so that gateways that start together do not
// check together.
func jittered(d time.Duration, random uint64) time.Duration {
	unit := routing.Unit(random)
	return time.Duration(float64(d) * (0.9 + 0.2*unit))
}

// checkHealth runs one health check and, if it passed, one load check. A check that panics has
// failed: its answer could not be read.
func (c *checker) checkHealth(ctx context.Context) {
	var reached atomic.Pointer[netip.Addr]
	err := c.options.Recover("reading the health of the worker "+c.w.Name(), func() error {
		return c.check(context.WithValue(ctx, reachedKey{}, &reached))
	})
	if ctx.Err() != nil || OutOfResources(err) {
		return // the gateway ended the check or could not send it, which is no fault of the worker
	}
	cameUp := c.recordResult(err)
	if cameUp {
		// Another engine may have taken the address.
		c.noMetricsUntil, c.noPausedPath, c.asleep, c.paused = time.Time{}, false, false, false
	}
	if err == nil {
		c.scrapeLoad(ctx, c.health.Timeout)
		c.readPaused(ctx)
		c.storeSuspension()
		if cameUp && c.path != pathModels {
			c.readModels(ctx)
		}
		c.readEventSources(ctx)
	} else {
		c.askedForSources = false
		if s, ok := c.w.link.Load().sender.(addressed); ok {
			s.avoid(reached.Load())
		}
	}
	c.publish()
}

// recordResult counts one check's result, and logs and reports a change.
func (c *checker) recordResult(err error) (cameUp bool) {
	changed := c.tally.addResult(err == nil)
	now := time.Now()
	c.update(func(s *Status) {
		s.CheckedAt, s.Up, s.ConsecutiveFailures = c.started, c.tally.up, c.tally.failures
		if changed {
			s.Since = now
		}
		s.Health = c.checkedPath()
		switch {
		case err != nil:
			s.Failed++
			s.LastError = err.Error()
		case s.Up:
			s.LastError = ""
		}
		if err == nil {
			s.Passed++
		}
	})
	switch {
	case changed && c.tally.up:
		c.logWorkers(slog.LevelInfo, "worker is up", slog.String("check", c.checkedPath()))
	case changed:
		c.causes = map[string]bool{causeKind(err.Error()): true}
		c.logWorkers(slog.LevelWarn, "worker is down", slog.Int("failed_checks", c.tally.failures),
			slog.String("cause", err.Error()))
	case err != nil && !c.tally.up:
		c.logOtherCause(err)
	}
	if c.suspected {
		c.suspected = false
		for i := range c.unreported {
			c.unreported[i] = true
		}
	}
	c.publish() // before the load is read, which may take long
	return changed && c.tally.up
}

// logOtherCause logs the cause of a failed check of a worker that is down if no cause of its kind was logged since: the
// first one may be a timeout that hides a wrong URL.
func (c *checker) logOtherCause(err error) {
	if kind := causeKind(err.Error()); !c.causes[kind] && len(c.causes) < maxCauses {
		c.causes[kind] = true
		c.logWorkers(slog.LevelWarn, "worker is still down, with another cause",
			slog.Int("failed_checks", c.tally.failures), slog.String("cause", err.Error()))
	}
}

// causeKind returns a text that is equal for causes with the same repair: an error without digits, which are ports and
// times, and one text for all timeouts of a path.
func causeKind(cause string) string {
	if path, _, late := strings.Cut(cause, lateAnswer); late {
		return path + lateAnswer
	}
	return strings.Map(func(c rune) rune {
		if c >= '0' && c <= '9' {
			return -1
		}
		return c
	}, cause)
}

func (c *checker) logWorkers(level slog.Level, message string, attrs ...slog.Attr) {
	for _, w := range c.all {
		c.options.Log.LogAttrs(context.Background(), level, message, append([]slog.Attr{slog.Any("worker", w)}, attrs...)...)
	}
}

// update applies a change to the status of each worker and marks the workers to report.
func (c *checker) update(change func(*Status)) {
	c.updateEach(func(_ int, s *Status) { change(s) })
}

// updateEach is update with a change that depends on the worker's index.
func (c *checker) updateEach(change func(i int, s *Status)) {
	for i, w := range c.all {
		if w.update(func(s *Status) { change(i, s) }) {
			c.unreported[i] = true
		}
	}
}

func (c *checker) publish() {
	for i, w := range c.all {
		if c.unreported[i] {
			c.unreported[i] = false
			w.reportTo(c.options.OnStatus)
		}
	}
}

// tally turns results into up and down: down at once if the first check fails, later after
// downAfter failures in a row; up again after upAfter good checks in a row.
type tally struct {
	downAfter, upAfter int
	known, up          bool
	failures, passes   int // in a row
}

// addResult counts one check and reports whether the worker's state has changed. The first result
// always counts as a change.
func (t *tally) addResult(ok bool) (changed bool) {
	was, known := t.up, t.known
	t.known = true
	if ok {
		t.passes, t.failures = t.passes+1, 0
	} else {
		t.passes, t.failures = 0, t.failures+1
	}
	switch {
	case !known:
		t.up = ok
	case t.up:
		t.up = t.failures < t.downAfter
	default:
		t.up = t.passes >= t.upAfter
	}
	return !known || t.up != was
}

// checkedPath returns the path in use, or "" while auto has found none.
func (c *checker) checkedPath() string {
	if c.health.Path == pathAuto {
		return c.path
	}
	return c.health.Path
}

// check performs one health check; nil means healthy.
func (c *checker) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.health.Timeout)
	defer cancel()
	if c.health.Path != pathAuto {
		_, err := c.checkPath(ctx, c.health.Path)
		return err
	}
	if c.path != pathModels {
		code, err := c.checkPath(ctx, pathHealth)
		if err == nil {
			c.path = pathHealth
			return nil
		}
		if !c.noSuchPath(code) {
			return err
		}
	}
	code, err := c.checkPath(ctx, pathModels)
	switch {
	case err == nil:
		c.path = pathModels
	case c.noSuchPath(code):
		c.path = "" // another engine may have taken the address: try both paths again
	}
	return err
}

// noSuchPath reports whether a status means that the engine lacks the path. Some hosted endpoints
// return 401 or 403 for unknown paths; these count until /health has answered once.
func (c *checker) noSuchPath(code int) bool {
	switch code {
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented:
		return true
	case http.StatusUnauthorized, http.StatusForbidden:
		return c.path == ""
	}
	return false
}

// checkPath sends GET path. For every status except 2xx it returns an error with the way out. code
// is 0 if there was no complete answer.
func (c *checker) checkPath(ctx context.Context, path string) (code int, err error) {
	limit := int64(maxHealthBody)
	if path == pathModels {
		limit = maxModelsBody
	}
	began := time.Now()
	code, body, err := c.readPath(ctx, path, limit)
	if err == nil {
		c.recordRoundTrip(time.Since(began))
	}
	switch {
	case code == 0:
		return 0, c.explainError(ctx, path, err)
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		return code, fmt.Errorf("GET %s: status %d: the worker refuses the gateway's key; check %s", path, code,
			c.w.Spec().keySource())
	case code == http.StatusLoopDetected:
		return code, fmt.Errorf("GET %s: status %d: the url leads back to this gateway, or to one behind it; correct url",
			path, code)
	case code >= 300 && code < 400:
		return code, fmt.Errorf("GET %s: status %d: redirects are not followed; put the final address into url", path, code)
	case code < 200 || code >= 300:
		return code, fmt.Errorf("GET %s: status %d %s", path, code, http.StatusText(code))
	case err != nil:
		return 0, c.explainError(ctx, path, err)
	}
	if path == pathModels {
		c.storeModels(body)
	}
	return code, nil
}

// roundTripMemory is the number of checks in which a rise of the round-trip time takes effect for the most part.
const roundTripMemory = 16

// recordRoundTrip records the time of an answer to a check. The round-trip time follows lower times at once and
// higher ones slowly: an engine or a connection can delay an answer, and nothing makes it come too soon.
func (c *checker) recordRoundTrip(took time.Duration) {
	c.update(func(s *Status) {
		if s.RoundTrip == 0 || took < s.RoundTrip {
			s.RoundTrip = took
		} else {
			s.RoundTrip += (took - s.RoundTrip) / roundTripMemory
		}
	})
}

// readPath sends GET path and reads at most limit bytes of the answer. code is 0 if there was no
// answer. It uses a new connection: a server that has closed its listener may still answer on an old one.
func (c *checker) readPath(ctx context.Context, path string, limit int64) (code int, body []byte, err error) {
	answer, err := c.sendGet(ctx, path, true)
	if err != nil {
		return 0, nil, err
	}
	defer answer.Body.Close()
	body, err = io.ReadAll(io.LimitReader(answer.Body, limit))
	return answer.Status, body, err
}

// sendGet sends a request relative to the worker's root, where engines have /health and /metrics.
// fresh asks for a new connection.
func (c *checker) sendGet(ctx context.Context, path string, fresh bool) (*http1.Response, error) {
	return c.w.sendTo(ctx, c.w.address.root()+path, &http1.Request{Method: http.MethodGet, Path: path, Fresh: fresh,
		Header: http.Header{"Accept": {"application/json, text/plain;q=0.9, */*;q=0.1"}}})
}

// lateAnswer is the part of an error that says that a check has reached its timeout.
const lateAnswer = "no whole answer within the health timeout"

func (c *checker) explainError(ctx context.Context, path string, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("GET %s: %s of %s: %w", path, lateAnswer, c.health.Timeout, err)
	}
	return fmt.Errorf("GET %s: %w", path, err)
}

// readModels reads the list of models. An error is ignored: the list is optional.
func (c *checker) readModels(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, c.health.Timeout)
	defer cancel()
	_, _ = c.checkPath(ctx, pathModels)
}

// storeModels stores the models, and the engine by their owner, from an answer of GET /v1/models.
func (c *checker) storeModels(body []byte) {
	var list struct {
		Data []struct {
			ID      string `json:"id"`
			OwnedBy string `json:"owned_by"`
			Parent  string `json:"parent"` // vLLM: the model that an adapter belongs to
		} `json:"data"`
	}
	if json.Unmarshal(body, &list) != nil || len(list.Data) == 0 {
		return
	}
	models, engine := make([]string, 0, len(list.Data)), ""
	var adapters []string
	for _, model := range list.Data {
		models = append(models, model.ID)
		if model.Parent != "" {
			adapters = append(adapters, model.ID)
		}
		if engine == "" {
			engine = engineByOwner[model.OwnedBy]
		}
	}
	c.update(func(s *Status) {
		s.Models, s.Adapters = models, adapters
		if engine != "" {
			s.Engine = engine
		}
	})
}

// engineByOwner maps a model's owned_by to its engine. Ollama writes the namespace of its own
// library there.
var engineByOwner = map[string]string{
	"vllm": "vllm", "sglang": "sglang", "llamacpp": "llamacpp", "ollama": "ollama", "library": "ollama",
}
