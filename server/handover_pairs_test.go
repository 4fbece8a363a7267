package server

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tierway/engines/chaos"
)

// roomOf returns the room of a request to an engine of SGLang, which can be read again.
func roomOf(r *http.Request) string {
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	var v struct {
		Room json.RawMessage `json:"bootstrap_room"`
	}
	_ = json.Unmarshal(body, &v)
	return string(v.Room)
}

// breakTransfers lets the engines of SGLang that decode fail all requests whose prompt the prefill worker computes.
func (s *stagesRig) breakTransfers(prefill *stage) {
	var rooms sync.Map
	prefill.instead = func(_ http.ResponseWriter, r *http.Request) bool {
		rooms.Store(roomOf(r), true)
		return false
	}
	for _, d := range s.decodes {
		d.instead = func(out http.ResponseWriter, r *http.Request) bool {
			room := roomOf(r)
			time.Sleep(10 * time.Millisecond)
			if _, broken := rooms.Load(room); !broken {
				return false
			}
			http.Error(out, `{"object":"error","message":"KVTransferError","type":"InternalServerError","code":500}`, 500)
			return true
		}
	}
}

// attempts returns the attempts of a worker with a result.
func (s *stagesRig) attempts(worker, result string) float64 {
	return s.metric(`tierway_attempts_total{result="` + result + `",tier="large",worker="` + worker + `"}`)
}

// pairKeys let the breakers have their usual limits.
const pairKeys = "retry: { budget: 1 }\npolicy: { name: round_robin }"

// TestAPrefillWorkerWithoutTransfersIsBlamed: each decode engine answers 500 to its prompts. The requests are served
// by the other prefill worker, and no decode worker is at fault.
func TestAPrefillWorkerWithoutTransfersIsBlamed(t *testing.T) {
	for _, names := range [][]string{{"p0", "p1", "d0", "d1"}, {"p0", "p1", "d0"}, {"p0", "p1", "p2", "d0", "d1", "d2"}} {
		for _, atOnce := range []int{1, 4} {
			synctest.Test(t, func(t *testing.T) {
				s := newStagesRig(t, "sglang", pairKeys, nil, names...)
				s.breakTransfers(s.prefills[0])
				for i := range 40 / atOnce {
					var group sync.WaitGroup
					for n := range atOnce {
						q := oneRequest((i*atOnce+n)*4, 50, i%2 == 0)
						group.Go(func() { wantAnswer(t, q, s.post(q.path, q.body)) })
					}
					group.Wait()
				}
				for _, w := range s.stages {
					if n := s.attempts(w.name, "error"); w.name != "p0" && n > 0 {
						t.Errorf("%v, %d at once: %v attempts on %s are failures of it", names, atOnce, n, w.name)
					}
				}
				failed, unproven := s.attempts("p0", "error"), s.attempts("p0", "excluded")
				if failed < 5 || failed > 10 || unproven > 4 {
					t.Errorf("%v, %d at once: %v attempts on p0 are failures of it, %v of nobody", names, atOnce, failed, unproven)
				}
				s.wantClean()
			})
		}
	}
}

// TestADecodeWorkerOfSGLangThatFailsEachPromptIsBlamed, and its partners are not.
func TestADecodeWorkerOfSGLangThatFailsEachPromptIsBlamed(t *testing.T) {
	for _, names := range [][]string{{"p0", "p1", "d0", "d1"}, {"p0", "d0", "d1"}} {
		synctest.Test(t, func(t *testing.T) {
			s := newStagesRig(t, "sglang", pairKeys, nil, names...)
			if err := s.decodes[0].faults.Set(chaos.Fault{Kind: chaos.Status, Status: 500}); err != nil {
				t.Fatal(err)
			}
			for i := range 40 {
				q := oneRequest(i*4, 50, i%2 == 0)
				wantAnswer(t, q, s.post(q.path, q.body))
			}
			for _, w := range s.stages {
				if n := s.attempts(w.name, "error"); w.name != "d0" && n > 1 {
					t.Errorf("%v: %v attempts on %s are failures of it", names, n, w.name)
				}
			}
			failed, unproven := s.attempts("d0", "error"), s.attempts("d0", "excluded")
			if failed < 5 || failed > 10 || unproven > 4 {
				t.Errorf("%v: %v attempts on d0 are failures of it, %v of nobody", names, failed, unproven)
			}
			s.wantClean()
		})
	}
}

// TestAnEarlyAnswerWaitsForItsPrefill: a decode engine of SGLang answers without the prompt. The client receives the
// answer only if the prefill stage succeeds, however much later.
func TestAnEarlyAnswerWaitsForItsPrefill(t *testing.T) {
	const garbage = "Number 999. other words"
	for _, late := range []time.Duration{300 * time.Millisecond, 4 * time.Second} {
		for _, status := range []int{200, 400, 500} {
			for number := range 8 {
				synctest.Test(t, func(t *testing.T) {
					s, stream := newStagesRig(t, "sglang", "retry: { attempts: 1 }", nil, "p0", "d0"), number > 3
					q := oneRequest(number, 5, stream)
					early := reference(q.path, strings.NewReplacer(`"model":"large"`, `"model":"fake-7b"`,
						"Number", garbage).Replace(q.body))
					s.decodes[0].instead = func(out http.ResponseWriter, _ *http.Request) bool {
						if stream {
							out.Header().Set("Content-Type", "text/event-stream")
						} else {
							out.Header().Set("Content-Type", "application/json")
						}
						_, _ = io.WriteString(out, early)
						return true
					}
					left := false
					s.prefills[0].instead = func(out http.ResponseWriter, r *http.Request) bool {
						_ = roomOf(r)
						select {
						case <-r.Context().Done():
							left = true
						case <-time.After(late):
						}
						if status == 200 {
							out.Header().Set("Content-Type", "application/json")
							_, _ = io.WriteString(out, reference(q.path, strings.NewReplacer(`"model":"large"`, `"model":"fake-7b"`,
								`,"stream":true`, "").Replace(q.body)))
						} else {
							out.WriteHeader(status)
							_, _ = io.WriteString(out, `{"object":"error","message":"not today","type":"BadRequest","code":400}`)
						}
						return true
					}
					began := time.Now()
					a := s.post(q.path, q.body)
					want := map[int]int{200: 200, 400: 400, 500: http.StatusBadGateway}[status]
					if took := time.Since(began); a.status != want || took < late || took > late+time.Second || left {
						t.Errorf("%s, stream %v: the prefill worker answers %d after %v; the client got %d after %v, left %v: %s", q.path,
							stream, status, late, a.status, took, left, a.body)
					}
					if got := generated(a.body); (got == generated(early)) != (status == 200) {
						t.Errorf("%s, stream %v: the prefill worker answers %d; the client got %q", q.path, stream, status, got)
					}
					synctest.Wait()
					result := map[int]string{200: "remote", 400: "refused", 500: "failed"}[status]
					if s.handovers(result) != 1 {
						t.Errorf("%s, stream %v: the prefill worker answers %d: not counted as %s", q.path, stream, status, result)
					}
				})
			}
		}
	}
}

// TestACutEarlyAnswerReachesNoClient: a decode engine of SGLang breaks off after content, without the prompt.
// Another one answers, and the prefill worker is not at fault.
func TestACutEarlyAnswerReachesNoClient(t *testing.T) {
	for number := range 4 {
		synctest.Test(t, func(t *testing.T) {
			s := newStagesRig(t, "sglang", pairKeys, nil, "p0", "d0", "d1")
			for i := range 4 {
				q := oneRequest(i*4+number, 500, true)
				early := reference(q.path, strings.NewReplacer(`"model":"large"`, `"model":"fake-7b"`, "Number",
					"Garbage").Replace(q.body))
				s.decodes[0].instead = func(out http.ResponseWriter, _ *http.Request) bool {
					out.Header().Set("Content-Type", "text/event-stream")
					time.Sleep(10 * time.Millisecond) // the prefill stream may be open
					_, _ = io.WriteString(out, early[:len(early)/2])
					return true
				}
				wantAnswer(t, q, s.post(q.path, q.body))
			}
			if n := s.attempts("p0", "error"); n > 0 {
				t.Errorf("%v attempts of p0 count as failed", n)
			}
			s.wantClean()
		})
	}
}
