package decisions

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"tierway/routing"
)

// record is a small record.
func record(id string) *Decision { return &Decision{RequestID: id} }

// ids are the records' request ids.
func ids(found []Entry) (out []string) {
	for _, n := range found {
		out = append(out, n.Decision.RequestID)
	}
	return out
}

// everything matches every record.
func everything(*Decision) bool { return true }

// TestLogKeepsTheLastRecords: whatever comes and however its size changes, it
// has the last ones, numbered one after the other.
func TestLogKeepsTheLastRecords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keep := rapid.IntRange(0, 20).Draw(t, "keep")
		l := NewLog(keep)
		var model []Entry
		next := l.Span().Next
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				d := record(fmt.Sprint("r", rapid.IntRange(0, 30).Draw(t, "id")))
				l.Add(d)
				if keep > 0 {
					model = append(model, Entry{next, d})
					next++
				}
			},
			"addMany": func(t *rapid.T) {
				for range rapid.IntRange(0, 300).Draw(t, "many") {
					l.Add(record("m"))
					if keep > 0 {
						model = append(model, Entry{next, record("m")})
						next++
					}
				}
			},
			"resize": func(t *rapid.T) {
				keep = rapid.SampledFrom([]int{0, 1, 2, 7, 20, 400}).Draw(t, "keep")
				l.Resize(keep)
			},
			"": func(t *rapid.T) {
				model = model[max(0, len(model)-keep):]
				var bytes int64
				for _, n := range model {
					bytes += bytesOf(n.Decision)
				}
				want := Span{First: l.span.First, Oldest: next - int64(len(model)), Next: next, Keep: keep, Bytes: bytes}
				if got := l.Span(); got != want {
					t.Fatalf("it holds %+v, want %+v", got, want)
				}
				checkPages(t, l, model)
			},
		})
	})
}

// checkPages fails unless pages of the log, one after the other, are the model
// backwards.
func checkPages(t *rapid.T, l *Log, model []Entry) {
	limit := rapid.IntRange(1, 250).Draw(t, "limit")
	before, seen := int64(0), []Entry{}
	for more := true; more; {
		var page []Entry
		page, more = l.Page(before, limit, everything)
		if len(page) > limit || more != (len(model)-len(seen) > limit) {
			t.Fatalf("a page of %d has %d of %d, more: %v", limit, len(page), len(model)-len(seen), more)
		}
		seen = append(seen, page...)
		if more {
			before = page[len(page)-1].Seq
		}
	}
	slices.Reverse(seen)
	if !slices.EqualFunc(seen, model, func(a, b Entry) bool {
		return a.Seq == b.Seq && a.Decision.RequestID == b.Decision.RequestID
	}) {
		t.Fatalf("the pages have %v, want %v", ids(seen), ids(model))
	}
	last := l.Last(limit)
	if want := model[max(0, len(model)-limit):]; !slices.EqualFunc(last, want, func(d *Decision, n Entry) bool {
		return d.RequestID == n.Decision.RequestID
	}) {
		t.Fatalf("the last %d are not %v", limit, ids(want))
	}
	for _, n := range model {
		if got, known := l.Get(n.Decision.RequestID); !known || got.Seq < n.Seq ||
			got.Decision.RequestID != n.Decision.RequestID {
			t.Fatalf("%s is found as %+v", n.Decision.RequestID, got)
		}
	}
	if _, known := l.Get("unknown"); known {
		t.Fatal("an unknown id is found")
	}
}

// TestLogMemoryIsBounded: large records push out more than one old one.
func TestLogMemoryIsBounded(t *testing.T) {
	l := NewLog(1000)
	most := strings.Repeat("x", maxDecisionBytes)
	large := func() *Decision { return &Decision{Cause: most[:10<<20]} }
	for i := range 100 {
		l.Add(large())
		if has := l.Span(); has.Bytes > maxDecisionBytes || has.Next-has.Oldest != int64(min(i+1, 25)) {
			t.Fatalf("after %d of 10 MiB: %+v", i+1, has)
		}
	}
	l.Add(&Decision{Cause: most}) // is kept alone
	if has := l.Span(); has.Next-has.Oldest != 1 {
		t.Errorf("it holds %+v", has)
	}
	l.Add(record("small"))
	if has := l.Span(); has.Next-has.Oldest != 1 || has.Bytes != bytesOf(record("small")) {
		t.Errorf("it holds %+v", has)
	}
}

// TestBytesOfApproximatesARecordsMemory: one with 32 candidates and a long prompt's
// blocks is some 12 KB.
func TestBytesOfApproximatesARecordsMemory(t *testing.T) {
	d := &Decision{Attempts: []Attempt{{Choice: &routing.Choice{Candidates: make([]routing.Candidate, 32)}}}}
	d.Features.Chain = make([]routing.Link, 81)
	n := bytesOf(d)
	if n < 9000 || n > 14000 {
		t.Errorf("its size is %d bytes", n)
	}
	d.Refused = &routing.Choice{Candidates: make([]routing.Candidate, 2)}
	if more := bytesOf(d) - n; more < 200 {
		t.Errorf("the choice of a refusal counts as %d bytes", more)
	}
	if n := bytesOf(record("")); n < 500 || n > 1500 {
		t.Errorf("the size of an empty record is %d bytes", n)
	}
}

// TestLogIsReadWhileItIsWritten: readers see each record once, in order, and writers never wait for
// readers.
func TestLogIsReadWhileItIsWritten(t *testing.T) {
	l := NewLog(500)
	first := l.Span().First
	var writers, readers sync.WaitGroup
	done := make(chan struct{})
	for range 4 {
		writers.Go(func() {
			for range 5000 {
				l.Add(record("r"))
			}
		})
		readers.Go(func() {
			for {
				var before int64 = math.MaxInt64
				for n := range l.newest(before) {
					if n.Seq >= before || n.Decision == nil {
						t.Errorf("%d comes after %d", n.Seq, before)
						break
					}
					before = n.Seq
				}
				select {
				case <-done:
					return
				default:
					l.Resize(400 + int(before%200))
				}
			}
		})
	}
	writers.Wait()
	close(done)
	readers.Wait()
	if has := l.Span(); has.Next-first != 20_000 {
		t.Errorf("%d of 20,000 were numbered", has.Next-first)
	}
}

// drawnDecision is a record of few names, so that filters often let it through.
func drawnDecision(t *rapid.T) *Decision {
	name := func(of ...string) string { return rapid.SampledFrom(append(of, "")).Draw(t, "name") }
	d := &Decision{RequestID: name("r1", "r2"), Tenant: name("acme", "Other"), Key: name("k1"),
		Tier: name("small", "large"), Model: name("m1", "m2"),
		RequestedModel: name("m1", "m3"), Rule: name("alias", "header"), Class: name("batch", "interactive"),
		Code:   name("overloaded", "invalid_json"),
		Result: Result(name("ok", "failed")), Worker: name("w1", "w2"), Reason: name("random", "prefix_home"),
		Status: rapid.SampledFrom([]int{200, 503}).Draw(t, "status"), DurationMs: float64(rapid.IntRange(0, 3).Draw(t, "ms")),
		Time: time.Unix(int64(rapid.IntRange(0, 3).Draw(t, "time")), 0)}
	for range rapid.IntRange(0, 2).Draw(t, "attempts") {
		d.Attempts = append(d.Attempts, Attempt{Worker: name("w1", "w2", "w3"), Reason: name("random", "prefix_home")})
	}
	return d
}

// TestFilterMatchesAllConditions: each condition alone decides as a plain
// comparison does, and a filter is all its conditions.
func TestFilterMatchesAllConditions(t *testing.T) {
	in := func(s string, all ...string) bool { return slices.Contains(all, s) }
	conditions := []struct {
		set  func(f *Filter)
		want func(d *Decision) bool
	}{
		{func(f *Filter) { f.Since = time.Unix(1, 0) }, func(d *Decision) bool { return d.Time.Unix() >= 1 }},
		{func(f *Filter) { f.Until = time.Unix(2, 0) }, func(d *Decision) bool { return d.Time.Unix() < 2 }},
		{func(f *Filter) { f.Tenant = "acme" }, func(d *Decision) bool { return d.Tenant == "acme" }},
		{func(f *Filter) { f.Tier = "small" }, func(d *Decision) bool { return d.Tier == "small" }},
		{func(f *Filter) { f.Outcome = "ok" }, func(d *Decision) bool { return d.Result == OK }},
		{func(f *Filter) { f.Rule = "alias" }, func(d *Decision) bool { return d.Rule == "alias" }},
		{func(f *Filter) { f.Model = "m1" }, func(d *Decision) bool { return in("m1", d.Model, d.RequestedModel) }},
		{func(f *Filter) { f.Class = "batch" }, func(d *Decision) bool { return d.Class == "batch" }},
		{func(f *Filter) { f.Code = "overloaded" }, func(d *Decision) bool { return d.Code == "overloaded" }},
		{func(f *Filter) { f.Status = 503 }, func(d *Decision) bool { return d.Status == 503 }},
		{func(f *Filter) { f.MinMs = 2 }, func(d *Decision) bool { return d.DurationMs >= 2 }},
		{func(f *Filter) { f.RequestID = "r1" }, func(d *Decision) bool { return d.RequestID == "r1" }},
		{func(f *Filter) { f.Search = "OTH" }, func(d *Decision) bool { return d.Tenant == "Other" }},
		{func(f *Filter) { f.Search = "m3" }, func(d *Decision) bool { return d.RequestedModel == "m3" }},
		{func(f *Filter) { f.Search = "w3" }, func(d *Decision) bool {
			return slices.ContainsFunc(d.Attempts, func(a Attempt) bool { return a.Worker == "w3" })
		}},
	}
	rapid.Check(t, func(t *rapid.T) {
		d, f, want := drawnDecision(t), Filter{}, true
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
			tries = []Attempt{{Worker: d.Worker, Reason: d.Reason}}
		}
		want = want && slices.ContainsFunc(tries, func(a Attempt) bool {
			return (f.Worker == "" || a.Worker == f.Worker) && (f.Reason == "" || a.Reason == f.Reason)
		})
		if f.Matches(d) != want {
			t.Fatalf("%+v lets %+v through: %v, want %v", f, d, !want, want)
		}
	})
}

// TestEachConditionOfAFilterExcludes: no field of a filter is forgotten.
func TestEachConditionOfAFilterExcludes(t *testing.T) {
	for i := range reflect.TypeFor[Filter]().NumField() {
		var f Filter
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
		if reflect.TypeFor[Filter]().Field(i).Name == "Until" {
			d.Time = time.Unix(1_700_000_000, 0) // that moment itself is too late
		}
		if f.Matches(d) {
			t.Errorf("%s does not matter", reflect.TypeFor[Filter]().Field(i).Name)
		}
	}
	if f := (Filter{}); !f.Matches(record("")) || !f.Matches(wholeDecision()) {
		t.Error("no condition refuses something")
	}
}

func TestASearchIgnoresCase(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text, part := rapid.StringMatching(`[abAB]{0,6}`).Draw(t, "text"), rapid.StringMatching(`[abAB]{1,3}`).Draw(t, "part")
		if got, want := containsFold(text, part), strings.Contains(strings.ToLower(text), strings.ToLower(part)); got !=
			want {
			t.Fatalf("%q in %q: %v", part, text, got)
		}
	})
}

// TestNumbersGrowAcrossProcesses: by the second in which it starts.
func TestNumbersGrowAcrossProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := NewLog(1)
		for range 1000 {
			before.Add(record("r"))
		}
		time.Sleep(time.Second)
		after := NewLog(1)
		if after.Span().First <= before.Span().Next || after.Span().First+numbersPerSecond >= 1<<53 {
			t.Errorf("%+v comes after %+v", after.Span(), before.Span())
		}
	})
}

func BenchmarkDecisionsAdd(b *testing.B) {
	l := NewLog(2000)
	d := wholeDecision()
	d.Attempts[1].Choice = &routing.Choice{Candidates: make([]routing.Candidate, 16)}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			l.Add(d)
		}
	})
}

func BenchmarkDecisionsSearch(b *testing.B) {
	l := NewLog(100_000)
	for range 100_000 {
		l.Add(wholeDecision())
	}
	f := Filter{Search: "nothing of that"}
	b.ReportAllocs()
	for b.Loop() {
		l.Page(0, 100, f.Matches)
	}
}
