package decisions

import "testing"

func TestARecordNamesACandidateOrItsServer(t *testing.T) {
	for _, c := range []struct {
		recorded, candidate string
		want                bool
	}{
		{"w0", "w0", true}, {"w0", "w0@3", true}, {"w0@3", "w0@3", true}, {"w0@3", "w0@2", false}, {"w0", "w01", false},
		{"w0", "w0@x", false}, {"w0", "w0@", false}, {"", "@1", false}, {"w0@3", "w0", false},
	} {
		if got := Names(c.recorded, c.candidate); got != c.want {
			t.Errorf("%q and %q: %v", c.recorded, c.candidate, got)
		}
	}
}
