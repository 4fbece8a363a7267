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
const (
	shedWorkers = 2
	shedPlaces  = 4 // of each worker
	shedDepth   = 24
	shedClients = 2 * (shedWorkers*shedPlaces + shedDepth)
	shedTokens  = 20 // of an answer, more or less by half
	shedToken   = 25 * time.Millisecond
)

// shedding is a gateway that accepts half of a burst.
type shedding struct {
	*rig.Rig
	holds atomic.Bool   // the engines hold the answers of requests that they receive from now on
	on    chan struct{} // closing it ends that
}

func startShedding(t *testing.T) *shedding {
	t.Helper()
	var asked atomic.Int64
	s := &shedding{on: make(chan struct{})}
	c := engines.Config{Slots: shedPlaces, PerToken: shedToken, Script: func(string, []byte) engines.Script {
		// No two answers that begin together end together, as with real ones.
		answer := engines.Script{Tokens: shedTokens/2 + int(asked.Add(1)*7%shedTokens)}
		if s.holds.Load() {
			answer.HoldAfter, answer.Release = 1, s.on
		}
		return answer
	}}
	s.Rig = rig.New(t, shedWorkers, c, rig.Settings{
		"auth":  `{ required: false }`,
		"queue": fmt.Sprintf("{ max_depth: %d, max_wait: { interactive: 60s } }", shedDepth),
	}).Listen()
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

// refusals returns the number of rejections in the access log.
func (s *shedding) refusals() (n int) {
	for _, line := range s.AccessLines() {
		if line["code"] == "overloaded" {
			n++
		}
	}
	return n
}

// TestShedClientsComeBack: the gateway sheds half of the first attempts of the official SDKs, which use
// their default retries. With its Retry-After, all succeed. TestShedClientsRetryAndSucceed of sim counts the attempts.
func TestShedClientsComeBack(t *testing.T) {
	for name, burst := range map[string]func(*testing.T, *shedding){
		"Python": func(t *testing.T, s *shedding) {
			runScript(t, s.Process, nil, "python", python(t), "shed.py", strconv.Itoa(shedClients))
		},
		"Node": func(t *testing.T, s *shedding) {
			runScript(t, s.Process, nil, "node", "node", "shed.js", strconv.Itoa(shedClients))
		},
		"Go": goBurst,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startShedding(t)
			s.holds.Store(true)
			ended := make(chan struct{})
			go func() { defer close(ended); burst(t, s) }()
			s.WaitForScript(ended, "shed clients", func() bool { return s.refusals() >= shedClients/3 })
			close(s.on)
			<-ended
			s.WaitUntilIdle()
			answered, before, again := s.retries(t)
			if answered != shedClients {
				t.Errorf("%d of %d clients got an answer", answered, shedClients)
			}
			lines := 2*shedWorkers*shedPlaces + shedClients + before
			s.WaitFor("the access log", func() bool { return len(s.AccessLines()) >= lines })
			if shed := s.refusals(); shed != before {
				t.Errorf("the gateway refused %d requests, the SDK retried %d", shed, before)
			}
			t.Logf("%d clients, %d of them shed at first, %.2f attempts each", answered, again, 1+float64(before)/shedClients)
			if again == 0 {
				t.Error("no first attempt was shed")
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
