package liveness

import (
	"net"
	"net/http"
	"sync"
	"time"

	"tierway/memnet"
)

// gate holds all that pass while it is shut.
type gate struct {
	mu      sync.Mutex
	changed sync.Cond // its L is mu
	shut    bool
}

func newGate() *gate {
	g := new(gate)
	g.changed.L = &g.mu
	return g
}

func (g *gate) set(shut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = shut
	g.changed.Broadcast()
}

func (g *gate) pass() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.shut {
		g.changed.Wait()
	}
}

// gatedListener and gatedConn are the sockets of a process that can be stopped. The kernel still accepts
// connections and bytes for it.
type gatedListener struct {
	net.Listener
	gate *gate
}

// Accept is part of net.Listener.
func (l gatedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	l.gate.pass()
	if err != nil {
		return nil, err
	}
	return gatedConn{c, l.gate}, nil
}

type gatedConn struct {
	net.Conn
	gate *gate
}

// Read is part of net.Conn.
func (c gatedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.gate.pass()
	return n, err
}

// Write is part of net.Conn.
func (c gatedConn) Write(b []byte) (int, error) {
	c.gate.pass()
	return c.Conn.Write(b)
}

// process is the server of an engine. Its faults can be switched on and off.
type process struct {
	*engine
	name    string
	address string
	network *memnet.Network
	server  *http.Server
	gate    *gate
	owned   sync.WaitGroup

	listener net.Listener // the open one; used by the test's goroutine
}

// startProcess serves an engine on an address of the network. The caller must call stopProcess.
func startProcess(network *memnet.Network, name, address string, c engineConfig) (*process, error) {
	p := &process{engine: newEngine(c), name: name, address: address, network: network, gate: newGate()}
	p.server = &http.Server{Handler: p.engine, ReadHeaderTimeout: time.Minute}
	if err := p.open(); err != nil {
		return nil, err
	}
	p.owned.Go(p.engine.run)
	return p, nil
}

// open opens the listener.
func (p *process) open() (err error) {
	p.listener, err = p.network.Listen("tcp", p.address)
	if err != nil {
		return err
	}
	l := gatedListener{p.listener, p.gate}
	p.owned.Go(func() { p.server.Serve(l) }) // it ends when the listener is closed
	return nil
}

// refuse closes the listener, so that the kernel refuses new connections.
func (p *process) refuse() { p.listener.Close() } // open

// freeze stops the process as SIGSTOP does.
func (p *process) freeze() {
	p.engine.stop(nil)
	p.gate.set(true)
}

// thaw continues it, as SIGCONT does.
func (p *process) thaw() {
	p.gate.set(false)
	p.engine.resume()
}

// stopProcess ends the process.
func (p *process) stopProcess() {
	p.thaw()
	p.server.Close() // a listener may be closed
	p.engine.close()
	p.owned.Wait()
}
