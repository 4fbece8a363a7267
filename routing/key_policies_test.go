package routing

import (
	"fmt"
	"math"
	"testing"
)

// hashing lists the policies that place a request by a key alone.
func hashing(t *testing.T, c Config) map[string]Policy {
	t.Helper()
	found := map[string]Policy{}
	for _, c.Name = range []string{"consistent_hash", "rendezvous_hash"} {
		p, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		found[c.Name] = p
	}
	return found
}

// homeOfSession returns the worker of a session.
func homeOfSession(p Policy, session uint64, ws []View) string {
	i, _ := p.Pick(&Request{Key: session, KeyOf: KeySession, Now: start}, ws)
	return ws[i].ID
}

// TestOnlyTheKeysOfALeavingWorkerMove, and they return with it.
func TestOnlyTheKeysOfALeavingWorkerMove(t *testing.T) {
	const sessions = 300
	for name, p := range hashing(t, Config{}) {
		all := weighted(1, 1, 1)
		rest, moved := all[:2:2], map[string]int{}
		for session := range uint64(sessions) {
			home := homeOfSession(p, Mix(session+1), all)
			without := homeOfSession(p, Mix(session+1), rest)
			if home != all[2].ID && without != home {
				t.Errorf("%s: session %d moves from %s to %s, and %s left", name, session, home, without, all[2].ID)
			}
			if home == all[2].ID {
				moved[without]++
			}
			if again := homeOfSession(p, Mix(session+1), all); again != home {
				t.Errorf("%s: session %d was at %s, and is at %s afterwards", name, session, home, again)
			}
		}
		if moved[rest[0].ID] < 20 || moved[rest[1].ID] < 20 {
			t.Errorf("%s: the sessions of the worker that left went to %v", name, moved)
		}
	}
}

// TestKeysAreSharedByWeight within 15 % of each worker's share.
func TestKeysAreSharedByWeight(t *testing.T) {
	const sessions = 40_000
	for name, p := range hashing(t, Config{VirtualNodes: 160}) {
		ws, counts := weighted(1, 2, 5), map[string]int{}
		for session := range uint64(sessions) {
			counts[homeOfSession(p, Mix(session+1), ws)]++
		}
		for i := range ws {
			want := float64(sessions*ws[i].Weight) / 8
			if got := float64(counts[ws[i].ID]); math.Abs(got-want) > 0.15*want {
				t.Errorf("%s: the worker of weight %d has %.0f of %d sessions, want about %.0f", name, ws[i].Weight, got, sessions,
					want)
			}
		}
	}
}

// TestDistributionOfSessions measures how evenly 512 sessions are distributed over 3 workers, as the
// coefficient of variation of the sessions per worker, over 300 pools. The figures of docs/policies.md are
// its output with -v.
func TestDistributionOfSessions(t *testing.T) {
	const pools, sessions, workers = 300, 512, 3
	variation := func(c Config) float64 {
		sum := 0.0
		for pool := range uint64(pools) {
			p, err := New(c)
			if err != nil {
				t.Fatal(err)
			}
			ws := make([]View, workers)
			for i := range ws {
				ws[i] = View{ID: fmt.Sprintf("http://10.0.%d.%d:8000", pool/250, pool%250*workers+uint64(i)), Index: i, Weight: 1}
			}
			counts := map[string]float64{}
			for session := range uint64(sessions) {
				counts[homeOfSession(p, Mix(pool<<32+session+1), ws)]++
			}
			squares := 0.0
			for i := range ws {
				d := counts[ws[i].ID] - float64(sessions)/workers
				squares += d * d
			}
			sum += math.Sqrt(squares/workers) / (float64(sessions) / workers)
		}
		return sum / pools
	}
	rendezvous := variation(Config{Name: "rendezvous_hash"})
	t.Logf("rendezvous_hash: %.1f %%", 100*rendezvous)
	last := math.Inf(1)
	for _, points := range []int{10, 100, 160, 1000} {
		ring := variation(Config{Name: "consistent_hash", VirtualNodes: points})
		t.Logf("consistent_hash, %d points: %.1f %%; rendezvous_hash is %.0f %% lower", points, 100*ring,
			100*(1-rendezvous/ring))
		if ring >= last || points == 100 && rendezvous > 0.7*ring {
			t.Errorf("%d points: %.3f after %.3f with fewer points, rendezvous %.3f", points, ring, last, rendezvous)
		}
		last = ring
	}
}

func TestKeyOfARequest(t *testing.T) {
	session := Request{Key: 7, KeyOf: KeySession, Prefix: 3, Model: 9, Now: start}
	for name, c := range map[string]struct {
		config Config
		r      Request
		want   Reason
	}{
		"its session":             {Config{}, session, ReasonSessionHome},
		"without one its prompt":  {Config{}, Request{Prefix: 3}, ReasonPrefixHome},
		"of blocks alone":         {Config{}, Request{Blocks: prompt(1, 0, 3)}, ReasonPrefixHome},
		"or its body":             {Config{FallbackKey: "body"}, Request{Key: 5, KeyOf: KeyBody, Prefix: 3}, ReasonBodyHome},
		"or nothing":              {Config{FallbackKey: "none"}, Request{Prefix: 3}, ""},
		"neither":                 {Config{}, Request{Model: 9}, ""},
		"its model":               {Config{Key: "model"}, session, ReasonModelHome},
		"no model":                {Config{Key: "model"}, Request{Key: 7, KeyOf: KeySession}, ""},
		"its header":              {Config{Key: "header"}, Request{Key: 7, KeyOf: KeyHeader}, ReasonHeaderHome},
		"no header, and a prompt": {Config{Key: "header"}, Request{Prefix: 3}, ""},
	} {
		for policy, p := range hashing(t, c.config) {
			i, reason := p.Pick(&c.r, weighted(1, 1, 1))
			if reason != c.want || (i < 0) != (c.want == "") {
				t.Errorf("%s, %s: %d because of %q, want %q", policy, name, i, reason, c.want)
			}
		}
	}
}

// TestOrderOfWorkersDoesNotMatter: gateways agree about the worker of a session, whatever
// the order of their workers.
func TestOrderOfWorkersDoesNotMatter(t *testing.T) {
	for name := range hashing(t, Config{}) {
		one, other := hashing(t, Config{})[name], hashing(t, Config{})[name]
		ws := weighted(1, 1, 1)
		turned := []View{ws[2], ws[0], ws[1]}
		for i := range turned {
			turned[i].Index = i
		}
		for session := range uint64(100) {
			if a, b := homeOfSession(one, Mix(session+1), ws), homeOfSession(other, Mix(session+1), turned); a != b {
				t.Fatalf("%s: session %d is at %s, and in another order at %s", name, session, a, b)
			}
		}
	}
}

// TestARecordedKeyOfAnotherKindIsNotUsed: a policy that hashes a header abstains again from a request with a
// session key.
func TestARecordedKeyOfAnotherKindIsNotUsed(t *testing.T) {
	for name, p := range hashing(t, Config{Key: "header"}) {
		ws := weighted(1, 1, 1)
		pool := Pool{policy: p, assessments: make([]assessment, len(ws))}
		r := Request{Key: 7, KeyOf: KeySession, Now: start, Record: &Choice{}}
		i, reason := pool.pickLocked(&r, ws)
		again, why, _, err := Redecide(p, r.Record, 0, 0, nil, start)
		if err != nil || again != i || why != reason || reason != ReasonLeastLoad {
			t.Errorf("%s: %d (%s), and again %d (%s): %v", name, i, reason, again, why, err)
		}
	}
}
