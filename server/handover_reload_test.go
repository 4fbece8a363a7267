package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// edited returns the configuration without the entry of a worker, or with its entry changed.
func (s *stagesRig) edited(worker, old, replacement string) string {
	from := strings.Index(s.text, "{ name: "+worker)
	to := from + strings.IndexByte(s.text[from:], '}') + 1
	entry := s.text[from:to]
	if old != "" {
		return s.text[:from] + strings.Replace(entry, old, replacement, 1) + s.text[to:]
	}
	return strings.Replace(strings.Replace(s.text, entry+", ", "", 1), ", "+entry, "", 1)
}

// wantNothingOpen verifies that no prompt and no request is left in the gateway after all leases have ended.
func (s *stagesRig) wantNothingOpen() {
	s.t.Helper()
	s.wantClean()
	for line := range strings.SplitSeq(s.scrape(), "\n") {
		for _, name := range []string{"tierway_handover_open", "tierway_worker_inflight", "tierway_worker_pending_tokens"} {
			if strings.HasPrefix(line, name+"{") && !strings.HasSuffix(line, " 0") {
				s.t.Error(line)
			}
		}
	}
}

// TestReloadBetweenTheStagesLosesNothing: requests in each stage keep their workers, and requests and follow-ups of
// stored responses are served afterwards.
func TestReloadBetweenTheStagesLosesNothing(t *testing.T) {
	for name, change := range map[string]func(*stagesRig) string{
		"a decode worker serves both stages": func(s *stagesRig) string { return s.edited("d0", "role: decode", "role: both") },
		"a prefill worker serves both":       func(s *stagesRig) string { return s.edited("p0", "role: prefill", "role: both") },
		"a prefill worker generates answers": func(s *stagesRig) string { return s.edited("p0", "role: prefill", "role: decode") },
		"a decode worker computes prompts":   func(s *stagesRig) string { return s.edited("d1", "role: decode", "role: prefill") },
		"a prefill worker is removed":        func(s *stagesRig) string { return s.edited("p0", "", "") },
		"a decode worker is removed":         func(s *stagesRig) string { return s.edited("d1", "", "") },
		"through a shared store": func(s *stagesRig) string {
			return strings.Replace(s.text, "handover: nixl", "handover: shared", 1)
		},
		"without hand-overs": func(s *stagesRig) string {
			return strings.NewReplacer("handover: nixl", "", "uncached_threshold: 1", "", ", role: prefill", "",
				", role: decode", "").Replace(s.text)
		},
		"the policies are exchanged": func(s *stagesRig) string {
			return strings.Replace(strings.Replace(s.text, "policy: { name: round_robin }", "", 1), "handover: nixl",
				"handover: nixl\n    policy: { name: random }\n    prefill_policy: { name: least_load }", 1)
		},
	} {
		for _, at := range []time.Duration{200 * time.Millisecond, 500 * time.Millisecond} { // in each stage
			t.Run(fmt.Sprint(name, " after ", at), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newStagesRig(t, "nixl", "policy: { name: round_robin }", nil)
					from := &editableFile{}
					s.source = from.read
					s.runControl()
					stored := s.store(0)
					var group sync.WaitGroup
					for i := range 4 {
						q := oneRequest(i, 3000, i%2 == 0)
						group.Go(func() { wantAnswer(t, q, s.post(q.path, q.body)) })
					}
					time.Sleep(at) // a worker computes two prompts of 376 ms each
					from.write(change(s))
					s.reload()
					for i := range 4 {
						q := oneRequest(4+i, 1000, i%2 == 0)
						group.Go(func() {
							a := s.post(q.path, q.body) // a plain tier leaves the engine's null
							a.body = strings.Replace(a.body, `"kv_transfer_params":null,`, "", 1)
							wantAnswer(t, q, a)
						})
					}
					group.Wait()
					if name != "a decode worker is removed" && name != "a decode worker computes prompts" {
						s.followUp(stored)
					}
					s.followUp(s.store(1))
					s.wantNothingOpen()
				})
			})
		}
	}
}

// store returns the id of a stored response, whose prompt a prefill worker may have computed.
func (s *stagesRig) store(number int) string {
	s.t.Helper()
	a := s.post("/v1/responses", fmt.Sprintf(`{"model":"large","input":%q,"store":true,"max_output_tokens":8}`,
		longText(100+number, 300)))
	var v struct{ ID string }
	if json.Unmarshal([]byte(a.body), &v) != nil || v.ID == "" {
		s.t.Fatalf("a response to store: %d %.300s", a.status, a.body)
	}
	return v.ID
}

// followUp continues a stored response.
func (s *stagesRig) followUp(id string) {
	s.t.Helper()
	a := s.post("/v1/responses", fmt.Sprintf(`{"model":"large","input":"more","previous_response_id":%q}`, id))
	if a.status != http.StatusOK {
		s.t.Errorf("a follow-up: %d %.300s", a.status, a.body)
	}
}

// TestDrainOfAWorkerKeepsItsStage: requests in both stages end as they began, and further ones use the other workers.
func TestDrainOfAWorkerKeepsItsStage(t *testing.T) {
	for _, handover := range []string{"nixl", "p2p_nccl", "shared", "sglang"} {
		synctest.Test(t, func(t *testing.T) {
			r := newStagesAdminRig(t, handover)
			s := r.stagesRig
			r.adminRig.runControl()
			first := oneRequest(0, 3000, true)
			var group sync.WaitGroup
			group.Go(func() { wantAnswer(t, first, s.post(first.path, first.body)) })
			time.Sleep(200 * time.Millisecond) // the prefill takes 376 ms
			for _, w := range s.stages {
				if s.metric(`tierway_worker_inflight{tier="large",worker="`+w.name+`"}`) > 0 {
					r.ops(http.StatusAccepted, http.MethodPost, "/admin/workers/"+w.name+"/drain", `{}`)
				}
			}
			for i := range 3 {
				q := oneRequest(4+i, 100, true)
				wantAnswer(t, q, s.post(q.path, q.body))
			}
			group.Wait()
			synctest.Wait()
			var drained, served []string
			for _, w := range s.stages {
				switch n := len(w.Requests()); {
				case r.adminRig.worker(w.name).State == "drained":
					drained = append(drained, w.name)
					if n != 1 {
						t.Errorf("%s: the drained worker %s got %d requests", handover, w.name, n)
					}
				case n == 3:
					served = append(served, w.name)
				}
			}
			if len(drained) != 2 || len(served) != 2 {
				t.Errorf("%s: drained: %q, served: %q", handover, drained, served)
			}
			s.wantNothingOpen()
		})
	}
}
