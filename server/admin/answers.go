package admin

import (
	"context"
	"encoding/json"

	"github.com/danielgtaylor/huma/v2"

	"tierway/tenants"
)

// purged is the result of a purge.
type purged struct {
	Removed int    `json:"removed" doc:"Number of answers that were removed from the memory of this gateway. Answers to requests in flight are not kept either."`
	Shared  string `json:"shared,omitempty" doc:"Group of response_cache.shared whose answers were removed too."`
}

// purgeAnswers removes the kept answers of a tenant and of its group. The tenant may also be that of requests without a key.
func (a *tenantAPI) purgeAnswers(ctx context.Context, in *struct {
	TenantPath
	Body *noBody
}) (*reply[purged], error) {
	if in.Name != tenants.Anonymous().Tenant {
		if _, err := a.tenant(ctx, in.Name); err != nil {
			return nil, err
		}
	}
	actor := actorOf(ctx)
	removed, err := a.options.PurgeAnswers(ctx, in.Name)
	p := purged{Removed: removed}
	if g := a.control.Snapshot().AnswerGroup(in.Name); g != nil {
		p.Shared = g.Name
	}
	if err != nil {
		a.log.Warn("removing kept answers from Redis failed", "tenant", in.Name, "cause", err.Error())
		return nil, huma.Error503ServiceUnavailable("Redis is unavailable, so its answers of the tenant stay until they " +
			"expire. Try again.")
	}
	a.log.Info("the kept answers of a tenant were removed", "tenant", in.Name, "shared", p.Shared, "answers", p.Removed, "actor", actor.Name)
	if sql := a.control.Stores.SQL; sql != nil {
		after, _ := json.Marshal(p) // it cannot fail
		if err := sql.AppendAudit(ctx, actor, "answers.purge", in.Name, "", string(after), "ok"); err != nil {
			a.log.Warn("writing a purge to the audit log failed", "cause", err.Error())
		}
	}
	return &reply[purged]{Body: p}, nil
}
