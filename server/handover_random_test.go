package server

import (
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tierway/engines/chaos"
	"tierway/fixedseed"
)

// TestRandomFaultsAndLeavesReuseNothing: prefill and decode workers fail, and clients leave, at random moments. A
// healthy worker of each stage is always there, so that every client that stays gets its answer. With SGLang,
// both stages run in parallel, and two attempts can meet a fault of each; therefore one stage fails at a time.
func TestRandomFaultsAndLeavesReuseNothing(t *testing.T) {
	n := fixedseed.Samples(160, 2500) // for each hand-over
	for _, handover := range []string{"nixl", "p2p_nccl", "shared", "sglang"} {
		synctest.Test(t, func(t *testing.T) {
			s := newStagesRig(t, handover, steadyKeys, nil)
			kinds := []chaos.Kind{chaos.Reset, chaos.Close, chaos.Stale, chaos.Status, chaos.Truncate}
			rng := rand.New(rand.NewPCG(3, 4))
			var mu sync.Mutex
			draw := func(n int) int {
				mu.Lock()
				defer mu.Unlock()
				return rng.IntN(n)
			}
			done := make(chan struct{})
			var group sync.WaitGroup
			group.Go(func() { // the first worker of each stage fails
				for round := 0; ; round++ {
					for i, of := range [][]*stage{s.prefills, s.decodes} {
						fault := chaos.Fault{Kind: kinds[draw(len(kinds))], Status: 500, Times: 1 + draw(3)}
						faults := []chaos.Fault{fault}
						if handover == "sglang" && round%4 != 2*i { // and none between the stages
							faults = nil
						}
						if err := of[0].faults.Set(faults...); err != nil {
							t.Error(err)
						}
					}
					select {
					case <-done:
						return
					case <-time.After(3 * time.Second):
					}
				}
			})
			each(n, func(i int) {
				q := oneRequest(i, 200+draw(2000), draw(2) == 0)
				if draw(4) == 0 {
					s.leaveAfter(q, time.Duration(draw(int(800*time.Millisecond))))
					return
				}
				wantAnswer(t, q, s.post(q.path, q.body))
			})
			close(done)
			group.Wait()
			time.Sleep(time.Minute)
			synctest.Wait()
			all := s.sum()
			if all.reused != 0 || all.wrong != 0 || all.keys != 0 || all.pinned != 0 || all.open != 0 {
				t.Errorf("%s: %+v", handover, all)
			}
			t.Logf("%s: %d blocks leaked with decode workers that failed", handover, all.leaked)
		})
	}
}
