package routing

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// gatewayPools are the pools of several gateways in front of the same workers.
type gatewayPools struct {
	pools []*Pool
	loads map[int][]byte // the last load of each gateway
}

// newGatewayPools returns the pools of n gateways under one policy, each with the same workers, which are up.
func newGatewayPools(t interface{ Fatal(...any) }, n, workers int, c Config) *gatewayPools {
	g := &gatewayPools{loads: map[int][]byte{}}
	for range n {
		policy, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		var members []Member
		for i := range workers {
			members = append(members, Member{ID: fmt.Sprint("w", i), Weight: 1})
		}
		p := NewPool(policy, members)
		p.RecordJournal(true)
		for _, m := range members {
			p.Observe(m.ID, nil, Status{Up: true, CacheTokens: 1 << 20})
		}
		g.pools = append(g.pools, p)
	}
	return g
}

// exchange publishes one gateway's load and journal, and applies the last loads of the others. The
// order of the calls is the order of the log.
func (g *gatewayPools) exchange(t interface{ Fatal(...any) }, i int, now time.Time) {
	p := g.pools[i]
	g.loads[i] = p.AppendLoad(nil, now)
	journal := p.TakeJournal(nil)
	for k, other := range g.pools {
		if k == i || len(journal) == 0 {
			continue
		}
		if err := other.ApplyJournal(now, journal); err != nil {
			t.Fatal(err)
		}
	}
	p.ConfirmJournal()
	var loads [][]byte
	for k, load := range g.loads {
		if k != i {
			loads = append(loads, load)
		}
	}
	if err := p.SetOtherGateways(now, len(g.pools)-1, loads...); err != nil {
		t.Fatal(err)
	}
}

// exchangeAll is two exchanges of each gateway, after which every one knows the load of all.
func (g *gatewayPools) exchangeAll(t interface{ Fatal(...any) }, now time.Time) {
	for range 2 {
		for i := range g.pools {
			g.exchange(t, i, now)
		}
	}
}

// viewsOf returns the views that a pool would show its policy.
func viewsOf(t interface{ Fatal(...any) }, p *Pool, r *Request) []View {
	p.mu.Lock()
	defer p.mu.Unlock()
	ws, err := p.showLocked(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	return slices.Clone(ws)
}

// TestEachGatewaySeesTheLoadOfAll right after an exchange: what it shows its policy is the sum of all bookings.
func TestEachGatewaySeesTheLoadOfAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := newGatewayPools(t, 3, 4, Config{Name: "random"})
		now := start
		for i := range rapid.IntRange(0, 40).Draw(t, "requests") {
			now = now.Add(time.Millisecond)
			r := Request{Now: now, Rand: Mix(uint64(i)), Stream: true,
				PromptTokens: rapid.Int64Range(0, 5000).Draw(t, "prompt"), OutputTokens: rapid.Int64Range(0, 500).Draw(t, "output")}
			l, err := g.pools[i%3].Acquire(&r)
			if err != nil {
				t.Fatal(err)
			}
			if rapid.Bool().Draw(t, "ended") {
				l.Answered(now, nil)
				l.Release(Result{At: now})
			}
		}
		g.exchangeAll(t, now)
		var sums [4]load
		for _, p := range g.pools {
			for i, w := range p.workers {
				sums[i] = sums[i].plus(load{w.inflight, w.pending, w.output, 0}, 1)
			}
		}
		for i, p := range g.pools {
			for k, v := range viewsOf(t, p, &Request{Now: now}) {
				got := load{v.Inflight, v.PendingTokens, v.OutputTokens, 0}
				if got != sums[k] || v.OthersInflight != v.Inflight-p.workers[k].inflight {
					t.Fatalf("gateway %d sees %+v on %s with %d of others, and all have booked %+v", i, got, v.ID, v.OthersInflight,
						sums[k])
				}
			}
		}
	})
}

// TestBetweenReportsPeersBookLikeThisGateway: what it books counts once for itself and once for each other gateway, and
// without any report this holds for all its bookings.
func TestBetweenReportsPeersBookLikeThisGateway(t *testing.T) {
	for _, reported := range []bool{true, false} {
		g := newGatewayPools(t, 3, 2, Config{Name: "least_load"})
		p := g.pools[0]
		if reported {
			g.exchangeAll(t, start)
		} else if err := p.SetOtherGateways(start, 2); err != nil {
			t.Fatal(err)
		}
		l, err := p.Acquire(&Request{Now: start, PromptTokens: 100, OutputTokens: 10})
		if err != nil {
			t.Fatal(err)
		}
		v := viewsOf(t, p, &Request{Now: start})[l.worker.index]
		if v.Inflight != 3 || v.PendingTokens != 300 || v.OutputTokens != 30 || v.OthersInflight != 2 {
			t.Errorf("reported %v: one request of 100 and 10 tokens shows as %+v", reported, v)
		}
		if got := p.Snapshot(start)[l.worker.index]; got.Inflight != 1 || got.OthersInflight != 2 {
			t.Errorf("reported %v: a snapshot has %d own and %d other requests", reported, got.Inflight, got.OthersInflight)
		}
		g.pools[0].SetOtherGateways(start, 0) // without loads
		if v := viewsOf(t, p, &Request{Now: start})[l.worker.index]; v.Inflight != 1 {
			t.Errorf("without other gateways one request shows as %d", v.Inflight)
		}
	}
}

// TestOwnBoundsCountOwnRequests: a gateway has its own share of max_inflight, so load of others fills no worker.
func TestOwnBoundsCountOwnRequests(t *testing.T) {
	p := poolOf(Member{ID: "w0", Weight: 1, MaxInflight: 2})
	if err := p.SetOtherGateways(start, 1, append([]byte{}, loadOf(t, "w0", 50)...)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if l := mustAcquire(t, p); l.level > 2 {
			t.Errorf("the lease counts %d requests", l.level)
		}
	}
	if _, err := p.Acquire(ask()); !errors.Is(err, ErrFull) {
		t.Errorf("a third request: %v, want ErrFull", err)
	}
}

// loadOf returns a load with that many requests on one worker.
func loadOf(t *testing.T, worker string, requests int) []byte {
	t.Helper()
	p := poolOf(Member{ID: worker, Weight: 1, MaxInflight: 1000})
	for range requests {
		mustAcquire(t, p)
	}
	return p.AppendLoad(nil, start)
}

// TestUnreadableLoadsAreReportedAndTheOthersCount.
func TestUnreadableLoadsAreReportedAndTheOthersCount(t *testing.T) {
	good := loadOf(t, "w0", 3)
	for name, bad := range map[string][]byte{
		"empty": {}, "another version": {loadVersion + 1}, "cut": good[:len(good)-1], "longer": append(slices.Clone(good), 0),
		"no number": append([]byte{loadVersion}, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 0),
		"too many":  append(slices.Clone(good[:9]), 0xff, 0xff, 0xff, 0xff, 0x7f),
	} {
		p := poolOf(Member{ID: "w0", Weight: 1}, Member{ID: "w1", Weight: 1})
		if err := p.SetOtherGateways(start, 2, bad, good); err == nil {
			t.Errorf("%s: no error", name)
		}
		if got := viewsOf(t, p, ask())[0].Inflight; got != 3 {
			t.Errorf("%s: %d requests of the readable load, want 3", name, got)
		}
	}
}

// FuzzSetOtherGateways: any text is a load or an error, and never leaves a negative or huge load.
func FuzzSetOtherGateways(f *testing.F) {
	p := poolOf(Member{ID: "w0", Weight: 1})
	f.Add(p.AppendLoad(nil, start))
	f.Add([]byte{loadVersion, 0, 0, 0, 0, 0, 0, 0, 0, 1})
	f.Fuzz(func(t *testing.T, text []byte) {
		p := poolOf(Member{ID: "w0", Weight: 1})
		err := p.SetOtherGateways(start, 1, text)
		v := viewsOf(t, p, ask())[0]
		if v.Inflight < 0 || v.Inflight > len(text)*maxReported || v.PendingTokens < 0 || v.OutputTokens < 0 ||
			err != nil && v.Inflight != 0 {
			t.Errorf("%x gives %+v, %v", text, v, err)
		}
	})
}
