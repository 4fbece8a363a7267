package backends

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"tierway/e2e/gateway"
)

// RedisServer is a redis-server that keeps nothing on disk: whenever it starts,
// it is empty. Its methods are for the test's goroutine and fail the test when
// they cannot do what they say.
type RedisServer struct {
	URL  string // redis://127.0.0.1:PORT
	Addr string // 127.0.0.1:PORT

	t       testing.TB
	program program
}

// Redis starts a redis-server, which ends with the test. More arguments of its
// command line may be given.
func Redis(t testing.TB, args ...string) *RedisServer {
	t.Helper()
	bin, err := binary("redis-server")
	if err != nil {
		t.Fatal(err)
	}
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	s := &RedisServer{t: t, Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port))}
	s.URL = "redis://" + s.Addr
	args = append([]string{"--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", dir,
		"--save", "", "--appendonly", "no", "--daemonize", "no", "--loglevel", "warning"}, args...)
	s.program = program{name: "redis-server", addr: s.Addr, log: filepath.Join(dir, "log"), stop: syscall.SIGTERM,
		ready: s.ping, make: func() *exec.Cmd {
			c := exec.Command(bin, args...)
			c.SysProcAttr = gateway.Lifeline()
			return c
		}}
	t.Cleanup(func() { s.must(s.program.kill()) })
	s.must(s.program.start())
	return s
}

// RedisCluster starts a redis-server that is a cluster of its own. The cluster's
// port is not the one that lies 10,000 above: somebody may listen there.
func RedisCluster(t testing.TB) *RedisServer {
	t.Helper()
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	return Redis(t, "--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(port))
}

func (s *RedisServer) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// Kill ends the server as a crash would, and returns when its port is free.
func (s *RedisServer) Kill() { s.t.Helper(); s.must(s.program.kill()) }

// Stop ends the server in good order, and returns when its port is free.
func (s *RedisServer) Stop() { s.t.Helper(); s.must(s.program.end()) }

// Restart starts the server on the same port, empty, after it has ended it if
// it runs, and returns when it serves.
func (s *RedisServer) Restart() { s.t.Helper(); s.must(s.program.restart()) }

// Hang stops the server's process: connections are taken by the kernel, and
// nobody answers.
func (s *RedisServer) Hang() { s.t.Helper(); s.must(s.program.hang()) }

// Resume lets a server that hangs go on.
func (s *RedisServer) Resume() { s.t.Helper(); s.must(s.program.resume()) }

// Do sends one command as redis-cli's user would type it, and returns the
// answer's first line with its type's sign, such as "+OK" or ":3".
func (s *RedisServer) Do(command string) string {
	s.t.Helper()
	line, err := s.do(command)
	s.must(err)
	return line
}

// do is Do for any goroutine.
func (s *RedisServer) do(command string) (string, error) {
	c, err := net.DialTimeout("tcp", s.Addr, patience)
	if err != nil {
		return "", fmt.Errorf("asking redis-server: %w", err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return "", fmt.Errorf("asking redis-server: %w", err)
	}
	if _, err := c.Write([]byte(command + "\r\n")); err != nil {
		return "", fmt.Errorf("asking redis-server: %w", err)
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("asking redis-server: %w", err)
	}
	return strings.TrimSpace(line), nil
}

// ping is nil when the server answers.
func (s *RedisServer) ping() error {
	got, err := s.do("PING")
	if err == nil && got != "+PONG" {
		err = errors.New("it says " + got)
	}
	return err
}
