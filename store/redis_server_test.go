package store

import (
	"context"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/alicebob/miniredis/v2/proto"
)

// redisServer is the Redis of a law: one in memory, or a redis-server.
type redisServer struct {
	t       testing.TB
	url     string
	network func(ctx context.Context, network, address string) (net.Conn, error)
	restart func() // without its data
	mini    *line  // nil: a redis-server
}

// realRedis is the environment variable with the address of a redis-server.
const realRedis = "TIERWAY_TEST_REDIS"

// onRedis verifies a law on an empty Redis in memory, in a bubble, or on the redis-server of TestSmokeRedis.
func onRedis(t *testing.T, law func(t *testing.T, server *redisServer)) {
	t.Helper()
	if address := os.Getenv(realRedis); address != "" {
		s := &redisServer{t: t, url: "redis://" + address, network: new(net.Dialer).DialContext}
		s.restart = func() { s.Do("FLUSHALL"); s.Do("SCRIPT FLUSH") }
		s.restart()
		law(t, s)
		return
	}
	synctest.Test(t, func(t *testing.T) { law(t, newLine(t).server(t)) })
}

// server returns the Redis at the end of the line.
func (l *line) server(t testing.TB) *redisServer {
	return &redisServer{t: t, url: "redis://" + lineAddress, network: l.dial, mini: l,
		restart: func() { l.kill(); l.restart() }}
}

// config returns the configuration of a gateway that waits as long as it takes.
func (s *redisServer) config(gateway string) RedisConfig {
	return RedisConfig{URL: s.url, Dial: s.network, Timeout: patient, Gateway: gateway}
}

// Do sends a command whose arguments are separated by spaces, or quoted. It returns the first line of the reply with
// its type character, such as "+OK" or ":3".
func (s *redisServer) Do(command string) string {
	s.t.Helper()
	conn, err := s.network(context.Background(), "tcp", strings.TrimPrefix(s.url, "redis://"))
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close()
	reply, err := proto.NewClient(conn).Do(arguments(command)...)
	if err != nil {
		s.t.Fatalf("%s: %v", command, err)
	}
	line, _, _ := strings.Cut(reply, "\r\n")
	return line
}

// arguments splits a command. An argument that begins with a quote ends with one and may have spaces.
func arguments(command string) (all []string) {
	for command != "" {
		var argument string
		if rest, quoted := strings.CutPrefix(command, `"`); quoted {
			argument, command, _ = strings.Cut(rest, `"`)
			command = strings.TrimPrefix(command, " ")
		} else {
			argument, command, _ = strings.Cut(command, " ")
		}
		all = append(all, argument)
	}
	return all
}

// property is a test whose property runs in a bubble, which has no deadline.
type property struct{ *testing.T }
