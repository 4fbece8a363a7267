package tiers

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrUnknownModel means that the name is unknown, or that the tenant may not use its target.
// The two cases have one error, so that a tenant learns nothing about other tenants.
var ErrUnknownModel = errors.New("unknown model")

// ErrTooLong means that the prompt fits neither its target nor any tier that it
// may be moved to.
var ErrTooLong = errors.New("prompt too long")

// Notes of a Resolution. They repeat nothing that the client sent.
const (
	NoteUnknownHeader = "unknown X-Model-Tier ignored"
	NoteOutsideTiers  = "X-Model-Tier ignored: the model is outside the tiers"
	NoteHookModel     = "X-Model-Tier ignored: a hook changed the model"
)

// Query is the input of Resolve.
type Query struct {
	Model   string                   // as the client sent it; may be empty
	Header  string                   // X-Model-Tier; may be empty
	Allowed func(target string) bool // whether the tenant may use that tier or pool; nil: all
	// whether the tenant may use that model name, including the empty one; nil: all
	AllowedModel func(model string) bool
	Input        *ClassifierInput // input of the classifier; nil: the default tier
	Chats        *Chats           // chats that stay at their tier; nil: none
	// Recent has the scores of earlier requests, for classifier.share; nil: none, so that
	// keyword_score decides. Resolve adds no score.
	Recent  *RecentScores
	Explore Exploration // of a classified request whose chat has no tier yet
	// Fits reports whether the prompt fits the target's context. False refuses, and must be
	// certain: an uncertain estimate is true. nil: it fits.
	Fits      func(target string) bool
	Available func(target string) bool // whether a worker of the target is up; nil: yes
	// Blocked returns why a target of a list cannot take the request, as the end of a sentence
	// such as "has no healthy worker"; empty: it can. nil: every target can.
	Blocked  func(target string) string
	Moves    *[]Move           // receives each tier that was passed over, unless nil
	Pending  *PendingScore     // filled when the request is classified, unless nil: for RecentScores.Add
	Evidence *Evidence         // filled when the request is classified, unless nil
	Report   *ClassifierReport // filled when the request is classified, unless nil
}

// permits calls a function of a Query for a target; nil permits everything.
func permits(ask func(target string) bool, target string) bool { return ask == nil || ask(target) }

// Resolution is the target of a request and the reason.
type Resolution struct {
	Target string
	Tier   bool   // Target is a tier, not a pool
	Model  string // model name to send to the worker; empty keeps the client's name
	// Rule is the step that decided: header, model, alias, prompt_tokens, max_tokens,
	// keyword:NAME, score, share, exploration, sticky, clamped, context, unavailable, fallback:TARGET or default.
	Rule string
	// Note is what that step overrode, such as "keyword:code selected large", why
	// max_tokens was not counted, or how the score compares; mostly empty.
	Note string
	// Pinned means that the request must not be moved: the engine's own model name requested it, or
	// its budget is spent.
	Pinned bool

	list  *targetList // the targets among which the request may move; nil: none
	index int         // of Target in list
	// selected is the resolution to the tier that the rules selected, if that had no worker up; nil: this one
	selected *Resolution
}

// Evidence is what a request was classified by, as names and numbers that can be stored.
type Evidence struct {
	Classified bool        // the content was examined
	Counted    int64       // prompt tokens if they were counted; 0: the estimate sufficed
	UserBytes  int         // length of the last user turn, as far as it is searched
	Groups     []string    // names of all matched keyword groups
	Score      *Scored     // nil: the rules select no tier by scores
	Model      *ModelScore // nil: there is no model
}

// Scored is the score of a request with the thresholds that decided its tier.
type Scored struct {
	// Classification.Score; with Model the value of ModelScore
	Value      float64     `json:"value"`
	Model      string      `json:"model,omitempty"`      // ModelScore.Model if its score orders the prompts
	Thresholds []TierScore `json:"thresholds,omitempty"` // highest tier first; nil: keyword_score decided
}

// ClassifierReport is the result of the classifier with its signals.
type ClassifierReport struct {
	Tier    string      `json:"tier"` // the classifier's tier
	Rule    string      `json:"rule"`
	Score   float64     `json:"score"`                 // Classification.Score
	Model   *ModelScore `json:"model_score,omitempty"` // nil: there is no model
	Signals []Signal    `json:"signals"`
	// Explorable reports whether an Exploration could select the tier of the request.
	Explorable bool `json:"-"`
}

// AddNote appends to the note.
func (v *Resolution) AddNote(text string) {
	if v.Note != "" {
		v.Note += "; "
	}
	v.Note += text
}

// Resolve returns the target of a request.
//
// The model's name decides: exact names before globs, and the longest glob first. A request
// that leaves the choice to the gateway is classified, and its chat does not move to a lower
// tier. Some requests of new chats are explored instead. Among tiers, X-Model-Tier overrides
// all of these, and a request that it overrides is not classified.
//
// The result is always allowed by q. The header and the classification are clamped to the
// nearest lower allowed tier, or else to the nearest higher one; the header also to tiers that
// an allowed name leads to. Any other name of a forbidden target fails with ErrUnknownModel, with
// or without a header.
//
// A request whose name leads to several targets, or whose target has a fallback, gets the first
// of these that can take it. If all are blocked, it stays at the first where it fits.
//
// Any other prompt that does not fit, and one that fits none of its targets, moves to the next
// higher tier where it fits. If the tier has no worker up, the request moves as the rules say. Neither moves a
// request out of a pool, nor one that
// the engine's own model name pins. A prompt that fits nowhere fails with ErrTooLong, and the
// resolution has the highest tier that it may use.
func (k *Catalog) Resolve(q Query) (Resolution, error) {
	if q.AllowedModel != nil && !q.AllowedModel(q.Model) {
		return Resolution{}, ErrUnknownModel
	}
	r, ok := k.lookup(q.Model)
	if !ok {
		return Resolution{}, ErrUnknownModel
	}
	v := Resolution{Model: r.model, Rule: r.rule, Pinned: r.pinned, list: r.list}
	at, classified := r.target, r.free && k.headerTier(&q) < 0
	if classified && q.Input != nil {
		at = k.classify(&v, &q, r.alias)
	}
	if r.free {
		asked := at
		if at, ok = k.clamp(at, func(i int) bool { return permits(q.Allowed, k.targets[i].Name) }); !ok {
			return Resolution{}, ErrUnknownModel
		}
		if at != asked {
			k.noteMove(&q, &v, asked, "clamped")
		}
		v.Model = k.targets[at].workerModel()
	} else if at, ok = k.firstAllowed(&v, at, &q); !ok {
		return Resolution{}, ErrUnknownModel
	}
	if q.Header != "" {
		at = k.applyHeader(&v, at, &q)
	}
	if v.list == nil && !v.Pinned {
		v.list = k.targets[at].list
	}
	// A chat is remembered at its tier before a move for workers that cannot take the request: the
	// move is short, and the chat has no cache there.
	remember := func() {
		if classified && k.usesChats(&q) {
			q.Chats.remember(q.Input, k.targets[at].hash)
		}
	}
	if v.list != nil {
		if to, ok := k.chooseFromList(v, r.free, &q); ok {
			remember()
			return to, nil
		}
		v.list = nil
	}
	at, err := k.fitContext(&v, at, r.free, &q)
	if err == nil {
		remember()
	}
	if to := k.avoidUnavailable(&v, at, r.free, &q); to != at {
		at, err = to, nil // the prompt fits there
	}
	v.Target, v.Tier = k.targets[at].Name, k.targets[at].Tier
	return v, err
}

// Move is a tier that a rule requested and another rule overrode.
type Move struct {
	Tier string `json:"tier"`
	Rule string `json:"rule"` // the rule that requested it
	By   string `json:"by"`   // the rule that overrode it: exploration, sticky, clamped, context, unavailable, budget or fallback
	// why a target of a list was passed over, as the end of a sentence about it; else empty
	Why string `json:"why,omitempty"`
}

// noteMove records the tier that the rule so far requested, and the rule that overrides it.
func (k *Catalog) noteMove(q *Query, v *Resolution, at int, rule string) {
	if q.Moves != nil {
		*q.Moves = append(*q.Moves, Move{Tier: k.targets[at].Name, Rule: v.Rule, By: rule})
	}
	v.AddNote(overridden(v.Rule, k.targets[at].Name))
	v.Rule = rule
}

// overridden returns the note about the target that a rule selected and another rule overrode.
func overridden(rule, target string) string {
	switch rule {
	case "clamped", "context":
		return rule + " to " + target
	}
	return rule + " selected " + target
}

// move moves a request from one target to another by a rule.
func (k *Catalog) move(q *Query, v *Resolution, from, to int, rule string) int {
	k.noteMove(q, v, from, rule)
	v.Model = k.targets[to].workerModel()
	return to
}

func (k *Catalog) lookup(model string) (route, bool) {
	if model == "" {
		return k.defaultRoute, k.defaultRoute.target >= 0
	}
	if r, ok := k.names[model]; ok {
		return r, true
	}
	for i := range k.globs {
		if MatchGlob(k.globs[i].pattern, model) {
			return k.globs[i].to, true
		}
	}
	return route{}, false
}

// usesChats reports whether the request's chat stays at its tier.
func (k *Catalog) usesChats(q *Query) bool {
	return q.Chats != nil && q.Input != nil && k.chatIdle > 0
}

// classify returns the tier of a request by its content and its chat, or at random if it is explored.
func (k *Catalog) classify(v *Resolution, q *Query, alias uint64) int {
	class := k.classifier.decide(q.Input, windowSource{q.Recent, alias}, q.Evidence, q.Report, q.Pending)
	v.Rule = class.Rule
	if class.Note != "" {
		v.AddNote(class.Note)
	}
	at := k.tiers[class.Tier]
	if !k.usesChats(q) {
		return k.explore(v, q, at)
	}
	hash, ok := q.Chats.recall(q.Input, k.chatIdle, true)
	kept := slices.IndexFunc(k.tiers, func(i int) bool { return k.targets[i].hash == hash })
	if !ok || kept < 0 {
		return k.explore(v, q, at)
	}
	if q.Report != nil {
		q.Report.Signals = append(q.Report.Signals, Signal{Rule: "sticky", Tier: k.targets[k.tiers[kept]].Name})
	}
	if kept <= class.Tier {
		return at
	}
	k.noteMove(q, v, at, "sticky")
	return k.tiers[kept]
}

// headerTier returns the index among the tiers that X-Model-Tier names, or -1.
func (k *Catalog) headerTier(q *Query) int {
	if q.Header == "" {
		return -1
	}
	return slices.IndexFunc(k.tiers, func(i int) bool { return strings.EqualFold(k.targets[i].Name, q.Header) })
}

// applyHeader applies X-Model-Tier to a resolution for the target at, and returns the new target.
func (k *Catalog) applyHeader(v *Resolution, at int, q *Query) int {
	if !k.targets[at].Tier {
		v.AddNote(NoteOutsideTiers)
		return at
	}
	asked := k.headerTier(q)
	if asked < 0 {
		v.AddNote(NoteUnknownHeader)
		return at
	}
	// The target of the model's name is always allowed, so that the clamp succeeds.
	to, _ := k.clamp(k.tiers[asked], func(i int) bool {
		return i == at || permits(q.Allowed, k.targets[i].Name) && k.mayNameTier(i, q)
	})
	if to != at {
		v.Model = k.targets[to].workerModel()
	}
	*v = Resolution{Model: v.Model, Rule: "header"}
	if to != k.tiers[asked] {
		k.noteMove(q, v, k.tiers[asked], "clamped")
	}
	return to
}

// mayNameTier reports whether the tenant may use one of the names that lead to a tier. Otherwise a
// header could bypass a restriction by model. A glob counts as its own pattern.
func (k *Catalog) mayNameTier(tier int, q *Query) bool {
	return q.AllowedModel == nil || slices.ContainsFunc(k.targets[tier].leads, q.AllowedModel)
}

// clamp returns the tier itself if it is allowed, or else the nearest lower allowed one, or
// else the nearest higher one.
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

// nearest returns the nearest suitable tier in one direction from the index at, which is
// excluded.
func (k *Catalog) nearest(at, step int, do func(target int) bool) (int, bool) {
	for i := at + step; i >= 0 && i < len(k.tiers); i += step {
		if do(k.tiers[i]) {
			return k.tiers[i], true
		}
	}
	return 0, false
}

// mayMoveTo reports whether a request may be moved to a tier; free means that it left the
// choice to the gateway.
func (k *Catalog) mayMoveTo(i int, free bool, q *Query) bool {
	return permits(q.Allowed, k.targets[i].Name) && (free || k.mayNameTier(i, q))
}

// movable reports whether a request may leave its target.
func (k *Catalog) movable(v *Resolution, at int) bool { return k.targets[at].Tier && !v.Pinned }

// fitContext moves a request to the next higher tier with room if its prompt does not fit. A
// prompt that fits nowhere moves to the highest tier that it may use, which has the best
// chance, with an error.
func (k *Catalog) fitContext(v *Resolution, at int, free bool, q *Query) (int, error) {
	if permits(q.Fits, k.targets[at].Name) {
		return at, nil
	}
	err := fmt.Errorf("%w for the context of %q", ErrTooLong, k.targets[at].Name)
	if !k.movable(v, at) {
		return at, err
	}
	here := slices.Index(k.tiers, at)
	holds := func(i int) bool { return k.mayMoveTo(i, free, q) && permits(q.Fits, k.targets[i].Name) }
	if to, ok := k.nearest(here, 1, holds); ok {
		return k.move(q, v, at, to, "context"), nil
	}
	for _, i := range slices.Backward(k.tiers[here+1:]) {
		if k.mayMoveTo(i, free, q) {
			return k.move(q, v, at, i, "context"), err
		}
	}
	return at, err
}

// Models returns the names that q may use, as /v1/models lists them: tiers, models, aliases
// that are not globs, and Auto; sorted, without duplicates. Only Allowed and AllowedModel of q
// matter.
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

// Classifies reports whether q leaves its tier to the gateway.
func (k *Catalog) Classifies(q Query) bool {
	r, ok := k.lookup(q.Model)
	return ok && r.free && k.headerTier(&q) < 0
}

// Default returns the name of the tier of requests that no rule decides; empty without tiers.
func (k *Catalog) Default() string {
	if k.defaultRoute.target < 0 {
		return ""
	}
	return k.targets[k.defaultRoute.target].Name
}
