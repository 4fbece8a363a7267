package routing

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestRecordOfALargePoolIsIncomplete: it has the chosen worker and the runner-up at any position,
// and cannot be decided again.
func TestRecordOfALargePoolIsIncomplete(t *testing.T) {
	for n, requests := range map[int]int{MaxCandidates: 20, MaxCandidates + 1: 20, 2 * MaxCandidates: 4 * MaxCandidates} {
		var members []Member
		for i := range n {
			members = append(members, Member{ID: fmt.Sprint("w", i), Weight: 1})
		}
		for _, name := range Names() {
			policy, err := New(Config{Name: name})
			if err != nil {
				t.Fatal(err)
			}
			judge, err := New(Config{Name: name})
			if err != nil {
				t.Fatal(err)
			}
			p := poolOf(members...)
			p.Configure(policy, members)
			beyond := 0
			for i := range requests {
				r := ask()
				r.Rand, r.Blocks, r.Record = Mix(uint64(i)), prompt(i, 0, 3), &Choice{}
				l, err := p.Acquire(r)
				if err != nil {
					t.Fatal(err)
				}
				c := r.Record
				if at := l.worker.index; at >= MaxCandidates {
					beyond++
				}
				ordered := slices.IsSortedFunc(c.Candidates, func(a, b Candidate) int { return a.Index - b.Index })
				if c.Seen != n || len(c.Candidates) != min(n, MaxCandidates) || !ordered || c.CandidateOf(l.worker.id) == nil ||
					c.CandidateOf(c.RunnerUp) == nil || c.RunnerUp == l.worker.id {
					t.Fatalf("%s of %d: %s was chosen, and the record has %d of %d: %+v", name, n, l.worker.id, len(c.Candidates),
						c.Seen, c)
				}
				if at, _, decided, err := Redecide(judge, c, 0, 0, nil, r.Now); (n > MaxCandidates) != errors.Is(err,
					ErrIncomplete) || (err == nil) != (at >= 0 && decided != nil) {
					t.Fatalf("%s of %d: deciding again ends with %v", name, n, err)
				}
			}
			if n == 2*MaxCandidates && beyond < n/2 {
				t.Errorf("%s: only %d of %d requests went beyond the first %d workers", name, beyond, requests, MaxCandidates)
			}
		}
	}
}

// TestInvalidRecordIsRefused: no policy is shown a record that no pool can have made.
func TestInvalidRecordIsRefused(t *testing.T) {
	good := func() *Choice {
		return &Choice{Policy: "chwbl", Key: 7, KeyOf: "prefix", Seen: 2,
			Candidates: []Candidate{{Worker: "a", Weight: 1, Rate: 1}, {Worker: "b", Index: 1, Weight: 1, Rate: 1}}}
	}
	for name, c := range map[string]struct {
		spoil func(*Choice)
		error string // empty: it is taken
	}{
		"good":                  {func(*Choice) {}, ""},
		"no weight":             {func(c *Choice) { c.Candidates[1].Weight = 0 }, `the candidate "b" has weight 0`},
		"a negative weight":     {func(c *Choice) { c.Candidates[0].Weight = -1 }, `the candidate "a" has weight -1`},
		"an overflowing weight": {func(c *Choice) { c.Candidates[0].Weight = math.MaxInt }, `the candidate "a" has weight`},
		"a negative index":      {func(c *Choice) { c.Candidates[1].Index = -1 }, `the candidate "b" has index -1`},
		"a huge index":          {func(c *Choice) { c.Candidates[1].Index = 1 << 40 }, `the candidate "b" has index`},
		"no candidate":          {func(c *Choice) { c.Candidates = nil }, ErrIncomplete.Error()},
		"not all":               {func(c *Choice) { c.Seen = 3 }, ErrIncomplete.Error()},
		"an unknown key":        {func(c *Choice) { c.KeyOf = "moon" }, ""},
		"an unknown policy":     {func(c *Choice) { c.Policy = "moon" }, ""},
		"two of one name":       {func(c *Choice) { c.Candidates[1].Worker = "a" }, ""},
		"two of one index":      {func(c *Choice) { c.Candidates[1].Index = 0 }, ""},
		"out of order":          {func(c *Choice) { slices.Reverse(c.Candidates) }, ""},
		"negative load": {func(c *Choice) {
			c.Candidates[0].Inflight, c.Candidates[0].PendingTokens = math.MinInt, math.MinInt64
		}, ""},
		"huge load": {func(c *Choice) {
			c.Candidates[0].Inflight, c.Candidates[0].OutputTokens = math.MaxInt, math.MaxInt64
		}, ""},
		"all full": {func(c *Choice) { c.Candidates[0].Full, c.Candidates[1].Full = true, true }, ""},
		"nothing but full ones": {func(c *Choice) { c.Candidates[1].Full, c.Candidates[1].Overlap = true, math.MaxInt64 },
			""},
		"a huge wait":   {func(c *Choice) { c.WaitedMs = math.MaxFloat64 }, ""},
		"a huge memory": {func(c *Choice) { c.Memory = math.MaxFloat64 }, ""},
		"no rate":       {func(c *Choice) { c.Candidates[0].Rate = 0 }, ""},
		"halved too often": {func(c *Choice) {
			c.Halved = math.MaxInt
		}, "halved is 9223372036854775807: it must be from 0 to 64"},
		"doubled":           {func(c *Choice) { c.Halved = -1 }, "halved is -1: it must be from 0 to 64"},
		"halved to nothing": {func(c *Choice) { c.Halved = maxHalved }, ""},
	} {
		for _, of := range append(Names(), "") {
			for _, policy := range Names() {
				p, err := New(Config{Name: policy})
				if err != nil {
					t.Fatal(err)
				}
				record := good()
				if of != "" {
					record.Policy = of
				}
				c.spoil(record)
				i, reason, decided, err := Redecide(p, record, 1, 2, AppendChain(nil, prompt(1, 0, 3)), start)
				switch {
				case c.error != "":
					if err == nil || !strings.Contains(err.Error(), c.error) || i != -1 || decided != nil {
						t.Errorf("%s, by %s: %d, %v", name, policy, i, err)
					}
				case err != nil || i < 0 || i >= len(record.Candidates) || reason == "" ||
					len(decided.Candidates) != len(record.Candidates):
					t.Errorf("%s, by %s: %d (%s) of %+v: %v", name, policy, i, reason, decided, err)
				}
			}
		}
	}
	if _, _, _, err := Redecide(leastLoad{}, nil, 0, 0, nil, start); !errors.Is(err, ErrIncomplete) {
		t.Errorf("no record at all: %v", err)
	}
}

// TestRecordHasTheHalvingsOfTheRing: absent workers take room on the ring and are in no record.
func TestRecordHasTheHalvingsOfTheRing(t *testing.T) {
	config := Config{Name: "chwbl", VirtualNodes: 1000}
	var members []Member
	for i := range 9 {
		members = append(members, Member{ID: fmt.Sprint("w", i), Weight: 100})
	}
	p := poolOf(members...)
	p.Configure(mustCHWBL(t, config), members)
	first := ask()
	first.Prefix = 1
	l, err := p.Acquire(first) // the ring knows all from here on
	if err != nil {
		t.Fatal(err)
	}
	l.Release(Result{})
	p.Observe("w0", nil, Status{})
	judge, blind, others := mustCHWBL(t, config), mustCHWBL(t, config), 0
	for i := range 20 {
		r := ask()
		r.Blocks, r.Record = prompt(i, 0, 3), &Choice{}
		l, err := p.Acquire(r)
		if err != nil {
			t.Fatal(err)
		}
		l.Release(Result{})
		if r.Record.Halved != 1 || r.Record.Seen != len(members)-1 {
			t.Fatalf("the points of %d workers and one more were halved %d times", r.Record.Seen, r.Record.Halved)
		}
		at, _, decided, err := Redecide(judge, r.Record, 0, 0, nil, start)
		if err != nil || decided.Candidates[at].Worker != l.worker.id || !reflect.DeepEqual(decided, r.Record) {
			t.Fatalf("%s was chosen, and again %s (%v)", l.worker.id, decided.Candidates[at].Worker, err)
		}
		r.Record.Halved = 0
		if at, _, _, _ = Redecide(blind, r.Record, 0, 0, nil, start); r.Record.Candidates[at].Worker != l.worker.id {
			others++
		}
	}
	if others == 0 {
		t.Error("it makes no difference")
	}
}

// TestDraftDoesNotChangeTheRing: a draft with a huge weight moves no key.
func TestDraftDoesNotChangeTheRing(t *testing.T) {
	members := []Member{{ID: "a", Weight: 1}, {ID: "b", Weight: 1}, {ID: "c", Weight: 1}}
	p, policy := poolOf(members...), mustCHWBL(t, Config{})
	p.Configure(policy, members)
	l := mustAcquire(t, p)
	l.Release(Result{})
	before := *policy.ring
	heavy := []Member{{ID: "a", Weight: maxWeight}, {ID: "d", Weight: 1}}
	r := ask()
	r.Blocks = prompt(1, 0, 3)
	if o, err := p.Preview(r, &Draft{Policy: policy, Members: heavy}); err != nil || o.Choice.Halved == 0 {
		t.Fatalf("the preview under the draft is %+v (%v)", o, err)
	}
	if !reflect.DeepEqual(before, *policy.ring) {
		t.Errorf("the ring was %+v and is %+v", before, *policy.ring)
	}
}

func TestTermsSurviveJSON(t *testing.T) {
	names := [maxTerms]string{"a", "b", "c", "d"}
	for text, want := range map[string]Terms{
		`null`:                        {},
		`{}`:                          {},
		`{"a":0.1,"b":-1e+300,"c":3}`: {names: &[maxTerms]string{"a", "b", "c"}, values: [maxTerms]float64{0.1, -1e300, 3}},
		`{"a":1,"b":2,"c":3,"d":4}`:   {names: &names, values: [maxTerms]float64{1, 2, 3, 4}},
		`{"has":-9007199254740991}`:   {names: &[maxTerms]string{hasTerm}, values: [maxTerms]float64{-9007199254740991}},
		`{"step":0,"requests":0.7,"tokens":0.30000000000000004}`: {names: chwblTerms(),
			values: [maxTerms]float64{0, 0.7, 0.30000000000000004}},
	} {
		var got Terms
		if err := json.Unmarshal([]byte(text), &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s is read as %v (%v)", text, got, err)
		}
		var again Terms
		if wrote, err := json.Marshal(want); err != nil || json.Unmarshal(wrote, &again) != nil ||
			!reflect.DeepEqual(again, want) {
			t.Errorf("%s is written as %s (%v)", text, wrote, err)
		}
	}
	for _, text := range []string{`[]`, `1`, `"a"`, `[1]`, `{"a":"1"}`, `{"a":{}}`, `{"a":[1]}`, `{"a":true}`} {
		if err := json.Unmarshal([]byte(text), new(Terms)); err == nil {
			t.Errorf("%s is read", text)
		}
	}
	var many Terms
	if err := json.Unmarshal([]byte(`{"a":1,"b":2,"c":3,"d":4,"e":5}`), &many); err != nil || many.Get("d") != 4 ||
		many.Get("e") != 0 || many.Get("") != 0 {
		t.Errorf("of five terms four are kept: %v (%v)", many, err)
	}
	endless := Terms{names: &names, values: [maxTerms]float64{math.Inf(1), math.NaN(), math.Inf(-1)}}
	if text, err := json.Marshal(endless); err != nil ||
		string(text) != `{"a":1.7976931348623157e+308,"b":0,"c":-1.7976931348623157e+308,"d":0}` {
		t.Errorf("a value that is not a number is written as %s (%v)", text, err)
	}
	if (Terms{}).Get("a") != 0 || !(Terms{}).IsZero() || endless.IsZero() {
		t.Error("no terms are zero")
	}
}

// TestCandidateHoldsEveryFieldOfItsView, except the fields that are equal for all candidates.
func TestCandidateHoldsEveryFieldOfItsView(t *testing.T) {
	// a worker of another group, down or saturated is no candidate
	same := map[string]any{"Group": 0, "Up": true, "Saturated": false}
	var v View
	is := reflect.ValueOf(&v).Elem()
	for i := range is.NumField() {
		switch f := is.Field(i); {
		case !f.CanSet(): // of the pool's own
		case same[is.Type().Field(i).Name] != nil:
			f.Set(reflect.ValueOf(same[is.Type().Field(i).Name]))
		case f.Kind() == reflect.String:
			f.SetString("w")
		case f.Kind() == reflect.Bool:
			f.SetBool(true)
		case f.CanInt():
			f.SetInt(int64(i) + 1)
		case f.Kind() == reflect.Struct:
			for k := range f.NumField() {
				if n := f.Field(k); n.CanInt() {
					n.SetInt(int64(i) + 1)
				} else {
					n.SetFloat(float64(i) + float64(k)/16)
				}
			}
		default:
			f.SetFloat(float64(i) + 0.5)
		}
	}
	c := candidate(&v, &assessment{})
	if again := c.view(); again != v {
		t.Errorf("%+v was recorded, and is seen again as %+v", v, again)
	}
}
