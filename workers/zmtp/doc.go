// Package zmtp is a client of ZMTP 3.0, the protocol of ZeroMQ sockets, for reading the events
// that inference engines publish. It needs no C library.
//
// It implements only the parts that an event reader needs: the NULL mechanism, the socket types SUB
// and DEALER, and the transports tcp and ipc. engines/zmq is the other side, for simulated engines.
//
// # Sockets
//
// A PUB socket either binds its address or dials the subscriber's. [Network.Dial] serves the first case
// and [Network.Listen] the second; both give a [Conn] for each publisher. After [Conn.Subscribe] the
// messages of a publisher are read one by one:
//
//	c, err := zmtp.Network{}.Dial(ctx, "tcp://10.0.0.7:5557", zmtp.Sub, zmtp.Limits{})
//	…
//	err = c.Subscribe("")
//	for err == nil {
//		err = c.Receive(&m)
//		…
//	}
//
// A DEALER requests a replay from a ROUTER: [Conn.Send] writes the request, [Conn.Receive] reads the
// replies.
//
// The package does not connect again after an error. It returns the error at once, because all messages
// that a publisher sends until the next subscription are lost. The caller decides which of its state is
// still valid.
//
// # Liveness
//
// An idle publisher sends no messages, and neither does a lost one. [Conn.Subscribe] therefore sends a
// PING, and [Conn.Receive] another after [Heartbeat] of silence. Receive returns [ErrSilent] if a peer that
// has once answered a PING sends nothing for another [Patience]. A peer that answers no PING receives no
// more of them; TCP keep-alive alone detects its loss, with the same bounds.
//
// # Hostile peers
//
// The NULL mechanism authenticates no peer: any process that reaches a listening address can
// publish. [Limits] bound the parts and bytes of a message before memory is allocated for them;
// for a peer that exceeds them, Receive returns an error. [Conn.ReceiveIf] checks the topic before it
// reads on, so that a peer with an unknown topic takes a reader of 16 KiB. The buffer of a message over
// 128 KiB is freed before the next one is awaited. Bind to private addresses only.
package zmtp
