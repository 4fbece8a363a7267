package tenants

import "time"

// Caller is the identity of a request: a tenant with the rights and limits of one of its keys. It is
// immutable.
type Caller struct {
	Tenant       string
	Key          string    // the key's id; empty for anonymous
	Highest      Class     // the most urgent class that it may request
	Usual        Class     // the class of a request that names none
	Weight       int       // share of the tenant among the waiting tenants of its class, 1 to MaxWeight
	Subjects     []Subject // tenant and key, each only if it has limits
	IsolateCache bool
	Degrade      bool
	FailClosed   bool
	// ResponseCache permits answers from the caches of tiers and pools.
	ResponseCache bool
	// Since distinguishes tenants that have one name in succession: when the tenant was created, in ns, or the digests of
	// its keys in config.yaml.
	Since int64

	disabled bool
	expires  time.Time // zero: never
	tenant   permit
	key      permit
}

// Subject is a tenant or a key with limits that apply to a request.
type Subject struct {
	Tenant string
	Key    string // empty: the tenant itself
	Limits Limits
}

// NewCaller returns the caller for a key of a tenant.
func NewCaller(t Tenant, k Key) *Caller {
	c := &Caller{
		Tenant:        t.Name,
		Key:           k.ID,
		Highest:       max(t.Priority, k.Priority),
		Weight:        t.share(),
		IsolateCache:  t.IsolateCache,
		Degrade:       t.Degrade,
		FailClosed:    t.FailClosed,
		ResponseCache: t.ResponseCache,
		disabled:      t.Disabled,
		tenant:        t.compile(),
		key:           k.compile(),
	}
	if !t.CreatedAt.IsZero() {
		c.Since = t.CreatedAt.UnixNano()
	}
	c.Usual = max(c.Highest, t.Default, k.Default)
	if t.Limits.Any() {
		c.Subjects = append(c.Subjects, Subject{Tenant: t.Name, Limits: t.Limits})
	}
	if k.Limits.Any() {
		c.Subjects = append(c.Subjects, Subject{Tenant: t.Name, Key: k.ID, Limits: k.Limits})
	}
	return c
}

// Anonymous returns the caller of requests without a key, if keys are not required.
func Anonymous() *Caller { return NewCaller(Tenant{Name: anonymous, ResponseCache: true}, Key{}) }

// Gateway returns the caller of the gateway's own requests, such as embeddings for the response cache. No tenant can
// have its name.
func Gateway() *Caller { return NewCaller(Tenant{Name: "_gateway"}, Key{}) }

// MayUseTier reports whether the caller may use the tier or pool of that name.
func (c *Caller) MayUseTier(name string) bool {
	return c.tenant.allowsTier(name) && c.key.allowsTier(name)
}

// MayUseModel reports whether the caller may request that model name. A request without a model
// has the empty name, which only a glob of stars matches, so that a request cannot avoid a
// restriction by omitting the model.
func (c *Caller) MayUseModel(name string) bool {
	return c.tenant.allowsModel(name) && c.key.allowsModel(name)
}

// MayPass reports whether the caller may send pass-through requests to that pool. Their bodies
// are not read. Callers that are restricted by model need the pool in tiers; callers with
// isolate_cache may not use pass-through paths, because their bodies are not salted.
func (c *Caller) MayPass(pool string) bool {
	return !c.IsolateCache && c.tenant.allowsPassThrough(pool) && c.key.allowsPassThrough(pool)
}

// checkValidity returns the errors of Authenticate for the caller of a known key.
func (c *Caller) checkValidity(now time.Time) (*Caller, error) {
	switch {
	case !c.expires.IsZero() && !now.Before(c.expires):
		return nil, ErrUnknownKey
	case c.disabled:
		return c, ErrDisabled
	}
	return c, nil
}

// Clamp returns the requested class, or the caller's highest class if that is less urgent.
func (c *Caller) Clamp(requested Class) Class { return max(requested, c.Highest) }
