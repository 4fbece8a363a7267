//go:build vllm

package vllm

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"tierway/e2e/rig"
)

const (
	patience  = 12 * time.Second // of a client
	clients   = 4
	warmUp    = 10 * time.Second
	faultTime = 30 * time.Second
	// mostFailures is the number of requests that a fault may cost.
	mostFailures = 5
)

// stop is a way in which an engine stops answering.
type stop struct {
	name       string
	idle       bool // it stops while it has no request
	begin, end func(*engine)
}

var stops = []stop{
	{name: "core stopped while busy", begin: (*engine).freezeCore, end: (*engine).thawCore},
	{name: "core stopped while idle", idle: true, begin: (*engine).freezeCore, end: (*engine).thawCore},
	{name: "paused", begin: func(e *engine) { e.command("/pause") }, end: func(e *engine) { e.command("/resume") }},
	{name: "terminated", begin: (*engine).terminate, end: func(e *engine) {
		e.kill()
		e.start()
		e.waitUntilReady()
	}},
}

// TestEngineThatStopsFailsFewRequests: clients share a system prompt, so that one engine has it cached and
// receives most requests. That engine stops.
func TestEngineThatStopsFailsFewRequests(t *testing.T) {
	f := newFleet(t)
	for _, s := range stops {
		t.Run(s.name, func(t *testing.T) {
			f.in(t)
			l := &load{fleet: f, byWorker: map[string]*atomic.Int64{"w0": {}, "w1": {}}}
			l.run(warmUp)
			sick := f.engines[0]
			if l.byWorker["w1"].Load() > l.byWorker["w0"].Load() {
				sick = f.engines[1]
			}
			if s.idle {
				s.begin(sick)
				l.run(faultTime)
			} else {
				began := make(chan struct{})
				time.AfterFunc(2*time.Second, func() { s.begin(sick); close(began) })
				l.run(faultTime)
				<-began
			}
			answers, failed := l.answers.Load(), l.failed.Load()
			s.end(sick)
			t.Logf("%s: %d answers, %d failed, the longest took %s", sick.name, answers, failed, l.longest())
			if failed > mostFailures {
				t.Errorf("%d requests failed, at most %d may: %s", failed, mostFailures, l.firstError())
			}
			rig.Within(t, 2*time.Minute, func() error {
				m, err := f.Metrics()
				if up := m.Sum("tierway_worker_up"); err == nil && up != 2 {
					err = fmt.Errorf("%v workers are up", up)
				}
				return err
			})
		})
	}
}

// load sends chats in closed loops, streamed and whole, and counts their ends.
type load struct {
	*fleet
	byWorker        map[string]*atomic.Int64
	sent            atomic.Int64
	answers, failed atomic.Int64

	mu      sync.Mutex
	errors  []string
	slowest time.Duration
}

// run sends requests for a time.
func (l *load) run(d time.Duration) {
	ctx, cancel := context.WithTimeout(l.t.Context(), d)
	defer cancel()
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			for ctx.Err() == nil {
				l.send(l.t.Context(), int(l.sent.Add(1)))
			}
		})
	}
	all.Wait()
}

// send sends request i.
func (l *load) send(ctx context.Context, i int) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	body := chat(fmt.Sprintf(`"stream":%v,`, i%2 == 0), 16, message{"system", library}, message{"user", words(i, 4)})
	began := time.Now()
	worker, err := exchange(ctx, l.BaseURL+chatPath, body)
	l.mu.Lock()
	l.slowest = max(l.slowest, time.Since(began))
	l.mu.Unlock()
	if err != nil {
		l.failed.Add(1)
		l.mu.Lock()
		l.errors = append(l.errors, err.Error())
		l.mu.Unlock()
		return
	}
	l.answers.Add(1)
	l.byWorker[worker].Add(1)
}

func (l *load) longest() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.slowest.Round(10 * time.Millisecond)
}

func (l *load) firstError() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.errors[0]
}

// exchange sends a chat and reads its whole answer.
func exchange(ctx context.Context, url, body string) (worker string, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && (answer.StatusCode != http.StatusOK || bytes.Contains(text, []byte(`"error"`))) {
		err = fmt.Errorf("status %d: %.300s", answer.StatusCode, text)
	}
	return answer.Header.Get("X-Routed-To"), err
}

// core returns the process id of the engine's core, which is a child of its server.
func (e *engine) core() int {
	e.t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		e.t.Fatal(err)
	}
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		// pid (name) state ppid: a name may contain spaces
		pid, rest, _ := strings.Cut(string(text), " (")
		name, rest, _ := strings.Cut(rest, ") ")
		fields := strings.Fields(rest)
		if len(fields) > 1 && fields[1] == strconv.Itoa(e.process.Process.Pid) && strings.Contains(name, "EngineCor") {
			id, err := strconv.Atoi(pid)
			if err != nil {
				e.t.Fatal(err)
			}
			return id
		}
	}
	e.t.Fatalf("%s has no core", e.name)
	return 0
}

func (e *engine) terminate()  { e.signal(e.process.Process.Pid, syscall.SIGTERM) }
func (e *engine) freezeCore() { e.signal(e.core(), syscall.SIGSTOP) }
func (e *engine) thawCore()   { e.signal(e.core(), syscall.SIGCONT) }

func (e *engine) signal(pid int, s syscall.Signal) {
	if err := syscall.Kill(pid, s); err != nil {
		e.t.Errorf("signal %v to %s: %v", s, e.name, err)
	}
}

// command sends a command of vLLM's development mode.
func (e *engine) command(path string) {
	answer, err := http.Post(e.url+path, "", nil)
	if err != nil {
		e.t.Errorf("%s: %v", path, err)
		return
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		e.t.Errorf("%s: status %d", path, answer.StatusCode)
	}
}
