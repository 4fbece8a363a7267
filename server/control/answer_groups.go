package control

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strings"

	"tierway/config"
	"tierway/responsecache"
	"tierway/tenants"
)

// AnswerGroup is a group of tenants that share kept answers.
type AnswerGroup struct {
	Name  string
	Owner responsecache.Owner
}

// answerGroups returns the group of each tenant that has one. Another list of tenants is another owner, so that no
// tenant gets answers from before it was listed. The hash is the same on all gateways with one list.
func answerGroups(groups []config.SharedCache) map[string]*AnswerGroup {
	of := map[string]*AnswerGroup{}
	for _, g := range groups {
		names := slices.Sorted(slices.Values(g.Tenants))
		sum := sha256.Sum256([]byte(strings.Join(names, "\n")))
		group := &AnswerGroup{Name: g.Name, Owner: responsecache.Owner{Name: responsecache.GroupName(g.Name),
			Since: int64(binary.BigEndian.Uint64(sum[:]))}}
		for _, tenant := range names {
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
