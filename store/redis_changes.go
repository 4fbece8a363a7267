package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// PublishChange makes all subscribed gateways, including this one, call their OnChange function.
func (r *Redis) PublishChange(ctx context.Context) error {
	const what = "publishing a change"
	var denied error // no evidence about the availability of Redis
	err := r.do(ctx, what, func(ctx context.Context) error {
		err := r.client.Publish(ctx, changes, r.gateway).Err()
		if isDenied(err) {
			denied, err = err, nil
		}
		return err
	})
	if denied != nil {
		r.logDenied(denied)
		return fmt.Errorf("%s: %w", what, denied)
	}
	return err
}

// isDenied reports whether the ACL of Redis does not permit a command, a key or a channel.
func isDenied(err error) bool { return err != nil && strings.HasPrefix(err.Error(), "NOPERM") }

// logDenied logs once that the user of Redis may not use the channel of changes.
func (r *Redis) logDenied(err error) {
	if !r.denied.Swap(true) {
		r.log.Warn("Redis does not permit the channel of changes; gateways find changes of tenants and keys by their polls "+
			"of the database", "channel", changes, "grant", "ACL SETUSER <user> &tierway:*", "cause", err)
	}
}

// OnChange sets the function that Run calls when a gateway has published a change. Run also calls
// it when Redis comes back, because a change may have been missed. OnChange must be called before
// Run. f must not block and may be called from two goroutines at once.
func (r *Redis) OnChange(f func()) { r.onChange = f }

// listen calls onChange until ctx ends. A change that is missed between two connections is found by
// the next check of the database.
func (r *Redis) listen(ctx context.Context) {
	if r.onChange == nil {
		return
	}
	for wait(ctx, r.subscribe(ctx)) {
	}
}

// subscribe calls onChange until ctx ends or the subscription fails. It returns the pause before the next one.
func (r *Redis) subscribe(ctx context.Context) (pause time.Duration) {
	sub := r.client.Subscribe(ctx, changes)
	defer sub.Close()                                      // there is nothing to lose
	defer context.AfterFunc(ctx, func() { sub.Close() })() // ends the waiting for a notice
	if _, err := r.receive(ctx, sub, probeTimeout); isDenied(err) {
		r.logDenied(err)
		return deniedPause
	} else if err == nil {
		r.denied.Store(false)
	}
	for {
		notice, err := r.receive(ctx, sub, renewEvery)
		var failed net.Error
		switch _, isChange := notice.(*redis.Message); {
		case isChange:
			r.changed()
		case errors.As(err, &failed) && failed.Timeout():
			err = sub.Ping(ctx)
		}
		switch {
		case err == nil:
		case errors.As(err, &failed) || errors.Is(err, io.EOF):
			return probeEvery // the connection has ended
		default:
			return renewEvery
		}
	}
}

// receive returns the next notice. The client panics at a list that is no notice.
func (r *Redis) receive(ctx context.Context, sub *redis.PubSub, patience time.Duration) (notice any, err error) {
	err = r.recover("reading a notice of Redis", func() (err error) {
		notice, err = sub.ReceiveTimeout(ctx, patience)
		return err
	})
	return notice, err
}

// changed calls onChange. A panic, which recover has logged, affects nothing else.
func (r *Redis) changed() {
	if r.onChange != nil {
		_ = r.recover("following Redis", func() error { r.onChange(); return nil })
	}
}
