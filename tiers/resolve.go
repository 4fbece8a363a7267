package tiers

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrUnknownModel means that the name leads nowhere, or nowhere that the tenant
// may go: the two are not told apart, so that nobody learns what others use.
var ErrUnknownModel = errors.New("unknown model")

// ErrTooLong means that the prompt fits neither where it was to go nor anywhere
// that it may be moved to.
var ErrTooLong = errors.New("prompt too long")

// Notes of a Resolution. They repeat nothing that the client sent.
const (
	NoteUnknownHeader = "unknown X-Model-Tier ignored"
	NoteOutsideTiers  = "X-Model-Tier ignored: the model is outside the tiers"
)

// Query is what decides where a request goes.
type Query struct {
	Model        string                   // as the client wrote it; may be empty
	Header       string                   // X-Model-Tier; may be empty
	Allowed      func(target string) bool // may the tenant use that tier or pool? nil: all
	AllowedModel func(model string) bool  // may the tenant ask by that name, also the empty one? nil: all
	Features     *Features                // what the request is classified by; nil: it goes to the default tier
	Chats        *Chats                   // chats that stay at their tier; nil: none do
	Fits         func(target string) bool // does the prompt fit the target's context? false is a refusal, and owes certainty: true for an estimate that may be wrong; nil: it does
	Available    func(target string) bool // is anybody of the target up? nil: yes
	Moves        *[]Move                  // appended to for each tier that is passed over; nil: not asked for
	Evidence     *Evidence                // filled when the request is classified; nil: not asked for
	Explained    *Explanation             // likewise
}

// yes asks a function of a Query about a target; one that is nil says yes.
func permits(ask func(target string) bool, target string) bool { return ask == nil || ask(target) }

// Resolution is where a request goes and why.
type Resolution struct {
	Target string
	Tier   bool   // Target is a tier, not a pool
	Model  string // what to ask the worker for; empty keeps the client's name
	Rule   string // the step that decided: header, model, alias, prompt_tokens, max_tokens, keyword:NAME, sticky, clamped, context, unavailable or default
	Note   string // what that step passed over, such as "keyword:code asked for large", or why max_tokens was not counted; empty mostly
	Pinned bool   // asked by the engine's own model name: the request must not be moved
}

// Evidence is what a request was classified by, in a form that can be kept: names
// and numbers.
type Evidence struct {
	Classified bool     // the content was looked at
	Counted    int64    // the prompt's tokens, where they were counted; 0 when the estimate was enough
	UserBytes  int      // of the last user turn, as far as it is looked at
	Groups     []string // the names of all keyword groups that matched
}

// Explanation is what a request was classified by, and why.
type Explanation struct {
	Tier    string   `json:"tier"` // what the classifier alone says
	Rule    string   `json:"rule"`
	Score   float64  `json:"score"` // as Classification has it
	Signals []Signal `json:"signals"`
}

// note adds to what was passed over.
func (v *Resolution) addNote(text string) {
	if v.Note != "" {
		v.Note += "; "
	}
	v.Note += text
}

// Resolve says where a request goes. The model's name decides, exact names
// before globs and the longest glob first; a request that leaves the choice to
// the gateway is classified, and its chat does not fall; among tiers
// X-Model-Tier overrules both, and what it overrules is not classified.
//
// Nothing that q does not allow is ever returned: the header and the class are
// clamped to the nearest lower allowed tier, else to the nearest higher, the
// header also to tiers that an allowed name leads to; any other name that leads
// to what is not allowed fails with ErrUnknownModel, with a header or without.
//
// A prompt that does not fit moves to the next higher tier that takes it, and
// one whose tier has nobody up as the rules say; neither moves a request out of
// a pool, or one that the engine's own model name pins. A prompt that fits
// nowhere fails with ErrTooLong and a verdict for the highest tier that it may
// go to.
func (k *Catalog) Resolve(q Query) (Resolution, error) {
	if q.AllowedModel != nil && !q.AllowedModel(q.Model) {
		return Resolution{}, ErrUnknownModel
	}
	r, ok := k.lookup(q.Model)
	if !ok {
		return Resolution{}, ErrUnknownModel
	}
	v := Resolution{Model: r.model, Rule: r.rule, Pinned: r.pinned}
	at, classified := r.target, r.fallback && k.headerTier(&q) < 0
	if classified && q.Features != nil {
		at = k.classify(&v, &q)
	}
	if r.fallback {
		asked := at
		if at, ok = k.clamp(at, func(i int) bool { return permits(q.Allowed, k.targets[i].Name) }); !ok {
			return Resolution{}, ErrUnknownModel
		}
		if at != asked {
			k.noteMove(&q, &v, asked, "clamped")
		}
		v.Model = k.targets[at].asked()
	} else if !permits(q.Allowed, k.targets[at].Name) {
		return Resolution{}, ErrUnknownModel
	}
	if q.Header != "" {
		at = k.overrule(&v, at, &q)
	}
	at, err := k.fitContext(&v, at, r.fallback, &q)
	if err == nil {
		if classified && k.usesChats(&q) {
			// Before it is moved for want of workers: that lasts for a moment, and
			// the chat has no cache there.
			q.Chats.remember(q.Features, k.targets[at].hash)
		}
		at = k.avoidUnavailable(&v, at, r.fallback, &q)
	}
	v.Target, v.Tier = k.targets[at].Name, k.targets[at].Tier
	return v, err
}

// Move is a tier that a rule asked for and did not get.
type Move struct {
	Tier string `json:"tier"`
	Rule string `json:"rule"` // that asked for it
	By   string `json:"by"`   // that decided instead: sticky, clamped, context or unavailable
}

// passOver notes which tier the rule so far asked for, and who decides instead.
func (k *Catalog) noteMove(q *Query, v *Resolution, at int, rule string) {
	if q.Moves != nil {
		*q.Moves = append(*q.Moves, Move{Tier: k.targets[at].Name, Rule: v.Rule, By: rule})
	}
	switch v.Rule {
	case "clamped", "context":
		v.addNote(v.Rule + " to " + k.targets[at].Name)
	default:
		v.addNote(v.Rule + " asked for " + k.targets[at].Name)
	}
	v.Rule = rule
}

// move moves a request from a target to another one, by a rule.
func (k *Catalog) move(q *Query, v *Resolution, from, to int, rule string) int {
	k.noteMove(q, v, from, rule)
	v.Model = k.targets[to].asked()
	return to
}

// lookup finds where a name leads.
func (k *Catalog) lookup(model string) (route, bool) {
	if model == "" {
		return k.normal, k.normal.target >= 0
	}
	if r, ok := k.names[model]; ok {
		return r, true
	}
	for i := range k.globs {
		if k.globs[i].match.MatchString(model) {
			return k.globs[i].to, true
		}
	}
	return route{}, false
}

// sticks tells whether the request's chat is to stay at its tier.
func (k *Catalog) usesChats(q *Query) bool {
	return q.Chats != nil && q.Features != nil && k.idle > 0
}

// classify returns the tier that a request is given by its content and its chat.
func (k *Catalog) classify(v *Resolution, q *Query) int {
	class := k.classifier.decide(q.Features, q.Evidence, q.Explained)
	v.Rule = class.Rule
	if class.Note != "" {
		v.addNote(class.Note)
	}
	at := k.tiers[class.Tier]
	if !k.usesChats(q) {
		return at
	}
	hash, ok := q.Chats.recall(q.Features, k.idle, true)
	kept := slices.IndexFunc(k.tiers, func(i int) bool { return k.targets[i].hash == hash })
	if !ok || kept < 0 {
		return at
	}
	if q.Explained != nil {
		q.Explained.Signals = append(q.Explained.Signals, Signal{Rule: "sticky", Tier: k.targets[k.tiers[kept]].Name})
	}
	if kept <= class.Tier {
		return at
	}
	k.noteMove(q, v, at, "sticky")
	return k.tiers[kept]
}

// asked returns which of the tiers X-Model-Tier names, or -1.
func (k *Catalog) headerTier(q *Query) int {
	if q.Header == "" {
		return -1
	}
	return slices.IndexFunc(k.tiers, func(i int) bool { return strings.EqualFold(k.targets[i].Name, q.Header) })
}

// overrule applies X-Model-Tier to a verdict for the target at, and returns the
// target that it leads to.
func (k *Catalog) overrule(v *Resolution, at int, q *Query) int {
	if !k.targets[at].Tier {
		v.addNote(NoteOutsideTiers)
		return at
	}
	asked := k.headerTier(q)
	if asked < 0 {
		v.addNote(NoteUnknownHeader)
		return at
	}
	// Where the model's name leads is always allowed, so that a clamp ends.
	to, _ := k.clamp(k.tiers[asked], func(i int) bool {
		return i == at || permits(q.Allowed, k.targets[i].Name) && k.mayNameTier(i, q)
	})
	if to != at {
		v.Model = k.targets[to].asked()
	}
	*v = Resolution{Model: v.Model, Rule: "header"}
	if to != k.tiers[asked] {
		k.noteMove(q, v, k.tiers[asked], "clamped")
	}
	return to
}

// named tells whether a tier may be asked for by one of the names that lead to
// it: a header is no way around the names that a tenant is kept to. A glob counts
// as its own pattern.
func (k *Catalog) mayNameTier(tier int, q *Query) bool {
	return q.AllowedModel == nil || slices.ContainsFunc(k.targets[tier].leads, q.AllowedModel)
}

// clamp returns the tier itself when it is allowed, else the nearest lower
// allowed one, else the nearest higher.
func (k *Catalog) clamp(tier int, allowed func(target int) bool) (int, bool) {
	at := slices.Index(k.tiers, tier)
	if allowed(tier) {
		return tier, true
	}
	if i, ok := k.nearest(at, -1, allowed); ok {
		return i, true
	}
	return k.nearest(at, 1, allowed)
}

// nearest returns the nearest tier that will do, in one direction from the one
// at an index, which is left out.
func (k *Catalog) nearest(at, step int, do func(target int) bool) (int, bool) {
	for i := at + step; i >= 0 && i < len(k.tiers); i += step {
		if do(k.tiers[i]) {
			return k.tiers[i], true
		}
	}
	return 0, false
}

// may tells whether a request may be moved to a tier; free says that it left the
// choice to the gateway.
func (k *Catalog) mayMoveTo(i int, free bool, q *Query) bool {
	return permits(q.Allowed, k.targets[i].Name) && (free || k.mayNameTier(i, q))
}

// movable tells whether a request may leave where it is.
func (k *Catalog) movable(v *Resolution, at int) bool { return k.targets[at].Tier && !v.Pinned }

// fit moves a request whose prompt its tier does not hold to the next higher one
// that does. A prompt that fits nowhere goes to the highest tier that it may move to,
// where it has the best chance, and the error says so.
func (k *Catalog) fitContext(v *Resolution, at int, free bool, q *Query) (int, error) {
	if permits(q.Fits, k.targets[at].Name) {
		return at, nil
	}
	err := fmt.Errorf("%w: %q does not take it", ErrTooLong, k.targets[at].Name)
	if !k.movable(v, at) {
		return at, err
	}
	here := slices.Index(k.tiers, at)
	if to, ok := k.nearest(here, 1, func(i int) bool { return k.mayMoveTo(i, free, q) && permits(q.Fits, k.targets[i].Name) }); ok {
		return k.move(q, v, at, to, "context"), nil
	}
	for _, i := range slices.Backward(k.tiers[here+1:]) {
		if k.mayMoveTo(i, free, q) {
			return k.move(q, v, at, i, "context"), err
		}
	}
	return at, err
}

// reach moves a request whose tier has nobody up as the rules say.
func (k *Catalog) avoidUnavailable(v *Resolution, at int, free bool, q *Query) int {
	if !k.movable(v, at) || k.unavailableStep == 0 || permits(q.Available, k.targets[at].Name) {
		return at
	}
	up := func(i int) bool {
		return k.mayMoveTo(i, free, q) && permits(q.Fits, k.targets[i].Name) && permits(q.Available, k.targets[i].Name)
	}
	here := slices.Index(k.tiers, at)
	for _, step := range []int{k.unavailableStep, -k.unavailableStep} {
		if to, ok := k.nearest(here, step, up); ok {
			return k.move(q, v, at, to, "unavailable")
		}
	}
	return at
}

// Models returns the names that q may ask by, as /v1/models lists them: tiers,
// models, aliases that are no globs, and Auto; sorted, without duplicates. Of q
// only what is allowed plays a part.
func (k *Catalog) Models(q Query) []string {
	names := make([]string, 0, len(k.names))
	for name := range k.names {
		if _, err := k.Resolve(Query{Model: name, Allowed: q.Allowed, AllowedModel: q.AllowedModel}); err == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Classifies tells whether q leaves its tier to the gateway.
func (k *Catalog) Classifies(q Query) bool {
	r, ok := k.lookup(q.Model)
	return ok && r.fallback && k.headerTier(&q) < 0
}

// Default returns the name of the tier that requests go to when no rule decides;
// empty without tiers.
func (k *Catalog) Default() string {
	if k.normal.target < 0 {
		return ""
	}
	return k.targets[k.normal.target].Name
}
