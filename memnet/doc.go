// Package memnet is an in-memory network for tests in virtual time.
//
// In a bubble of testing/synctest, time advances only while every goroutine waits for something within
// the bubble. A goroutine that reads a socket waits for the kernel, so time stands still. A goroutine
// that reads a connection of a Network waits within the bubble.
//
//	synctest.Test(t, func(t *testing.T) {
//		network := memnet.New()
//		l, err := network.Listen("tcp", "127.0.0.1:0")
//		…
//		go server.Serve(l)
//		client := &http.Transport{DialContext: network.Dial}
//		…
//	})
//
// A Network, its listeners and its connections belong to the bubble that creates them.
//
// Connections behave like TCP connections over loopback, with these differences:
//
//   - Bytes take no time.
//   - Only SetLinger(0) and Close reset a connection. If an end is closed, its peer reads the rest and
//     then io.EOF, and the peer's writes fail at once.
//   - A connection is no syscall.Conn. Code that looks into a socket before it uses an idle connection
//     therefore finds a closed peer only when it reads or writes.
package memnet
