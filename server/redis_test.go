package server

import (
	"net"
	"sync"
	"testing"

	"github.com/alicebob/miniredis/v2"
)

// redisServer is an empty Redis on a test's network.
type redisServer struct {
	url  string
	kill func() // ends its connections and refuses new ones
}

// newRedis returns a Redis that ends with the test.
func newRedis(t *testing.T) redisServer {
	t.Helper()
	mini := miniredis.NewMiniRedis()
	first, err := mini.Dial() // this starts it without a listener of its own
	if err != nil {
		t.Fatal(err)
	}
	_ = first.Close()
	l, err := networkOf(t).Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var accepted []net.Conn
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			accepted = append(accepted, c)
			mu.Unlock()
			mini.Server().ServeConn(c)
		}
	}()
	kill := sync.OnceFunc(func() {
		_ = l.Close()
		mu.Lock()
		defer mu.Unlock()
		for _, c := range accepted {
			_ = c.Close()
		}
		mini.Close()
	})
	t.Cleanup(kill)
	return redisServer{url: "redis://" + l.Addr().String(), kill: kill}
}
