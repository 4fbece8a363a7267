package workers

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"tierway/http1"
	"tierway/routing"
)

const (
	pathAuto   = "auto"
	pathOff    = "off"
	pathHealth = "/health"
	pathModels = "/v1/models"

	// suspectGap keeps a storm of failed connects from becoming a storm of
	// checks, and still finds a dead worker in down_after seconds.
	suspectGap = time.Second
	// maxHealthBody is read so that the connection can be kept; engines answer
	// /health with nothing or a line of JSON.
	maxHealthBody = 64 << 10
	// maxModelsBody holds a hosted endpoint's whole list ten times over.
	maxModelsBody = 1 << 20
)

// checker runs one server's checks for the workers that it backs. One goroutine
// owns it.
type checker struct {
	w       *Worker   // the first of all, by which the server is asked
	all     []*Worker // they share the status
	options Options
	health  Health
	tally   tally
	path    string // the path that auto has settled on; empty before
	started time.Time
	due     time.Time // when the next check is
	look    time.Time // when the load is next looked at
	scraped time.Time // when it was last asked for
	silent  time.Time // until when /metrics is not asked for
	news    []bool    // of each worker: OnStatus does not know its status yet

	progress       progress
	asleep, paused bool // as the engine said last
	neverPaused    bool // the engine does not tell whether it is paused
}

// newChecker returns the checker of workers that one server backs. It continues from
// what an earlier checker has found of any of them.
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
		t.goods = t.upAfter - 1 // the new settings may be what it needed
	}
	c := &checker{w: w, all: all, options: o, health: health, tally: t, news: make([]bool, len(all))}
	for _, other := range all {
		other.asked.Store(w)
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

// run checks the worker at once, then at every interval and whenever it is
// suspected, until ctx ends.
func (c *checker) run(ctx context.Context) {
	if c.health.Path == pathOff {
		c.update(func(s *Status) {
			if s.Since.IsZero() || !s.Up {
				s.Since = time.Now()
			}
			s.Up, s.Health, s.LastError, s.ConsecutiveFailures = true, pathOff, "", 0
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
			if soonest := c.started.Add(suspectGap); soonest.Before(c.due) {
				c.due = soonest
			}
		case <-timer.C:
		}
		// An error is a panic that Recover has logged; the next step follows in its time.
		_ = c.options.Recover("checking the worker "+c.w.Name(), func() error {
			c.step(ctx)
			return nil
		})
		timer.Reset(time.Until(c.next()))
	}
}

// step runs the check or the look at the load that is due.
func (c *checker) step(ctx context.Context) {
	if time.Until(c.due) > 0 && time.Until(c.look) > 0 {
		return // a suspicion that came too early
	}
	defer c.lookAgain() // after a panic too: without a new time the next step would follow at once
	if time.Until(c.due) > 0 {
		c.lookAtLoad(ctx)
		return
	}
	c.started = time.Now()
	c.due = c.started.Add(jittered(c.health.Interval, c.options.Rand()))
	c.round(ctx)
}

// jittered spreads d by a tenth both ways, so that gateways started together
// do not ask together.
func jittered(d time.Duration, random uint64) time.Duration {
	unit := routing.Unit(random)
	return time.Duration(float64(d) * (0.9 + 0.2*unit))
}

// round is one check and, if it passed, one look at the load. A check that
// panics has failed: its answer could not be read.
func (c *checker) round(ctx context.Context) {
	err := c.options.Recover("reading the health of the worker "+c.w.Name(), func() error { return c.check(ctx) })
	if ctx.Err() != nil || OutOfResources(err) {
		return // the gateway ended it, or could not ask: that says nothing about the worker
	}
	cameUp := c.record(err)
	if cameUp {
		// Another engine may have taken the address.
		c.silent, c.neverPaused, c.asleep, c.paused = time.Time{}, false, false, false
	}
	if err == nil {
		c.scrape(ctx, c.health.Timeout)
		c.askPaused(ctx)
		c.suspend()
		if cameUp && c.path != pathModels {
			c.learnModels(ctx)
		}
	}
	c.publish()
}

// record counts one check's result, and logs and reports what it changes.
func (c *checker) record(err error) (cameUp bool) {
	changed := c.tally.add(err == nil)
	now := time.Now()
	c.update(func(s *Status) {
		s.Asked, s.Up, s.ConsecutiveFailures = c.started, c.tally.up, c.tally.failures
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
		c.log(slog.LevelInfo, "worker is up", slog.String("check", c.checkedPath()))
	case changed:
		c.log(slog.LevelWarn, "worker is down", slog.Int("failed_checks", c.tally.failures), slog.String("cause", err.Error()))
	}
	c.publish() // before the load is asked for, which may take long
	return changed && c.tally.up
}

func (c *checker) log(level slog.Level, message string, what ...slog.Attr) {
	for _, w := range c.all {
		c.options.Log.LogAttrs(context.Background(), level, message, append([]slog.Attr{slog.Any("worker", w)}, what...)...)
	}
}

// update changes the status of each worker and remembers for which that is news.
func (c *checker) update(change func(*Status)) {
	for i, w := range c.all {
		if w.update(change) {
			c.news[i] = true
		}
	}
}

func (c *checker) publish() {
	for i, w := range c.all {
		if c.news[i] {
			c.news[i] = false
			w.report(c.options.OnStatus)
		}
	}
}

// tally turns results into up and down: down at once when the first check
// fails, after downAfter failures in a row from then on, and up again after
// upAfter good ones in a row.
type tally struct {
	downAfter, upAfter int
	known, up          bool
	failures, goods    int // in a row
}

// add counts one check and reports whether the worker's state is new. The
// first result always is.
func (t *tally) add(ok bool) (changed bool) {
	was, known := t.up, t.known
	t.known = true
	if ok {
		t.goods, t.failures = t.goods+1, 0
	} else {
		t.goods, t.failures = 0, t.failures+1
	}
	switch {
	case !known:
		t.up = ok
	case t.up:
		t.up = t.failures < t.downAfter
	default:
		t.up = t.goods >= t.upAfter
	}
	return !known || t.up != was
}

// checkedPath is the path in use, empty while auto has found none.
func (c *checker) checkedPath() string {
	if c.health.Path == pathAuto {
		return c.path
	}
	return c.health.Path
}

// check asks the worker once whether it is well; nil means yes.
func (c *checker) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.health.Timeout)
	defer cancel()
	if c.health.Path != pathAuto {
		_, err := c.ask(ctx, c.health.Path)
		return err
	}
	if c.path != pathModels {
		code, err := c.ask(ctx, pathHealth)
		if err == nil {
			c.path = pathHealth
			return nil
		}
		if !c.noSuchPath(code) {
			return err
		}
	}
	code, err := c.ask(ctx, pathModels)
	switch {
	case err == nil:
		c.path = pathModels
	case c.noSuchPath(code):
		c.path = "" // another engine may have taken the address: ask both again
	}
	return err
}

// noSuchPath tells by the status of an answer that the engine has no such
// path. Some hosted endpoints guard what they do not have with 401 or 403;
// that counts until /health has answered once.
func (c *checker) noSuchPath(code int) bool {
	switch code {
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented:
		return true
	case http.StatusUnauthorized, http.StatusForbidden:
		return c.path == ""
	}
	return false
}

// ask GETs path and reports everything but a 2xx as an error that says what
// to look at. The status is 0 when there was no answer.
func (c *checker) ask(ctx context.Context, path string) (code int, err error) {
	limit := int64(maxHealthBody)
	if path == pathModels {
		limit = maxModelsBody
	}
	code, body, err := c.read(ctx, path, limit)
	switch {
	case code == 0:
		return 0, c.explain(ctx, path, err)
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		return code, fmt.Errorf("GET %s: status %d: the worker refuses the gateway's key; check api_key_env (%s)",
			path, code, cmp.Or(c.w.Spec().APIKeyEnv, "none is set"))
	case code == http.StatusLoopDetected:
		return code, fmt.Errorf("GET %s: status %d: the url leads back to this gateway, or to one behind it; correct url",
			path, code)
	case code >= 300 && code < 400:
		return code, fmt.Errorf("GET %s: status %d: redirects are not followed; put the final address into url", path, code)
	case code < 200 || code >= 300:
		return code, fmt.Errorf("GET %s: status %d %s", path, code, http.StatusText(code))
	case err != nil:
		return 0, c.explain(ctx, path, err)
	}
	if path == pathModels {
		c.learn(body)
	}
	return code, nil
}

// read asks for path and reads so much of the answer at most. The status is 0 when
// there was no answer.
func (c *checker) read(ctx context.Context, path string, limit int64) (code int, body []byte, err error) {
	answer, err := c.get(ctx, path)
	if err != nil {
		return 0, nil, err
	}
	defer answer.Body.Close()
	body, err = io.ReadAll(io.LimitReader(answer.Body, limit))
	return answer.Status, body, err
}

// get asks at the root of the worker, where engines have /health and /metrics.
func (c *checker) get(ctx context.Context, path string) (*http1.Response, error) {
	return c.w.sendTo(ctx, c.w.address.root()+path, &http1.Request{Method: http.MethodGet, Path: path,
		Header: http.Header{"Accept": {"application/json, text/plain;q=0.9, */*;q=0.1"}}})
}

func (c *checker) explain(ctx context.Context, path string, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("GET %s: no whole answer within the health timeout of %s: %w", path, c.health.Timeout, err)
	}
	return fmt.Errorf("GET %s: %w", path, err)
}

// learnModels asks once what the engine serves; a worker need not say.
func (c *checker) learnModels(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, c.health.Timeout)
	defer cancel()
	_, _ = c.ask(ctx, pathModels)
}

// learn reads what GET /v1/models says of the models and their owner.
func (c *checker) learn(body []byte) {
	var list struct {
		Data []struct {
			ID      string `json:"id"`
			OwnedBy string `json:"owned_by"`
		} `json:"data"`
	}
	if json.Unmarshal(body, &list) != nil || len(list.Data) == 0 {
		return
	}
	models, engine := make([]string, 0, len(list.Data)), ""
	for _, model := range list.Data {
		models = append(models, model.ID)
		if engine == "" {
			engine = engineByOwner[model.OwnedBy]
		}
	}
	c.update(func(s *Status) {
		s.Models = models
		if engine != "" {
			s.Engine = engine
		}
	})
}

// engineByOwner tells the engine by a model's owned_by. Ollama writes the
// namespace of its own library there.
var engineByOwner = map[string]string{
	"vllm": "vllm", "sglang": "sglang", "llamacpp": "llamacpp", "ollama": "ollama", "library": "ollama",
}
