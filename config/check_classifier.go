package config

import (
	"fmt"
	"maps"
	"slices"

	"tierway/tiers"
)

// checkClassifier checks what of the classifier's rules only the file shows:
// keys that are no tiers, and empty lists. It returns the rules without such
// keys, and paths of the file by their spelling in package tiers.
func (d *decoder) checkClassifier(f *File) (rules tiers.Rules, paths map[string]string) {
	var names []string
	for _, t := range f.Tiers {
		names = append(names, t.Name)
	}
	rules, paths = f.Classifier, map[string]string{}
	rules.PromptTokens = ofTiers(d, "classifier.prompt_tokens", rules.PromptTokens, names, paths)
	rules.MaxTokens = ofTiers(d, "classifier.max_tokens", rules.MaxTokens, names, paths)
	rules.KeywordScore = ofTiers(d, "classifier.keyword_score", rules.KeywordScore, names, paths)
	d.checkTier("classifier.default", rules.Default, names)
	for i, k := range rules.Keywords {
		path := fmt.Sprintf("classifier.keywords[%d]", i)
		d.checkTier(path+".tier", k.Tier, names)
		if len(k.In) == 0 && d.written(path+".in") {
			d.fault(path+".in", "is empty", "write user, system or both, or remove the key for user")
		}
	}
	return rules, paths
}

// checkTier notes the name of a tier that was meant for another's. What is like
// no tier's name is left to package tiers.
func (d *decoder) checkTier(path, name string, names []string) {
	if near := nearest(name, names); near != "" && !slices.Contains(names, name) {
		d.fault(path, "unknown tier "+d.shown(path, name), "did you mean "+near+"?")
	}
}

// ofTiers notes keys of a section that are no tier's name and returns the
// others. paths is given our spelling of their paths by that of package tiers.
func ofTiers[N int64 | float64](d *decoder, path string, section map[string]N, names []string, paths map[string]string) map[string]N {
	if section == nil {
		return nil
	}
	known := map[string]N{}
	for _, name := range slices.Sorted(maps.Keys(section)) {
		sub := join(path, name)
		if slices.Contains(names, name) {
			known[name], paths[path+"."+name] = section[name], sub
			continue
		}
		d.faultAt(sub, d.places[sub].key, "no tier has this name", DidYouMean(name, distinct(names)))
	}
	return known
}
