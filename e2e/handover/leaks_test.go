package handover

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"tierway/engines"
	"tierway/fixedseed"
)

// faulty is a load with clients that leave, engines that die, and requests that engines reject.
type faulty struct {
	*fleet
	rng   *rand.Rand
	every int // after so many requests an engine dies

	mu       sync.Mutex
	served   int // complete answers
	left     int // clients that left
	rejected int
	cut      int         // streams that had begun when an engine died
	refused  map[int]int // requests that an engine refused once with a full queue, by number, with the status

	deaths atomic.Int64
}

// TestRandomFaultsLeakNothing: clients leave at random moments, prefill and decode engines die one after the other,
// and engines reject requests. Each other request succeeds, unless its stream had begun on an engine that died. No
// object is used twice, no answer is another prompt's. Blocks are kept until their time limit only if the decode engine
// was killed while it had the request. With p2p_nccl, an engine that is down or refuses leaves them too.
func TestRandomFaultsLeakNothing(t *testing.T) {
	for _, handover := range []string{engines.HandoverNIXL, engines.HandoverP2PNCCL, engines.HandoverShared,
		engines.HandoverSGLang} {
		for _, down := range []time.Duration{0, time.Second} { // until an engine is there again
			for _, seed := range fixedseed.Seeds(1) {
				t.Run(fmt.Sprintf("%s down %v seed %d", handover, down, seed), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { testRandomFaults(t, handover, down, seed) })
				})
			}
		}
	}
}

func testRandomFaults(t *testing.T, handover string, down time.Duration, seed uint64) {
	f := &faulty{every: 50, rng: rand.New(rand.NewPCG(seed, 7)), refused: map[int]int{}}
	c := engines.Config{Handover: handover, Script: f.script, Prefill: 1000, Transfer: 500 * time.Microsecond,
		Context: 4000} // short prompts take less of the machine's time
	f.fleet = newFleet(t, c, "handover: "+handover+", uncached_threshold: 40,", "p0", "d0", "p1", "d1", "p2", "d2")
	if down > 0 {
		f.every = 100
	}
	f.load(fixedseed.Samples(250, 10_000), down)
	synctest.Wait()
	time.Sleep(time.Minute) // longer than blocks are kept
	synctest.Wait()         // cancelled requests have ended
	f.wantClean()
}

// load sends n requests of 32 clients. After some of them an engine dies, and is there again after the time down. An
// engine that stays away for 1 s dies half as often: else the breakers of all engines of a stage would be open at once.
//
// The retry budget is that of the default configuration, 10 retries per second beside 20 % of the requests. A death
// breaks at most the requests of 32 clients; 50 requests take 2.5 s, which brings 35 retries. A request has three
// attempts, because an engine can refuse it and the next one die.
func (f *faulty) load(n int, down time.Duration) {
	var all sync.WaitGroup
	clients := make(chan struct{}, 32)
	for i := range n {
		clients <- struct{}{}
		if i%f.every == f.every-1 {
			w := f.workers[i/f.every%len(f.workers)]
			f.deaths.Add(1)
			all.Go(func() { f.restart(w, down) })
		}
		leave, pause := time.Duration(0), time.Duration(f.rng.Int64N(int64(100*time.Millisecond)))
		if f.rng.IntN(4) == 0 {
			leave = time.Duration(1 + f.rng.Int64N(int64(800*time.Millisecond)))
		}
		tokens, stream, bad := 1+f.rng.IntN(200), f.rng.IntN(2) == 0, f.rng.IntN(20) == 0
		all.Go(func() {
			defer func() { <-clients }()
			f.ask(i, tokens, stream, bad, leave)
		})
		time.Sleep(pause)
	}
	all.Wait()
}

// ask sends a request and judges its answer. A bad one has a prompt that no engine accepts. leave is when its client
// leaves; 0: never.
func (f *faulty) ask(number, tokens int, stream, bad bool, leave time.Duration) {
	if bad {
		tokens = 5000
	}
	ctx := context.Background()
	if leave > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, leave)
		defer cancel()
	}
	prompt := fmt.Sprintf("Number %d. ", number) + strings.Repeat("word ", tokens)
	body := fmt.Appendf(nil, `{"model":%q,"messages":[{"role":"user","content":%q}],"max_tokens":12,"stream":%t}`,
		modelName, prompt, stream)
	deaths := f.deaths.Load()
	status, answer, err := f.post(ctx, body)
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		f.left++
	case bad && status == http.StatusBadRequest:
		f.rejected++
	case stream && status == http.StatusOK && f.deaths.Load() > deaths && strings.Contains(answer, `"content":"`) &&
		(err != nil || strings.Contains(answer, `"error":`)):
		f.cut++
	case err != nil || status != http.StatusOK || bad:
		f.t.Errorf("request %d, %d tokens: %d %v: %.300s", number, tokens, status, err, answer)
	case strings.Contains(answer, engines.WrongAnswer):
		f.t.Errorf("request %d: another prompt's answer", number)
	default:
		f.served++
	}
}

// script lets an engine refuse some requests as with a full queue, once each. A request to a prefill engine has another
// max_tokens, except with SGLang.
func (f *faulty) script(_ string, body []byte) (s engines.Script) {
	_, text, _ := bytes.Cut(body, []byte("Number "))
	digits, _, _ := bytes.Cut(text, []byte("."))
	number, err := strconv.Atoi(string(digits))
	if err != nil || number%f.every != f.every/4 || !bytes.Contains(body, []byte(`"max_tokens":12`)) {
		return s
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refused[number] == 0 {
		s.Refuse = []int{http.StatusTooManyRequests, http.StatusServiceUnavailable}[number/f.every%2]
		f.refused[number] = s.Refuse
	}
	return s
}

// post sends a request and returns its answer. A stream is an error if it has no end.
func (f *faulty) post(ctx context.Context, body []byte) (status int, answer string, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, gatewayURL+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	r.Header.Set("Content-Type", "application/json")
	response, err := f.client.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	all, err := io.ReadAll(response.Body)
	answer = string(all)
	if err == nil && response.StatusCode == http.StatusOK && !json.Valid(all) && !strings.HasSuffix(answer, "[DONE]\n\n") {
		err = io.ErrUnexpectedEOF
	}
	return response.StatusCode, answer, err
}

// wantClean verifies that no engine reused anything, and that prompts were kept until their time limit only where no
// engine can release them. Each loss leaks one prompt.
func (f *faulty) wantClean() {
	f.t.Helper()
	var open, pinned int
	var leaked, used, reused, wrong int64
	for _, w := range f.workers {
		s := w.Stats()
		open, pinned = open+s.Open, pinned+s.BlocksPinned
		leaked, used, wrong = leaked+s.BlocksLeaked, used+s.ObjectsUsed, wrong+s.WrongAnswers
		reused += s.ObjectsReused + s.KeysReused
	}
	lost, expired := f.lost(), f.workers[0].Engine.Config().Peers.Expired()
	for _, id := range expired {
		if lost[id]--; lost[id] < 0 {
			f.t.Errorf("the prompt of %s leaked, and no decode engine had lost it", id)
		}
	}
	f.t.Logf("%d served, %d left, %d rejected, %d refused once, %d streams cut in %d deaths; %d objects used, %d reused, "+
		"%d wrong answers, %d prompts (%d blocks) leaked with killed decode engines", f.served, f.left, f.rejected,
		len(f.refused), f.cut, f.deaths.Load(), used, reused, wrong, len(expired), leaked)
	if open+pinned != 0 || reused+wrong != 0 {
		f.t.Errorf("%d requests are open, %d blocks are pinned", open, pinned)
	}
	if f.served < f.left || f.left == 0 || f.rejected == 0 || len(f.refused) == 0 || f.cut > 10*int(f.deaths.Load()) {
		f.t.Error("the load has too few requests of a kind, or too many streams were cut")
	}
}

// lost returns the prompts that decode engines had when they were killed, by the X-Request-Id of the request. With
// p2p_nccl, only one decode engine can read a prompt. The prompt is also lost if that engine was down at the end of the
// prefill, or refused the request.
func (f *faulty) lost() map[string]int {
	lost, computed := map[string]int{}, map[string]time.Time{}
	for _, w := range f.workers {
		for id, end := range w.served {
			if w.role == engines.RolePrefill {
				computed[id] = end.at
			}
		}
	}
	for _, w := range f.workers {
		if w.role != engines.RoleDecode {
			continue
		}
		for id, n := range w.cut {
			lost[id] += n
		}
		if w.Config().Handover != engines.HandoverP2PNCCL {
			continue
		}
		for id, end := range w.served {
			if end.status >= http.StatusBadRequest {
				lost[id]++
			}
		}
		for id, at := range computed {
			down := func(d [2]time.Time) bool { return !at.Before(d[0]) && !at.After(d[1]) }
			if strings.Contains(id, "___decode_addr_"+w.Config().KVAddress+"_") && slices.ContainsFunc(w.downs, down) {
				lost[id]++
			}
		}
	}
	return lost
}
