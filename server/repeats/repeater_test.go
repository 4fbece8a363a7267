package repeats

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"tierway/pairing"
	"tierway/routing"
	"tierway/server/control"
	"tierway/server/learning"
)

// byModel is a judge that the rig answers.
const byModel = "model: l"

// repeated is the body of a repeated sample.
const repeated = `/v1/chat/completions {"messages":[{"role":"user","content":"secret"}],"model":"auto","temperature":0.5}`

func TestSampleGivesOneLabelForEachTier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, byModel)
		r.add("r1")
		sent, labels := r.pass(checkEvery)
		if len(sent) != 3 || sent[0] != "small "+repeated || sent[1] != "large "+repeated ||
			!strings.HasPrefix(sent[2], "judge /v1/chat/completions ") || !strings.Contains(sent[2], "small's answer") {
			t.Errorf("sent %q", sent)
		}
		if diff := cmp.Diff([]string{"r1 acme small true", "r1 acme large false"}, labels); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		if got := r.outcomes(); got != "labelled 1" || r.logs.Len() > 0 {
			t.Errorf("%s; %s", got, r.logs.String())
		}
	})
}

func TestJudgeThatIsAModelSeesTheAnswersInRandomOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, byModel)
		r.Rand = func() uint64 { return 1 }
		r.add("r1")
		if _, labels := r.pass(checkEvery); len(labels) != 2 || labels[0] != "r1 acme small false" ||
			labels[1] != "r1 acme large true" {
			t.Errorf("%q", labels)
		}
	})
}

func TestSamplesAreRepeatedOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, byModel)
		active := 0
		r.setAnswer(func(req *http.Request, _ string) pairing.Answer {
			if active++; active > 1 {
				t.Error("two requests at a time")
			}
			time.Sleep(time.Second)
			active--
			if tier := req.Header.Get("X-Model-Tier"); tier != "" {
				return answered(tier, "x")
			}
			return answered("large", `{"A": true, "B": true}`)
		})
		for _, id := range []string{"r1", "r2", "r3"} {
			r.add(id)
		}
		_, labels := r.pass(checkEvery + 9*time.Second)
		if len(labels) != 6 || labels[0][:2] != "r1" || labels[5][:2] != "r3" {
			t.Errorf("%q", labels)
		}
	})
}

// TestSamplesWaitUntilBothTiersHaveRoom: half of the slots of one tier are in use, and then one is released.
func TestSamplesWaitUntilBothTiersHaveRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tier := range []string{"small", "large"} {
			r := newRig(t, byModel)
			pool := r.control.Snapshot().ByName[tier].Routing
			var leases [2]routing.Lease
			for i := range leases {
				var err error
				if leases[i], err = pool.Acquire(&routing.Request{Now: time.Now()}); err != nil {
					t.Fatal(err)
				}
			}
			r.add("r1")
			if sent, _ := r.pass(10 * checkEvery); len(sent) != 0 {
				t.Errorf("%s is busy, but sent %q", tier, sent)
			}
			leases[0].Release(routing.Result{})
			if _, labels := r.pass(checkEvery); len(labels) != 2 {
				t.Errorf("%s has room, and the labels are %q", tier, labels)
			}
			leases[1].Release(routing.Result{})
		}
	})
}

func TestSamplesExpireAfterAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, byModel)
		pool := r.control.Snapshot().ByName["small"].Routing
		var leases [4]routing.Lease
		for i := range leases {
			leases[i], _ = pool.Acquire(&routing.Request{Now: time.Now()})
		}
		r.add("r1")
		r.pass(pairing.MaxAge)
		if got := r.outcomes(); got != "" {
			t.Error(got)
		}
		r.pass(checkEvery)
		if got := r.outcomes(); got != "expired 1" {
			t.Error(got)
		}
		for i := range leases {
			leases[i].Release(routing.Result{})
		}
	})
}

// TestSampleIsNotSentAfterAnHour: neither the one in progress nor the next one.
func TestSampleIsNotSentAfterAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, byModel)
		pool := r.control.Snapshot().ByName["small"].Routing
		var leases [2]routing.Lease
		for i := range leases {
			leases[i], _ = pool.Acquire(&routing.Request{Now: time.Now()})
		}
		answer := r.answer
		r.setAnswer(func(req *http.Request, body string) pairing.Answer {
			time.Sleep(50 * time.Second)
			return answer(req, body)
		})
		for _, id := range []string{"r1", "r2"} {
			r.add(id)
		}
		r.pass(pairing.MaxAge - time.Minute)
		for i := range leases {
			leases[i].Release(routing.Result{})
		}
		sent, labels := r.pass(10 * time.Minute)
		if len(sent) != 2 || len(labels) != 0 || r.outcomes() != "expired 2" {
			t.Errorf("%d requests, labels %q, %s", len(sent), labels, r.outcomes())
		}
	})
}

// TestSampleWithoutBothAnswersHasNoLabel: the outcome is counted, and the log has the cause without a text.
func TestSampleWithoutBothAnswersHasNoLabel(t *testing.T) {
	of := func(which string, a pairing.Answer) func(*http.Request, string) pairing.Answer {
		return func(req *http.Request, _ string) pairing.Answer {
			switch tier := req.Header.Get("X-Model-Tier"); tier {
			case which:
				return a
			case "":
				return answered("large", `{"A": true, "B": true}`)
			default:
				return answered(tier, "x")
			}
		}
	}
	for name, c := range map[string]struct {
		answer   func(*http.Request, string) pairing.Answer
		requests int
		outcome  string
		cause    string
	}{
		"refused":         {of("small", pairing.Answer{Result: pairing.Refused, Status: 429, Code: "rate_limit_exceeded"}), 1, "refused 1", "small refuses the request: status 429, code rate_limit_exceeded"},
		"failed":          {of("large", pairing.Answer{Result: pairing.Failed, Status: 502, Code: "worker_failed"}), 2, "failed 1", "large fails: status 502, code worker_failed"},
		"no text":         {of("large", pairing.Answer{Tier: "large", Body: []byte(`{"secret":"text"}`)}), 2, "failed 1", "the answer of large has no text"},
		"another tier":    {of("small", answered("large", "x")), 1, "refused 1", "small does not answer, and large does"},
		"no verdict":      {of("", answered("large", "The secret is A.")), 3, "judge_failed 1", "the output is not a JSON object"},
		"no answer":       {of("", pairing.Answer{Result: pairing.Failed, Status: 503, Code: "queue_full"}), 3, "judge_failed 1", "judge.model does not answer: status 503, code queue_full"},
		"a silent judge":  {of("", pairing.Answer{Body: []byte("{}")}), 3, "judge_failed 1", "the answer of judge.model has no text"},
		"half of a grade": {of("", answered("large", `{"A": true}`)), 3, "judge_failed 1", "the output is not a JSON object"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, byModel)
				r.setAnswer(c.answer)
				r.add("r1")
				sent, labels := r.pass(checkEvery)
				if len(sent) != c.requests || len(labels) != 0 || r.outcomes() != c.outcome {
					t.Errorf("%d requests, labels %q, %s", len(sent), labels, r.outcomes())
				}
				logs := r.logs.String()
				if !strings.Contains(logs, c.cause) || strings.Contains(logs, "secret") || strings.Contains(logs, "the-key") {
					t.Errorf("the log is %s", logs)
				}
			})
		})
	}
}

// TestFailingJudgeIsLoggedOnceAMinute: the next sample waits for the next check.
func TestFailingJudgeIsLoggedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, byModel)
		r.setAnswer(func(req *http.Request, _ string) pairing.Answer {
			return answered(req.Header.Get("X-Model-Tier"), "no verdict")
		})
		for range 32 {
			r.add("r1")
		}
		if sent, _ := r.pass(checkEvery); len(sent) != 3 {
			t.Errorf("%d requests", len(sent))
		}
		r.pass(31 * checkEvery)
		if n := strings.Count(r.logs.String(), "level=WARN"); n != 2 || r.outcomes() != "judge_failed 32" {
			t.Errorf("%d warnings of %s", n, r.outcomes())
		}
	})
}

// TestReloadThatEndsTheRepetitionDropsAllSamples: those that wait at once, and the one in progress before its next
// request. No prompt is sent to a tier that its tenant may not use, or may not have used when it was sampled.
func TestReloadThatEndsTheRepetitionDropsAllSamples(t *testing.T) {
	for name, change := range map[string][2]string{
		"off":                 {"share: 0.1", "share: 0"},
		"the tenant has gone": {"name: acme", "name: other"},
		"the key has gone":    {"5b9b7eed", "5b9b7eee"},
		"the tenant wants it": {"name: acme,", "name: acme, isolate_cache: true,"},
		"rights of the first": {"name: acme,", "name: acme, tiers: [large],"},
		"rights of the last":  {"name: acme,", "name: acme, tiers: [small],"},
		"another last tier": {"learning:",
			`  - { name: huge, model: h, workers: [ { name: w2, url: "http://127.0.0.1:11", max_inflight: 4 } ] }` + "\nlearning:"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, byModel)
				r.setAnswer(func(req *http.Request, _ string) pairing.Answer {
					time.Sleep(10 * time.Second)
					return answered(req.Header.Get("X-Model-Tier"), "x")
				})
				r.add("r1")
				r.add("r2")
				if sent, _ := r.pass(checkEvery + time.Second); len(sent) != 1 {
					t.Fatalf("sent %q", sent)
				}
				r.text = strings.Replace(r.text, change[0], change[1], 1)
				if _, err := r.control.Reload(t.Context(), control.ReloadRequest{}); err != nil {
					t.Fatal(err)
				}
				if n, bytes := r.Samples.Len(); n+bytes != 0 {
					t.Errorf("%d samples with %d bytes wait", n, bytes)
				}
				sent, labels := r.pass(time.Minute)
				if len(sent)+len(labels) != 0 || r.outcomes() != "dropped 2" {
					t.Errorf("sent %q, labels %q, %s", sent, labels, r.outcomes())
				}
			})
		})
	}
}

// TestStopEndsTheRequestInFlight: Run returns, and no sample is left.
func TestStopEndsTheRequestInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, byModel)
		r.setAnswer(func(req *http.Request, _ string) pairing.Answer {
			<-req.Context().Done()
			return pairing.Answer{Result: pairing.Failed}
		})
		for range 3 {
			r.add("r1")
		}
		r.pass(checkEvery) // the rest is in the rig's clean-up
	})
}

func TestRequestsEndAfterTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, byModel)
		r.setAnswer(func(req *http.Request, _ string) pairing.Answer {
			<-req.Context().Done()
			if !errors.Is(req.Context().Err(), context.DeadlineExceeded) {
				t.Error(req.Context().Err())
			}
			return pairing.Answer{Result: pairing.Failed}
		})
		r.add("r1")
		r.pass(checkEvery + time.Minute)
		if got := r.outcomes(); got != "failed 1" {
			t.Error(got)
		}
	})
}

func TestLabelThatCannotBeWrittenIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, byModel)
		r.Labels = full{}
		r.add("r1")
		if r.pass(checkEvery); r.outcomes() != "dropped 1" || !strings.Contains(r.logs.String(), learning.ErrFull.Error()) {
			t.Errorf("%s; %s", r.outcomes(), r.logs.String())
		}
	})
}

// full takes no labels.
type full struct{}

func (full) AddLabels(...learning.Label) error { return learning.ErrFull }
