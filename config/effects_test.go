package config

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestReloadKeepsKeysThatNeedARestart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		old, f := drawFile(t), drawFile(t)
		before := string(printed(&f))
		kept := f.KeepRestartOnly(&old)
		live := 0
		for _, c := range Changes(&old, &f) {
			if c.Effect != EffectRestart {
				live++
			}
		}
		inForce := Changes(&old, kept)
		if len(inForce) != live || slices.ContainsFunc(inForce, func(c Change) bool { return c.Effect == EffectRestart }) {
			t.Fatalf("%v", inForce)
		}
		if string(printed(&f)) != before {
			t.Fatal("the new file itself was changed")
		}
	})
}

func TestOverridesSetWeightsOfACopy(t *testing.T) {
	f := parsed(t,
		grown+`pools: [{name: p, models: [x], serves: [chat], workers: [{name: w3, url: "http://h:4", weight: 5}]}]`,
		map[string]string{"K": "worker-key"})
	before := fmt.Sprint(f)
	weights := map[string]int{"w0": 0, "w3": 9, "nobody": 4}
	over := f.WithOverrides(weights)
	weights["w0"] = 77
	var got []string
	for _, s := range over.Specs() {
		got = append(got, fmt.Sprint(s.Name, " ", *s.Weight))
	}
	if diff := cmp.Diff([]string{"w0 0", "w1 1", "w2 1", "w3 9"}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if after := fmt.Sprint(f); after != before {
		t.Errorf("the file changed:\n%s", cmp.Diff(before, after))
	}
	if over.Specs()[0].Key != "worker-key" || over.Hash() != f.Hash() {
		t.Error("more than weights is another")
	}
	var changed []string
	for _, c := range Changes(f, over) {
		changed = append(changed, c.Path)
	}
	if diff := cmp.Diff([]string{"tiers[small].workers[w0].weight", "pools[p].workers[w3].weight"}, changed); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestReloadKeepsKeysRequiredOutsideLoopback(t *testing.T) {
	open := "listen: \"0.0.0.0:8080\"\ninsecure: true\n" + keys + small
	old, f := parsed(t, open, nil), parsed(t, "auth: {required: false}\n"+small, nil)
	kept := f.KeepRestartOnly(old)
	if kept.Listen != "0.0.0.0:8080" || !kept.Auth.Required || f.Auth.Required {
		t.Errorf("%s is served with keys required: %t", kept.Listen, kept.Auth.Required)
	}
	effects := map[string]string{}
	for _, c := range Changes(old, f) {
		effects[c.Path] = c.Effect
	}
	want := map[string]string{"listen": "restart", "insecure": "restart", "auth.required": "restart",
		"auth.keys[a]": "live"}
	if diff := cmp.Diff(want, effects); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	home := parsed(t, keys+small, nil)
	if f.KeepRestartOnly(home).Auth.Required || Changes(home, f)[0].Effect != "live" {
		t.Error("loopback is not opened by a reload")
	}
}

func TestHashCoversTheBytesOfTheFile(t *testing.T) {
	f := parsed(t, keys+small, nil)
	if f.Hash() != hashOf([]byte(keys+small)) || len(f.Hash()) != 64 {
		t.Error(f.Hash())
	}
	if again := parsed(t, keys+small+"# a comment\n", nil); again.Hash() == f.Hash() {
		t.Error("other bytes have the same hash")
	}
	if moved, err := f.WithListen("127.0.0.1:9", ""); err != nil || moved.Hash() != f.Hash() {
		t.Error("a flag changed the hash of the file")
	}
	a, errA := FromFlags([]string{"m"}, []string{"http://h:1"}, nil, "", "")
	b, errB := FromFlags([]string{"m"}, []string{"http://h:2"}, nil, "", "")
	if errA != nil || errB != nil || a.Hash() == b.Hash() || len(a.Hash()) != 64 {
		t.Errorf("%s and %s", a.Hash(), b.Hash())
	}
}
