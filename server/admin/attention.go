package admin

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"tierway/breaker"
	"tierway/config"
	"tierway/decisions"
	"tierway/routing"
	"tierway/server/control"
	"tierway/tenants"
)

// AttentionItem is something that an operator should look at.
type AttentionItem struct {
	Severity string `json:"severity" enum:"error,warning"`
	Subject  string `json:"subject" doc:"The part of the gateway, such as worker small-1. Empty: the message is about further items."`
	Message  string `json:"message"`
	Link     string `json:"link" doc:"Route of the admin UI that shows the subject, such as workers?q=small-1."`
}

// The severities.
const (
	severityError   = "error"   // requests fail or may fail now
	severityWarning = "warning" // less capacity, or a failure that is due later
)

const (
	// attentionMost is the largest number of items. More would fill several screens.
	attentionMost = 50
	// overrideNotice is the time before the end of an override from which on it is listed: enough to
	// extend it.
	overrideNotice = 10 * time.Minute
)

// attention returns what needs an operator, errors first.
func (a *overviewAPI) attention(pools []poolView, now time.Time) []AttentionItem {
	var items []AttentionItem
	for i := range pools {
		items = append(items, poolAttention(&pools[i])...)
		items = append(items, lmcacheAttention(&pools[i])...)
	}
	items = append(items, a.unansweredAttention(pools)...)
	items = append(items, hookAttention(a.control.Snapshot().Hooks, now)...)
	items = append(items, storeAttention(a.configs.redisState(), a.configs.sqlState())...)
	items = append(items, fleetAttention(a.control.Pools.Sharing())...)
	items = append(items, a.file.attention(a.options.Path, a.control.Snapshot(), now, a.control.ReadSource)...)
	for i := range pools {
		for j := range pools[i].workers {
			items = append(items, overrideAttention(&pools[i].workers[j], now)...)
		}
	}
	return orderedAttention(append(items, a.directory.attention(now)...))
}

// orderedAttention returns the items with the errors first. If there are too many, the last item is
// the number of the others.
func orderedAttention(items []AttentionItem) []AttentionItem {
	rank := map[string]int{severityError: 0, severityWarning: 1}
	slices.SortStableFunc(items, func(a, b AttentionItem) int { return cmp.Compare(rank[a.Severity], rank[b.Severity]) })
	if more := len(items) - attentionMost; more > 0 {
		left := items[attentionMost]
		items = append(items[:attentionMost], AttentionItem{Severity: left.Severity, Link: left.Link,
			Message: fmt.Sprintf("and %d more", more)})
	}
	return append([]AttentionItem{}, items...)
}

func poolAttention(p *poolView) (items []AttentionItem) {
	message, severity := p.stagesAttention()
	switch {
	case severity == severityError: // no request is served
	case !slices.ContainsFunc(p.workers, func(w workerState) bool { return w.inRotation && !w.failing() }):
		severity = severityError
		message = "The breaker of each worker in rotation is open or half open. Most requests fail or are rejected."
	case message == "" && !slices.ContainsFunc(p.workers, func(w workerState) bool {
		return w.inRotation && w.State == "up" && !w.failing()
	}):
		severity = severityWarning // most backoffs last a second
		message = "Each worker in rotation is in backoff, or its breaker is not closed. Most requests wait or are rejected."
	}
	if message != "" {
		items = append(items, AttentionItem{Severity: severity, Subject: p.subject(), Message: message,
			Link: "workers?pool=" + url.QueryEscape(p.Name)})
	}
	for i := range p.workers {
		w := &p.workers[i]
		switch {
		case w.State == "down":
			items = append(items, workerAttention(w, severityError,
				"Down"+timeSuffix(" since ", w.Since)+causeSuffix(w.LastError)+"."))
		case w.State == "open":
			items = append(items, workerAttention(w, severityError,
				"Its breaker is open"+timeSuffix(" until ", w.Breaker.Until)+causeSuffix(w.Breaker.Cause)+"."+w.Failure.sentence()))
		case w.State == "half_open":
			items = append(items, workerAttention(w, severityError,
				"Its breaker is half open"+timeSuffix(" since ", w.Breaker.Since)+causeSuffix(w.Breaker.Cause)+
					": only a few requests probe it."+w.Failure.sentence()))
		case w.failing():
			items = append(items, workerAttention(w, severityError,
				"Its breaker is "+strings.ReplaceAll(w.Breaker.State, "_", " ")+timeSuffix(" since ", w.Breaker.Since)+
					causeSuffix(w.Breaker.Cause)+". The ejection cap keeps it in rotation with a part of its share."+
					w.Failure.sentence()))
		case w.State == "backoff":
			items = append(items, workerAttention(w, severityWarning,
				"In backoff: it returned 429, 503 or 529, or rejected the gateway's key."))
		}
	}
	return items
}

// stagesAttention returns which kind of worker is not in rotation, and what that means for requests; "" if none.
func (p *poolView) stagesAttention() (message, severity string) {
	missing, serves := control.MissingWorkers(p.workers, func(w *workerState) (routing.Stages, bool) {
		return w.Stages, w.inRotation
	})
	severity = severityError
	switch {
	case missing == "":
		return "", ""
	case serves:
		severity, message = severityWarning, " is in rotation: decode workers compute the prompts."
	case missing == control.NoPrefillWorker:
		message = " is in rotation, and the other workers compute no prompts. Requests wait, move to another tier or fail."
	default:
		message = " is in rotation. Requests wait, move to another tier or fail."
	}
	return strings.ToUpper(missing[:1]) + missing[1:] + message, severity
}

// subject returns the pool as the subject of an item.
func (p *poolView) subject() string {
	if p.Tier {
		return "tier " + p.Name
	}
	return "pool " + p.Name
}

// failing reports whether the worker's breaker is not closed, also if the ejection cap keeps it in rotation.
func (w *workerState) failing() bool {
	return w.Breaker.State != "" && w.Breaker.State != breaker.Closed.String()
}

// unansweredLeast is the number of requests in the last minute from which on a pool without any good answer is listed.
// Fewer may be the mistakes of one client.
const unansweredLeast = 3

// unansweredAttention returns the pools of which no request was answered in the last minute. If no request of the
// whole gateway was, it also returns those that reached no pool.
func (a *overviewAPI) unansweredAttention(pools []poolView) (items []AttentionItem) {
	outcomes := a.sampler.outcomes()
	answered := int64(0)
	for _, n := range outcomes {
		answered += n.answered
	}
	add := func(subject, pool string, n outcomeCounts) {
		if n.answered > 0 || n.failed+n.refused < unansweredLeast {
			return
		}
		item := AttentionItem{Severity: severityWarning, Subject: subject, Link: "decisions?outcome=refused"}
		if pool != "" {
			item.Link = "decisions?tier=" + url.QueryEscape(pool)
		}
		kinds := []string{}
		if n.failed > 0 {
			item.Severity, kinds = severityError, append(kinds, fmt.Sprintf("%d failed", n.failed))
		}
		if n.refused > 0 {
			kinds = append(kinds, fmt.Sprintf("%d rejected", n.refused))
		}
		item.Message = fmt.Sprintf("None of the last %d requests was answered: %s%s.", n.failed+n.refused,
			strings.Join(kinds, ", "), a.usualCode(pool))
		items = append(items, item)
	}
	for i := range pools {
		add(pools[i].subject(), pools[i].Name, outcomes[pools[i].Name])
	}
	if answered == 0 {
		add("requests", "", outcomes[""])
	}
	return items
}

// usualCodeOf is the number of newest records in which usualCode searches, of all pools.
const usualCodeOf = 200

// usualCode returns the most frequent error code of a pool's newest records, or of those without a pool, as the end of
// a message; "" without records.
func (a *overviewAPI) usualCode(pool string) string {
	found, _ := a.options.Decisions.Page(0, usualCodeOf, func(*decisions.Decision) bool { return true })
	counts, usual := map[string]int{}, ""
	for _, e := range found {
		if code := e.Decision.Code; e.Decision.Tier == pool && code != "" {
			if counts[code]++; counts[code] > counts[usual] {
				usual = code
			}
		}
	}
	if usual == "" {
		return ""
	}
	return ", most with " + usual
}

func workerAttention(w *workerState, severity, message string) AttentionItem {
	return AttentionItem{Severity: severity, Subject: "worker " + w.Name, Message: message,
		Link: "workers?q=" + url.QueryEscape(w.Name)}
}

// sentence returns the failure as a further sentence of a message; "" without one.
func (f *failureState) sentence() string {
	if f == nil {
		return ""
	}
	if f.Status == 0 || strings.Contains(f.Message, strconv.Itoa(f.Status)) {
		return " Last error: " + f.Message
	}
	return fmt.Sprintf(" Last error: %d %s", f.Status, f.Message)
}

// timeSuffix returns the word and the time; "" without a time.
func timeSuffix(word, at string) string {
	if at == "" {
		return ""
	}
	return word + at
}

// causeSuffix returns the cause after a colon; "" without a cause.
func causeSuffix(cause string) string {
	if cause == "" {
		return ""
	}
	return ": " + cause
}

func overrideAttention(w *workerState, now time.Time) (items []AttentionItem) {
	if w.Drain != nil && w.Drain.Overdue {
		items = append(items, workerAttention(w, severityWarning,
			fmt.Sprintf("Its drain has been overdue since %s. Requests in flight: %d.", seconds(*w.Drain.Deadline), w.Inflight)))
	}
	if o := w.Weights.Override; o != nil && !o.Until.IsZero() && o.Until.Sub(now) <= overrideNotice {
		items = append(items, workerAttention(w, severityWarning,
			fmt.Sprintf("Its weight %d expires at %s; then the configured weight %d applies.", w.Weights.Effective,
				seconds(o.Until), w.Weights.File)))
	}
	return items
}

func storeAttention(redis redisView, sql SQLView) (items []AttentionItem) {
	add := func(subject, message string) {
		items = append(items, AttentionItem{Severity: severityError, Subject: subject, Message: message, Link: "metrics"})
	}
	if redis.State == "away" {
		add("redis", "Unavailable: this gateway enforces the limits alone.")
	}
	switch {
	case sql.State == control.DatabaseAway.String() && sql.ReadAt == nil:
		add("database", "Unavailable since the start: its keys, drains and weights are unknown.")
	case sql.State == control.DatabaseAway.String():
		add("database", "Unavailable: tenants are served from memory, and usage rows are buffered.")
	case sql.State == control.DatabaseReadOnly.String():
		add("database", "It rejects writes: usage rows are buffered.")
	}
	return items
}

// fleetAttention reports gateways of other fleets on the same Redis. of is nil without Redis.
func fleetAttention(of *control.SharingView) []AttentionItem {
	foreign := 0
	if of != nil {
		for _, g := range of.Gateways {
			if g.Foreign {
				foreign++
			}
		}
	}
	if foreign == 0 {
		return nil
	}
	return []AttentionItem{{Severity: severityWarning, Subject: "redis", Link: "metrics",
		Message: fmt.Sprintf("Gateways of another fleet that use the same database: %d. Their loads and breakers are "+
			"ignored, but tenants of equal names share their limits: give each fleet its own database in store.redis.", foreign)}}
}

// directoryFacts are the facts about tenants and keys that the overview needs. They are collected again
// only when the directory or the configuration has changed. It needs external locking; the zero
// directoryFacts has none.
type directoryFacts struct {
	of       *control.Identity
	under    *config.File
	tenants  int
	expiring []tenants.Key   // as expiringKeys returns them
	unknown  []AttentionItem // as unknownRights returns them
}

// update collects the facts about another directory, or about the same one under another configuration.
func (d *directoryFacts) update(of *control.Identity, under *config.File, now time.Time) {
	if d.of == of && d.under == under {
		return
	}
	all, keys := slices.Collect(of.Directory.Tenants()), slices.Collect(of.Directory.SpecialKeys())
	*d = directoryFacts{of: of, under: under, tenants: len(all), expiring: expiringKeys(keys),
		unknown: unknownRights(under.RightNames(), all, keys, now)}
}

// namesOfRights is the number of tenants and keys that the message about an unknown name names.
const namesOfRights = 3

// unknownRights returns the tiers and models in the rights of tenants and valid keys that do not exist, such
// as those that a reload has renamed. There is one item for each such name.
func unknownRights(names config.RightNames, all []tenants.Tenant, keys []tenants.Key,
	now time.Time) (items []AttentionItem) {
	type place struct{ field, name string }
	at, users := map[place]config.UnknownRight{}, map[place][]string{}
	order := []place{}
	add := func(user string, r tenants.Rights) {
		for _, u := range names.Unknown(r) {
			p := place{u.Field, u.Name}
			if at[p] = u; users[p] == nil {
				order = append(order, p)
			}
			users[p] = append(users[p], user)
		}
	}
	for i := range all {
		add("tenant "+all[i].Name, all[i].Rights)
	}
	for i := range keys {
		if keys[i].Valid(now) {
			add("key "+keys[i].ID+" of "+keys[i].Tenant, keys[i].Rights)
		}
	}
	for _, p := range order {
		u, by := at[p], users[p]
		shown := strings.Join(by[:min(len(by), namesOfRights)], ", ")
		if len(by) > namesOfRights {
			shown += " and others"
		}
		items = append(items, AttentionItem{Severity: severityWarning, Subject: "permissions",
			Message: fmt.Sprintf("%s: %q %s (%s). Named by %d: %s.", u.Field, u.Name, u.Problem, u.Hint(), len(by), shown),
			Link:    "tenants?q=" + url.QueryEscape(u.Name)})
	}
	return items
}

// expiringKeys returns the keys with an expiry and without a successor, the first to expire first.
func expiringKeys(keys []tenants.Key) (expiring []tenants.Key) {
	for _, k := range keys {
		if !k.ExpiresAt.IsZero() && k.RevokedAt.IsZero() && k.ReplacedBy == "" {
			expiring = append(expiring, k)
		}
	}
	slices.SortFunc(expiring, func(a, b tenants.Key) int { return a.ExpiresAt.Compare(b.ExpiresAt) })
	return expiring
}

// attention returns the unknown names in rights, and the keys that expire soon.
func (d *directoryFacts) attention(now time.Time) (items []AttentionItem) {
	items = append(items, d.unknown...)
	for _, k := range d.expiring {
		left := k.ExpiresAt.Sub(now)
		if left >= expiringWithin {
			break
		}
		if left > 0 {
			items = append(items, AttentionItem{Severity: severityWarning, Subject: "key " + k.ID + " of " + k.Tenant,
				Message: "Expires at " + seconds(k.ExpiresAt) + ". Rotate it, or extend its expiry.",
				Link:    "tenants?q=" + url.QueryEscape(k.Tenant)})
		}
	}
	return items
}
