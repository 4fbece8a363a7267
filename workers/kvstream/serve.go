package kvstream

import (
	"context"
	"slices"
	"sync"
	"time"

	"tierway/workers/zmtp"
)

// Bounds of one Serve, because the NULL mechanism authenticates no peer. A connection without a known
// topic takes about 24 KiB; one with a known topic may send a whole message.
const (
	maxPublishers = 256  // connections
	maxTopic      = 1024 // bytes of a topic
	maxReaders    = 2    // connections of one stream: the publisher's present one and its last
)

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
				nc.Close() // nothing was sent
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
			nc.Close() // nothing was sent
			continue
		}
		all.Go(func() {
			defer func() { <-slots }()
			c, err := zmtp.Handshake(ctx, nc, zmtp.Sub, zmtp.Limits{First: maxTopic})
			if err == nil {
				servePublisher(ctx, c, streams)
			}
		})
	}
}

// pauseAfter waits minBackoff after a temporary error of Accept, such as no free file descriptor. It
// returns false for other errors.
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

// servePublisher reads one connection. It subscribes to all topics, because the workers of a connection
// are unknown before their first message.
func servePublisher(ctx context.Context, c *zmtp.Conn, streams func(topic []byte) *Stream) {
	defer c.Close() // it was only read
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	err := c.Subscribe("")
	joined := map[*Stream]*reader{}
	for m := (zmtp.Message{}); err == nil; {
		var s *Stream
		wanted := func(topic []byte) bool { s = streams(topic); return s != nil && !s.isSuspended() }
		if err = c.ReceiveIf(&m, wanted); err != nil {
			break
		}
		if joined[s] == nil {
			joined[s] = &reader{conn: c}
			s.join(ctx, joined[s])
		}
		s.applyMessage(ctx, joined[s], m.Parts)
	}
	if ctx.Err() != nil {
		return
	}
	for s, r := range joined {
		s.leave(r, err)
	}
}

// join adds a connection with the stream's topic. The publisher's last connection may still be open, and
// any peer may send the topic, so the stream is lost when the last of its connections ends.
func (s *Stream) join(ctx context.Context, r *reader) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.readers) == maxReaders {
		s.readers[0].conn.Close() // it was only read
		s.readers = slices.Delete(s.readers, 0, 1)
	}
	s.readers, s.joinedAt = append(s.readers, r), time.Now()
	s.connect(ctx, true)
}

func (s *Stream) leave(r *reader, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.readers, r)
	if i < 0 {
		return // a later one has displaced it
	}
	if s.readers = slices.Delete(s.readers, i, i+1); len(s.readers) == 0 {
		s.disconnect(err)
	}
}
