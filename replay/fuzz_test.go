package replay

import (
	"encoding/json"
	"testing"

	"tierway/decisions"
	"tierway/routing"
	"tierway/tiers"
)

func FuzzReplay(f *testing.F) {
	for _, d := range []*decisions.Decision{
		written(0, "small", "a1", "least_load", 100, candidate("a1", 0), candidate("a2", 1)),
		written(1, "medium", "b1", "chwbl", 5000, candidate("b1", 0), candidate("b2", 1)),
		written(2, "small", "a2", "round_robin", 100, candidate("a1", 0), candidate("a2", 1)),
		{Tier: "small", Rule: "path"},
		requestsOf(f, pairs(routing.AutoThreshold, "kv_aware", "chwbl", symmetric), 4000)[0],
		requestsOf(f, pairs(1, "least_load", "least_load", routing.StageDecode), 4000)[0],
	} {
		d.Features.Chain = []routing.Link{{Hash: 1, End: 400}, {Hash: 2, End: 800}}
		text, err := json.Marshal(d)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, uint8(0))
		f.Add(text, uint8(5))
	}
	f.Fuzz(func(t *testing.T, text []byte, policy uint8) {
		var d decisions.Decision
		if json.Unmarshal(text, &d) != nil {
			return
		}
		names := routing.Names()
		now := setup(t, thresholds(4000, 16000), routing.Config{Name: names[int(policy)%len(names)]})
		draft := setup(t, tiers.Rules{}, routing.Config{Name: names[int(policy/8)%len(names)]},
			func(s *Setup) { s.Pools[0].Members[0].Weight = 0 })
		if policy%2 == 1 { // the tier has hand-overs
			was := pairs(routing.AutoThreshold, names[int(policy)%len(names)], "least_load", symmetric)
			is := pairs(500, names[int(policy/8)%len(names)], "kv_aware", routing.StageDecode)
			now.Pools[0], draft.Pools[0] = was, is
		}
		got := replay(t, Config{Now: now, Draft: &draft}, &d, &d, &d)
		if _, err := json.Marshal(got); err != nil || got.Records != 3 || got.Decided > 3 ||
			got.ChangedWorker > got.Redecided {
			t.Errorf("%+v, %v", got, err)
		}
	})
}
