package admin

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"tierway/tenants"
)

type keyRotation struct {
	Grace int64 `json:"grace_s,omitempty" minimum:"0" maximum:"604800" doc:"Seconds for which the old key goes on working, up to 7 days; absent: none."`
}

type keyRevocation struct {
	Reason string `json:"reason,omitempty" maxLength:"200" doc:"For the audit log."`
}

func (a *Plane) rotateKey(ctx context.Context, in *struct {
	IDPath
	Precondition
	Body *keyRotation
}) (*tagged[keyAnswer], error) {
	secret, next, err := tenants.Mint(rand.Reader, "") // the tenant is the old key's
	if err != nil {
		return nil, a.failed("making a key", err)
	}
	next.CreatedBy = actorOf(ctx).Name
	var grace time.Duration
	if in.Body != nil {
		grace = time.Duration(in.Body.Grace) * time.Second
	}
	var old, made tenants.Key
	now := time.Now()
	err = a.changeKey(ctx, in.ID, in.IfMatch, func(k tenants.Key) error {
		switch {
		case !k.Valid(now):
			return over(k, now)
		case k.ReplacedBy != "":
			return huma.Error409Conflict(fmt.Sprintf("The key was replaced already, by %s. Rotate that one.", k.ReplacedBy))
		}
		var err error
		if old, made, err = a.control.Stores.SQL.RotateKey(ctx, actorOf(ctx), k.ID, next, grace, now); err != nil {
			return a.failed("rotating a key", err) // a conflict too: the key was replaced elsewhere
		}
		return nil
	})
	if err != nil {
		return nil, a.failed("rotating a key", err)
	}
	return &tagged[keyAnswer]{ETag: etag(made.Version), Body: keyAnswer{Key: showKey(made, now), Secret: secret, Replaced: new(showKey(old, now))}}, nil
}

// over is the answer to a change of a key that is of no use any more.
func over(k tenants.Key, now time.Time) error {
	return huma.Error409Conflict(fmt.Sprintf("The key is %s and stays so. Make another.", k.State(now)))
}

func (a *Plane) revokeKey(ctx context.Context, in *struct {
	IDPath
	Precondition
	Body *keyRevocation
}) (*tagged[keyAnswer], error) {
	reason := ""
	if in.Body != nil {
		reason = in.Body.Reason
	}
	var made tenants.Key
	err := a.changeKey(ctx, in.ID, in.IfMatch, func(k tenants.Key) (err error) {
		made, err = a.control.Stores.SQL.RevokeKey(ctx, actorOf(ctx), k.ID, reason, time.Now())
		return err
	})
	if err != nil {
		return nil, a.failed("revoking a key", err)
	}
	return &tagged[keyAnswer]{ETag: etag(made.Version), Body: keyAnswer{Key: showKey(made, time.Now())}}, nil
}
