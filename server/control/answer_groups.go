package control

import (
	"slices"
	"strings"

	"tierway/config"
	"tierway/responsecache"
	"tierway/tenants"
)

// AnswerGroup is a group of tenants that share kept answers.
type AnswerGroup struct {
	Name    string
	Owner   responsecache.Owner
	tenants []string
}

// answerGroups returns the group of each tenant that has one. Another list of tenants is another owner, so that no
// tenant gets answers from before it was listed. The owner is the same on all gateways with one list.
func answerGroups(groups []config.SharedCache) map[string]*AnswerGroup {
	of := map[string]*AnswerGroup{}
	for _, g := range groups {
		group := &AnswerGroup{Name: g.Name, tenants: g.Tenants,
			Owner: responsecache.Owner{Name: responsecache.GroupName(g.Name, g.Tenants)}}
		for _, tenant := range g.Tenants {
			of[tenant] = group
		}
	}
	return of
}

// AnswerGroup returns the group of a tenant; nil if it has none.
func (snap *Snapshot) AnswerGroup(tenant string) *AnswerGroup { return snap.answerGroups[tenant] }

// SharedAnswers returns the group whose answers a caller may get; nil if it gets only those of its tenant. A tenant
// with isolate_cache shares nothing.
func (snap *Snapshot) SharedAnswers(c *tenants.Caller) *AnswerGroup {
	if c.IsolateCache {
		return nil
	}
	return snap.answerGroups[c.Tenant]
}

// KeepsAnswers reports whether an owner keeps its answers in memory: a tenant that exists, or a group in force whose
// tenants all exist.
func (snap *Snapshot) KeepsAnswers(owner string) bool {
	exists := func(tenant string) bool {
		return snap.Identity.Directory.Knows(tenant, "") || tenant == tenants.Anonymous().Tenant
	}
	if !strings.HasPrefix(owner, responsecache.Groups) {
		return exists(owner)
	}
	for _, g := range snap.answerGroups {
		if g.Owner.Name == owner {
			return !slices.ContainsFunc(g.tenants, func(tenant string) bool { return !exists(tenant) })
		}
	}
	return false
}
