// Package store keeps the data that outlives a gateway or that gateways share.
//
// # SQL
//
// SQL is a SQLite or PostgreSQL database. It contains the data that must not be lost: tenants, keys,
// admins, the ledger, live overrides and the audit log. OpenSQL opens it, and Migrate creates or
// updates its schema. Contents returns the part that gateways keep in memory; Revision is a cheap check
// for changes of it. Each change is one transaction together with its audit entry. Unreachable and
// Unwritable classify errors of an outage.
//
// A Ledger writes one Row per request in the background and buffers the rows during an outage. No
// request waits for SQL.
//
// # Redis
//
// Redis contains the data that is fast and may be lost: the counters of limits, the workers of stored
// responses and the list of live gateways. It also carries notices of changes. Run keeps the gateway in the
// list and probes Redis while it is down. A request waits for an answer of Redis no longer than the timeout, and
// not at all while Redis counts as down.
//
// Responses is the directory of stored responses and conversations in Redis. It has hashes of ids and
// tenants, never the ids themselves.
//
// # Limits
//
// Limits admits requests with scripts in Redis, for all gateways together. Without Redis, or during an
// outage, it decides with the gateway's tenants.Limiter by this gateway's share of the limits.
// TakeCharge returns a Grant, and the caller must call its Settle. During an outage, TakeCharge refuses
// requests of tenants with fail_closed; no other request fails because a store is down.
package store

import (
	"crypto/sha256"
	"errors"
	"time"

	"tierway/tenants"
)

// Errors of the store's methods, besides those of the connection.
var (
	ErrNotFound  = errors.New("not found")
	ErrExists    = errors.New("already exists")
	ErrConflict  = errors.New("changed since it was read; read it again and repeat the change")
	ErrNewer     = errors.New("the database's schema is newer than this program")
	ErrLastAdmin = errors.New("it is the last admin; create another one first")
)

// Actor is the author of a change, for the audit log.
type Actor struct {
	Name      string // of the admin key, or the command's user
	Role      string // admin or viewer; empty for commands and signals
	Via       string // api, cli, file, signal or bootstrap
	IP        string // of the client; empty for commands
	RequestID string
}

// Recover runs a step that reads data from a store. It returns the step's error, or an error if the
// step panics.
type Recover func(work string, step func() error) error

// orNone returns r. If r is nil, it returns a Recover that lets a panic end the process.
func (r Recover) orNone() Recover {
	if r == nil {
		return func(_ string, step func() error) error { return step() }
	}
	return r
}

// Roles of admins.
const (
	RoleAdmin  = "admin"
	RoleViewer = "viewer" // reads everything but secrets, changes nothing
)

// Admin is a user of the admin plane, identified by the digest of a key.
type Admin struct {
	ID        string            `json:"id"`
	Name      string            `json:"name"` // unique among valid admins
	Role      string            `json:"role" enum:"admin,viewer"`
	Hint      string            `json:"hint"`
	Digest    [sha256.Size]byte `json:"-"`
	CreatedBy string            `json:"created_by,omitempty"`
	CreatedAt time.Time         `json:"created_at,omitzero"`
	ExpiresAt time.Time         `json:"expires_at,omitzero"` // zero: never
}

// Override is a live change of one worker that replaces its values in config.yaml.
type Override struct {
	Worker string    `json:"worker"`
	Weight *int      `json:"weight,omitempty"` // nil: the configured weight
	Drain  bool      `json:"drain,omitempty"`  // takes no new requests
	By     string    `json:"by"`
	At     time.Time `json:"at"`
	Until  time.Time `json:"until,omitzero"` // the end of the override; zero: until it is cleared
}

// Contents is the part of the database that gateways hold in memory, read at one moment.
type Contents struct {
	Revision  int64 // grows with every change of the other fields
	Audited   int64 // id of the newest entry of the audit log
	Tenants   []tenants.Tenant
	Keys      []tenants.Key // including revoked and expired ones
	Admins    []Admin
	Overrides []Override
}

// Row is one request in the ledger. A request of a known caller has exactly one.
type Row struct {
	ID         string // made by the gateway: a UUID of version 7, which begins with At
	RequestID  string // as returned to the client
	At         time.Time
	Tenant     string
	Key        string // the key's id; empty for anonymous
	Class      string
	Route      string
	Tier       string // empty if none was chosen
	Model      string
	Worker     string
	Outcome    string // ok, refused, failed, truncated or client_gone
	Status     int
	Code       string
	Attempts   int
	Prompt     int64 // tokens, including cached ones
	Cached     int64
	Output     int64
	Money      tenants.Money
	FromCache  bool          // the response cache answered; only the sums by day have it
	Saved      tenants.Money // by the response cache: the full price minus Money; only the sums by day have it
	Estimated  bool          // the engine reported no usage; the tokens are the gateway's own count
	DurationMs int64
}

// SpentRow is the usage of the budgets of one tenant or key.
type SpentRow struct {
	Tenant, Key string // Key is empty for the whole tenant
	Day, Month  tenants.Spent
}

// UsageQuery selects a tenant's usage.
type UsageQuery struct {
	Tenant   string    // required: only rows of this tenant are read
	Key      string    // empty: all
	From, To time.Time // UTC days, To excluded
	GroupBy  string    // "", tier, model, key or outcome
}

// UsageRow is the usage of one UTC day and group.
type UsageRow struct {
	Day       string        `json:"day"` // 2006-01-02
	Group     string        `json:"group,omitempty"`
	Requests  int64         `json:"requests"`
	Refused   int64         `json:"refused"`
	Failed    int64         `json:"failed"` // failed and truncated
	Gone      int64         `json:"client_gone"`
	Estimated int64         `json:"estimated"`
	Prompt    int64         `json:"prompt_tokens"`
	Cached    int64         `json:"cached_tokens"`
	Output    int64         `json:"output_tokens"`
	Money     tenants.Money `json:"money"`

	CachedRequests int64         `json:"cached_requests" doc:"Requests that the response cache answered."`
	Saved          tenants.Money `json:"saved" doc:"Money that the response cache saved: the price of these answers from an engine, minus their cost."`
}

// AuditEntry is one line of the audit log. It holds no secret.
type AuditEntry struct {
	ID        int64     `json:"id"`
	At        time.Time `json:"at"`
	Actor     string    `json:"actor"`
	Role      string    `json:"role,omitempty"`
	Via       string    `json:"via"`
	IP        string    `json:"ip,omitempty"`
	RequestID string    `json:"request_id,omitempty"`
	Action    string    `json:"action"` // such as tenant.create
	Target    string    `json:"target"`
	Before    string    `json:"before,omitempty"` // JSON
	After     string    `json:"after,omitempty"`  // JSON
	Outcome   string    `json:"outcome"`          // ok, or the reason for the refusal
	Hash      string    `json:"hash" doc:"SHA-256 over this line and the hash of the one before."`
}

// AuditQuery selects audit entries, newest first.
type AuditQuery struct {
	Actor, Action, Target string    // empty: any
	Since                 time.Time // zero: from the beginning
	Before                int64     // entries with a lower id; 0: from the newest
	Limit                 int       // 1 to 200; 0: 50
}
