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

// panics records the names of the steps that panicked.
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

func (p *panics) steps() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.all)
}

// While every answer of the engine panics, the worker is down. Afterwards it is up.
func TestPanicInACheckFailsOnlyTheCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := &scriptedHealth{}
		engine.set(pathHealth, 200, "")
		engine.set(pathModels, 200, `{"data":[]}`)
		var seen panics
		var mu sync.Mutex
		broken := true
		fleet := NewFleet(Options{Rand: noJitter, Recover: seen.recover, send: func(Spec) Sender {
			return &fakeSender{answer: func(ctx context.Context, r *http1.Request) (*http1.Response, error) {
				mu.Lock()
				defer mu.Unlock()
				if broken {
					panic("a bug in the reader")
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
		if st := w.Status(); st.Up || st.LastError != "recovered" || st.Failed < 2 || len(seen.steps()) != int(st.Failed) {
			t.Errorf("during the panics the status is %+v after the steps %q", st, seen.steps())
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

// OnStatus and the load check panic each time; all checks keep their intervals.
func TestPanicInAReportOrLoadCheckDoesNotSpeedUpTheLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var requested []string
		var mu sync.Mutex
		var seen panics
		fleet := NewFleet(Options{Rand: noJitter, Recover: seen.recover, OnStatus: func(*Worker,
			Status) {
			panic("a report")
		},
			send: func(Spec) Sender {
				return &fakeSender{answer: func(_ context.Context, r *http1.Request) (*http1.Response, error) {
					mu.Lock()
					requested = append(requested, r.Path)
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
		for _, path := range requested {
			if path == pathHealth {
				checks++
			}
		}
		if checks < 4 || checks > 5 || len(requested) > 30 || len(seen.steps()) == 0 {
			t.Errorf("in 20 s, with health checks every 5 s and load checks every second: requests %q, %d panics", requested,
				len(seen.steps()))
		}
	})
}
