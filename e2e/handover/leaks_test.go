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
}

// TestRandomFaultsLeakNothing: clients leave at random moments, prefill and decode engines die one after the other,
// and engines reject requests. Each other request succeeds, no object is used twice, no answer is another prompt's,
// and no block of a prompt is kept until its time limit, except those that an engine had when it died.
func TestRandomFaultsLeakNothing(t *testing.T) {
	for _, handover := range []string{engines.HandoverNixl, engines.HandoverNccl, engines.HandoverSGLang} {
		t.Run(handover, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := fixedseed.Samples(400, 10_000)
				f := &faulty{dice: rand.New(rand.NewPCG(uint64(fixedseed.Seeds(1)[0]), 7)), fleet: newFleet(t,
					engines.Config{Handover: handover}, "handover: "+handover+", uncached_threshold: 400,",
					"p0", "p1", "p2", "d0", "d1", "d2")}
				f.load(n)
				synctest.Wait()
				time.Sleep(time.Minute) // longer than blocks are kept
				f.wantClean(n)
			})
		})
	}
}

// load sends n requests of 32 clients. An engine dies after every 50 of them, and is there again a second later.
func (f *faulty) load(n int) {
	var all sync.WaitGroup
	clients, victim := make(chan struct{}, 32), 0
	for i := range n {
		clients <- struct{}{}
		if i%50 == 49 {
			time.Sleep(5 * time.Second)
			w := f.workers[victim%len(f.workers)]
			victim++
			all.Go(func() { f.restart(w) })
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
	status, answer, err := f.post(ctx, body)
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		f.left++
	case bad && status == http.StatusBadRequest:
		f.rejected++
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

// wantClean verifies that no engine has kept or reused anything.
func (f *faulty) wantClean(n int) {
	f.t.Helper()
	var all engines.Stats
	for _, w := range f.workers {
		s := w.Stats()
		all.Open, all.BlocksPinned, all.BlocksLeaked = all.Open+s.Open, all.BlocksPinned+s.BlocksPinned,
			all.BlocksLeaked+s.BlocksLeaked
		all.ObjectsReused, all.KeysReused, all.WrongAnswers = all.ObjectsReused+s.ObjectsReused,
			all.KeysReused+s.KeysReused, all.WrongAnswers+s.WrongAnswers
		all.ObjectsUsed += s.ObjectsUsed
		all.Recomputed += s.Recomputed
	}
	f.t.Logf("%d requests: %d served, %d clients left, %d rejected; %+v", n, f.served, f.left, f.rejected, all)
	if all.Open+all.BlocksPinned != 0 || all.BlocksLeaked+all.ObjectsReused+all.KeysReused+all.WrongAnswers != 0 {
		f.t.Errorf("%+v", all)
	}
	if f.served < n/2 || f.left < n/20 || f.rejected == 0 {
		f.t.Error("the load has too few requests of a kind")
	}
}
