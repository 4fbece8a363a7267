package store

import (
	"context"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// missed notes that any topic may have changed unheard.
func (r *Redis) missed() {
	for _, t := range r.topics {
		t.changed.Store(true)
	}
	r.wake()
}

// changes calls what waits for topics that have changed.
func (r *Redis) changes() {
	for _, t := range r.topics {
		if t.changed.Swap(false) {
			t.call()
		}
	}
}

// listen hears of changes until ctx ends, over as many connections as it takes.
// Whatever was published between two of them is taken as missed.
func (r *Redis) listen(ctx context.Context) {
	if len(r.topics) == 0 {
		return
	}
	channels := make([]string, 0, len(r.topics))
	for name := range r.topics {
		channels = append(channels, channel(name))
	}
	for again := false; ctx.Err() == nil; again = true {
		if r.Up() {
			// After a panic, which recover has logged, the next connection is made.
			_ = r.recover("listening to Redis", func() error {
				r.hear(ctx, again, channels)
				return nil
			})
		}
		select {
		case <-ctx.Done():
		case <-time.After(probeEvery):
		}
	}
}

// hear listens on one connection until it fails. A connection that says nothing
// is asked whether it lives.
func (r *Redis) hear(ctx context.Context, again bool, channels []string) {
	sub := r.client.Subscribe(ctx, channels...)
	// Closing wakes the receiver, which has no other way to see that ctx is over.
	stop := context.AfterFunc(ctx, func() { _ = sub.Close() })
	defer func() {
		if stop() {
			_ = sub.Close()
		}
	}()
	asked := false
	for {
		got, err := sub.ReceiveTimeout(ctx, renewEvery)
		switch {
		case err == nil:
			asked = false
		case asked || ctx.Err() != nil || !os.IsTimeout(err) || sub.Ping(ctx) != nil:
			return
		default:
			asked = true
			continue
		}
		switch m := got.(type) {
		case *redis.Subscription:
			if again {
				r.missed()
			}
		case *redis.Message:
			if t := r.topics[strings.TrimPrefix(m.Channel, channel(""))]; t != nil {
				t.changed.Store(true)
				r.wake()
			}
		}
	}
}
