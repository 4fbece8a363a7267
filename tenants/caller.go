package tenants

import "time"

// Caller is who asks: a tenant by one of its keys. It is immutable.
type Caller struct {
	Tenant       string
	Key          string    // the key's id; empty for anonymous
	Highest      Class     // the most urgent class that it may ask for
	Usual        Class     // of a request that asks for none
	Weight       int       // the tenant's share while it waits beside others of its class, 1 to MaxWeight
	Subjects     []Subject // whose limits its requests count against: those of the two that have any
	IsolateCache bool
	Degrade      bool
	FailClosed   bool

	disabled bool
	expires  time.Time // zero: never
	tenant   permit
	key      permit
}

// Subject is one whose limits a request counts against: a tenant, or a key.
type Subject struct {
	Tenant string
	Key    string // empty: the tenant itself
	Limits Limits
}

// NewCaller returns the caller that a tenant is by one of its keys.
func NewCaller(t Tenant, k Key) *Caller {
	c := &Caller{Tenant: t.Name, Key: k.ID, Highest: max(t.Priority, k.Priority), Weight: t.share(), IsolateCache: t.IsolateCache,
		Degrade: t.Degrade, FailClosed: t.FailClosed, disabled: t.Disabled, tenant: t.compile(), key: k.compile()}
	c.Usual = max(c.Highest, t.Default, k.Default)
	if t.Limits.Any() {
		c.Subjects = append(c.Subjects, Subject{Tenant: t.Name, Limits: t.Limits})
	}
	if k.Limits.Any() {
		c.Subjects = append(c.Subjects, Subject{Tenant: t.Name, Key: k.ID, Limits: k.Limits})
	}
	return c
}

// Anonymous is who asks without a key where none is required.
func Anonymous() *Caller { return NewCaller(Tenant{Name: anonymous}, Key{}) }

// MayUseTier reports whether the caller may use the tier or pool of that name.
func (c *Caller) MayUseTier(name string) bool {
	return c.tenant.allowsTier(name) && c.key.allowsTier(name)
}

// MayUseModel reports whether the caller may ask by that model name. A request
// without one asks by the empty name, which only a glob of stars covers: where
// models are restricted, leaving the name out is no way around it.
func (c *Caller) MayUseModel(name string) bool {
	return c.tenant.allowsModel(name) && c.key.allowsModel(name)
}

// MayPass reports whether the caller may use the pool of that name for requests
// whose model nobody reads. Who is kept to models may do so only where the pool
// is named among its tiers, and who shares no cache may not at all: nobody salts
// what nobody reads.
func (c *Caller) MayPass(pool string) bool {
	return !c.IsolateCache && c.tenant.allowsPassThrough(pool) && c.key.allowsPassThrough(pool)
}

// Clamp returns the class that a caller gets when it asks for one.
func (c *Caller) Clamp(asked Class) Class { return max(asked, c.Highest) }
