package routing

import (
	"errors"
	"testing"
)

// TestTokensInFlightAreBounded has workers with a bound of 1,000 tokens, and the requests that they are
// offered in turn, as prompt and output tokens.
func TestTokensInFlightAreBounded(t *testing.T) {
	for name, c := range map[string]struct {
		members []Member
		offers  [][2]int64
		want    string // + booked, - full
		tokens  int64
	}{
		"up to the bound": {[]Member{{MaxTokensInflight: 1000}},
			[][2]int64{{300, 200}, {499, 1}, {0, 1}, {0, 0}}, "++-+", 1000},
		"not beyond": {[]Member{{MaxTokensInflight: 1000}}, [][2]int64{{300, 200}, {500, 1}, {500, 0}},
			"+-+", 1000},
		"the first one is free": {[]Member{{MaxTokensInflight: 1000}}, [][2]int64{{5000, 100}, {0, 0}, {1, 0}}, "+--",
			5100},
		"answers count": {[]Member{{MaxTokensInflight: 1000}}, [][2]int64{{0, 900}, {0, 101}, {0, 100}}, "+-+",
			1000},
		"no bound": {[]Member{{}}, [][2]int64{{1 << 50, 1 << 50}, {1 << 62, 1 << 62}}, "++",
			4 * maxBooked},
		"requests are bounded as well": {[]Member{{MaxTokensInflight: 1000, MaxInflight: 1}}, [][2]int64{{1, 1}, {1, 1}},
			"+-", 2},
		"absurd ones cannot overflow": {[]Member{{MaxTokensInflight: 1<<63 - 1}},
			[][2]int64{{1 << 62, 1 << 62}, {-1 << 62, -1 << 62}}, "++", 2 * maxBooked},
	} {
		for i := range c.members {
			c.members[i].ID, c.members[i].Weight = "a", 1
		}
		p, got := poolOf(c.members...), ""
		for _, o := range c.offers {
			// Equal prompts: cached tokens count too.
			_, err := p.Acquire(&Request{Now: start, PromptTokens: o[0], OutputTokens: o[1], Blocks: prompt(1, 0, 8)})
			switch {
			case err == nil:
				got += "+"
			case errors.Is(err, ErrFull):
				got += "-"
			default:
				t.Errorf("%s: %v", name, err)
			}
		}
		v := p.Snapshot(start)[0]
		if got != c.want || v.TokensInflight != c.tokens || v.MaxTokensInflight != c.members[0].MaxTokensInflight {
			t.Errorf("%s: %s, want %s; the snapshot shows %d of %d tokens, want %d", name, got, c.want, v.TokensInflight,
				v.MaxTokensInflight, c.tokens)
		}
	}
}

// TestTokensStayBookedUntilTheRelease: a KV cache holds the prompt until the answer ends.
func TestTokensStayBookedUntilTheRelease(t *testing.T) {
	p := poolOf(Member{ID: "a", Weight: 1, MaxTokensInflight: 200})
	l := mustAcquire(t, p)
	l.Answered(start, nil)
	if got := p.Snapshot(start)[0].TokensInflight; got != 110 {
		t.Errorf("an answer that began holds %d tokens, want 110", got)
	}
	if _, err := p.Acquire(&Request{Now: start, PromptTokens: 100}); !errors.Is(err, ErrFull) {
		t.Errorf("a worker with 110 of 200 tokens took 100 more: %v", err)
	}
	l.Release(Result{})
	if got := p.Snapshot(start)[0].TokensInflight; got != 0 {
		t.Errorf("after the release it holds %d tokens", got)
	}
}

// TestLongRequestGoesToAWorkerWithRoom: a worker may be full for one request and not for another.
func TestLongRequestGoesToAWorkerWithRoom(t *testing.T) {
	members := []Member{{ID: "a", Weight: 1, MaxTokensInflight: 1000}, {ID: "b", Weight: 1, MaxTokensInflight: 5000}}
	p := poolOf(members...)
	for range 2 { // on one each
		mustAcquire(t, p)
	}
	for _, c := range []struct {
		tokens int64
		want   string
	}{{2000, "b"}, {2000, "b"}, {891, ""}, {500, "a"}, {390, "a"}} {
		l, err := p.Acquire(&Request{Now: start, PromptTokens: c.tokens})
		if got := ""; err == nil {
			if got = l.Worker().ID(); got != c.want {
				t.Errorf("%d tokens went to %s, want %s", c.tokens, got, c.want)
			}
		} else if c.want != "" || !errors.Is(err, ErrFull) {
			t.Errorf("%d tokens: %v", c.tokens, err)
		}
	}
}
