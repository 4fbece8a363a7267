package store

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed exchange.lua
var exchangeLua string

// Keys of what gateways publish, with the version of its form. Gateways of other versions use other keys, or ignore
// what they cannot read. One hash tag keeps both keys on one node of a cluster.
const (
	loadsKey   = "tierway:{gateways}:v1:loads"
	journalKey = "tierway:{gateways}:v1:journal"
)

const (
	// loadLease is the time after which a load expires if its gateway does not renew it: 3 exchanges without load, 120
	// under load.
	loadLease = 3 * time.Second
	// journalKept is how long the log keeps an entry for gateways that start.
	journalKept = 5 * time.Minute
	// maxExchanged bounds the journals of one reply, so that Redis sends them within the timeout on slow links too.
	maxExchanged = 256 << 10
)

// Exchange publishes what this gateway has booked and recorded, and reads what the other gateways of one Redis have
// published. One goroutine uses it.
type Exchange struct {
	redis  *Redis
	script *redis.Script
	last   string // entry of the log

	rejected bool // Redis has rejected the script, which is logged
}

// NewExchange returns the exchange of this gateway.
func (r *Redis) NewExchange() *Exchange {
	return &Exchange{redis: r, script: redis.NewScript(exchangeLua), last: "0-0"}
}

// PoolText is the journal of one pool.
type PoolText struct{ Pool, Text string }

// Received is what other gateways have published.
type Received struct {
	Loads    map[string]string // the last load of each live gateway, by its ID
	Journals []ReceivedJournal // since the last exchange, in the order of the log
	More     bool              // the log has more; the next exchange returns it
}

// ReceivedJournal is one entry of the log.
type ReceivedJournal struct {
	Age     time.Duration
	Gateway string // publisher of the entry
	Pools   []PoolText
}

// PublishAndRead writes this gateway's load and journal and reads those of the others, in one step of Redis. It waits
// no longer than the timeout of Redis, and not at all while Redis is down. After an error it is unknown whether the
// journal was written; the caller repeats it.
func (e *Exchange) PublishAndRead(ctx context.Context, load string, journal []PoolText) (got Received, err error) {
	argv := []any{e.redis.gateway, load, loadLease.Milliseconds(), e.last, journalKept.Milliseconds(), maxExchanged}
	for _, p := range journal {
		argv = append(argv, p.Pool, p.Text)
	}
	var rejected error // by Redis, which is thus up
	err = e.redis.do(ctx, "exchanging loads and journals", func(ctx context.Context) error {
		reply, err := e.script.Run(ctx, e.redis.client, []string{loadsKey, journalKey}, argv...).Slice()
		if redis.HasErrorPrefix(err, "WRONGTYPE") { // the keys are the gateways' own
			e.last, rejected = "0-0", err // the caller repeats the journal, which is not written
			return e.redis.client.Del(ctx, loadsKey, journalKey).Err()
		}
		if _, ok := errors.AsType[redis.Error](err); ok {
			rejected = err
			return nil
		}
		if err == nil {
			got, rejected = e.parseReply(reply)
		}
		return err
	})
	if err == nil && rejected != nil {
		if !redis.HasErrorPrefix(rejected, "WRONGTYPE") {
			e.logRejection(rejected)
		}
		err = fmt.Errorf("exchanging loads and journals: %w", rejected)
	}
	return got, err
}

// logRejection logs the first rejection: limits work with a server that rejects the script, for example because it is
// too old.
func (e *Exchange) logRejection(err error) {
	if !e.rejected {
		e.rejected = true
		e.redis.log.Warn("Redis rejects the exchange with other gateways; it needs version 6.2 or later", "cause", err)
	}
}

// parseReply reads the script's reply.
func (e *Exchange) parseReply(reply []any) (got Received, err error) {
	r := reader{values: reply}
	last, more := r.string(), r.int()
	loads, entries := r.list(), r.list()
	got = Received{Loads: map[string]string{}, More: more != 0}
	for len(loads.values) > 0 {
		id := loads.string()
		got.Loads[id] = loads.string()
	}
	for len(entries.values) > 0 {
		j := ReceivedJournal{Age: time.Duration(entries.int()) * time.Millisecond, Gateway: entries.string()}
		texts := entries.list()
		for len(texts.values) > 0 {
			j.Pools = append(j.Pools, PoolText{texts.string(), texts.string()})
		}
		entries.wrong = entries.wrong || texts.wrong
		got.Journals = append(got.Journals, j)
	}
	if r.wrong || loads.wrong || entries.wrong {
		return Received{}, errAnswer
	}
	e.last = last
	return got, nil
}

func (r *reader) string() string {
	s, ok := r.next().(string)
	r.wrong = r.wrong || !ok
	return s
}

// list returns a reader of the list that is the next value.
func (r *reader) list() *reader {
	values, ok := r.next().([]any)
	r.wrong = r.wrong || !ok
	return &reader{values: values}
}
