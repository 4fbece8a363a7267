package server

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"tierway/config"
	"tierway/store"
	"tierway/tenants"
)

// people is who may ask, on both planes, as config.yaml and the database say it.
// It is immutable; a change of either makes another.
type people struct {
	directory *tenants.Directory
	admins    map[[sha256.Size]byte]store.Admin
	own       []tenants.Tenant // config.yaml's
	ownKeys   []tenants.Key
	contents  store.Contents // the database's
	readAt    time.Time      // of contents; zero: never, so that any key may be a good one
}

// newPeople puts together what the configuration and the database say.
func newPeople(f *config.File, c store.Contents, readAt time.Time) (*people, error) {
	ts, ks, err := tenants.FromConfig(f.Auth.Keys)
	if err != nil {
		return nil, fmt.Errorf("reading auth.keys: %w", err)
	}
	p := &people{own: ts, ownKeys: ks, contents: c, readAt: readAt, admins: map[[sha256.Size]byte]store.Admin{}}
	for _, a := range c.Admins {
		p.admins[a.Digest] = a
	}
	mine, digests, err := tenants.FromConfig(adminKeys(f.Admin.Keys))
	if err != nil || len(mine) > 1 {
		return nil, fmt.Errorf("reading admin.keys: %w", err)
	}
	for i, k := range digests {
		role := f.Admin.Keys[i].Role
		if role == "" {
			role = store.RoleAdmin
		}
		p.admins[k.Digest] = store.Admin{ID: k.ID, Name: f.Admin.Keys[i].Name, Role: role, Hint: "config.yaml", Digest: k.Digest}
	}
	all, keys := p.tenants()
	p.directory = tenants.NewDirectory(all, keys)
	return p, nil
}

// adminKeys are the admin plane's keys as the directory's checks take them.
func adminKeys(keys []config.AdminKey) []tenants.KeyConfig {
	out := make([]tenants.KeyConfig, len(keys))
	for i, k := range keys {
		out[i] = tenants.KeyConfig{Name: "admin", SHA256: k.SHA256} // names of admins follow other rules
	}
	return out
}

// tenants returns all tenants and keys in force. Where config.yaml and the
// database have a tenant of one name, the file's settings count for the keys of
// both.
func (p *people) tenants() ([]tenants.Tenant, []tenants.Key) {
	ts := append([]tenants.Tenant(nil), p.own...)
	mine := make(map[string]bool, len(p.own))
	for _, t := range p.own {
		mine[t.Name] = true
	}
	for _, t := range p.contents.Tenants {
		if !mine[t.Name] {
			ts = append(ts, t)
		}
	}
	return ts, append(append([]tenants.Key(nil), p.ownKeys...), p.contents.Keys...)
}

// knows reports whether a tenant, or one of its keys, is still there.
func (p *people) knows(tenant, key string) bool { return p.directory.Knows(tenant, key) }

// How the database is followed.
const (
	// askEvery is how often the database is asked whether anything changed: one
	// row. Without Redis it is how long a revoked key still works.
	askEvery = time.Second
	// askPause is how often unknown keys may have it asked beyond that.
	askPause = 100 * time.Millisecond
	// readEvery is how often all is read anyway, for what is no change of the
	// directory: when keys were last used.
	readEvery = time.Minute
	// spentEvery is how often what was spent is read from the ledger, for what
	// other gateways spend where no Redis tells.
	spentEvery = 10 * time.Second
	// sqlPatience bounds one question to the database, which no request waits for.
	sqlPatience = 5 * time.Second
	// startPatience bounds how long a start waits for a database that is away.
	startPatience = 3 * time.Second
)

// openDatabase brings the schema up to date and reads the directory. A database
// that is away is no error: it is tried again while serving.
func (s *Server) openDatabase(ctx context.Context) error {
	if s.sql == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	err := s.readDatabase(ctx)
	if err != nil && !store.Unreachable(err) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	s.noteDatabase(err, nil)
	return nil
}

// readDatabase migrates, once, and reads all that is held in memory.
func (s *Server) readDatabase(ctx context.Context) error {
	if err := s.migrate(ctx); err != nil {
		return err
	}
	began := time.Now()
	c, err := s.sql.Contents(ctx)
	if err != nil {
		return fmt.Errorf("reading the directory: %w", err)
	}
	if err := s.seedBudgets(ctx); err != nil {
		return err
	}
	return s.adopt(c, began)
}

// migrate brings the schema up to date, once. It takes as long as it takes, on a
// database that answers. The next release's schema is served too: it only adds, and
// gateways of both share a database while they are replaced.
func (s *Server) migrate(ctx context.Context) error {
	if s.migrated.Load() {
		return nil
	}
	if err := s.sql.Ping(ctx); err != nil {
		return fmt.Errorf("migrating the database: %w", err)
	}
	_, err := s.sql.Migrate(context.WithoutCancel(ctx))
	if errors.Is(err, store.ErrNewer) {
		applied, latest, schemaErr := s.sql.Schema(ctx)
		if schemaErr == nil && applied == latest+1 {
			s.log.Warn("the database's schema is of the next release; this one serves on beside it", "schema", applied, "known", latest)
			err = nil
		}
	}
	if err != nil {
		return err
	}
	s.migrated.Store(true)
	return nil
}

// seedBudgets tells the limiter what the ledger says was spent.
func (s *Server) seedBudgets(ctx context.Context) error {
	now := time.Now()
	rows, err := s.sql.Spent(ctx, now)
	if err != nil {
		return fmt.Errorf("reading what was spent: %w", err)
	}
	for _, r := range rows {
		s.limits.Seed(r.Tenant, r.Key, now, r.Day, r.Month)
	}
	return nil
}

// adopt puts what the database holds in force, and the live overrides with it,
// unless a reading that began later was faster.
func (s *Server) adopt(c store.Contents, readAt time.Time) error {
	s.applying.Lock()
	defer s.applying.Unlock()
	if readAt.Before(s.people.Load().readAt) {
		return nil
	}
	p, err := newPeople(s.base.file, c, readAt)
	if err != nil {
		return err
	}
	s.know(p)
	if !readAt.IsZero() {
		s.known.Store(readAt.UnixNano())
	}
	s.local.Forget(time.Now(), p.knows)
	s.bootstrapIfAlone(p)
	return s.applyOverrides()
}

// followDatabase reads the directory whenever it has changed, until ctx ends.
func (s *Server) followDatabase(ctx context.Context) {
	if s.sql == nil {
		return
	}
	poll := time.NewTicker(askEvery)
	defer poll.Stop()
	spent, asked := time.Now(), time.Now()
	for {
		hurry := false
		select {
		case <-s.unknown:
			if time.Since(asked) < askPause {
				continue
			}
		case <-ctx.Done():
			s.keepRunning("writing when keys were last used", func() { s.lastTouches(ctx) })
			return
		case <-s.hurry:
			hurry = true
		case <-poll.C:
		}
		asked = time.Now()
		err := s.runRecovered("following the database", func() error {
			err := s.lookAgain(ctx, hurry)
			if err == nil && time.Since(spent) >= spentEvery {
				bounded, cancel := context.WithTimeout(ctx, sqlPatience)
				defer cancel()
				spent = time.Now()
				err = errors.Join(s.seedBudgets(bounded), s.writeTouches(bounded))
			}
			return err
		})
		if ctx.Err() == nil {
			s.noteDatabase(err, s.ledger.Stats().Err)
		}
	}
}

// lookAgain reads the directory if it may have changed.
func (s *Server) lookAgain(ctx context.Context, hurry bool) error {
	ctx, cancel := context.WithTimeout(ctx, sqlPatience)
	defer cancel()
	p := s.people.Load()
	if !hurry && time.Since(p.readAt) < readEvery {
		revision, err := s.sql.Revision(ctx)
		if err != nil {
			return err
		}
		if revision == p.contents.Revision {
			s.known.Store(time.Now().UnixNano())
			return nil
		}
	}
	return s.readDatabase(ctx)
}

// noteDatabase notes whether the database can be read and written, and logs each
// change once.
func (s *Server) noteDatabase(read, write error) {
	now, cause := databaseOK, ""
	switch {
	case read != nil:
		now, cause = databaseAway, read.Error()
	case store.Unreachable(write): // a read may be the first to succeed, or the last
		now, cause = databaseAway, write.Error()
	case write != nil:
		now, cause = databaseReadOnly, write.Error()
	}
	if s.database.Swap(now) == now {
		return
	}
	switch now {
	case databaseAway:
		s.log.Error("database unavailable; serving tenants from memory, buffering usage rows", "cause", cause, "read", !s.people.Load().readAt.IsZero())
	case databaseReadOnly:
		s.log.Error("database takes no writes; buffering usage rows", "cause", cause, "rows", s.ledger.Stats().Waiting)
	default:
		s.log.Info("database available")
	}
}

// changed reads the directory anew after a change of the database by this
// gateway, and tells the others.
func (s *Server) changed(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sqlPatience)
	defer cancel()
	if err := s.readDatabase(ctx); err != nil {
		s.log.Warn("the directory could not be read after a change; it is read again shortly", "cause", err.Error())
		s.lookSoon()
	}
	if s.redis != nil {
		if err := s.redis.Publish(ctx, topicDirectory); err != nil {
			s.log.Debug("other gateways will see the change when they ask the database", "cause", err.Error())
		}
	}
}

// topicDirectory tells gateways that the database's directory has changed.
const topicDirectory = "directory"

// doubt has the database asked whether there are new keys, because somebody has
// sent one that is not known. Nobody waits for the answer.
func (s *Server) doubt() {
	select {
	case s.unknown <- struct{}{}:
	default:
	}
}

// lookSoon has the database read as soon as possible.
func (s *Server) lookSoon() {
	select {
	case s.hurry <- struct{}{}:
	default:
	}
}

// tenantsNow returns the tenants, keys, admins and overrides in force.
func (s *Server) tenantsNow() ([]tenants.Tenant, []tenants.Key, []store.Admin, []store.Override) {
	p := s.people.Load()
	ts, ks := p.tenants()
	admins := make([]store.Admin, 0, len(p.admins))
	for _, a := range p.admins {
		admins = append(admins, a)
	}
	return ts, ks, admins, s.overridesNow()
}

// rankEvery is how often the tenants with series of their own are chosen anew.
const rankEvery = time.Minute

// rankTenants gives the busiest tenants their series until done.
func (s *Server) rankTenants(done <-chan struct{}) {
	tick := time.NewTicker(rankEvery)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case now := <-tick.C:
			s.keepRunning("ranking tenants", func() {
				directory := s.snapshot.Load().people.directory
				s.metrics.RankTenants(now, func(tenant string) bool {
					return directory.Knows(tenant, "") || tenant == tenants.Anonymous().Tenant
				})
			})
		}
	}
}
