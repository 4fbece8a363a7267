package admin

import (
	"context"
	"fmt"

	"tierway/tenants"
)

// purged is the result of a purge.
type purged struct {
	Removed int `json:"removed" doc:"Number of answers that this gateway removed. Answers to requests in flight are not kept either."`
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
	p := purged{Removed: a.options.PurgeAnswers(in.Name)}
	actor := actorOf(ctx)
	a.log.Info("the kept answers of a tenant were removed", "tenant", in.Name, "answers", p.Removed, "actor", actor.Name)
	if sql := a.control.Stores.SQL; sql != nil {
		after := fmt.Sprintf(`{"removed":%d}`, p.Removed)
		if err := sql.AppendAudit(ctx, actor, "answers.purge", in.Name, "", after, "ok"); err != nil {
			a.log.Warn("writing a purge to the audit log failed", "cause", err.Error())
		}
	}
	return &reply[purged]{Body: p}, nil
}
