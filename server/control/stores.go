package control

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"tierway/config"
	"tierway/store"
	"tierway/telemetry"
	"tierway/tenants"
)

// Stores is the state that gateways share. SQL and Ledger are nil without a database, Redis and Responses
// are nil without Redis; Limits and Limiter are always set.
type Stores struct {
	SQL       *store.SQL
	Redis     *store.Redis
	Ledger    *store.Ledger
	Limits    *store.Limits
	Responses *store.Responses
	Answers   *store.Answers   // nil unless gateways share kept answers
	Limiter   *tenants.Limiter // usage of the requests that this gateway admitted
}

// openStores opens the stores of the configuration's store section. It connects to nothing: a gateway
// starts without its stores.
func openStores(o Options) (*Stores, error) {
	f, st := o.Config, &Stores{}
	if url := f.Store.SQL; url != "" && !o.Offline {
		sql, err := store.OpenSQL(store.SQLConfig{URL: url, PasswordFile: f.Store.SQLPasswordFile, Log: o.Log})
		if err != nil {
			return nil, fmt.Errorf("store.sql: %w", err)
		}
		st.SQL = sql
		st.Ledger = store.NewLedger(store.LedgerConfig{SQL: sql, Log: o.Log, Retention: f.Store.Retention,
			SpillDir: f.Spill(), Recover: o.Recover.Try})
	}
	if url := f.Store.Redis; url != "" && !o.Offline {
		id, err := tenants.NewID(rand.Reader)
		if err != nil {
			return nil, err
		}
		st.Redis, err = store.OpenRedis(store.RedisConfig{URL: url, PasswordFile: f.Store.RedisPasswordFile,
			Timeout: f.Store.RedisTimeout, Gateway: id, Log: o.Log, Recover: o.Recover.Try, Dial: o.Dial})
		if err != nil {
			return nil, fmt.Errorf("store.redis: %w", err)
		}
		if f.ResponseCache.Store == config.CacheInRedis {
			st.Answers = store.NewAnswers(st.Redis)
		}
		st.Responses = store.NewResponses(store.ResponsesConfig{Redis: st.Redis, Log: o.Log, Recover: o.Recover.Try})
	}
	st.Limiter = tenants.NewLimiter()
	st.Limits = store.NewLimits(store.LimitsConfig{Local: st.Limiter, Redis: st.Redis, Gateways: f.Gateways,
		Log: o.Log, Now: time.Now, Recover: o.Recover.Try})
	return st, nil
}

// Run writes usage, limits and stored responses and reads the messages of other gateways. It returns when ctx has ended
// and the buffered usage is written.
func (st *Stores) Run(ctx context.Context) {
	var owned sync.WaitGroup
	if st.Redis != nil {
		owned.Go(func() { st.Redis.Run(ctx) })
		owned.Go(func() { st.Responses.Run(ctx) })
	}
	if st.Answers != nil {
		owned.Go(func() { st.Answers.Run(ctx) })
	}
	if st.Ledger != nil {
		owned.Go(func() { st.Ledger.Run(ctx) })
	}
	owned.Go(func() { st.Limits.Run(ctx) })
	owned.Wait()
}

// close closes the connections.
func (st *Stores) close() error {
	var errs []error
	if st.SQL != nil {
		errs = append(errs, st.SQL.Close())
	}
	if st.Redis != nil {
		errs = append(errs, st.Redis.Close())
	}
	return errors.Join(errs...)
}

// Gauges returns the values of the stores for a scrape of the metrics.
func (ctl *Control) Gauges() telemetry.Stores {
	var g telemetry.Stores
	if ctl.Stores.Redis != nil {
		g.Redis = &telemetry.RedisGauges{Up: ctl.Stores.Redis.Up(), Gateways: ctl.Stores.Redis.Gateways(),
			Degraded: ctl.Stores.Limits.Degraded(), Sharing: ctl.Pools.sharingGauges()}
	}
	if ctl.Stores.SQL != nil {
		stats := ctl.Stores.Ledger.Stats()
		g.Database = &telemetry.DatabaseGauges{
			Up:      ctl.Database.State() == DatabaseOK,
			Spooled: stats.Waiting,
			Written: stats.Written,
			Dropped: stats.Dropped,
		}
		if at := ctl.Database.currentAt.Load(); at != 0 {
			g.Database.Loaded = true
			ts, ks := ctl.Snapshot().Identity.Directory.Stored()
			g.Database.Directory = &telemetry.DirectoryGauges{Read: time.Unix(0, at), Tenants: ts, Keys: ks}
		}
	}
	return g
}

// LimitNames returns the label values of tierway_limit_refusals_total.
func LimitNames() []string {
	var names []string
	for _, l := range tenants.LimitNames() {
		names = append(names, string(l))
	}
	return names
}
