// Package zmtp is a client of ZMTP 3.0, the protocol of ZeroMQ sockets, for reading the events
// that inference engines publish. It needs no C library.
//
// It has what an event reader needs, and nothing else: the NULL mechanism, the socket types SUB
// and DEALER, and the transports tcp and ipc. [Publisher] and [Replier] are the other side, for
// simulated engines.
//
// # Sockets
//
// A PUB socket either binds its address or dials the subscriber's. [Dial] serves the first case
// and [Listen] the second; both give a [Conn] for each publisher. After [Conn.Subscribe] the
// messages of a publisher are read one by one:
//
//	c, err := zmtp.Dial(ctx, "tcp://10.0.0.7:5557", zmtp.Sub)
//	…
//	err = c.Subscribe("")
//	for err == nil {
//		err = c.Receive(&m)
//		…
//	}
//
// A DEALER asks a ROUTER for a replay: [Conn.Send] writes the request, [Conn.Receive] reads the
// replies.
//
// A connection is not reconnected by this package: its error is returned at once, because
// everything that a publisher sends until the next subscription is lost. The caller decides
// what it still knows.
//
// # Liveness
//
// No message is also what an idle publisher looks like. [Conn.Subscribe] therefore sends a PING, and
// [Conn.Receive] another after [Heartbeat] of silence. Receive returns [ErrSilent] if a peer that has
// once answered a PING sends nothing for another [Patience]. A peer that never answers one is sent no
// more of them and watched by TCP keep-alive alone, with the same bounds.
//
// # Hostile peers
//
// The NULL mechanism authenticates no peer: any process that reaches a listening address can
// publish. [Limits] bound the parts and bytes of a message before memory is allocated for them;
// a peer that exceeds them costs one error and its connection. Bind to private addresses only.
package zmtp
