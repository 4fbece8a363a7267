package server

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"tierway/store"
	"tierway/telemetry"
	"tierway/tenants"
)

// openStores makes what the configuration's store section names. Nothing is
// connected yet: neither is needed to start.
func (s *Server) openStores(o Options) error {
	f := o.Config
	if url := f.Store.SQL; url != "" && !o.Offline {
		sql, err := store.OpenSQL(store.SQLConfig{URL: url, Log: s.log})
		if err != nil {
			return fmt.Errorf("store.sql: %w", err)
		}
		s.sql = sql
		s.ledger = store.NewLedger(store.LedgerConfig{SQL: sql, Log: s.log, Retention: f.Store.Retention,
			Recover: s.runRecovered})
	}
	if url := f.Store.Redis; url != "" && !o.Offline {
		id, err := tenants.NewID(rand.Reader)
		if err != nil {
			return err
		}
		s.redis, err = store.OpenRedis(store.RedisConfig{URL: url, Gateway: id, Log: s.log, Recover: s.runRecovered})
		if err != nil {
			return fmt.Errorf("store.redis: %w", err)
		}
		s.redis.OnChange(topicDirectory, s.lookSoon)
	}
	s.local = tenants.NewLimiter()
	s.limits = store.NewLimits(store.LimitsConfig{Local: s.local, Redis: s.redis, Gateways: f.Gateways,
		Log: s.log, Now: time.Now, Recover: s.runRecovered})
	return nil
}

// runStores runs what writes and listens in the background, until ctx ends.
func (s *Server) runStores(ctx context.Context, owned *sync.WaitGroup) {
	if s.redis != nil {
		owned.Go(func() { s.redis.Run(ctx) })
	}
	if s.ledger != nil {
		owned.Go(func() { s.ledger.Run(ctx) })
	}
	owned.Go(func() { s.limits.Run(ctx) })
}

// close lets go of everything that is held. Requests have ended.
func (s *Server) close() {
	s.fleet.Close()
	if s.decisionFile != nil {
		s.decisionFile.Close()
	}
	var errs []error
	if s.sql != nil {
		errs = append(errs, s.sql.Close())
	}
	if s.redis != nil {
		errs = append(errs, s.redis.Close())
	}
	if err := errors.Join(errs...); err != nil {
		s.log.Warn("closing the stores", "cause", err.Error())
	}
}

// storeGauges shows the stores to a scrape.
func (s *Server) storeGauges() telemetry.Stores {
	var g telemetry.Stores
	if s.redis != nil {
		g.Redis = &telemetry.RedisGauges{Up: s.redis.Up(), Gateways: s.redis.Gateways(), Degraded: s.limits.Degraded()}
	}
	if s.sql != nil {
		stats, c := s.ledger.Stats(), s.people.Load().contents
		g.Database = &telemetry.DatabaseGauges{Up: s.database.Load() == databaseOK, Tenants: len(c.Tenants), Keys: len(c.Keys),
			Spooled: stats.Waiting, Written: stats.Written, Dropped: stats.Dropped}
		if at := s.known.Load(); at != 0 {
			g.Database.Read = time.Unix(0, at)
		}
	}
	return g
}

// limitNames are the label values of tierway_limit_refusals_total.
func limitNames() []string {
	var names []string
	for _, l := range tenants.LimitNames() {
		names = append(names, string(l))
	}
	return names
}
