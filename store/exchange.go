package store

import (
	"context"
	_ "embed"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed exchange.lua
var exchangeLua string

// Keys of what gateways tell each other, with the version of its form. Gateways of other versions use other keys, or
// ignore what they cannot read. One hash tag keeps both on one node of a cluster.
const (
	loadsKey   = "tierway:{gateways}:v1:loads"
	journalKey = "tierway:{gateways}:v1:journal"
)

const (
	// loadLease is how long a load counts that its gateway does not renew. Thirty exchanges may be late.
	loadLease = 3 * time.Second
	// journalKept is how long the log keeps an entry for gateways that start.
	journalKept = 5 * time.Minute
	// maxExchanged bounds the journals of one reply. Redis sends them within its patience.
	maxExchanged = 1 << 20
)

// Exchange tells the other gateways of one Redis what this one has booked and learned, and returns what they have
// told. Its zero value knows nothing of the log. It is used by one goroutine.
type Exchange struct {
	redis  *Redis
	script *redis.Script
	last   string // entry of the log
}

// NewExchange returns the exchange of this gateway.
func (r *Redis) NewExchange() *Exchange {
	return &Exchange{redis: r, script: redis.NewScript(exchangeLua), last: "0-0"}
}

// PoolText is what a gateway tells of one pool.
type PoolText struct{ Pool, Text string }

// Told is what other gateways have told.
type Told struct {
	Loads    map[string]string // the last load of each live gateway, by its ID
	Journals []ToldJournal     // since the last exchange, in the order of the log
	More     bool              // the log has more; the next exchange returns it
}

// ToldJournal is one entry of the log.
type ToldJournal struct {
	Age   time.Duration
	Pools []PoolText
}

// Do writes this gateway's load and journal and reads those of the others, in one step of Redis. It waits at most 50
// ms, and not at all while Redis is down. After an error it is unknown whether the journal was written; the caller
// repeats it.
func (e *Exchange) Do(ctx context.Context, load string, journal []PoolText) (told Told, err error) {
	argv := []any{e.redis.gateway, load, loadLease.Milliseconds(), e.last, journalKept.Milliseconds(), maxExchanged}
	for _, p := range journal {
		argv = append(argv, p.Pool, p.Text)
	}
	err = e.redis.do(ctx, "exchanging loads and journals", func(ctx context.Context) error {
		reply, err := e.script.Run(ctx, e.redis.client, []string{loadsKey, journalKey}, argv...).Slice()
		if redis.HasErrorPrefix(err, "WRONGTYPE") { // the keys are the gateways' own
			reply, err = nil, e.redis.client.Del(ctx, loadsKey, journalKey).Err()
			e.last = "0-0"
		}
		if err == nil && reply != nil {
			told, err = e.read(reply)
		}
		return err
	})
	return told, err
}

// read reads the script's reply.
func (e *Exchange) read(reply []any) (told Told, err error) {
	r := reader{values: reply}
	last, more := r.string(), r.int()
	loads, entries := r.list(), r.list()
	told = Told{Loads: map[string]string{}, More: more != 0}
	for len(loads.values) > 0 {
		id := loads.string()
		told.Loads[id] = loads.string()
	}
	for len(entries.values) > 0 {
		j := ToldJournal{Age: time.Duration(entries.int()) * time.Millisecond}
		texts := entries.list()
		for len(texts.values) > 0 {
			j.Pools = append(j.Pools, PoolText{texts.string(), texts.string()})
		}
		entries.wrong = entries.wrong || texts.wrong
		told.Journals = append(told.Journals, j)
	}
	if r.wrong || loads.wrong || entries.wrong {
		return Told{}, errAnswer
	}
	e.last = last
	return told, nil
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
