package backends

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"tierway/e2e/gateway"
	"tierway/e2e/loopback"
)

// RedisServer is a redis-server without persistence: it is empty after every start. Its
// methods must be called on the test's goroutine; they fail the test on an error.
type RedisServer struct {
	URL  string // redis://HOST:PORT
	Addr string // HOST:PORT

	t       testing.TB
	process serverProcess
}

// Redis starts a redis-server, which ends with the test. args are further arguments of its
// command line.
func Redis(t testing.TB, args ...string) *RedisServer {
	t.Helper()
	bin, err := findBinary("redis-server")
	if err != nil {
		t.Fatal(err)
	}
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	s := &RedisServer{t: t, Addr: net.JoinHostPort(loopback.Host(), port)}
	s.URL = "redis://" + s.Addr
	args = append([]string{"--port", port, "--bind", loopback.Host(), "--dir", dir,
		"--save", "", "--appendonly", "no", "--daemonize", "no", "--loglevel", "warning"}, args...)
	s.process = serverProcess{name: "redis-server", addr: s.Addr, log: filepath.Join(dir, "log"), stop: syscall.SIGTERM,
		ready: s.ping, make: func() *exec.Cmd {
			c := exec.Command(bin, args...)
			c.SysProcAttr = gateway.EndWithParent()
			return c
		}}
	t.Cleanup(func() { s.must(s.process.kill()) })
	s.must(s.process.start())
	return s
}

// RedisCluster starts a redis-server in cluster mode, as the only node. Its cluster port is a
// free port, because the default (port + 10000) may be taken.
func RedisCluster(t testing.TB) *RedisServer {
	t.Helper()
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	// A single node does not know its address, and clients would connect to 127.0.0.1.
	return Redis(t, "--cluster-enabled", "yes", "--cluster-port", port, "--cluster-announce-ip", loopback.Host())
}

func (s *RedisServer) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// Kill ends the server with SIGKILL and returns when its port is free.
func (s *RedisServer) Kill() { s.t.Helper(); s.must(s.process.kill()) }

// Stop shuts the server down and returns when its port is free.
func (s *RedisServer) Stop() { s.t.Helper(); s.must(s.process.shutDown()) }

// Restart stops the server if it runs and starts it, empty, on the same port. It returns when
// the server is ready.
func (s *RedisServer) Restart() { s.t.Helper(); s.must(s.process.restart()) }

// Hang suspends the server's process: the kernel accepts connections, but no command is
// answered.
func (s *RedisServer) Hang() { s.t.Helper(); s.must(s.process.hang()) }

// Resume resumes the server after Hang.
func (s *RedisServer) Resume() { s.t.Helper(); s.must(s.process.resume()) }

// Do sends one command, in the syntax of redis-cli, and returns the first line of the reply
// with its type character, such as "+OK" or ":3".
func (s *RedisServer) Do(command string) string {
	s.t.Helper()
	line, err := s.send(command)
	s.must(err)
	return line
}

// send is Do for any goroutine.
func (s *RedisServer) send(command string) (string, error) {
	c, err := net.DialTimeout("tcp", s.Addr, patience)
	if err != nil {
		return "", fmt.Errorf("sending a command to redis-server: %w", err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return "", fmt.Errorf("sending a command to redis-server: %w", err)
	}
	if _, err := c.Write([]byte(command + "\r\n")); err != nil {
		return "", fmt.Errorf("sending a command to redis-server: %w", err)
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("sending a command to redis-server: %w", err)
	}
	return strings.TrimSpace(line), nil
}

// ping returns nil if the server responds.
func (s *RedisServer) ping() error {
	got, err := s.send("PING")
	if err == nil && got != "+PONG" {
		err = errors.New("PING returned " + got)
	}
	return err
}
