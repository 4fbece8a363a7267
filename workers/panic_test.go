package workers

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tierway/http1"
)

// panics counts the panics that Recover has turned into errors, by work.
type panics struct {
	mu  sync.Mutex
	all []string
}

func (p *panics) recover(work string, step func() error) (err error) {
	defer func() {
		if recover() != nil {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.all = append(p.all, work)
			err = errors.New("recovered")
		}
	}()
	return step()
}

func (p *panics) works() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.all)
}

// TestAPanicInACheckFailsTheCheckAndNothingElse has every answer of an engine
// panic for a while: the worker is down meanwhile, and up again afterwards.
func TestAPanicInACheckFailsTheCheckAndNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := &scriptedHealth{}
		engine.set(pathHealth, 200, "")
		engine.set(pathModels, 200, `{"data":[]}`)
		var seen panics
		var mu sync.Mutex
		broken := true
		fleet := NewFleet(Options{Rand: middle, Recover: seen.recover, send: func(Spec) Sender {
			return &fakeSender{answer: func(ctx context.Context, r *http1.Request) (*http1.Response, error) {
				mu.Lock()
				defer mu.Unlock()
				if broken {
					panic("an answer that the reader cannot bear")
				}
				return engine.answer(ctx, r)
			}}
		}})
		fleet.Sync([]Spec{{Config: Config{Name: "w0", URL: "http://w0:1"}, Pool: "small"}})
		ctx, stop := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { fleet.Run(ctx) })
		time.Sleep(3 * DefaultHealth().Interval)
		synctest.Wait()
		w := fleet.Get("w0")
		if st := w.Status(); st.Up || st.LastError != "recovered" || st.Failed < 2 || len(seen.works()) != int(st.Failed) {
			t.Errorf("while it panics the status is %+v after the panics %q", st, seen.works())
		}
		mu.Lock()
		broken = false
		mu.Unlock()
		time.Sleep(3 * DefaultHealth().Interval)
		synctest.Wait()
		if st := w.Status(); !st.Up || st.LastError != "" {
			t.Errorf("afterwards the status is %+v", st)
		}
		stop()
		run.Wait()
	})
}

// TestPanicInAReportOrLoadCheckDoesNotSpeedUpTheLoop: OnStatus and the load check panic each time,
// and all checks keep their intervals.
func TestPanicInAReportOrLoadCheckDoesNotSpeedUpTheLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []string
		var mu sync.Mutex
		var seen panics
		fleet := NewFleet(Options{Rand: middle, Recover: seen.recover, OnStatus: func(*Worker, Status) { panic("a report") },
			send: func(Spec) Sender {
				return &fakeSender{answer: func(_ context.Context, r *http1.Request) (*http1.Response, error) {
					mu.Lock()
					asked = append(asked, r.Path)
					mu.Unlock()
					if r.Path == pathMetrics {
						panic("a metric")
					}
					return &http1.Response{Status: 200, Body: io.NopCloser(strings.NewReader(""))}, nil
				}}
			}})
		fleet.Sync([]Spec{{Config: Config{Name: "w0", URL: "http://w0:1"}, Pool: "small", StaleAfter: 3 * time.Second}})
		ctx, stop := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { fleet.Run(ctx) })
		time.Sleep(20 * time.Second)
		synctest.Wait()
		stop()
		run.Wait()
		checks := 0
		for _, path := range asked {
			if path == pathHealth {
				checks++
			}
		}
		if checks < 4 || checks > 5 || len(asked) > 30 || len(seen.works()) == 0 {
			t.Errorf("in 20 s of checks every 5 s and looks every second, it asked %q and panicked %d times", asked,
				len(seen.works()))
		}
	})
}
