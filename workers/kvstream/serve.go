package kvstream

import (
	"context"
	"sync"
	"time"

	"tierway/workers/zmtp"
)

// maxPublishers bounds the connections of one Serve: the NULL mechanism authenticates no peer.
const maxPublishers = 1024

// Serve accepts publishers that dial, and gives each message to the stream of its topic, until
// the context ends. streams returns nil for a topic that belongs to no worker; such messages are
// dropped. Serve closes the listener and waits for its connections.
func Serve(ctx context.Context, l *zmtp.Listener, streams func(topic []byte) *Stream) error {
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	var all sync.WaitGroup
	defer all.Wait()
	slots := make(chan struct{}, maxPublishers)
	for {
		nc, err := l.Accept()
		if ctx.Err() != nil {
			if err == nil {
				nc.Close() //nolint:errcheck // nothing was sent
			}
			return nil
		}
		if err != nil {
			if pauseAfter(ctx, err) {
				continue
			}
			return err
		}
		select {
		case slots <- struct{}{}:
		default:
			nc.Close() //nolint:errcheck // nothing was sent
			continue
		}
		all.Go(func() {
			defer func() { <-slots }()
			c, err := zmtp.Handshake(ctx, nc, zmtp.Sub, zmtp.Limits{})
			if err == nil {
				servePublisher(ctx, c, streams)
			}
		})
	}
}

// pauseAfter waits a moment after an error of Accept that may pass, such as no free file
// descriptor.
func pauseAfter(ctx context.Context, err error) bool {
	t, ok := err.(interface{ Temporary() bool })
	if !ok || !t.Temporary() {
		return false
	}
	pause := time.NewTimer(minBackoff)
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-ctx.Done():
	}
	return true
}

// servePublisher reads one connection. It subscribes to all topics, because the workers that
// publish on it are not known before their first message.
func servePublisher(ctx context.Context, c *zmtp.Conn, streams func(topic []byte) *Stream) {
	defer c.Close() //nolint:errcheck // it was only read
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	err := c.Subscribe("")
	begun := map[*Stream]bool{}
	for m := (zmtp.Message{}); err == nil; {
		if err = c.Receive(&m); err != nil || len(m.Parts) == 0 {
			continue
		}
		s := streams(m.Parts[0])
		if s == nil {
			continue
		}
		if !begun[s] {
			begun[s] = true
			s.begin(ctx, true)
		}
		s.takeMessage(ctx, m.Parts)
	}
	if ctx.Err() != nil {
		return
	}
	for s := range begun {
		s.disconnect(err)
	}
}
