package admin

import (
	"context"
	"encoding/json"

	"github.com/danielgtaylor/huma/v2"

	"tierway/config"
	"tierway/server/control"
	"tierway/telemetry"
	"tierway/tenants"
)

type purged struct {
	Removed int    `json:"removed" doc:"Number of answers that were removed from the memory of this gateway. It does not count those in Redis, which no request finds any more. Answers to requests in flight are not kept either."`
	Unknown bool   `json:"unknown,omitempty" doc:"There is no tenant of this name now."`
	Shared  string `json:"shared,omitempty" doc:"Group of response_cache.shared whose answers were removed too."`
}

// purgeAnswers removes the kept answers of a tenant and of its group. The tenant may also be that of requests without a
// key, or one that no longer exists, with answers in Redis.
func (a *tenantAPI) purgeAnswers(ctx context.Context, in *struct {
	TenantPath
	Body *noBody
}) (*reply[purged], error) {
	anonymous := in.Name == tenants.Anonymous().Tenant
	if !anonymous && !tenants.Slug(in.Name) {
		return nil, invalid("path.name", "is no name of a tenant: use 1 to 63 of a-z, 0-9 and -", in.Name)
	}
	actor := actorOf(ctx)
	removed, err := a.options.PurgeAnswers(ctx, in.Name)
	p := purged{Removed: removed, Unknown: !anonymous && !a.control.Snapshot().Identity.Directory.Knows(in.Name, "")}
	if g := a.control.Snapshot().AnswerGroup(in.Name); g != nil {
		p.Shared = g.Name
	}
	if err != nil {
		a.log.Warn("removing kept answers from Redis failed", "tenant", in.Name, "cause", err.Error())
		return nil, huma.Error503ServiceUnavailable("Redis is unavailable, so its answers of the tenant stay until they " +
			"expire. Try again.")
	}
	a.log.Info("the kept answers of a tenant were removed", "tenant", in.Name, "shared", p.Shared, "answers", p.Removed,
		"actor", actor.Name)
	if sql := a.control.Stores.SQL; sql != nil {
		after, _ := json.Marshal(p) // it cannot fail
		if err := sql.AppendAudit(ctx, actor, "answers.purge", in.Name, "", string(after), "ok"); err != nil {
			a.log.Warn("writing a purge to the audit log failed", "cause", err.Error())
		}
	}
	return &reply[purged]{Body: p}, nil
}

type answersState struct {
	Store    string `json:"store" enum:"memory,redis" doc:"Where answers to equal requests are. redis: the numbers below are about the answers of semantic only."`
	Entries  int    `json:"entries" doc:"Answers in the memory of this gateway."`
	Bytes    int64  `json:"bytes" doc:"Memory of these answers."`
	MaxBytes int64  `json:"max_bytes"`
	Evicted  int64  `json:"evicted" doc:"Answers that were removed before their time, because the memory was full."`
}

// answersState returns the state of the response cache; nil if no tier or pool has one.
func (gw *gateway) answersState(snap *control.Snapshot) *answersState {
	if !cachesAnswers(snap) {
		return nil
	}
	m := gw.options.CacheMemory()
	st := &answersState{Store: "memory", Entries: m.Entries, Bytes: m.Bytes,
		MaxBytes: int64(snap.File.ResponseCache.MaxBytes), Evicted: m.Evictions}
	if gw.control.Stores.Answers != nil {
		st.Store = config.CacheInRedis
	}
	return st
}

// cachesAnswers reports whether a tier or pool has a response cache.
func cachesAnswers(snap *control.Snapshot) bool {
	for _, p := range snap.Pools {
		if p.ResponseCache.Caches() {
			return true
		}
	}
	return false
}

// answerSamples returns the number of requests by what the response cache did; nil if no tier or pool has one.
func (a *sampler) answerSamples() (out []telemetry.Sample) {
	if !cachesAnswers(a.control.Snapshot()) {
		return nil
	}
	for i, n := range a.options.Counts.Cache.Requests() {
		out = append(out, telemetry.Sample{Name: "response_cache", Unit: "1/s",
			Labels: []string{"result", telemetry.CacheResult(i).String()}, Value: n})
	}
	return out
}
