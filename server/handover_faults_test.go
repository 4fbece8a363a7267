package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tierway/engines"
	"tierway/engines/chaos"
	"tierway/fixedseed"
)

func TestPD4FailedDecodesGetANewPrompt(t *testing.T) {
	n := fixedseed.Samples(24, 100)
	for _, handover := range []string{"nixl", "p2p_nccl", "sglang", "shared"} {
		for _, kind := range []chaos.Kind{chaos.Reset, chaos.Stale, chaos.Status} {
			synctest.Test(t, func(t *testing.T) {
				s := newStagesRig(t, handover, steadyKeys, nil)
				if err := s.decodes[0].faults.Set(chaos.Fault{Kind: kind, Status: 500}); err != nil {
					t.Fatal(err)
				}
				for i := range n {
					q := oneRequest(i, 50, i/4%2 == 0)
					wantAnswer(t, q, s.post(q.path, q.body))
				}
				var sent []byte
				for _, w := range s.decodes {
					for _, r := range w.Requests() {
						sent = append(sent, r.Body...)
					}
				}
				for _, object := range s.objects() {
					if got := strings.Count(string(sent), string(object[1:])); got > 1 {
						t.Errorf("the object %s was sent %d times", object, got)
					}
				}
				if all := s.sum(); all.reused != 0 || all.wrong != 0 || all.keys != 0 {
					t.Errorf("%s, %s: %+v", handover, kind, all)
				}
				if len(s.decodes[0].Requests()) == 0 {
					t.Errorf("%s, %s: the failing worker got no request", handover, kind)
				}
				time.Sleep(time.Minute)
				for _, p := range []string{"p0", "p1"} {
					if open := s.metric(`tierway_handover_open{tier="large",worker="` + p + `"}`); open != 0 {
						t.Errorf("%v hand-overs of %s are open", open, p)
					}
				}
			})
		}
	}
}

func TestPD4AnUnreachableDecodeWorkerCostsNoPrompt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, n := newStagesRig(t, "nixl", steadyKeys, nil, "p0", "p1", "d0", "x0"), 20
		for i := range n {
			q := oneRequest(i, 50, i/4%2 == 0)
			wantAnswer(t, q, s.post(q.path, q.body))
			time.Sleep(2 * time.Second) // the worker gets requests again
		}
		all := s.wantClean()
		if all.used != int64(n) || s.metric(`tierway_retries_total{tier="large"}`) < 5 {
			t.Errorf("%d objects were used, after %v retries", all.used, s.metric(`tierway_retries_total{tier="large"}`))
		}
		if prefills := len(s.prefills[0].Requests()) + len(s.prefills[1].Requests()); prefills != n {
			t.Errorf("%d prompts were computed for %d requests", prefills, n)
		}
	})
}

// wholeRequests are requests that one worker must serve, by the field that requires it.
var wholeRequests = map[string][]request{
	"n":                      {{"/v1/chat/completions", `{"model":"large","messages":[{"role":"user","content":"Hi"}],"n":3,"max_tokens":5}`}},
	"prompt":                 {{"/v1/completions", `{"model":"large","prompt":["one","two"],"max_tokens":5}`}},
	"prompt_logprobs":        {{"/v1/completions", `{"model":"large","prompt":"one","prompt_logprobs":1,"max_tokens":5}`}},
	"echo":                   {{"/v1/completions", `{"model":"large","prompt":"one","echo":true,"logprobs":1,"max_tokens":5}`}},
	"best_of":                {{"/v1/completions", `{"model":"large","prompt":"one","best_of":2,"max_tokens":5}`}},
	"truncate_prompt_tokens": {{"/v1/completions", `{"model":"large","prompt":"one","truncate_prompt_tokens":-1,"max_tokens":5}`}},
}

func TestPD6RequestsThatOneWorkerMustServeStayWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStagesRig(t, "nixl", "", nil)
		for field, list := range wholeRequests {
			for _, q := range list {
				a := s.post(q.path, q.body)
				var v struct{ Choices []json.RawMessage }
				want := map[string]int{"n": 3, "prompt": 2}[field]
				if a.status != http.StatusOK || json.Unmarshal([]byte(a.body), &v) != nil || len(v.Choices) != max(1, want) {
					t.Errorf("%s: %d %.300s", field, a.status, a.body)
				}
			}
		}
		a := s.post("/v1/embeddings", `{"model":"large","input":"one"}`)
		if a.status != http.StatusOK {
			t.Errorf("embeddings: %d %s", a.status, a.body)
		}
		s.wantClean()
		for _, p := range s.prefills {
			if len(p.Requests()) != 0 {
				t.Errorf("%s got %d requests", p.name, len(p.Requests()))
			}
		}
		if s.handovers("local") != float64(len(wholeRequests)) {
			t.Errorf("%v hand-overs are local", s.handovers("local"))
		}
	})
	for _, handover := range []string{"p2p_nccl", "sglang"} {
		for _, names := range [][]string{{"p0", "d0"}, {"p0", "d0", "b0"}} {
			synctest.Test(t, func(t *testing.T) {
				s := newStagesRig(t, handover, "", nil, names...)
				for field, list := range wholeRequests {
					for _, q := range list {
						a := s.post(q.path, q.body)
						if whole := len(names) == 3; whole && a.status != http.StatusOK ||
							!whole && (a.status != http.StatusBadRequest || !strings.Contains(a.body, `"param":"`+field+`"`)) {
							t.Errorf("%s, %s: %d %.300s", handover, field, a.status, a.body)
						}
					}
				}
				for _, w := range s.stages[:2] {
					if len(w.Requests()) != 0 {
						t.Errorf("%s: %s got %d requests", handover, w.name, len(w.Requests()))
					}
				}
			})
		}
	}
}

func TestPD7FieldsOfAHandoverAreNotAcceptedFromClients(t *testing.T) {
	const chat = `{"model":"large","messages":[{"role":"user","content":"Hi"}]`
	const id = "___prefill_addr_10.0.0.1:5600___decode_addr_10.0.0.2:5600_0123456789abcdef0123456789abcdef"
	for _, handover := range []string{"nixl", "p2p_nccl", "shared", "sglang"} {
		synctest.Test(t, func(t *testing.T) {
			s := newStagesRig(t, handover, "", nil)
			for _, c := range []struct{ field, path, body, header string }{
				{"kv_transfer_params", "/v1/chat/completions", chat + `,"kv_transfer_params":{"do_remote_prefill":true}}`, ""},
				{"kv_transfer_params", "/v1/messages", chat + `,"max_tokens":5,"kv_transfer_params":{}}`, ""},
				{"kv_transfer_params", "/v1/responses", `{"model":"large","input":"Hi","kv_transfer_params":{"a":1}}`, ""},
				{"kv_transfer_params", "/v1/embeddings", `{"model":"large","input":"Hi","kv_transfer_params":{"a":1}}`, ""},
				{"bootstrap_room", "/v1/chat/completions", chat + `,"bootstrap_room":7}`, ""},
				{"bootstrap_host", "/v1/completions", `{"model":"large","prompt":"Hi","bootstrap_host":"10.0.0.1"}`, ""},
				{"bootstrap_port", "/v1/chat/completions", chat + `,"bootstrap_port":8998}`, ""},
				{"prompt_token_ids", "/v1/chat/completions", chat + `,"prompt_token_ids":[1,2]}`, ""},
				{"request_id", "/v1/chat/completions", chat + `,"request_id":"` + id + `"}`, ""},
				{"X-Request-Id", "/v1/chat/completions", chat + `}`, id},
			} {
				a := s.post(c.path, c.body, "X-Request-Id", c.header)
				if a.status != http.StatusBadRequest || !strings.Contains(a.body, c.field) {
					t.Errorf("%s, %s: %d %s", handover, c.field, a.status, a.body)
				}
			}
			for _, w := range s.stages {
				if len(w.Requests()) != 0 {
					t.Errorf("%s: %s got %d requests", handover, w.name, len(w.Requests()))
				}
			}
		})
	}
}

// steadyKeys send requests to all workers in turn, and keep failing ones in rotation.
const steadyKeys = "breaker: { consecutive_failures: 1000 }\nretry: { budget: 1 }\npolicy: { name: round_robin }"

func TestPD8StagesOfSGLangMeetInRoomsOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, n, rooms := newStagesRig(t, "sglang", "", nil), fixedseed.Samples(60, 1000), map[string]int{}
		each(n, func(i int) {
			q := oneRequest(i, 50, i/4%2 == 0)
			wantAnswer(t, q, s.post(q.path, q.body))
		})
		for _, w := range s.stages {
			for _, r := range w.Requests() {
				var v map[string]json.RawMessage
				if err := json.Unmarshal(r.Body, &v); err != nil {
					t.Fatal(err)
				}
				rooms[string(v["bootstrap_room"])]++
				if string(v["bootstrap_port"]) != "8998" || string(v["bootstrap_host"]) != `"127.0.0.1"` {
					t.Errorf("the request has the host %s and the port %s", v["bootstrap_host"], v["bootstrap_port"])
				}
			}
		}
		for room, times := range rooms {
			if times != 2 || len(rooms) != n {
				t.Errorf("the room %s was sent %d times, of %d rooms", room, times, len(rooms))
			}
		}
		s.wantClean()
	})
}

func TestPD8ARefusedPrefillEndsTheDecodeStage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStagesRig(t, "sglang", steadyKeys, func(name string, c *engines.Config) {
			if name[0] == 'p' {
				c.Context = 100
			}
		})
		for i := range 8 {
			q, began := oneRequest(i, 500, i/4%2 == 0), time.Now()
			a := s.post(q.path, q.body)
			if a.status != http.StatusBadRequest ||
				!strings.Contains(a.body, "context") && !strings.Contains(a.body, "too long") {
				t.Errorf("a prompt that is too long for the prefill worker: %d %s", a.status, a.body)
			}
			synctest.Wait()
			if took := time.Since(began); took > 100*time.Millisecond || s.sum().open != 0 {
				t.Errorf("the decode worker still has its request after %v", took)
			}
		}
		s.wantClean()
	})
}

func TestPD8AFailedPrefillOfSGLangCostsNoAnswer(t *testing.T) {
	const broken = `{"error":{"message":"broken","type":"InternalServerError","param":null,"code":500}}`
	for _, kind := range []chaos.Kind{chaos.Reset, chaos.Close, chaos.Status, chaos.JSONError, chaos.ErrorFirst} {
		synctest.Test(t, func(t *testing.T) {
			s := newStagesRig(t, "sglang", steadyKeys, nil)
			if err := s.prefills[0].faults.Set(chaos.Fault{Kind: kind, Status: 500, Body: broken,
				Form: chaos.FormSGLang}); err != nil {
				t.Fatal(err)
			}
			for i := range 16 {
				q := oneRequest(i, 50, i/4%2 == 0)
				wantAnswer(t, q, s.post(q.path, q.body))
			}
			s.wantClean()
		})
	}
}

// TestPD8AFailedStageEndsTheOtherOne within 100 ms, however it fails, and the client gets one answer.
func TestPD8AFailedStageEndsTheOtherOne(t *testing.T) {
	const fails = 150 * time.Millisecond // the prefill takes 376 ms
	for _, fault := range []chaos.Fault{{Kind: chaos.Status, Status: 400}, {Kind: chaos.Status, Status: 500},
		{Kind: chaos.Reset}, {Kind: chaos.Close}} {
		for _, decode := range []bool{false, true} {
			for _, stream := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					s := newStagesRig(t, "sglang", "retry: { attempts: 1 }", nil, "p0", "d0")
					broken, other := s.stages[0], s.stages[1]
					if decode {
						broken, other = other, broken
					}
					broken.delay = fails
					if err := broken.faults.Set(fault); err != nil {
						t.Fatal(err)
					}
					q, began := oneRequest(0, 3000, stream), time.Now()
					a := s.post(q.path, q.body)
					synctest.Wait()
					want := http.StatusBadGateway
					if fault.Status == http.StatusBadRequest {
						want = http.StatusBadRequest
					}
					if took := time.Since(began); a.status != want || took > fails+100*time.Millisecond {
						t.Errorf("%s fails by %s %d, stream %v: %d after %v: %s", broken.name, fault.Kind, fault.Status, stream,
							a.status, took, a.body)
					}
					if took := other.ended.Sub(began); len(other.Requests()) != 1 || took < fails ||
						took > fails+100*time.Millisecond || s.sum().open != 0 {
						t.Errorf("%s fails by %s %d, stream %v: %s got %d requests and ended after %v", broken.name, fault.Kind,
							fault.Status, stream, other.name, len(other.Requests()), took)
					}
					s.wantClean()
				})
			}
		}
	}
}

func TestPD9EnginesOfP2PNCCLFindEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, n := newStagesRig(t, "p2p_nccl", "", nil), fixedseed.Samples(40, 100)
		each(n, func(i int) {
			q := oneRequest(i, 50, i/4%2 == 0)
			a := s.post(q.path, q.body)
			wantAnswer(t, q, a)
			if id := a.header.Get("X-Request-Id"); strings.Contains(id, "_addr_") {
				t.Errorf("the client received the request id %s", id)
			}
		})
		s.wantClean()
		prefills, decodes := map[string]bool{}, map[string]bool{}
		for _, w := range s.stages {
			for _, r := range w.Requests() {
				id := r.Header.Get("X-Request-Id")
				if w.name[0] == 'p' {
					prefills[id] = true
				} else {
					decodes[id] = true
				}
				if strings.Contains(string(r.Body), "kv_transfer_params") {
					t.Errorf("the request has parameters: %.300s", r.Body)
				}
			}
		}
		if len(prefills) != n || fmt.Sprint(prefills) != fmt.Sprint(decodes) {
			t.Errorf("%d ids of prefills, %d of decodes", len(prefills), len(decodes))
		}
	})
}

func TestPD11TheDecodeWorkerDoesNotTokenizeAgain(t *testing.T) {
	for _, stream := range []string{"", `,"stream":true,"stream_options":{"include_usage":true}`} {
		synctest.Test(t, func(t *testing.T) {
			s := newStagesRig(t, "nixl", "", nil, "p0", "d0")
			text, _ := json.Marshal(longText(1, 60_000))
			for _, q := range []request{
				{"/v1/chat/completions", `{"model":"large","messages":[{"role":"user","content":` + string(text) + `}],"max_tokens":5` + stream + `}`},
				{"/v1/completions", `{"model":"large","prompt":` + string(text) + `,"max_tokens":5` + stream + `}`},
			} {
				before := int64(0)
				for i := range 3 {
					wantAnswer(t, q, s.post(q.path, q.body))
					a := s.post(q.path, q.body)
					wantAnswer(t, q, a)
					st := s.prefills[0].Stats()
					cached := (st.Written.Cached - before) / 2
					before = st.Written.Cached
					if i > 0 && !strings.Contains(a.body, fmt.Sprintf(`"cached_tokens":%d`, cached)) {
						t.Errorf("the client's usage does not have the prefill's %d cached tokens: …%.300s", cached,
							a.body[max(0, len(a.body)-300):])
					}
				}
			}
			if n := s.decodes[0].Stats().Tokenized; n != 0 {
				t.Errorf("the decode worker tokenized %d prompts", n)
			}
			s.wantClean()
		})
	}
}

// TestPD2PromptsOfLeftClientsGoToADecodeWorkerThatTakesThem: half of the clients have left when their decode worker
// accepts no connection. Requests without a further attempt leave no prompt behind either.
func TestPD2PromptsOfLeftClientsGoToADecodeWorkerThatTakesThem(t *testing.T) {
	for _, keys := range []string{steadyKeys, "retry: { attempts: 1 }\npolicy: { name: round_robin }"} {
		synctest.Test(t, func(t *testing.T) {
			s, n := newStagesRig(t, "nixl", keys, nil, "p0", "p1", "d0", "x0"), 20
			failed := 0
			for i := range n {
				q := oneRequest(i, 2000, i/4%2 == 0) // computed for 0.2 s
				if i%2 == 0 {
					s.leaveAfter(q, 100*time.Millisecond)
				} else if a := s.post(q.path, q.body); a.status != http.StatusOK {
					failed++
					if a.header.Get("X-Should-Retry") == "false" {
						t.Errorf("a request of one attempt must not be repeated: %d %s", a.status, a.body)
					}
				}
				time.Sleep(2 * time.Second) // the worker gets requests again
			}
			if all := s.wantClean(); all.used != int64(n) {
				t.Errorf("%d objects were used", all.used)
			}
			if once := keys != steadyKeys; (failed > 0) != once {
				t.Errorf("%d requests failed", failed)
			}
			for _, d := range s.decodes {
				if got := s.metric(`tierway_worker_inflight{tier="large",worker="` + d.name + `"}`); got != 0 {
					t.Errorf("%s has %v requests in flight", d.name, got)
				}
			}
			if s.handovers("abandoned") < float64(n/2) {
				t.Errorf("%v hand-overs are abandoned", s.handovers("abandoned"))
			}
		})
	}
}
