package config

import (
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"tierway/routing"
)

// TestEngineExamplesLoad verifies that each configuration in examples/ loads as it is, needs the
// application's key alone, and names the engine of its folder. Only Ollama's example has a warning:
// both of its tiers are on one server.
func TestEngineExamplesLoad(t *testing.T) {
	engines := map[string]string{"ollama": "ollama", "llama.cpp": "llamacpp", "vllm": "vllm", "sglang": "sglang"}
	warning := map[string]string{"ollama": "is also the server of tiers[0].workers[0].url"}
	env := environment(map[string]string{"TIERWAY_KEY_SHA256": digestA})
	paths, err := filepath.Glob("../examples/*/config.yaml")
	if err != nil || len(paths) != len(engines) {
		t.Fatalf("examples/ has the configurations %q (%v), want one for each of %v", paths, err, engines)
	}
	for _, path := range paths {
		folder := filepath.Base(filepath.Dir(path))
		f, err := Load(path, env)
		if err != nil {
			t.Error(err)
			continue
		}
		for _, p := range f.ResolvedPools() {
			if string(p.Engine) != engines[folder] {
				t.Errorf("%s: the engine of %s is %q, want %q", path, p.Name, p.Engine, engines[folder])
			}
		}
		var warnings string
		if w := f.Warnings(); len(w) > 0 {
			warnings = w.Error()
		}
		if want := warning[folder]; (want == "") != (warnings == "") || !strings.Contains(warnings, want) {
			t.Errorf("%s: the warnings are %q, want %q", path, warnings, want)
		}
	}
}

// TestDisaggregationExamplesLoad verifies that examples/disaggregation/ has one configuration for each hand-over,
// which loads without warnings and has workers for each stage and for whole requests.
func TestDisaggregationExamplesLoad(t *testing.T) {
	env := environment(map[string]string{"TIERWAY_KEY_SHA256": digestA})
	for _, handover := range keyOf(reflect.TypeFor[PoolConfig](), "handover").words {
		path := "../examples/disaggregation/" + strings.ReplaceAll(handover, "_", "-") + ".yaml"
		f, err := Load(path, env)
		if err != nil {
			t.Error(err)
			continue
		}
		if w := f.Warnings(); len(w) > 0 {
			t.Errorf("%s: %v", path, w)
		}
		p, any := f.ResolvedPools()[0], routing.Stages(0)
		for i := range p.Workers {
			any |= p.Stages(&p.Workers[i])
		}
		if p.Handover != handover || any != routing.StageWhole|routing.StagePrefill|routing.StageDecode {
			t.Errorf("%s: the hand-over is %s, and the stages are %b", path, p.Handover, any)
		}
	}
}
