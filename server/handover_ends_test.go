package server

import (
	"context"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tierway/decisions"
	"tierway/engines/chaos"
	"tierway/server/proxy"
)

const handoverChat = `{"model":"large","messages":[{"role":"user","content":"Hello you"}],"max_tokens":4`

func TestARefusalOfThePrefillWorkerReachesTheClient(t *testing.T) {
	for _, handover := range []string{"nixl", "p2p_nccl", "shared", "sglang"} {
		for status, passes := range map[int]bool{400: true, 404: true, 422: true, 408: false, 429: false} {
			synctest.Test(t, func(t *testing.T) {
				s := newStagesRig(t, handover, steadyKeys, nil)
				for i, w := range s.prefills {
					if !passes && i > 0 {
						break
					}
					if err := w.faults.Set(chaos.Fault{Kind: chaos.Status, Status: status,
						Body: `{"error":{"message":"no such thing","type":"x","param":null,"code":null}}`}); err != nil {
						t.Fatal(err)
					}
				}
				for range 4 {
					a := s.post("/v1/chat/completions", handoverChat+`}`)
					switch {
					case !passes:
						if a.status != http.StatusOK {
							t.Errorf("%s: a %d of one prefill worker is answered %d %s", handover, status, a.status, a.body)
						}
					case a.status != status || !strings.Contains(a.body, "no such thing"):
						t.Errorf("%s: a %d of the prefill worker is answered %d %s", handover, status, a.status, a.body)
					}
				}
				s.wantClean()
				for _, w := range s.decodes {
					if passes && handover != "sglang" && len(w.Requests()) != 0 {
						t.Errorf("%s: a refused request reached %s", handover, w.name)
					}
				}
			})
		}
	}
}

func TestAHangingPrefillWorkerIsLeftInTime(t *testing.T) {
	for _, c := range [][2]string{{"nixl", `}`}, {"nixl", `,"stream":true}`}, {"p2p_nccl", `,"stream":true}`},
		{"sglang", `}`}, {"sglang", `,"stream":true}`}} {
		synctest.Test(t, func(t *testing.T) {
			handover, stream := c[0], c[1]
			s := newStagesRig(t, handover, steadyKeys+"\ntimeouts: { first_byte: 20s }", nil)
			if err := s.prefills[0].faults.Set(chaos.Fault{Kind: chaos.Hang}); err != nil {
				t.Fatal(err)
			}
			for range 6 {
				began := time.Now()
				a := s.post("/v1/chat/completions", handoverChat+stream)
				if took := time.Since(began); a.status != http.StatusOK || took > 21*time.Second {
					t.Errorf("the answer is %d after %v: %s", a.status, took, a.body)
				}
			}
			for _, w := range []string{"p1", "d0", "d1"} { // not at fault
				if n := s.metric(`tierway_attempts_total{result="error",tier="large",worker="` + w + `"}`); n != 0 {
					t.Errorf("%v attempts of %s count as failed", n, w)
				}
			}
			s.wantClean()
		})
	}
}

func TestOneAnswerIsBookedOnceAndRecordedWithBothStages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStagesRig(t, "nixl", "", nil, "p0", "d0")
		for range 2 {
			wantAnswer(t, request{"/v1/chat/completions", handoverChat + `}`}, s.post("/v1/chat/completions", handoverChat+`}`))
		}
		synctest.Wait()
		d := s.recorded().Last(1)[0]
		if len(d.Attempts) != 1 || d.Attempts[0].Worker != "d0" || d.Worker != "d0" || d.Attempts[0].Handover == nil {
			t.Fatalf("the record is %+v", d)
		}
		h := d.Attempts[0].Handover
		if h.Result != "remote" || len(h.Prefills) != 1 || h.Prefills[0].Worker != "p0" || h.Prefills[0].Status != 200 ||
			h.Prefills[0].Usage.Output != 1 || h.Prefills[0].EndAtMs < h.Prefills[0].AtMs {
			t.Errorf("the hand-over is %+v", h)
		}
		if of := h.Prefills[0].Usage; d.Usage.Output != 4 || d.Usage.Prompt != of.Prompt || d.Usage.Cached != of.Cached {
			t.Errorf("the usage is %+v, that of the prefill stage %+v", d.Usage, of)
		}
		if n := s.metric(`tierway_prefill_seconds_count{tier="large"}`); n != 2 {
			t.Errorf("%v prefill stages are measured", n)
		}
		if d.Result != decisions.OK {
			t.Errorf("the result is %s", d.Result)
		}
	})
}

// abandonTime is the longest time that a gateway keeps a request for the sake of the prefill engine's blocks.
const abandonTime = 2 * time.Second

func TestAnEndedDrainEndsBothStages(t *testing.T) {
	for _, handover := range []string{"nixl", "p2p_nccl", "sglang"} {
		for _, at := range []time.Duration{100 * time.Millisecond, 301 * time.Millisecond, 400 * time.Millisecond} {
			synctest.Test(t, func(t *testing.T) {
				s := newStagesRig(t, handover, "", nil)
				ctx, cut := context.WithCancelCause(context.Background())
				front := newUnstartedServer(t, s.planes.dataHandler())
				front.Config.BaseContext = func(net.Listener) context.Context { return ctx }
				front.Start()
				s.url = front.URL
				q := oneRequest(1, 3000, true)
				ended := make(chan httpAnswer, 1)
				go func() { ended <- s.post(q.path, q.body) }()
				time.Sleep(at)
				began := time.Now()
				cut(proxy.ErrDrainCut)
				a := <-ended
				if took := time.Since(began); took > abandonTime || !strings.Contains(a.body, "shutting_down") {
					t.Errorf("%s, cut after %v: answered after %v: %d %s", handover, at, took, a.status, a.body)
				}
				s.wantClean()
			})
		}
	}
}

func TestAnEngineThatRefusesPrioritiesGetsThePromptHandedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStagesRig(t, "nixl", "", nil)
		for _, w := range s.stages {
			if err := w.faults.Set(chaos.Fault{Kind: chaos.Reject, Field: "priority"}); err != nil {
				t.Fatal(err)
			}
		}
		for range 6 {
			a := s.post("/v1/chat/completions", handoverChat+`}`, "X-Request-Priority", "batch")
			if a.status != http.StatusOK {
				t.Errorf("%d %s", a.status, a.body)
			}
		}
		for _, w := range s.stages {
			requests := w.Requests()
			if len(requests) > 0 && !strings.Contains(string(requests[0].Body), `"priority":`) {
				t.Errorf("%s got no priority: %s", w.name, requests[0].Body)
			}
			slices.Reverse(requests)
			if len(requests) > 1 && strings.Contains(string(requests[0].Body), `"priority":`) {
				t.Errorf("%s still gets priorities: %s", w.name, requests[0].Body)
			}
		}
		if remote := s.handovers("remote"); remote < 2 {
			t.Errorf("%v hand-overs are remote", remote)
		}
		if all := s.sum(); all.reused != 0 || all.wrong != 0 {
			t.Errorf("%+v", all)
		}
	})
}

func TestLocalRequestsOfAHandoverPoolAreCleanedToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStagesRig(t, "nixl", "", nil, "d0", "b0")
		for i := range 8 {
			q := oneRequest(i, 20, i/4%2 == 0)
			wantAnswer(t, q, s.post(q.path, q.body))
		}
		if total := s.handovers("local") + s.handovers("remote"); total != 8 {
			t.Errorf("%v hand-overs are counted", total)
		}
		s.wantClean()
	})
}

// TestAnEndedDecodeEngineEndsItsPrefillStage: with SGLang, both engines have the request when the decode engine ends,
// after the headers of its stream. The prefill engine waits for it, is not at fault, and computes the next prompt.
func TestAnEndedDecodeEngineEndsItsPrefillStage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStagesRig(t, "sglang", steadyKeys, nil)
		s.decodes[0].ends = 100 * time.Millisecond // a prompt takes 0.25 s
		for i := range 8 {
			q, began := oneRequest(i*4, 2000, true), time.Now()
			wantAnswer(t, q, s.post(q.path, q.body))
			if took := time.Since(began); took > 2*time.Second {
				t.Errorf("answered after %v", took)
			}
		}
		for _, w := range []string{"p0", "p1", "d1"} {
			if n := s.metric(`tierway_attempts_total{result="error",tier="large",worker="` + w + `"}`); n != 0 {
				t.Errorf("%v attempts of %s count as failed", n, w)
			}
		}
		if n := s.metric(`tierway_attempts_total{result="error",tier="large",worker="d0"}`); n == 0 {
			t.Error("no attempt of d0 counts as failed")
		}
		s.wantClean()
	})
}
