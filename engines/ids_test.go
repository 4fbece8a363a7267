package engines

import "testing"

func TestNoTwoEnginesOfAFleetMakeTheSameID(t *testing.T) {
	seen := map[string]string{}
	for seed := range uint64(8) { // small seeds, which people write, and those that Demo makes of them
		for _, c := range append(Demo(seed), Config{Name: "plain", AnyModel: true, Seed: seed}) {
			e := New(c)
			for range 200 {
				id := e.newID("resp_")
				if by, twice := seen[id]; twice && by != c.Name {
					t.Fatalf("%s and %s both made %s", by, c.Name, id)
				}
				seen[id] = c.Name
			}
			e.Close()
		}
		clear(seen)
	}
}
