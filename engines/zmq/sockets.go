// Package zmq has the sockets of simulated engines: a PUB that publishes events, and a ROUTER that answers requests for
// replays.
package zmq

import (
	"bytes"
	"context"
	"net"
	"slices"
	"sync"

	"tierway/workers/zmtp"
)

// queuedMessages is the number of messages that wait for one subscriber. Like a PUB of libzmq, a Publisher
// drops further ones for this subscriber.
const queuedMessages = 1000

// Publisher is a PUB socket that is bound to an address.
type Publisher struct {
	listener *zmtp.Listener
	stop     context.CancelFunc
	all      sync.WaitGroup

	mu          sync.Mutex
	subscribers map[*subscriber]bool
}

// subscriber is one connection of a publisher.
type subscriber struct {
	queue  chan [][]byte // messages
	topics [][]byte      // prefixes that it has subscribed to
}

// Publish binds a PUB socket. The caller must close it.
func Publish(ctx context.Context, n zmtp.Network, address string) (*Publisher, error) {
	l, err := n.Listen(ctx, address)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	p := &Publisher{listener: l, stop: stop, subscribers: map[*subscriber]bool{}}
	p.all.Go(func() { acceptAll(ctx, l, zmtp.Pub, &p.all, func(c *zmtp.Conn) { p.serve(ctx, c) }) })
	return p, nil
}

// Addr is the address that the socket is bound to.
func (p *Publisher) Addr() net.Addr { return p.listener.Addr() }

// Close ends the socket and its connections.
func (p *Publisher) Close() {
	p.stop()
	p.all.Wait()
}

// Send publishes one message to all subscribers of its first part. It does not wait for them, and keeps the parts.
func (p *Publisher) Send(parts ...[]byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for s := range p.subscribers {
		if !s.wants(parts[0]) {
			continue
		}
		select {
		case s.queue <- parts:
		default:
		}
	}
}

func (s *subscriber) wants(topic []byte) bool {
	return slices.ContainsFunc(s.topics, func(prefix []byte) bool { return bytes.HasPrefix(topic, prefix) })
}

// serve reads the subscriptions of one connection and writes its messages.
func (p *Publisher) serve(ctx context.Context, c *zmtp.Conn) {
	s := &subscriber{queue: make(chan [][]byte, queuedMessages)}
	p.mu.Lock()
	p.subscribers[s] = true
	p.mu.Unlock()
	ctx, stop := context.WithCancel(ctx)
	var writer sync.WaitGroup
	writer.Go(func() {
		defer c.Close() // the reader reports
		for {
			select {
			case parts := <-s.queue:
				if c.Send(parts...) != nil {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	})
	for m := (zmtp.Message{}); c.Receive(&m) == nil; {
		p.subscribe(s, m.Parts[0])
	}
	stop()
	writer.Wait()
	p.mu.Lock()
	delete(p.subscribers, s)
	p.mu.Unlock()
}

// subscribe applies a subscription (1 and a prefix) or its end (0 and the prefix).
func (p *Publisher) subscribe(s *subscriber, request []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case len(request) == 0:
	case request[0] == 1:
		s.topics = append(s.topics, bytes.Clone(request[1:]))
	case request[0] == 0:
		if i := slices.IndexFunc(s.topics, func(t []byte) bool { return bytes.Equal(t, request[1:]) }); i >= 0 {
			s.topics = slices.Delete(s.topics, i, i+1)
		}
	}
}

// Replier is a ROUTER socket that is bound to an address and answers requests.
type Replier struct {
	listener *zmtp.Listener
	stop     context.CancelFunc
	all      sync.WaitGroup
}

// Reply binds a ROUTER socket. answer is called for each request, with its parts and a function
// that sends one reply to its peer; requests of different peers run concurrently. The caller
// must close the socket.
func Reply(ctx context.Context, n zmtp.Network, address string, answer func(request [][]byte,
	reply func(...[]byte) error)) (*Replier, error) {
	l, err := n.Listen(ctx, address)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	r := &Replier{listener: l, stop: stop}
	r.all.Go(func() {
		acceptAll(ctx, l, zmtp.Router, &r.all, func(c *zmtp.Conn) {
			for m := (zmtp.Message{}); c.Receive(&m) == nil; {
				answer(m.Parts, c.Send)
			}
		})
	})
	return r, nil
}

// Addr is the address that the socket is bound to.
func (r *Replier) Addr() net.Addr { return r.listener.Addr() }

// Close ends the socket and its connections.
func (r *Replier) Close() {
	r.stop()
	r.all.Wait()
}

// acceptAll serves each connection of a listener until the context ends.
func acceptAll(ctx context.Context, l *zmtp.Listener, socket zmtp.Socket, all *sync.WaitGroup,
	serve func(*zmtp.Conn)) {
	defer context.AfterFunc(ctx, func() { l.Close() })()
	defer l.Close() // it has ended
	for {
		nc, err := l.Accept()
		if err != nil {
			return
		}
		all.Go(func() {
			c, err := zmtp.Handshake(ctx, nc, socket, zmtp.Limits{})
			if err != nil {
				return
			}
			defer c.Close() // nothing is left to send
			defer context.AfterFunc(ctx, func() { c.Close() })()
			serve(c)
		})
	}
}

// Endpoint is the ZeroMQ address of a socket that is bound to an address.
func Endpoint(bound net.Addr) string {
	if bound.Network() == "unix" {
		return "ipc://" + bound.String()
	}
	return bound.Network() + "://" + bound.String()
}
