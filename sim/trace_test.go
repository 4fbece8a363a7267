package sim

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestTracesInMooncakesFormatAreRead(t *testing.T) {
	all, err := ReadMooncake(strings.NewReader(`{"timestamp": 1000, "input_length": 1100, "output_length": 7, "hash_ids": [0, 1, 2]}

{"timestamp": 3000.5, "input_length": 1024, "output_length": 0, "hash_ids": [0, 9], "session": "ignored"}
{"timestamp": 4000, "input_length": 5, "output_length": 1, "hash_ids": []}
`), 512, 0)
	if err != nil {
		t.Fatal(err)
	}
	first, second, third := all[0].Request, all[1].Request, all[2].Request
	if all[0].At != 0 || all[1].At != 2000500*time.Microsecond || first.PromptTokens != 1100 ||
		first.OutputTokens != 7 || second.OutputTokens != 1 || len(first.Chain) != 3 || len(third.Chain) != 0 {
		t.Errorf("%+v", all)
	}
	if first.Chain[0] != second.Chain[0] || first.Chain[1] == second.Chain[1] || first.Chain[2].End != 4400 ||
		first.Prefix != first.Chain[1].Hash {
		t.Errorf("chains %v and %v, prefix %x", first.Chain, second.Chain, first.Prefix)
	}
}

func TestInvalidTracesAreRefusedWithTheLine(t *testing.T) {
	const good = `{"timestamp": 5, "input_length": 600, "output_length": 1, "hash_ids": [0, 1]}` + "\n"
	with := func(old, replaced string) string { return strings.Replace(good, old, replaced, 1) }
	for text, want := range map[string]string{
		"":                                "the trace has no request: write one JSON object per line",
		good + "[]\n":                     "line 2 of the trace: it is not a JSON object: write one",
		"null\n":                          "line 1 of the trace: it is not a JSON object: write one",
		with(`": 5`, `": "400"`):          `line 1 of the trace: timestamp is "400": write a number without quotes`,
		with("600", "0.5"):                "input_length is 0.5: write an integer",
		with("[0, 1]", "[-1]"):            "hash_ids is [-1]: write a list of integers",
		with("input_length", "input"):     "input_length is missing: write an integer",
		with("[0, 1]", "null"):            "hash_ids is missing: write a list of integers",
		good + with("5", "4"):             "line 2 of the trace: timestamp 4 is before the line above",
		with("600", "512"):                "hash_ids has 2 blocks, and input_length 512 fills only 1 blocks of 512 tokens:",
		with("600", "0"):                  "input_length is 0: write an integer from 1 to",
		with("5", "-5"):                   "timestamp is -5: write the milliseconds since the start",
		with(`length": 1`, `length": -1`): "output_length is -1: write an integer from 0 to",
		good + strings.Repeat("x", maxTraceLine+1): "line 2 of the trace is longer than",
	} {
		if _, err := ReadMooncake(strings.NewReader(text), 512, 0); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80q: %v, want %q", text, err, want)
		}
	}
}

func FuzzReadMooncake(f *testing.F) {
	f.Add(`{"timestamp": 5, "input_length": 600, "output_length": 1, "hash_ids": [0, 1]}`)
	f.Add("{}\n[]")
	f.Fuzz(func(t *testing.T, text string) {
		all, err := ReadMooncake(strings.NewReader(text), 512, 100)
		if err != nil {
			return
		}
		if len(all) == 0 || len(all) > 100 || all[0].At != 0 ||
			!slices.IsSortedFunc(all, func(a, b Arrival) int { return int(a.At - b.At) }) {
			t.Fatalf("%q: %+v", text, all)
		}
	})
}

// TestTraceRunsWithItsBlocksAndRate: the blocks of a trace have 512 tokens, and a rate of 2 halves all
// times. The second prompt finds the first two of its blocks.
func TestTraceRunsWithItsBlocksAndRate(t *testing.T) {
	all, err := ReadMooncake(strings.NewReader(
		`{"timestamp": 0, "input_length": 1500, "output_length": 1, "hash_ids": [0, 1, 2]}
{"timestamp": 4000, "input_length": 1500, "output_length": 1, "hash_ids": [0, 1, 3]}
{"timestamp": 8000, "input_length": 1024, "output_length": 1, "hash_ids": [0, 1]}`), MooncakeTokens, 0)
	if err != nil {
		t.Fatal(err)
	}
	r := play(t, Config{Engines: []Engine{{}}, Admission: Direct, Policy: leastLoad(), BlockTokens: MooncakeTokens,
		Loads: []Load{Trace{Arrivals: all, Rate: 2}}})
	want := []struct {
		at     time.Duration
		cached int64
	}{{0, 0}, {2 * time.Second, 1024}, {4 * time.Second, 512}}
	for i, rec := range r.Records {
		if rec.SubmittedAt != want[i].at || rec.Cached != want[i].cached {
			t.Errorf("request %d came at %s and found %d tokens, want %+v", i, rec.SubmittedAt, rec.Cached, want[i])
		}
	}
}

// TestSpreadDelaysEachRequestByLessThanTheInterval: the requests are in the order of their new times.
func TestSpreadDelaysEachRequestByLessThanTheInterval(t *testing.T) {
	var all []Arrival
	for i := range 30 {
		all = append(all, Arrival{At: time.Duration(i/10) * 3 * time.Second, Request: Request{PromptTokens: int64(i)}})
	}
	Spread(all, 3*time.Second)
	times := map[time.Duration]bool{}
	for i, a := range all {
		times[a.At] = true
		recorded := time.Duration(a.Request.PromptTokens/10) * 3 * time.Second
		if a.At < recorded || a.At >= recorded+3*time.Second || i > 0 && a.At < all[i-1].At {
			t.Errorf("request %d comes at %v, recorded at %v", a.Request.PromptTokens, a.At, recorded)
		}
	}
	if len(times) != 30 {
		t.Errorf("%d requests of 30 have their own times", len(times))
	}
}
