package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Reloads counts attempts to read the configuration anew, by how they ended.
type Reloads struct {
	OK        Reload // the file is in force
	Rejected  Reload // it has problems; what was in force stays
	Unchanged Reload // it is what was in force already
}

// Reload counts one way in which a reload can end.
type Reload struct {
	total prometheus.Counter
	last  prometheus.Gauge
	sound float64 // 1 when the file was fit to be in force
}

// Inc counts a reload that ended so.
func (r Reload) Inc() {
	r.total.Inc()
	r.last.Set(r.sound)
}

// plane is the series of limits and of the configuration.
type plane struct {
	refusals    *prometheus.CounterVec
	refused     map[string]prometheus.Counter
	generation  prometheus.Gauge
	lastSuccess prometheus.Gauge
	last        prometheus.Gauge
}

// newPlane makes the series.
func newPlane(d *definer) (plane, Reloads) {
	d.about("Configuration and build")
	reloads := d.counters("tierway_config_reloads_total", "Attempts to read the configuration anew by result: ok, rejected (the old one stays), unchanged.", "result")
	p := plane{
		refused:     map[string]prometheus.Counter{},
		generation:  d.gauge("tierway_config_generation", "The generation of the configuration in force; 1 is the one that the process started with."),
		lastSuccess: d.gauge("tierway_config_last_success_timestamp_seconds", "When the configuration in force was taken, in seconds since 1970."),
		last:        d.gauge("tierway_config_last_reload_successful", "1 while the file that was read last is in force; 0 when it has problems and an older one stays."),
	}
	d.about("Tenants and limits")
	p.refusals = d.counters("tierway_limit_refusals_total", "Requests refused by a limit of their tenant or key, by the limit.", "limit")
	result := func(name string, sound float64) Reload {
		return Reload{total: reloads.WithLabelValues(name), last: p.last, sound: sound}
	}
	return p, Reloads{OK: result("ok", 1), Rejected: result("rejected", 0), Unchanged: result("unchanged", 1)}
}

// Limits resolves the series of refusals for the names of all limits. It is
// called once, before the first request.
func (m *Metrics) Limits(names []string) {
	for _, n := range names {
		m.plane.refused[n] = m.plane.refusals.WithLabelValues(n)
	}
	m.tenants.setLabels(byLimit, names)
}

// Limited counts a request that a limit refused. A name that Limits was not
// given counts nothing, so that no other label ever comes to be.
func (m *Metrics) Limited(limit string) {
	if c := m.plane.refused[limit]; c != nil {
		c.Inc()
	}
}

// Reloaded says which generation of the configuration is in force and since
// when, and counts the reload that brought it. Generation 1 is the start's and
// no reload.
func (m *Metrics) Reloaded(generation int64, since time.Time) {
	if generation > 1 {
		m.Reloads.OK.Inc()
	}
	m.plane.last.Set(1)
	m.plane.generation.Set(float64(generation))
	m.plane.lastSuccess.Set(float64(since.UnixMilli()) / 1000)
}

// Stores is what a scrape shows of the stores outside the process at that
// moment.
type Stores struct {
	Redis    *RedisGauges    // nil: none is configured, and its series are absent
	Database *DatabaseGauges // nil: none is configured, and its series are absent
}

// RedisGauges is what a scrape shows of Redis.
type RedisGauges struct {
	Up       bool
	Gateways int  // live ones, as last seen
	Degraded bool // limits are enforced by each gateway alone
}

// DatabaseGauges is what a scrape shows of the SQL database, of the tenants and
// keys that were read from it and of the ledger that is written to it.
type DatabaseGauges struct {
	Up      bool
	Read    time.Time // when tenants and keys were last read; zero: never, and their series are absent
	Tenants int
	Keys    int
	Spooled int   // ledger rows in memory
	Written int64 // ledger rows, since the start
	Dropped int64 // ledger rows lost to a full spool, since the start
}

// redisSeries are in the order in which Collect sends them.
var redisSeries = []series{
	{"tierway_redis_up", "1 while Redis answers; absent without Redis.", prometheus.GaugeValue},
	{"tierway_redis_gateways", "Live gateways that share the Redis, as last seen; absent without Redis.", prometheus.GaugeValue},
	{"tierway_ratelimit_degraded", "1 while each gateway enforces limits alone because Redis is away; absent without Redis.", prometheus.GaugeValue},
}

// databaseSeries are in the order in which Collect sends them. The last three
// are absent until tenants and keys were read.
var databaseSeries = []series{
	{"tierway_database_up", "1 while the SQL database can be read and takes rows; absent without one.", prometheus.GaugeValue},
	{"tierway_ledger_spooled_rows", "Rows of the ledger in memory that are not yet in the database.", prometheus.GaugeValue},
	{"tierway_ledger_written_rows_total", "Rows of the ledger written to the database.", prometheus.CounterValue},
	{"tierway_ledger_dropped_rows_total", "Rows of the ledger lost because the spool was full.", prometheus.CounterValue},
	{"tierway_directory_loaded", "1 once tenants and keys were read from the database.", prometheus.GaugeValue},
	{"tierway_directory_age_seconds", "Since tenants and keys were last read from the database; absent before the first time.", prometheus.GaugeValue},
	{"tierway_directory_tenants", "Tenants as last read from the database; absent before the first time.", prometheus.GaugeValue},
	{"tierway_directory_keys", "Keys as last read from the database; absent before the first time.", prometheus.GaugeValue},
}

// ObserveStores makes every scrape call read, which must be safe for concurrent
// use and quick: it reports what is known and asks no store. It is called once a
// process.
func (m *Metrics) ObserveStores(read func() Stores) {
	m.observe(func(send send) {
		s := read()
		if r := s.Redis; r != nil {
			send(redisSeries, nil, flag(r.Up), float64(r.Gateways), flag(r.Degraded))
		}
		if d := s.Database; d != nil {
			values := []float64{flag(d.Up), float64(d.Spooled), float64(d.Written), float64(d.Dropped), flag(!d.Read.IsZero())}
			if !d.Read.IsZero() {
				values = append(values, time.Since(d.Read).Seconds(), float64(d.Tenants), float64(d.Keys))
			}
			send(databaseSeries, nil, values...)
		}
	}, redisSeries, databaseSeries)
}
