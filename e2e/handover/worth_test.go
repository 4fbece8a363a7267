package handover

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"text/tabwriter"
	"time"

	"tierway/e2e/conversations"
	"tierway/engines"
	"tierway/fixedseed"
)

// setup is one way to use eight engines.
type setup struct {
	name string
	keys string   // of the pool
	mix  []string // names of the workers
}

func setups() []setup {
	split := []string{"p0", "p1", "p2", "p3", "d0", "d1", "d2", "d3"}
	return []setup{
		{"by cost", "handover: nixl,", split},
		{"always local", "handover: nixl, uncached_threshold: 0,", split},
		{"always remote", "handover: nixl, uncached_threshold: 1,", split},
		{"8 mixed workers", "", []string{"b0", "b1", "b2", "b3", "b4", "b5", "b6", "b7"}},
	}
}

// result is what the clients of a replay have measured.
type result struct {
	setup
	ttfts, tokens []time.Duration // times to first token, and between tokens
	failed        int
	computed      map[string]int64 // prefills by role
}

// answer is what one client has measured.
type answer struct {
	ttft   time.Duration
	tokens []time.Duration
	err    error
}

// replay sends the conversations at rate times their speed.
func replay(t *testing.T, s setup, chats []*conversations.Chat, rate float64) (r result) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := engines.Config{Script: func(_ string, body []byte) engines.Script {
			return engines.Script{Tokens: conversations.OutputOf(body, chats)}
		}}
		if s.keys != "" {
			c.Handover = engines.HandoverNIXL
		}
		f := newFleet(t, c, s.keys+" policy: { name: kv_aware },", s.mix...)
		answers := make([]answer, len(chats))
		begin := time.Now()
		var all sync.WaitGroup
		for i, c := range conversations.Spread(chats, 3*time.Second) {
			time.Sleep(time.Until(begin.Add(time.Duration(float64(c.At) / rate))))
			all.Go(func() { answers[i] = ask(f.client, c) })
		}
		all.Wait()
		r = f.result(s, answers)
	})
	return r
}

// result summarizes the answers.
func (f *fleet) result(s setup, answers []answer) result {
	r := result{setup: s, computed: map[string]int64{}}
	for _, a := range answers {
		if a.err != nil {
			f.t.Error(a.err)
			r.failed++
			continue
		}
		r.ttfts, r.tokens = append(r.ttfts, a.ttft), append(r.tokens, a.tokens...)
	}
	slices.Sort(r.ttfts)
	slices.Sort(r.tokens)
	for _, w := range f.workers {
		st := w.Stats()
		r.computed[w.role] += st.Prefills - st.ObjectsUsed
		if st.BlocksLeaked+st.ObjectsReused+st.WrongAnswers > 0 || st.BlocksPinned > 0 {
			f.t.Errorf("%s: %s: %+v", s.name, w.name, st)
		}
	}
	return r
}

// ask sends a chat and reads its answer.
func ask(client *http.Client, c *conversations.Chat) (a answer) {
	began := time.Now()
	response, err := client.Post(gatewayURL+"/v1/chat/completions", "application/json", bytes.NewReader(c.Body()))
	if err != nil {
		return answer{err: err}
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(response.Body)
		return answer{err: fmt.Errorf("request %d: status %d: %s", c.Number, response.StatusCode, body)}
	}
	tokens, last := 0, began
	for lines := bufio.NewReader(response.Body); ; {
		line, err := lines.ReadSlice('\n')
		if err != nil {
			return answer{err: fmt.Errorf("request %d: %w", c.Number, err)}
		}
		if bytes.HasPrefix(line, []byte("data: [DONE]")) {
			break
		}
		_, text, found := bytes.Cut(line, []byte(`"delta":{"content":"`))
		if text, _, _ = bytes.Cut(text, []byte(`"`)); !found || len(text) == 0 {
			continue
		}
		now, n := time.Now(), (len(text)+3)/4
		if tokens == 0 {
			a.ttft = now.Sub(began)
		} else {
			for range n {
				a.tokens = append(a.tokens, now.Sub(last)/time.Duration(n))
			}
		}
		tokens, last = tokens+n, now
	}
	if tokens != c.Output {
		a.err = fmt.Errorf("request %d: %d tokens, want %d", c.Number, tokens, c.Output)
	}
	return a
}

func mean(all []time.Duration) (m time.Duration) {
	for _, d := range all {
		m += d
	}
	return m / time.Duration(max(1, len(all)))
}

func p99(all []time.Duration) time.Duration { return all[len(all)*99/100] }

// logTable logs a table of results.
func logTable(t *testing.T, rate float64, all []result) {
	t.Helper()
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "at %g × the speed\tTTFT mean s\tp99 s\tbetween tokens mean ms\tp99 ms\t"+
		"prefills by prefill workers\tby others\t\n", rate)
	for _, r := range all {
		ms := func(d time.Duration) float64 { return d.Seconds() * 1000 }
		fmt.Fprintf(w, "%s\t%.3f\t%.2f\t%.1f\t%.1f\t%d\t%d\t\n", r.name, mean(r.ttfts).Seconds(), p99(r.ttfts).Seconds(),
			ms(mean(r.tokens)), ms(p99(r.tokens)), r.computed["prefill"], r.computed["decode"]+r.computed[""])
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + b.String())
}

// TestPD10ThePredictedCostDecidesBetterThanThresholds compares the decision by cost with the two fixed ones, and with
// eight workers that all serve whole requests, for the same requests.
func TestPD10ThePredictedCostDecidesBetterThanThresholds(t *testing.T) {
	chats, rates, compared := conversations.Read(t, fixedseed.Samples(250, 1000)), []float64{1}, setups()
	if fixedseed.Samples(1, 0) == 0 {
		rates = []float64{0.5, 0.75, 1}
	} else {
		compared = compared[:3]
	}
	for _, rate := range rates {
		var all []result
		for _, s := range compared {
			all = append(all, replay(t, s, chats, rate))
		}
		logTable(t, rate, all)
		checkSimulation(t, chats, rate, all)
		cost, local, remote := all[0], all[1], all[2]
		if best := min(mean(local.ttfts), mean(remote.ttfts)); mean(cost.ttfts) > best*102/100 {
			t.Errorf("at %g × the speed: the mean time to first token is %v, want at most %v and 2 %%", rate,
				mean(cost.ttfts), best)
		}
		if most := p99(remote.tokens) * 110 / 100; p99(cost.tokens) > most {
			t.Errorf("at %g × the speed: the p99 between tokens is %v, want at most %v", rate, p99(cost.tokens), most)
		}
	}
}
