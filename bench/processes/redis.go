package processes

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// redisTimeout is the time for a redis-server to respond.
const redisTimeout = 15 * time.Second

// Redis is a running redis-server.
type Redis struct {
	Addr string // HOST:PORT
	PID  int
}

// StartRedis starts a redis-server without files.
func (g *Group) StartRedis(ctx context.Context, name, program string) (*Redis, error) {
	program, err := exec.LookPath(program)
	if err != nil {
		return nil, fmt.Errorf("looking for redis-server: %w (run make deps, or name one with -redis)", err)
	}
	s := &Redis{}
	if s.Addr, err = FreeAddr(); err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(s.Addr)
	if err != nil {
		return nil, fmt.Errorf("reading the address of Redis: %w", err)
	}
	cmd, err := g.Start(ctx, name, program, "--port", port, "--bind", "127.0.0.1", "--dir", g.Dir, "--save", "",
		"--appendonly", "no")
	if err != nil {
		return nil, err
	}
	s.PID = cmd.Process.Pid
	for end := time.Now().Add(redisTimeout); ; time.Sleep(20 * time.Millisecond) {
		if _, err = s.Do("PING"); err == nil {
			return s, nil
		}
		if time.Now().After(end) {
			return nil, fmt.Errorf("redis-server is not up after %s: %w", redisTimeout, err)
		}
	}
}

// RedisStats are counters of Redis since its start. Calls counts EVAL and EVALSHA commands only; In and Out are bytes.
type RedisStats struct{ Calls, In, Out float64 }

// Stats reads the counters.
func (s *Redis) Stats() (st RedisStats, err error) {
	text, err := s.Do("INFO everything")
	if err != nil {
		return st, err
	}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch {
		case name == "cmdstat_evalsha", name == "cmdstat_eval":
			calls, _, _ := strings.Cut(strings.TrimPrefix(value, "calls="), ",")
			n, _ := strconv.ParseFloat(calls, 64) // Redis writes numbers
			st.Calls += n
		case name == "total_net_input_bytes":
			st.In, _ = strconv.ParseFloat(value, 64)
		case name == "total_net_output_bytes":
			st.Out, _ = strconv.ParseFloat(value, 64)
		}
	}
	return st, nil
}

// Do sends one command in the syntax of redis-cli and returns the reply's text.
func (s *Redis) Do(command string) (string, error) {
	conn, err := net.DialTimeout("tcp", s.Addr, time.Second)
	if err != nil {
		return "", fmt.Errorf("sending a command to Redis: %w", err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return "", fmt.Errorf("sending a command to Redis: %w", err)
	}
	if _, err := io.WriteString(conn, command+"\r\n"); err != nil {
		return "", fmt.Errorf("sending a command to Redis: %w", err)
	}
	in := bufio.NewReader(conn)
	line, err := in.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("reading a reply of Redis: %w", err)
	}
	kind, rest := line[0], strings.TrimSpace(line[1:])
	switch kind {
	case '-':
		return "", fmt.Errorf("sending %s to Redis: %s", command, rest)
	case '$':
		n, err := strconv.Atoi(rest)
		if err != nil || n < 0 {
			return "", nil // a null reply
		}
		text := make([]byte, n)
		if _, err := io.ReadFull(in, text); err != nil {
			return "", fmt.Errorf("reading a reply of Redis: %w", err)
		}
		return string(text), nil
	}
	return rest, nil
}
