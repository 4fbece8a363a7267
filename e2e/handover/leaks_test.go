package handover

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
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
	dice *rand.Rand

	mu       sync.Mutex
	served   int // complete answers
	left     int // clients that left
	rejected int
	cut      int // streams that had begun when an engine died

	deaths atomic.Int64
}

// TestRandomFaultsLeakNothing: clients leave at random moments, prefill and decode engines die one after the other,
// and engines reject requests. Each other request succeeds, unless its stream had begun on an engine that died. No
// object is used twice, no answer is another prompt's, and no block of a prompt is kept until its time limit.
//
// While a decode engine is down, prompts for it whose clients have left are kept until then.
func TestRandomFaultsLeakNothing(t *testing.T) {
	for _, c := range []struct {
		handover string
		down     time.Duration // until an engine is there again
	}{
		{engines.HandoverNixl, 0}, {engines.HandoverNixl, time.Second}, {engines.HandoverNccl, 0},
	} {
		t.Run(fmt.Sprintf("%s down %v", c.handover, c.down), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &faulty{dice: rand.New(rand.NewPCG(fixedseed.Seeds(1)[0], 7)), fleet: newFleet(t,
					engines.Config{Handover: c.handover}, "handover: "+c.handover+", uncached_threshold: 400,",
					"p0", "d0", "p1", "d1", "p2", "d2")}
				f.load(fixedseed.Samples(250, 10_000), c.down)
				synctest.Wait()
				time.Sleep(time.Minute) // longer than blocks are kept
				f.wantClean(c.down > 0)
			})
		})
	}
}

// load sends n requests of 32 clients. After every 50 of them an engine dies, and is there again after
// the time down. If it stays away, after every 100: else the breakers of all engines of a stage would be open at once.
func (f *faulty) load(n int, down time.Duration) {
	var all sync.WaitGroup
	clients, every := make(chan struct{}, 32), 50
	if down > 0 {
		every = 100
	}
	for i := range n {
		clients <- struct{}{}
		if i%every == every-1 {
			w := f.workers[i/every%len(f.workers)]
			f.deaths.Add(1)
			all.Go(func() { f.restart(w, down) })
		}
		leave, pause := time.Duration(0), time.Duration(f.dice.Int64N(int64(100*time.Millisecond)))
		if f.dice.IntN(4) == 0 {
			leave = time.Duration(1 + f.dice.Int64N(int64(800*time.Millisecond)))
		}
		tokens, stream, bad := 1+f.dice.IntN(3000), f.dice.IntN(2) == 0, f.dice.IntN(20) == 0
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
		tokens = 300_000
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

// wantClean verifies that no engine reused anything, and that none kept a prompt until its time limit, except a few if
// some may leak.
func (f *faulty) wantClean(some bool) {
	f.t.Helper()
	var open, pinned int
	var leaked, used, reused, wrong int64
	for _, w := range f.workers {
		s := w.Stats()
		open, pinned = open+s.Open, pinned+s.BlocksPinned
		leaked, used, wrong = leaked+s.BlocksLeaked, used+s.ObjectsUsed, wrong+s.WrongAnswers
		reused += s.ObjectsReused + s.KeysReused
	}
	f.t.Logf("%d served, %d left, %d rejected, %d streams cut; %d objects used, %d reused, %d wrong answers, "+
		"%d blocks leaked", f.served, f.left, f.rejected, f.cut, used, reused, wrong, leaked)
	most := int64(0)
	if some {
		most = int64(f.served) * 4 // a prompt has 95 blocks in the mean
	}
	if open+pinned != 0 || reused+wrong != 0 || leaked > most {
		f.t.Errorf("%d requests are open, %d blocks are pinned", open, pinned)
	}
	if f.served < 3*f.left || f.left == 0 || f.rejected == 0 || f.cut > 10*int(f.deaths.Load()) {
		f.t.Error("the load has too few requests of a kind, or too many streams were cut")
	}
}
