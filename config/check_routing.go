package config

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"tierway/routing"
	"tierway/tiers"
	"tierway/tokenizer"
)

// checkPolicy checks a policy section. The section of a tier or pool replaces the file's as a
// whole, so options without a name would have no policy.
func (d *decoder) checkPolicy(path string, c routing.Config) {
	d.checkTokenizer(path+".tokenizer", c.Tokenizer)
	if at := path + ".lookup_timeout"; c.LookupTimeout > longLookup {
		d.warn(at, fmt.Sprintf("%v: a request with a new prompt can wait that long before a worker is selected",
			c.LookupTimeout), "use at most "+longLookup.String()+"; the default is 20ms, or 100ms while all workers are busy")
	}
	for k := range members(reflect.ValueOf(c)) {
		at := join(path, k.name)
		switch {
		case k.policy == "" || !d.written(at) || d.reported[path+".name"] || usesOption(c, *k):
		case c.Name == "":
			d.report(path+".name", "missing, but "+k.name+" is set",
				"write name: "+k.firstPolicy()+"; this section replaces the file's policy as a whole")
		case k.firstPolicy() == k.policy:
			d.report(at, "applies only to the policy "+k.policy+", but the policy is "+c.Name,
				"remove the key, or write name: "+k.policy)
		default:
			d.report(at, "applies only to the policies "+strings.ReplaceAll(k.policy, ",", ", ")+", but the policy is "+
				c.Name, "remove the key, or write name: "+k.firstPolicy())
		}
	}
	d.checkHashKey(path, c)
	d.checkLMCache(path, c)
	if c.Fallback != "" && c.Fallback == c.Name {
		d.report(path+".fallback", "is the policy itself", "name another policy, or remove the key")
	}
}

func usesOption(c routing.Config, k key) bool {
	policies := strings.Split(k.policy, ",")
	return slices.Contains(policies, c.Name) || k.name != "fallback" && slices.Contains(policies, c.Fallback)
}

func (k key) firstPolicy() string {
	first, _, _ := strings.Cut(k.policy, ",")
	return first
}

// checkHashKey checks the options that determine the key of consistent_hash and rendezvous_hash.
func (d *decoder) checkHashKey(path string, c routing.Config) {
	switch {
	case c.Key == routing.KeyHeader && c.KeyHeader == "":
		d.report(path+".key_header", "missing", "write the name of the header that determines the worker")
	case c.Key != routing.KeyHeader && c.KeyHeader != "":
		d.report(path+".key_header", "has no effect without key: header", "write key: header, or remove the key")
	case c.Key != "" && c.Key != routing.KeySession && c.FallbackKey != "":
		d.report(path+".fallback_key", "has no effect with key: "+c.Key, "remove the key")
	}
}

// checkKeyHeaders warns of keys that many clients or proxies set anew for each request.
func (d *decoder) checkKeyHeaders(f *File) {
	if at := "session_keys"; len(f.SessionKeys) == 0 && d.written(at) {
		d.warn(at, "the list is empty, so no request has a session key",
			"list headers or fields, or remove the key for the default")
	}
	for i, name := range f.SessionKeys {
		at := fmt.Sprintf("session_keys[%d]", i)
		if perRequest := []string{"X-Request-Id", "X-Correlation-Id", "X-Trace-Id"}; d.written(at) &&
			slices.Contains(perRequest, http.CanonicalHeaderKey(name)) {
			d.warn(at, d.shown(at,
				name)+" is different in each request of most clients and proxies, which then have no affinity",
				"list it only if your clients send the same value for all requests of a session")
		}
	}
}

// longLookup is a time for tokens above which a warning is worth it: /tokenize takes milliseconds.
const longLookup = 250 * time.Millisecond

func (d *decoder) checkTokenizer(path, file string) {
	if file == "" || d.draft || d.tokens[file] != nil { // a draft may not read files
		return
	}
	t, err := tokenizer.Load(file)
	if err != nil {
		d.report(path, fmt.Sprintf("cannot use %s: %v", d.shown(path, file), errors.Unwrap(err)),
			"name the tokenizer.json of the model, relative to the working directory of the process; "+
				"without the key, the engines tokenize")
		return
	}
	d.tokens[file] = t
}

// Tokenizer returns the tokenizer of a policy; nil if it has none. A draft has those of the file beside
// which it is evaluated.
func (f *File) Tokenizer(c routing.Config) *tokenizer.Tokenizer { return f.tokens[c.Tokenizer] }

// checkContexts warns of tiers with a smaller context than a lower tier: overlong prompts
// cannot move up to them.
func (d *decoder) checkContexts(tiers []Tier) {
	longest := -1
	for i, t := range tiers {
		switch {
		case t.Context == 0:
		case longest < 0 || t.Context >= tiers[longest].Context:
			longest = i
		default:
			d.warn(fmt.Sprintf("tiers[%d].context", i),
				fmt.Sprintf("%d is less than the %d of tiers[%d], so a prompt that is too long for %s cannot move up to this tier",
					t.Context, tiers[longest].Context, longest, quote(tiers[longest].Name)),
				fmt.Sprintf("raise it to at least %d, or move this tier before tiers[%d]", tiers[longest].Context, longest))
		}
	}
}

// checkModels checks the models that the workers of a tier or pool name, and that a worker
// serves each model of the section.
func (d *decoder) checkModels(s section) {
	names := distinct(append([]string{s.Model}, s.Models...))
	served := map[string]bool{}
	for i, w := range s.Workers {
		path := itemPath(s.path+".workers", i) + ".models"
		switch {
		case len(w.Models) > 0:
		case d.written(path):
			d.report(path, "the list is empty", "list models of its "+s.kind()+", or remove the key to serve all of them")
			fallthrough
		default:
			for _, name := range names {
				served[name] = true
			}
		}
		for j, name := range w.Models {
			at := fmt.Sprintf("%s[%d]", path, j)
			served[name] = true
			if !slices.Contains(names, name) {
				hint := "add it to " + s.path + ".models, by which clients request it, or remove it here"
				if near := nearest(name, names); near != "" {
					hint = "did you mean " + near + "?"
				}
				d.report(at, d.shown(at, name)+" is not a model of its "+s.kind(), hint)
			}
		}
	}
	if len(s.Workers) == 0 {
		return
	}
	for _, name := range names {
		if at := s.modelPath(name); !served[name] {
			d.report(at, "no worker serves "+d.shown(at, name), "add it to the models of a worker, or remove it here")
		}
	}
}

func (s section) kind() string {
	if s.tier {
		return "tier"
	}
	return "pool"
}

func (s section) modelPath(name string) string {
	if i := slices.Index(s.Models, name); i >= 0 && name != s.Model {
		return fmt.Sprintf("%s.models[%d]", s.path, i)
	}
	return s.path + ".model"
}

// checkClassifier checks what package tiers cannot see: threshold keys that are not tiers, and
// empty lists. It returns the rules without such keys, and the file's paths by the spelling of
// package tiers.
func (d *decoder) checkClassifier(f *File) (rules tiers.Rules, paths map[string]string) {
	var names []string
	for _, t := range f.Tiers {
		names = append(names, t.Name)
	}
	rules, paths = f.Classifier, map[string]string{}
	rules.PromptTokens = ofTiers(d, "classifier.prompt_tokens", rules.PromptTokens, names, paths)
	rules.MaxTokens = ofTiers(d, "classifier.max_tokens", rules.MaxTokens, names, paths)
	rules.KeywordScore = ofTiers(d, "classifier.keyword_score", rules.KeywordScore, names, paths)
	rules.Score = ofTiers(d, "classifier.score", rules.Score, names, paths)
	rules.Share = ofTiers(d, "classifier.share", rules.Share, names, paths)
	d.checkTier("classifier.default", rules.Default, names)
	for i, k := range rules.Keywords {
		path := fmt.Sprintf("classifier.keywords[%d]", i)
		d.checkTier(path+".tier", k.Tier, names)
		if len(k.In) == 0 && d.written(path+".in") {
			d.report(path+".in", "the list is empty", "list user, system or both, or remove the key for the default, user")
		}
	}
	return rules, paths
}

// checkTier reports a mistyped tier name. Package tiers reports all other unknown names.
func (d *decoder) checkTier(path, name string, names []string) {
	if near := nearest(name, names); near != "" && !slices.Contains(names, name) {
		d.report(path, "unknown tier "+d.shown(path, name), "did you mean "+near+"?")
	}
}

// ofTiers reports the keys of a section that are not tier names and returns the others. It adds
// their paths, by the spelling of package tiers, to paths.
func ofTiers[N int64 | float64](d *decoder, path string, section map[string]N, names []string,
	paths map[string]string) map[string]N {
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
		d.reportAt(sub, d.places[sub].key(), "no tier has this name", DidYouMean(name, distinct(names)))
	}
	return known
}

// checkDialects warns of targets of a list that do not serve what the first one serves.
func (d *decoder) checkDialects(f *File, rename func(path string) string) {
	serves := map[string][]string{}
	for _, s := range f.sections() {
		serves[s.Name] = s.serves()
	}
	for _, l := range f.catalog.Lists() {
		first := l.Targets[0]
		for i, name := range l.Targets[1:] {
			var lacks []string
			for _, kind := range serves[first] {
				if !slices.Contains(serves[name], kind) {
					lacks = append(lacks, kind)
				}
			}
			if at := i + 1; len(lacks) > 0 {
				if l.Own {
					at--
				}
				d.warn(rename(fmt.Sprintf("%s[%d]", l.Key, at)),
					fmt.Sprintf("%s does not serve %s, which %s serves: such requests "+
						"pass it over", quote(name), strings.Join(lacks, ", "), quote(first)), "remove it, or name a target that serves them")
			}
		}
	}
}

// Catalog returns the names of tiers and pools, compiled with the classifier's rules. It is nil
// unless the File, or the File that it is a copy of, comes from Load, Parse, FromFlags or
// Draft.
func (f *File) Catalog() *tiers.Catalog { return f.catalog }

// catalogConfig returns the input of tiers.New.
func (f *File) catalogConfig() tiers.Config {
	c := tiers.Config{Aliases: f.Models, Default: f.Classifier.Default, Rules: f.Classifier,
		Model: f.tiersModel()}
	for _, s := range f.sections() {
		c.Targets = append(c.Targets, tiers.Target{Name: s.Name, Tier: s.tier, Model: s.Model, Models: s.Models,
			Fallback: s.Fallback})
	}
	if c.Default == "" && len(f.Tiers) > 0 {
		c.Default = f.Tiers[0].Name
	}
	return c
}

// checkCatalog compiles the catalog and reports the errors and warnings of tiers.New at their
// lines.
func (d *decoder) checkCatalog(f *File) {
	if f.Classifier.Default == "" {
		d.reported["classifier.default"] = true // it defaults to the first tier; tier names are checked elsewhere
	}
	c := f.catalogConfig()
	rules, paths := d.checkClassifier(f)
	c.Rules = rules
	catalog, err := tiers.New(c)
	for alias, targets := range f.Models {
		key, ours := fmt.Sprintf("models[%q]", alias), join("models", alias)
		paths[key] = ours
		for i := range targets {
			paths[fmt.Sprintf("%s[%d]", key, i)] = fmt.Sprintf("%s[%d]", ours, i)
		}
	}
	rename := func(path string) string {
		if ours, ok := paths[path]; ok {
			return ours
		}
		return path
	}
	d.reportErrors(err, rename)
	if err != nil {
		return
	}
	f.catalog = catalog
	d.checkDialects(f, rename)
	for _, warning := range catalog.Warnings() {
		path, message := cutPath(warning)
		message, hint := cutHint(message)
		// Slow or many expressions still work. A rule that can never match is a mistake, like an
		// alias that can never match.
		if strings.Contains(path, "].match[") || path == "classifier.keywords" {
			d.warn(rename(path), message, hint)
		} else {
			d.report(rename(path), message, hint)
		}
	}
}
