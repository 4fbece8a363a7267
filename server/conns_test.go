package server

import (
	"crypto/tls"
	"errors"
	"net"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
)

// TestASilentHandshakeBlocksNoOtherAndEndsWithTheListener, and a failed one blocks none either.
func TestASilentHandshakeBlocksNoOtherAndEndsWithTheListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := goleak.IgnoreCurrent()
		certs := newUnstartedServer(t, nil)
		certs.StartTLS()
		config := &tls.Config{Certificates: certs.TLS.Certificates, NextProtos: []string{"h2", "http/1.1"}}
		certs.Close()
		network := networkOf(t)
		tcp, err := network.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		l := newTLSListener(tcp, config, func(_ string, step func()) { step() })
		silent, err := network.Dial(t.Context(), "tcp", tcp.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer silent.Close()
		for _, protocols := range [][]string{{"h2"}, {"http/1.1"}, nil} {
			ended := make(chan error, 1)
			go func() {
				c, err := network.Dial(t.Context(), "tcp", tcp.Addr().String())
				if err == nil {
					secure := tls.Client(c, &tls.Config{InsecureSkipVerify: true, NextProtos: protocols})
					err = errors.Join(secure.Handshake(), secure.Close())
				}
				ended <- err
			}()
			c, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			_, two := c.(*tls.Conn)
			if _, one := c.(*secureConn); two != (len(protocols) > 0 && protocols[0] == "h2") || one == two {
				t.Errorf("%q: the connection is a %T", protocols, c)
			}
			if err := <-ended; err != nil {
				t.Errorf("%q: %v", protocols, err)
			}
			c.Close()
		}
		plain, err := network.Dial(t.Context(), "tcp", tcp.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer plain.Close()
		if _, err := plain.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n")); err != nil {
			t.Fatal(err)
		}
		c, err := l.Accept()
		if _, ok := c.(*tls.Conn); err != nil || !ok {
			t.Errorf("after a failed handshake Accept returns %T, %v", c, err)
		}
		c.Close()
		if err := l.Close(); err != nil { // waits for the silent handshake to end
			t.Error(err)
		}
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("after Close, Accept returns %v", err)
		}
		silent.Close()
		goleak.VerifyNone(t, before)
	})
}
