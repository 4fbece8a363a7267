package sdk_test

import (
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tierway/e2e/rig"
	"tierway/engines"
)

// The burst: slots and queue depth together accept half of the clients; the gateway sheds the others.
// An answer takes much longer than a client program needs to start all of its requests.
const (
	shedWorkers = 2
	shedPlaces  = 4 // of each worker
	shedDepth   = 24
	shedClients = 2 * (shedWorkers*shedPlaces + shedDepth)
	shedTokens  = 20 // of an answer, more or less by half
	shedToken   = 25 * time.Millisecond
	shedMean    = 1.6 // attempts, of which 1.5 are the burst's own
)

// shedding is a gateway that accepts half of a burst.
type shedding struct{ *rig.Rig }

func startShedding(t *testing.T) *shedding {
	t.Helper()
	var asked atomic.Int64
	c := engines.Config{Slots: shedPlaces, PerToken: shedToken, Script: func(string, []byte) engines.Script {
		// No two answers that begin together end together, as with real ones.
		return engines.Script{Tokens: shedTokens/2 + int(asked.Add(1)*7%shedTokens)}
	}}
	s := &shedding{rig.New(t, shedWorkers, c, rig.Settings{
		"auth":  `{ required: false }`,
		"queue": fmt.Sprintf("{ max_depth: %d, max_wait: { interactive: 60s } }", shedDepth),
	}).Listen()}
	s.Serve(rig.Settings{"tiers": s.Tiers(fmt.Sprintf("max_inflight: %d", shedPlaces), "")})
	s.WaitUntilReady()
	s.learnSpeed(t)
	return s
}

// learnSpeed lets the gateway learn the speed of its workers, on which Retry-After depends.
func (s *shedding) learnSpeed(t *testing.T) {
	t.Helper()
	var open sync.WaitGroup
	for range 2 * shedWorkers * shedPlaces {
		open.Go(func() {
			if err := s.Post("/v1/chat/completions", rig.Chat("sim", "hi")).CheckOK(); err != nil {
				t.Errorf("before the burst: %v", err)
			}
		})
	}
	open.Wait()
}

// retries returns the number of requests of an SDK that the engines received, and the number of
// earlier attempts that the SDK reports in them.
func (s *shedding) retries(t *testing.T) (answered, before, again int) {
	t.Helper()
	for _, w := range s.Workers {
		for _, r := range w.Recorder.Requests() {
			v := r.Header.Get("X-Stainless-Retry-Count")
			if v == "" {
				continue // not an SDK's
			}
			n, err := strconv.Atoi(v)
			if err != nil {
				t.Errorf("an SDK sent the retry count %q", v)
			}
			answered++
			before += n
			if n > 0 {
				again++
			}
		}
	}
	return answered, before, again
}

// refusals waits until the access log has a number of lines and returns how many are rejections.
func (s *shedding) refusals(lines int) (n int) {
	s.WaitFor("the access log", func() bool { return len(s.AccessLines()) >= lines })
	for _, line := range s.AccessLines() {
		if line["code"] == "overloaded" {
			n++
		}
	}
	return n
}

// TestShedClientsComeBack: the gateway sheds half of the first attempts of the official SDKs, which use
// their default retries. With its Retry-After, all succeed, and few need more than two attempts.
func TestShedClientsComeBack(t *testing.T) {
	for name, burst := range map[string]func(*testing.T, *shedding){
		"Python": func(t *testing.T, s *shedding) {
			runScript(t, s.Process, "python", python(t), "shed.py", strconv.Itoa(shedClients))
		},
		"Node": func(t *testing.T, s *shedding) {
			runScript(t, s.Process, "node", "node", "shed.js", strconv.Itoa(shedClients))
		},
		"Go": goBurst,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startShedding(t)
			burst(t, s)
			s.WaitUntilQuiet()
			answered, before, again := s.retries(t)
			if answered != shedClients {
				t.Errorf("%d of %d clients got an answer", answered, shedClients)
			}
			if shed := s.refusals(2*shedWorkers*shedPlaces + shedClients + before); shed != before {
				t.Errorf("the gateway refused %d requests, the SDK retried %d", shed, before)
			}
			mean := 1 + float64(before)/shedClients
			t.Logf("%d clients, %d of them shed at first, %.2f attempts each", answered, again, mean)
			if again < shedClients/3 {
				t.Errorf("only %d of %d first attempts were shed", again, shedClients)
			}
			if mean > shedMean {
				t.Errorf("%.2f attempts each, want at most %.1f", mean, shedMean)
			}
		})
	}
}

// goBurst sends the burst with openai-go.
func goBurst(t *testing.T, s *shedding) {
	c, _ := goClient(s.Process)
	var open sync.WaitGroup
	for range shedClients {
		open.Go(func() {
			if _, err := c.Chat.Completions.New(t.Context(), chatOf("sim", hello)); err != nil {
				t.Error(err)
			}
		})
	}
	open.Wait()
}
