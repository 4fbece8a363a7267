package workers

import (
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"tierway/http1"
)

func TestAnthropicsKeyHasItsOwnHeader(t *testing.T) {
	for name, c := range map[string]struct {
		key             string
		client          http.Header
		apiKey, version []string
	}{
		"a key":              {"k", http.Header{"X-Api-Key": {"client"}}, []string{"k"}, []string{"2023-06-01"}},
		"no key":             {"", http.Header{"X-Api-Key": {"client"}}, nil, []string{"2023-06-01"}},
		"the client version": {"k", http.Header{"Anthropic-Version": {"v"}}, []string{"k"}, []string{"v"}},
		"no headers":         {"k", nil, []string{"k"}, []string{"2023-06-01"}},
	} {
		fake := new(fakeSender)
		spec := Spec{Config: Config{Name: "w", URL: "http://h:1"}, Engine: "anthropic", Key: c.key}
		if _, err := workerOver(spec, fake).Send(t.Context(), &http1.Request{Method: "POST", Path: "/",
			Header: c.client}); err !=
			nil {
			t.Fatal(err)
		}
		h := fake.last().Header
		if !slices.Equal(h["X-Api-Key"], c.apiKey) || !slices.Equal(h["Anthropic-Version"], c.version) ||
			h["Authorization"] != nil {
			t.Errorf("%s: %v", name, h)
		}
	}
}

// The second worker has the same URL and key, and sends the key in another header.
func TestAnthropicServerIsCheckedByItsModels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := new(scriptedHealth)
		engine.set(pathModels, 200, `{"data":[{"id":"m","type":"model"}]}`)
		engine.set(pathHealth, 200, "")
		anthropic := func(s *Spec) { s.Engine = "anthropic" }
		fleet, fake, _ := sharedFleet(t, engine, atServer("a", "small", anthropic))
		advanceTime(2500 * time.Millisecond)
		if n := fake.count(pathModels); n != 3 || fake.count(pathHealth)+fake.count(pathMetrics) != 0 {
			t.Errorf("%d checks of the models among %q", n, fake.paths())
		}
		if s := fleet.Get("a").Status(); !s.Up || s.Health != pathModels || !slices.Equal(s.Models, []string{"m"}) {
			t.Errorf("%+v", s)
		}
		fleet.Sync([]Spec{atServer("a", "small", anthropic), atServer("b", "medium")})
		synctest.Wait()
		if fake.count(pathHealth) == 0 {
			t.Error("the checks of one worker count for the other, which sends its key in another header")
		}
		engine.set(pathModels, 404, "") // a server without this path
		advanceTime(5 * time.Second)
		if s := fleet.Get("a").Status(); !s.Up || s.Health != pathHealth {
			t.Errorf("without a list of models: %+v", s)
		}
	})
}
