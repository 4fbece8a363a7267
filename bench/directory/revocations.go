package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// pollPause is the pause between two requests with a key that will be revoked: it bounds the error of the figure, and
// leaves processor time for the gateways.
const pollPause = 2 * time.Millisecond

// measureRevocations revokes n keys. It returns the times from the answer until all other gateways have refused the
// key.
func (m *meter) measureRevocations(ctx context.Context, tenant string, n int) (times []time.Duration, err error) {
	for i := range n {
		var k createdKey
		create := func() (err error) { k, err = m.fleet.createKey(ctx, tenant); return err }
		if _, err := m.measure(ctx, create, m.fleet.allAccept(ctx, &k.Secret, true)); err != nil {
			return nil, err
		}
		// Gateways without Redis read the revision once per second; the revocations are spread over this second.
		if err := sleep(ctx, time.Second*time.Duration(i)/time.Duration(n)); err != nil {
			return nil, err
		}
		took, err := m.fleet.timeRevocation(ctx, k)
		if err != nil {
			return nil, fmt.Errorf("revoking a key: %w", err)
		}
		times = append(times, took)
	}
	return times, nil
}

// timeRevocation revokes a key through the first gateway, while the others get requests with it.
func (f *fleet) timeRevocation(ctx context.Context, k createdKey) (time.Duration, error) {
	type refusal struct {
		at  time.Time
		err error
	}
	others := f.list[1:]
	refused := make(chan refusal, len(others))
	for _, g := range others {
		go func() {
			for began := time.Now(); ; time.Sleep(pollPause) {
				accepted, err := f.accepts(ctx, g, k.Secret)
				if err == nil && accepted && time.Since(began) > callTimeout+quietTimeout {
					err = errors.New("the key is still accepted")
				}
				if err != nil || !accepted {
					refused <- refusal{time.Now(), err}
					return
				}
			}
		}()
	}
	err := f.revokeKey(ctx, k.Key.ID)
	answered := time.Now()
	var last time.Duration
	for range others {
		r := <-refused
		err = errors.Join(err, r.err)
		last = max(last, r.at.Sub(answered))
	}
	return last, err
}
