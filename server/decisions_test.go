package server

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"tierway/decisions"
	"tierway/routing"
)

// record is a small record.
func record(id string) *decisions.Decision { return &decisions.Decision{RequestID: id} }

// ids are the records' request ids.
func ids(found []numbered) (out []string) {
	for _, n := range found {
		out = append(out, n.d.RequestID)
	}
	return out
}

// everything matches every record.
func everything(*decisions.Decision) bool { return true }

// TestTheRingKeepsTheLastRecords: whatever comes and however its size changes, it
// has the last ones, numbered one after the other.
func TestTheRingKeepsTheLastRecords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keep := rapid.IntRange(0, 20).Draw(t, "keep")
		l := newDecisions(keep)
		var model []numbered
		next := l.span().next
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				d := record(fmt.Sprint("r", rapid.IntRange(0, 30).Draw(t, "id")))
				l.add(d)
				if keep > 0 {
					model = append(model, numbered{next, d})
					next++
				}
			},
			"addMany": func(t *rapid.T) {
				for range rapid.IntRange(0, 300).Draw(t, "many") {
					l.add(record("m"))
					if keep > 0 {
						model = append(model, numbered{next, record("m")})
						next++
					}
				}
			},
			"resize": func(t *rapid.T) {
				keep = rapid.SampledFrom([]int{0, 1, 2, 7, 20, 400}).Draw(t, "keep")
				l.resize(keep)
			},
			"": func(t *rapid.T) {
				model = model[max(0, len(model)-keep):]
				var bytes int64
				for _, n := range model {
					bytes += bytesOf(n.d)
				}
				want := span{first: l.first, oldest: next - int64(len(model)), next: next, keep: keep, bytes: bytes}
				if got := l.span(); got != want {
					t.Fatalf("it holds %+v, want %+v", got, want)
				}
				checkPages(t, l, model)
			},
		})
	})
}

// checkPages fails unless pages of the log, one after the other, are the model
// backwards.
func checkPages(t *rapid.T, l *decisionLog, model []numbered) {
	limit := rapid.IntRange(1, 250).Draw(t, "limit")
	before, seen := int64(maxSeq), []numbered{}
	for more := true; more; {
		var page []numbered
		page, more = l.page(before, limit, everything)
		if len(page) > limit || more != (len(model)-len(seen) > limit) {
			t.Fatalf("a page of %d has %d of %d, more: %v", limit, len(page), len(model)-len(seen), more)
		}
		seen = append(seen, page...)
		if more {
			before = page[len(page)-1].seq
		}
	}
	slices.Reverse(seen)
	if !slices.EqualFunc(seen, model, func(a, b numbered) bool { return a.seq == b.seq && a.d.RequestID == b.d.RequestID }) {
		t.Fatalf("the pages have %v, want %v", ids(seen), ids(model))
	}
	last := l.last(limit)
	if want := model[max(0, len(model)-limit):]; !slices.EqualFunc(last, want, func(d *decisions.Decision, n numbered) bool { return d.RequestID == n.d.RequestID }) {
		t.Fatalf("the last %d are not %v", limit, ids(want))
	}
	for _, n := range model {
		if got, known := l.get(n.d.RequestID); !known || got.seq < n.seq || got.d.RequestID != n.d.RequestID {
			t.Fatalf("%s is found as %+v", n.d.RequestID, got)
		}
	}
	if _, known := l.get("nobody"); known {
		t.Fatal("nobody is found")
	}
}

// TestTheRingsMemoryIsBounded: large records push out more than one old one.
func TestTheRingsMemoryIsBounded(t *testing.T) {
	l := newDecisions(1000)
	most := strings.Repeat("x", maxDecisionBytes)
	large := func() *decisions.Decision { return &decisions.Decision{Cause: most[:10<<20]} }
	for i := range 100 {
		l.add(large())
		if has := l.span(); has.bytes > maxDecisionBytes || has.next-has.oldest != int64(min(i+1, 25)) {
			t.Fatalf("after %d of 10 MiB: %+v", i+1, has)
		}
	}
	l.add(&decisions.Decision{Cause: most}) // is kept alone
	if has := l.span(); has.next-has.oldest != 1 {
		t.Errorf("it holds %+v", has)
	}
	l.add(record("small"))
	if has := l.span(); has.next-has.oldest != 1 || has.bytes != bytesOf(record("small")) {
		t.Errorf("it holds %+v", has)
	}
}

// TestARecordsSizeIsAboutWhatItTakes: one with 32 candidates and a long prompt's
// blocks is some 8 KB.
func TestARecordsSizeIsAboutWhatItTakes(t *testing.T) {
	d := &decisions.Decision{Attempts: []decisions.Attempt{{Choice: &routing.Choice{Candidates: make([]routing.Candidate, 32)}}}}
	d.Features.Chain = make([]routing.Link, 81)
	if n := bytesOf(d); n < 7000 || n > 9500 {
		t.Errorf("it is said to take %d bytes", n)
	}
	if n := bytesOf(record("")); n < 500 || n > 1500 {
		t.Errorf("an empty one is said to take %d bytes", n)
	}
}

// TestTheRingIsReadWhileItIsWritten: readers see each record once, in order, and
// those who write never wait for one who looks.
func TestTheRingIsReadWhileItIsWritten(t *testing.T) {
	l := newDecisions(500)
	first := l.span().first
	var writers, readers sync.WaitGroup
	done := make(chan struct{})
	for range 4 {
		writers.Go(func() {
			for range 5000 {
				l.add(record("r"))
			}
		})
		readers.Go(func() {
			for {
				var before int64 = maxSeq
				l.newest(before, func(n numbered) bool {
					if n.seq >= before || n.d == nil {
						t.Errorf("%d comes after %d", n.seq, before)
						return false
					}
					before = n.seq
					return true
				})
				select {
				case <-done:
					return
				default:
					l.resize(400 + int(before%200))
				}
			}
		})
	}
	writers.Wait()
	close(done)
	readers.Wait()
	if has := l.span(); has.next-first != 20_000 {
		t.Errorf("%d of 20,000 were numbered", has.next-first)
	}
}

// drawnDecision is a record of few names, so that filters often let it through.
func drawnDecision(t *rapid.T) *decisions.Decision {
	name := func(of ...string) string { return rapid.SampledFrom(append(of, "")).Draw(t, "name") }
	d := &decisions.Decision{RequestID: name("r1", "r2"), Tenant: name("acme", "Other"), Key: name("k1"), Tier: name("small", "large"), Model: name("m1", "m2"),
		RequestedModel: name("m1", "m3"), Rule: name("alias", "header"), Class: name("batch", "interactive"), Code: name("overloaded", "invalid_json"),
		Result: decisions.Result(name("ok", "failed")), Worker: name("w1", "w2"), Reason: name("random", "prefix_home"),
		Status: rapid.SampledFrom([]int{200, 503}).Draw(t, "status"), DurationMs: float64(rapid.IntRange(0, 3).Draw(t, "ms")),
		Time: time.Unix(int64(rapid.IntRange(0, 3).Draw(t, "time")), 0)}
	for range rapid.IntRange(0, 2).Draw(t, "attempts") {
		d.Attempts = append(d.Attempts, decisions.Attempt{Worker: name("w1", "w2", "w3"), Reason: name("random", "prefix_home")})
	}
	return d
}

// TestAFilterLetsThroughWhatMatchesAllOfIt: each condition alone decides as a plain
// comparison does, and a filter is all its conditions.
func TestAFilterLetsThroughWhatMatchesAllOfIt(t *testing.T) {
	in := func(s string, all ...string) bool { return slices.Contains(all, s) }
	conditions := []struct {
		set  func(f *DecisionFilter)
		want func(d *decisions.Decision) bool
	}{
		{func(f *DecisionFilter) { f.Since = time.Unix(1, 0) }, func(d *decisions.Decision) bool { return d.Time.Unix() >= 1 }},
		{func(f *DecisionFilter) { f.Until = time.Unix(2, 0) }, func(d *decisions.Decision) bool { return d.Time.Unix() < 2 }},
		{func(f *DecisionFilter) { f.Tenant = "acme" }, func(d *decisions.Decision) bool { return d.Tenant == "acme" }},
		{func(f *DecisionFilter) { f.Tier = "small" }, func(d *decisions.Decision) bool { return d.Tier == "small" }},
		{func(f *DecisionFilter) { f.Outcome = "ok" }, func(d *decisions.Decision) bool { return d.Result == decisions.OK }},
		{func(f *DecisionFilter) { f.Rule = "alias" }, func(d *decisions.Decision) bool { return d.Rule == "alias" }},
		{func(f *DecisionFilter) { f.Model = "m1" }, func(d *decisions.Decision) bool { return in("m1", d.Model, d.RequestedModel) }},
		{func(f *DecisionFilter) { f.Class = "batch" }, func(d *decisions.Decision) bool { return d.Class == "batch" }},
		{func(f *DecisionFilter) { f.Code = "overloaded" }, func(d *decisions.Decision) bool { return d.Code == "overloaded" }},
		{func(f *DecisionFilter) { f.Status = 503 }, func(d *decisions.Decision) bool { return d.Status == 503 }},
		{func(f *DecisionFilter) { f.MinMs = 2 }, func(d *decisions.Decision) bool { return d.DurationMs >= 2 }},
		{func(f *DecisionFilter) { f.RequestID = "r1" }, func(d *decisions.Decision) bool { return d.RequestID == "r1" }},
		{func(f *DecisionFilter) { f.Search = "OTH" }, func(d *decisions.Decision) bool { return d.Tenant == "Other" }},
		{func(f *DecisionFilter) { f.Search = "m3" }, func(d *decisions.Decision) bool { return d.RequestedModel == "m3" }},
		{func(f *DecisionFilter) { f.Search = "w3" }, func(d *decisions.Decision) bool {
			return slices.ContainsFunc(d.Attempts, func(a decisions.Attempt) bool { return a.Worker == "w3" })
		}},
	}
	rapid.Check(t, func(t *rapid.T) {
		d, f, want := drawnDecision(t), DecisionFilter{}, true
		for _, i := range rapid.SliceOfNDistinct(rapid.IntRange(0, len(conditions)-1), 0, 4, rapid.ID).Draw(t, "conditions") {
			if c := conditions[i]; f.Search == "" || i < len(conditions)-3 { // one search at a time
				c.set(&f)
				want = want && c.want(d)
			}
		}
		if rapid.Bool().Draw(t, "by worker") {
			f.Worker = "w1"
		}
		if rapid.Bool().Draw(t, "by reason") {
			f.Reason = "random"
		}
		tries := d.Attempts
		if len(tries) == 0 { // a worker may be known without a try
			tries = []decisions.Attempt{{Worker: d.Worker, Reason: d.Reason}}
		}
		want = want && slices.ContainsFunc(tries, func(a decisions.Attempt) bool {
			return (f.Worker == "" || a.Worker == f.Worker) && (f.Reason == "" || a.Reason == f.Reason)
		})
		if f.matches(d) != want {
			t.Fatalf("%+v lets %+v through: %v, want %v", f, d, !want, want)
		}
	})
}

// TestEveryConditionMatters: no field of a filter is forgotten.
func TestEveryConditionMatters(t *testing.T) {
	for i := range reflect.TypeFor[DecisionFilter]().NumField() {
		var f DecisionFilter
		field := reflect.ValueOf(&f).Elem().Field(i)
		switch field.Interface().(type) {
		case string:
			field.SetString("none such")
		case int:
			field.SetInt(418)
		case float64:
			field.SetFloat(1e9)
		case time.Time:
			field.Set(reflect.ValueOf(time.Unix(1_700_000_000, 0)))
		}
		d := wholeDecision()
		d.Time = time.Unix(1_700_000_000, 0).Add(-time.Second)
		if reflect.TypeFor[DecisionFilter]().Field(i).Name == "Until" {
			d.Time = time.Unix(1_700_000_000, 0) // that moment itself is too late
		}
		if f.matches(d) {
			t.Errorf("%s does not matter", reflect.TypeFor[DecisionFilter]().Field(i).Name)
		}
	}
	if f := (DecisionFilter{}); !f.matches(record("")) || !f.matches(wholeDecision()) {
		t.Error("no condition refuses something")
	}
}

func TestASearchIgnoresCase(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text, part := rapid.StringMatching(`[abAB]{0,6}`).Draw(t, "text"), rapid.StringMatching(`[abAB]{1,3}`).Draw(t, "part")
		if got, want := containsFold(text, part), strings.Contains(strings.ToLower(text), strings.ToLower(part)); got != want {
			t.Fatalf("%q in %q: %v", part, text, got)
		}
	})
}

// TestAProcessNumbersAboveTheOneBefore: by the second in which it starts.
func TestAProcessNumbersAboveTheOneBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := newDecisions(1)
		for range 1000 {
			before.add(record("r"))
		}
		time.Sleep(time.Second)
		after := newDecisions(1)
		if after.span().first <= before.span().next || after.span().first+numbersOfSecond >= 1<<53 {
			t.Errorf("%+v comes after %+v", after.span(), before.span())
		}
	})
}

func BenchmarkDecisionsAdd(b *testing.B) {
	l := newDecisions(2000)
	d := wholeDecision()
	d.Attempts[1].Choice = &routing.Choice{Candidates: make([]routing.Candidate, 16)}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			l.add(d)
		}
	})
}

func BenchmarkDecisionsSearch(b *testing.B) {
	l := newDecisions(100_000)
	for range 100_000 {
		l.add(wholeDecision())
	}
	f := DecisionFilter{Search: "nothing of that"}
	b.ReportAllocs()
	for b.Loop() {
		l.page(maxSeq, 100, f.matches)
	}
}
