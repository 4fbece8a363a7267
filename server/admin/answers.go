package admin

import (
	"context"
	"fmt"

	"github.com/danielgtaylor/huma/v2"

	"tierway/tenants"
)

// purged is the result of a purge.
type purged struct {
	Removed int `json:"removed" doc:"Number of answers that were removed from the memory of this gateway. Answers to requests in flight are not kept either."`
}

// purgeAnswers removes the kept answers of a tenant. The tenant may also be that of requests without a key.
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
	if err != nil {
		a.log.Warn("removing kept answers from Redis failed", "tenant", in.Name, "cause", err.Error())
		return nil, huma.Error503ServiceUnavailable("Redis is unavailable, so its answers of the tenant stay until they " +
			"expire. Try again.")
	}
	a.log.Info("the kept answers of a tenant were removed", "tenant", in.Name, "answers", p.Removed, "actor", actor.Name)
	if sql := a.control.Stores.SQL; sql != nil {
		after := fmt.Sprintf(`{"removed":%d}`, p.Removed)
		if err := sql.AppendAudit(ctx, actor, "answers.purge", in.Name, "", after, "ok"); err != nil {
			a.log.Warn("writing a purge to the audit log failed", "cause", err.Error())
		}
	}
	return &reply[purged]{Body: p}, nil
}
